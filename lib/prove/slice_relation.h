/* prove/slice_relation.h - what a tensor of the parallel plan *is*, in terms of logical values.
 *
 * A relation says, for a local tensor t of a given shape,
 *
 *     t[i] = sum over terms k of  q_k * A_k<box_k>[ M_k(i) ]
 *
 *   A    an *atom*: a logical value that is not further explained (an input, or the result of an
 *        operator on given relations). Atoms are hash-consed: same operator, attributes and operand
 *        relations, same atom. An atom has axes 0..n-1 of known extent.
 *   M    the *map*: every dim of t is a list of *digits*, outermost first, whose mixed-radix value
 *        is the index along the dim. A digit is a range of one digit of an atom's axis:
 *            (atom index along `axis` / stride) mod extent  runs over  [start, start + count)
 *        or a broadcast of `count` equal elements (axis = TOCSIN_DIGIT_BROADCAST). What no digit
 *        covers is *pinned* to one index, or has extent 1.
 *   box  the ranges of the atom's contraction axes that this partial sum covers; no entry: whole.
 *        A contraction axis belongs to the atom in whose making the sum was taken, which may be
 *        another atom than A (a sum drawn through a linear operator). Entries of kind MAX are
 *        ranges of a maximum, and are joined by maximum, not by sum.
 *   q    an exact factor: a rational times a product of opaque real constants.
 *
 * Starts are affine in the replica and the micro-batch (plan.h): one relation speaks for all.
 * A relation may also be *segmented*: along one dim, pieces of their own (concatenation of unlike
 * things, zero padding).
 *
 * Normal form. Digits of extent 1 vanish; adjacent digits of one dim that continue one another are
 * merged (outer.stride = inner.stride * inner.extent with the inner whole, or the outer of count
 * 1); terms are sorted by atom and map; the boxes of one atom and map are a function on the grid of
 * their contraction axes and are written in one way (box_merge.c): adjacent ranges are merged,
 * whole ones vanish, what is counted twice has factor 2; zero factors vanish; segments that
 * continue one another are merged, one segment is no segmentation. Relations are interned, so that
 * equality is one comparison of two integers. Equal ids are equal values. Unequal ids are unequal
 * values, over independent atoms, but for three things that keep the form they came in: a digit of
 * count 1 stays in its dim (it says which slice this is, for widening), ranges that move with a
 * symbol are not cut into other digits, and a repetition is found only where whole pieces repeat.
 *
 * An operator of the rule CONGRUENCE wants operands of one term. What has several terms or segments
 * is *defined*: on the logical side tocsin_relation_define() gives it an atom of kind DEFINED; on
 * the parallel side tocsin_relation_fold() finds the defined atom of which the relation is a part.
 * The values themselves keep their terms, so that sums stay flat and their order does not matter;
 * but for sums that grow with the model's depth, which go on under their names (name.c).
 *
 * Source: slice-sum relations generalise the R/I/V/P types of SPMD type systems (spmd_types) and
 * the aligned lineages of TrainVerify (SOSP'25, section 4); own design.
 * Cost: interning hashes the words of one relation (about 20-100); every operation is linear in the
 * words of its operands but for sorting, and box merging (box_merge.c) where boxes overlap.
 * Memory: everything lives in the universe's arenas until it is freed. Threads: one.
 */
#ifndef TOCSIN_PROVE_SLICE_RELATION_H
#define TOCSIN_PROVE_SLICE_RELATION_H

#include "base/base.h"
#include "plan/plan.h"

typedef uint32_t tocsin_relation_id; /* 0: none (an operation that has no answer says why) */
typedef uint32_t tocsin_atom_id;     /* from 1 */
typedef uint32_t tocsin_factor_id;   /* interned factors; 0 is the factor 1 */

#define TOCSIN_DIGIT_BROADCAST UINT32_MAX

