/* Losses are finite.
 *
 * LOSS: a call of a loss function that returned one number, of which the recorder keeps the element
 * (on the CPU). What is healthy and makes no instance: a loss in half precision, which is exceeded
 * for a GradScaler to see; of nothing (an empty batch, targets that are all ignored); and CTC,
 * which is infinite where a target does not fit in. Only the outermost loss is judged. Cost:
 * O(values) a loss.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <math.h>

typedef struct loss_population {
    tocsin_population population;
} loss_population;

static void *open_loss(tocsin_observer *observer)
{
    loss_population *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_LOSS};
    own->population = tocsin_observer_population(observer, &key);
    return own;
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    (void)observer;
    made->interesting |= made->role == TOCSIN_ROLE_LOSS;
}

static bool is_outermost(const tocsin_thread *thread)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == TOCSIN_ROLE_LOSS)
            return false;
    return true;
}

/* Is it a loss of nothing: a tensor without elements, or no target that counts? */
static bool is_of_nothing(const tocsin_process *process, const tocsin_frame *frame,
                          const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    int64_t count = -1, ignored = 0;
    for (uint32_t i = 0; i < frame->tensor_count; ++i) {
        const int64_t *sizes = NULL;
        uint32_t ndim = dictionary->shape(dictionary->producer, frame->tensors[i].shape, &sizes);
        for (uint32_t d = 0; sizes != NULL && d < ndim; ++d)
            if (sizes[d] == 0)
                return true;
    }
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        const char *name = dictionary->string(dictionary->producer, value->name);
        if (value->kind == TOCSIN_VALUE_INT && strcmp(name, "target.count") == 0)
            count = value->as.integer;
        else if (value->kind == TOCSIN_VALUE_INT && strcmp(name, "target.ignored") == 0)
            ignored = value->as.integer;
    }
    return count == ignored;
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    const loss_population *own = observer->own[TOCSIN_PART_LOSS];
    if (!completed || own->population == 0 || frame->role != TOCSIN_ROLE_LOSS ||
        event->value_count < 2 || (event->values[0].flags & TOCSIN_VALUE_HAS_ITEM) == 0 ||
        event->values[1].kind != TOCSIN_VALUE_FLOAT || !is_outermost(thread))
        return;
    const char *function = tocsin_symbol_text(observer->vocabulary,
                                              observer->callables.items[frame->callables[0]].name);
    if (event->values[0].dtype == TOCSIN_DTYPE_FLOAT16 || strstr(function, "ctc") != NULL ||
        strstr(function, "CTC") != NULL || is_of_nothing(process, frame, event))
        return;
    tocsin_instance instance = {.population = own->population,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (isfinite(event->values[1].as.real))
        tocsin_observer_add_fact(observer,
                                 tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_FINITE));
    tocsin_observer_emit(observer, &instance);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_call(needs, TOCSIN_ROLE_LOSS, 0, true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_LOSS, 0};
const tocsin_relation_part tocsin_relation_loss = {.kinds = kinds,
                                                   .open = open_loss,
                                                   .close = tocsin_free,
                                                   .callable = callable,
                                                   .leave = leave,
                                                   .need = need};
