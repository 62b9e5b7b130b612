/* plan/operators.h - the operator table: every operator's name, rule and axis signature, once.
 *
 * A *signature* says which axes of the operands are the same and what happens to them:
 *
 *     linear: x[... k+] w[n k+] -> [... n]          sdpa: q[b h s d^] k[b h t^ d^] v[b h t^ e] ->
 * [b h s e]
 *
 * Words in brackets are axes of one operand, outermost first; a name before a bracket is for the
 * reader's eye. The same axis name in two operands binds them to the same index range.
 *   k+   summed over (contraction): a range of it gives a partial sum
 *   k^   must be whole: the operator couples its elements in a way that is not a sum
 *   k    free: element i of the output depends on element i of the input alone; an input axis that
 *        no output has and that carries no mark is one that the operator declares not to depend on
 *   1    size 1 (broadcast, or removed)        _   any size, must be whole, bound to nothing
 *   ...  any number of leading free axes, aligned at their right ends, sizes 1 broadcast
 * After the outputs, words: `linear=0,1` (operands in which the operator is linear: a sum may be
 * drawn out of one of them at a time), `commutative` (its operands may be swapped).
 *
 * Rules (X's third column) are what the prover knows how to do with an operator:
 *   CONGRUENCE  equal operands give equal results; the signature says how slices and partial sums
 *               of the operands show in the result. Everything nonlinear, and all contractions.
 *   otherwise   exact knowledge, in lib/prove/{transfer,lookup,collective}.c: structure (views,
 *               slices, joins), linear combinations, constants, table look-ups, collectives.
 */
#ifndef TOCSIN_PLAN_OPERATORS_H
#define TOCSIN_PLAN_OPERATORS_H

#include "base/base.h"

/* X(CODE, "name", RULE, inputs (-1: any number >= 1), outputs, "signature")
 *
 * Attributes by operator (integers unless said; `?`: may be left out; the list is in
 * operator_attributes.c):
 *   view shape=[...]?                          permute dims=[...]        expand shape=[...]?
 *   slice dim start end step?(1)               cat dim                   stack dim
 *   pad dim before after (zeros)               select dim index          unbind dim
 *   split dim sizes=[...]                      scale factor (real)       add_scalar value (real)
 *   sum dims=[...] keepdim?(0)                 mean, amax likewise       softmax dim
 *   full value (real) shape=[...]?             arange start end step?(1) pow exponent (real)
 *   add alpha? (real, 1; of the last term)     masked_fill value (real)  cast dtype? (word)
 *   embedding_backward rows                    all_reduce op=sum|avg|max|min
 *   all_gather dim                             reduce_scatter dim op=sum|avg
 *   all_to_all split_dim join_dim              broadcast root (index in the group)
 *   send peer tag?(0) blocking?(0)             recv peer tag?(0) (peer: device)
 * A real may be written as an integer. Dims count from 0, outermost first. `view`'s and `expand`'s
 * shapes are local; collectives act within the op's group. A collective of asynchronous kind
 * carries async=1 and its result is read after a `wait`; buffer=WORD names memory that its result
 * shares with others. A send with blocking=1 waits for its receive. Operators of the rule
 * CONGRUENCE may have further attributes, which belong to their identity; others may not. */
