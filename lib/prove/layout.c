/* layout.c - relations cut, permuted and repeated: what changes the map alone, dim by dim.
 *
 * Every operation lays out the digits of each term anew (a *draft* on the stack) and interns the
 * result; digits are cut as mixed-radix numbers. Where a range is not one range of every digit, it
 * is cut in pieces at the digits' boundaries, and the result is segmented: constant ranges always
 * have an answer. Atoms, factors and boxes are untouched.
 *
 * Cost: linear in the digits, and one interning. Nothing is allocated for a relation of one term.
 */
#include "prove/layout.h"

#include <assert.h>

enum { PIECES_DEPTH_MAX = 48 /* nested cuts: two for each digit that a range is not aligned to */ };

/* ---- drafts ---------------------------------------------------------------------------------- */

static bool draft_term(tocsin_universe *universe, const tocsin_relation *relation,
                       const tocsin_term *term, tocsin_lay_out *lay_out, void *context,
                       tocsin_draft *draft)
{
    draft->total = draft->pinned = 0;
    draft->full = false;
    if (!lay_out(universe, relation, term, context, draft))
        return false;
    draft->full |= draft->total + draft->pinned + term->pinned_count > TOCSIN_DRAFT_DIGITS_MAX;
    if (draft->full)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "a value is cut into too many parts") != 0;
    memcpy(draft->digits + draft->total + draft->pinned, term->digits + term->digit_total,
           term->pinned_count * sizeof draft->digits[0]);
    draft->pinned += term->pinned_count;
    return true;
}

static tocsin_term term_of_draft(const tocsin_term *term, const tocsin_draft *draft)
{
    tocsin_term made = *term;
    made.digit_count = draft->digit_count;
    made.digits = draft->digits;
    made.digit_total = draft->total;
    made.pinned_count = draft->pinned;
    return made;
}

