/* join.c - concatenation: of several relations, and of all values of a symbol.
 *
 * Joining the values of a symbol is the counterpart of a range that depends on it: where the range
 * moves by its own length with each value (weight = count), all values together are one range that
 * is `size` times as long. What does not depend on the symbol is repeated. Anything else is no
 * concatenation of shards in order, and is refused with the reason.
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

/* Some relation is segmented along `across`: cut all there, join the parts, and line these up. */
static tocsin_relation_id cat_across(tocsin_universe *universe, const tocsin_relation_id *relations,
                                     uint32_t count, uint32_t dim, uint32_t across)
{
    const int64_t size = tocsin_relation_get(universe, relations[0])->shape[across];
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *parts = TOCSIN_SCRATCH(universe, tocsin_relation_id, count);
    tocsin_relation_id pieces[256], made = 0;
    uint32_t piece_count = 0;

    for (int64_t offset = 0; parts != NULL && offset < size;) {
        const int64_t end = next_boundary(universe, relations, count, across, offset, size);
        for (uint32_t i = 0; i < count; i++) {
            parts[i] = tocsin_relation_slice(universe, relations[i], across,
                                             tocsin_affine_of(offset), end - offset, 1);
            if (parts[i] == 0)
                goto out;
        }
        const tocsin_relation_id piece = tocsin_relation_of_segments(universe, parts, count, dim);
        if (piece == 0)
            goto out;
        if (tocsin_relation_get(universe, piece)->segmented ||
            piece_count == TOCSIN_COUNT_OF(pieces)) {
            tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                   "values in pieces along dim %u joined along dim %u", across,
                                   dim);
            goto out;
        }
        pieces[piece_count++] = piece;
        offset = end;
    }
    if (parts != NULL)
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
    return tocsin_relation_of_segments(universe, relations, count, dim);
}
