/* certify/certify.h - the inside of the certificate checker. The one header of the module.
 *
 *   certificate_read.c  the text into tables of atoms and relations, and facts
 *   number.c            exact factors
 *   linear_form.c       indices as linear forms over coordinates, and their division
 *   evaluation.c        a relation at an index: a sum of entries; equality of such sums
 *   box_sum.c           equality of sums of boxes
 *   local_rule.c        operators that are exact knowledge: linear combinations, constants, with
 *                       structure_rule.c and sum_rule.c; named_rule.c: how the others are called
 *   call_rule.c         operators of which only their axis signature is known
 *   lookup_rule.c       look-ups in a shard of a table's rows, behind a mask
 *   exchange_rule.c     collectives and accumulation
 *   replay.c            the schedule: what meets, what is read when
 *   certify.c           the public call, inputs and outputs
 *
 * The method. An *index* of a local tensor is a vector of linear forms over *coordinates*: integers
 * that run from 0 to a size. Two coordinates are the replica and the micro-batch; one more for each
 * dim. A relation at an index is a formal sum of entries: factor times atom at an index, restricted
 * to a box. Evaluating may need an index's quotient by some number: where that is no linear form,
 * the coordinate at fault is split in two by a radix, or its range is cut in two, and both halves
 * are judged (*cells*). When it is done, both sides are linear forms over one cell, and two such
 * sums are equal for all points of the cell if they are equal as formal sums. Nothing is sampled.
 */
#ifndef TOCSIN_CERTIFY_CERTIFY_H
#define TOCSIN_CERTIFY_CERTIFY_H

#include <tocsin/certify.h>

#include "base/base.h"
#include "plan/plan.h"

/* ---- numbers (number.c) -------------------------------------------------------------------------
 */

enum { CERTIFY_OPAQUE_MAX = 12 };

/* numerator / denominator * 2^two * product of opaque constants to powers. Odd and in lowest terms;
 * zero has all fields 0 but the denominator. */
typedef struct certify_number {
    int64_t numerator, denominator, two;
    uint32_t opaque_count;
    struct {
        uint64_t bits; /* of a double in [1, 2) */
        int64_t exponent;
    } opaque[CERTIFY_OPAQUE_MAX]; /* ascending by bits */
} certify_number;

certify_number certify_integer(int64_t value);
/* What a constant in a plan means: the page says it. false: not finite. */
bool certify_real(double value, certify_number *number);
bool certify_multiply(const certify_number *a, const certify_number *b, certify_number *product);
bool certify_inverse(const certify_number *a, certify_number *inverse); /* a != 0 */
/* Only of numbers with the same opaque part. false: too large. */
bool certify_add(const certify_number *a, const certify_number *b, certify_number *sum);
int certify_compare_opaque(const certify_number *a, const certify_number *b);
bool certify_equal(const certify_number *a, const certify_number *b);
static inline bool certify_is_zero(const certify_number *a)
{
    return a->numerator == 0;
}

/* ---- what the certificate says (certificate_read.c) ------------------------------------------ */

enum {
    CERTIFY_NDIM_MAX = TOCSIN_PLAN_NDIM_MAX,
    CERTIFY_DIGITS_MAX = 64, /* of one term */
    CERTIFY_BOX_MAX = 64     /* entries of one box */
};
#define CERTIFY_BROADCAST UINT32_MAX
#define CERTIFY_SIZE_MAX                                                                           \
    (INT64_C(1) << 48) /* of an axis; the numbers 0, 1, 2, ... have so many                        \
                        */

typedef struct certify_digit {
    uint32_t axis; /* of the atom, or CERTIFY_BROADCAST */
    int64_t stride, extent, count;
    tocsin_affine start;
} certify_digit;

typedef struct certify_range { /* of a contraction axis */
    uint32_t atom, axis;
    bool maximum; /* a partial maximum, not a partial sum */
    int64_t stride, extent, count;
    tocsin_affine start;
} certify_range;