tocsin_relation_id tocsin_relation_redraw(tocsin_universe *universe,
                                          const tocsin_relation *relation, tocsin_lay_out *lay_out,
                                          void *context, const int64_t *shape, uint8_t ndim)
{
    tocsin_draft draft;

    assert(!relation->segmented && ndim <= TOCSIN_PLAN_NDIM_MAX);
    if (relation->count == 0)
        return tocsin_relation_constant(universe, 0, true, shape, ndim);
    if (relation->count == 1) {
        if (!draft_term(universe, relation, &relation->terms[0], lay_out, context, &draft))
            return 0;
        const tocsin_term made = term_of_draft(&relation->terms[0], &draft);
        return tocsin_relation_of_term(universe, &made, shape, ndim);
    }
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id made = 0;
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, relation->count);
    for (uint32_t k = 0; terms != NULL && k < relation->count; k++) {
        if (!draft_term(universe, relation, &relation->terms[k], lay_out, context, &draft))
            goto out;
        const uint32_t digits = draft.total + draft.pinned;
        tocsin_digit *digit_copy = TOCSIN_SCRATCH(universe, tocsin_digit, digits);
        uint8_t *count_copy = TOCSIN_SCRATCH(universe, uint8_t, ndim);
        if (digit_copy == NULL || count_copy == NULL)
            goto out;
        memcpy(digit_copy, draft.digits, digits * sizeof draft.digits[0]);
        memcpy(count_copy, draft.digit_count, ndim);
        terms[k] = term_of_draft(&relation->terms[k], &draft);
        terms[k].digits = digit_copy;
        terms[k].digit_count = count_copy;
    }
    if (terms != NULL)
        made = tocsin_relation_of_terms(universe, terms, relation->count, shape, ndim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

static void draft_push_all(tocsin_draft *draft, const tocsin_digit *digits, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        tocsin_draft_push(draft, &digits[i]);
}

/* ---- permute, expand ------------------------------------------------------------------------- */

static void first_digits(const tocsin_term *term, uint8_t ndim,
                         uint32_t first[TOCSIN_PLAN_NDIM_MAX])
{
    uint32_t next = 0;
    for (uint8_t d = 0; d < ndim; d++) {
        first[d] = next;
        next += term->digit_count[d];
    }
}

static bool lay_out_permuted(tocsin_universe *universe, const tocsin_relation *relation,
                             const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const uint8_t *dims = context;
    uint32_t first[TOCSIN_PLAN_NDIM_MAX];

    (void)universe;
    first_digits(term, relation->ndim, first);
    for (uint8_t d = 0; d < relation->ndim; d++) {
        draft->digit_count[d] = term->digit_count[dims[d]];
        draft_push_all(draft, term->digits + first[dims[d]], term->digit_count[dims[d]]);
    }
    return true;
}

/* The segmented relation whose segments are operation(segment, context, segment's length). */
typedef tocsin_relation_id segment_operation(tocsin_universe *universe, tocsin_relation_id segment,
                                             const void *context, int64_t length);

static tocsin_relation_id each_segment(tocsin_universe *universe, const tocsin_relation *relation,
                                       uint32_t dim, segment_operation *operation,
                                       const void *context)
{
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id made = 0;
    tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);

    for (uint32_t i = 0; pieces != NULL && i < relation->count; i++) {
        const tocsin_relation *segment = tocsin_relation_get(universe, relation->segments[i]);
        pieces[i] = operation(universe, relation->segments[i], context,
                              segment->shape[relation->segment_dim]);
        if (pieces[i] == 0)
            goto out;
    }
    if (pieces != NULL)
        made = tocsin_relation_of_segments(universe, pieces, relation->count, dim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

static tocsin_relation_id permute_segment(tocsin_universe *universe, tocsin_relation_id segment,
                                          const void *context, int64_t length)
{
    (void)length;
    return tocsin_relation_permute(universe, segment, context);
}

tocsin_relation_id tocsin_relation_permute(tocsin_universe *universe, tocsin_relation_id id,
                                           const uint8_t *dims)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    uint8_t order[TOCSIN_PLAN_NDIM_MAX];
    uint32_t seen = 0, segment_dim = 0;

    for (uint8_t d = 0; d < relation->ndim; d++) {
        if (dims[d] >= relation->ndim || (seen >> dims[d] & 1) != 0)
            return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                          "the dims of a permutation are not a permutation");
        seen |= UINT32_C(1) << dims[d];
        order[d] = dims[d];
        shape[d] = relation->shape[dims[d]];
        if (dims[d] == relation->segment_dim)
            segment_dim = d;
    }
    if (relation->segmented)
        return each_segment(universe, relation, segment_dim, permute_segment, order);
    return tocsin_relation_redraw(universe, relation, lay_out_permuted, order, shape,
                                  relation->ndim);
}

typedef struct expansion {
    const int64_t *shape;
    uint8_t ndim, lead;
    uint32_t segment_dim; /* of the new shape */
} expansion;

static bool lay_out_expanded(tocsin_universe *universe, const tocsin_relation *relation,
                             const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const expansion *to = context;
    const tocsin_digit *digits = term->digits;

    (void)universe;
    for (uint8_t d = 0; d < to->ndim; d++) {
        const uint32_t before = draft->total;
        if (d >= to->lead) {
            const uint8_t count = term->digit_count[d - to->lead];
            draft_push_all(draft, digits, count);
            digits += count;
        }
        if (d < to->lead || relation->shape[d - to->lead] != to->shape[d])
            tocsin_draft_push_broadcast(draft, to->shape[d]);
        draft->digit_count[d] = (uint8_t)(draft->total - before);
    }
    return true;
}

static tocsin_relation_id expand_segment(tocsin_universe *universe, tocsin_relation_id segment,
                                         const void *context, int64_t length)
{
    const expansion *to = context;
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    memcpy(shape, to->shape, to->ndim * sizeof shape[0]);
    shape[to->segment_dim] = length;
    return tocsin_relation_expand(universe, segment, shape, to->ndim);
}

