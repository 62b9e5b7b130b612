/* The checker: a run's events through the observer, each instance against its population's
 * invariants.
 *
 * Data: invariants grouped by population (an index array and its ranges), one verdict an
 * invariant, the violated ones gathered as findings in report order, and at the end the reasons of
 * those that were never judged. The vocabulary is a copy of the set's, because observing adds names
 * and the set may be shared.
 * Invariant: an invariant is judged on an instance only when its precondition holds on the
 * instance's fields; it holds when the fact is among the instance's facts.
 * Cost: per instance its population's invariants; memory that of the observer plus the findings.
 */
#include <assert.h>
#include <check/check.h>
#include <stdlib.h>

#define CHUNK_EVENTS   1024       /* of one process, before the others are looked at again */
#define ADVANCE_EVENTS (1u << 16) /* before the caller is looked at again: some 0.1 s */

typedef struct judgement {
    uint64_t judged;
    uint64_t violated;
    uint64_t suppressed;
    uint64_t held;                 /* clauses, while it was not judged: tocsin_coverage_clauses */
    tocsin_violations *violations; /* NULL: none so far */
} judgement;

typedef struct group { /* of `by_population` */
    uint32_t first;
    uint32_t count;
    uint64_t seen; /* instances */
} group;

struct tocsin_checker {
    const tocsin_invariant_set *set;
    tocsin_vocabulary *vocabulary;
    tocsin_observer *observer;
    tocsin_checker_options options;
    judgement *verdicts;     /* by invariant */
    uint32_t *by_population; /* invariants, those of one population together */
    group *groups;           /* by population id */
    size_t group_count;
    TOCSIN_VEC(tocsin_violations *) findings; /* in report order */
    TOCSIN_VEC(bool) more;                    /* by process: may have events to read */
    TOCSIN_VEC(tocsin_unknown) unknowns;      /* known at the end */
    tocsin_arena words;                       /* their reasons */
    tocsin_coverage coverage;
    tocsin_suppressions *suppressions; /* NULL: none */
    uint64_t untold;                   /* findings that `found` has not been told of */
    uint64_t events;
    uint64_t corrupt_blocks;
    uint64_t incomplete_processes;
};

/* ---- judging ------------------------------------------------------------------------------- */

static bool has_fact(const tocsin_instance *instance, tocsin_fact fact)
{
    uint32_t low = 0, high = instance->fact_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (instance->facts[middle] < fact)
            low = middle + 1;
        else
            high = middle;
    }
    return low < instance->fact_count && instance->facts[low] == fact;
}

/* Put the finding in its place: most recent steps come last, so search from the end. */
static tocsin_status insert_finding(tocsin_checker *checker, tocsin_violations *violations,
                                    tocsin_error *error)
{
    if (!TOCSIN_VEC_PUSH(&checker->findings, violations))
        return tocsin_error_memory(error);
    size_t at = checker->findings.count - 1;
    for (; at > 0; --at) {
        if (tocsin_violations_compare(checker->findings.items[at - 1], violations) <= 0)
            break;
        checker->findings.items[at] = checker->findings.items[at - 1];
    }
    checker->findings.items[at] = violations;
    return TOCSIN_OK;
}

/* Its first occurrence has changed. */
static tocsin_status move_finding(tocsin_checker *checker, tocsin_violations *violations,
                                  tocsin_error *error)
{
    size_t at = 0;
    while (checker->findings.items[at] != violations)
        ++at;
    assert(at < checker->findings.count);
    --checker->findings.count;
    memmove(&checker->findings.items[at], &checker->findings.items[at + 1],
            (checker->findings.count - at) * sizeof *checker->findings.items);
    return insert_finding(checker, violations, error);
}

static bool is_suppressed(tocsin_checker *checker, size_t index, const tocsin_instance *instance)
{
    if (checker->suppressions == NULL)
        return false;
    const char *code =
        tocsin_relation_code(tocsin_population_relation(checker->vocabulary, instance->population));
    return tocsin_suppressions_match(checker->suppressions,
                                     tocsin_invariant_id(checker->set, index), code,
                                     instance->evidence.entity);
}

static tocsin_status violated(tocsin_checker *checker, size_t index,
                              const tocsin_instance *instance, tocsin_error *error)
{
    judgement *verdict = &checker->verdicts[index];
    if (is_suppressed(checker, index, instance)) {
        ++verdict->suppressed;
        return TOCSIN_OK;
    }
    ++verdict->violated;
    if (verdict->violations != NULL) {
        int64_t step = verdict->violations->finding.step;
        TOCSIN_TRY(tocsin_violations_add(verdict->violations, instance, error));
        bool earlier = verdict->violations->finding.step < step;
        return earlier ? move_finding(checker, verdict->violations, error) : TOCSIN_OK;
    }
    tocsin_violations *made;
    TOCSIN_TRY(
        tocsin_violations_new(checker->set, checker->vocabulary, index, instance, &made, error));
    tocsin_status status = insert_finding(checker, made, error);
    if (status != TOCSIN_OK) {
        tocsin_violations_free(made);
        return status;
    }
    verdict->violations = made;
    ++checker->untold;
    return TOCSIN_OK;
}

