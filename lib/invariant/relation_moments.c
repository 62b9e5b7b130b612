/* What an optimizer has loaded: it belongs to the parameter that it was saved for, in its dtype.
 *
 * Optimizers match state by position. NAMED_STATE: what a parameter has of a key after loading is
 * what was saved for it, and not what the same save held for another one; judged where this process
 * saved both. The names that parameters have only because several models or none run ("model0.x",
 * "group0.param1") may pass from one to another and are not judged. TYPED_STATE: state that was
 * wider in the dict that was loaded is as wide now; judged where the parameter has the dtype that
 * the checkpoint has for it, so that a model in another precision is not. Made only when asked for:
 * there is nothing to infer.
 * Data: a set of hashes for each of the last SAVES_MAX saves, and dtypes of what was loaded,
 * TENSORS_MAX of them; then they are forgotten. Cost: O(1) map look-ups a state.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <stdio.h>
#include <tocsin/tensor.h>

#define TENSORS_MAX (1u << 18)
#define SAVES_MAX   8
#define NAME_BYTES  512

static const uint8_t kinds[] = {TOCSIN_POPULATION_NAMED_STATE, TOCSIN_POPULATION_TYPED_STATE, 0};

typedef struct save {
    const tocsin_process *process;
    uint64_t call;
    tocsin_map held; /* hashes: names, names with digests, keys with digests */
} save;

typedef struct moments {
    tocsin_population named, typed;
    save saves[SAVES_MAX];
    size_t latest;
    tocsin_map dtypes; /* process, loading and name -> dtype + 1 */
} moments;

static void *open_moments(tocsin_observer *observer)
{
    moments *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key named = {.kind = TOCSIN_POPULATION_NAMED_STATE};
    tocsin_population_key typed = {.kind = TOCSIN_POPULATION_TYPED_STATE};
    own->named = observer->filtered ? tocsin_observer_population(observer, &named) : 0;
    own->typed = observer->filtered ? tocsin_observer_population(observer, &typed) : 0;
    return own;
}

static void close_moments(void *memory)
{
    moments *own = memory;
    for (size_t i = 0; i < SAVES_MAX; ++i)
        tocsin_map_free(&own->saves[i].held);
    tocsin_map_free(&own->dtypes);
    tocsin_free(own);
}

static const char *key_in(const char *name)
{
    const char *mark = strrchr(name, '#');
    return mark != NULL ? mark : "";
}

/* Names that are given by number. */
static bool is_numbered(const char *name)
{
    static const char *const prefixes[] = {"model", "group", "optimizer"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(prefixes); ++i) {
        size_t bytes = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], bytes) == 0 && name[bytes] >= '0' && name[bytes] <= '9')
            return true;
    }
    return false;
}

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return tocsin_hash64(text, strlen(text), seed);
}

static uint64_t hash_with(const char *text, const tocsin_digest *digest)
{
    return tocsin_hash64(digest, sizeof *digest, hash_text(text, 1));
}

static bool holds(const save *made, uint64_t hash)
{
    return tocsin_map_find(&made->held, hash) != NULL;
}

