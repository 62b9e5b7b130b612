/* State that is random until a module is called in training mode: an evaluation comes after that.
 *
 * It is the vectors of torch.nn.utils.spectral_norm, which only forward passes in training mode
 * iterate; what an evaluation computes before has a random norm. (BatchNorm's statistics begin at a
 * sensible value, and spectral_norm of torch.nn.utils.parametrizations iterates when it is made: to
 * evaluate those untrained is a baseline.) Judged at a module's first pass in training mode: was it
 * evaluated before? Not if that was later than the process's first update, because then it may be a
 * copy of one that was trained, nor if anything was loaded before.
 * Made only when asked for: there is nothing to infer. Data: a word a module. Cost: O(1).
 */
#include <invariant/relation.h>

#define MODULES_MAX (1u << 16)

static const uint8_t kinds[] = {TOCSIN_POPULATION_FIRST_TRAINING, 0};

enum { EVALUATED = 1, TRAINED = 2 };

typedef struct untrained {
    tocsin_symbol function;
    tocsin_map modules; /* process and module -> word */
    tocsin_map loaded;  /* tocsin_process * -> 1 */
} untrained;

static void *open_untrained(tocsin_observer *observer)
{
    untrained *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    own->function = tocsin_observer_need(
        observer, tocsin_symbol_of(observer->vocabulary,
                                   "torch.nn.utils.spectral_norm.SpectralNorm.compute_weight"));
    return own;
}

static void close_untrained(void *memory)
{
    untrained *own = memory;
    tocsin_map_free(&own->modules);
    tocsin_map_free(&own->loaded);
    tocsin_free(own);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    const untrained *own = observer->own[TOCSIN_PART_UNTRAINED];
    if (observer->filtered && made->role == TOCSIN_ROLE_NONE && made->name == own->function)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_FIRST_TRAINING);
}

static void judge(tocsin_observer *observer, const tocsin_process *process,
                  const tocsin_frame *frame, tocsin_population population, const char *module,
                  bool evaluated)
{
    tocsin_instance instance = {.population = population,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, module)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (!evaluated)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_NOT_EVALUATED));
    tocsin_observer_emit(observer, &instance);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    untrained *own = observer->own[TOCSIN_PART_UNTRAINED];
    tocsin_population population = observer->callables.items[frame->callables[0]]
                                       .populations[TOCSIN_POPULATION_FIRST_TRAINING];
    (void)thread;
    if (population == 0 || event->value_count < 2 || event->values[0].count == 0 ||
        event->values[1].kind != TOCSIN_VALUE_MODULE || own->modules.count >= MODULES_MAX)
        return;
    uint64_t key = tocsin_mix64((uint64_t)(uintptr_t)process + event->values[0].count);
    uint64_t *word = tocsin_map_at(&own->modules, key);
    if (word == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    bool training = (event->values[1].flags & TOCSIN_VALUE_TRAINING) != 0;
    bool loaded = tocsin_map_find(&own->loaded, (uint64_t)(uintptr_t)process) != NULL;
    if (training && (*word & TRAINED) == 0) {
        const tocsin_dictionary *dictionary = &process->dictionary;
        tocsin_id name = event->values[1].as.text;
        judge(observer, process, frame, population,
              name != 0 ? dictionary->string(dictionary->producer, name) : NULL,
              (*word & EVALUATED) != 0);
        *word |= TRAINED;
    } else if (!training && process->step == 0 && !loaded) {
        *word |= EVALUATED;
    }
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    untrained *own = observer->own[TOCSIN_PART_UNTRAINED];
    (void)thread;
    (void)event;
    (void)completed;
    if (frame->role != TOCSIN_ROLE_CHECKPOINT)
        return;
    const char *name = tocsin_symbol_text(observer->vocabulary,
                                          observer->callables.items[frame->callables[0]].name);
    bool loads = strcmp(name, "torch.load") == 0 || strstr(name, ".load_state_dict") != NULL;
    if (loads && !tocsin_map_put(&own->loaded, (uint64_t)(uintptr_t)process, 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    tocsin_need_call(needs, TOCSIN_ROLE_NONE, key.name, true);
    tocsin_need_call(needs, TOCSIN_ROLE_CHECKPOINT, 0, false);
}

const tocsin_relation_part tocsin_relation_untrained = {.kinds = kinds,
                                                        .open = open_untrained,
                                                        .close = close_untrained,
                                                        .callable = callable,
                                                        .enter = enter,
                                                        .leave = leave,
                                                        .need = need};
