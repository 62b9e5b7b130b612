/* sanity.c - tier 0 as a whole, its texts and its findings.
 *
 * Findings of one class on equally named operators (of several ranks, or micro-batches) are one
 * finding with several places: their key (class, name, label, module, source, and the operator
 * itself when it has neither) is interned, its id is the finding's number.
 */
#include "prove/sanity.h"

#include <assert.h>
#include <tocsin/tensor.h>

#include "prove/sanity_model.h"

enum { FINDINGS_MAX = 1024, PLACES_MAX = 1 << 16 };

/* ---- texts ----------------------------------------------------------------------------------- */

tocsin_sanity_call tocsin_sanity_call_of(const tocsin_sanity_model *model, uint32_t actor,
                                         tocsin_sanity_visit visit)
{
    const tocsin_sanity_actor *who = &model->actors.items[actor];
    bool all = model->result->uniform_replicas;
    return (tocsin_sanity_call){.device = who->device,
                                .replica = all ? TOCSIN_PLAN_NONE : who->replica,
                                .op = model->steps.items[visit.step].op,
                                .microbatch = visit.microbatch};
}

void tocsin_sanity_place_text(const tocsin_sanity_model *model, uint32_t device, uint32_t replica,
                              tocsin_string *text)
{
    const tocsin_plan *plan = model->plan;
    size_t before = text->bytes;
    tocsin_plan_device_text(plan, device, text);
    if (replica != TOCSIN_PLAN_NONE && plan->replica_axis != TOCSIN_PLAN_NONE)
        tocsin_string_printf(text, "%s%s=%u", text->bytes > before ? " " : "",
                             tocsin_plan_text(plan, plan->axes[plan->replica_axis].name), replica);
    else if (text->bytes == before)
        tocsin_string_append_text(text, "each rank");
}

static void append_attributes(const tocsin_plan *plan, const tocsin_plan_op *op,
                              tocsin_string *text)
{
    const tocsin_attribute_set *set = &plan->attribute_sets.items[op->attributes];
    const char *before = "(";
    for (uint32_t a = 0; a < set->count; ++a) {
        const tocsin_attribute *item = &set->items[a];
        if (item->kind == TOCSIN_ATTRIBUTE_INTEGERS && item->count == 1)
            tocsin_string_printf(text, "%s%s=%lld", before, tocsin_plan_text(plan, item->key),
                                 (long long)item->integers[0]);
        else if (item->kind == TOCSIN_ATTRIBUTE_TEXT)
            tocsin_string_printf(text, "%s%s=%s", before, tocsin_plan_text(plan, item->key),
                                 tocsin_plan_text(plan, item->text));
        else
            continue;
        before = ", ";
    }
    if (before[0] == ',')
        tocsin_string_append_char(text, ')');
}

static void append_type(const tocsin_plan *plan, const tocsin_plan_value *value,
                        tocsin_string *text)
{
    if (value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
        return;
    tocsin_string_printf(text, " %s[", tocsin_dtype_name((tocsin_dtype)value->dtype));
    for (uint8_t d = 0; d < value->ndim; ++d)
        tocsin_string_printf(text, "%s%lld", d ? "," : "",
                             (long long)tocsin_plan_shape(plan, value)[d]);
    tocsin_string_append_char(text, ']');
}

/* The role that runs the op: the one of the call's device whose segments contain it. */
static const tocsin_plan_role *role_of(const tocsin_plan *plan, const tocsin_sanity_call *call)
{
    for (size_t r = 0; r < plan->roles.count; ++r) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t s = 0; s < role->segment_count; ++s) {
            const tocsin_plan_segment *segment = &plan->segments.items[role->first_segment + s];
            if (call->op - segment->first_op < segment->op_count)
                return role;
        }
    }
    return NULL;
}

