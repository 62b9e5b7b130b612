/* evaluation.c - a relation at an index, and the proof that two sums are equal at every index.
 *
 * Entries are compared after sorting and merging. The three steps of a comparison, each only when
 * the one before leaves something: as they are; with defined atoms put out; by the algebra of
 * boxes. Cost: linear in the terms of both sides times the cells, of which there is mostly one.
 */
#include <assert.h>
#include <stdlib.h>

#include "certify/certify.h"

enum {
    CELLS_MAX = 1 << 16,
    ENTRIES_MAX = 1 << 20,
    DEPTH_MAX = 64,
    INDICES_MAX = 48 /* forms of one claim */
};

static certify_outcome say(certify_checker *checker, certify_outcome outcome, const char *format,
                           va_list arguments)
{
    vsnprintf(checker->why, sizeof checker->why, format, arguments);
    return outcome;
}

certify_outcome certify_unclear(certify_checker *checker, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const certify_outcome outcome = say(checker, CERTIFY_UNCLEAR, format, arguments);
    va_end(arguments);
    return outcome;
}

certify_outcome certify_different(certify_checker *checker, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const certify_outcome outcome = say(checker, CERTIFY_DIFFERENT, format, arguments);
    va_end(arguments);
    return outcome;
}

static certify_outcome too_large(certify_checker *checker)
{
    return certify_unclear(checker, "an index or factor is too large");
}

/* ---- one term -------------------------------------------------------------------------------- */

static bool affine_form(const certify_checker *checker, const tocsin_affine *start,
                        certify_form *form)
{
    *form = certify_constant(start->base);
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
        if (!certify_form_add(form, &checker->symbol[s], start->weight[s]))
            return false;
    return true;
}

static int compare_spans(const certify_span *a, const certify_span *b)
{
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    if (a->axis != b->axis)
        return a->axis < b->axis ? -1 : 1;
    if (a->maximum != b->maximum)
        return a->maximum < b->maximum ? -1 : 1;
    if (a->stride != b->stride)
        return a->stride < b->stride ? -1 : 1;
    if (a->extent != b->extent)
        return a->extent < b->extent ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return certify_form_compare(&a->start, &b->start);
}

static int compare_span_items(const void *a, const void *b)
{
    return compare_spans(a, b);
}

certify_outcome certify_spans_of(certify_checker *checker, const certify_term *term,
                                 const certify_span *more, uint32_t more_count,
                                 certify_span **spans, uint32_t *count)
{
    *count = term->range_count + more_count;
    *spans = NULL;
    if (*count == 0)
        return CERTIFY_DONE;
    if (*count > CERTIFY_BOX_MAX)
        return certify_unclear(checker, "a box has too many ranges");
    *spans = TOCSIN_ARENA_ARRAY(&checker->arena, certify_span, *count);
    if (*spans == NULL)
        return CERTIFY_FAILED;
    for (uint32_t k = 0; k < term->range_count; k++) {
        const certify_range *range = &checker->certificate->ranges.items[term->first_range + k];
        (*spans)[k] = (certify_span){.atom = range->atom,
                                     .axis = range->axis,
                                     .maximum = range->maximum,
                                     .stride = range->stride,
                                     .extent = range->extent,
                                     .count = range->count};
        if (!affine_form(checker, &range->start, &(*spans)[k].start))
            return too_large(checker);
    }
    for (uint32_t k = 0; k < more_count; k++)
        (*spans)[term->range_count + k] = more[k];
    qsort(*spans, *count, sizeof **spans, compare_span_items);
    return CERTIFY_DONE;
}

/* to[axis] += stride * (start + value) */
static bool place(const certify_checker *checker, const certify_digit *digit,
                  const certify_form *value, certify_form *to)
{
    certify_form sum;
    return affine_form(checker, &digit->start, &sum) &&
           (value == NULL || certify_form_add(&sum, value, 1)) &&
           certify_form_add(&to[digit->axis], &sum, digit->stride);
}