#define TOCSIN_OPERATOR_TABLE(X)                                                                   \
    X(CALL, "call", CONGRUENCE, -1, -1, "") /* any operator with a signature of its own */         \
    /* structure */                                                                                \
    X(IDENTITY, "identity", IDENTITY, 1, 1, "")                                                    \
    X(CAST, "cast", IDENTITY, 1, 1, "")                                                            \
    X(WAIT, "wait", IDENTITY, 1, 1, "")                                                            \
    X(COPIES, "copies", COPIES, 1, -1, "") /* multiref: the same value under several names */      \
    X(VIEW, "view", VIEW, 1, 1, "")                                                                \
    X(PERMUTE, "permute", PERMUTE, 1, 1, "")                                                       \
    X(EXPAND, "expand", EXPAND, 1, 1, "")                                                          \
    X(SLICE, "slice", SLICE, 1, 1, "")                                                             \
    X(SELECT, "select", SELECT, 1, 1, "")                                                          \
    X(SPLIT, "split", SPLIT, 1, -1, "")                                                            \
    X(UNBIND, "unbind", UNBIND, 1, -1, "")                                                         \
    X(CAT, "cat", CAT, -1, 1, "")                                                                  \
    X(STACK, "stack", STACK, -1, 1, "")                                                            \
    X(PAD, "pad", PAD, 1, 1, "")                                                                   \
    /* linear combinations */                                                                      \
    X(ADD, "add", ADD, -1, 1, "") /* broadcasting; any number of terms */                          \
    X(SUBTRACT, "sub", SUBTRACT, 2, 1, "")                                                         \
    X(NEGATE, "neg", NEGATE, 1, 1, "")                                                             \
    X(SCALE, "scale", SCALE, 1, 1, "")                                                             \
    X(ADD_SCALAR, "add_scalar", ADD_SCALAR, 1, 1, "")                                              \
    X(SUM, "sum", SUM, 1, 1, "")                                                                   \
    X(MEAN, "mean", MEAN, 1, 1, "")                                                                \
    X(ACCUMULATE, "accumulate", ACCUMULATE, 1, 1, "") /* output += input, over micro-batches */    \
    /* constants */                                                                                \
    X(FULL, "full", FULL, 0, 1, "")                                                                \
    X(ARANGE, "arange", ARANGE, 0, 1, "")                                                          \
    /* contractions and element-wise operators */                                                  \
    X(LINEAR, "linear", LINEAR, 2, 1, "x[... k+] w[n k+] -> [... n] linear=0,1")                   \
    X(MM, "mm", MATMUL, 2, 1, "a[m k+] b[k+ n] -> [m n] linear=0,1")                               \
    X(BMM, "bmm", MATMUL, 2, 1, "a[b m k+] b[b k+ n] -> [b m n] linear=0,1")                       \
    X(MATMUL, "matmul", MATMUL, 2, 1, "a[... m k+] b[... k+ n] -> [... m n] linear=0,1")           \
    X(MULTIPLY, "mul", MULTIPLY, 2, 1, "[...] [...] -> [...] linear=0,1 commutative")              \
    X(DIVIDE, "div", DIVIDE, 2, 1, "") /* a * reciprocal(b) */                                     \
    X(RECIPROCAL, "reciprocal", RECIPROCAL, 1, 1, "[...] -> [...]")                                \
    X(POWER, "pow", POWER, 1, 1, "[...] -> [...]")                                                 \
    X(SQUARE_ROOT, "sqrt", CONGRUENCE, 1, 1, "[...] -> [...]")                                     \
    X(RSQRT, "rsqrt", CONGRUENCE, 1, 1, "[...] -> [...]")                                          \
    X(EXP, "exp", CONGRUENCE, 1, 1, "[...] -> [...]")                                              \
    X(LOG, "log", CONGRUENCE, 1, 1, "[...] -> [...]")                                              \
    X(SIN, "sin", CONGRUENCE, 1, 1, "[...] -> [...]")                                              \
    X(COS, "cos", CONGRUENCE, 1, 1, "[...] -> [...]")                                              \
    X(TANH, "tanh", CONGRUENCE, 1, 1, "[...] -> [...]")                                            \
    X(SIGMOID, "sigmoid", CONGRUENCE, 1, 1, "[...] -> [...]")                                      \
    X(SILU, "silu", CONGRUENCE, 1, 1, "[...] -> [...]")                                            \
    X(RELU, "relu", CONGRUENCE, 1, 1, "[...] -> [...]")                                            \
    X(GELU, "gelu", CONGRUENCE, 1, 1, "[...] -> [...]")                                            \
    X(ABSOLUTE, "abs", CONGRUENCE, 1, 1, "[...] -> [...]")                                         \
    X(CLAMP, "clamp", CONGRUENCE, 1, 1, "[...] -> [...]")                                          \
    X(MAXIMUM, "maximum", CONGRUENCE, 2, 1, "[...] [...] -> [...] commutative")                    \
    X(MINIMUM, "minimum", CONGRUENCE, 2, 1, "[...] [...] -> [...] commutative")                    \
    X(EQUAL, "eq", CONGRUENCE, 2, 1, "[...] [...] -> [...] commutative")                           \
    X(NOT_EQUAL, "ne", CONGRUENCE, 2, 1, "[...] [...] -> [...] commutative")                       \
    X(LESS, "lt", CONGRUENCE, 2, 1, "[...] [...] -> [...]")                                        \
    X(LESS_EQUAL, "le", CONGRUENCE, 2, 1, "[...] [...] -> [...]")                                  \
    X(GREATER, "gt", CONGRUENCE, 2, 1, "[...] [...] -> [...]")                                     \
    X(GREATER_EQUAL, "ge", CONGRUENCE, 2, 1, "[...] [...] -> [...]")                               \
    X(AND, "and", CONGRUENCE, 2, 1, "[...] [...] -> [...] commutative")                            \
    X(OR, "or", CONGRUENCE, 2, 1, "[...] [...] -> [...] commutative")                              \
    X(NOT, "not", CONGRUENCE, 1, 1, "[...] -> [...]")                                              \
    X(WHERE, "where", WHERE, 3, 1, "[...] [...] [...] -> [...]")                                   \
    X(MASKED_FILL, "masked_fill", MASKED_FILL, 2, 1, "[...] [...] -> [...]")                       \
    X(AMAX, "amax", AMAX, 1, 1, "")                                                                \
    X(SOFTMAX, "softmax", SOFTMAX, 1, 1, "")                                                       \
    X(EMBEDDING, "embedding", EMBEDDING, 2, 1, "") /* table, indices */                            \
    /* gradient, indices */                                                                        \
    X(EMBEDDING_BACKWARD, "embedding_backward", EMBEDDING_BACKWARD, 2, 1, "")                      \
    X(TRIANGLE, "triangle", CONGRUENCE, 1, 1, "[... r^ c^] -> [... r^ c^] linear=0")               \
    /* collectives and point-to-point */                                                           \
    X(ALL_REDUCE, "all_reduce", ALL_REDUCE, 1, 1, "")                                              \
    X(ALL_GATHER, "all_gather", ALL_GATHER, 1, 1, "")                                              \
    X(REDUCE_SCATTER, "reduce_scatter", REDUCE_SCATTER, 1, 1, "")                                  \
    X(ALL_TO_ALL, "all_to_all", ALL_TO_ALL, 1, 1, "")                                              \
    X(BROADCAST, "broadcast", BROADCAST, -1, 1, "") /* input at the root; others may have none */  \
    X(SEND, "send", SEND, 1, 0, "")                                                                \
    X(RECV, "recv", RECV, 0, 1, "")                                                                \
    X(BARRIER, "barrier", BARRIER, 0, 0, "")