typedef struct certify_term {
    certify_number factor;
    uint32_t atom;
    uint32_t first_digit; /* into digits: those of dim 0, of dim 1, ..., the pinned ones */
    uint8_t digits[CERTIFY_NDIM_MAX], pinned;
    uint32_t first_range, range_count;
} certify_term;

typedef struct certify_relation {
    uint8_t ndim;
    bool joined;
    uint8_t join_dim;
    uint32_t first_size;        /* into sizes */
    uint32_t first_part, count; /* into terms; joined: into parts, which are relations */
} certify_relation;

typedef enum certify_atom_kind {
    CERTIFY_ONE,
    CERTIFY_IOTA,
    CERTIFY_INPUT,
    CERTIFY_DEFINED,
    CERTIFY_CALL
} certify_atom_kind;

typedef struct certify_atom {
    uint8_t kind, ndim;
    uint32_t output;
    uint32_t text; /* INPUT: its name; CALL: the operator. Into texts */
    uint32_t first_size;
    uint32_t first_operand, operand_count; /* into parts */
} certify_atom;

/* Relation ids of the values of one unit (and micro-batch). */
typedef struct certify_facts {
    uint32_t first; /* into cells */
} certify_facts;

typedef struct certify_claim {
    uint32_t unit, slot, output, relation;
} certify_claim;

typedef struct certificate {
    tocsin_hash128 digest[2]; /* logical, parallel */
    bool each_replica, each_microbatch;
    TOCSIN_VEC(certify_atom) atoms;         /* id - 1 */
    TOCSIN_VEC(certify_relation) relations; /* id - 1 */
    TOCSIN_VEC(certify_term) terms;
    TOCSIN_VEC(certify_digit) digits;
    TOCSIN_VEC(certify_range) ranges;
    TOCSIN_VEC(int64_t) sizes;
    TOCSIN_VEC(uint32_t) parts;
    TOCSIN_VEC(uint32_t) cells;
    TOCSIN_VEC(certify_facts) facts[2]; /* [unit * slots + slot] */
    TOCSIN_VEC(certify_claim) claims;
    tocsin_intern texts;
    uint64_t unknown;
    uint64_t symbol_size[TOCSIN_SYMBOL_COUNT]; /* 1 when enumerated */
} certificate;

/* Errors: E_FORMAT, E_VERSION, E_LIMIT, E_MEMORY. Free with certificate_free, also after a failure.
 */
tocsin_status certificate_read(const char *text, size_t bytes, const char *name,
                               const tocsin_plan *logical, const tocsin_plan *parallel,
                               certificate *into, tocsin_error *error);
void certificate_free(certificate *one);

/* ---- linear forms (linear_form.c) ------------------------------------------------------------ */

enum { CERTIFY_PARTS_MAX = 14, CERTIFY_COORDINATES_MAX = 96 };

/* base + sum of weight * coordinate; sorted by coordinate, no weight is 0. */
typedef struct certify_form {
    int64_t base;
    uint32_t count;
    struct {
        uint32_t coordinate;
        int64_t weight;
    } part[CERTIFY_PARTS_MAX];
} certify_form;

/* The sizes of all coordinates at hand. One of size 1 is 0 and never occurs in a form. */
typedef struct certify_space {
    uint32_t count;
    int64_t size[CERTIFY_COORDINATES_MAX];
} certify_space;

typedef enum certify_outcome {
    CERTIFY_DONE,
    CERTIFY_DIFFERENT,
    CERTIFY_REFINE,  /* the cell is too coarse: see certify_refinement */
    CERTIFY_UNCLEAR, /* beyond what this checker understands */
    CERTIFY_FAILED   /* out of memory */
} certify_outcome;

typedef struct certify_refinement {
    uint32_t coordinate;
    bool cut; /* [0, value) and [value, size); else split into a quotient and a rest by `value` */
    int64_t value;
} certify_refinement;