tocsin_relation_id tocsin_relation_expand(tocsin_universe *universe, tocsin_relation_id id,
                                          const int64_t *shape, uint8_t ndim)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    expansion to = {.shape = shape, .ndim = ndim};
    bool changes = ndim != relation->ndim;

    if (ndim < relation->ndim || ndim > TOCSIN_PLAN_NDIM_MAX)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "an expansion to %u dims of a value of %u dims", ndim,
                                      relation->ndim);
    to.lead = (uint8_t)(ndim - relation->ndim);
    to.segment_dim = relation->segment_dim + to.lead;
    for (uint8_t d = 0; d < ndim; d++) {
        const int64_t size = d < to.lead ? 1 : relation->shape[d - to.lead];
        if (shape[d] < 1 || (size != 1 && size != shape[d]))
            return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                          "an expansion of a dim of size %lld to size %lld",
                                          (long long)size, (long long)shape[d]);
        changes |= size != shape[d];
    }
    if (!changes)
        return id;
    if (relation->segmented)
        return each_segment(universe, relation, to.segment_dim, expand_segment, &to);
    return tocsin_relation_redraw(universe, relation, lay_out_expanded, &to, shape, ndim);
}

/* ---- cutting digits -------------------------------------------------------------------------- */

bool tocsin_affine_bounds(const tocsin_affine *affine, const int64_t size[TOCSIN_SYMBOL_COUNT],
                          int64_t *low, int64_t *high)
{
    *low = *high = affine->base;
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++) {
        int64_t reach;
        if (affine->weight[s] == 0)
            continue;
        if (size[s] <= 0 || __builtin_mul_overflow(affine->weight[s], size[s] - 1, &reach))
            return false;
        int64_t *bound = reach < 0 ? low : high;
        if (__builtin_add_overflow(*bound, reach, bound))
            return false;
    }
    return true;
}

tocsin_cut_result tocsin_digits_cut(const tocsin_digit *digits, uint32_t digit_count,
                                    tocsin_affine start, int64_t count,
                                    const int64_t size[TOCSIN_SYMBOL_COUNT], tocsin_draft *draft,
                                    int64_t *where)
{
    const bool constant = tocsin_affine_is_constant(&start);
    int64_t block = 1;       /* what one element of the outer digits covers */
    int64_t block_start = 0; /* of the block that they are pinned to, when that is constant */

    for (uint32_t i = 0; i < digit_count; i++)
        block *= digits[i].count;
    for (uint32_t i = 0; i < digit_count; i++) {
        tocsin_digit digit = digits[i];
        const bool broadcast = digit.axis == TOCSIN_DIGIT_BROADCAST;
        const int64_t inner = block / digit.count;
        const tocsin_affine index = tocsin_affine_divide(&start, inner);
        const tocsin_affine rest = tocsin_affine_remainder(&start, inner, &index);
        if (tocsin_range_is_whole(&start, count, block)) {
            draft_push_all(draft, digits + i, digit_count - i);
            return TOCSIN_CUT_DONE;
        }
        if (!broadcast && !tocsin_affine_add(&digit.start, &index, &digit.start))
            return TOCSIN_CUT_REFUSED;
        if (count % inner == 0 && tocsin_range_is_whole(&rest, inner, inner)) {
            digit.count = count / inner;
            if (broadcast)
                tocsin_draft_push_broadcast(draft, digit.count);
            else
                tocsin_draft_push(draft, &digit);
            draft_push_all(draft, digits + i + 1, digit_count - i - 1);
            return TOCSIN_CUT_DONE;
        }
        int64_t low, high;
        block_start += index.base * inner;
        if (!tocsin_affine_bounds(&rest, size, &low, &high))
            return TOCSIN_CUT_REFUSED;
        assert(low >= 0);
        if (high > inner - count) {
            *where = block_start + (rest.base > 0 ? inner : count / inner * inner);
            return constant ? TOCSIN_CUT_IN_TWO : TOCSIN_CUT_REFUSED;
        }
        digit.count = 1;
        if (!broadcast)
            tocsin_draft_push(draft, &digit);
        start = rest;
        block = inner;
    }
    return start.base == 0 && tocsin_affine_is_constant(&start) && count == 1 ? TOCSIN_CUT_DONE
                                                                              : TOCSIN_CUT_REFUSED;
}

