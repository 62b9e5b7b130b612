/* verdict.c - the result under construction: folding of equal causes, texts, lists.
 *
 * The public result is the head of a larger block that owns an arena with all its texts and arrays.
 * A flaw that shows on many ranks and micro-batches is one cause: roots fold by operator label and
 * class, and the places where they occur become one text, "pp=0 tp=0; pp=0 tp=1 (ranks 0-1, 4-5)".
 */
#include "prove/verdict.h"

#include <assert.h>
#include <stdlib.h>

#include "prove/proof.h"

typedef struct owned_result {
    tocsin_verify_result public; /* first */
    tocsin_arena arena;
} owned_result;

#define ALL_REPLICAS UINT32_MAX

const char *tocsin_output_kind_text(uint8_t kind)
{
    static const char *const texts[] = {[TOCSIN_OUTPUT_LOSS] = "loss",
                                        [TOCSIN_OUTPUT_GRADIENT] = "grad",
                                        [TOCSIN_OUTPUT_PARAMETER] = "param",
                                        [TOCSIN_OUTPUT_STATE] = "state",
                                        [TOCSIN_OUTPUT_OTHER] = "other"};
    return kind < TOCSIN_COUNT_OF(texts) ? texts[kind] : "?";
}

static tocsin_arena *arena_of(tocsin_report *report)
{
    return &((owned_result *)(void *)report->result)->arena;
}

static const char *keep(tocsin_report *report, const char *text)
{
    return tocsin_arena_copy(arena_of(report), text, strlen(text));
}

tocsin_status tocsin_report_init(tocsin_report *report, tocsin_error *error)
{
    *report = (tocsin_report){0};
    owned_result *owned = tocsin_zalloc(1, sizeof *owned);
    if (owned == NULL)
        return tocsin_error_memory(error);
    report->result = &owned->public;
    return TOCSIN_OK;
}

bool tocsin_report_line(tocsin_report *report, tocsin_report_list list, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const size_t bytes = strlen(text);
    if (tocsin_intern_find(&report->seen[list], text, bytes) != 0)
        return true;
    const char *copy = keep(report, text);
    return copy != NULL && tocsin_intern_put(&report->seen[list], text, bytes) != 0 &&
           TOCSIN_VEC_PUSH(&report->lines[list], copy);
}

/* ---- folding --------------------------------------------------------------------------------- */

/* A group in the wrong order shows at each of its collectives: one cause. */
static tocsin_folded_cause *find_cause(tocsin_report *report, tocsin_cause_class class,
                                       const char *op, const char *group)
{
    const bool by_group = class == TOCSIN_CAUSE_WRONG_ORDER && group[0] != '\0';
    for (size_t k = 0; k < report->causes.count; k++) {
        tocsin_folded_cause *one = &report->causes.items[k];
        if (one->cause.class == class &&
            (strcmp(one->cause.op, op) == 0 || (by_group && strcmp(one->cause.group, group) == 0)))
            return one;
    }
    return NULL;
}

static bool add_place(tocsin_folded_cause *cause, uint32_t device, uint32_t replica)
{
    const uint64_t place = (uint64_t)device << 32 | replica;
    for (size_t k = 0; k < cause->places.count; k++)
        if (cause->places.items[k] == place)
            return true;
    return TOCSIN_VEC_PUSH(&cause->places, place);
}

/* The cause of this op and class, new with these texts (borrowed; copied here) if needed. */
static tocsin_folded_cause *cause_for(tocsin_report *report, const tocsin_cause *draft)
{
    tocsin_folded_cause *found = find_cause(report, draft->class, draft->op, draft->group);
    if (found != NULL)
        return found;
    tocsin_folded_cause made = {.cause = *draft};
    const char **texts[] = {&made.cause.op,    &made.cause.fqn,      &made.cause.source,
                            &made.cause.group, &made.cause.relation, &made.cause.expected,
                            &made.cause.fix};
    for (size_t k = 0; k < TOCSIN_COUNT_OF(texts); k++) {
        *texts[k] = keep(report, *texts[k]);
        if (*texts[k] == NULL)
            return NULL;
    }
    return TOCSIN_VEC_PUSH(&report->causes, made) ? &report->causes.items[report->causes.count - 1]
                                                  : NULL;
}