typedef struct tocsin_digit {
    uint32_t axis; /* of the atom, or _BROADCAST */
    uint32_t pad_;
    int64_t stride, extent;
    tocsin_affine start;
    int64_t count;
} tocsin_digit;

typedef enum tocsin_box_kind { TOCSIN_BOX_SUM, TOCSIN_BOX_MAX } tocsin_box_kind;

typedef struct tocsin_box_entry {
    tocsin_atom_id atom; /* whose contraction */
    uint16_t axis;       /* index of the contraction axis in that atom's signature */
    uint16_t kind;       /* tocsin_box_kind */
    int64_t stride, extent;
    tocsin_affine start;
    int64_t count;
} tocsin_box_entry;

typedef struct tocsin_term {
    tocsin_atom_id atom;
    tocsin_factor_id factor;
    const uint8_t *digit_count; /* per dim */
    const tocsin_digit *digits; /* dims in order, then the pinned ones (count 1) */
    uint32_t digit_total;       /* without the pinned */
    uint32_t pinned_count;
    const tocsin_box_entry *box; /* sorted */
    uint32_t box_count;
} tocsin_term;

typedef struct tocsin_relation {
    uint8_t ndim;
    bool segmented;
    bool foreign;    /* has an atom that the logical plan does not have */
    uint8_t symbols; /* bit s: some start depends on symbol s */
    const int64_t *shape;
    uint32_t count;                     /* terms, or segments */
    const tocsin_term *terms;           /* !segmented; count 0 is zero */
    uint32_t segment_dim;               /* segmented */
    const tocsin_relation_id *segments; /* each with the full shape but for segment_dim */
} tocsin_relation;

/* How an atom came about. */
typedef enum tocsin_atom_kind {
    TOCSIN_ATOM_INPUT, /* a logical input, by name */
    TOCSIN_ATOM_ONE,   /* the scalar 1 (no axes); constants are factors of it */
    TOCSIN_ATOM_IOTA,  /* 0, 1, 2, ...: one axis, extent TOCSIN_IOTA_EXTENT */
    TOCSIN_ATOM_CALL,  /* operator `op` on relations `operands` (widened), output number `output` */
    TOCSIN_ATOM_DEFINED /* equal to the relation operands[0], of several terms or segments */
} tocsin_atom_kind;
#define TOCSIN_IOTA_EXTENT (INT64_C(1) << 48)

typedef struct tocsin_atom {
    uint8_t kind;
    bool logical; /* the logical plan has it */
    bool named;   /* DEFINED: a summand of logical sums (name.c) */
    uint8_t ndim;
    uint16_t output;
    uint32_t name;         /* INPUT: string of the universe; CALL: of the operator */
    uint32_t operator_key; /* CALL: interned (name, attributes, signature) */
    const int64_t *shape;
    const tocsin_relation_id *operands;
    uint32_t operand_count;
    uint32_t
        op; /* the logical plan's first op that makes it, TOCSIN_PLAN_NONE if foreign or input */
} tocsin_atom;

/* All atoms, relations and factors of one proof. Zero is not empty: _init. */
typedef struct tocsin_universe tocsin_universe;
tocsin_universe *tocsin_universe_new(void); /* NULL: out of memory */
void tocsin_universe_free(tocsin_universe *universe);
size_t tocsin_universe_relations(const tocsin_universe *universe);
/* Out of memory or over a limit at some time since _new? Operations then answer 0; look once. */
tocsin_status tocsin_universe_status(const tocsin_universe *universe, tocsin_error *error);
/* While true, what is made is logical: atoms are marked, and the ranges of digits are registered as
 * windows (below). */
void tocsin_universe_set_logical(tocsin_universe *universe, bool logical);
/* The logical plan, from which refusals take the names of operators; it must stay. */
void tocsin_universe_set_plan(tocsin_universe *universe, const tocsin_plan *logical);
/* How many values each symbol takes (0, as at first: not known). Sums over one symbol of ranges
 * that also move with the other are decided only when it is known. */