/* ---- cutting relations ----------------------------------------------------------------------- */

typedef struct cutting {
    const tocsin_affine *starts;
    const int64_t *counts;
    const int64_t *size;
    uint32_t depth;
    bool in_two; /* refused, but two parts would do: cut `dim` at `where` */
    uint32_t dim;
    int64_t where;
} cutting;

static bool refuse_cut(tocsin_universe *universe)
{
    return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                  "a part that depends on the replica or micro-batch lies across "
                                  "the boundaries of the value's axes") != 0;
}

static bool lay_out_cut(tocsin_universe *universe, const tocsin_relation *relation,
                        const tocsin_term *term, void *context, tocsin_draft *draft)
{
    cutting *cut = context;
    const tocsin_digit *digits = term->digits;

    for (uint8_t d = 0; d < relation->ndim; d++) {
        const uint32_t before = draft->total;
        switch (tocsin_digits_cut(digits, term->digit_count[d], cut->starts[d], cut->counts[d],
                                  cut->size, draft, &cut->where)) {
        case TOCSIN_CUT_DONE:
            break;
        case TOCSIN_CUT_IN_TWO:
            cut->in_two = true;
            cut->dim = d;
            return false;
        case TOCSIN_CUT_REFUSED:
            return refuse_cut(universe);
        }
        digits += term->digit_count[d];
        draft->digit_count[d] = (uint8_t)(draft->total - before);
    }
    return true;
}

static tocsin_relation_id cut_relation(tocsin_universe *universe, tocsin_relation_id id,
                                       cutting *cut);

/* The part [start, start + count) of dim `dim`, all else as in `cut`. */
static tocsin_relation_id cut_with(tocsin_universe *universe, tocsin_relation_id id,
                                   const cutting *cut, uint32_t dim, tocsin_affine start,
                                   int64_t count)
{
    const uint8_t ndim = tocsin_relation_get(universe, id)->ndim;
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    int64_t counts[TOCSIN_PLAN_NDIM_MAX];
    cutting part = {.starts = starts, .counts = counts, .size = cut->size, .depth = cut->depth + 1};

    memcpy(starts, cut->starts, ndim * sizeof starts[0]);
    memcpy(counts, cut->counts, ndim * sizeof counts[0]);
    starts[dim] = start;
    counts[dim] = count;
    return cut_relation(universe, id, &part);
}

static tocsin_relation_id cut_segments(tocsin_universe *universe, const tocsin_relation *relation,
                                       const cutting *cut)
{
    const uint32_t dim = relation->segment_dim;
    const int64_t count = cut->counts[dim];
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);
    tocsin_relation_id made = 0;
    uint32_t piece_count = 0;
    int64_t low, high, offset = 0;

    if (pieces == NULL)
        goto out;
    if (!tocsin_affine_bounds(&cut->starts[dim], cut->size, &low, &high)) {
        refuse_cut(universe);
        goto out;
    }
    for (uint32_t i = 0; i < relation->count; i++) {
        const tocsin_relation_id segment = relation->segments[i];
        const int64_t length = tocsin_relation_get(universe, segment)->shape[dim];
        if (low < offset + length && high + count > offset) {
            tocsin_affine start = cut->starts[dim];
            int64_t part = count;
            start.base -= offset;
            if (low < offset || high + count > offset + length) { /* in several segments */
                if (!tocsin_affine_is_constant(&start)) {
                    refuse_cut(universe);
                    goto out;
                }
                start.base = low < offset ? 0 : low - offset;
                part =
                    (high + count < offset + length ? high + count - offset : length) - start.base;
            }
            pieces[piece_count] = cut_with(universe, segment, cut, dim, start, part);
            if (pieces[piece_count++] == 0)
                goto out;
        }
        offset += length;
    }
    assert(piece_count > 0);
    made = piece_count == 1 ? pieces[0]
                            : tocsin_relation_of_segments(universe, pieces, piece_count, dim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

static tocsin_relation_id cut_relation(tocsin_universe *universe, tocsin_relation_id id,
                                       cutting *cut)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    bool whole = true;

    for (uint8_t d = 0; d < relation->ndim; d++)
        whole &= tocsin_range_is_whole(&cut->starts[d], cut->counts[d], relation->shape[d]);
    if (whole)
        return id;
    if (relation->segmented)
        return cut_segments(universe, relation, cut);
    const tocsin_relation_id made =
        tocsin_relation_redraw(universe, relation, lay_out_cut, cut, cut->counts, relation->ndim);
    if (made != 0 || !cut->in_two)
        return made;
    if (cut->depth == PIECES_DEPTH_MAX)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "a value is cut into too many parts");
    const uint32_t dim = cut->dim;
    const tocsin_affine start = cut->starts[dim];
    const int64_t first = cut->where - start.base;
    assert(first > 0 && first < cut->counts[dim]);
    const tocsin_relation_id parts[2] = {
        cut_with(universe, id, cut, dim, start, first),
        cut_with(universe, id, cut, dim, tocsin_affine_of(cut->where), cut->counts[dim] - first)};
    if (parts[0] == 0 || parts[1] == 0)
        return 0;
    return tocsin_relation_of_segments(universe, parts, 2, dim);
}

