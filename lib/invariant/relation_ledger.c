/* Which samples are trained on: by several ranks, by several workers, epoch after epoch.
 *
 * BATCH: the samples of a rank's batch are not those of another rank's batch of the same number, in
 * the order in which they were read; judged for the batch that an update follows, so that an
 * evaluation, which every rank may do whole, is not. NEXT_BATCH: of batches in a row from different
 * samples two do not hold the same data, while others do not: workers that share one random state.
 * EPOCH: a shuffled pass does not begin with the batch that the one before began with. Batches are
 * compared by hashes. Iterable data sets have no ids and are not judged. These are made only when
 * asked for: there is nothing to infer.
 * Data: a record a loader and process, and for each of BATCHES_MAX recent batches the first rank's.
 * Cost: O(ids) a batch.
 */
#include <assert.h>
#include <invariant/relation.h>

#define BATCHES_MAX (1u << 14)
#define SHORT_BATCH 4 /* ids; shorter ones meet by chance */

static const uint8_t kinds[] = {TOCSIN_POPULATION_BATCH, TOCSIN_POPULATION_NEXT_BATCH,
                                TOCSIN_POPULATION_EPOCH, 0};

typedef struct batch {
    int64_t number, epoch, size, count; /* ids announced, and read so far */
    uint64_t ids;                       /* hash, in their order */
    bool digested, constant;
    tocsin_digest digest;
} batch;

typedef struct loader { /* of a process */
    tocsin_symbol name;
    int64_t dataset_size, workers;
    bool shuffled;
    batch now, before, first; /* first: of the previous pass */
    bool doubled;             /* `before` holds the data of the one before it */
} loader;

typedef struct first_report {
    const tocsin_process *process;
    int32_t rank;
    uint64_t ids;
} first_report;

typedef struct ledger {
    tocsin_population batch, next, epoch;
    tocsin_map loaders; /* variable of a process -> index + 1 */
    tocsin_map pending; /* process -> loader index + 1: its batch was not trained on so far */
    tocsin_map reports; /* loader's name, pass and number -> index + 1 */
    TOCSIN_VEC(loader) items;
    TOCSIN_VEC(first_report) firsts;
} ledger;

static tocsin_population population(tocsin_observer *observer, uint8_t kind)
{
    tocsin_population_key key = {.kind = kind};
    return observer->filtered ? tocsin_observer_population(observer, &key) : 0;
}

static void *open_ledger(tocsin_observer *observer)
{
    ledger *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    own->batch = population(observer, TOCSIN_POPULATION_BATCH);
    own->next = population(observer, TOCSIN_POPULATION_NEXT_BATCH);
    own->epoch = population(observer, TOCSIN_POPULATION_EPOCH);
    return own;
}

static void close_ledger(void *memory)
{
    ledger *own = memory;
    tocsin_map_free(&own->loaders);
    tocsin_map_free(&own->pending);
    tocsin_map_free(&own->reports);
    TOCSIN_VEC_FREE(&own->items);
    TOCSIN_VEC_FREE(&own->firsts);
    tocsin_free(own);
}

static void emit(tocsin_observer *observer, const tocsin_process *process,
                 const tocsin_frame *frame, tocsin_population population, const loader *of,
                 tocsin_predicate predicate, bool holds, int32_t other_rank)
{
    tocsin_instance instance = {
        .population = population,
        .evidence = tocsin_observer_evidence(observer, process, frame,
                                             tocsin_symbol_text(observer->vocabulary, of->name))};
    instance.evidence.other_rank = other_rank;
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (holds)
        tocsin_observer_add_fact(observer, tocsin_observer_simple_fact(observer, predicate));
    tocsin_observer_emit(observer, &instance);
}

/* ---- one batch after another --------------------------------------------------------------- */

/* What the values of a state say: of its loader, of its batch, and its ids. */
static void read_values(const tocsin_process *process, loader *of, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        const char *name = dictionary->string(dictionary->producer, value->name);
        int64_t number = value->kind == TOCSIN_VALUE_INT ? value->as.integer : 0;
        if (strcmp(name, "id") == 0) {
            uint64_t id = value->kind == TOCSIN_VALUE_INT ? (uint64_t)number : value->as.text;
            of->now.ids = tocsin_mix64(of->now.ids * 31 + tocsin_mix64(id) + 1);
            ++of->now.count;
        } else if (strcmp(name, "size") == 0) { /* begins a batch */
            of->now = (batch){.number = of->now.number, .epoch = of->now.epoch, .size = number};
        } else if (strcmp(name, "batch") == 0) {
            of->now.number = number;
        } else if (strcmp(name, "epoch") == 0) {
            of->now.epoch = number;
        } else if (strcmp(name, "dataset_size") == 0) {
            of->dataset_size = number;
        } else if (strcmp(name, "workers") == 0) {
            of->workers = number;
        } else if (strcmp(name, "shuffle") == 0) {
            of->shuffled = value->kind == TOCSIN_VALUE_BOOL && value->as.integer != 0;
        }
    }
}

static bool equal_data(const batch *a, const batch *b)
{
    return a->digested && b->digested && memcmp(&a->digest, &b->digest, sizeof a->digest) == 0;
}