void tocsin_universe_set_sizes(tocsin_universe *universe, const int64_t size[TOCSIN_SYMBOL_COUNT]);

/* Strict: a sum of values that are partial each in its own way, and a product of partial values,
 * are refused where they occur, which shows where a reduction is missing. At first they are not,
 * and carry a box on an axis of their own (tocsin_universe_axis). */
void tocsin_universe_set_strict(tocsin_universe *universe, bool strict);
/* May such a value come about? That it did is remembered. */
bool tocsin_universe_is_lenient(tocsin_universe *universe);
bool tocsin_universe_was_lenient(const tocsin_universe *universe);

/* Naming (name.c): a long sum that is defined becomes a summand of others as that one term. At
 * first it does not. Has any sum done so? */
void tocsin_universe_set_naming(tocsin_universe *universe, bool naming);
bool tocsin_universe_was_named(const tocsin_universe *universe);
/* The relation as a summand: a long sum by its name, if it has one. 0: the universe has failed. */
tocsin_relation_id tocsin_relation_by_name(tocsin_universe *universe, tocsin_relation_id relation);

const tocsin_relation *tocsin_relation_get(const tocsin_universe *universe, tocsin_relation_id id);
const tocsin_atom *tocsin_atom_get(const tocsin_universe *universe, tocsin_atom_id id);

/* Why the last operation of the universe answered 0, for reports: a cause class and a sentence. */
typedef struct tocsin_refusal {
    int cause; /* tocsin_cause_class */
    char text[320];
} tocsin_refusal;
const tocsin_refusal *tocsin_universe_refusal(const tocsin_universe *universe);
tocsin_relation_id tocsin_universe_refuse(tocsin_universe *universe, int cause, const char *format,
                                          ...) TOCSIN_PRINTF(3, 4); /* returns 0 */

/* ---- factors (factor.c) ---------------------------------------------------------------------- */

/* numerator / denominator in lowest terms, or an opaque double. The number 0 is a factor, too:
 * terms that have it vanish. On overflow the universe fails with E_LIMIT (the id 0 is a valid
 * answer). A double becomes a rational when a fraction with denominator < 2^20 is within one ulp of
 * it, or when it is an integer < 2^53. */
tocsin_factor_id tocsin_factor_rational(tocsin_universe *universe, int64_t numerator,
                                        int64_t denominator);
tocsin_factor_id tocsin_factor_real(tocsin_universe *universe, double value);
tocsin_factor_id tocsin_factor_multiply(tocsin_universe *universe, tocsin_factor_id a,
                                        tocsin_factor_id b);
/* Sum, when both have the same opaque part; false: they must stay two terms. A zero sum sets *zero.
 */
bool tocsin_factor_add(tocsin_universe *universe, tocsin_factor_id a, tocsin_factor_id b,
                       tocsin_factor_id *sum, bool *zero);
tocsin_factor_id tocsin_factor_inverse(tocsin_universe *universe, tocsin_factor_id a);
void tocsin_factor_text(const tocsin_universe *universe, tocsin_factor_id factor,
                        tocsin_string *text); /* "1/2", "0.125", "3 * 0.70710678118654757" */
/* Has it no infinity and no NaN? */
bool tocsin_factor_is_finite(const tocsin_universe *universe, tocsin_factor_id factor);
bool tocsin_factor_is_rational(const tocsin_universe *universe, tocsin_factor_id factor,
                               int64_t *numerator, int64_t *denominator);

/* ---- atoms ------------------------------------------------------------------------------------
 */

tocsin_atom_id tocsin_atom_input(tocsin_universe *universe, const char *name, size_t bytes,
                                 const int64_t *shape, uint8_t ndim);
/* The input of that name, or 0. */
tocsin_atom_id tocsin_atom_find_input(const tocsin_universe *universe, const char *name,
                                      size_t bytes);
