/* prove/universe.h - inside of the relation algebra: for the files that implement relation.h only.
 *
 * A universe interns factors, atoms and relations. Each is encoded as a block of 64-bit words in
 * which every field that matters stands in one place, so that equality of values is equality of
 * words; a *word table* maps blocks to dense ids. Keys are always compared in full.
 * What an operation needs while it works lies in `scratch`, between two marks.
 */
#ifndef TOCSIN_PROVE_UNIVERSE_H
#define TOCSIN_PROVE_UNIVERSE_H

#include <tocsin/verify.h>

#include "base/base.h"
#include "prove/slice_relation.h"

enum {
    TOCSIN_DIGITS_MAX = 32,      /* of one dim */
    TOCSIN_PINNED_MAX = 64,      /* of one term */
    TOCSIN_BOX_ENTRIES_MAX = 64, /* of one term */
    TOCSIN_BOXES_MAX = 4096,     /* terms of one atom and map */
    TOCSIN_TERMS_MAX = 65536,    /* of one relation */
    TOCSIN_SEGMENTS_MAX = 65536
};

/* The factor 0. A term that has it vanishes. */
#define TOCSIN_FACTOR_ZERO ((tocsin_factor_id)1)
/* Every universe has these. */
#define TOCSIN_ATOM_ID_ONE  ((tocsin_atom_id)1)
#define TOCSIN_ATOM_ID_IOTA ((tocsin_atom_id)2)

/* Blocks of words -> 1, 2, 3, ... The words live in the caller's arena. Zero is empty. */
typedef struct tocsin_word_table {
    TOCSIN_VEC(struct tocsin_word_entry) entries; /* entry id - 1 */
    uint32_t *slots;                              /* ids; 0 is empty */
    uint32_t capacity;                            /* power of two, or 0 */
} tocsin_word_table;

struct tocsin_word_entry {
    const uint64_t *words;
    uint32_t count;
    uint32_t hash;
};

struct tocsin_stored_relation {
    tocsin_relation view;
    bool registered; /* its ranges are among the windows */
};

struct tocsin_window_list {
    tocsin_window *items; /* ascending by count, then start; the whole extent is not among them */
    uint32_t count, capacity;
};

struct tocsin_definitions;  /* define.c */
struct tocsin_alignments;   /* realign.c */
struct tocsin_view_pattern; /* view_pattern.c */

struct tocsin_universe {
    tocsin_status status; /* sticks */
    bool logical;
    bool strict, lenient;                     /* tocsin_universe_set_strict, _was_lenient */
    bool naming, named;                       /* tocsin_universe_set_naming, _was_named */
    int64_t symbol_size[TOCSIN_SYMBOL_COUNT]; /* 0: not told */
    tocsin_refusal refusal;
    tocsin_arena arena;   /* what is interned */
    tocsin_arena scratch; /* between marks */
    tocsin_intern strings;
    tocsin_word_table factors; /* the table's id - 1: factor.c */
    tocsin_word_table atom_table;
    TOCSIN_VEC(tocsin_atom *) atoms; /* by id - 1 */
    tocsin_word_table relation_table;
    TOCSIN_VEC(struct tocsin_stored_relation *) relations;        /* by id - 1 */
    tocsin_intern window_keys;                                    /* (atom, axis, stride, extent) */
    TOCSIN_VEC(struct tocsin_window_list) windows;                /* by key - 1 */
    tocsin_intern view_keys;                                      /* view_pattern.c */
    TOCSIN_VEC(const struct tocsin_view_pattern *) view_patterns; /* by key - 1 */
    const tocsin_plan *plan; /* the logical one, for names in refusals; may be NULL */
    struct tocsin_definitions *definitions; /* define.c's, made at its first use, or NULL */
    struct tocsin_alignments *alignments;   /* realign.c's, likewise */
    tocsin_map names;                       /* name.c: long logical sum -> its name */
};

/* Frees define.c's index; accepts NULL. (define.c) */
void tocsin_definitions_free(struct tocsin_definitions *definitions);
/* Frees realign.c's index; accepts NULL. (realign.c) */
void tocsin_alignments_free(struct tocsin_alignments *alignments);

/* ---- failing (universe.c) -------------------------------------------------------------------- */