/* The digits of one dim: the index's mixed-radix digits, innermost last. */
static certify_outcome place_dim(certify_checker *checker, const certify_digit *digits,
                                 uint32_t count, const certify_form *index, certify_form *to)
{
    int64_t tail = 1;
    for (uint32_t k = count; k-- > 0; tail *= digits[k].count) {
        certify_form quotient, rest, above;
        if (digits[k].axis == CERTIFY_BROADCAST)
            continue;
        certify_outcome outcome =
            certify_divide(&checker->space, index, tail, &quotient, &rest, &checker->refinement);
        if (outcome == CERTIFY_DONE && k > 0)
            outcome = certify_divide(&checker->space, &quotient, digits[k].count, &above, &rest,
                                     &checker->refinement);
        else
            rest = quotient;
        if (outcome != CERTIFY_DONE)
            return outcome == CERTIFY_UNCLEAR
                       ? certify_unclear(checker, "an index cannot be divided")
                       : outcome;
        if (!place(checker, &digits[k], &rest, to))
            return too_large(checker);
    }
    return CERTIFY_DONE;
}

static certify_outcome add_entry(certify_checker *checker, const certify_entry *entry)
{
    if (checker->bag.count >= ENTRIES_MAX)
        return certify_unclear(checker, "a sum has too many terms");
    return TOCSIN_VEC_PUSH(&checker->bag, *entry) ? CERTIFY_DONE : CERTIFY_FAILED;
}