/* Intern (operator_key, operands, output). `shape` is used when it is new. `*made`: it is new. */
tocsin_atom_id tocsin_atom_call(tocsin_universe *universe, uint32_t operator_key, const char *name,
                                const tocsin_relation_id *operands, uint32_t operand_count,
                                uint16_t output, const int64_t *shape, uint8_t ndim, uint32_t op,
                                bool *made);
tocsin_atom_id tocsin_atom_find_call(const tocsin_universe *universe, uint32_t operator_key,
                                     const tocsin_relation_id *operands, uint32_t operand_count,
                                     uint16_t output);

/* ---- making relations (construct.c, normal_form.c) ------------------------------------------- */

/* The slice of an atom: dim d is [starts[d], starts[d] + shape[d]) of axis d. */
tocsin_relation_id tocsin_relation_slice_of(tocsin_universe *universe, tocsin_atom_id atom,
                                            const tocsin_affine *starts, const int64_t *shape);
/* All of an atom. */
tocsin_relation_id tocsin_relation_whole(tocsin_universe *universe, tocsin_atom_id atom);
tocsin_relation_id tocsin_relation_constant(tocsin_universe *universe, tocsin_factor_id value,
                                            bool zero, const int64_t *shape, uint8_t ndim);
tocsin_relation_id tocsin_relation_iota(tocsin_universe *universe, int64_t start, int64_t count,
                                        int64_t step); /* start + step * k, k < count */
/* One term, normalised and interned (what transfer rules build). */
tocsin_relation_id tocsin_relation_of_term(tocsin_universe *universe, const tocsin_term *term,
                                           const int64_t *shape, uint8_t ndim);
tocsin_relation_id tocsin_relation_of_terms(tocsin_universe *universe, const tocsin_term *terms,
                                            uint32_t count, const int64_t *shape, uint8_t ndim);

/* ---- structure (layout.c): exact, or 0 with a refusal ---------------------------------------- */

tocsin_relation_id tocsin_relation_view(tocsin_universe *universe, tocsin_relation_id relation,
                                        const int64_t *shape, uint8_t ndim);
tocsin_relation_id tocsin_relation_permute(tocsin_universe *universe, tocsin_relation_id relation,
                                           const uint8_t *dims);
/* New leading dims, and dims of size 1 repeated: torch.Tensor.expand with the full shape. */
tocsin_relation_id tocsin_relation_expand(tocsin_universe *universe, tocsin_relation_id relation,
                                          const int64_t *shape, uint8_t ndim);
tocsin_relation_id tocsin_relation_slice(tocsin_universe *universe, tocsin_relation_id relation,
                                         uint32_t dim, tocsin_affine start, int64_t count,
                                         int64_t step);
/* The dim vanishes; its index is pinned. */
tocsin_relation_id tocsin_relation_select(tocsin_universe *universe, tocsin_relation_id relation,
                                          uint32_t dim, int64_t index);
tocsin_relation_id tocsin_relation_cat(tocsin_universe *universe,
                                       const tocsin_relation_id *relations, uint32_t count,
                                       uint32_t dim);

/* ---- algebra (combination.c, symbol.c) ------------------------------------------------------- */

/* sum of factor_k * relation_k; shapes equal. `factors` NULL: all 1. Segmented ones are cut at
 * their common boundaries. */
tocsin_relation_id tocsin_relation_add(tocsin_universe *universe,
                                       const tocsin_relation_id *relations,
                                       const tocsin_factor_id *factors, uint32_t count);
tocsin_relation_id tocsin_relation_scale(tocsin_universe *universe, tocsin_relation_id relation,
                                         tocsin_factor_id factor);
/* Element-wise maximum of the same value's partial maxima (boxes of kind MAX joined), or of equal
 * relations; else refused. */
tocsin_relation_id tocsin_relation_join_max(tocsin_universe *universe,
                                            const tocsin_relation_id *relations, uint32_t count);

