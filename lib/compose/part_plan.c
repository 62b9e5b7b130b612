/* part_plan.c - the pair of plans that proves a part.
 *
 * The selected operators are copied, in their segments. An import becomes an input, at its claimed
 * slice; where the claim has a factor, the input is scaled by it where the value was made. An
 * export becomes an output, scaled back. In the logical plan imports and exports are whole values.
 * Cost: linear in what is selected.
 */
#include <assert.h>
#include <stdio.h>

#include "compose/compose.h"

typedef struct copier {
    const tocsin_plan *from;
    const tocsin_plan_role *role;
    const tocsin_cuts *cuts;
    const tocsin_role_parts *parts; /* NULL: the logical plan */
    const tocsin_part_selection *selection;
    tocsin_plan *to;
    uint32_t *map;      /* by value of the role: the new value, or NONE */
    uint8_t *imported;  /* by value of the role */
    uint32_t *exported; /* by value of the role: the new value that is put out, or NONE */
    tocsin_arena arena;
    tocsin_error *error;
} copier;

/* ---- strings and values ---------------------------------------------------------------------- */

/* The string in the new plan: `prefix` and the old text. */
static tocsin_status string_of(copier *one, const char *prefix, const char *text, size_t bytes,
                               const char *suffix, uint32_t *string)
{
    tocsin_string whole = {0};
    tocsin_string_append_text(&whole, prefix);
    tocsin_string_append(&whole, text, bytes);
    tocsin_string_append_text(&whole, suffix);
    tocsin_status status = tocsin_string_check(&whole, one->error);
    if (status == TOCSIN_OK) {
        *string = tocsin_plan_string(one->to, tocsin_string_text(&whole), whole.bytes);
        if (*string == 0)
            status = tocsin_plan_string_error(one->to, one->error);
    }
    tocsin_string_free(&whole);
    return status;
}

static tocsin_status copy_string(copier *one, uint32_t old, uint32_t *string)
{
    size_t bytes = 0;
    const char *text = tocsin_intern_text(&one->from->strings, old, &bytes);
    if (old == 0 || text == NULL) {
        *string = 0;
        return TOCSIN_OK;
    }
    *string = tocsin_plan_string(one->to, text, bytes);
    return *string != 0 ? TOCSIN_OK : tocsin_plan_string_error(one->to, one->error);
}

static const tocsin_plan_value *value_of(const copier *one, uint32_t value)
{
    return &one->from->values.items[one->role->first_value + value];
}

/* A new value of the type of an old one, called so. */
static tocsin_status make_value(copier *one, uint32_t old, const char *prefix, const char *suffix,
                                bool input, uint32_t *value)
{
    tocsin_plan_value made = *value_of(one, old);
    const int64_t *shape =
        made.ndim == TOCSIN_PLAN_NDIM_UNKNOWN ? NULL : tocsin_plan_shape(one->from, &made);
    size_t bytes;
    const char *text = tocsin_intern_text(&one->from->strings, made.name, &bytes);
    TOCSIN_TRY(string_of(one, prefix, text, bytes, suffix, &made.name));
    if (input) {
        made.per_microbatch =
            one->parts != NULL && one->parts->each[one->role->first_value + old] != 0;
        made.persistent = !made.per_microbatch;
    }
    return tocsin_plan_add_value(one->to, &made, shape, value, one->error);
}