static tocsin_status judge(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    tocsin_checker *checker = context;
    if (instance->population >= checker->group_count)
        return TOCSIN_OK;
    group own = checker->groups[instance->population];
    ++checker->groups[instance->population].seen;
    for (uint32_t i = own.first; i < own.first + own.count; ++i) {
        uint32_t index = checker->by_population[i];
        const tocsin_invariant *invariant = tocsin_invariants_get(checker->set, index);
        assert(invariant->population == instance->population);
        judgement *verdict = &checker->verdicts[index];
        if (!tocsin_precondition_holds(&invariant->when, instance)) {
            if (verdict->judged == 0)
                verdict->held |= tocsin_coverage_clauses(&invariant->when, instance);
            continue;
        }
        ++verdict->judged;
        if (!has_fact(instance, invariant->fact))
            TOCSIN_TRY(violated(checker, index, instance, error));
    }
    return TOCSIN_OK;
}

/* Tell of new findings once the event that made them is done with: then all its offenders are
 * known. */
static tocsin_status tell(tocsin_checker *checker, tocsin_error *error)
{
    for (size_t i = 0; i < checker->findings.count && checker->untold > 0; ++i) {
        tocsin_violations *violations = checker->findings.items[i];
        if (violations->told)
            continue;
        TOCSIN_TRY(tocsin_violations_render(violations, error));
        violations->told = true;
        --checker->untold;
        if (checker->options.found != NULL)
            checker->options.found(checker->options.context, &violations->finding);
    }
    return TOCSIN_OK;
}

/* ---- making -------------------------------------------------------------------------------- */

static int compare_populations(const void *a, const void *b, void *context)
{
    const tocsin_invariant_set *set = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    tocsin_population p = tocsin_invariants_get(set, x)->population;
    tocsin_population q = tocsin_invariants_get(set, y)->population;
    return p != q ? (p < q ? -1 : 1) : (x > y) - (x < y);
}

/* Group the invariants by population. */
static tocsin_status compile(tocsin_checker *checker, tocsin_error *error)
{
    size_t count = tocsin_invariants_count(checker->set);
    checker->verdicts = tocsin_zalloc(count, sizeof *checker->verdicts);
    checker->by_population = tocsin_zalloc(count, sizeof *checker->by_population);
    if (checker->verdicts == NULL || checker->by_population == NULL)
        return tocsin_error_memory(error);
    for (uint32_t i = 0; i < count; ++i) {
        checker->by_population[i] = i;
        tocsin_population population = tocsin_invariants_get(checker->set, i)->population;
        if (population >= checker->group_count)
            checker->group_count = (size_t)population + 1;
    }
    if (count > 1)
        qsort_r(checker->by_population, count, sizeof *checker->by_population, compare_populations,
                (void *)(uintptr_t)checker->set);
    checker->groups = tocsin_zalloc(checker->group_count, sizeof *checker->groups);
    if (checker->groups == NULL)
        return tocsin_error_memory(error);
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t index = checker->by_population[i];
        group *own = &checker->groups[tocsin_invariants_get(checker->set, index)->population];
        if (own->count++ == 0)
            own->first = i;
    }
    return TOCSIN_OK;
}

static tocsin_status observe(tocsin_checker *checker, tocsin_error *error)
{
    size_t count = tocsin_invariants_count(checker->set);
    uint32_t *ids = tocsin_zalloc(count * 2, sizeof *ids);
    if (ids == NULL)
        return tocsin_error_memory(error);
    for (size_t i = 0; i < count; ++i) {
        ids[i] = tocsin_invariants_get(checker->set, i)->population;
        ids[count + i] = tocsin_invariants_get(checker->set, i)->fact;
    }
    tocsin_symbol *fields = NULL;
    size_t field_count = 0;
    tocsin_status status = tocsin_invariants_fields(checker->set, &fields, &field_count, error);
    tocsin_wanted wanted = {.populations = ids,
                            .population_count = count,
                            .facts = ids + count,
                            .fact_count = count,
                            .fields = fields,
                            .field_count = field_count};
    tocsin_observer_options options = {.vocabulary = checker->vocabulary,
                                       .sink = judge,
                                       .context = checker,
                                       .wanted = &wanted,
                                       .relations = tocsin_invariants_relations(checker->set)};
    if (status == TOCSIN_OK)
        status = tocsin_observer_new(&options, &checker->observer, error);
    tocsin_free(fields);
    tocsin_free(ids);
    return status;
}

