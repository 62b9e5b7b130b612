/* conform.c - a plan's communication against a recorded run's, step by step.
 *
 * For each process: its rank's planned calls are made once; then each step's calls are laid beside
 * them and the first deviation is named. Where the two part, the nearest place at which they agree
 * again for a few calls tells whether the run lacks calls or has more of them. In a row of like
 * calls the call site tells which one is missing: from steps that agree it is learned which line
 * issues which planned call.
 *
 * Cost: linear in events and in calls, WINDOW comparisons for the first deviation of a step.
 */
#include "prove/conform.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 64, AGREEMENT = 3, FINDINGS_MAX = 1000 };

typedef struct folded_finding {
    tocsin_conform_finding finding;
    TOCSIN_VEC(uint32_t) ranks;
} folded_finding;

struct conform_result {
    tocsin_conform_result shown; /* first: what the caller has */
    tocsin_arena arena;
};

typedef struct comparison {
    const tocsin_plan *plan;
    struct conform_result *result;
    tocsin_intern groups;
    tocsin_intern folds; /* texts of findings: id - 1 is the index */
    TOCSIN_VEC(folded_finding) found;
    uint64_t hidden;
    TOCSIN_VEC(const char *) limits;
    tocsin_map sites; /* planned op: hash of the call site that issues it */
    tocsin_calls planned, issued;
    tocsin_call_reader reader;
    uint64_t step; /* of the process */
    bool has_barrier;
    bool *present; /* ranks that the run has */
} comparison;

/* ---- one step -------------------------------------------------------------------------------- */

/* Equal labels of several roles are one call. */
static uint64_t site_key(const comparison *c, const tocsin_call *planned)
{
    uint32_t label = c->plan->ops.items[planned->op].label;
    if (tocsin_plan_text(c->plan, label)[0])
        return ((uint64_t)1 << 32) | label;
    return planned->op;
}

static uint64_t site_hash(const tocsin_call *issued)
{
    return tocsin_hash64(issued->file, strlen(issued->file), issued->line) | 1;
}

/* The same call as far as anyone can tell. */
static bool same(const comparison *c, const tocsin_call *planned, const tocsin_call *issued)
{
    tocsin_deviation ignored;
    if (!tocsin_call_matches(&c->groups, planned, issued, &ignored))
        return false;
    const uint64_t *site = tocsin_map_find(&c->sites, site_key(c, planned));
    return !site || *site == site_hash(issued);
}

/* Are the next `calls` ones the same, or all of both sides? */
static bool agree_from(const comparison *c, size_t i, size_t j, size_t calls)
{
    size_t left = c->planned.count - i, right = c->issued.count - j;
    for (size_t k = 0; k < calls; ++k) {
        if (k == left || k == right)
            return left == right;
        if (!same(c, &c->planned.items[i + k], &c->issued.items[j + k]))
            return false;
    }
    return true;
}

/* Are both calls made later on the other side, from wherever? */
static bool are_exchanged(const comparison *c, size_t i, size_t j)
{
    bool planned_later = false, issued_later = false;
    tocsin_deviation ignored;
    for (size_t d = 1; d <= WINDOW; ++d) {
        if (j + d < c->issued.count)
            planned_later |= tocsin_call_matches(&c->groups, &c->planned.items[i],
                                                 &c->issued.items[j + d], &ignored);
        if (i + d < c->planned.count)
            issued_later |= tocsin_call_matches(&c->groups, &c->planned.items[i + d],
                                                &c->issued.items[j], &ignored);
    }
    return planned_later && issued_later;
}

/* The nearest place at which the two agree again for some calls. */
static bool look_ahead(const comparison *c, size_t i, size_t j, size_t calls,
                       tocsin_deviation *deviation)
{
    size_t left = c->planned.count - i, right = c->issued.count - j;
    for (size_t d = 1; d <= WINDOW && (d <= left || d <= right); ++d) {
        if (d <= left && agree_from(c, i + d, j, calls)) {
            *deviation = TOCSIN_DEVIATION_MISSING;
            return true;
        }
        if (d <= right && agree_from(c, i, j + d, calls)) {
            *deviation = TOCSIN_DEVIATION_EXTRA;
            return true;
        }
    }
    return false;
}

