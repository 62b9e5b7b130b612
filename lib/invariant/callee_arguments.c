/* Facts "calls G with arg.K = V", at any depth.
 *
 * Facts are numbered from 0, and a call gathers the numbers of what happened in it as bits, as it
 * does with the functions that were called. While learning (wide only), numbers are given to what
 * "arg.K is V" was made of, so values that vary are left out as they are there. While checking, the
 * wanted facts of a function are looked at when it returns; where a call names its arguments by
 * their place alone ("arg0": another tool's recording), those asked for by name are not known and
 * taken to be as they should. Cost: O(facts / 64) a call, O(wanted facts of G) a call of G.
 */
#include <assert.h>
#include <invariant/callee_arguments.h>

#define FACTS_MAX (1u << 16) /* numbered while learning; further ones are not claimed */

typedef struct wanted_argument { /* of a callee */
    uint32_t next;               /* of the same one, + 1; 0: none */
    tocsin_symbol field;
    tocsin_scalar value;
} wanted_argument;

struct tocsin_callee_arguments {
    tocsin_observer *observer;
    TOCSIN_VEC(tocsin_fact) facts;      /* by number */
    TOCSIN_VEC(wanted_argument) wanted; /* checking: the same numbers */
    tocsin_map of_callee;               /* symbol or role << 32 -> first wanted + 1 */
    tocsin_map numbers;                 /* learning: (callable, "arg.K is V") -> number + 1 */
};

static uint64_t callee_key(uint8_t role, tocsin_symbol name)
{
    return role != TOCSIN_ROLE_NONE ? (uint64_t)role << 32 : name;
}

static bool take_wanted(tocsin_callee_arguments *callees)
{
    const tocsin_observer *observer = callees->observer;
    size_t cursor = 0;
    uint64_t fact, *one;
    while (tocsin_map_next(&observer->wanted_facts, &cursor, &fact, &one)) {
        tocsin_fact_key key = tocsin_fact_get_key(observer->vocabulary, (tocsin_fact)fact);
        if (key.predicate != TOCSIN_PREDICATE_CALLS_WITH)
            continue;
        uint64_t *first = tocsin_map_at(&callees->of_callee, callee_key(key.role, key.name));
        if (first == NULL)
            return false;
        wanted_argument wanted = {.next = (uint32_t)*first, .field = key.other, .value = key.value};
        if (!TOCSIN_VEC_PUSH(&callees->facts, (tocsin_fact)fact) ||
            !TOCSIN_VEC_PUSH(&callees->wanted, wanted))
            return false;
        *first = callees->wanted.count;
    }
    return true;
}

tocsin_callee_arguments *tocsin_callee_arguments_new(tocsin_observer *observer)
{
    tocsin_callee_arguments *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    made->observer = observer;
    if (!take_wanted(made))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    if (observer->status == TOCSIN_OK && (observer->wide || made->facts.count > 0))
        return made;
    tocsin_callee_arguments_free(made);
    return NULL;
}

void tocsin_callee_arguments_free(tocsin_callee_arguments *callees)
{
    if (callees == NULL)
        return;
    TOCSIN_VEC_FREE(&callees->facts);
    TOCSIN_VEC_FREE(&callees->wanted);
    tocsin_map_free(&callees->of_callee);
    tocsin_map_free(&callees->numbers);
    tocsin_free(callees);
}

void tocsin_callee_arguments_callable(const tocsin_callee_arguments *callees, tocsin_callable *made)
{
    uint64_t key = callee_key(made->role, made->name);
    made->interesting |= tocsin_map_find(&callees->of_callee, key) != NULL;
}

/* ---- what a call was given ----------------------------------------------------------------- */

static bool reach(tocsin_observer *observer, tocsin_frame *outer, size_t words)
{
    while (outer->inside_with.count < words)
        if (!TOCSIN_VEC_PUSH(&outer->inside_with, 0)) {
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
            return false;
        }
    return true;
}

static void set_bit(tocsin_observer *observer, tocsin_frame *outer, size_t number)
{
    if (reach(observer, outer, number / 64 + 1))
        outer->inside_with.items[number / 64] |= UINT64_C(1) << (number % 64);
}