/* Offsets are kept where sums and products of a few of them cannot overflow. */
static bool is_moderate(const tocsin_affine *start)
{
    const int64_t limit = INT64_C(1) << 60;
    return start->base < limit && start->weight[0] < limit && start->weight[1] < limit &&
           start->base > -limit && start->weight[0] > -limit && start->weight[1] > -limit;
}

tocsin_relation_id tocsin_relation_cut(tocsin_universe *universe, tocsin_relation_id id,
                                       const tocsin_affine *starts, const int64_t *counts,
                                       const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    cutting cut = {.starts = starts, .counts = counts, .size = size};

    for (uint8_t d = 0; d < relation->ndim; d++) {
        int64_t low = starts[d].base, high = low;
        if (!is_moderate(&starts[d]))
            return tocsin_universe_refuse_overflow(universe);
        if (!tocsin_affine_bounds(&starts[d], size, &low, &high))
            low = high = starts[d].base; /* of the symbols' first values, at least */
        if (counts[d] < 1 || counts[d] > relation->shape[d] || low < 0 ||
            high > relation->shape[d] - counts[d])
            return tocsin_universe_refuse(
                universe, TOCSIN_CAUSE_WRONG_SHARD,
                "the part [%lld, %lld + %lld) is not within dim %u of size %lld", (long long)low,
                (long long)high, (long long)counts[d], d, (long long)relation->shape[d]);
    }
    return cut_relation(universe, id, &cut);
}

static tocsin_relation_id cut_dim(tocsin_universe *universe, tocsin_relation_id id, uint32_t dim,
                                  tocsin_affine start, int64_t count)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX] = {{0}};
    int64_t counts[TOCSIN_PLAN_NDIM_MAX];

    memcpy(counts, relation->shape, relation->ndim * sizeof counts[0]);
    starts[dim] = start;
    counts[dim] = count;
    return tocsin_relation_cut(universe, id, starts, counts, universe->symbol_size);
}

static bool dim_in_range(tocsin_universe *universe, const tocsin_relation *relation, uint32_t dim)
{
    return dim < relation->ndim ||
           tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                  "dim %u of a value that has %u dims", dim, relation->ndim) != 0;
}

/* ---- slices with a step ---------------------------------------------------------------------- */

/* Every `step`-th element of a dim, beginning with `first` < step. */
typedef struct stride_cut {
    uint32_t dim;
    int64_t first, step;
} stride_cut;

static bool refuse_step(tocsin_universe *universe, int64_t step)
{
    return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                  "a step of %lld that does not divide the axis it runs along",
                                  (long long)step) != 0;
}

