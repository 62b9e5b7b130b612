/* lib/align/band.c - the cheapest pairing of two sequences within a band of diagonals.
 *
 * Gotoh's recurrence (J. Mol. Biol. 162, 1982) for affine gaps: the cell (i, j) has three states,
 * for the last step: a pair, an item of `a` alone, an item of `b` alone. Rows are stored by
 * diagonal j - i, so that a row is an array of the band's width. Of each cell one byte is kept,
 * from which state each of its three states was reached; costs only of two rows.
 *
 * Invariant: ties are broken alike everywhere (a pair before `a` alone before `b` alone), so the
 * result is a function of the sequences and the band.
 * Cost: (count of a + 1) * width steps and bytes.
 */
#include <assert.h>

#include "align/pairing.h"

enum { PAIR, ONLY_A, ONLY_B, STATES };
#define FAR (UINT32_MAX / 2) /* farther than any path: costs of two sequences fit 31 bits */

typedef struct band_table {
    tocsin_align_sequence a, b;
    int64_t lowest; /* the first diagonal j - i */
    uint32_t width;
    uint8_t *from;             /* by row and diagonal: two bits for each state */
    uint32_t (*above)[STATES]; /* the row of i - 1 */
    uint32_t (*row)[STATES];
} band_table;

uint32_t tocsin_align_pair_cost(const tocsin_align_item *a, const tocsin_align_item *b)
{
    if (a->symbol == b->symbol)
        return a->value == b->value ? TOCSIN_ALIGN_EQUAL : TOCSIN_ALIGN_DIFFERENT;
    if (a->form != b->form)
        return UINT32_MAX;
    return a->value != 0 && a->value == b->value ? TOCSIN_ALIGN_RENAMED : TOCSIN_ALIGN_REPLACED;
}

static void bounds(tocsin_align_sequence a, tocsin_align_sequence b, uint32_t reach,
                   int64_t *lowest, uint64_t *width)
{
    int64_t end = (int64_t)b.count - (int64_t)a.count;
    int64_t low = (end < 0 ? end : 0) - (int64_t)reach;
    int64_t high = (end > 0 ? end : 0) + (int64_t)reach;
    if (low < -(int64_t)a.count)
        low = -(int64_t)a.count;
    if (high > (int64_t)b.count)
        high = (int64_t)b.count;
    *lowest = low;
    *width = (uint64_t)(high - low) + 1;
}

uint64_t tocsin_band_cells(tocsin_align_sequence a, tocsin_align_sequence b, uint32_t reach)
{
    int64_t lowest;
    uint64_t width;
    bounds(a, b, reach, &lowest, &width);
    return ((uint64_t)a.count + 1) * width;
}

/* The least of three costs and where it is: bits 0 and 1. */
static uint32_t least(const uint32_t costs[STATES], uint8_t *from)
{
    uint32_t best = costs[PAIR];
    *from = PAIR;
    if (costs[ONLY_A] < best) {
        best = costs[ONLY_A];
        *from = ONLY_A;
    }
    if (costs[ONLY_B] < best) {
        best = costs[ONLY_B];
        *from = ONLY_B;
    }
    return best;
}

/* The cost of a gap's next item, after a path that ends in each state. */
static uint32_t lengthen(const uint32_t before[STATES], unsigned gap, uint8_t *from)
{
    uint32_t costs[STATES];
    for (unsigned state = 0; state < STATES; ++state)
        costs[state] =
            before[state] + (state == gap ? TOCSIN_ALIGN_GAP_EXTEND : TOCSIN_ALIGN_GAP_OPEN);
    return least(costs, from);
}

static const uint32_t nowhere[STATES] = {FAR, FAR, FAR};

static void solve_cell(band_table *band, uint32_t i, uint32_t d)
{
    uint32_t j = (uint32_t)((int64_t)i + band->lowest + (int64_t)d);
    const uint32_t *up = i > 0 && d + 1 < band->width ? band->above[d + 1] : nowhere;
    const uint32_t *left = j > 0 && d > 0 ? band->row[d - 1] : nowhere;
    const uint32_t *diagonal = i > 0 && j > 0 ? band->above[d] : nowhere;
    uint8_t pair_from = PAIR, a_from, b_from;
    uint32_t pair = FAR;
    if (i > 0 && j > 0) {
        uint32_t cost = tocsin_align_pair_cost(&band->a.items[i - 1], &band->b.items[j - 1]);
        if (cost != UINT32_MAX)
            pair = least(diagonal, &pair_from) + cost;
    }
    uint32_t only_a = lengthen(up, ONLY_A, &a_from);
    uint32_t only_b = lengthen(left, ONLY_B, &b_from);
    uint32_t *cell = band->row[d];
    cell[PAIR] = pair < FAR ? pair : FAR;
    cell[ONLY_A] = only_a < FAR ? only_a : FAR;
    cell[ONLY_B] = only_b < FAR ? only_b : FAR;
    band->from[(size_t)i * band->width + d] = (uint8_t)(pair_from | a_from << 2 | b_from << 4);
}

static void solve_row(band_table *band, uint32_t i)
{
    for (uint32_t d = 0; d < band->width; ++d) {
        int64_t j = (int64_t)i + band->lowest + (int64_t)d;
        if (j < 0 || j > (int64_t)band->b.count) {
            memcpy(band->row[d], nowhere, sizeof nowhere);
        } else if (i == 0 && j == 0) {
            memcpy(band->row[d], nowhere, sizeof nowhere);
            band->row[d][PAIR] = 0;
        } else {
            solve_cell(band, i, d);
        }
    }
}

static void trace_back(const band_table *band, unsigned state, uint32_t *partner)
{
    uint32_t i = band->a.count, j = band->b.count;
    while (i > 0 || j > 0) {
        uint32_t d = (uint32_t)((int64_t)j - (int64_t)i - band->lowest);
        unsigned from = band->from[(size_t)i * band->width + d] >> 2 * state & 3;
        if (state == PAIR) {
            partner[--i] = --j;
        } else if (state == ONLY_A) {
            partner[--i] = TOCSIN_ALIGN_NONE;
        } else {
            --j;
        }
        state = from;
    }
}

tocsin_status tocsin_band_solve(tocsin_align_sequence a, tocsin_align_sequence b, uint32_t reach,
                                uint32_t *partner, uint64_t *cost, tocsin_error *error)
{
    band_table band = {.a = a, .b = b};
    uint64_t width;
    bounds(a, b, reach, &band.lowest, &width);
    assert(width <= UINT32_MAX && a.count < FAR / 16 && b.count < FAR / 16);
    band.width = (uint32_t)width;
    band.from = tocsin_zalloc((size_t)a.count + 1, band.width);
    uint32_t(*rows)[STATES] = tocsin_zalloc(2 * (size_t)band.width, sizeof *rows);
    tocsin_status status = TOCSIN_OK;
    if (band.from && rows) {
        band.row = rows;
        band.above = rows + band.width;
        for (uint32_t i = 0; i <= a.count; ++i) {
            uint32_t(*kept)[STATES] = band.above;
            band.above = band.row;
            band.row = kept;
            solve_row(&band, i);
        }
        uint8_t state;
        int64_t end = (int64_t)b.count - (int64_t)a.count - band.lowest;
        uint32_t best = least(band.row[end], &state);
        *cost = best < FAR ? best : UINT64_MAX;
        if (best < FAR)
            trace_back(&band, state, partner);
    } else {
        status = tocsin_error_memory(error);
    }
    tocsin_free(band.from);
    tocsin_free(rows);
    return status;
}
