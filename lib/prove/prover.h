/* prove/prover.h - the state of one proof, and what the files of the module share.
 *
 *   transfer.c    the relation of an operator's outputs from those of its inputs (rules, memo),
 *                 with structure.c, reduce.c and lookup.c for families of operators
 *   congruence.c  the one generic rule, driven by axis signatures
 *   collective.c  the rules of collectives on declared ordered groups
 *   execute.c     runs the logical plan, then every role of the parallel plan, over relations
 *   compare.c     the outputs against the logical ones
 *   localise.c    from wrong outputs back to the first wrong operators
 *   verify.c      the public call: tiers, verdict, coverage, result
 *
 * Data flows one way: plans -> execute (transfer -> congruence -> universe) -> compare -> localise.
 */
#ifndef TOCSIN_PROVE_PROVER_H
#define TOCSIN_PROVE_PROVER_H

#include <tocsin/verify.h>

#include "prove/slice_relation.h"

typedef enum tocsin_side { TOCSIN_LOGICAL, TOCSIN_PARALLEL } tocsin_side;

/* A kind of operator: what two executions share whose equal operands give equal results. Kinds are
 * interned over both plans by name, attributes and signature; `key` of an atom is its number. */
typedef struct tocsin_kind {
    uint16_t code; /* tocsin_operator_code */
    const char *name;
    const tocsin_plan *plan; /* whose attribute sets `attributes` indexes */
    uint32_t attributes;
    const tocsin_signature
        *signature; /* of a CALL or a CONGRUENCE of the table; NULL: none known */
} tocsin_kind;

/* Operator executions seen before: words of the key, then the outputs. */
typedef struct tocsin_memo {
    uint64_t *slots; /* hash << 32 | offset + 1 into words; 0 is empty */
    size_t capacity, count;
    TOCSIN_VEC(uint32_t) words;
} tocsin_memo;

typedef struct tocsin_prover {
    const tocsin_plan *plan[2]; /* by side */
    tocsin_universe *universe;
    int64_t
        size[TOCSIN_SYMBOL_COUNT]; /* values of each symbol; 1: enumerated, or there is but one */
    bool exact_positions;          /* replicas are enumerated: groups name explicit ranks */
    tocsin_intern kind_texts;      /* kind number -> its text */
    TOCSIN_VEC(tocsin_kind) kinds; /* [kind - 1] */
    tocsin_intern local_kinds[2];  /* 4 words of a plan's op -> index */
    TOCSIN_VEC(uint32_t) local_kind_numbers[2];
    uint32_t *op_kind[2]; /* per op of the plan: its kind */
    tocsin_signature table_signatures[TOCSIN_OPERATOR_COUNT];
    tocsin_memo memo;
    /* What values of sharded look-ups were made from (lookup.c), by relation. */
    tocsin_map masked_indices; /* masked index -> index << 32 */
    tocsin_map row_indices;    /* unmasked rows -> index << 32 | masked rows */
    tocsin_map masked_values;  /* masked_fill(x, mask, 0) -> x << 32 | mask */
    bool has_contiguous;       /* the logical model views across ranges (structure.c) */
    tocsin_arena arena;
} tocsin_prover;

tocsin_status tocsin_prover_init(tocsin_prover *prover, const tocsin_plan *logical,
                                 const tocsin_plan *parallel, tocsin_error *error);
void tocsin_prover_free(tocsin_prover *prover);
/* A number for a key that no operator of a plan has, such as "sum:0,2"; 0: out of memory. */
uint32_t tocsin_prover_key(tocsin_prover *prover, const char *format, ...) TOCSIN_PRINTF(2, 3);

/* ---- one operator ------------------------------------------------------------------------------
 */

/* The shapes are local ones. An input is never 0. */
typedef struct tocsin_execution {
    uint32_t kind;
    uint32_t op; /* of the logical plan, when it is that which runs; else TOCSIN_PLAN_NONE */
    const tocsin_relation_id *inputs;
    tocsin_relation_id *outputs;
    const int64_t *const *output_shapes;
    const uint8_t *output_ndim;
    uint32_t input_count, output_count;
    bool maximum;    /* contracted axes are joined by maximum, not by sum */
    bool known_only; /* refused rather than a value that the logical model does not have */
} tocsin_execution;

/* Fill the outputs. false: refused, the universe says why; outputs are 0. */
bool tocsin_transfer(tocsin_prover *prover, const tocsin_execution *execution);
/* The same without looking at the memo or storing there. */
bool tocsin_transfer_fresh(tocsin_prover *prover, const tocsin_execution *execution);
/* Equal operands give equal results. `key` and `name` say which operator. */
bool tocsin_congruence(tocsin_prover *prover, uint32_t key, const char *name,
                       const tocsin_signature *signature, const tocsin_execution *execution);

/* ---- collectives --------------------------------------------------------------------------------
 */

/* The results of one collective on all its members. `inputs` and `outputs` by member position. When
 * `over_replicas`, the members are devices and each stands for all replicas (replica-major order).
 */
typedef struct tocsin_exchange {
    const tocsin_kind *kind;
    uint32_t member_count;
    bool over_replicas;
    const tocsin_relation_id *inputs;
    tocsin_relation_id *outputs;
} tocsin_exchange;
bool tocsin_exchange_relations(tocsin_prover *prover, const tocsin_exchange *exchange);

/* ---- attributes (transfer.c) ----------------------------------------------------------------- */

int64_t tocsin_kind_integer(const tocsin_kind *kind, const char *key, int64_t otherwise);
double tocsin_kind_real(const tocsin_kind *kind, const char *key, double otherwise);
const char *tocsin_kind_text(const tocsin_kind *kind, const char *key, const char *otherwise);
/* The list, its length in *count; NULL when there is none. */
const int64_t *tocsin_kind_list(const tocsin_kind *kind, const char *key, uint32_t *count);

#endif
