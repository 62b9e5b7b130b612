/* lib/align/aligner.h - a comparison of two runs under way: align.c drives it, pivot.c and
 * outcome.c make what is shown. Functions that give a text set `starved` when memory runs out, and
 * give NULL then; it is looked at in the end. */
#ifndef TOCSIN_LIB_ALIGNER_H
#define TOCSIN_LIB_ALIGNER_H

#include "align/align.h"
#include "align/mapping.h"

typedef struct tocsin_alignment {
    tocsin_align_result shown; /* first: what the caller has */
    tocsin_arena arena;        /* of all texts and lists of it */
} tocsin_alignment;

typedef struct tocsin_aligner {
    tocsin_align_options options;
    tocsin_intern names;     /* of both runs */
    tocsin_mapping *mapping; /* NULL: names are as they are */
    TOCSIN_VEC(tocsin_parting) partings;
    tocsin_alignment *result;
    TOCSIN_VEC(tocsin_align_pivot) pivots; /* these become the result's: */
    TOCSIN_VEC(tocsin_align_gap) gaps;
    TOCSIN_VEC(tocsin_align_condition) conditions;
    TOCSIN_VEC(tocsin_align_unstable) unstable;
    TOCSIN_VEC(tocsin_align_replicas) replicas;
    TOCSIN_VEC(tocsin_align_cone) cones;
    TOCSIN_VEC(tocsin_align_recomputed) recomputed;
    TOCSIN_VEC(const char *) not_covered;
    bool starved; /* something of the result could not be kept */
    tocsin_error *error;
} tocsin_aligner;

/* ---- pivot.c ------------------------------------------------------------------------------- */

const char *tocsin_aligner_keep(tocsin_aligner *aligner, const char *text);
/* The text of a name. */
const char *tocsin_aligner_name(tocsin_aligner *aligner, uint32_t text);
tocsin_align_pivot tocsin_aligner_pivot(tocsin_aligner *aligner, int64_t rank, int64_t step,
                                        const tocsin_difference_found *found);

/* ---- outcome.c ------------------------------------------------------------------------------ */

/* Add to what was not covered. false: out of memory. */
bool tocsin_aligner_not_cover(tocsin_aligner *aligner, const char *format, ...) TOCSIN_PRINTF(2, 3);
/* What composing the ranks of a run came to. false: out of memory. */
bool tocsin_aligner_add_account(tocsin_aligner *aligner, const tocsin_whole *whole, size_t ranks,
                                bool in_a);
/* Make the result of all partings. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_aligner_conclude(tocsin_aligner *aligner);

#endif
