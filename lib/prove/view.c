/* view.c - row-major reshape of relations.
 *
 * A view keeps the order of all elements, so it keeps the order of all digits: the digits of all
 * dims, outermost first, are one sequence, and a view moves the boundaries of dims in it, splitting
 * a digit where a new boundary falls inside. Dims before and after that multiply to the same size
 * form a *block*; blocks are independent.
 *
 * Local sizes do not say everything: a digit of count 1 (the one head, row or expert that a rank
 * has) takes no room, and where it belongs is a matter of choice, right in any case and good when
 * the logical model cuts there too. A logical view of the same digits is followed (view_pattern.c).
 * Without one, such a digit stays in its dim while that dim has a counterpart; a dim of size 1 that
 * vanishes leaves its digits to the next dim, and a new one takes digits of count 1 that stand at
 * its place.
 *
 * A segmented value is viewed segment by segment where they are whole numbers of the new dim's
 * elements; else row by row (flat buffers of parameters, gathered as rows of a matrix), which makes
 * up to rows x segments pieces.
 *
 * Cost: linear in digits and dims, and one interning; of segmented values, per piece.
 */
#include "prove/layout.h"

#include <assert.h>

enum { NDIM_MAX = TOCSIN_PLAN_NDIM_MAX };

/* One group of old dims [old_first, old_end) and new dims [new_first, new_end): either all of size
 * 1 (a gap; one side may be empty) or a block, which begins and ends with sizes > 1. */
typedef struct view_block {
    uint8_t old_first, old_end, new_first, new_end;
    bool gap;
} view_block;

typedef struct viewing {
    const int64_t *shape;
    bool ambiguous; /* some dim has size 1 */
    uint8_t ndim;
    uint8_t block_count;
    view_block blocks[2 * NDIM_MAX + 2];
} viewing;

static tocsin_relation_id refuse_shape(tocsin_universe *universe, const int64_t *from,
                                       uint8_t from_ndim, const int64_t *to, uint8_t to_ndim,
                                       const char *why)
{
    char text[2][96];
    for (int side = 0; side < 2; side++) {
        const int64_t *shape = side == 0 ? from : to;
        const uint8_t ndim = side == 0 ? from_ndim : to_ndim;
        size_t used = 0;
        text[side][0] = '\0';
        for (uint8_t d = 0; d < ndim && used < sizeof text[0] - 24; d++)
            used += (size_t)snprintf(text[side] + used, sizeof text[0] - used, "%s%lld",
                                     d > 0 ? " " : "", (long long)shape[d]);
    }
    return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT, "a view of [%s] as [%s] %s",
                                  text[0], text[1], why);
}

/* Match the dims. false: the sizes do not multiply to the same. */
static bool plan_view(const int64_t *from, uint8_t from_ndim, viewing *view)
{
    const int64_t *to = view->shape;
    uint8_t i = 0, j = 0;

    view->block_count = 0;
    for (;;) {
        view_block *gap = &view->blocks[view->block_count++];
        *gap = (view_block){.old_first = i, .new_first = j, .gap = true};
        while (i < from_ndim && from[i] == 1)
            i++;
        while (j < view->ndim && to[j] == 1)
            j++;
        gap->old_end = i;
        gap->new_end = j;
        if (i == from_ndim || j == view->ndim)
            return i == from_ndim && j == view->ndim;
        view_block *block = &view->blocks[view->block_count++];
        *block = (view_block){.old_first = i, .new_first = j};
        int64_t old_size = from[i++], new_size = to[j++];
        while (old_size != new_size) {
            const bool more_old = old_size < new_size;
            if (more_old ? i == from_ndim : j == view->ndim)
                return false;
            if (more_old ? __builtin_mul_overflow(old_size, from[i++], &old_size)
                         : __builtin_mul_overflow(new_size, to[j++], &new_size))
                return false;
        }
        block->old_end = i;
        block->new_end = j;
    }
}

/* ---- one term -------------------------------------------------------------------------------- */