/* The universe has failed for good (E_MEMORY, E_LIMIT); answers 0. */
uint32_t tocsin_universe_fail(tocsin_universe *universe, tocsin_status status);
/* Refuse because an index or size does not fit 64 bits; answers 0. */
uint32_t tocsin_universe_refuse_overflow(tocsin_universe *universe);

/* ---- scratch (universe.c) -------------------------------------------------------------------- */

/* Memory until the mark is reset; NULL when out of memory, and the universe has then failed. */
void *tocsin_scratch_alloc(tocsin_universe *universe, size_t count, size_t bytes);
#define TOCSIN_SCRATCH(universe, type, count)                                                      \
    ((type *)tocsin_scratch_alloc((universe), (size_t)(count), sizeof(type)))
static inline tocsin_arena_mark tocsin_scratch_mark(const tocsin_universe *universe)
{
    return tocsin_arena_get_mark(&universe->scratch);
}
static inline void tocsin_scratch_reset(tocsin_universe *universe, tocsin_arena_mark mark)
{
    tocsin_arena_reset_to(&universe->scratch, mark);
}

/* ---- interning (word_table.c, atom.c, window.c) ---------------------------------------------- */

/* The id of the block, copied into `arena` when new (*made). 0: out of memory. */
uint32_t tocsin_words_put(tocsin_word_table *table, tocsin_arena *arena, const uint64_t *words,
                          uint32_t count, bool *made);
uint32_t tocsin_words_find(const tocsin_word_table *table, const uint64_t *words, uint32_t count);
void tocsin_words_free(tocsin_word_table *table);

/* The relation of this block (normal_form.c lays it out). */
tocsin_relation_id tocsin_relation_intern(tocsin_universe *universe, const uint64_t *words,
                                          uint32_t count);

/* How refusals call an atom, cut to fit; returns `name`. (relation_text.c) */
enum { TOCSIN_NAME_BYTES = 120 };
const char *tocsin_atom_name(const tocsin_universe *universe, tocsin_atom_id atom,
                             char name[TOCSIN_NAME_BYTES]);
/* How refusals call the contraction axis of a box entry. (relation_text.c) */
const char *tocsin_axis_name(const tocsin_universe *universe, const tocsin_box_entry *entry,
                             char name[TOCSIN_NAME_BYTES]);
/* A string of the universe ("" for 0), as atoms name them. */
const char *tocsin_universe_text(const tocsin_universe *universe, uint32_t string);

/* ONE or IOTA, as _universe_new makes them. */
tocsin_atom_id tocsin_atom_builtin(tocsin_universe *universe, uint8_t kind, const int64_t *shape,
                                   uint8_t ndim);
/* The atom of kind DEFINED of this relation; `name` and `op` are used when it is new. */
tocsin_atom_id tocsin_atom_defined(tocsin_universe *universe, tocsin_relation_id definition,
                                   const char *name, uint32_t op, bool *made);
/* The DEFINED atom of this relation, or 0. */
tocsin_atom_id tocsin_atom_find_defined(const tocsin_universe *universe,
                                        tocsin_relation_id definition);

/* Register the ranges of a logical relation. false: the universe has failed. (window.c) */
bool tocsin_windows_register(tocsin_universe *universe, const tocsin_relation *relation);
/* The ranges other than the whole extent that digits (atom, axis, stride, extent) have in the dims
 * of logical relations: ascending by count, then start. Valid until the next operation. */
const tocsin_window *tocsin_windows_of(const tocsin_universe *universe, tocsin_atom_id atom,
                                       uint32_t axis, int64_t stride, int64_t extent,
                                       uint32_t *count);

/* A logical sum has been defined as this relation of one term: remember it, if it is long. false:
 * the universe has failed. (name.c) */
bool tocsin_relation_set_name(tocsin_universe *universe, tocsin_relation_id sum,
                              tocsin_relation_id name);
/* tocsin_relation_fold(), but only as a part of what is made of the same atoms: soon told when
 * there is none. (define.c) */
tocsin_relation_id tocsin_relation_fold_sum(tocsin_universe *universe, tocsin_relation_id id);

/* ---- factors (factor.c) ---------------------------------------------------------------------- */

/* That both have; 0 if both are 0. */
int64_t tocsin_greatest_divisor(int64_t a, int64_t b);