void tocsin_sanity_call_text(const tocsin_sanity_model *model, const tocsin_sanity_call *call,
                             tocsin_string *text)
{
    const tocsin_plan *plan = model->plan;
    const tocsin_plan_op *op = &plan->ops.items[call->op];
    const char *label = tocsin_plan_text(plan, op->label);
    const char *name = tocsin_plan_text(plan, op->name);
    tocsin_string_printf(text, "%s%s%s", label, label[0] ? ": " : "", name);
    append_attributes(plan, op, text);
    const tocsin_plan_role *role = role_of(plan, call);
    if (role && op->input_count + op->output_count > 0) {
        uint32_t value = plan->operands.items[op->first_operand];
        append_type(plan, &plan->values.items[role->first_value + value], text);
    }
    if (op->group != TOCSIN_PLAN_NONE)
        tocsin_string_printf(text, " in group %s",
                             tocsin_plan_text(plan, plan->groups.items[op->group].name));
    if (call->microbatch >= 0 && plan->microbatches > 1)
        tocsin_string_printf(text, ", micro-batch %d", call->microbatch);
}

/* ---- findings -------------------------------------------------------------------------------- */

typedef struct fold_key {
    uint32_t words[7];
} fold_key;

static fold_key fold_of(const tocsin_sanity_model *model, const tocsin_sanity_finding *finding)
{
    const tocsin_plan_op *op = &model->plan->ops.items[finding->call.op];
    bool named = tocsin_plan_text(model->plan, op->label)[0] ||
                 tocsin_plan_text(model->plan, op->source)[0] ||
                 tocsin_plan_text(model->plan, op->fqn)[0];
    return (fold_key){{(uint32_t)finding->class, finding->missing, op->name, op->label, op->fqn,
                       op->source, named ? TOCSIN_PLAN_NONE : finding->call.op}};
}

bool tocsin_sanity_is_new(const tocsin_sanity_model *model, const tocsin_sanity_finding *finding)
{
    fold_key key = fold_of(model, finding);
    return tocsin_intern_find(&model->folds, &key, sizeof key) == 0;
}

/* *place becomes a slot of its own, but when the finding has the place already. */
static tocsin_status add_place(tocsin_sanity_model *model, uint32_t number,
                               tocsin_sanity_finding *finding, tocsin_sanity_call call,
                               tocsin_error *error)
{
    uint32_t key[3] = {number, call.device, call.replica};
    uint32_t before = tocsin_intern_count(&model->places);
    uint32_t id = tocsin_intern_put(&model->places, key, sizeof key);
    if (!id)
        return tocsin_error_memory(error);
    if (id <= before || finding->place_count >= PLACES_MAX)
        return TOCSIN_OK;
    /* Room doubles: counts that are powers of two are full. */
    uint32_t count = finding->place_count;
    if ((count & (count - 1)) == 0) {
        tocsin_sanity_call *places = TOCSIN_ARENA_ARRAY(&model->result->arena, tocsin_sanity_call,
                                                        count ? (size_t)count * 2 : 1);
        if (!places)
            return tocsin_error_memory(error);
        if (count)
            memcpy(places, finding->places, count * sizeof *places);
        finding->places = places;
    }
    ((tocsin_sanity_call *)finding->places)[finding->place_count++] = call;
    return TOCSIN_OK;
}

tocsin_status tocsin_sanity_note(tocsin_sanity_model *model, const tocsin_sanity_finding *finding,
                                 tocsin_error *error)
{
    tocsin_sanity *result = model->result;
    assert(finding->call.op < model->plan->ops.count);
    if (result->findings.count >= FINDINGS_MAX) {
        ++result->hidden;
        return TOCSIN_OK;
    }
    fold_key key = fold_of(model, finding);
    uint32_t id = tocsin_intern_put(&model->folds, &key, sizeof key);
    if (!id)
        return tocsin_error_memory(error);
    if (id > result->findings.count) {
        assert(finding->relation && finding->expected);
        tocsin_sanity_finding added = *finding;
        added.relation =
            tocsin_arena_copy(&result->arena, finding->relation, strlen(finding->relation));
        added.expected =
            tocsin_arena_copy(&result->arena, finding->expected, strlen(finding->expected));
        added.places = NULL;
        added.place_count = 0;
        added.occurrences = 0;
        if (!added.relation || !added.expected || !TOCSIN_VEC_PUSH(&result->findings, added))
            return tocsin_error_memory(error);
    }
    tocsin_sanity_finding *kept = &result->findings.items[id - 1];
    ++kept->occurrences;
    kept->certain |= finding->certain;
    return add_place(model, id, kept, finding->call, error);
}