/* The sequence of digits and the new dim of each; built from the innermost digit, back to front. */
typedef struct sequence {
    uint32_t count;
    tocsin_digit digits[TOCSIN_DRAFT_DIGITS_MAX]; /* innermost first */
    uint8_t dim[TOCSIN_DRAFT_DIGITS_MAX];
    bool full;
} sequence;

static void push(sequence *to, const tocsin_digit *digit, uint8_t dim)
{
    if (to->count == TOCSIN_DRAFT_DIGITS_MAX) {
        to->full = true;
        return;
    }
    to->dim[to->count] = dim;
    to->digits[to->count++] = *digit;
}

bool tocsin_digit_split(const tocsin_digit *digit, int64_t n, tocsin_digit *outer,
                        tocsin_digit *inner)
{
    *outer = *inner = *digit;
    if (digit->axis == TOCSIN_DIGIT_BROADCAST) {
        inner->count = inner->extent = n;
        outer->count = outer->extent = digit->count / n;
        return digit->count % n == 0;
    }
    if (digit->extent % n != 0 || digit->count % n != 0 ||
        !tocsin_affine_divisible(&digit->start, n))
        return false;
    outer->stride = digit->stride * n; /* at most stride * extent, the size of the axis */
    outer->extent = digit->extent / n;
    outer->start = tocsin_affine_divide(&digit->start, n);
    outer->count = digit->count / n;
    inner->extent = inner->count = n;
    inner->start = tocsin_affine_of(0);
    return true;
}

/* Distribute the digits of a block, given outermost first, to its new dims. */
static bool regroup(tocsin_universe *universe, const tocsin_relation *relation, const viewing *view,
                    const view_block *block, const tocsin_digit *digits, uint32_t count,
                    sequence *to)
{
    tocsin_digit rest = {0}; /* what a split left of the digit that is next */
    bool split = false;

    for (uint8_t d = block->new_end; d-- > block->new_first;) {
        int64_t need = view->shape[d];
        while (count > 0 || split) {
            const tocsin_digit digit = split ? rest : digits[count - 1];
            if (need == 1 && digit.count > 1 && d > block->new_first)
                break;
            if (digit.count <= need && need % digit.count == 0) {
                push(to, &digit, d);
                need /= digit.count;
                count -= !split;
                split = false;
                continue;
            }
            tocsin_digit inner;
            if (need == 1 || !tocsin_digit_split(&digit, need, &rest, &inner)) {
                refuse_shape(universe, relation->shape, relation->ndim, view->shape, view->ndim,
                             "cuts across the parts that the value consists of");
                return false;
            }
            push(to, &inner, d);
            count -= !split;
            split = true;
            need = 1;
        }
        assert(need == 1);
    }
    return true;
}

/* Digits of dims of size 1 go to the gap's new dims in order, what is left to the next dim (the one
 * key head of a rank, repeated for its query heads, joins these and not the batch), or the last. */
static void fill_gap(const viewing *view, const view_block *gap, const tocsin_term *term,
                     const tocsin_digit *end, sequence *to)
{
    const uint8_t fresh = (uint8_t)(gap->new_end - gap->new_first);
    const uint8_t next = gap->new_end < view->ndim ? gap->new_end : (uint8_t)(view->ndim - 1);

    for (uint8_t d = gap->old_end; d-- > gap->old_first;) {
        const uint8_t place = (uint8_t)(d - gap->old_first);
        const uint8_t dim = place < fresh ? (uint8_t)(gap->new_first + place) : next;
        for (uint8_t k = term->digit_count[d]; k-- > 0;)
            push(to, --end, dim);
    }
}

/* ---- new dims of size 1 ---------------------------------------------------------------------- */

static bool is_single(const tocsin_digit *digit)
{
    return digit->count == 1 && digit->axis != TOCSIN_DIGIT_BROADCAST;
}

/* Hand the digits [first_digit, end_digit), innermost first, to the dims [first, end): one each,
 * from the outermost, what is left to the last. */
