/* box_sum.c - sums of partial sums: which combinations of boxes are nothing, or cover the same.
 *
 * A box restricts contraction axes to ranges of their digits. All boxes at hand are brought to
 * common digits of each axis, where each is a product of intervals. A weighted sum of such boxes is
 * zero if it is zero at every point; the points fall into a grid that the intervals' ends make, and
 * the grid is walked dim by dim with the boxes that are there. Cost: cells of the grid times boxes;
 * for n ranks' shards of one axis, n.
 */
#include <assert.h>
#include <stdlib.h>

#include "certify/certify.h"

enum { GRID_DIMS_MAX = 32, CUTS_MAX = 64, WORK_MAX = 50000000 };

typedef struct interval {
    int64_t from, to;
} interval;

typedef struct grid_dim {
    uint32_t atom, axis;
    int64_t stride, extent;
} grid_dim;

typedef struct grid {
    certify_checker *checker;
    const certify_entry *entries;
    size_t one; /* COVER: how many are on the one side */
    bool cover;
    uint32_t dims;
    grid_dim dim[GRID_DIMS_MAX];
    interval *intervals; /* [entry][dim] */
    uint64_t work;
} grid;

/* ---- common digits ------------------------------------------------------------------------------
 */

static bool add_cut(int64_t cuts[CUTS_MAX], uint32_t *count, int64_t value)
{
    uint32_t at = 0;
    while (at < *count && cuts[at] < value)
        at++;
    if (at < *count && cuts[at] == value)
        return true;
    if (*count == CUTS_MAX)
        return false;
    for (uint32_t k = (*count)++; k > at; k--)
        cuts[k] = cuts[k - 1];
    cuts[at] = value;
    return true;
}

static bool has_axis(const grid *on, const certify_span *span)
{
    for (uint32_t d = 0; d < on->dims; d++)
        if (on->dim[d].atom == span->atom && on->dim[d].axis == span->axis)
            return true;
    return false;
}

/* The common digits of one axis. */
static certify_outcome add_axis(grid *on, size_t count, uint32_t atom, uint32_t axis)
{
    int64_t cuts[CUTS_MAX];
    uint32_t cut_count = 0;

    for (size_t e = 0; e < count; e++)
        for (uint32_t k = 0; k < on->entries[e].span_count; k++) {
            const certify_span *span = &on->entries[e].spans[k];
            if (span->atom == atom && span->axis == axis &&
                (!add_cut(cuts, &cut_count, span->stride) ||
                 !add_cut(cuts, &cut_count, span->stride * span->extent)))
                return certify_unclear(on->checker, "a box has too many digits");
        }
    for (uint32_t k = 0; k + 1 < cut_count; k++) {
        if (cuts[k + 1] % cuts[k] != 0)
            return certify_unclear(on->checker, "boxes cut an axis in ways that do not nest");
        if (on->dims == GRID_DIMS_MAX)
            return certify_unclear(on->checker, "boxes have too many dims");
        on->dim[on->dims++] = (grid_dim){
            .atom = atom, .axis = axis, .stride = cuts[k], .extent = cuts[k + 1] / cuts[k]};
    }
    return CERTIFY_DONE;
}

/* The span as intervals of the common digits, which lie innermost first. */
static certify_outcome place_span(grid *on, const certify_span *span, interval *row)
{
    int64_t start = span->start.base, count = span->count;
    for (uint32_t d = 0; d < on->dims; d++) {
        const grid_dim *dim = &on->dim[d];
        if (dim->atom != span->atom || dim->axis != span->axis || dim->stride < span->stride ||
            dim->stride >= span->stride * span->extent)
            continue;
        if (row[d].from != 0 || row[d].to != dim->extent)
            return certify_unclear(on->checker, "a box restricts one digit twice");
        if (start % dim->extent == 0 && count % dim->extent == 0) {
            start /= dim->extent;
            count /= dim->extent;
        } else if (start / dim->extent == (start + count - 1) / dim->extent) {
            row[d] = (interval){start % dim->extent, start % dim->extent + count};
            start /= dim->extent;
            count = 1;
        } else {
            return certify_unclear(on->checker, "a box is no product of digits");
        }
    }
    assert(start == 0 && count == 1);
    return CERTIFY_DONE;
}