/* The numbers 0, 1, 2, ... at b + f are the numbers at f plus b times one (atom 1 is `one`). */
static certify_outcome add_iota(certify_checker *checker, certify_entry *entry)
{
    certify_entry constant = *entry;
    const certify_number base = certify_integer(entry->index[0].base);
    uint32_t one = 0;

    entry->index[0].base = 0;
    if (entry->index[0].count > 0) {
        const certify_outcome outcome = add_entry(checker, entry);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    if (certify_is_zero(&base))
        return CERTIFY_DONE;
    for (size_t k = 0; k < checker->certificate->atoms.count && one == 0; k++)
        if (checker->certificate->atoms.items[k].kind == CERTIFY_ONE)
            one = (uint32_t)k + 1;
    if (one == 0)
        return certify_unclear(checker, "the certificate has no atom one");
    constant.atom = one;
    constant.index = NULL;
    if (!certify_multiply(&constant.factor, &base, &constant.factor))
        return too_large(checker);
    return add_entry(checker, &constant);
}

static certify_outcome evaluate(certify_checker *checker, uint32_t relation,
                                const certify_form *index, const certify_number *scale,
                                const certify_span *spans, uint32_t span_count, uint32_t depth);

static certify_outcome evaluate_term(certify_checker *checker, const certify_term *term,
                                     uint32_t ndim, const certify_form *index,
                                     const certify_number *scale, const certify_span *spans,
                                     uint32_t span_count, uint32_t depth)
{
    const certify_atom *atom = certify_atom_of(checker, term->atom);
    const certify_digit *digit = checker->certificate->digits.items + term->first_digit;
    certify_entry entry = {.atom = term->atom};

    entry.index = TOCSIN_ARENA_ARRAY(&checker->arena, certify_form, atom->ndim + 1);
    if (entry.index == NULL)
        return CERTIFY_FAILED;
    for (uint32_t a = 0; a < atom->ndim; a++)
        entry.index[a] = certify_constant(0);
    for (uint32_t d = 0; d < ndim; digit += term->digits[d++]) {
        const certify_outcome outcome =
            place_dim(checker, digit, term->digits[d], &index[d], entry.index);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    for (uint32_t k = 0; k < term->pinned; k++)
        if (!place(checker, digit++, NULL, entry.index))
            return too_large(checker);
    if (!certify_multiply(&term->factor, scale, &entry.factor))
        return too_large(checker);
    const certify_outcome outcome =
        certify_spans_of(checker, term, spans, span_count, &entry.spans, &entry.span_count);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (checker->expand && atom->kind == CERTIFY_DEFINED)
        return evaluate(checker, checker->certificate->parts.items[atom->first_operand],
                        entry.index, &entry.factor, entry.spans, entry.span_count, depth + 1);
    return atom->kind == CERTIFY_IOTA ? add_iota(checker, &entry) : add_entry(checker, &entry);
}

/* Which part the index falls into: evaluate that one there. */
static certify_outcome evaluate_join(certify_checker *checker, const certify_relation *view,
                                     const certify_form *index, const certify_number *scale,
                                     const certify_span *spans, uint32_t span_count, uint32_t depth)
{
    const uint32_t dim = view->join_dim;
    int64_t offset = 0;

    for (uint32_t k = 0; k < view->count; k++) {
        const uint32_t part = checker->certificate->parts.items[view->first_part + k];
        const int64_t size = certify_shape(checker, part)[dim];
        certify_form inside[CERTIFY_NDIM_MAX];
        bool below;
        const certify_outcome outcome =
            certify_side(&checker->space, &index[dim], offset + size, &below, &checker->refinement);
        if (outcome != CERTIFY_DONE)
            return outcome;
        if (below) {
            memcpy(inside, index, view->ndim * sizeof inside[0]);
            inside[dim].base -= offset;
            return evaluate(checker, part, inside, scale, spans, span_count, depth + 1);
        }
        offset += size;
    }
    return certify_unclear(checker, "an index is beyond the last part");
}

static certify_outcome evaluate(certify_checker *checker, uint32_t relation,
                                const certify_form *index, const certify_number *scale,
                                const certify_span *spans, uint32_t span_count, uint32_t depth)
{
    const certify_relation *view = &checker->certificate->relations.items[relation - 1];

    assert(relation >= 1 && relation <= checker->certificate->relations.count);
    if (depth > DEPTH_MAX)
        return certify_unclear(checker, "definitions are nested too deep");
    if (view->joined)
        return evaluate_join(checker, view, index, scale, spans, span_count, depth);
    for (uint32_t k = 0; k < view->count; k++) {
        const certify_outcome outcome =
            evaluate_term(checker, &checker->certificate->terms.items[view->first_part + k],
                          view->ndim, index, scale, spans, span_count, depth);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    return CERTIFY_DONE;
}

certify_outcome certify_evaluate(certify_checker *checker, uint32_t relation,
                                 const certify_form *index, const certify_number *scale,
                                 const certify_span *spans, uint32_t span_count)
{
    return evaluate(checker, relation, index, scale, spans, span_count, 0);
}

/* ---- sums over coordinates ------------------------------------------------------------------- */

certify_outcome certify_new_coordinate(certify_checker *checker, int64_t size, certify_form *form)
{
    if (checker->space.count == CERTIFY_COORDINATES_MAX)
        return certify_unclear(checker, "too many dims");
    checker->space.size[checker->space.count++] = size;
    *form = certify_coordinate(&checker->space, checker->space.count - 1);
    return CERTIFY_DONE;
}

/* x becomes radix * x + a new coordinate; *with is what to put for it. */
static certify_outcome split(certify_checker *checker, certify_space *space,
                             const certify_refinement *by, certify_form *with)
{
    assert(space->size[by->coordinate] % by->value == 0);
    if (space->count == CERTIFY_COORDINATES_MAX)
        return certify_unclear(checker, "an index falls into too many digits");
    space->size[by->coordinate] /= by->value;
    space->size[space->count++] = by->value;
    const certify_form high = certify_coordinate(space, by->coordinate);
    *with = certify_coordinate(space, space->count - 1);
    return certify_form_add(with, &high, by->value) ? CERTIFY_DONE : too_large(checker);
}

/* The lower or upper half of a cut; *with is what to put for the coordinate. */
static void halve(certify_space *space, const certify_refinement *by, bool upper,
                  certify_form *with)
{
    const int64_t size = space->size[by->coordinate];
    assert(by->value >= 1 && by->value < size);
    space->size[by->coordinate] = upper ? size - by->value : by->value;
    *with = certify_coordinate(space, by->coordinate);
    with->base = upper ? by->value : 0;
}

static bool substitute_all(certify_form *forms, uint32_t count, uint32_t coordinate,
                           const certify_form *with)
{
    for (uint32_t k = 0; k < count; k++)
        if (!certify_substitute(&forms[k], coordinate, with))
            return false;
    return true;
}

static int compare_sums(const void *left, const void *right)
{
    const certify_sum *a = left, *b = right;
    for (uint32_t k = 0; k < CERTIFY_NDIM_MAX; k++)
        if (a->weight[k] != b->weight[k])
            return a->weight[k] < b->weight[k] ? -1 : 1;
    return a->count < b->count ? -1 : a->count > b->count;
}

/* Does `outer` go on where `inner` ends? */
static bool continues(const certify_sum *inner, const certify_sum *outer)
{
    for (uint32_t k = 0; k < CERTIFY_NDIM_MAX; k++) {
        int64_t reach;
        if (__builtin_mul_overflow(inner->weight[k], inner->count, &reach) ||
            reach != outer->weight[k])
            return false;
    }
    return true;
}

/* Merge summed coordinates that run as one, and sort them. */
static void tidy_sums(certify_entry *entry)
{
    bool merged = true;
    while (merged) {
        merged = false;
        for (uint32_t a = 0; a < entry->sum_count && !merged; a++)
            for (uint32_t b = 0; b < entry->sum_count && !merged; b++) {
                if (a == b || !continues(&entry->sums[a], &entry->sums[b]))
                    continue;
                entry->sums[a].count *= entry->sums[b].count;
                entry->sums[b] = entry->sums[--entry->sum_count];
                merged = true;
            }
    }
    if (entry->sum_count > 1)
        qsort(entry->sums, entry->sum_count, sizeof entry->sums[0], compare_sums);
}

/* Take the coordinates from `first` on out of an entry: they are summed over. */
static certify_outcome close_entry(certify_checker *checker, certify_entry *entry, uint32_t first)
{
    const uint32_t ndim = certify_atom_of(checker, entry->atom)->ndim;

    entry->sums = TOCSIN_ARENA_ARRAY(&checker->arena, certify_sum, CERTIFY_SUMS_MAX);
    entry->sum_count = 0;
    if (entry->sums == NULL)
        return CERTIFY_FAILED;
    for (uint32_t c = first; c < checker->space.count; c++) {
        certify_sum sum = {.count = checker->space.size[c]};
        bool occurs = false;
        for (uint32_t a = 0; a < ndim; a++) {
            certify_form *form = &entry->index[a];
            for (uint32_t k = 0; k < form->count; k++)
                if (form->part[k].coordinate == c) {
                    sum.weight[a] = form->part[k].weight;
                    occurs = true;
                }
            const certify_form nothing = certify_constant(0);
            if (!certify_substitute(form, c, &nothing))
                return too_large(checker);
        }
        const certify_number times = certify_integer(sum.count);
        if (sum.count > 1 && !occurs && !certify_multiply(&entry->factor, &times, &entry->factor))
            return too_large(checker);
        if (!occurs)
            continue;
        if (entry->sum_count == CERTIFY_SUMS_MAX)
            return certify_unclear(checker, "a sum runs over too many digits");
        entry->sums[entry->sum_count++] = sum;
    }
    tidy_sums(entry);
    return CERTIFY_DONE;
}

typedef struct summation {
    uint32_t relation, first; /* the first summed coordinate */
    const certify_number *scale;
    const certify_span *spans;
    uint32_t span_count;
} summation;

static certify_outcome sum_cell(certify_checker *checker, const summation *job,
                                const certify_form *given, uint32_t depth)
{
    const uint32_t ndim = certify_ndim(checker, job->relation);
    const certify_space before = checker->space;
    const size_t mark = checker->bag.count;
    certify_form index[CERTIFY_NDIM_MAX], with;

    memcpy(index, given, ndim * sizeof index[0]);
    certify_outcome outcome =
        certify_evaluate(checker, job->relation, index, job->scale, job->spans, job->span_count);
    if (outcome == CERTIFY_REFINE && checker->refinement.coordinate >= job->first) {
        const certify_refinement by = checker->refinement;
        checker->bag.count = mark;
        if (depth > DEPTH_MAX)
            return certify_unclear(checker, "a sum falls into too many pieces");
        if (!by.cut) {
            outcome = split(checker, &checker->space, &by, &with);
            if (outcome == CERTIFY_DONE)
                outcome = substitute_all(index, ndim, by.coordinate, &with)
                              ? sum_cell(checker, job, index, depth + 1)
                              : too_large(checker);
        } else {
            outcome = CERTIFY_DONE;
            for (int upper = 0; upper < 2 && outcome == CERTIFY_DONE; upper++) {
                checker->space = before;
                memcpy(index, given, ndim * sizeof index[0]);
                halve(&checker->space, &by, upper, &with);
                outcome = substitute_all(index, ndim, by.coordinate, &with)
                              ? sum_cell(checker, job, index, depth + 1)
                              : too_large(checker);
            }
        }
    } else {
        for (size_t k = mark; k < checker->bag.count && outcome == CERTIFY_DONE; k++)
            outcome = close_entry(checker, &checker->bag.items[k], job->first);
    }
    checker->space = before;
    return outcome;
}

certify_outcome certify_evaluate_sum(certify_checker *checker, uint32_t relation,
                                     const certify_form *index, const certify_number *scale,
                                     const certify_span *spans, uint32_t span_count, uint32_t count)
{
    assert(count <= checker->space.count);
    const summation job = {.relation = relation,
                           .first = checker->space.count - count,
                           .scale = scale,
                           .spans = spans,
                           .span_count = span_count};
    const certify_outcome outcome = sum_cell(checker, &job, index, 0);
    checker->space.count = job.first;
    return outcome;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Entries that are alike but for factor and box. */
static int compare_places(const certify_checker *checker, const certify_entry *a,
                          const certify_entry *b)
{
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    for (uint32_t d = 0; d < certify_atom_of(checker, a->atom)->ndim; d++) {
        const int order = certify_form_compare(&a->index[d], &b->index[d]);
        if (order != 0)
            return order;
    }
    if (a->sum_count != b->sum_count)
        return a->sum_count < b->sum_count ? -1 : 1;
    for (uint32_t k = 0; k < a->sum_count; k++) {
        const int order = compare_sums(&a->sums[k], &b->sums[k]);
        if (order != 0)
            return order;
    }
    return 0;
}

static int compare_boxes(const certify_entry *a, const certify_entry *b)
{
    if (a->span_count != b->span_count)
        return a->span_count < b->span_count ? -1 : 1;
    for (uint32_t k = 0; k < a->span_count; k++) {
        const int order = compare_spans(&a->spans[k], &b->spans[k]);
        if (order != 0)
            return order;
    }
    return certify_compare_opaque(&a->factor, &b->factor);
}

static int compare_entries(const void *left, const void *right, void *checker)
{
    const int order = compare_places(checker, left, right);
    return order != 0 ? order : compare_boxes(left, right);
}

certify_outcome certify_merge(certify_checker *checker, size_t first)
{
    certify_entry *items = checker->bag.items;
    size_t kept = first;

    if (checker->bag.count - first > 1)
        qsort_r(items + first, checker->bag.count - first, sizeof items[0], compare_entries,
                checker);
    for (size_t k = first; k < checker->bag.count; k++) {
        if (kept > first && compare_entries(&items[kept - 1], &items[k], checker) == 0) {
            if (!certify_add(&items[kept - 1].factor, &items[k].factor, &items[kept - 1].factor))
                return too_large(checker);
        } else {
            items[kept++] = items[k];
        }
        if (certify_is_zero(&items[kept - 1].factor))
            kept--;
    }
    checker->bag.count = kept;
    return CERTIFY_DONE;
}

/* ---- everywhere ------------------------------------------------------------------------------ */

typedef struct cell {
    certify_space space;
    certify_form symbol[TOCSIN_SYMBOL_COUNT];
    certify_form index[INDICES_MAX];
} cell;
typedef TOCSIN_VEC(cell) cell_list;

/* Is what remains in the bag nothing, by the algebra of boxes? */
static certify_outcome settle(certify_checker *checker)
{
    const certify_entry *items = checker->bag.items;
    for (size_t first = 0; first < checker->bag.count;) {
        size_t end = first + 1;
        while (end < checker->bag.count && compare_places(checker, &items[first], &items[end]) == 0)
            end++;
        const certify_outcome outcome = certify_boxes_cancel(checker, items + first, end - first);
        if (outcome != CERTIFY_DONE)
            return outcome;
        first = end;
    }
    return CERTIFY_DONE;
}

static certify_outcome judge_cell(certify_checker *checker, const cell *here,
                                  certify_difference *difference, const void *context)
{
    certify_outcome outcome = CERTIFY_DONE;
    for (int expand = 0; expand < 2; expand++) {
        tocsin_arena_reset(&checker->arena);
        checker->bag.count = 0;
        checker->expand = expand;
        checker->space = here->space;
        memcpy(checker->symbol, here->symbol, sizeof checker->symbol);
        outcome = difference(checker, context, here->index);
        if (outcome == CERTIFY_DONE)
            outcome = certify_merge(checker, 0);
        if (outcome != CERTIFY_DONE || checker->bag.count == 0)
            return outcome;
    }
    return settle(checker);
}

/* Replace the last cell by its refinement. */
static certify_outcome refine(certify_checker *checker, cell_list *cells, uint32_t forms)
{
    const certify_refinement by = checker->refinement;
    certify_form with;

    if (by.cut && !TOCSIN_VEC_RESERVE(cells, 1))
        return CERTIFY_FAILED;
    cell *lower = &cells->items[cells->count - 1];
    if (by.coordinate >= lower->space.count)
        return certify_unclear(checker, "a sum cannot be refined");
    if (by.cut) {
        cells->items[cells->count] = *lower;
        cell *upper = &cells->items[cells->count++];
        halve(&upper->space, &by, true, &with);
        if (!substitute_all(upper->index, forms, by.coordinate, &with) ||
            !substitute_all(upper->symbol, TOCSIN_SYMBOL_COUNT, by.coordinate, &with))
            return too_large(checker);
        halve(&lower->space, &by, false, &with);
    } else {
        const certify_outcome outcome = split(checker, &lower->space, &by, &with);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    return substitute_all(lower->index, forms, by.coordinate, &with) &&
                   substitute_all(lower->symbol, TOCSIN_SYMBOL_COUNT, by.coordinate, &with)
               ? CERTIFY_DONE
               : too_large(checker);
}

certify_outcome certify_everywhere(certify_checker *checker, const int64_t *sizes, uint32_t count,
                                   certify_difference *difference, const void *context)
{
    cell_list cells = {0};
    certify_outcome outcome = CERTIFY_DONE;

    if (count > INDICES_MAX)
        return certify_unclear(checker, "too many dims");
    if (!TOCSIN_VEC_RESERVE(&cells, 1))
        return CERTIFY_FAILED;
    cell *first = &cells.items[cells.count++];
    first->space.count = 0;
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++) {
        first->space.size[first->space.count++] = (int64_t)checker->certificate->symbol_size[s];
        first->symbol[s] = certify_coordinate(&first->space, (uint32_t)s);
    }
    for (uint32_t d = 0; d < count; d++) {
        first->space.size[first->space.count++] = sizes[d];
        first->index[d] = certify_coordinate(&first->space, first->space.count - 1);
    }
    for (uint32_t steps = 0; cells.count > 0 && outcome == CERTIFY_DONE; steps++) {
        outcome = judge_cell(checker, &cells.items[cells.count - 1], difference, context);
        if (outcome == CERTIFY_REFINE && steps < CELLS_MAX)
            outcome = refine(checker, &cells, count);
        else if (outcome == CERTIFY_REFINE)
            outcome = certify_unclear(checker, "it falls into too many cells");
        else
            cells.count--;
    }
    TOCSIN_VEC_FREE(&cells);
    return outcome;
}