static void hand_over(sequence *in, uint32_t first_digit, uint32_t end_digit, uint8_t first,
                      uint8_t end)
{
    uint8_t dim = first;
    for (uint32_t i = end_digit; i-- > first_digit;) {
        in->dim[i] = dim;
        if (dim + 1 < end)
            dim++;
    }
}

/* The new dims [first, end) have size 1 and no old counterpart: give them what stands at their
 * place. */
static void fill_fresh(const viewing *view, sequence *in, uint8_t first, uint8_t end)
{
    uint32_t at = 0; /* digits of the dims from `end` on */

    while (at < in->count && in->dim[at] >= end)
        at++;
    if (at < in->count && in->dim[at] >= first)
        return; /* something has found its way there already */
    if (first > 0 && view->shape[first - 1] > 1) {
        uint32_t trailing = at; /* digits of count 1 at the end of the dim before */
        while (in->dim[trailing] == first - 1 && is_single(&in->digits[trailing]))
            trailing++; /* stops at one with a count > 1, which the dim has */
        if (trailing > at) {
            hand_over(in, at, trailing, first, end);
            return;
        }
    }
    if (at == 0 || in->dim[at - 1] != end)
        return;
    uint32_t leading = at; /* digits of count 1 at the front of the dim behind */
    while (leading > 0 && in->dim[leading - 1] == end && is_single(&in->digits[leading - 1]))
        leading--;
    hand_over(in, leading, at, first, end);
}

static void fill_all_fresh(const viewing *view, sequence *in)
{
    for (uint8_t b = view->block_count; b-- > 0;) {
        const view_block *block = &view->blocks[b];
        uint8_t end = block->new_end;
        if (block->gap) {
            const uint8_t known = (uint8_t)(block->old_end - block->old_first);
            if (end - block->new_first > known)
                fill_fresh(view, in, (uint8_t)(block->new_first + known), end);
            continue;
        }
        while (end > block->new_first) { /* runs of size 1 within a block */
            uint8_t first = end;
            while (view->shape[first - 1] == 1)
                first--;
            if (first < end)
                fill_fresh(view, in, first, end);
            end = (uint8_t)(first - 1);
        }
    }
}

static bool lay_out_view(tocsin_universe *universe, const tocsin_relation *relation,
                         const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const viewing *view = context;
    sequence made;
    uint32_t end = term->digit_total;

    if (view->ambiguous && !universe->logical &&
        tocsin_view_follow(universe, relation, term, view->shape, view->ndim, draft))
        return true;
    draft->total = 0;
    made.count = 0;
    made.full = false;
    for (uint8_t b = view->block_count; b-- > 0;) {
        const view_block *block = &view->blocks[b];
        uint32_t count = 0;
        for (uint8_t d = block->old_first; d < block->old_end; d++)
            count += term->digit_count[d];
        if (block->gap && view->ndim == 0)
            draft->pinned += count;
        else if (block->gap)
            fill_gap(view, block, term, term->digits + end, &made);
        else if (!regroup(universe, relation, view, block, term->digits + end - count, count,
                          &made))
            return false;
        end -= count;
    }
    assert(end == 0);
    fill_all_fresh(view, &made);
    draft->full = made.full;
    memset(draft->digit_count, 0, sizeof draft->digit_count);
    for (uint32_t i = made.count; i-- > 0;) {
        tocsin_draft_push(draft, &made.digits[i]);
        draft->digit_count[made.dim[i]]++;
    }
    if (draft->pinned > 0)
        memcpy(draft->digits, term->digits, draft->pinned * sizeof draft->digits[0]);
    return !universe->logical || tocsin_view_learn(universe, relation, term, draft, view->ndim);
}

/* ---- segments -------------------------------------------------------------------------------- */

static int64_t product(const int64_t *shape, uint32_t first, uint32_t end)
{
    int64_t made = 1;
    for (uint32_t d = first; d < end; d++)
        made *= shape[d]; /* of a block, which has a size */
    return made;
}