/* The innermost digit i becomes (i / step, pinned i % step). */
static bool push_strided(tocsin_universe *universe, const tocsin_digit *digits, uint32_t count,
                         const stride_cut *by, tocsin_draft *draft)
{
    if (count == 0)
        return true;
    tocsin_digit digit = digits[count - 1];
    const int64_t parts = (digit.count - by->first + by->step - 1) / by->step;

    draft_push_all(draft, digits, count - 1);
    if (count > 1 && digit.count % by->step != 0)
        return refuse_step(universe, by->step);
    if (digit.axis == TOCSIN_DIGIT_BROADCAST) {
        tocsin_draft_push_broadcast(draft, parts);
        return true;
    }
    digit.start.base += by->first;
    const tocsin_affine outer = tocsin_affine_divide(&digit.start, by->step);
    const tocsin_affine inner = tocsin_affine_remainder(&digit.start, by->step, &outer);
    if (digit.extent % by->step != 0 || !tocsin_affine_is_constant(&inner))
        return refuse_step(universe, by->step);
    const tocsin_digit pair[2] = {
        {digit.axis, 0, digit.stride * by->step, digit.extent / by->step, outer, parts},
        {digit.axis, 0, digit.stride, by->step, inner, 1}};
    draft_push_all(draft, pair, 2);
    return true;
}

static bool lay_out_strided(tocsin_universe *universe, const tocsin_relation *relation,
                            const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const stride_cut *by = context;
    const tocsin_digit *digits = term->digits;

    for (uint8_t d = 0; d < relation->ndim; d++) {
        const uint8_t count = term->digit_count[d];
        const uint32_t before = draft->total;
        if (d != by->dim)
            draft_push_all(draft, digits, count);
        else if (!push_strided(universe, digits, count, by, draft))
            return false;
        digits += count;
        draft->digit_count[d] = (uint8_t)(draft->total - before);
    }
    return true;
}

static tocsin_relation_id take_every(tocsin_universe *universe, tocsin_relation_id id,
                                     stride_cut by);

static tocsin_relation_id take_every_of_segments(tocsin_universe *universe,
                                                 const tocsin_relation *relation, stride_cut by)
{
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);
    tocsin_relation_id made = 0;
    uint32_t piece_count = 0;

    for (uint32_t i = 0; pieces != NULL && i < relation->count; i++) {
        const int64_t length =
            tocsin_relation_get(universe, relation->segments[i])->shape[relation->segment_dim];
        const bool along = by.dim == relation->segment_dim;
        if (!along || by.first < length) {
            pieces[piece_count] = take_every(universe, relation->segments[i], by);
            if (pieces[piece_count++] == 0)
                goto out;
        }
        if (along) /* where the next segment's first element is */
            by.first = by.first < length ? (by.step - (length - by.first) % by.step) % by.step
                                         : by.first - length;
    }
    if (pieces != NULL)
        made = tocsin_relation_of_segments(universe, pieces, piece_count, relation->segment_dim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

static tocsin_relation_id take_every(tocsin_universe *universe, tocsin_relation_id id,
                                     stride_cut by)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];

    assert(by.first < relation->shape[by.dim]);
    if (relation->segmented)
        return take_every_of_segments(universe, relation, by);
    memcpy(shape, relation->shape, relation->ndim * sizeof shape[0]);
    shape[by.dim] = (shape[by.dim] - by.first + by.step - 1) / by.step;
    return tocsin_relation_redraw(universe, relation, lay_out_strided, &by, shape, relation->ndim);
}

tocsin_relation_id tocsin_relation_slice(tocsin_universe *universe, tocsin_relation_id id,
                                         uint32_t dim, tocsin_affine start, int64_t count,
                                         int64_t step)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);

    if (!dim_in_range(universe, relation, dim))
        return 0;
    if (step == 1 || count == 1)
        return cut_dim(universe, id, dim, start, count);
    int64_t span;
    if (step < 1 || count < 1 || __builtin_mul_overflow(count - 1, step, &span) ||
        span >= relation->shape[dim] || start.base < 0 || start.base >= relation->shape[dim] - span)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                      "a slice with step %lld is not within dim %u of size %lld",
                                      (long long)step, dim, (long long)relation->shape[dim]);
    if (!tocsin_affine_is_constant(&start))
        return refuse_cut(universe);
    const tocsin_relation_id every = take_every(
        universe, id, (stride_cut){.dim = dim, .first = start.base % step, .step = step});
    return every == 0 ? 0
                      : cut_dim(universe, every, dim, tocsin_affine_of(start.base / step), count);
}

