/* join.c - concatenation: of several relations, and of all values of a symbol.
 *
 * Joining the values of a symbol is the counterpart of a range that depends on it: where the range
 * moves by its own length with each value (weight = count), all values together are one range that
 * is `size` times as long. What does not depend on the symbol is repeated. Anything else is no
 * concatenation of shards in order, and is refused with the reason.
 *
 * A gather may also write each member's shard, itself flat, as one row of a matrix: then the digit
 * in which the rows differ is split into the number of the shard and the place in it, and the
 * former, of count 1, moves to the dim of rows.
 *
 * Cost: linear in the digits, and one interning.
 */
#include "prove/layout.h"

#include <assert.h>

enum { UNFOLDED_MAX = 4096 /* pieces of a segmented relation joined value by value */ };

static const char *const symbol_names[TOCSIN_SYMBOL_COUNT] = {"replicas", "micro-batches"};

static bool depends(const tocsin_affine *start, int symbol)
{
    return start->weight[symbol] != 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct row_dim {
    uint32_t dim;          /* of size 1 */
    const uint64_t *moves; /* per term: which digits move to it, one bit each */
} row_dim;

static bool lay_out_row(tocsin_universe *universe, const tocsin_relation *relation,
                        const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const row_dim *row = context;
    const uint64_t moves = row->moves[term - relation->terms];
    tocsin_draft kept = {.total = 0};
    tocsin_digit shard, place;
    uint32_t index = 0, next = 0;

    for (uint8_t d = 0; d < relation->ndim; d++) {
        for (uint8_t i = 0; i < term->digit_count[d]; i++, index++) {
            const tocsin_digit *digit = &term->digits[index];
            if (d == row->dim) {
                tocsin_draft_push(draft, digit);
            } else if ((moves >> index & 1) == 0) {
                tocsin_draft_push(&kept, digit);
                kept.digit_count[d]++;
            } else if (tocsin_digit_split(digit, digit->count, &shard, &place)) {
                tocsin_draft_push(draft, &shard);
                tocsin_draft_push(&kept, &place);
                kept.digit_count[d]++;
            } else {
                return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                              "rows of unequal shards") != 0;
            }
        }
    }
    const tocsin_draft row_digits = *draft;
    draft->total = 0;
    for (uint8_t d = 0; d < relation->ndim; d++) {
        const tocsin_draft *from = d == row->dim ? &row_digits : &kept;
        const uint32_t first = d == row->dim ? 0 : next;
        const uint32_t end = d == row->dim ? row_digits.total : next + kept.digit_count[d];
        for (uint32_t i = first; i < end; i++)
            tocsin_draft_push(draft, &from->digits[i]);
        next += kept.digit_count[d];
        draft->digit_count[d] = (uint8_t)(end - first);
    }
    draft->full |= kept.full || row_digits.full;
    return true;
}

/* Do the terms differ in the starts of digits alone? Those digits are added to *moves. */
static bool differ_in_starts(const tocsin_term *a, const tocsin_term *b, uint8_t ndim,
                             uint64_t *moves)
{
    if (a->atom != b->atom || a->factor != b->factor || !tocsin_term_same_box(a, b) ||
        a->pinned_count != b->pinned_count || a->digit_total != b->digit_total ||
        memcmp(a->digit_count, b->digit_count, ndim) != 0)
        return false;
    for (uint32_t i = 0; i < a->digit_total + a->pinned_count; i++) {
        tocsin_digit digit = b->digits[i];
        digit.start = a->digits[i].start;
        if (memcmp(&digit, &a->digits[i], sizeof digit) != 0)
            return false;
        if (memcmp(&b->digits[i].start, &digit.start, sizeof digit.start) == 0)
            continue;
        if (i >= a->digit_total || i >= 64)
            return false;
        *moves |= UINT64_C(1) << i;
    }
    return true;
}

/* Relations of size 1 along `dim` that do not continue one another as they are, as rows of one
 * value; 0: they are none. */