/* Symbols. `size` is how many values the symbol takes (0 .. size - 1). */
tocsin_relation_id tocsin_relation_fix(tocsin_universe *universe, tocsin_relation_id relation,
                                       int symbol, int64_t value);
/* The sum over all values of the symbol: a start in the box with weight = count widens its range to
 * [start at 0, count * size); without any dependence the factor grows by `size`; a dependence of
 * the map, or ranges with gaps or overlaps, is refused by name. */
tocsin_relation_id tocsin_relation_sum_over(tocsin_universe *universe, tocsin_relation_id relation,
                                            int symbol, int64_t size);
tocsin_relation_id tocsin_relation_max_over(tocsin_universe *universe, tocsin_relation_id relation,
                                            int symbol, int64_t size);
/* Concatenation along `dim` of the values of the symbol in order: a digit with weight = count
 * widens; without dependence it becomes a broadcast digit in front. */
tocsin_relation_id tocsin_relation_cat_over(tocsin_universe *universe, tocsin_relation_id relation,
                                            uint32_t dim, int symbol, int64_t size);
/* Concatenation of the relations in order, repeated for each value of the symbol: [r0(0) r1(0) ..
 * r0(1) r1(1) ..]. count = 1 is _cat_over. */
tocsin_relation_id tocsin_relation_cat_members_over(tocsin_universe *universe,
                                                    const tocsin_relation_id *relations,
                                                    uint32_t count, uint32_t dim, int symbol,
                                                    int64_t size);
/* The `size`-th part of dim that belongs to position `symbol value` (chunk by the own replica): the
 * start becomes affine in the symbol. position = offset + stride * symbol. */
tocsin_relation_id tocsin_relation_chunk_at(tocsin_universe *universe, tocsin_relation_id relation,
                                            uint32_t dim, uint32_t parts, tocsin_affine position);

/* ---- widening: from a slice to the logical operand (widen.c) --------------------------------- */

/* What a rank holds is a slice; the logical operator works on the whole. The *windows* of a digit
 * position (atom, axis, stride, extent) are the ranges that occur in logical relations: each digit
 * of a logical relation registers its (start, count); the whole extent is always one. Widening a
 * relation of one term replaces every digit's range by a window that contains it for all values of
 * the symbols, and the box by none; a dim that only repeats one element becomes size 1; the factor
 * stays. */
typedef struct tocsin_window {
    int64_t start, count;
} tocsin_window;

/* `choice` 0: the smallest windows that contain the ranges; 1: the whole extents; 2, 3, ...: other
 * combinations of windows, in a fixed order, at most 64 in all. 0 when there is no such choice (no
 * refusal is set), or when the relation has not exactly one term (refused). Choices 0 and 1 always
 * exist and may be equal. A dim whose bit is set in `keep_counts` keeps its size when it only
 * repeats one element. `windows` receives one entry per digit of the term's
 * dims (the pinned ones stay as they are), at most `limit`. With `size[s]` values of symbol s. */
tocsin_relation_id tocsin_relation_widen(tocsin_universe *universe, tocsin_relation_id relation,
                                         uint32_t choice, uint64_t keep_counts,
                                         const int64_t size[TOCSIN_SYMBOL_COUNT],
                                         tocsin_window *windows, uint32_t limit);

/* The *profile* of a dim: its digits relative to their windows, free of the atom: two dims, of
 * whatever atoms, run over the same range of the same logical axis exactly when extents and
 * profiles are equal. Adjacent digits that continue one another are merged across atom axes, so the
 * profile is canonical; digits of window count 1 vanish. Each entry has axis 0, its stride within
 * the logical dim, extent (the window's count), start relative to the window, count. Returns the
 * number of entries (a dim without digits, or of broadcast digits only: 0, a wildcard), at most
 * `limit`; *extent is the logical size of the dim (product of window counts; 0 for a wildcard). */