typedef enum tocsin_operator_code {
#define X(code, name, rule, inputs, outputs, signature) TOCSIN_OPERATOR_##code,
    TOCSIN_OPERATOR_TABLE(X)
#undef X
        TOCSIN_OPERATOR_COUNT
} tocsin_operator_code;

typedef struct tocsin_operator {
    const char *name;
    int8_t input_count; /* -1: any number */
    int8_t output_count;
    const char *signature; /* "" when the rule is exact, or the op brings its own */
} tocsin_operator;

extern const tocsin_operator tocsin_operators[TOCSIN_OPERATOR_COUNT];
/* The code of `name`, or TOCSIN_OPERATOR_COUNT. */
tocsin_operator_code tocsin_operator_from_name(const char *name, size_t bytes);
/* Does the op talk to other ranks? */
static inline bool tocsin_operator_communicates(tocsin_operator_code code)
{
    return code >= TOCSIN_OPERATOR_ALL_REDUCE && code <= TOCSIN_OPERATOR_BARRIER;
}

/* Are its outputs other names of its input's memory, of which it reads nothing? */
bool tocsin_operator_is_alias(tocsin_operator_code code);

/* What is left of a number after a cast, rounding aside. */
typedef enum tocsin_cast_kind {
    TOCSIN_CAST_ALL,     /* a wider dtype, or one as wide, or one is unknown */
    TOCSIN_CAST_TRUTH,   /* to bool: is it 0? */
    TOCSIN_CAST_INTEGER, /* to integers: without the fraction */
    TOCSIN_CAST_REAL     /* of a complex number */
} tocsin_cast_kind;
tocsin_cast_kind tocsin_cast_kind_of(uint8_t from, uint8_t to); /* dtypes */

/* ---- a parsed signature ---------------------------------------------------------------------- */

enum { TOCSIN_SIGNATURE_OPERANDS_MAX = 16, TOCSIN_SIGNATURE_AXES_MAX = 24 };
enum { TOCSIN_AXIS_ONE = -1, TOCSIN_AXIS_ANY = -2 }; /* `1` and `_` */

typedef struct tocsin_signature_operand {
    bool ellipsis; /* begins with ... */
    uint8_t ndim;  /* without the ellipsis */
    int8_t axis[12];
} tocsin_signature_operand;

typedef struct tocsin_signature {
    tocsin_signature_operand operands[TOCSIN_SIGNATURE_OPERANDS_MAX]; /* inputs, then outputs */
    uint8_t input_count, output_count, axis_count;
    bool commutative;
    uint16_t linear;                            /* bit i: linear in input i */
    bool contracted[TOCSIN_SIGNATURE_AXES_MAX]; /* + */
    bool whole[TOCSIN_SIGNATURE_AXES_MAX];      /* ^ */
    char axis_name[TOCSIN_SIGNATURE_AXES_MAX][12];
    const char *text; /* canonical: two signatures that mean the same have the same text, however
                         their axes are called; owned by whoever interned it */
} tocsin_signature;

/* Parse one (its `text` is NULL then). E_FORMAT with the offset in `text`, E_LIMIT. A mark anywhere
 * on an axis holds for the axis. */
tocsin_status tocsin_signature_parse(const char *text, size_t bytes, tocsin_signature *signature,
                                     tocsin_error *error);
/* Append the signature: with its own names of axes, or with canonical ones (a, b, c, ... in order
 * of appearance). Either parses back to the same signature. */
void tocsin_signature_write(const tocsin_signature *signature, bool canonical, tocsin_string *text);

#endif