static tocsin_relation_id stack_rows(tocsin_universe *universe, const tocsin_relation_id *relations,
                                     uint32_t count, uint32_t dim)
{
    const tocsin_relation *first = tocsin_relation_get(universe, relations[0]);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *rows = TOCSIN_SCRATCH(universe, tocsin_relation_id, count), made = 0;
    uint64_t *moves = TOCSIN_SCRATCH(universe, uint64_t, first->count);
    row_dim row = {.dim = dim, .moves = moves};

    if (rows == NULL || moves == NULL || first->segmented)
        goto out;
    memset(moves, 0, first->count * sizeof moves[0]);
    for (uint32_t i = 0; i < count; i++) {
        const tocsin_relation *other = tocsin_relation_get(universe, relations[i]);
        if (other->segmented || other->shape[dim] != 1 || other->count != first->count)
            goto out;
        for (uint32_t k = 0; k < first->count; k++)
            if (!differ_in_starts(&first->terms[k], &other->terms[k], first->ndim, &moves[k]))
                goto out;
    }
    for (uint32_t i = 0; i < count; i++) {
        const tocsin_relation *other = tocsin_relation_get(universe, relations[i]);
        rows[i] =
            tocsin_relation_redraw(universe, other, lay_out_row, &row, other->shape, other->ndim);
        if (rows[i] == 0)
            goto out;
    }
    made = tocsin_relation_of_segments(universe, rows, count, dim);
    if (made != 0 && tocsin_relation_get(universe, made)->segmented)
        made = 0; /* they are not in order */
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

/* The value at one symbol as the row that it is among all of them; as it is if it is none. */
static tocsin_relation_id row_over(tocsin_universe *universe, tocsin_relation_id id, uint32_t dim,
                                   int symbol)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    uint64_t *moves, any = 0;
    tocsin_relation_id made = 0;

    if (relation->shape[dim] != 1 || (relation->symbols >> symbol & 1) == 0 ||
        (moves = TOCSIN_SCRATCH(universe, uint64_t, relation->count)) == NULL)
        return id;
    for (uint32_t k = 0; k < relation->count; k++) {
        const tocsin_term *term = &relation->terms[k];
        moves[k] = 0;
        for (uint32_t i = 0; i < term->digit_total && i < 64; i++)
            if (depends(&term->digits[i].start, symbol))
                moves[k] |= UINT64_C(1) << i;
        any |= moves[k];
    }
    row_dim row = {.dim = dim, .moves = moves};
    if (any != 0)
        made = tocsin_relation_redraw(universe, relation, lay_out_row, &row, relation->shape,
                                      relation->ndim);
    tocsin_scratch_reset(universe, mark);
    return made != 0 ? made : id;
}

/* ---- all values of a symbol ------------------------------------------------------------------ */

typedef struct joining {
    uint32_t dim;
    int symbol;
    int64_t size;
} joining;

static bool refuse(tocsin_universe *universe, int cause, const joining *join, const char *why)
{
    return tocsin_universe_refuse(universe, cause, "the shards of all %s joined along dim %u: %s",
                                  symbol_names[join->symbol], join->dim, why) != 0;
}

/* The digits of the joined dim. */
static bool join_dim(tocsin_universe *universe, const tocsin_digit *digits, uint32_t count,
                     const joining *join, tocsin_draft *draft)
{
    uint32_t at = 0; /* the digit that depends on the symbol */

    while (at < count && !depends(&digits[at].start, join->symbol))
        at++;
    if (at == count)
        tocsin_draft_push_broadcast(draft, join->size);
    for (uint32_t i = 0; i < count; i++) {
        tocsin_digit digit = digits[i];
        if (i == at) {
            const int64_t step = digit.start.weight[join->symbol];
            if (step < 0)
                return refuse(universe, TOCSIN_CAUSE_WRONG_ORDER, join,
                              "they come in descending order");
            if (step != digit.count)
                return refuse(universe, TOCSIN_CAUSE_WRONG_ORDER, join,
                              "neighbours are not neighbours in the logical value");
            digit.start.weight[join->symbol] = 0;
            if (__builtin_mul_overflow(digit.count, join->size, &digit.count))
                return tocsin_universe_refuse_overflow(universe) != 0;
            if (digit.start.base < 0 || digit.start.base > digit.extent ||
                digit.count > digit.extent - digit.start.base)
                return refuse(universe, TOCSIN_CAUSE_WRONG_SHARD, join,
                              "together they are more than the logical value");
        } else if (depends(&digit.start, join->symbol)) {
            return refuse(universe, TOCSIN_CAUSE_WRONG_ORDER, join,
                          "they do not follow one another in the logical value");
        } else if (i < at && at < count && digit.count != 1) {
            return refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT, join,
                          "each is itself made of several stretches");
        }
        tocsin_draft_push(draft, &digit);
    }
    return true;
}