/* "{0, 1, 4, 5}": the declared ranks of a group as device `device` of replica 0 sees it. */
static void group_text(const tocsin_plan *plan, uint32_t group, tocsin_string *text)
{
    if (group == TOCSIN_PLAN_NONE)
        return;
    const tocsin_plan_group *found = &plan->groups.items[group];
    const tocsin_plan_member *members = plan->members.items + found->first_member;
    const uint32_t replicas =
        members[0].replica == TOCSIN_MEMBER_ALL ? tocsin_plan_replicas(plan) : 1;
    const uint64_t total = (uint64_t)found->member_count * replicas;

    tocsin_string_printf(text, "%s {", tocsin_plan_text(plan, found->name));
    for (uint64_t k = 0; k < total && k < 16; k++) {
        const tocsin_plan_member *member = &members[k % found->member_count];
        const uint32_t replica =
            member->replica >= 0 ? (uint32_t)member->replica : (uint32_t)(k / found->member_count);
        tocsin_string_printf(text, "%s%u", k == 0 ? "" : ", ",
                             tocsin_plan_rank(plan, member->device, replica));
    }
    tocsin_string_printf(text, "%s}", total > 16 ? ", ..." : "");
    if (members[0].replica == TOCSIN_MEMBER_SAME && tocsin_plan_replicas(plan) > 1)
        tocsin_string_append_text(text, " and alike in every replica");
}

static void op_name(const tocsin_plan *plan, uint32_t index, const tocsin_root *root,
                    tocsin_string *text)
{
    if (index != TOCSIN_PLAN_NONE) {
        const tocsin_plan_op *op = &plan->ops.items[index];
        const char *label = tocsin_plan_text(plan, op->label);
        tocsin_string_append_text(text,
                                  label[0] != '\0' ? label : tocsin_plan_text(plan, op->name));
    } else if (root != NULL && root->output != TOCSIN_PLAN_NONE) {
        const tocsin_plan_output *output = &plan->outputs.items[root->output];
        tocsin_string_printf(text, "output %s %s", tocsin_output_kind_text(output->kind),
                             tocsin_plan_text(plan, output->name));
    } else {
        tocsin_string_append_text(text, "an input");
    }
}

static tocsin_status add_cause(tocsin_report *report, tocsin_cause_class class, uint32_t op,
                               const tocsin_root *root, uint32_t group, const char *relation,
                               const char *expected, const char *fix, tocsin_folded_cause **added,
                               tocsin_error *error)
{
    const tocsin_plan *plan = report->plan;
    tocsin_string name = {0}, ranks = {0};
    op_name(plan, op, root, &name);
    group_text(plan, group, &ranks);
    const tocsin_plan_op *found = op == TOCSIN_PLAN_NONE ? NULL : &plan->ops.items[op];
    const tocsin_cause draft = {.class = class,
                                .op = tocsin_string_text(&name),
                                .fqn = found == NULL ? "" : tocsin_plan_text(plan, found->fqn),
                                .source =
                                    found == NULL ? "" : tocsin_plan_text(plan, found->source),
                                .group = tocsin_string_text(&ranks),
                                .relation = relation,
                                .expected = expected,
                                .fix = fix[0] != '\0' ? fix : tocsin_cause_meaning(class)};
    *added =
        name.status == TOCSIN_OK && ranks.status == TOCSIN_OK ? cause_for(report, &draft) : NULL;
    tocsin_string_free(&name);
    tocsin_string_free(&ranks);
    return *added == NULL ? tocsin_error_memory(error) : TOCSIN_OK;
}

/* The device's place in the pipeline: its coordinate on an axis called pp; 0 without one. */
static uint32_t stage_of(const tocsin_plan *plan, uint32_t device, uint32_t *stages)
{
    uint32_t coordinates[TOCSIN_PLAN_AXES_MAX];
    tocsin_plan_coordinates(plan, device, coordinates);
    *stages = 1;
    for (uint32_t a = 0; a < plan->axis_count; a++) {
        if (strcmp(tocsin_plan_text(plan, plan->axes[a].name), "pp") != 0)
            continue;
        *stages = plan->axes[a].size;
        return coordinates[a];
    }
    return 0;
}

/* Forward before backward before the optimizer; stages forth and back; then the order of the list:
 * what comes first is more likely the cause. */
static uint64_t order_of(const tocsin_plan *plan, const tocsin_plan_role *role, uint32_t op)
{
    if (op == TOCSIN_PLAN_NONE)
        return UINT64_MAX >> 4;
    uint32_t stages;
    const uint64_t phase = plan->ops.items[op].phase;
    uint32_t stage = stage_of(plan, role->device, &stages);
    if (phase == TOCSIN_PHASE_BACKWARD)
        stage = stages - 1 - stage;
    uint32_t first = op;
    for (uint32_t s = 0; s < role->segment_count; s++)
        if (plan->segments.items[role->first_segment + s].first_op < first)
            first = plan->segments.items[role->first_segment + s].first_op;
    return (phase + 1) << 56 | (uint64_t)stage << 32 | (op - first);
}