static void put(tocsin_observer *observer, tocsin_map *map, uint64_t key, uint64_t value)
{
    if (!tocsin_map_put(map, key, value))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* ---- what was saved, and what was given to load_state_dict --------------------------------- */

static void keep_saved(tocsin_observer *observer, moments *own, const tocsin_process *process,
                       uint64_t call, const tocsin_sample *sample)
{
    const char *name = sample->variable->name;
    save *made = &own->saves[own->latest];
    if (made->process != process || made->call != call) { /* begins another */
        own->latest = (own->latest + 1) % SAVES_MAX;
        made = &own->saves[own->latest];
        made->process = process;
        made->call = call;
        tocsin_map_clear(&made->held);
    }
    if (made->held.count >= TENSORS_MAX)
        return;
    put(observer, &made->held, hash_text(name, 0), 1);
    put(observer, &made->held, hash_with(name, &sample->digest), 1);
    put(observer, &made->held, hash_with(key_in(name), &sample->digest), 1);
}

static uint64_t dtype_key(const tocsin_process *process, uint64_t loading, const char *name)
{
    return tocsin_mix64(tocsin_mix64((uint64_t)(uintptr_t)process + loading) + hash_text(name, 2));
}

static void keep_dtype(tocsin_observer *observer, moments *own, const tocsin_process *process,
                       uint64_t loading, const tocsin_sample *sample)
{
    if (own->dtypes.count >= TENSORS_MAX)
        tocsin_map_clear(&own->dtypes);
    put(observer, &own->dtypes, dtype_key(process, loading, sample->variable->name),
        sample->dtype + UINT64_C(1));
}

/* ---- what an optimizer has of it ----------------------------------------------------------- */

static void judge_name(tocsin_observer *observer, const moments *own, const tocsin_process *process,
                       const tocsin_frame *frame, const tocsin_sample *sample)
{
    const char *name = sample->variable->name;
    uint64_t name_hash = hash_text(name, 0);
    uint64_t own_hash = hash_with(name, &sample->digest);
    uint64_t any_hash = hash_with(key_in(name), &sample->digest);
    bool judged = false, as_saved = false;
    for (size_t i = 0; i < SAVES_MAX; ++i) {
        const save *made = &own->saves[i];
        if (made->process != process || !holds(made, name_hash) || !holds(made, any_hash))
            continue;
        judged = true;
        as_saved |= holds(made, own_hash);
    }
    if (judged && !is_numbered(name))
        tocsin_observer_judge(observer, process, frame, own->named, sample,
                              TOCSIN_PREDICATE_OF_ITS_PARAMETER, as_saved);
}

static uint8_t dtype_at(const moments *own, const tocsin_process *process, uint64_t loading,
                        const char *name)
{
    const uint64_t *known = tocsin_map_find(&own->dtypes, dtype_key(process, loading, name));
    return known != NULL ? (uint8_t)(*known - 1) : 0; /* not known */
}

static void judge_dtype(tocsin_observer *observer, const moments *own,
                        const tocsin_process *process, const tocsin_frame *frame,
                        const tocsin_sample *sample, uint64_t loading, const tocsin_event *event)
{
    const tocsin_value *place = tocsin_event_value(process, event, "place");
    const tocsin_value *parameter = tocsin_event_value(process, event, "parameter");
    const char *key = key_in(sample->variable->name);
    char name[NAME_BYTES];
    if (place == NULL || parameter == NULL || parameter->kind != TOCSIN_VALUE_TENSOR)
        return;
    int bytes = (int)(key - sample->variable->name);
    if (snprintf(name, sizeof name, "%.*s", bytes, sample->variable->name) >= NAME_BYTES ||
        dtype_at(own, process, 0, name) != parameter->dtype)
        return;
    snprintf(name, sizeof name, "%lld%.400s", (long long)place->as.integer, key);
    uint8_t given = dtype_at(own, process, loading, name);
    if (given == 0)
        return;
    tocsin_observer_judge(
        observer, process, frame, own->typed, sample, TOCSIN_PREDICATE_KEEPS_DTYPE,
        tocsin_dtype_bytes((tocsin_dtype)sample->dtype) >= tocsin_dtype_bytes((tocsin_dtype)given));
}

static void state_loaded(tocsin_observer *observer, moments *own, const tocsin_process *process,
                         const tocsin_frame *frame, const tocsin_sample *sample,
                         const tocsin_event *event)
{
    const tocsin_value *loading = tocsin_event_value(process, event, "loading");
    bool numbered = loading != NULL && loading->kind == TOCSIN_VALUE_INT;
    bool of_optimizer = sample->variable->kind == TOCSIN_VARIABLE_OPTIMIZER_STATE;
    if (frame->role == TOCSIN_ROLE_CHECKPOINT && own->typed != 0) {
        if (!of_optimizer)
            keep_dtype(observer, own, process, 0, sample);
        else if (numbered)
            keep_dtype(observer, own, process, (uint64_t)loading->as.integer, sample);
    } else if (frame->role == TOCSIN_ROLE_OPTIMIZER_STEP && of_optimizer) {
        if (own->named != 0 && (sample->flags & TOCSIN_STATE_DIGESTED) != 0)
            judge_name(observer, own, process, frame, sample);
        if (own->typed != 0 && numbered)
            judge_dtype(observer, own, process, frame, sample, (uint64_t)loading->as.integer,
                        event);
    }
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    moments *own = observer->own[TOCSIN_PART_MOMENTS];
    if (frame == NULL || (own->named == 0 && own->typed == 0) ||
        (sample->flags & TOCSIN_STATE_PRESENT) == 0 || sample->dtype == 0)
        return;
    if (sample->attribute == TOCSIN_ATTRIBUTE_LOADED)
        state_loaded(observer, own, process, frame, sample, event);
    else if (sample->attribute == TOCSIN_ATTRIBUTE_SAVED && own->named != 0 &&
             sample->variable->kind == TOCSIN_VARIABLE_OPTIMIZER_STATE &&
             frame->role == TOCSIN_ROLE_CHECKPOINT && (sample->flags & TOCSIN_STATE_DIGESTED) != 0)
        keep_saved(observer, own, process, frame->call, sample);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    bool named = tocsin_population_get_key(vocabulary, invariant->population).kind ==
                 TOCSIN_POPULATION_NAMED_STATE;
    tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_LOADED,
                      TOCSIN_VARIABLE_PARAMETER, true);
    if (named)
        tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAVED,
                          TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, false);
}

const tocsin_relation_part tocsin_relation_moments = {
    .kinds = kinds, .open = open_moments, .close = close_moments, .state = state, .need = need};