/* Is every segment, which begins its block, a whole number of the new dim's elements? */
static bool segments_fit(const tocsin_universe *universe, const tocsin_relation *relation,
                         int64_t old_inner, int64_t new_inner)
{
    for (uint32_t i = 0; i < relation->count; i++) {
        const tocsin_relation *segment = tocsin_relation_get(universe, relation->segments[i]);
        if (segment->shape[relation->segment_dim] * old_inner % new_inner != 0)
            return false;
    }
    return true;
}

/* Each on its own: they fit. */
static tocsin_relation_id view_each(tocsin_universe *universe, const tocsin_relation *relation,
                                    const viewing *view, const view_block *block)
{
    const uint32_t dim = relation->segment_dim;
    const int64_t old_inner = product(relation->shape, dim + 1, block->old_end);
    const int64_t new_inner = product(view->shape, block->new_first + 1U, block->new_end);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);
    int64_t shape[NDIM_MAX];
    tocsin_relation_id made = 0;

    if (pieces == NULL)
        goto out;
    memcpy(shape, view->shape, view->ndim * sizeof shape[0]);
    for (uint32_t i = 0; i < relation->count; i++) {
        shape[block->new_first] = tocsin_relation_get(universe, relation->segments[i])->shape[dim] *
                                  old_inner / new_inner;
        pieces[i] = tocsin_relation_view(universe, relation->segments[i], shape, view->ndim);
        if (pieces[i] == 0)
            goto out;
    }
    made = tocsin_relation_of_segments(universe, pieces, relation->count, block->new_first);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

/* The dims of the block, whose segmented dim is not the first, as one: the segments of the first
 * row, those of the second, and so on. */
static tocsin_relation_id flatten_rows(tocsin_universe *universe, tocsin_relation_id id,
                                       const view_block *block, const int64_t *flat, uint8_t ndim)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const int64_t row_count = product(relation->shape, block->old_first, relation->segment_dim);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *rows, made = 0;
    int64_t shape[NDIM_MAX];

    if (row_count > TOCSIN_SEGMENTS_MAX / (int64_t)relation->count)
        return refuse_shape(universe, relation->shape, relation->ndim, flat, ndim,
                            "makes too many pieces of the value");
    rows = TOCSIN_SCRATCH(universe, tocsin_relation_id, row_count);
    memcpy(shape, flat, ndim * sizeof shape[0]);
    shape[block->old_first] /= row_count;
    for (int64_t i = 0; rows != NULL && i < row_count; i++) {
        int64_t rest = i;
        rows[i] = id;
        for (uint32_t d = relation->segment_dim; d-- > block->old_first && rows[i] != 0;) {
            rows[i] = tocsin_relation_slice(universe, rows[i], d,
                                            tocsin_affine_of(rest % relation->shape[d]), 1, 1);
            rest /= relation->shape[d];
        }
        if (rows[i] != 0)
            rows[i] = tocsin_relation_view(universe, rows[i], shape, ndim);
        if (rows[i] == 0)
            goto out;
    }
    if (rows != NULL)
        made = tocsin_relation_of_segments(universe, rows, (uint32_t)row_count, block->old_first);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

/* Where a walk along the segments stands. */
typedef struct segment_walk {
    uint32_t index;
    int64_t offset; /* in this one */
} segment_walk;