tocsin_status tocsin_report_root(tocsin_report *report, const tocsin_run *run,
                                 const tocsin_root *root, tocsin_error *error)
{
    const tocsin_unit *unit = &run->units.items[root->unit];
    const uint32_t group =
        root->op == TOCSIN_PLAN_NONE ? TOCSIN_PLAN_NONE : run->plan->ops.items[root->op].group;
    tocsin_folded_cause *cause;
    report->plan = run->plan;
    TOCSIN_TRY(add_cause(report, (tocsin_cause_class)root->cause, root->op, root, group,
                         root->relation, root->expected, root->fix, &cause, error));
    cause->cause.occurrences++;
    const uint64_t order = (uint64_t)report->round << 60 |
                           order_of(run->plan, &run->plan->roles.items[unit->role], root->op);
    if (cause->order == 0 || order < cause->order)
        cause->order = order;
    return add_place(cause, run->plan->roles.items[unit->role].device,
                     run->enumerate_replicas ? unit->replica : ALL_REPLICAS)
               ? TOCSIN_OK
               : tocsin_error_memory(error);
}

tocsin_status tocsin_report_sanity(tocsin_report *report, const tocsin_plan *plan,
                                   const tocsin_sanity *sanity, tocsin_error *error)
{
    report->plan = plan;
    for (size_t k = 0; k < sanity->findings.count; k++) {
        const tocsin_sanity_finding *finding = &sanity->findings.items[k];
        const uint32_t op =
            finding->call.op != TOCSIN_PLAN_NONE ? finding->call.op : finding->partner.op;
        tocsin_folded_cause *cause;
        TOCSIN_TRY(add_cause(report, finding->class, op, NULL, finding->group, finding->relation,
                             finding->expected, "", &cause, error));
        cause->cause.occurrences += finding->occurrences;
        for (uint32_t p = 0; p < finding->place_count; p++)
            if (!add_place(cause, finding->places[p].device, finding->places[p].replica))
                return tocsin_error_memory(error);
    }
    return TOCSIN_OK;
}

/* ---- finishing ------------------------------------------------------------------------------- */