/* Is it the argument that was asked for, as far as can be known? */
static bool is_given(const tocsin_callee_arguments *callees, const tocsin_frame *frame,
                     const wanted_argument *wanted)
{
    const tocsin_vocabulary *vocabulary = callees->observer->vocabulary;
    for (size_t i = 0; i < frame->numbers.count; ++i)
        if (frame->numbers.items[i].name == wanted->field)
            return tocsin_scalar_find(vocabulary, &frame->numbers.items[i].literal) ==
                   wanted->value;
    for (size_t i = 0; i < frame->fields.count; ++i)
        if (frame->fields.items[i].name == wanted->field)
            return frame->fields.items[i].a == wanted->value;
    return frame->has_places;
}

/* The first wanted argument of the callable, + 1; 0: none. */
static uint32_t first_wanted(const tocsin_callee_arguments *callees, const tocsin_frame *frame,
                             uint32_t which)
{
    const tocsin_callable *callable = &callees->observer->callables.items[frame->callables[which]];
    const uint64_t *first =
        tocsin_map_find(&callees->of_callee, callee_key(callable->role, callable->name));
    return first != NULL ? (uint32_t)*first : 0;
}

static void note_wanted(tocsin_callee_arguments *callees, const tocsin_frame *frame,
                        tocsin_frame *outer)
{
    for (uint32_t c = 0; c < frame->callable_count; ++c)
        for (uint32_t i = first_wanted(callees, frame, c); i != 0;) {
            const wanted_argument *wanted = &callees->wanted.items[i - 1];
            if (is_given(callees, frame, wanted))
                set_bit(callees->observer, outer, i - 1);
            i = wanted->next;
        }
}

/* The number of "calls G with" for a fact about an argument of G; 0: one too many. */
static uint64_t number_of(tocsin_callee_arguments *callees, const tocsin_frame *frame,
                          tocsin_fact argument)
{
    tocsin_observer *observer = callees->observer;
    uint64_t *number =
        tocsin_map_at(&callees->numbers, (uint64_t)frame->callables[0] << 32 | argument);
    if (number == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return 0;
    }
    if (*number == 0 && callees->facts.count < FACTS_MAX) {
        tocsin_fact_key of = tocsin_fact_get_key(observer->vocabulary, argument);
        tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_CALLS_WITH,
                               .name = observer->callables.items[frame->callables[0]].name,
                               .other = of.name,
                               .value = of.value};
        tocsin_fact fact = tocsin_observer_fact(observer, &key);
        if (fact == 0 || !TOCSIN_VEC_PUSH(&callees->facts, fact))
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        else
            *number = callees->facts.count;
    }
    return *number;
}

static void note_all(tocsin_callee_arguments *callees, const tocsin_frame *frame,
                     tocsin_frame *outer)
{
    for (size_t i = 0; i < frame->arguments.count; ++i) {
        uint64_t number = number_of(callees, frame, frame->arguments.items[i]);
        if (number != 0)
            set_bit(callees->observer, outer, number - 1);
    }
}

void tocsin_callee_arguments_enter(const tocsin_callee_arguments *callees,
                                   const tocsin_process *process, tocsin_frame *frame,
                                   const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    bool wanted = false;
    for (uint32_t c = 0; callees->wanted.count > 0 && c < frame->callable_count; ++c)
        wanted |= first_wanted(callees, frame, c) != 0;
    for (uint32_t i = 0; wanted && i < event->value_count; ++i) {
        const char *name = dictionary->string(dictionary->producer, event->values[i].name);
        frame->has_places |= strncmp(name, "arg", 3) == 0 && name[3] >= '0' && name[3] <= '9';
    }
}

void tocsin_callee_arguments_leave(tocsin_callee_arguments *callees, tocsin_thread *thread,
                                   const tocsin_frame *frame, bool completed)
{
    tocsin_observer *observer = callees->observer;
    if (thread->open < 2)
        return;
    tocsin_frame *outer = &thread->frames.items[thread->open - 2];
    if (frame->inside_with.count > 0)
        reach(observer, outer, frame->inside_with.count);
    for (size_t i = 0; i < frame->inside_with.count && observer->status == TOCSIN_OK; ++i)
        outer->inside_with.items[i] |= frame->inside_with.items[i];
    if (completed && callees->wanted.count > 0)
        note_wanted(callees, frame, outer);
    else if (completed)
        note_all(callees, frame, outer);
}

void tocsin_callee_arguments_add(const tocsin_callee_arguments *callees, const tocsin_frame *frame)
{
    for (size_t word = 0; word < frame->inside_with.count; ++word)
        for (uint64_t bits = frame->inside_with.items[word]; bits != 0; bits &= bits - 1) {
            size_t number = word * 64 + (size_t)__builtin_ctzll(bits);
            tocsin_observer_add_fact(callees->observer, callees->facts.items[number]);
        }
}