static bool lay_out_joined(tocsin_universe *universe, const tocsin_relation *relation,
                           const tocsin_term *term, void *context, tocsin_draft *draft)
{
    const joining *join = context;
    const tocsin_digit *digits = term->digits;

    for (uint32_t i = 0; i < term->box_count; i++)
        if (depends(&term->box[i].start, join->symbol))
            return refuse(universe, TOCSIN_CAUSE_WRONG_COLLECTIVE, join,
                          "each is a partial sum of its own; they are to be added");
    for (uint32_t i = 0; i < term->pinned_count; i++)
        if (depends(&term->digits[term->digit_total + i].start, join->symbol))
            return refuse(universe, TOCSIN_CAUSE_WRONG_SHARD, join,
                          "each is at another index of an axis that has no dim here");
    for (uint8_t d = 0; d < relation->ndim; d++) {
        const uint8_t count = term->digit_count[d];
        const uint32_t before = draft->total;
        for (uint8_t i = 0; i < count && d != join->dim; i++) {
            if (depends(&digits[i].start, join->symbol))
                return refuse(universe, TOCSIN_CAUSE_WRONG_SHARD, join,
                              "they are shards of another dim");
            tocsin_draft_push(draft, &digits[i]);
        }
        if (d == join->dim && !join_dim(universe, digits, count, join, draft))
            return false;
        digits += count;
        draft->digit_count[d] = (uint8_t)(draft->total - before);
    }
    return true;
}

/* Segments along another dim are joined each; along the same dim, value by value of the symbol. */
static tocsin_relation_id join_segments(tocsin_universe *universe, tocsin_relation_id id,
                                        const joining *join)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const bool along = relation->segment_dim == join->dim;
    const int64_t count = along ? join->size : relation->count;
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id made = 0;

    if (along && join->size > UNFOLDED_MAX / (int64_t)relation->count)
        return refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT, join, "they are too many pieces");
    tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, count);
    for (int64_t i = 0; pieces != NULL && i < count; i++) {
        pieces[i] = along ? tocsin_relation_fix(universe, id, join->symbol, i)
                          : tocsin_relation_cat_over(universe, relation->segments[i], join->dim,
                                                     join->symbol, join->size);
        if (pieces[i] == 0)
            goto out;
    }
    if (pieces != NULL)
        made =
            tocsin_relation_of_segments(universe, pieces, (uint32_t)count, relation->segment_dim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

tocsin_relation_id tocsin_relation_cat_over(tocsin_universe *universe, tocsin_relation_id id,
                                            uint32_t dim, int symbol, int64_t size)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    joining join = {.dim = dim, .symbol = symbol, .size = size};
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];

    assert(symbol >= 0 && symbol < TOCSIN_SYMBOL_COUNT && size >= 1);
    if (dim >= relation->ndim)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "a join along dim %u of values of %u dims", dim,
                                      relation->ndim);
    if (size == 1)
        return tocsin_relation_fix(universe, id, symbol, 0);
    if (relation->segmented)
        return join_segments(universe, id, &join);
    relation = tocsin_relation_get(universe, row_over(universe, id, dim, symbol));
    memcpy(shape, relation->shape, relation->ndim * sizeof shape[0]);
    if (__builtin_mul_overflow(shape[dim], size, &shape[dim]))
        return tocsin_universe_refuse_overflow(universe);
    return tocsin_relation_redraw(universe, relation, lay_out_joined, &join, shape, relation->ndim);
}

tocsin_relation_id tocsin_relation_cat_members_over(tocsin_universe *universe,
                                                    const tocsin_relation_id *relations,
                                                    uint32_t count, uint32_t dim, int symbol,
                                                    int64_t size)
{
    const tocsin_relation_id once =
        count == 1 ? relations[0] : tocsin_relation_cat(universe, relations, count, dim);
    if (once == 0)
        return 0;
    const tocsin_relation *joined = tocsin_relation_get(universe, once);
    const joining join = {.dim = dim, .symbol = symbol, .size = size};
    if (count > 1 && joined->segmented && joined->segment_dim == dim &&
        (joined->symbols >> symbol & 1) != 0 && size > 1)
        return refuse(universe, TOCSIN_CAUSE_WRONG_ORDER, &join,
                      "the members' shards do not follow one another in the group's order");
    return tocsin_relation_cat_over(universe, once, dim, symbol, size);
}