certify_form certify_constant(int64_t value);
certify_form certify_coordinate(const certify_space *space, uint32_t coordinate);
/* to += weight * form; false: too many parts or too large. */
bool certify_form_add(certify_form *to, const certify_form *form, int64_t weight);
int certify_form_compare(const certify_form *a, const certify_form *b);
bool certify_form_range(const certify_space *space, const certify_form *form, int64_t *least,
                        int64_t *most);
/* form = divisor * quotient + rest, 0 <= rest < divisor for all points. */
certify_outcome certify_divide(const certify_space *space, const certify_form *form,
                               int64_t divisor, certify_form *quotient, certify_form *rest,
                               certify_refinement *refinement);
/* Is the form below the boundary for all points (*below), or for none? Else REFINE. */
certify_outcome certify_side(const certify_space *space, const certify_form *form, int64_t boundary,
                             bool *below, certify_refinement *refinement);
/* Put `with` for the coordinate. */
bool certify_substitute(certify_form *form, uint32_t coordinate, const certify_form *with);

/* ---- evaluation (evaluation.c) --------------------------------------------------------------- */

typedef struct certify_span { /* a range in a box, at a point */
    uint32_t atom, axis;
    bool maximum;
    int64_t stride, extent, count;
    certify_form start;
} certify_span;

enum { CERTIFY_SUMS_MAX = 12 };
/* A summed coordinate: the entry stands for the sum over 0 <= k < count of the atom at the index
 * plus k * weight. */
typedef struct certify_sum {
    int64_t count;
    int64_t weight[CERTIFY_NDIM_MAX];
} certify_sum;

typedef struct certify_entry {
    certify_number factor;
    uint32_t atom;
    uint32_t span_count, sum_count;
    certify_form *index; /* one per axis of the atom */
    certify_span *spans; /* sorted */
    certify_sum *sums;   /* sorted, merged */
} certify_entry;

typedef TOCSIN_VEC(certify_entry) certify_bag;

typedef struct certify_checker {
    const certificate *certificate;
    const tocsin_plan *plan[2];
    int side; /* of the step being checked: 0 logical, 1 parallel */
    certify_space space;
    certify_refinement refinement;
    certify_form symbol[TOCSIN_SYMBOL_COUNT]; /* the replica and the micro-batch of the point */
    bool expand;                              /* defined atoms become their definitions */
    tocsin_arena arena;                       /* entries of the comparison at hand */
    certify_bag bag;
    tocsin_signature table_signatures[TOCSIN_OPERATOR_COUNT];
    uint64_t facts;
    char why[256]; /* of the last DIFFERENT or UNCLEAR */
} certify_checker;

certify_outcome certify_unclear(certify_checker *checker, const char *format, ...)
    TOCSIN_PRINTF(2, 3);
certify_outcome certify_different(certify_checker *checker, const char *format, ...)
    TOCSIN_PRINTF(2, 3);

static inline const int64_t *certify_shape(const certify_checker *checker, uint32_t relation)
{
    const certificate *from = checker->certificate;
    return from->sizes.items + from->relations.items[relation - 1].first_size;
}
static inline uint32_t certify_ndim(const certify_checker *checker, uint32_t relation)
{
    return checker->certificate->relations.items[relation - 1].ndim;
}
static inline const certify_atom *certify_atom_of(const certify_checker *checker, uint32_t atom)
{
    return &checker->certificate->atoms.items[atom - 1];
}

/* Append scale * relation at the index to the bag; every entry with these spans too. */
certify_outcome certify_evaluate(certify_checker *checker, uint32_t relation,
                                 const certify_form *index, const certify_number *scale,
                                 const certify_span *spans, uint32_t span_count);