tocsin_status tocsin_checker_new(const tocsin_invariant_set *set,
                                 const tocsin_checker_options *options, tocsin_checker **checker,
                                 tocsin_error *error)
{
    *checker = NULL;
    if (options != NULL && options->struct_bytes != sizeof *options)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "checker options of another version");
    tocsin_checker *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        return tocsin_error_memory(error);
    made->set = set;
    if (options != NULL)
        made->options = *options;
    tocsin_status status =
        tocsin_vocabulary_copy(tocsin_invariants_vocabulary(set), &made->vocabulary, error);
    if (status == TOCSIN_OK)
        status = compile(made, error);
    if (status == TOCSIN_OK)
        status = observe(made, error);
    if (status != TOCSIN_OK)
        tocsin_checker_free(made);
    else
        *checker = made;
    return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Up to CHUNK_EVENTS events of one process, or until its step changes. */
static tocsin_status read_chunk(tocsin_checker *checker, tocsin_trace *trace, size_t process,
                                tocsin_error *error)
{
    tocsin_dictionary dictionary = tocsin_trace_dictionary(trace);
    int64_t step = tocsin_observer_step(checker->observer, process);
    for (unsigned i = 0; i < CHUNK_EVENTS; ++i) {
        const tocsin_event *event;
        tocsin_status status = tocsin_trace_next(trace, &event, error);
        if (status == TOCSIN_E_CORRUPT) /* counted by the reader, which goes on behind it */
            continue;
        TOCSIN_TRY(status);
        if (event == NULL) {
            checker->more.items[process] = false;
            return TOCSIN_OK;
        }
        ++checker->events;
        if (tocsin_trace_corrupt_blocks(trace) > 0)
            continue; /* what was not called cannot be told from what is lost */
        TOCSIN_TRY(tocsin_coverage_see(&checker->coverage, process, &dictionary, event, error));
        TOCSIN_TRY(tocsin_observer_feed(checker->observer, process, &dictionary, event, error));
        if (checker->untold > 0)
            TOCSIN_TRY(tell(checker, error));
        if (tocsin_observer_step(checker->observer, process) != step)
            return TOCSIN_OK;
    }
    return TOCSIN_OK;
}

static void count_damage(tocsin_checker *checker, const tocsin_run *run)
{
    checker->corrupt_blocks = checker->incomplete_processes = 0;
    for (size_t i = 0; i < tocsin_run_process_count(run); ++i) {
        const tocsin_trace *trace = tocsin_run_process(run, i);
        checker->corrupt_blocks += tocsin_trace_corrupt_blocks(trace);
        checker->incomplete_processes +=
            !tocsin_trace_is_complete(trace) && !tocsin_trace_is_alive(trace);
    }
}

/* Does the run hold all calls, or only those that some invariants need? */
static tocsin_status look_at_mode(tocsin_checker *checker, const tocsin_run *run,
                                  tocsin_error *error)
{
    tocsin_json_value *description = NULL;
    const char *json = tocsin_run_json(run);
    TOCSIN_TRY(tocsin_json_parse(json, strlen(json), "run.json", &description, error));
    const char *mode = tocsin_json_get_text(tocsin_json_get_member(description, "mode"));
    checker->coverage.selective = mode != NULL && strcmp(mode, "run") == 0;
    tocsin_json_free(description);
    return TOCSIN_OK;
}

tocsin_status tocsin_checker_advance(tocsin_checker *checker, tocsin_run *run, uint64_t *events,
                                     tocsin_error *error)
{
    uint64_t before = checker->events;
    TOCSIN_TRY(tocsin_run_refresh(run, error));
    if (checker->events == 0)
        TOCSIN_TRY(look_at_mode(checker, run, error));
    size_t count = tocsin_run_process_count(run);
    if (count > checker->more.count &&
        !TOCSIN_VEC_RESERVE(&checker->more, count - checker->more.count))
        return tocsin_error_memory(error);
    checker->more.count = count;
    for (size_t i = 0; i < count; ++i)
        checker->more.items[i] = true;
    for (;;) {
        size_t process = tocsin_observer_laggard(checker->observer, checker->more.items, count);
        if (process == count || checker->events - before >= ADVANCE_EVENTS)
            break;
        TOCSIN_TRY(read_chunk(checker, tocsin_run_process(run, process), process, error));
    }
    count_damage(checker, run);
    if (events != NULL)
        *events = checker->events - before;
    return TOCSIN_OK;
}