static tocsin_status copied_value(copier *one, uint32_t old, uint32_t *value)
{
    if (one->map[old] == TOCSIN_PLAN_NONE)
        TOCSIN_TRY(make_value(one, old, "", "", false, &one->map[old]));
    *value = one->map[old];
    return TOCSIN_OK;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static const tocsin_part_claim *claim_of(const copier *one, uint32_t value)
{
    return one->parts == NULL
               ? NULL
               : tocsin_cuts_find(one->cuts, one->parts->role,
                                  tocsin_plan_text(one->from, value_of(one, value)->name));
}

static double factor_of(const tocsin_part_claim *claim)
{
    return claim == NULL ? 1.0 : (double)claim->numerator / (double)claim->denominator;
}

/* What the logical input or output is called that stands for a cut value. An input of the logical
 * plan is imported under its own name. */
static tocsin_status cut_name(copier *one, uint32_t value, bool exported, uint32_t *string)
{
    const tocsin_part_claim *claim = claim_of(one, value);
    size_t bytes;
    if (claim != NULL) {
        const char *text = tocsin_intern_text(&one->cuts->strings, claim->name, &bytes);
        const char *prefix = !claim->is_input ? "cut:" : exported ? "cut-input:" : "";
        return string_of(one, prefix, text, bytes, "", string);
    }
    uint32_t name = value_of(one, value)->name;
    const char *prefix = "cut:";
    for (uint32_t k = 0; k < one->role->input_count; k++) {
        const tocsin_plan_input *input = &one->from->inputs.items[one->role->first_input + k];
        if (input->value == value) {
            name = input->name;
            prefix = "cut-input:";
        }
    }
    const char *text = tocsin_intern_text(&one->from->strings, name, &bytes);
    return string_of(one, prefix, text, bytes, "", string);
}

static const tocsin_affine *starts_of(const copier *one, uint32_t value)
{
    static const tocsin_affine zero[TOCSIN_PLAN_NDIM_MAX];
    const tocsin_part_claim *claim = claim_of(one, value);
    return claim == NULL ? zero : claim->starts;
}

static tocsin_status scale(copier *one, uint32_t input, uint32_t output, double factor)
{
    tocsin_attribute attribute = {.kind = TOCSIN_ATTRIBUTE_REAL, .real = factor};
    tocsin_plan_op op = {.code = TOCSIN_OPERATOR_SCALE,
                         .signature = TOCSIN_PLAN_NONE,
                         .group = TOCSIN_PLAN_NONE,
                         .input_count = 1,
                         .output_count = 1};
    attribute.key = tocsin_plan_string(one->to, "factor", strlen("factor"));
    if (attribute.key == 0)
        return tocsin_plan_string_error(one->to, one->error);
    TOCSIN_TRY(tocsin_plan_add_attributes(one->to, &attribute, 1, &op.attributes, one->error));
    return tocsin_plan_add_op(one->to, &op, &input, &output, one->error);
}

/* Inputs for the imports. Those with a factor get their value when the operator that made it would
 * have run (emit_import). */
static tocsin_status add_imports(copier *one)
{
    for (size_t k = 0; k < one->selection->imports.count; k++) {
        const uint32_t old = one->selection->imports.items[k];
        const bool scaled = factor_of(claim_of(one, old)) != 1.0;
        uint32_t value, name;
        one->imported[old] = 1;
        TOCSIN_TRY(make_value(one, old, "", scaled ? ".claimed" : "", true, &value));
        TOCSIN_TRY(cut_name(one, old, false, &name));
        TOCSIN_TRY(tocsin_plan_add_input(one->to, value, name, starts_of(one, old), one->error));
        if (!scaled)
            one->map[old] = value;
        else /* kept until then */
            one->exported[old] = value;
    }
    return TOCSIN_OK;
}

static tocsin_status add_exports(copier *one)
{
    for (size_t k = 0; k < one->selection->exports.count; k++) {
        const uint32_t old = one->selection->exports.items[k];
        tocsin_plan_output output = {.kind = TOCSIN_OUTPUT_OTHER};
        TOCSIN_TRY(cut_name(one, old, true, &output.name));
        if (one->exported[old] != TOCSIN_PLAN_NONE && !one->imported[old])
            output.value = one->exported[old];
        else
            TOCSIN_TRY(copied_value(one, old, &output.value));
        TOCSIN_TRY(tocsin_plan_add_output(one->to, &output, starts_of(one, old), one->error));
    }
    return TOCSIN_OK;
}

/* ---- operators ------------------------------------------------------------------------------- */

static tocsin_status copy_attributes(copier *one, uint32_t old, uint32_t *attributes)
{
    const tocsin_attribute_set *set = &one->from->attribute_sets.items[old];
    tocsin_attribute items[TOCSIN_PLAN_ATTRIBUTES_MAX];
    for (uint32_t a = 0; a < set->count; a++) {
        items[a] = set->items[a];
        TOCSIN_TRY(copy_string(one, set->items[a].key, &items[a].key));
        if (items[a].kind == TOCSIN_ATTRIBUTE_TEXT)
            TOCSIN_TRY(copy_string(one, set->items[a].text, &items[a].text));
    }
    return tocsin_plan_add_attributes(one->to, items, set->count, attributes, one->error);
}

static tocsin_status copy_op(copier *one, uint32_t number)
{
    const tocsin_plan_op *old = &one->from->ops.items[number];
    const uint32_t *operands = one->from->operands.items + old->first_operand;
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&one->arena);
    const uint32_t count = (uint32_t)old->input_count + old->output_count;
    uint32_t *values = TOCSIN_ARENA_ARRAY(&one->arena, uint32_t, count + 1);
    tocsin_plan_op op = *old;

    if (values == NULL)
        return tocsin_error_memory(one->error);
    op.flawed = false;
    TOCSIN_TRY(copy_string(one, old->name, &op.name));
    TOCSIN_TRY(copy_string(one, old->label, &op.label));
    TOCSIN_TRY(copy_string(one, old->fqn, &op.fqn));
    TOCSIN_TRY(copy_string(one, old->source, &op.source));
    TOCSIN_TRY(copy_attributes(one, old->attributes, &op.attributes));
    if (old->signature != TOCSIN_PLAN_NONE) {
        size_t bytes;
        const char *text =
            tocsin_intern_text(&one->from->signature_keys, old->signature + 1, &bytes);
        TOCSIN_TRY(tocsin_plan_add_signature(one->to, text, bytes, &op.signature, one->error));
    }
    for (uint32_t i = 0; i < old->input_count; i++)
        TOCSIN_TRY(copied_value(one, operands[i], &values[i]));
    for (uint32_t j = old->input_count; j < count; j++) {
        if (one->imported[operands[j]]) /* the import stands for it; this one is not read */
            TOCSIN_TRY(make_value(one, operands[j], "cut-away:", "", false, &values[j]));
        else
            TOCSIN_TRY(copied_value(one, operands[j], &values[j]));
    }
    TOCSIN_TRY(tocsin_plan_add_op(one->to, &op, values, values + old->input_count, one->error));
    tocsin_arena_reset_to(&one->arena, mark);
    return TOCSIN_OK;
}

