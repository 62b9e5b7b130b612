/* Which samples are trained on: by several ranks, by several workers, epoch after epoch.
 *
 * BATCH: the samples of a rank's batch are not those of another rank's batch of the same number, in
 * the order in which they were read; judged for the batch that an update follows, so that an
 * evaluation, which every rank may do whole, is not. NEXT_BATCH: of batches in a row from different
 * samples two do not hold the same data, while others do not: workers that share one random state.
 * EPOCH: a shuffled pass does not begin with the batch that the one before began with. WHOLE_EPOCH:
 * when all ranks have come to the end of a pass, they have read together more than a rank's share
 * of the data set. Batches are compared by hashes. Iterable data sets have no ids and are not
 * judged. These are made only when asked for: there is nothing to infer. Data: a record a loader
 * and process, for each of BATCHES_MAX recent batches the first rank's, and for each of EPOCHS_MAX
 * recent passes how much was read. Cost: O(ids) a batch.
 */
#include <assert.h>
#include <invariant/relation.h>

#define BATCHES_MAX (1u << 14)
#define EPOCHS_MAX  (1u << 10)
#define DATASET_MAX (INT64_C(1) << 40) /* samples; a number beyond is a mistake */
#define SHORT_BATCH 4                  /* ids; shorter ones meet by chance */

static const uint8_t kinds[] = {TOCSIN_POPULATION_BATCH, TOCSIN_POPULATION_NEXT_BATCH,
                                TOCSIN_POPULATION_EPOCH, TOCSIN_POPULATION_WHOLE_EPOCH, 0};

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
    bool covering;    /* its sampler reads each sample once, if there are `replicas` ranks */
    int64_t replicas; /* -1: not said */
    batch now, before, first; /* first: of the previous pass */
    bool doubled;             /* `before` holds the data of the one before it */
    bool alone;               /* no other loader was read since this pass began */
    int64_t read, largest;    /* in this pass: samples, and of a batch */
} loader;

typedef struct pass { /* over the data, of all ranks */
    int64_t ranks, read, dataset_size, largest;
    bool comparable; /* it is the same data set on all of them */
} pass;

typedef struct first_report {
    const tocsin_process *process;
    int32_t rank;
    uint64_t ids;
} first_report;

typedef struct ledger {
    tocsin_population batch, next, epoch, whole;
    tocsin_map loaders; /* variable of a process -> index + 1 */
    tocsin_map pending; /* process -> loader index + 1: its batch was not trained on so far */
    tocsin_map reports; /* loader's name, pass and number -> index + 1 */
    tocsin_map last;    /* process -> loader index + 1: of which it read last */
    tocsin_map ended;   /* loader's name and pass -> index + 1 */
    TOCSIN_VEC(loader) items;
    TOCSIN_VEC(first_report) firsts;
    TOCSIN_VEC(pass) passes;
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
    own->whole = population(observer, TOCSIN_POPULATION_WHOLE_EPOCH);
    return own;
}