static void judge_next(tocsin_observer *observer, const ledger *own, const tocsin_process *process,
                       const tocsin_frame *frame, loader *of)
{
    const batch *now = &of->now, *before = &of->before;
    bool follows = now->epoch == before->epoch && now->number == before->number + 1;
    bool equal = follows && now->ids != before->ids && equal_data(now, before);
    if (own->next != 0 && of->workers > 1 && follows && now->digested && before->digested && !equal)
        emit(observer, process, frame, own->next, of, TOCSIN_PREDICATE_NEW_DATA, !of->doubled, -1);
    of->doubled = equal;
}

static void judge_epoch(tocsin_observer *observer, const ledger *own, const tocsin_process *process,
                        const tocsin_frame *frame, loader *of)
{
    if (of->now.number != 0)
        return;
    bool comparable = of->first.size == of->now.size && of->now.epoch == of->first.epoch + 1;
    if (own->epoch != 0 && of->shuffled && comparable && of->now.size >= SHORT_BATCH &&
        of->dataset_size > of->now.size)
        emit(observer, process, frame, own->epoch, of, TOCSIN_PREDICATE_REORDERED,
             of->now.ids != of->first.ids, -1);
    of->first = of->now;
}

static loader *loader_at(tocsin_observer *observer, ledger *own, const tocsin_variable *variable,
                         size_t *index)
{
    uint64_t *known = tocsin_map_at(&own->loaders, (uint64_t)(uintptr_t)variable);
    if (known != NULL && *known == 0 &&
        TOCSIN_VEC_PUSH(&own->items, (loader){.name = variable->symbol, .first.epoch = -2}))
        *known = own->items.count;
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    *index = (size_t)*known - 1;
    return &own->items.items[*known - 1];
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    ledger *own = observer->own[TOCSIN_PART_LEDGER];
    size_t index;
    if (sample->attribute != TOCSIN_ATTRIBUTE_SAMPLES ||
        sample->variable->kind != TOCSIN_VARIABLE_LEDGER || frame == NULL)
        return;
    loader *of = loader_at(observer, own, sample->variable, &index);
    if (of == NULL)
        return;
    bool was_complete = of->now.count >= of->now.size;
    if (was_complete && of->now.size > 0)
        of->before = of->now;
    read_values(process, of, event);
    if ((sample->flags & TOCSIN_STATE_DIGESTED) != 0) {
        const tocsin_statistics *statistics = &event->state.statistics;
        of->now.digested = statistics->sum_squares > 0 && sample->bad_count == 0;
        of->now.digest = sample->digest;
    }
    if (of->now.size <= 0 || of->now.count != of->now.size)
        return;
    judge_next(observer, own, process, frame, of);
    judge_epoch(observer, own, process, frame, of);
    if (!tocsin_map_put(&own->pending, (uint64_t)(uintptr_t)process, index + 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* ---- ranks --------------------------------------------------------------------------------- */

static void judge_ranks(tocsin_observer *observer, ledger *own, const tocsin_process *process,
                        const tocsin_frame *frame, const loader *of)
{
    if (own->firsts.count >= BATCHES_MAX) { /* far behind is not compared any more */
        tocsin_map_clear(&own->reports);
        own->firsts.count = 0;
    }
    uint64_t key = tocsin_mix64(tocsin_mix64((uint64_t)of->name << 32 ^ (uint64_t)of->now.epoch) +
                                (uint64_t)of->now.number);
    uint64_t *known = tocsin_map_at(&own->reports, key);
    first_report made = {process, process->rank, of->now.ids};
    if (known != NULL && *known == 0 && TOCSIN_VEC_PUSH(&own->firsts, made)) {
        *known = own->firsts.count;
        return;
    }
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    first_report first = own->firsts.items[*known - 1];
    if (first.process != process)
        emit(observer, process, frame, own->batch, of, TOCSIN_PREDICATE_DISJOINT,
             first.ids != made.ids, first.rank);
}

/* The batch that was read last before an update was trained on. */
static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    ledger *own = observer->own[TOCSIN_PART_LEDGER];
    (void)thread;
    (void)event;
    if (frame->role != TOCSIN_ROLE_OPTIMIZER_STEP || own->batch == 0)
        return;
    uint64_t *pending = tocsin_map_find(&own->pending, (uint64_t)(uintptr_t)process);
    if (pending == NULL || *pending == 0)
        return;
    const loader *of = &own->items.items[*pending - 1];
    *pending = 0;
    bool whole = of->dataset_size > 0 && of->now.size >= of->dataset_size;
    if (process->rank >= 0 && process->world_size > 1 && of->now.size >= SHORT_BATCH && !whole)
        judge_ranks(observer, own, process, frame, of);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    uint8_t kind = tocsin_population_get_key(vocabulary, invariant->population).kind;
    tocsin_need_state(needs, TOCSIN_ROLE_DATA_NEXT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAMPLES,
                      TOCSIN_VARIABLE_LEDGER, kind == TOCSIN_POPULATION_NEXT_BATCH);
    if (kind == TOCSIN_POPULATION_BATCH)
        tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, false);
}

const tocsin_relation_part tocsin_relation_ledger = {.kinds = kinds,
                                                     .open = open_ledger,
                                                     .close = close_ledger,
                                                     .enter = enter,
                                                     .state = state,
                                                     .need = need};