/* A total order by the opaque parts; 0: equal ones, so that the two can be added. */
int tocsin_factor_compare_opaque(const tocsin_universe *universe, tocsin_factor_id a,
                                 tocsin_factor_id b);
bool tocsin_factor_is_negative(const tocsin_universe *universe, tocsin_factor_id factor);

/* ---- constructors (normal_form.c, segment.c) ------------------------------------------------- */

/* Sum of terms that are normal each (taken from interned relations, or made by _of_term), with
 * nothing known about their order and about equal ones among them. */
tocsin_relation_id tocsin_relation_of_normal_terms(tocsin_universe *universe,
                                                   const tocsin_term *terms, uint32_t count,
                                                   const int64_t *shape, uint8_t ndim);
/* The pieces one after another along `dim`; their shapes agree in all other dims (else refused).
 * Pieces may be segmented, zero, or of length 0. Those that continue one another become one; the
 * result is segmented only when several are left. This is concatenation. */
tocsin_relation_id tocsin_relation_of_segments(tocsin_universe *universe,
                                               const tocsin_relation_id *segments, uint32_t count,
                                               uint32_t dim);

/* Intern a segmented relation of pieces that do not continue one another. (normal_form.c) */
tocsin_relation_id tocsin_relation_intern_segments(tocsin_universe *universe,
                                                   const tocsin_relation_id *segments,
                                                   uint32_t count, uint32_t dim,
                                                   const int64_t *shape, uint8_t ndim);

/* ---- terms ----------------------------------------------------------------------------------- */

/* Equal digit counts, digits and pinned digits? */
bool tocsin_term_same_map(const tocsin_term *a, const tocsin_term *b, uint8_t ndim);
/* Equal boxes? */
bool tocsin_term_same_box(const tocsin_term *a, const tocsin_term *b);

/* ---- affine forms ---------------------------------------------------------------------------- */

static inline tocsin_affine tocsin_affine_of(int64_t base)
{
    return (tocsin_affine){.base = base};
}
static inline bool tocsin_affine_same_weights(const tocsin_affine *a, const tocsin_affine *b)
{
    return a->weight[0] == b->weight[0] && a->weight[1] == b->weight[1];
}
static inline bool tocsin_affine_equal(const tocsin_affine *a, const tocsin_affine *b)
{
    return a->base == b->base && tocsin_affine_same_weights(a, b);
}
static inline bool tocsin_affine_is_constant(const tocsin_affine *a)
{
    return a->weight[0] == 0 && a->weight[1] == 0;
}
/* The symbols that it depends on, one bit each. */
static inline uint8_t tocsin_affine_symbols(const tocsin_affine *a)
{
    return (uint8_t)((a->weight[0] != 0) | (a->weight[1] != 0) << 1);
}
/* Is [start, start + count) all of [0, extent)? */
static inline bool tocsin_range_is_whole(const tocsin_affine *start, int64_t count, int64_t extent)
{
    return start->base == 0 && tocsin_affine_is_constant(start) && count == extent;
}
/* These answer false on overflow. `a` and `*result` may be the same. */
static inline bool tocsin_affine_scale(const tocsin_affine *a, int64_t factor,
                                       tocsin_affine *result)
{
    return !(__builtin_mul_overflow(a->base, factor, &result->base) ||
             __builtin_mul_overflow(a->weight[0], factor, &result->weight[0]) ||
             __builtin_mul_overflow(a->weight[1], factor, &result->weight[1]));
}
static inline bool tocsin_affine_add(const tocsin_affine *a, const tocsin_affine *b,
                                     tocsin_affine *result)
{
    return !(__builtin_add_overflow(a->base, b->base, &result->base) ||
             __builtin_add_overflow(a->weight[0], b->weight[0], &result->weight[0]) ||
             __builtin_add_overflow(a->weight[1], b->weight[1], &result->weight[1]));
}
static inline bool tocsin_affine_subtract(const tocsin_affine *a, const tocsin_affine *b,
                                          tocsin_affine *result)
{
    return !(__builtin_sub_overflow(a->base, b->base, &result->base) ||
             __builtin_sub_overflow(a->weight[0], b->weight[0], &result->weight[0]) ||
             __builtin_sub_overflow(a->weight[1], b->weight[1], &result->weight[1]));
}

#endif