static void close_ledger(void *memory)
{
    ledger *own = memory;
    tocsin_map_free(&own->loaders);
    tocsin_map_free(&own->pending);
    tocsin_map_free(&own->reports);
    TOCSIN_VEC_FREE(&own->items);
    tocsin_map_free(&own->last);
    tocsin_map_free(&own->ended);
    TOCSIN_VEC_FREE(&own->firsts);
    TOCSIN_VEC_FREE(&own->passes);
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

/* torch's samplers that read every sample once in a pass. */
static bool is_covering(const char *sampler)
{
    return strcmp(sampler, "SequentialSampler") == 0 || strcmp(sampler, "RandomSampler") == 0 ||
           strcmp(sampler, "DistributedSampler") == 0;
}

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
        } else if (strcmp(name, "sampler") == 0 && value->kind == TOCSIN_VALUE_STRING) {
            of->covering = is_covering(dictionary->string(dictionary->producer, value->as.text));
            of->replicas = -1;
        } else if (strcmp(name, "replicas") == 0) {
            of->replicas = number;
        } else if (strcmp(name, "partial") == 0) {
            of->covering = false;
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

/* One more batch of this pass. Whoever reads two loaders in turn ends both at some moment, and it
 * is not known which. */
static void count_batch(tocsin_observer *observer, ledger *own, const tocsin_process *process,
                        loader *of, size_t index)
{
    uint64_t *last = tocsin_map_at(&own->last, (uint64_t)(uintptr_t)process);
    if (last == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    if (*last != 0 && *last != index + 1)
        own->items.items[*last - 1].alone = false;
    if (of->now.number == 0) {
        of->alone = true;
        of->read = of->largest = 0;
    }
    *last = index + 1;
    of->read += of->now.size;
    of->largest = of->now.size > of->largest ? of->now.size : of->largest;
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
    count_batch(observer, own, process, of, index);
    judge_next(observer, own, process, frame, of);
    judge_epoch(observer, own, process, frame, of);
    if (!tocsin_map_put(&own->pending, (uint64_t)(uintptr_t)process, index + 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static bool says_stop(const tocsin_process *process, const tocsin_event *event)
{
    return event->kind == TOCSIN_EVENT_RAISE && event->value_count > 0 &&
           event->values[0].kind == TOCSIN_VALUE_STRING &&
           strcmp(
               process->dictionary.string(process->dictionary.producer, event->values[0].as.text),
               "StopIteration") == 0;
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

/* All ranks have come to the end of a pass. What is dropped at its end is less than a batch a rank;
 * what was sharded twice is a rank's share. */
static void judge_pass(tocsin_observer *observer, const ledger *own, const tocsin_process *process,
                       const tocsin_frame *frame, const loader *of, const pass *all)
{
    int64_t ranks = process->world_size, rest = ranks * all->largest;
    bool short_of =
        all->read < all->dataset_size - rest && all->read * ranks <= all->dataset_size + rest;
    emit(observer, process, frame, own->whole, of, TOCSIN_PREDICATE_COVERS, !short_of, -1);
}

static void end_pass(tocsin_observer *observer, ledger *own, const tocsin_process *process,
                     const tocsin_frame *frame, const loader *of)
{
    if (own->passes.count >= EPOCHS_MAX) { /* far behind is not added up any more */
        tocsin_map_clear(&own->ended);
        own->passes.count = 0;
    }
    uint64_t key = tocsin_mix64((uint64_t)of->name << 32 ^ (uint64_t)of->now.epoch);
    uint64_t *known = tocsin_map_at(&own->ended, key);
    if (known != NULL && *known == 0 &&
        TOCSIN_VEC_PUSH(&own->passes,
                        ((pass){.dataset_size = of->dataset_size, .comparable = true})))
        *known = own->passes.count;
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    pass *all = &own->passes.items[*known - 1];
    ++all->ranks;
    all->read += of->read < DATASET_MAX ? of->read : DATASET_MAX;
    all->largest = of->largest > all->largest ? of->largest : all->largest;
    all->comparable &= of->dataset_size == all->dataset_size;
    if (all->ranks == process->world_size && all->comparable)
        judge_pass(observer, own, process, frame, of, all);
}

/* A loader has no more batches: the one that was read last. */
static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    ledger *own = observer->own[TOCSIN_PART_LEDGER];
    (void)thread;
    if (completed || own->whole == 0 || frame->role != TOCSIN_ROLE_DATA_NEXT || process->rank < 0 ||
        process->world_size < 2 || !says_stop(process, event))
        return;
    uint64_t *last = tocsin_map_find(&own->last, (uint64_t)(uintptr_t)process);
    if (last == NULL || *last == 0)
        return;
    loader *of = &own->items.items[*last - 1];
    *last = 0;
    if (of->alone && of->covering && of->dataset_size > 0 && of->dataset_size < DATASET_MAX &&
        (of->replicas < 0 || of->replicas == process->world_size))
        end_pass(observer, own, process, frame, of);
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
                                                     .leave = leave,
                                                     .state = state,
                                                     .need = need};