uint32_t tocsin_term_profile(const tocsin_term *term, const tocsin_window *windows, uint32_t dim,
                             tocsin_digit *profile, uint32_t limit, int64_t *extent);

/* ---- definitions (define.c) ------------------------------------------------------------------ */

/* Logical side: the relation of the atom that is defined as this relation (several terms or
 * segments, no box); the relation itself when it has one term. A sum that is a part of one defined
 * before, in whatever shape, is that part. */
tocsin_relation_id tocsin_relation_define(tocsin_universe *universe, tocsin_relation_id relation,
                                          const char *name, uint32_t op);
/* Parallel side: the part of a defined atom that this relation is, with the box and factor that all
 * its terms share taken out; the relation itself when it has one term; 0, refused, when there is
 * none
 * ("an unreduced or unknown sum of A and B"). A part is a slice, or, of a sum, a slice viewed or
 * permuted. Candidates are found by the set of atoms; where the part lies is guessed from a few
 * terms and then verified exactly, by cutting or composing the definition. */
tocsin_relation_id tocsin_relation_fold(tocsin_universe *universe, tocsin_relation_id relation,
                                        const int64_t size[TOCSIN_SYMBOL_COUNT]);
/* The same value may be a part of several definitions, smaller ones first; of one term, it is
 * itself and may be a part of a concatenation. Choice 0 is tocsin_relation_fold(); 0 when there is
 * no such choice (no refusal is set). */
tocsin_relation_id tocsin_relation_fold_again(tocsin_universe *universe,
                                              tocsin_relation_id relation, uint32_t choice,
                                              const int64_t size[TOCSIN_SYMBOL_COUNT]);

/* A contraction axis that no signature has, for boxes: its number by these bytes, which say what is
 * restricted and begin with the atom of the entry. 0: out of memory, or they are too many. */
uint16_t tocsin_universe_axis(tocsin_universe *universe, const void *key, size_t bytes);

/* ---- equality (settle.c) --------------------------------------------------------------------- */

/* Do the two have the same elements? Equal ids do; so do relations that differ but in the dims in
 * which digits of count 1 stand. */
bool tocsin_relation_same_value(tocsin_universe *universe, tocsin_relation_id a,
                                tocsin_relation_id b);
/* Other relations of the same value of one term: slices of logical relations, which may have digits
 * of count 1 in other dims (realign.c). Returns how many, at most `limit`; the relation itself is
 * not among them. For the parallel side only. */
uint32_t tocsin_relation_realign(tocsin_universe *universe, tocsin_relation_id relation,
                                 const int64_t size[TOCSIN_SYMBOL_COUNT], tocsin_relation_id *forms,
                                 uint32_t limit);
/* Is it, of one term, a slice of a logical relation? */
bool tocsin_relation_is_logical_slice(tocsin_universe *universe, tocsin_relation_id relation,
                                      const int64_t size[TOCSIN_SYMBOL_COUNT]);
/* A concatenation of slices that are one slice of a logical relation, as that; else itself. */
tocsin_relation_id tocsin_relation_realign_pieces(tocsin_universe *universe,
                                                  tocsin_relation_id relation,
                                                  const int64_t size[TOCSIN_SYMBOL_COUNT]);

/* ---- text (relation_text.c) ---------------------------------------------------------------------
 */

/* "linear47[0:128, 0:4096] partial k in [0,5504) of 11008", terms joined by " + ", at most
 * `limit_bytes`. Names: atoms of logical ops by the plan's label, inputs by name. */
void tocsin_relation_text(const tocsin_universe *universe, const tocsin_plan *logical,
                          tocsin_relation_id relation, tocsin_string *text, size_t limit_bytes);
void tocsin_atom_text(const tocsin_universe *universe, const tocsin_plan *logical,
                      tocsin_atom_id atom, tocsin_string *text);

#endif