/* The ranges of a term at the point at hand, in the arena, sorted; then `more`. */
certify_outcome certify_spans_of(certify_checker *checker, const certify_term *term,
                                 const certify_span *more, uint32_t more_count,
                                 certify_span **spans, uint32_t *count);
/* Append the sum of the relation over `count` coordinates, which are the newest of the space. The
 * index may name them; they are gone afterwards. */
certify_outcome certify_evaluate_sum(certify_checker *checker, uint32_t relation,
                                     const certify_form *index, const certify_number *scale,
                                     const certify_span *spans, uint32_t span_count,
                                     uint32_t count);
/* A coordinate of this size, the newest; the constant 0 for size 1. */
certify_outcome certify_new_coordinate(certify_checker *checker, int64_t size, certify_form *form);
/* Merge equal entries of the bag from `first` on; those with factor 0 vanish. */
certify_outcome certify_merge(certify_checker *checker, size_t first);

/* A claim over all indices: the function appends claimed - actual at the given index, which is one
 * form per size; the claim holds if that is nothing, everywhere. */
typedef certify_outcome certify_difference(certify_checker *checker, const void *context,
                                           const certify_form *index);
certify_outcome certify_everywhere(certify_checker *checker, const int64_t *sizes, uint32_t count,
                                   certify_difference *difference, const void *context);

/* The digits of a contraction axis of `extent` that spans leave: what `atom`'s `axis` runs over is
 * the sum of stride * (start + digit), 0 <= digit < count, innermost first. */
enum { CERTIFY_PIECES_MAX = 24 };
typedef struct certify_piece {
    int64_t stride, count;
    certify_form start;
} certify_piece;
certify_outcome certify_pieces(certify_checker *checker, const certify_span *spans,
                               uint32_t span_count, uint32_t atom, uint32_t axis, bool maximum,
                               int64_t extent, certify_piece pieces[CERTIFY_PIECES_MAX],
                               uint32_t *count);

/* ---- boxes (box_sum.c) ----------------------------------------------------------------------- */

/* Is the sum of these entries, alike but for factor and box, nothing? */
certify_outcome certify_boxes_cancel(certify_checker *checker, const certify_entry *entries,
                                     size_t count);
/* Do the first `one` entries, partial maxima, cover together what the others do? */
certify_outcome certify_boxes_cover(certify_checker *checker, const certify_entry *entries,
                                    size_t one, size_t count);

/* ---- one execution (local_rule.c, call_rule.c) ----------------------------------------------- */

typedef struct certify_step {
    const tocsin_plan *plan;
    const tocsin_plan_op *op;
    const uint32_t *inputs, *outputs; /* relations; an output may be 0, of which nothing is said */
    uint8_t from_dtype, to_dtype;     /* of the first input and output */
} certify_step;

/* Do the outputs follow from the inputs? Not for communication and accumulation. */
certify_outcome certify_local(certify_checker *checker, const certify_step *step);

/* An operator known by its signature: output `output` is the operator `key` on these operands.
 * `transposed`: the last two dims of operand 1 stand the other way round. */
typedef struct certify_call {
    const certify_step *step;
    const tocsin_signature *signature;
    const char *key;
    uint32_t output;
    uint16_t linear; /* in these inputs */
    bool transposed;
    bool maximum;   /* contracted axes make a partial maximum */
    bool scattered; /* gradients behind a mask, by a masked index, into rows [low, high) */
    int64_t low, high;
    bool divides; /* operand 1 is divided by: the product is with its reciprocal */
} certify_call;
certify_outcome certify_congruent(certify_checker *checker, const certify_call *call);
/* The text by which atoms name an operator that has its own kind. */
void certify_kind_text(const tocsin_plan *plan, const tocsin_plan_op *op, tocsin_string *text);

/* ---- look-ups behind masks (lookup_rule.c) */

/* The bounds of an atom called NAME:LOW:HIGH. */
bool certify_masked_bounds(const certify_checker *checker, uint32_t atom, const char *name,
                           int64_t *low, int64_t *high);
