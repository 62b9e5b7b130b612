/* lib/align/cause.c - whether a difference arose where it was first seen.
 *
 * What goes into a boundary depends on what it is:
 *   what a call returns    the inputs of that call; for a module its parameters too, as they are
 *                          read later in the same step, which is when they were last written
 *   what a step leaves     the same variable, its gradient and its optimizer state, when it began
 *   a gradient, a buffer   the inputs of its module in this step, and the gradient that came back
 *   a parameter            itself in the step before, which was equal: nothing recorded writes it
 *                          in between
 * Where one of them differs, the difference came from there; where at least one is known and all
 * that were recorded are equal, it arose here; else the recording does not say.
 *
 * Cost: one pass over the step for each difference that is shown.
 */
#include "align/align.h"

tocsin_pair_state tocsin_pair_state_of(const tocsin_paired_step *pair, uint32_t at)
{
    uint32_t partner = pair->partner[at];
    uint64_t x = pair->a->items.items[at].value;
    uint64_t y = partner == TOCSIN_ALIGN_NONE ? 0 : pair->b->items.items[partner].value;
    if (x == 0 || y == 0)
        return TOCSIN_PAIR_UNKNOWN;
    return x == y && tocsin_baseline_near(pair->options, &pair->a->boundaries.items[at],
                                          &pair->b->boundaries.items[partner])
               ? TOCSIN_PAIR_EQUAL
               : TOCSIN_PAIR_DIFFERENT;
}

static bool is_named(const tocsin_paired_step *pair, uint32_t attribute, const char *name)
{
    return strcmp(tocsin_intern_string(pair->names, attribute), name) == 0;
}

/* Is `inner` a part of the module `outer`: its parameter, or one of a module in it? */
static bool is_part(const tocsin_paired_step *pair, uint32_t inner, uint32_t outer)
{
    const char *part = tocsin_intern_string(pair->names, inner),
               *whole = tocsin_intern_string(pair->names, outer);
    size_t length = strlen(whole);
    return length == 0 || (strncmp(part, whole, length) == 0 && part[length] == '.');
}

/* Is `module` the one that holds the variable directly: "layers.0" of "layers.0.weight"? */
static bool holds(const tocsin_paired_step *pair, uint32_t module, uint32_t variable)
{
    const char *whole = tocsin_intern_string(pair->names, module),
               *part = tocsin_intern_string(pair->names, variable);
    const char *dot = strrchr(part, '.');
    size_t length = dot ? (size_t)(dot - part) : 0;
    return strlen(whole) == length && strncmp(whole, part, length) == 0;
}

/* ---- what goes in ---------------------------------------------------------------------------- */

typedef enum relevance {
    NOT_IN, /* does not go in */
    MAY_BE, /* says that the difference came from it, if it differs, but not that nothing did */
    GOES_IN
} relevance;

typedef relevance into_test(const tocsin_paired_step *pair, const tocsin_boundary *boundary,
                            const tocsin_boundary *into);

static bool of_one_call(const tocsin_boundary *boundary, const tocsin_boundary *into)
{
    return boundary->point >> 2 == into->point >> 2;
}

static bool at_begin(const tocsin_boundary *boundary)
{
    return (boundary->point & TOCSIN_MOMENT_MASK) == TOCSIN_MOMENT_ENTER;
}

/* A module's parameters are read when the optimizer begins: as the forward pass used them. */
static relevance into_call(const tocsin_paired_step *pair, const tocsin_boundary *boundary,
                           const tocsin_boundary *into)
{
    if (of_one_call(boundary, into) && is_named(pair, boundary->attribute, "input"))
        return GOES_IN;
    bool module = into->chain && into->chain->module;
    return module && boundary->parameter && at_begin(boundary) &&
                   is_named(pair, boundary->attribute, "data") &&
                   is_named(pair, boundary->phase, "optimizer") &&
                   is_part(pair, boundary->name, into->name)
               ? MAY_BE
               : NOT_IN;
}

/* Of one parameter: "head.weight" and "head.weight#exp_avg". */
static bool of_one_parameter(const tocsin_paired_step *pair, uint32_t a, uint32_t b)
{
    const char *one = tocsin_intern_string(pair->names, a),
               *other = tocsin_intern_string(pair->names, b);
    size_t length = strcspn(one, "#");
    return length == strcspn(other, "#") && strncmp(one, other, length) == 0;
}

static relevance into_update(const tocsin_paired_step *pair, const tocsin_boundary *boundary,
                             const tocsin_boundary *into)
{
    return of_one_call(boundary, into) && at_begin(boundary) &&
                   of_one_parameter(pair, boundary->name, into->name)
               ? GOES_IN
               : NOT_IN;
}

static relevance as_backward_left_it(const tocsin_paired_step *pair,
                                     const tocsin_boundary *boundary, const tocsin_boundary *into)
{
    return boundary->gradient && boundary->name == into->name && boundary->point < into->point &&
                   is_named(pair, boundary->phase, "backward")
               ? GOES_IN
               : NOT_IN;
}