static tocsin_status explain_unknown(tocsin_checker *checker, size_t index, tocsin_error *error)
{
    const tocsin_invariant *invariant = tocsin_invariants_get(checker->set, index);
    uint64_t seen = checker->groups[invariant->population].seen;
    tocsin_string why = {0};
    tocsin_unknown unknown = {.invariant = tocsin_invariant_id(checker->set, index),
                              .sentence = tocsin_invariant_sentence(checker->set, index),
                              .seen = seen};
    const char *absent = tocsin_invariants_lacks(checker->set, index);
    unknown.reason =
        absent != NULL ? tocsin_coverage_explain_absent(absent, &why)
                       : tocsin_coverage_explain(&checker->coverage, checker->vocabulary, invariant,
                                                 seen, checker->verdicts[index].held, &why);
    tocsin_status status = tocsin_string_check(&why, error);
    if (status == TOCSIN_OK) {
        unknown.why = tocsin_arena_copy(&checker->words, why.text, why.bytes);
        if (unknown.why == NULL || !TOCSIN_VEC_PUSH(&checker->unknowns, unknown))
            status = tocsin_error_memory(error);
    }
    tocsin_string_free(&why);
    return status;
}

tocsin_status tocsin_checker_finish(tocsin_checker *checker, tocsin_error *error)
{
    TOCSIN_TRY(tocsin_observer_finish(checker->observer, error));
    TOCSIN_TRY(tell(checker, error));
    for (size_t i = 0; i < checker->findings.count; ++i)
        TOCSIN_TRY(tocsin_violations_render(checker->findings.items[i], error));
    TOCSIN_TRY(tocsin_violations_cluster(checker->findings.items, checker->findings.count, error));
    checker->unknowns.count = 0;
    for (size_t i = 0; i < tocsin_invariants_count(checker->set); ++i)
        if (checker->verdicts[i].judged == 0)
            TOCSIN_TRY(explain_unknown(checker, i, error));
    return TOCSIN_OK;
}

/* ---- results ------------------------------------------------------------------------------- */

void tocsin_checker_summary(const tocsin_checker *checker, tocsin_check_summary *summary)
{
    *summary = (tocsin_check_summary){.events = checker->events,
                                      .instances = tocsin_observer_instances(checker->observer),
                                      .corrupt_blocks = checker->corrupt_blocks,
                                      .incomplete_processes = checker->incomplete_processes};
    for (size_t i = 0; i < tocsin_invariants_count(checker->set); ++i) {
        const judgement *verdict = &checker->verdicts[i];
        if (verdict->violations != NULL)
            ++summary->violated;
        else if (verdict->suppressed > 0)
            ++summary->suppressed;
        else if (verdict->judged > 0)
            ++summary->holds;
        else
            ++summary->unknown;
    }
}

size_t tocsin_checker_finding_count(const tocsin_checker *checker)
{
    return checker->findings.count;
}

const tocsin_finding *tocsin_checker_finding(const tocsin_checker *checker, size_t index)
{
    assert(index < checker->findings.count);
    return &checker->findings.items[index]->finding;
}

void tocsin_checker_suppress(tocsin_checker *checker, tocsin_suppressions *suppressions)
{
    assert(checker->suppressions == NULL && checker->events == 0);
    checker->suppressions = suppressions;
}

const tocsin_suppressions *tocsin_checker_suppressions(const tocsin_checker *checker)
{
    return checker->suppressions;
}

size_t tocsin_checker_unknown_count(const tocsin_checker *checker)
{
    return checker->unknowns.count;
}

const tocsin_unknown *tocsin_checker_unknown(const tocsin_checker *checker, size_t index)
{
    assert(index < checker->unknowns.count);
    return &checker->unknowns.items[index];
}

tocsin_invariant_counts tocsin_checker_counts(const tocsin_checker *checker, size_t index)
{
    const judgement *verdict = &checker->verdicts[index];
    return (tocsin_invariant_counts){.invariant = tocsin_invariant_id(checker->set, index),
                                     .judged = verdict->judged,
                                     .violated = verdict->violated};
}

void tocsin_checker_free(tocsin_checker *checker)
{
    if (checker == NULL)
        return;
    for (size_t i = 0; i < checker->findings.count; ++i)
        tocsin_violations_free(checker->findings.items[i]);
    TOCSIN_VEC_FREE(&checker->findings);
    TOCSIN_VEC_FREE(&checker->more);
    TOCSIN_VEC_FREE(&checker->unknowns);
    tocsin_arena_free(&checker->words);
    tocsin_coverage_free(&checker->coverage);
    tocsin_suppressions_free(checker->suppressions);
    tocsin_observer_free(checker->observer);
    tocsin_vocabulary_free(checker->vocabulary);
    tocsin_free(checker->verdicts);
    tocsin_free(checker->by_population);
    tocsin_free(checker->groups);
    tocsin_free(checker);
}