/* The one entry that the relation is at this index; not added to the bag. Not expanded. */
certify_outcome certify_single(certify_checker *checker, uint32_t relation,
                               const certify_form *index, certify_entry *entry);
/* Append what the mask compares with `bound`, below or from it on. */
certify_outcome certify_mask_operand(certify_checker *checker, uint32_t mask,
                                     const certify_form *index, uint32_t count, bool above,
                                     int64_t bound);
/* *mine: the claim is one of these look-ups, and the outcome says whether it holds. */
certify_outcome certify_masked_fill(certify_checker *checker, const certify_step *step, bool *mine);
certify_outcome certify_unmasked_rows(certify_checker *checker, const certify_step *step,
                                      bool *mine);
/* Append what was masked: the gradient, or the index. */
certify_outcome certify_unmasked(certify_checker *checker, uint32_t relation,
                                 const certify_form *index, bool gradient, int64_t low,
                                 int64_t high);
certify_outcome certify_gradient_mask(certify_checker *checker, uint32_t gradient,
                                      const certify_form *index, bool above, int64_t bound);
/* Is the relation one constant everywhere? (local_rule.c) */
bool certify_is_constant(const certify_checker *checker, uint32_t relation, certify_number *value);
/* Append minus this constant. */
certify_outcome certify_subtract_integer(certify_checker *checker, int64_t value);

/* ---- communication (exchange_rule.c) --------------------------------------------------------- */

/* One collective: relations by position. `over_replicas`: each member stands for all replicas. */
typedef struct certify_exchange {
    const tocsin_plan *plan;
    const tocsin_plan_op *op; /* of the first member */
    uint32_t count;
    bool over_replicas;
    const uint32_t *inputs, *outputs;
} certify_exchange;
certify_outcome certify_collective(certify_checker *checker, const certify_exchange *exchange);

/* out = the sum of these, each at one micro-batch (-1: its own) times the factor. */
typedef struct certify_addend {
    uint32_t relation;
    int64_t fixed[TOCSIN_SYMBOL_COUNT]; /* -1: not fixed */
} certify_addend;
certify_outcome certify_total(certify_checker *checker, uint32_t out, const certify_addend *addends,
                              size_t count, const certify_number *factor);
/* Are two relations equal? */
certify_outcome certify_same(certify_checker *checker, uint32_t one, uint32_t other);

/* One value for a symbol of a start; false: too large. */
static inline bool certify_fix(tocsin_affine *start, int symbol, int64_t value)
{
    int64_t shift;
    const bool fits = !__builtin_mul_overflow(start->weight[symbol], value, &shift) &&
                      !__builtin_add_overflow(start->base, shift, &start->base);
    start->weight[symbol] = 0;
    return fits;
}
/* Is `one` the slice of `other` (0: of the atom) that begins at these starts? */
certify_outcome certify_slice(certify_checker *checker, uint32_t one, uint32_t other, uint32_t atom,
                              const tocsin_affine *starts);

/* ---- attributes ------------------------------------------------------------------------------ */

int64_t certify_integer_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                           int64_t otherwise);
double certify_real_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                       double otherwise);
const char *certify_text_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                            const char *otherwise);
const int64_t *certify_list_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                               uint32_t *count);
/* A dim of an ndim-dimensional value; -1: out of range. */
int certify_dim(int64_t dim, uint32_t ndim);

/* ---- the schedule (replay.c) ----------------------------------------------------------------- */

/* Replay one side and check every step. DIFFERENT or UNCLEAR: `text` says where and why. */
certify_outcome certify_replay(certify_checker *checker, int side, char *text, size_t text_bytes);
/* The relation of a value; 0: nothing is known. */
uint32_t certify_value(const certificate *from, const tocsin_plan *plan, int side, uint32_t unit,
                       uint32_t slot, uint32_t value);

#endif
