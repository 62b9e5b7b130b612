/* Parameters between two updates: an evaluation leaves the weights as it found them.
 *
 * Scripts may write to weights between updates: they clamp and normalise them, average them over
 * ranks, load better ones. What they do not do on purpose is to train on after an evaluation with
 * other weights than before it: the averaged ones were swapped in, and not back. So a parameter is
 * judged at the start of an update of its optimizer when an evaluation ran since the last one, by
 * the same optimizer (another one begins another training), and it has rested where none ran; not
 * when it ever changed without an evaluation, when a file was loaded or ranks talked in between,
 * nor when its data are what some earlier update made (the best weights, again). Steps that run a
 * closure read later and are not judged. Made only when asked for: there is nothing to infer. Data:
 * a word a parameter, a word a process, and a hash of what each update made, STATES_MAX of them; a
 * run that makes more is judged no longer.
 */
#include <assert.h>
#include <invariant/relation.h>

#define STATES_MAX (1u << 20)

static const uint8_t kinds[] = {TOCSIN_POPULATION_RESTING_VARIABLE, 0};

enum { UPDATED = 1, RESTED = 2, WRITTEN = 4, SLOT_SHIFT = 8 }; /* a parameter's word, and by whom */
enum { EVALUATED = 1, EXCUSED = 2 }; /* a process's, since its last update */

typedef struct between {
    tocsin_population population;
    tocsin_map variables, processes;
    tocsin_map made; /* hashes of parameters and their data after updates */
} between;

static void *open_between(tocsin_observer *observer)
{
    between *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_RESTING_VARIABLE,
                                 .variable = TOCSIN_VARIABLE_PARAMETER};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_between(void *memory)
{
    between *own = memory;
    tocsin_map_free(&own->variables);
    tocsin_map_free(&own->processes);
    tocsin_map_free(&own->made);
    tocsin_free(own);
}

static uint64_t *word_of(tocsin_observer *observer, tocsin_map *map, const void *key)
{
    uint64_t *word = tocsin_map_at(map, (uint64_t)(uintptr_t)key);
    if (word == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return word;
}

static void note(tocsin_observer *observer, const tocsin_process *process, uint64_t flag)
{
    between *own = observer->own[TOCSIN_PART_BETWEEN];
    uint64_t *word = word_of(observer, &own->processes, process);
    if (word != NULL)
        *word |= flag;
}

static uint64_t hash_of(const tocsin_variable *variable, const tocsin_digest *digest)
{
    return tocsin_hash64(digest, sizeof *digest, (uint64_t)(uintptr_t)variable) | 1;
}

static void judge(tocsin_observer *observer, const between *own, const tocsin_process *process,
                  const tocsin_frame *frame, const tocsin_sample *sample, bool stays)
{
    tocsin_observer_judge(observer, process, frame, own->population, sample,
                          TOCSIN_PREDICATE_DATA_STAYS, stays);
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    between *own = observer->own[TOCSIN_PART_BETWEEN];
    const tocsin_variable *variable = sample->variable;
    const uint32_t wanted = TOCSIN_STATE_DIGESTED | TOCSIN_STATE_IN_THIS_OPTIMIZER;
    (void)event;
    if (own->population == 0 || frame == NULL || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        sample->attribute != TOCSIN_ATTRIBUTE_DATA || (sample->flags & wanted) != wanted ||
        variable->kind != TOCSIN_VARIABLE_PARAMETER)
        return;
    uint64_t *word = word_of(observer, &own->variables, variable);
    if (word == NULL)
        return;
    uint64_t slot = (uint64_t)(frame->slot + 1);
    if (sample->moment == TOCSIN_MOMENT_EXIT) {
        *word = (*word & (RESTED | WRITTEN)) | UPDATED | slot << SLOT_SHIFT;
        if (own->made.count < STATES_MAX &&
            !tocsin_map_put(&own->made, hash_of(variable, &sample->digest), 1))
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    if ((*word & UPDATED) == 0 || (*word & WRITTEN) != 0 || *word >> SLOT_SHIFT != slot ||
        (frame->roles_inside & UINT32_C(1) << TOCSIN_ROLE_BACKWARD) != 0)
        return;
    const uint64_t *flags = tocsin_map_find(&own->processes, (uint64_t)(uintptr_t)process);
    bool stays = memcmp(&variable->digest, &sample->digest, sizeof sample->digest) == 0;
    if (flags != NULL && (*flags & EXCUSED) != 0)
        return;
    if (flags == NULL || (*flags & EVALUATED) == 0)
        *word |= stays ? RESTED : WRITTEN;
    else if ((*word & RESTED) != 0 && own->made.count < STATES_MAX &&
             (stays || tocsin_map_find(&own->made, hash_of(variable, &sample->digest)) == NULL))
        judge(observer, own, process, frame, sample, stays);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    between *own = observer->own[TOCSIN_PART_BETWEEN];
    (void)thread;
    (void)event;
    (void)completed;
    if (frame->role == TOCSIN_ROLE_OPTIMIZER_STEP) {
        uint64_t *word = word_of(observer, &own->processes, process);
        if (word != NULL)
            *word = 0;
    } else if (frame->role == TOCSIN_ROLE_COLLECTIVE) {
        note(observer, process, EXCUSED);
    } else if (frame->role == TOCSIN_ROLE_CHECKPOINT) {
        if (tocsin_frame_is_of(observer, frame, "torch.load"))
            note(observer, process, EXCUSED);
    }
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    if (event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_STRING ||
        strcmp(dictionary->string(dictionary->producer, event->key), "stage") != 0)
        return;
    const char *stage = dictionary->string(dictionary->producer, event->values[0].as.text);
    if (strcmp(stage, "evaluation") == 0)
        note(observer, process, EVALUATED);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, true); /* which optimizer */
    tocsin_need_call(needs, TOCSIN_ROLE_COLLECTIVE, 0, false);
    tocsin_need_call(needs, TOCSIN_ROLE_CHECKPOINT, 0, false);
}

const tocsin_relation_part tocsin_relation_between = {.kinds = kinds,
                                                      .open = open_between,
                                                      .close = close_between,
                                                      .leave = leave,
                                                      .state = state,
                                                      .meta = meta,
                                                      .need = need};