/* What is different at (i, j), where the two are not the same; false: nothing but the call site. */
static bool explain(const comparison *c, size_t i, size_t j, tocsin_deviation *deviation)
{
    bool planned = i < c->planned.count, issued = j < c->issued.count;
    if (look_ahead(c, i, j, AGREEMENT, deviation))
        return true;
    if (planned && issued) {
        if (tocsin_call_matches(&c->groups, &c->planned.items[i], &c->issued.items[j], deviation))
            return look_ahead(c, i, j, 1, deviation);
        if (are_exchanged(c, i, j))
            *deviation = TOCSIN_DEVIATION_ORDER;
        return true;
    }
    *deviation = planned ? TOCSIN_DEVIATION_MISSING : TOCSIN_DEVIATION_EXTRA;
    return true;
}

/* Before the first step there are calls that set the run up: the step's begin where they agree. */
static size_t setup_calls(const comparison *c)
{
    size_t more = c->issued.count > c->planned.count ? c->issued.count - c->planned.count : 0;
    if (c->step > 0 || more == 0 || c->planned.count == 0)
        return 0;
    if (agree_from(c, 0, more, AGREEMENT))
        return more;
    for (size_t calls = AGREEMENT; calls > 0; --calls)
        for (size_t j = 0; j <= more; ++j)
            if (agree_from(c, 0, j, calls))
                return j;
    return 0;
}

static bool keep_text(comparison *c, const char *text, const char **kept)
{
    *kept = tocsin_arena_copy(&c->result->arena, text, strlen(text));
    return *kept != NULL;
}

/* The text of a call, or of no call. */
static bool keep_call(comparison *c, const tocsin_plan *plan, const tocsin_call *call,
                      const char **kept)
{
    tocsin_string text = {0};
    if (call)
        tocsin_call_text(plan, &c->groups, call, &text);
    bool done = text.status == TOCSIN_OK && keep_text(c, tocsin_string_text(&text), kept);
    tocsin_string_free(&text);
    return done;
}

