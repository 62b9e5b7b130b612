/* part_digest.c - what proofs of parts are known by.
 *
 * What is digested is written down as words and texts with their lengths, so that different
 * contents have different bytes, and hashed (XXH3-128). Labels, modules and source lines are left
 * out: they do not bear on a proof. Cost: linear in what is digested.
 */
#include <assert.h>
#include <tocsin/version.h>

#include "compose/compose.h"

/* To be raised when the prover's rules or the contents of parts change their meaning. */
#define RULES_VERSION "1"

typedef struct digester {
    const tocsin_plan *plan;
    const tocsin_plan_role *role;
    const uint8_t *each; /* by value of the plan, or NULL */
    tocsin_string bytes;
} digester;

static void put_word(digester *one, uint64_t word)
{
    tocsin_string_append(&one->bytes, &word, sizeof word);
}

static void put_text(digester *one, const char *text, size_t bytes)
{
    put_word(one, bytes);
    tocsin_string_append(&one->bytes, text, bytes);
}

static void put_string(digester *one, uint32_t string)
{
    size_t bytes = 0;
    const char *text = tocsin_intern_text(&one->plan->strings, string, &bytes);
    put_text(one, text == NULL ? "" : text, bytes);
}

static tocsin_status finish(digester *one, tocsin_hash128 *digest, tocsin_error *error)
{
    const tocsin_status status = tocsin_string_check(&one->bytes, error);
    if (status == TOCSIN_OK)
        *digest = tocsin_hash128_of(tocsin_string_text(&one->bytes), one->bytes.bytes, 0);
    tocsin_string_free(&one->bytes);
    return status;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void put_attribute(digester *one, const tocsin_attribute *attribute)
{
    put_string(one, attribute->key);
    put_word(one, attribute->kind);
    switch ((tocsin_attribute_kind)attribute->kind) {
    case TOCSIN_ATTRIBUTE_INTEGERS:
        put_text(one, (const char *)attribute->integers,
                 attribute->count * sizeof *attribute->integers);
        break;
    case TOCSIN_ATTRIBUTE_REAL:
        tocsin_string_append(&one->bytes, &attribute->real, sizeof attribute->real);
        break;
    case TOCSIN_ATTRIBUTE_TEXT:
        put_string(one, attribute->text);
        break;
    }
}

static const tocsin_plan_value *value_of(const digester *one, uint32_t value)
{
    return &one->plan->values.items[one->role->first_value + value];
}

static void put_name(digester *one, uint32_t value)
{
    put_string(one, value_of(one, value)->name);
}

static void put_value(digester *one, uint32_t value)
{
    const tocsin_plan_value *what = value_of(one, value);
    const bool each = one->each != NULL && one->each[one->role->first_value + value];
    put_name(one, value);
    put_word(one, (uint64_t)what->ndim << 24 | (uint64_t)what->dtype << 16 |
                      (uint64_t)what->persistent << 8 | (uint64_t)each << 1 | what->per_microbatch);
    if (what->ndim != TOCSIN_PLAN_NDIM_UNKNOWN)
        put_text(one, (const char *)tocsin_plan_shape(one->plan, what),
                 what->ndim * sizeof(int64_t));
}

static void put_starts(digester *one, const tocsin_affine *starts, size_t ndim)
{
    put_text(one, (const char *)starts, ndim * sizeof *starts);
}

static void put_op(digester *one, uint32_t number)
{
    const tocsin_plan_op *op = &one->plan->ops.items[number];
    const uint32_t *operands = one->plan->operands.items + op->first_operand;
    const tocsin_attribute_set *set = &one->plan->attribute_sets.items[op->attributes];

    put_word(one, op->code);
    put_string(one, op->name);
    put_word(one, set->count);
    for (uint32_t a = 0; a < set->count; a++)
        put_attribute(one, &set->items[a]);
    put_word(one, op->group);
    if (op->signature != TOCSIN_PLAN_NONE) {
        size_t bytes;
        const char *text =
            tocsin_intern_text(&one->plan->signature_keys, op->signature + 1, &bytes);
        put_text(one, text, bytes);
    }
    put_word(one, (uint64_t)op->input_count << 32 | op->output_count);
    for (uint32_t i = 0; i < op->input_count; i++)
        put_name(one, operands[i]);
    for (uint32_t j = 0; j < op->output_count; j++)
        put_value(one, operands[op->input_count + j]);
}

static void put_schedule(digester *one)
{
    put_word(one, one->role->segment_count);
    put_word(one, one->role->turn_count);
    for (uint32_t t = 0; t < one->role->turn_count; t++) {
        const tocsin_plan_turn turn = one->plan->turns.items[one->role->first_turn + t];
        put_word(one, (uint64_t)turn.segment << 32 | (uint32_t)turn.microbatch);
    }
}

/* ---- the header ------------------------------------------------------------------------------ */

tocsin_status tocsin_digest_header(const tocsin_plan *plan, const tocsin_verify_options *options,
                                   tocsin_hash128 *digest, tocsin_error *error)
{
    digester one = {.plan = plan};
    put_text(&one, TOCSIN_VERSION " " RULES_VERSION, strlen(TOCSIN_VERSION " " RULES_VERSION));
    put_word(&one, options->enumerate);
    put_word(&one, (uint64_t)plan->replica_axis << 32 | plan->microbatches);
    for (uint32_t a = 0; a < plan->axis_count; a++) {
        put_string(&one, plan->axes[a].name);
        put_word(&one, plan->axes[a].size);
    }
    put_word(&one, plan->groups.count);
    for (size_t g = 0; g < plan->groups.count; g++) {
        const tocsin_plan_group *group = &plan->groups.items[g];
        put_string(&one, group->name);
        put_text(&one, (const char *)(plan->members.items + group->first_member),
                 group->member_count * sizeof(tocsin_plan_member));
    }
    put_word(&one, plan->assumptions.count);
    for (size_t k = 0; k < plan->assumptions.count; k++)
        put_string(&one, plan->assumptions.items[k]);
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        put_word(&one, role->device);
        put_word(&one, (uint64_t)role->first_replica << 32 | role->replica_count);
    }
    return finish(&one, digest, error);
}

