/* lib/align/pairing.h - which item of one sequence belongs to which of another.
 *
 * Runs are compared as sequences of items: at each observed boundary one. Between two runs that do
 * the same maths the sequences are nearly equal: names change, operators are fused, helpers are put
 * in, a value differs and everything after it. Pairing finds the cheapest monotone matching.
 */
#ifndef TOCSIN_ALIGN_PAIRING_H
#define TOCSIN_ALIGN_PAIRING_H

#include <base/base.h>

typedef struct tocsin_align_item {
    uint64_t value; /* of the tensor: equal bits, equal value; 0: not known, equal to any other 0 */
    uint32_t symbol; /* what it is: name, role, phase */
    uint32_t form;   /* dtype and shape: only items of one form may be a renaming */
} tocsin_align_item;

typedef struct tocsin_align_sequence {
    const tocsin_align_item *items;
    uint32_t count;
} tocsin_align_sequence;

/* Costs. A gap costs OPEN for its first item and EXTEND for each further one: deleting and
 * inserting a stretch is never cheaper than taking its items for different. A lone pair of one
 * symbol is cheaper (by one) than two gaps that swallow it, one in each sequence. */
enum {
    TOCSIN_ALIGN_EQUAL = 0,     /* one symbol, one value */
    TOCSIN_ALIGN_RENAMED = 2,   /* one form, one known value */
    TOCSIN_ALIGN_DIFFERENT = 3, /* one symbol */
    TOCSIN_ALIGN_REPLACED = 8,  /* one form */
    TOCSIN_ALIGN_GAP_OPEN = 6,
    TOCSIN_ALIGN_GAP_EXTEND = 4
};

#define TOCSIN_ALIGN_NONE UINT32_MAX

/* What it costs to pair two items; UINT32_MAX: they cannot be a pair. */
uint32_t tocsin_align_pair_cost(const tocsin_align_item *a, const tocsin_align_item *b);

typedef struct tocsin_pairing {
    uint32_t *partner; /* for each item of `a` the index in `b`, ascending, or NONE. To free. */
    uint64_t cost;
    bool optimal;  /* proved; else parts between anchors are, but the choice of anchors is not */
    uint32_t band; /* the widest that was needed */
} tocsin_pairing;

/* Pair two sequences. Equal ends are cut off (that keeps an optimum); what is left is solved in a
 * band that is doubled until no path outside can be cheaper. Where that takes more than
 * `cells_max` (0: 2^26) cells, items that occur once in both sequences become anchors, and the
 * stretches between them are solved alone.
 * Errors: E_MEMORY; E_LIMIT (a stretch without anchors is too large). */
TOCSIN_MUST_CHECK tocsin_status tocsin_pairing_find(tocsin_align_sequence a,
                                                    tocsin_align_sequence b, uint64_t cells_max,
                                                    tocsin_pairing *pairing, tocsin_error *error);

/* ---- band.c --------------------------------------------------------------------------------- */

/* The cheapest pairing among those whose diagonals j - i stay within `reach` of both ends; partner
 * is filled. cost UINT64_MAX: none. */
TOCSIN_MUST_CHECK tocsin_status tocsin_band_solve(tocsin_align_sequence a, tocsin_align_sequence b,
                                                  uint32_t reach, uint32_t *partner, uint64_t *cost,
                                                  tocsin_error *error);
/* How many cells it takes. */
uint64_t tocsin_band_cells(tocsin_align_sequence a, tocsin_align_sequence b, uint32_t reach);

#endif