static tocsin_status new_finding(comparison *c, tocsin_deviation deviation,
                                 const tocsin_call *planned, const tocsin_call *issued,
                                 size_t index, tocsin_error *error)
{
    const tocsin_plan_op *op = planned ? &c->plan->ops.items[planned->op] : NULL;
    folded_finding made = {.finding = {.deviation = deviation,
                                       .rank = (uint32_t)c->reader.rank,
                                       .step = c->step,
                                       .index = index}};
    char site[512] = "";
    if (issued && issued->file[0])
        snprintf(site, sizeof site, "%s:%u (%s)", issued->file, issued->line, issued->within);
    tocsin_conform_finding *finding = &made.finding;
    if (!keep_call(c, c->plan, planned, &finding->planned) ||
        !keep_call(c, NULL, issued, &finding->issued) ||
        !keep_text(c, op ? tocsin_plan_text(c->plan, op->fqn) : "", &finding->fqn) ||
        !keep_text(c, op ? tocsin_plan_text(c->plan, op->source) : "", &finding->source) ||
        !keep_text(c, site, &finding->site) || !TOCSIN_VEC_PUSH(&c->found, made))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

/* What makes two deviations one: that of the same operator at the same place of the code, whatever
 * the rank, the group and the step. */
static void append_key(const comparison *c, tocsin_deviation deviation, const tocsin_call *planned,
                       const tocsin_call *issued, tocsin_string *key)
{
    tocsin_string_printf(key, "%d", (int)deviation);
    if (planned) {
        const tocsin_plan_op *op = &c->plan->ops.items[planned->op];
        tocsin_string_printf(key, "\nplan %u %u %u %u %lld %d", op->name, op->label, op->fqn,
                             op->source, (long long)planned->elements, planned->microbatch);
    }
    if (issued)
        tocsin_string_printf(key, "\nrun %s %lld %s %u", issued->function,
                             (long long)issued->elements, issued->file, issued->line);
}

/* One more step of one more rank that shows a finding. */
static tocsin_status count_finding(const comparison *c, folded_finding *kept, size_t index,
                                   tocsin_error *error)
{
    ++kept->finding.occurrences;
    if (c->step < kept->finding.step) { /* of a process that is read later */
        kept->finding.step = c->step;
        kept->finding.rank = (uint32_t)c->reader.rank;
        kept->finding.index = index;
    }
    if (!TOCSIN_VEC_PUSH(&kept->ranks, (uint32_t)c->reader.rank))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

/* Add a finding, or fold it into an equal one. */
static tocsin_status add_finding(comparison *c, tocsin_deviation deviation,
                                 const tocsin_call *planned, const tocsin_call *issued,
                                 size_t index, tocsin_error *error)
{
    tocsin_string key = {0};
    append_key(c, deviation, planned, issued, &key);
    tocsin_status status = tocsin_string_check(&key, error);
    uint32_t id = tocsin_intern_find(&c->folds, key.text, key.bytes);
    if (status == TOCSIN_OK && !id && c->found.count < FINDINGS_MAX) {
        status = new_finding(c, deviation, planned, issued, index, error);
        if (status == TOCSIN_OK)
            id = tocsin_intern_put(&c->folds, key.text, key.bytes);
        if (status == TOCSIN_OK && !id)
            status = tocsin_error_memory(error);
    }
    tocsin_string_free(&key);
    if (status != TOCSIN_OK)
        return status;
    if (!id) {
        ++c->hidden;
        return TOCSIN_OK;
    }
    return count_finding(c, &c->found.items[id - 1], index, error);
}

static tocsin_status learn_sites(comparison *c, size_t setup, tocsin_error *error)
{
    for (size_t i = 0; i < c->planned.count && setup + i < c->issued.count; ++i) {
        uint64_t *site = tocsin_map_at(&c->sites, site_key(c, &c->planned.items[i]));
        if (!site)
            return tocsin_error_memory(error);
        *site = site_hash(&c->issued.items[setup + i]);
    }
    return TOCSIN_OK;
}

/* Lay the calls of one step beside the planned ones. `begun`: the step was not completed, it may
 * lack the end. */
static tocsin_status compare_step(comparison *c, bool begun, tocsin_error *error)
{
    size_t setup = setup_calls(c), i = 0, j = setup;
    bool all = true; /* every planned call was issued */
    while (i < c->planned.count || j < c->issued.count) {
        const tocsin_call *planned = i < c->planned.count ? &c->planned.items[i] : NULL;
        const tocsin_call *issued = j < c->issued.count ? &c->issued.items[j] : NULL;
        if (begun && !issued)
            return TOCSIN_OK;
        bool equal = planned && issued && same(c, planned, issued);
        if (!equal && planned && planned->optional && c->reader.gaps.ddp) {
            ++i;
            all = false;
            continue;
        }
        tocsin_deviation deviation = TOCSIN_DEVIATION_MISSING;
        if (!equal && explain(c, i, j, &deviation))
            return add_finding(c, deviation, deviation == TOCSIN_DEVIATION_EXTRA ? NULL : planned,
                               deviation == TOCSIN_DEVIATION_MISSING ? NULL : issued, i, error);
        assert(planned && issued);
        ++c->result->shown.calls;
        ++i;
        ++j;
    }
    return all ? learn_sites(c, setup, error) : TOCSIN_OK;
}

/* ---- one process ----------------------------------------------------------------------------- */

static tocsin_status add_limit(comparison *c, const char *format, ...) TOCSIN_PRINTF(2, 3);
static tocsin_status add_limit(comparison *c, const char *format, ...)
{
    tocsin_string text = {0};
    va_list arguments;
    va_start(arguments, format);
    tocsin_string_vprintf(&text, format, arguments);
    va_end(arguments);
    tocsin_status status = text.status;
    const char *kept = NULL;
    bool known = false;
    for (size_t k = 0; status == TOCSIN_OK && k < c->limits.count; ++k)
        known |= strcmp(c->limits.items[k], tocsin_string_text(&text)) == 0;
    if (status == TOCSIN_OK && !known &&
        (!keep_text(c, tocsin_string_text(&text), &kept) || !TOCSIN_VEC_PUSH(&c->limits, kept)))
        status = TOCSIN_E_MEMORY;
    tocsin_string_free(&text);
    return status;
}

static tocsin_status tell_gaps(comparison *c, uint64_t after)
{
    const tocsin_conform_gaps *gaps = &c->reader.gaps;
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(c->reader.trace, &facts);
    if (gaps->ddp)
        TOCSIN_TRY(add_limit(c, "DistributedDataParallel reduces gradients where the recorder does "
                                "not see it: those all-reduces of the plan are taken as made"));
    if (gaps->unnamed)
        TOCSIN_TRY(add_limit(c, "calls on groups whose ranks are not recorded: of them the ranks "
                                "are not compared"));
    if (gaps->batches && !gaps->messages)
        TOCSIN_TRY(add_limit(c, "batches of sends and receives that the recording does not open"));
    if (gaps->objects)
        TOCSIN_TRY(add_limit(c, "collectives of Python objects are not compared"));
    if (gaps->barriers)
        TOCSIN_TRY(add_limit(c, "barriers are not compared: the plan has none"));
    if (gaps->damaged || facts.lost)
        TOCSIN_TRY(
            add_limit(c, "rank %lld: events of the recording are lost", (long long)c->reader.rank));
    if (after)
        TOCSIN_TRY(add_limit(c, "calls after the last step are not compared"));
    return TOCSIN_OK;
}

/* The rank's planned calls, once it is known. */
static tocsin_status begin_rank(comparison *c, uint64_t ranks, tocsin_error *error)
{
    if (c->reader.rank < 0 && ranks == 1)
        c->reader.rank = 0;
    if (c->reader.rank < 0)
        return TOCSIN_OK;
    int64_t world = c->reader.recorded_world_size;
    if ((world >= 0 && (uint64_t)world != ranks) || (uint64_t)c->reader.rank >= ranks)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "the run has %lld ranks, the plan %llu",
                                (long long)(world >= 0 ? world : c->reader.rank + 1),
                                (unsigned long long)ranks);
    c->present[c->reader.rank] = true;
    c->planned.count = 0;
    return tocsin_conform_planned(c->plan, (uint32_t)c->reader.rank, &c->groups, &c->planned,
                                  error);
}

static tocsin_status compare_process(comparison *c, tocsin_trace *trace, tocsin_error *error)
{
    uint64_t ranks = tocsin_plan_get_size(c->plan).ranks;
    TOCSIN_TRY(tocsin_call_reader_open(&c->reader, trace, &c->groups, (uint32_t)ranks, error));
    c->reader.barriers = c->has_barrier;
    TOCSIN_TRY(tocsin_conform_step(&c->reader, &c->issued, error));
    for (c->step = 0; c->reader.step_ended; ++c->step) {
        if (c->step == 0)
            TOCSIN_TRY(begin_rank(c, ranks, error));
        if (c->reader.rank < 0)
            return TOCSIN_OK; /* a process beside the job */
        TOCSIN_TRY(compare_step(c, false, error));
        ++c->result->shown.steps;
        TOCSIN_TRY(tocsin_conform_step(&c->reader, &c->issued, error));
    }
    if (c->step == 0)
        return TOCSIN_OK;
    bool killed = !tocsin_trace_is_complete(trace);
    if (killed)
        TOCSIN_TRY(compare_step(c, true, error));
    if (tell_gaps(c, killed ? 0 : c->issued.count) != TOCSIN_OK)
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool has_barrier(const tocsin_plan *plan)
{
    for (size_t o = 0; o < plan->ops.count; ++o)
        if (plan->ops.items[o].code == TOCSIN_OPERATOR_BARRIER)
            return true;
    return false;
}

static int compare_ranks(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* By step, then rank. */
static int compare_findings(const void *left, const void *right)
{
    const tocsin_conform_finding *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* "0,1,5" of unsorted ranks with repetitions. */
static tocsin_status ranks_text(comparison *c, folded_finding *found, tocsin_error *error)
{
    enum { NAMED_MAX = 64 };
    tocsin_string text = {0};
    uint32_t *ranks = found->ranks.items;
    size_t count = 0;
    assert(found->ranks.count > 0);
    qsort(ranks, found->ranks.count, sizeof *ranks, compare_ranks);
    for (size_t k = 0; k < found->ranks.count; ++k)
        if (k == 0 || ranks[k] != ranks[k - 1])
            ranks[count++] = ranks[k];
    for (size_t k = 0; k < count && k < NAMED_MAX; ++k)
        tocsin_string_printf(&text, "%s%u", k ? "," : "", ranks[k]);
    if (count > NAMED_MAX)
        tocsin_string_printf(&text, " and %zu more", count - NAMED_MAX);
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK && !keep_text(c, tocsin_string_text(&text), &found->finding.ranks))
        status = tocsin_error_memory(error);
    tocsin_string_free(&text);
    return status;
}

static tocsin_status tell_absent(comparison *c, uint64_t ranks, tocsin_error *error)
{
    uint64_t absent = 0, first = 0;
    for (uint64_t r = ranks; r-- > 0;) {
        if (!c->present[r]) {
            ++absent;
            first = r;
        }
    }
    c->result->shown.ranks = ranks - absent;
    tocsin_status status = TOCSIN_OK;
    if (absent)
        status = add_limit(c,
                           "%llu of %llu ranks of the plan have no step in the run, the first "
                           "is rank %llu",
                           (unsigned long long)absent, (unsigned long long)ranks,
                           (unsigned long long)first);
    if (status == TOCSIN_OK && c->hidden)
        status =
            add_limit(c, "%llu further deviations are not listed", (unsigned long long)c->hidden);
    return status == TOCSIN_OK ? status : tocsin_error_memory(error);
}

/* Give the result its lists. */
static tocsin_status hand_over(comparison *c, tocsin_error *error)
{
    tocsin_arena *arena = &c->result->arena;
    tocsin_conform_finding *findings =
        TOCSIN_ARENA_ARRAY(arena, tocsin_conform_finding, c->found.count);
    const char **limits = TOCSIN_ARENA_ARRAY(arena, const char *, c->limits.count);
    if (!findings || !limits)
        return tocsin_error_memory(error);
    for (size_t f = 0; f < c->found.count; ++f) {
        TOCSIN_TRY(ranks_text(c, &c->found.items[f], error));
        findings[f] = c->found.items[f].finding;
    }
    if (c->found.count)
        qsort(findings, c->found.count, sizeof *findings, compare_findings);
    for (size_t l = 0; l < c->limits.count; ++l)
        limits[l] = c->limits.items[l];
    c->result->shown.findings = findings;
    c->result->shown.finding_count = c->found.count;
    c->result->shown.limits = limits;
    c->result->shown.limit_count = c->limits.count;
    return TOCSIN_OK;
}

static tocsin_status compare_run(comparison *c, const tocsin_run *run, tocsin_error *error)
{
    uint64_t ranks = tocsin_plan_get_size(c->plan).ranks;
    c->present = tocsin_zalloc((size_t)ranks, sizeof *c->present);
    if (!c->present)
        return tocsin_error_memory(error);
    c->has_barrier = has_barrier(c->plan);
    for (size_t p = 0; p < tocsin_run_process_count(run); ++p) {
        tocsin_status status = compare_process(c, tocsin_run_process(run, p), error);
        tocsin_call_reader_close(&c->reader);
        if (status != TOCSIN_OK)
            return status;
    }
    TOCSIN_TRY(tell_absent(c, ranks, error));
    return hand_over(c, error);
}

tocsin_status tocsin_conform(const tocsin_plan *plan, const tocsin_run *run,
                             tocsin_conform_result **result, tocsin_error *error)
{
    *result = NULL;
    comparison c = {.plan = plan, .result = tocsin_zalloc(1, sizeof *c.result)};
    if (!c.result)
        return tocsin_error_memory(error);
    tocsin_status status = compare_run(&c, run, error);
    for (size_t f = 0; f < c.found.count; ++f)
        TOCSIN_VEC_FREE(&c.found.items[f].ranks);
    TOCSIN_VEC_FREE(&c.found);
    TOCSIN_VEC_FREE(&c.limits);
    TOCSIN_VEC_FREE(&c.planned);
    TOCSIN_VEC_FREE(&c.issued);
    tocsin_intern_free(&c.groups);
    tocsin_intern_free(&c.folds);
    tocsin_map_free(&c.sites);
    tocsin_free(c.present);
    if (status == TOCSIN_OK)
        *result = &c.result->shown;
    else
        tocsin_conform_result_free(&c.result->shown);
    return status;
}

void tocsin_conform_result_free(tocsin_conform_result *result)
{
    if (!result)
        return;
    struct conform_result *whole = (struct conform_result *)(void *)result;
    tocsin_arena_free(&whole->arena);
    tocsin_free(whole);
}