/* ---- select, chunk --------------------------------------------------------------------------- */

typedef struct selection {
    uint32_t dim;
    int64_t index;
    uint32_t segment_dim; /* of the result */
} selection;

static bool lay_out_selected(tocsin_universe *universe, const tocsin_relation *relation,
                             const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const selection *at = context;
    const tocsin_digit *digits = term->digits, *pinned = NULL;
    uint8_t next = 0;
    int64_t where;

    for (uint8_t d = 0; d < relation->ndim; d++) {
        if (d == at->dim) {
            pinned = digits;
        } else {
            draft_push_all(draft, digits, term->digit_count[d]);
            draft->digit_count[next++] = term->digit_count[d];
        }
        digits += term->digit_count[d];
    }
    const uint32_t total = draft->total;
    const tocsin_cut_result cut =
        tocsin_digits_cut(pinned, term->digit_count[at->dim], tocsin_affine_of(at->index), 1,
                          universe->symbol_size, draft, &where);
    draft->pinned = draft->total - total;
    draft->total = total;
    assert(cut != TOCSIN_CUT_IN_TWO);
    return cut == TOCSIN_CUT_DONE || refuse_cut(universe);
}

static tocsin_relation_id select_of_segment(tocsin_universe *universe, tocsin_relation_id segment,
                                            const void *context, int64_t length)
{
    const selection *at = context;
    (void)length;
    return tocsin_relation_select(universe, segment, at->dim, at->index);
}

static tocsin_relation_id select_segment(tocsin_universe *universe, const tocsin_relation *relation,
                                         uint32_t dim, int64_t index)
{
    for (uint32_t i = 0; i < relation->count; i++) {
        const int64_t length = tocsin_relation_get(universe, relation->segments[i])->shape[dim];
        if (index < length)
            return tocsin_relation_select(universe, relation->segments[i], dim, index);
        index -= length;
    }
    assert(false);
    return 0;
}

tocsin_relation_id tocsin_relation_select(tocsin_universe *universe, tocsin_relation_id id,
                                          uint32_t dim, int64_t index)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    uint8_t ndim = 0;

    if (!dim_in_range(universe, relation, dim))
        return 0;
    if (index < 0 || index >= relation->shape[dim])
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                      "index %lld is not within dim %u of size %lld",
                                      (long long)index, dim, (long long)relation->shape[dim]);
    if (relation->segmented && dim == relation->segment_dim)
        return select_segment(universe, relation, dim, index);
    selection at = {.dim = dim,
                    .index = index,
                    .segment_dim = relation->segment_dim - (relation->segment_dim > dim)};
    if (relation->segmented)
        return each_segment(universe, relation, at.segment_dim, select_of_segment, &at);
    for (uint8_t d = 0; d < relation->ndim; d++)
        if (d != dim)
            shape[ndim++] = relation->shape[d];
    return tocsin_relation_redraw(universe, relation, lay_out_selected, &at, shape, ndim);
}

tocsin_relation_id tocsin_relation_chunk_at(tocsin_universe *universe, tocsin_relation_id id,
                                            uint32_t dim, uint32_t parts, tocsin_affine position)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    tocsin_affine start;

    if (!dim_in_range(universe, relation, dim))
        return 0;
    if (parts == 0 || relation->shape[dim] % parts != 0)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                      "dim %u of size %lld in %u equal parts", dim,
                                      (long long)relation->shape[dim], parts);
    const int64_t count = relation->shape[dim] / parts;
    if (!tocsin_affine_scale(&position, count, &start))
        return tocsin_universe_refuse_overflow(universe);
    return cut_dim(universe, id, dim, start, count);
}