/* After the place of operator `number`: imports and exports with factors that it makes. */
static tocsin_status emit_factors(copier *one, uint32_t number)
{
    const tocsin_plan_op *op = &one->from->ops.items[number];
    const uint32_t *outputs = one->from->operands.items + op->first_operand + op->input_count;
    for (uint32_t j = 0; one->parts != NULL && j < op->output_count; j++) {
        const uint32_t old = outputs[j];
        if (!one->parts->crosses[old])
            continue;
        const tocsin_part_claim *claim = claim_of(one, old);
        const double factor = factor_of(claim);
        uint32_t value;
        if (factor == 1.0)
            continue;
        if (one->imported[old]) {
            TOCSIN_TRY(copied_value(one, old, &value));
            TOCSIN_TRY(scale(one, one->exported[old], value, factor));
        } else if (one->map[old] != TOCSIN_PLAN_NONE) {
            TOCSIN_TRY(make_value(one, old, "", ".claimed", false, &one->exported[old]));
            TOCSIN_TRY(scale(one, one->map[old], one->exported[old],
                             (double)claim->denominator / (double)claim->numerator));
        }
    }
    return TOCSIN_OK;
}

static tocsin_status copy_segments(copier *one)
{
    size_t next = 0;
    for (uint32_t s = 0; s < one->role->segment_count; s++) {
        const tocsin_plan_segment *segment =
            &one->from->segments.items[one->role->first_segment + s];
        uint32_t name;
        TOCSIN_TRY(copy_string(one, segment->name, &name));
        TOCSIN_TRY(tocsin_plan_begin_segment(one->to, name, one->error));
        for (uint32_t k = 0; k < segment->op_count; k++) {
            const uint32_t number = segment->first_op + k;
            if (next < one->selection->ops.count && one->selection->ops.items[next] == number) {
                TOCSIN_TRY(copy_op(one, number));
                next++;
            }
            TOCSIN_TRY(emit_factors(one, number));
        }
    }
    assert(next == one->selection->ops.count);
    for (uint32_t t = 0; t < one->role->turn_count; t++) {
        const tocsin_plan_turn turn = one->from->turns.items[one->role->first_turn + t];
        TOCSIN_TRY(tocsin_plan_add_turn(one->to, turn.segment, turn.microbatch, one->error));
    }
    return TOCSIN_OK;
}

/* ---- roles ----------------------------------------------------------------------------------- */

static tocsin_status copy_inputs(copier *one)
{
    for (size_t k = 0; k < one->selection->inputs.count; k++) {
        const tocsin_plan_input *input = &one->from->inputs.items[one->selection->inputs.items[k]];
        uint32_t value, name;
        TOCSIN_TRY(copied_value(one, input->value, &value));
        TOCSIN_TRY(copy_string(one, input->name, &name));
        TOCSIN_TRY(tocsin_plan_add_input(one->to, value, name,
                                         one->from->starts.items + input->first_start, one->error));
    }
    return TOCSIN_OK;
}