static int compare_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static int compare_places(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* "0-1, 4-5, ..." of sorted ranks. */
static void append_ranges(const uint32_t *ranks, size_t count, tocsin_string *text)
{
    uint32_t ranges = 0;
    for (size_t first = 0; first < count && ranges < 8; ranges++) {
        size_t last = first;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        tocsin_string_printf(text, "%s%u", first == 0 ? "" : ", ", ranks[first]);
        if (last > first)
            tocsin_string_printf(text, "%s%u", last == first + 1 ? ", " : "-", ranks[last]);
        first = last + 1;
        if (ranges == 7 && first < count)
            tocsin_string_append_text(text, ", ...");
    }
}

static tocsin_status places_text(const tocsin_plan *plan, tocsin_folded_cause *cause,
                                 tocsin_string *text, tocsin_error *error)
{
    const uint32_t replicas = tocsin_plan_replicas(plan);
    TOCSIN_VEC(uint32_t) ranks = {0};
    uint32_t devices = 0, last = UINT32_MAX;
    bool sound = true;

    if (cause->places.count > 1)
        qsort(cause->places.items, cause->places.count, sizeof(uint64_t), compare_places);
    for (size_t k = 0; k < cause->places.count && sound; k++) {
        const uint32_t device = (uint32_t)(cause->places.items[k] >> 32);
        const uint32_t replica = (uint32_t)cause->places.items[k];
        if (device != last && devices < 4) {
            tocsin_string_append_text(text, devices == 0 ? "" : "; ");
            tocsin_plan_device_text(plan, device, text);
        } else if (device != last && devices == 4) {
            tocsin_string_append_text(text, "; ...");
        }
        devices += device != last;
        last = device;
        const uint32_t from = replica == ALL_REPLICAS ? 0 : replica;
        const uint32_t to = replica == ALL_REPLICAS ? replicas : replica + 1;
        for (uint32_t r = from; r < to && sound && ranks.count < 65536; r++)
            sound = TOCSIN_VEC_PUSH(&ranks, tocsin_plan_rank(plan, device, r));
    }
    if (sound && ranks.count > 0) {
        qsort(ranks.items, ranks.count, sizeof(uint32_t), compare_ranks);
        tocsin_string_printf(text, "%s(rank%s ", text->bytes > 0 ? " " : "",
                             ranks.count == 1 ? "" : "s");
        append_ranges(ranks.items, ranks.count, text);
        tocsin_string_append_char(text, ')');
    }
    TOCSIN_VEC_FREE(&ranks);
    return sound ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status finish_lists(tocsin_report *report, tocsin_error *error)
{
    const char *const **targets[TOCSIN_REPORT_LISTS] = {
        &report->result->unknown, &report->result->assumptions, &report->result->dead};
    size_t *counts[TOCSIN_REPORT_LISTS] = {&report->result->unknown_count,
                                           &report->result->assumption_count,
                                           &report->result->dead_count};
    for (int list = 0; list < TOCSIN_REPORT_LISTS; list++) {
        const size_t count = report->lines[list].count;
        const char **copy = TOCSIN_ARENA_ARRAY(arena_of(report), const char *, count + 1);
        if (copy == NULL)
            return tocsin_error_memory(error);
        if (count > 0)
            memcpy(copy, report->lines[list].items, count * sizeof *copy);
        *targets[list] = copy;
        *counts[list] = count;
    }
    return TOCSIN_OK;
}

/* Forward before backward before the optimizer: what comes first is more likely the cause. Stable.
 */
static void sort_by_order(tocsin_report *report)
{
    tocsin_folded_cause *causes = report->causes.items;
    for (size_t k = 1; k < report->causes.count; k++) {
        const tocsin_folded_cause moved = causes[k];
        size_t place = k;
        for (; place > 0 && causes[place - 1].order > moved.order; place--)
            causes[place] = causes[place - 1];
        causes[place] = moved;
    }
}

tocsin_status tocsin_report_finish(tocsin_report *report, uint32_t causes_max, tocsin_error *error)
{
    const size_t limit = causes_max == 0 ? 20 : causes_max;
    const size_t count = report->causes.count < limit ? report->causes.count : limit;
    tocsin_cause *causes = TOCSIN_ARENA_ARRAY(arena_of(report), tocsin_cause, count + 1);

    if (causes == NULL)
        return tocsin_error_memory(error);
    sort_by_order(report);
    for (size_t k = 0; k < count; k++) {
        tocsin_string text = {0};
        tocsin_status status = places_text(report->plan, &report->causes.items[k], &text, error);
        causes[k] = report->causes.items[k].cause;
        causes[k].ranks = keep(report, tocsin_string_text(&text));
        tocsin_string_free(&text);
        if (status == TOCSIN_OK && causes[k].ranks == NULL)
            status = tocsin_error_memory(error);
        TOCSIN_TRY(status);
    }
    report->result->causes = causes;
    report->result->cause_count = count;
    report->result->causes_hidden = report->causes.count - count;
    return finish_lists(report, error);
}

/* Copies of `count` texts in the arena, or NULL. */
static const char *const *copy_lines(tocsin_arena *arena, const char *const *lines, size_t count)
{
    const char **copies = TOCSIN_ARENA_ARRAY(arena, const char *, count + 1);
    for (size_t k = 0; copies != NULL && k < count; k++) {
        copies[k] = tocsin_arena_copy(arena, lines[k], strlen(lines[k]));
        if (copies[k] == NULL)
            return NULL;
    }
    return copies;
}

tocsin_status tocsin_verify_result_copy(const tocsin_verify_result *source,
                                        tocsin_verify_result **result, tocsin_error *error)
{
    tocsin_report report;
    *result = NULL;
    TOCSIN_TRY(tocsin_report_init(&report, error));
    tocsin_arena *arena = arena_of(&report);
    *report.result = *source;
    report.result->causes = NULL;
    report.result->cause_count = 0;
    report.result->unknown = copy_lines(arena, source->unknown, source->unknown_count);
    report.result->assumptions = copy_lines(arena, source->assumptions, source->assumption_count);
    report.result->dead = copy_lines(arena, source->dead, source->dead_count);
    if (report.result->unknown != NULL && report.result->assumptions != NULL &&
        report.result->dead != NULL)
        *result = tocsin_report_take(&report);
    tocsin_report_free(&report);
    return *result != NULL ? TOCSIN_OK : tocsin_error_memory(error);
}

tocsin_verify_result *tocsin_report_take(tocsin_report *report)
{
    tocsin_verify_result *result = report->result;
    report->result = NULL;
    return result;
}

void tocsin_report_free(tocsin_report *report)
{
    for (size_t k = 0; k < report->causes.count; k++)
        TOCSIN_VEC_FREE(&report->causes.items[k].places);
    TOCSIN_VEC_FREE(&report->causes);
    for (int list = 0; list < TOCSIN_REPORT_LISTS; list++) {
        tocsin_intern_free(&report->seen[list]);
        TOCSIN_VEC_FREE(&report->lines[list]);
    }
    tocsin_verify_result_free(report->result);
    report->result = NULL;
}

void tocsin_verify_result_free(tocsin_verify_result *result)
{
    if (result == NULL)
        return;
    owned_result *owned = (owned_result *)(void *)result;
    tocsin_arena_free(&owned->arena);
    tocsin_free(owned);
}