/* ---- communication --------------------------------------------------------------------------- */

/* What of a value is written down when an operator reads it: that it persists or comes from another
 * segment, or that it is the pending result of an asynchronous call. */
static void put_reading(digester *one, const tocsin_role_parts *parts, const uint32_t *segment_of,
                        uint32_t op, uint32_t value, bool pending)
{
    const uint32_t made = parts->producer[value];
    if (made == TOCSIN_PLAN_NONE ||
        !(pending || value_of(one, value)->persistent || segment_of[made] != segment_of[op]))
        return;
    put_word(one, (uint64_t)segment_of[op] << 32 | (pending ? 'p' : 'r'));
    put_word(one, tocsin_role_parts_op(parts, op)->code == TOCSIN_OPERATOR_WAIT);
    put_name(one, value);
    put_word(one, segment_of[made]);
}

static void put_communication(digester *one, const tocsin_role_parts *parts,
                              const uint32_t *segment_of, uint8_t *pending)
{
    for (uint32_t k = 0; k < parts->op_count; k++) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        const uint32_t *operands = one->plan->operands.items + op->first_operand;
        const uint32_t *outputs = operands + op->input_count;
        if (tocsin_operator_communicates(op->code)) {
            put_word(one, segment_of[k]);
            put_op(one, parts->first_op + k);
            for (uint32_t i = 0; i < op->input_count; i++)
                put_value(one, operands[i]);
        }
        for (uint32_t i = 0; i < op->input_count; i++)
            put_reading(one, parts, segment_of, k, operands[i], pending[operands[i]]);
        for (uint32_t j = 0; j < op->output_count; j++) {
            pending[outputs[j]] = tocsin_is_asynchronous(one->plan, op) ||
                                  (tocsin_operator_is_alias(op->code) && pending[operands[0]]);
            if (value_of(one, outputs[j])->persistent) {
                put_word(one, (uint64_t)segment_of[k] << 32 | 'w');
                put_name(one, outputs[j]);
                put_word(one, op->code == TOCSIN_OPERATOR_ACCUMULATE);
            }
        }
    }
}