static tocsin_status copy_outputs(copier *one)
{
    for (size_t k = 0; k < one->selection->outputs.count; k++) {
        const tocsin_plan_output *old = &one->from->outputs.items[one->selection->outputs.items[k]];
        tocsin_plan_output output = *old;
        TOCSIN_TRY(copied_value(one, old->value, &output.value));
        TOCSIN_TRY(copy_string(one, old->name, &output.name));
        TOCSIN_TRY(tocsin_plan_add_output(one->to, &output,
                                          one->from->starts.items + old->first_start, one->error));
    }
    return TOCSIN_OK;
}

/* The role begun last gets what is selected. */
static tocsin_status copy_role(copier *one, uint32_t role)
{
    one->role = &one->from->roles.items[role];
    const size_t values = (size_t)one->role->value_count + 1;
    one->map = TOCSIN_ARENA_ARRAY(&one->arena, uint32_t, values);
    one->exported = TOCSIN_ARENA_ARRAY(&one->arena, uint32_t, values);
    one->imported = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, values);
    if (one->map == NULL || one->exported == NULL || one->imported == NULL)
        return tocsin_error_memory(one->error);
    memset(one->map, 0xff, values * sizeof *one->map);
    memset(one->exported, 0xff, values * sizeof *one->exported);
    memset(one->imported, 0, values);
    TOCSIN_TRY(copy_inputs(one));
    TOCSIN_TRY(add_imports(one));
    TOCSIN_TRY(copy_segments(one));
    TOCSIN_TRY(copy_outputs(one));
    return add_exports(one);
}

static tocsin_status copy_header(copier *one)
{
    const tocsin_plan *from = one->from;
    for (uint32_t a = 0; a < from->axis_count; a++)
        TOCSIN_TRY(tocsin_plan_add_axis(one->to, tocsin_plan_text(from, from->axes[a].name),
                                        from->axes[a].size, a == from->replica_axis, one->error));
    TOCSIN_TRY(tocsin_plan_set_microbatches(one->to, from->microbatches, one->error));
    for (size_t g = 0; g < from->groups.count; g++) {
        uint32_t group;
        TOCSIN_TRY(tocsin_plan_add_group(one->to,
                                         tocsin_plan_text(from, from->groups.items[g].name),
                                         from->members.items + from->groups.items[g].first_member,
                                         from->groups.items[g].member_count, &group, one->error));
        assert(group == g);
    }
    return TOCSIN_OK;
}

/* All roles of `from`, those with a selection filled. */
static tocsin_status copy_roles(copier *one, const tocsin_role_parts *parts,
                                const tocsin_part_selection *selections, size_t count)
{
    size_t next = 0;
    TOCSIN_TRY(copy_header(one));
    for (uint32_t r = 0; r < one->from->roles.count; r++) {
        const tocsin_plan_role *role = &one->from->roles.items[r];
        TOCSIN_TRY(tocsin_plan_begin_role(one->to, role->device, role->first_replica,
                                          role->replica_count, one->error));
        if (next == count || selections[next].role != r)
            continue;
        one->selection = &selections[next++];
        one->parts = parts == NULL ? NULL : &parts[r];
        TOCSIN_TRY(copy_role(one, r));
        tocsin_arena_reset(&one->arena);
    }
    assert(next == count);
    return tocsin_plan_finish(one->to, one->error);
}

static tocsin_status copy_plan(copier *one, const tocsin_role_parts *parts,
                               const tocsin_part_selection *selections, size_t count,
                               tocsin_plan **plan)
{
    *plan = NULL;
    one->to = tocsin_plan_new();
    if (one->to == NULL)
        return tocsin_error_memory(one->error);
    const tocsin_status status = copy_roles(one, parts, selections, count);
    tocsin_arena_free(&one->arena);
    if (status == TOCSIN_OK)
        *plan = one->to;
    else
        tocsin_plan_free(one->to);
    return status;
}

tocsin_status tocsin_part_plan(const tocsin_cuts *cuts, const tocsin_role_parts *parts,
                               const tocsin_part_selection *selections, size_t count,
                               const tocsin_plan *parallel, tocsin_plan **plan, tocsin_error *error)
{
    copier one = {.from = parallel, .cuts = cuts, .error = error};
    return copy_plan(&one, parts, selections, count, plan);
}

tocsin_status tocsin_part_logical(const tocsin_cuts *cuts, const tocsin_plan *logical,
                                  const tocsin_part_selection *selection, tocsin_plan **plan,
                                  tocsin_error *error)
{
    copier one = {.from = logical, .cuts = cuts, .error = error};
    return copy_plan(&one, NULL, selection, 1, plan);
}