static relevance into_module(const tocsin_paired_step *pair, const tocsin_boundary *boundary,
                             const tocsin_boundary *into)
{
    if (!holds(pair, boundary->name, into->name))
        return NOT_IN;
    if (into->gradient && is_named(pair, boundary->attribute, "grad_output"))
        return GOES_IN;
    bool module = boundary->chain && boundary->chain->module;
    return module && is_named(pair, boundary->attribute, "input") ? GOES_IN : NOT_IN;
}

/* ---- judgement ------------------------------------------------------------------------------- */

static tocsin_align_cause judge(const tocsin_paired_step *pair, const tocsin_boundary *into,
                                into_test *test, uint32_t *source)
{
    size_t equal = 0, unknown = 0;
    for (uint32_t k = 0; k < pair->a->items.count; ++k) {
        const tocsin_boundary *boundary = &pair->a->boundaries.items[k];
        relevance relevant = boundary == into ? NOT_IN : test(pair, boundary, into);
        if (relevant == NOT_IN)
            continue;
        tocsin_pair_state state = tocsin_pair_state_of(pair, k);
        if (state == TOCSIN_PAIR_DIFFERENT) {
            *source = k;
            return TOCSIN_ALIGN_CAUSE_UPSTREAM;
        }
        equal += relevant == GOES_IN && state == TOCSIN_PAIR_EQUAL;
        unknown += relevant == GOES_IN && state == TOCSIN_PAIR_UNKNOWN;
    }
    return equal > 0 && unknown == 0 ? TOCSIN_ALIGN_CAUSE_PRODUCED : TOCSIN_ALIGN_CAUSE_UNOBSERVED;
}

/* The state of an optimizer goes into its step; it may not have been read. */
static bool knows_state(const tocsin_paired_step *pair, const tocsin_boundary *into)
{
    for (uint32_t k = 0; k < pair->a->items.count; ++k) {
        const tocsin_boundary *boundary = &pair->a->boundaries.items[k];
        if (into_update(pair, boundary, into) == GOES_IN &&
            strchr(tocsin_intern_string(pair->names, boundary->name), '#'))
            return true;
    }
    return false;
}

static tocsin_align_cause judge_update(const tocsin_paired_step *pair, const tocsin_boundary *into,
                                       uint32_t *source)
{
    tocsin_align_cause cause = judge(pair, into, into_update, source);
    return cause == TOCSIN_ALIGN_CAUSE_PRODUCED && !knows_state(pair, into)
               ? TOCSIN_ALIGN_CAUSE_UNOBSERVED
               : cause;
}

/* A gradient needs both: what came back to the module, and what went into it. */
static bool knows_both(const tocsin_paired_step *pair, const tocsin_boundary *into)
{
    bool input = false, back = false;
    for (uint32_t k = 0; k < pair->a->items.count; ++k) {
        const tocsin_boundary *boundary = &pair->a->boundaries.items[k];
        if (into_module(pair, boundary, into) == NOT_IN)
            continue;
        input = input || is_named(pair, boundary->attribute, "input");
        back = back || is_named(pair, boundary->attribute, "grad_output");
    }
    return input && back;
}

static tocsin_align_cause judge_gradient(const tocsin_paired_step *pair,
                                         const tocsin_boundary *into, uint32_t *source)
{
    tocsin_align_cause cause = judge(pair, into, as_backward_left_it, source);
    if (cause != TOCSIN_ALIGN_CAUSE_UNOBSERVED)
        return cause;
    cause = judge(pair, into, into_module, source);
    return cause == TOCSIN_ALIGN_CAUSE_PRODUCED && !knows_both(pair, into)
               ? TOCSIN_ALIGN_CAUSE_UNOBSERVED
               : cause;
}

tocsin_align_cause tocsin_align_cause_find(const tocsin_paired_step *pair, uint32_t at,
                                           uint32_t *source)
{
    const tocsin_boundary *into = &pair->a->boundaries.items[at];
    *source = TOCSIN_ALIGN_NONE;
    if (is_named(pair, into->attribute, "output") || is_named(pair, into->attribute, "return"))
        return judge(pair, into, into_call, source);
    bool data = is_named(pair, into->attribute, "data");
    if (!at_begin(into) && is_named(pair, into->phase, "optimizer"))
        return judge_update(pair, into, source);
    if (into->gradient)
        return judge_gradient(pair, into, source);
    if (into->buffer)
        return judge(pair, into, into_module, source);
    /* the step before, in which it was equal, left it so */
    return data && into->parameter && pair->step > 1 ? TOCSIN_ALIGN_CAUSE_PRODUCED
                                                     : TOCSIN_ALIGN_CAUSE_UNOBSERVED;
}

uint32_t tocsin_align_cause_last_equal(const tocsin_paired_step *pair, uint32_t at)
{
    const tocsin_boundary *boundaries = pair->a->boundaries.items;
    for (uint32_t k = at; k-- > 0;) {
        if (boundaries[k].point != boundaries[at].point && !boundaries[k].generator &&
            !boundaries[k].setting && tocsin_pair_state_of(pair, k) == TOCSIN_PAIR_EQUAL)
            return k;
    }
    return TOCSIN_ALIGN_NONE;
}