tocsin_status tocsin_sanity_note_texts(tocsin_sanity_model *model, tocsin_sanity_finding *finding,
                                       uint64_t times, tocsin_string *relation,
                                       tocsin_string *expected, tocsin_error *error)
{
    finding->relation = tocsin_string_text(relation);
    finding->expected = tocsin_string_text(expected);
    tocsin_status status = tocsin_string_check(relation, error);
    if (status == TOCSIN_OK)
        status = tocsin_string_check(expected, error);
    for (uint64_t k = 0; status == TOCSIN_OK && k < times; ++k)
        status = tocsin_sanity_note(model, finding, error);
    tocsin_string_free(relation);
    tocsin_string_free(expected);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool replicas_are_alike(const tocsin_plan *plan)
{
    uint32_t replicas = tocsin_plan_replicas(plan);
    if (replicas == 1)
        return true;
    for (size_t r = 0; r < plan->roles.count; ++r)
        if (plan->roles.items[r].replica_count != replicas)
            return false;
    for (size_t m = 0; m < plan->members.count; ++m)
        if (plan->members.items[m].replica >= 0)
            return false;
    return true;
}

static tocsin_status check(tocsin_sanity_model *model, tocsin_error *error)
{
    tocsin_sanity *result = model->result;
    size_t ops = model->plan->ops.count;
    result->uniform_replicas = replicas_are_alike(model->plan);
    result->uniform_microbatches = true;
    model->replicas = result->uniform_replicas ? 1 : tocsin_plan_replicas(model->plan);
    result->match = tocsin_alloc(ops * sizeof *result->match);
    if (!result->match)
        return tocsin_error_memory(error);
    memset(result->match, 0xff, ops * sizeof *result->match);
    TOCSIN_TRY(tocsin_sanity_roles(model, error));
    TOCSIN_TRY(tocsin_sanity_match(model, error));
    TOCSIN_TRY(tocsin_sanity_diagnose(model, error));
    return tocsin_sanity_simulate(model, error);
}

tocsin_status tocsin_sanity_check(const tocsin_plan *plan, tocsin_sanity *result,
                                  tocsin_error *error)
{
    assert(plan && result);
    *result = (tocsin_sanity){0};
    tocsin_sanity_model model = {.plan = plan, .result = result};
    tocsin_status status = check(&model, error);
    for (size_t l = 0; l < model.lanes.count; ++l)
        TOCSIN_VEC_FREE(&model.lanes.items[l].rounds);
    TOCSIN_VEC_FREE(&model.steps);
    TOCSIN_VEC_FREE(&model.actors);
    TOCSIN_VEC_FREE(&model.lanes);
    TOCSIN_VEC_FREE(&model.slots);
    TOCSIN_VEC_FREE(&model.ports);
    TOCSIN_VEC_FREE(&model.visits);
    TOCSIN_VEC_FREE(&model.strays);
    tocsin_free(model.segment_step);
    tocsin_intern_free(&model.signatures);
    tocsin_intern_free(&model.folds);
    tocsin_intern_free(&model.places);
    return status;
}

void tocsin_sanity_free(tocsin_sanity *result)
{
    tocsin_free(result->match);
    TOCSIN_VEC_FREE(&result->findings);
    tocsin_arena_free(&result->arena);
    *result = (tocsin_sanity){0};
}