static certify_outcome lay_out(grid *on, size_t count)
{
    for (size_t e = 0; e < count; e++)
        for (uint32_t k = 0; k < on->entries[e].span_count; k++) {
            const certify_span *span = &on->entries[e].spans[k];
            if (span->maximum != on->cover)
                return certify_different(on->checker, "partial sums and maxima are mixed");
            if (span->start.count > 0) { /* judge every replica or micro-batch on its own */
                on->checker->refinement = (certify_refinement){
                    .coordinate = span->start.part[0].coordinate, .cut = true, .value = 1};
                return CERTIFY_REFINE;
            }
            if (has_axis(on, span))
                continue;
            const certify_outcome outcome = add_axis(on, count, span->atom, span->axis);
            if (outcome != CERTIFY_DONE)
                return outcome;
        }
    on->intervals = TOCSIN_ARENA_ARRAY(&on->checker->arena, interval, count * (on->dims + 1));
    if (on->intervals == NULL)
        return CERTIFY_FAILED;
    for (size_t e = 0; e < count; e++) {
        interval *row = on->intervals + e * on->dims;
        for (uint32_t d = 0; d < on->dims; d++)
            row[d] = (interval){0, on->dim[d].extent};
        for (uint32_t k = 0; k < on->entries[e].span_count; k++) {
            const certify_outcome outcome = place_span(on, &on->entries[e].spans[k], row);
            if (outcome != CERTIFY_DONE)
                return outcome;
        }
    }
    return CERTIFY_DONE;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static certify_outcome judge_point(grid *on, const uint32_t *here, size_t count)
{
    bool left = false, right = false;
    for (size_t k = 0; k < count && on->cover; k++) {
        left |= here[k] < on->one;
        right |= here[k] >= on->one;
    }
    if (on->cover)
        return left == right ? CERTIFY_DONE
                             : certify_different(on->checker, "the partial maxima cover otherwise");
    for (size_t k = 0; k < count; k++) { /* the sum of each kind of opaque factor on its own */
        const certify_number *kind = &on->entries[here[k]].factor;
        certify_number sum = certify_integer(0);
        for (size_t m = 0; m < count; m++) {
            const certify_number *one = &on->entries[here[m]].factor;
            if (certify_compare_opaque(one, kind) == 0 && !certify_add(&sum, one, &sum))
                return certify_unclear(on->checker, "a factor is too large");
        }
        if (!certify_is_zero(&sum))
            return certify_different(on->checker, "the sums differ");
    }
    return CERTIFY_DONE;
}

static int compare_ends(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static certify_outcome walk(grid *on, uint32_t dim, const uint32_t *here, size_t count)
{
    if (count == 0)
        return CERTIFY_DONE;
    if (dim == on->dims)
        return judge_point(on, here, count);
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&on->checker->arena);
    int64_t *ends = TOCSIN_ARENA_ARRAY(&on->checker->arena, int64_t, 2 * count);
    uint32_t *inside = TOCSIN_ARENA_ARRAY(&on->checker->arena, uint32_t, count);
    certify_outcome outcome = ends == NULL || inside == NULL ? CERTIFY_FAILED : CERTIFY_DONE;
    for (size_t k = 0; k < count && outcome == CERTIFY_DONE; k++) {
        const interval *one = &on->intervals[(size_t)here[k] * on->dims + dim];
        ends[2 * k] = one->from;
        ends[2 * k + 1] = one->to;
    }
    if (outcome == CERTIFY_DONE)
        qsort(ends, 2 * count, sizeof ends[0], compare_ends);
    for (size_t k = 0; k + 1 < 2 * count && outcome == CERTIFY_DONE; k++) {
        size_t found = 0;
        if (ends[k] == ends[k + 1])
            continue;
        on->work += count;
        if (on->work > WORK_MAX)
            outcome = certify_unclear(on->checker, "too many boxes");
        for (size_t m = 0; m < count; m++) {
            const interval *one = &on->intervals[(size_t)here[m] * on->dims + dim];
            if (one->from <= ends[k] && one->to >= ends[k + 1])
                inside[found++] = here[m];
        }
        if (outcome == CERTIFY_DONE)
            outcome = walk(on, dim + 1, inside, found);
    }
    tocsin_arena_reset_to(&on->checker->arena, mark);
    return outcome;
}

static certify_outcome judge(grid *on, size_t count)
{
    certify_outcome outcome = lay_out(on, count);
    if (outcome != CERTIFY_DONE)
        return outcome;
    uint32_t *all = TOCSIN_ARENA_ARRAY(&on->checker->arena, uint32_t, count);
    if (all == NULL)
        return CERTIFY_FAILED;
    for (size_t k = 0; k < count; k++)
        all[k] = (uint32_t)k;
    return walk(on, 0, all, count);
}

certify_outcome certify_boxes_cancel(certify_checker *checker, const certify_entry *entries,
                                     size_t count)
{
    grid on = {.checker = checker, .entries = entries};
    return judge(&on, count);
}

certify_outcome certify_boxes_cover(certify_checker *checker, const certify_entry *entries,
                                    size_t one, size_t count)
{
    grid on = {.checker = checker, .entries = entries, .one = one, .cover = true};
    return judge(&on, count);
}