/* ---- cat ------------------------------------------------------------------------------------- */

/* The least boundary after `offset` among the segments along `dim` of the relations; they have size
 * `size` there. */
static int64_t next_boundary(const tocsin_universe *universe, const tocsin_relation_id *relations,
                             uint32_t count, uint32_t dim, int64_t offset, int64_t size)
{
    int64_t next = size;
    for (uint32_t i = 0; i < count; i++) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        if (!relation->segmented || relation->segment_dim != dim)
            continue;
        int64_t boundary = 0;
        for (uint32_t k = 0; k < relation->count && boundary <= offset; k++)
            boundary += tocsin_relation_get(universe, relation->segments[k])->shape[dim];
        if (boundary > offset && boundary < next)
            next = boundary;
    }
    return next;
}

/* Values without pieces along other dims than `dim`, one after another. */
static tocsin_relation_id cat_along(tocsin_universe *universe, const tocsin_relation_id *relations,
                                    uint32_t count, uint32_t dim)
{
    const tocsin_relation_id made = tocsin_relation_of_segments(universe, relations, count, dim);
    tocsin_relation_id rows = 0;

    if (made != 0 && count > 1 && tocsin_relation_get(universe, made)->segmented)
        rows = stack_rows(universe, relations, count, dim);
    return rows != 0 ? rows : made;
}

/* Some relation is segmented along `across`: cut all there, join the parts, and line these up. */
static tocsin_relation_id cat_across(tocsin_universe *universe, const tocsin_relation_id *relations,
                                     uint32_t count, uint32_t dim, uint32_t across)
{
    const int64_t size = tocsin_relation_get(universe, relations[0])->shape[across];
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *parts = TOCSIN_SCRATCH(universe, tocsin_relation_id, count), *pieces = NULL;
    tocsin_relation_id made = 0;
    uint32_t piece_count = 0;
    size_t boundaries = 1;

    for (uint32_t i = 0; i < count; i++) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        boundaries += relation->segmented && relation->segment_dim == across ? relation->count : 0;
    }
    if (parts != NULL)
        pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, boundaries);
    for (int64_t offset = 0; pieces != NULL && offset < size;) {
        const int64_t end = next_boundary(universe, relations, count, across, offset, size);
        for (uint32_t i = 0; i < count; i++) {
            parts[i] = tocsin_relation_slice(universe, relations[i], across,
                                             tocsin_affine_of(offset), end - offset, 1);
            if (parts[i] == 0)
                goto out;
        }
        const tocsin_relation_id piece = cat_along(universe, parts, count, dim);
        if (piece == 0)
            goto out;
        if (tocsin_relation_get(universe, piece)->segmented) {
            tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                   "values in pieces along dim %u joined along dim %u", across,
                                   dim);
            goto out;
        }
        pieces[piece_count++] = piece;
        offset = end;
    }
    if (pieces != NULL)
        made = tocsin_relation_of_segments(universe, pieces, piece_count, across);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

tocsin_relation_id tocsin_relation_cat(tocsin_universe *universe,
                                       const tocsin_relation_id *relations, uint32_t count,
                                       uint32_t dim)
{
    assert(count >= 1);
    const tocsin_relation *first = tocsin_relation_get(universe, relations[0]);

    if (dim >= first->ndim)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "a join along dim %u of values of %u dims", dim, first->ndim);
    for (uint32_t i = 0; i < count; i++) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        bool fits = relation->ndim == first->ndim;
        for (uint8_t d = 0; fits && d < first->ndim; d++)
            fits = d == dim || relation->shape[d] == first->shape[d];
        if (!fits)
            return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                          "values of unlike shapes joined along dim %u", dim);
    }
    for (uint32_t i = 0; i < count; i++) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        if (relation->segmented && relation->segment_dim != dim)
            return cat_across(universe, relations, count, dim, relation->segment_dim);
    }
    return cat_along(universe, relations, count, dim);
}