tocsin_status tocsin_digest_communication(const tocsin_role_parts *parts, tocsin_hash128 *digest,
                                          tocsin_error *error)
{
    digester one = {
        .plan = parts->plan, .role = &parts->plan->roles.items[parts->role], .each = parts->each};
    uint32_t *segment_of = tocsin_alloc((parts->op_count + 1) * sizeof *segment_of);
    uint8_t *pending = tocsin_zalloc((size_t)one.role->value_count + 1, 1);
    tocsin_status status = TOCSIN_OK;
    if (segment_of == NULL || pending == NULL) {
        status = tocsin_error_memory(error);
    } else {
        for (uint32_t s = 0, k = 0; s < one.role->segment_count; s++) {
            const tocsin_plan_segment *segment =
                &parts->plan->segments.items[one.role->first_segment + s];
            for (uint32_t i = 0; i < segment->op_count; i++)
                segment_of[k++] = s;
        }
        put_schedule(&one);
        put_communication(&one, parts, segment_of, pending);
        status = finish(&one, digest, error);
    }
    tocsin_free(segment_of);
    tocsin_free(pending);
    return status;
}

/* ---- selections ------------------------------------------------------------------------------ */

static void put_cut(digester *one, const tocsin_cuts *cuts, const tocsin_role_parts *parts,
                    uint32_t value)
{
    put_value(one, value);
    if (parts == NULL)
        return; /* the logical value itself */
    const tocsin_part_claim *claim = tocsin_cuts_find(
        cuts, parts->role, tocsin_plan_text(one->plan, value_of(one, value)->name));
    assert(claim != NULL);
    size_t bytes;
    const char *name = tocsin_intern_text(&cuts->strings, claim->name, &bytes);
    put_text(one, name, bytes);
    put_word(one, claim->is_input);
    put_word(one, (uint64_t)claim->numerator);
    put_word(one, (uint64_t)claim->denominator);
    put_starts(one, claim->starts, claim->ndim);
}

/* The operators, segment by segment. */
static void put_ops(digester *one, const tocsin_part_selection *selection)
{
    size_t next = 0;
    for (uint32_t s = 0; s < one->role->segment_count; s++) {
        const tocsin_plan_segment *segment =
            &one->plan->segments.items[one->role->first_segment + s];
        put_word(one, s);
        for (; next < selection->ops.count &&
               selection->ops.items[next] < segment->first_op + segment->op_count;
             next++)
            put_op(one, selection->ops.items[next]);
    }
}

tocsin_status tocsin_digest_selection(const tocsin_plan *plan, const tocsin_cuts *cuts,
                                      const tocsin_role_parts *parts,
                                      const tocsin_part_selection *selection,
                                      tocsin_hash128 *digest, tocsin_error *error)
{
    digester one = {.plan = plan,
                    .role = &plan->roles.items[selection->role],
                    .each = parts == NULL ? NULL : parts->each};
    put_schedule(&one);
    put_word(&one, selection->inputs.count);
    for (size_t k = 0; k < selection->inputs.count; k++) {
        const tocsin_plan_input *input = &plan->inputs.items[selection->inputs.items[k]];
        put_value(&one, input->value);
        put_string(&one, input->name);
        put_starts(&one, plan->starts.items + input->first_start,
                   value_of(&one, input->value)->ndim);
    }
    put_word(&one, selection->imports.count);
    for (size_t k = 0; k < selection->imports.count; k++)
        put_cut(&one, cuts, parts, selection->imports.items[k]);
    put_ops(&one, selection);
    put_word(&one, selection->exports.count);
    for (size_t k = 0; k < selection->exports.count; k++)
        put_cut(&one, cuts, parts, selection->exports.items[k]);
    put_word(&one, selection->outputs.count);
    for (size_t k = 0; k < selection->outputs.count; k++) {
        const tocsin_plan_output *output = &plan->outputs.items[selection->outputs.items[k]];
        put_word(&one, output->kind);
        put_text(&one, (const char *)output->fold, sizeof output->fold);
        put_string(&one, output->name);
        put_name(&one, output->value);
        const uint8_t ndim = value_of(&one, output->value)->ndim;
        if (ndim != TOCSIN_PLAN_NDIM_UNKNOWN)
            put_starts(&one, plan->starts.items + output->first_start, ndim);
    }
    return finish(&one, digest, error);
}