/* The next `length` elements along the segmented dim. */
static tocsin_relation_id next_row(tocsin_universe *universe, const tocsin_relation *relation,
                                   segment_walk *at, int64_t length)
{
    const uint32_t dim = relation->segment_dim;
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *parts =
        TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count - at->index);
    tocsin_relation_id made = 0;
    uint32_t count = 0;

    while (parts != NULL && length > 0) {
        const tocsin_relation_id segment = relation->segments[at->index];
        const int64_t size = tocsin_relation_get(universe, segment)->shape[dim];
        const int64_t left = size - at->offset, part = left < length ? left : length;
        parts[count] = part == size ? segment
                                    : tocsin_relation_slice(universe, segment, dim,
                                                            tocsin_affine_of(at->offset), part, 1);
        if (parts[count++] == 0)
            goto out;
        length -= part;
        at->offset = part == left ? 0 : at->offset + part;
        at->index += part == left;
    }
    if (parts != NULL)
        made = tocsin_relation_of_segments(universe, parts, count, dim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

/* The segmented dim becomes rows that the segments do not respect: cut it there and stack the rows.
 */
static tocsin_relation_id split_rows(tocsin_universe *universe, const tocsin_relation *relation,
                                     const viewing *view, const view_block *block)
{
    const int64_t row_count = view->shape[block->new_first];
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    segment_walk at = {0};
    tocsin_relation_id *rows, made = 0;
    int64_t shape[NDIM_MAX];

    if (row_count > TOCSIN_SEGMENTS_MAX)
        return refuse_shape(universe, relation->shape, relation->ndim, view->shape, view->ndim,
                            "cuts across the pieces that the value consists of");
    rows = TOCSIN_SCRATCH(universe, tocsin_relation_id, row_count);
    memcpy(shape, view->shape, view->ndim * sizeof shape[0]);
    shape[block->new_first] = 1;
    for (int64_t i = 0; rows != NULL && i < row_count; i++) {
        rows[i] =
            next_row(universe, relation, &at, relation->shape[relation->segment_dim] / row_count);
        if (rows[i] != 0)
            rows[i] = tocsin_relation_view(universe, rows[i], shape, view->ndim);
        if (rows[i] == 0)
            goto out;
    }
    if (rows != NULL)
        made = tocsin_relation_cat(universe, rows, (uint32_t)row_count, block->new_first);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

static tocsin_relation_id view_segments(tocsin_universe *universe, tocsin_relation_id id,
                                        const viewing *view)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const uint32_t dim = relation->segment_dim;
    const view_block *block = view->blocks;
    int64_t flat[NDIM_MAX];

    while (block->gap || dim >= block->old_end)
        block++;
    const int64_t old_inner = product(relation->shape, dim + 1, block->old_end);
    const int64_t new_inner = product(view->shape, block->new_first + 1U, block->new_end);
    if (block->old_first == dim && segments_fit(universe, relation, old_inner, new_inner))
        return view_each(universe, relation, view, block);
    if (block->old_end - block->old_first == 1)
        return split_rows(universe, relation, view, block);
    const uint8_t merged = (uint8_t)(block->old_end - block->old_first - 1);
    const uint8_t ndim = (uint8_t)(relation->ndim - merged);
    for (uint8_t d = 0; d < ndim; d++)
        flat[d] = relation->shape[d <= block->old_first ? d : d + merged];
    flat[block->old_first] = product(relation->shape, block->old_first, block->old_end);
    id = block->old_first == dim ? tocsin_relation_view(universe, id, flat, ndim)
                                 : flatten_rows(universe, id, block, flat, ndim);
    return id == 0 ? 0 : tocsin_relation_view(universe, id, view->shape, view->ndim);
}

tocsin_relation_id tocsin_relation_view(tocsin_universe *universe, tocsin_relation_id id,
                                        const int64_t *shape, uint8_t ndim)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    viewing view = {.shape = shape, .ndim = ndim};
    bool valid = ndim <= NDIM_MAX;

    for (uint8_t d = 0; valid && d < ndim; d++) {
        valid = shape[d] >= 1;
        view.ambiguous |= shape[d] == 1;
    }
    for (uint8_t d = 0; valid && d < relation->ndim; d++) {
        valid = relation->shape[d] >= 1;
        view.ambiguous |= relation->shape[d] == 1;
    }
    if (valid && ndim == relation->ndim && !view.ambiguous &&
        (ndim == 0 || memcmp(shape, relation->shape, ndim * sizeof shape[0]) == 0))
        return id;
    if (!valid || !plan_view(relation->shape, relation->ndim, &view))
        return refuse_shape(universe, relation->shape, relation->ndim, shape, ndim,
                            "changes the number of elements");
    if (relation->segmented)
        return view_segments(universe, id, &view);
    return tocsin_relation_redraw(universe, relation, lay_out_view, &view, shape, ndim);
}
