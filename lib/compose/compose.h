/* compose/compose.h - proofs by parts: a plan cut into pieces that are proved one by one.
 *
 *   part       a set of operators of all roles, told by the first numbered module in their names
 *              ("model.layers.3"): a layer's forward, backward and optimizer on every rank
 *   cut        where a value is made in one part and read in another, or sent from one to another
 *   claim      what a cut value is: a factor times a slice of a value of the logical model
 *   selection  what of a role belongs to a part
 *
 * A part is proved as a pair of plans of its own. In the parallel one, what it reads across a cut
 * is an input (the claimed slice of a logical input made for it), what others read of it is an
 * output; the logical one computes the part's outputs, and what the claims are about, from the same
 * inputs.
 *
 * Why that is sound. Let every part be proved, and tier 0 have no finding. Along the order of
 * execution, each cut value is a function of the inputs and of cut values made before it, and those
 * are as claimed by induction; the proof of its part holds for whatever the logical values are, so
 * it is as claimed, too. At the end all outputs are proved. Both sides of a cut use one claim: it
 * belongs to the value's name within a role, and to a pair of messages that tier 0 matched.
 *
 * Data flows one way: part_key -> part_cut (from a proof of the whole) or cut_store (from the
 * cache)
 * -> part_select -> part_digest, part_plan -> verify_files.
 */
#ifndef TOCSIN_COMPOSE_COMPOSE_H
#define TOCSIN_COMPOSE_COMPOSE_H

#include <tocsin/compose.h>

#include "base/base.h"
#include "plan/plan.h"
#include "prove/proof.h"

/* ---- cuts ------------------------------------------------------------------------------------ */

typedef struct tocsin_part_claim {
    uint32_t name; /* string of the cuts: of the logical value */
    bool is_input; /* that is an input of the logical plan: of the input's name */
    uint8_t ndim;
    int64_t numerator, denominator;
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
} tocsin_part_claim;

/* What belongs to one role. */
typedef struct tocsin_role_cuts {
    tocsin_intern names; /* of the values cut; id - 1 into: */
    TOCSIN_VEC(tocsin_part_claim) claims;
    TOCSIN_VEC(uint8_t) messages; /* by send and receive, in order: 1 when it is cut */
} tocsin_role_cuts;

typedef struct tocsin_cuts {
    tocsin_intern keys; /* of parts, such as "layers.3"; id - 1 into: */
    TOCSIN_VEC(uint32_t) part_of_key;
    uint32_t part_count;
    tocsin_intern strings;
    tocsin_role_cuts *roles; /* by role of the plan */
    size_t role_count;
} tocsin_cuts;

/* Zero, but for room for so many roles. false: out of memory. */
bool tocsin_cuts_init(tocsin_cuts *cuts, size_t role_count);
void tocsin_cuts_free(tocsin_cuts *cuts);
/* The claim about the value of that name in the role, or NULL. */
const tocsin_part_claim *tocsin_cuts_find(const tocsin_cuts *cuts, uint32_t role, const char *name);
/* false: out of memory. */
bool tocsin_cuts_add(tocsin_cuts *cuts, uint32_t role, const char *name,
                     const tocsin_part_claim *claim);

/* Cut a plan that is proved as a whole. *done: it can be; else *why says why not (static). Errors:
 * E_MEMORY, E_LIMIT. (part_cut.c) */
tocsin_status tocsin_cuts_make(tocsin_cuts *cuts, tocsin_proof *proof, const tocsin_plan *logical,
                               const tocsin_plan *parallel, bool *done, const char **why,
                               tocsin_error *error);

/* ---- keys (part_key.c) ----------------------------------------------------------------------- */

/* The bytes of a module name or of the name of a value or parameter that tell its part: up to the
 * first component that is a number; without one, the first component. */
size_t tocsin_part_key_bytes(const char *name);

/* Which part each operator of a role belongs to. Zero is empty. */
typedef struct tocsin_role_parts {
    const tocsin_plan *plan;
    uint32_t role;
    uint32_t first_op, op_count; /* of the plan; below, operators count from first_op */
    uint32_t *key;               /* by operator: of the cuts' keys */
    uint32_t *part;              /* by operator: TOCSIN_PLAN_NONE for what has none: messages that
                                    are cut, and operators without operands, which every part has
                                    for itself */
    uint32_t *producer;          /* by value: the first operator that writes it, or NONE */
    uint8_t *crosses;            /* by value: it is read in another part, or sent to one */
    const uint8_t *each;         /* by value of the plan: tocsin_plan_mark_microbatches */
    tocsin_arena arena;
} tocsin_role_parts;

/* Fill key and producer. New keys are added to the cuts'. */
tocsin_status tocsin_role_parts_init(tocsin_role_parts *parts, const tocsin_plan *plan,
                                     uint32_t role, tocsin_cuts *cuts, tocsin_error *error);
/* Fill part and crosses from the cuts. *known: every key and message is in them. */
void tocsin_role_parts_assign(tocsin_role_parts *parts, const tocsin_cuts *cuts, bool *known);
void tocsin_role_parts_free(tocsin_role_parts *parts);

static inline const tocsin_plan_op *tocsin_role_parts_op(const tocsin_role_parts *parts,
                                                         uint32_t index)
{
    return &parts->plan->ops.items[parts->first_op + index];
}
/* Has it no operands, and does not communicate? */
bool tocsin_makes_constant(const tocsin_plan_op *op);
bool tocsin_is_message(const tocsin_plan_op *op);
/* Is its result pending until a wait? */
bool tocsin_is_asynchronous(const tocsin_plan *plan, const tocsin_plan_op *op);
/* The part of an output of the role (into plan->outputs). */
uint32_t tocsin_part_of_output(const tocsin_role_parts *parts, const tocsin_cuts *cuts,
                               uint32_t output);

/* ---- selections (part_select.c) -------------------------------------------------------------- */

/* Zero is empty. */
typedef struct tocsin_part_selection {
    uint32_t role;
    TOCSIN_VEC(uint32_t) ops;     /* into plan->ops, ascending */
    TOCSIN_VEC(uint32_t) inputs;  /* into plan->inputs */
    TOCSIN_VEC(uint32_t) imports; /* values that another part makes */
    TOCSIN_VEC(uint32_t) exports; /* values that another part reads */
    TOCSIN_VEC(uint32_t) outputs; /* into plan->outputs */
} tocsin_part_selection;

/* What of the role belongs to the part. *claimed: all that crosses has a claim. */
tocsin_status tocsin_select_role(const tocsin_role_parts *parts, const tocsin_cuts *cuts,
                                 uint32_t part, tocsin_part_selection *selection, bool *claimed,
                                 tocsin_error *error);

/* What a part has to do with the rest, over all roles. Words: string of the cuts, of the name of a
 * logical value, or with the flag of a logical input; outputs: kind << 32 | string of the name.
 * Zero is empty. */
#define TOCSIN_INTERFACE_INPUT (UINT64_C(1) << 32)
typedef struct tocsin_part_interface {
    TOCSIN_VEC(uint64_t) imports, exports, outputs; /* sorted, each once, after _finish */
} tocsin_part_interface;
tocsin_status tocsin_part_interface_add(tocsin_part_interface *part, tocsin_cuts *cuts,
                                        const tocsin_role_parts *parts,
                                        const tocsin_part_selection *selection,
                                        tocsin_error *error);
void tocsin_part_interface_finish(tocsin_part_interface *part);
void tocsin_part_interface_free(tocsin_part_interface *part);

/* The logical plan, prepared for selecting. */
typedef struct tocsin_logical_index {
    const tocsin_plan *plan;
    TOCSIN_VEC(uint64_t) writers; /* value << 32 | op of the plan, sorted */
    uint32_t *input_of;           /* by value: into plan->inputs, or NONE */
    uint32_t *wanted, *stopped;   /* by value: the last selection that needs it, that imports it */
    uint32_t *taken;              /* by op: the last selection that has it */
    uint32_t mark;                /* of the selection at work */
    tocsin_map outputs;           /* kind << 32 | string of the name -> index */
    tocsin_map names;             /* string of a value's name (INTERFACE_INPUT: input's) -> value */
    tocsin_arena arena;
} tocsin_logical_index;
tocsin_status tocsin_logical_index_init(tocsin_logical_index *index, const tocsin_plan *logical,
                                        tocsin_error *error);
void tocsin_logical_index_free(tocsin_logical_index *index);

/* What of the logical plan computes the part's outputs and exports from its imports. *known: every
 * name is one of the plan. */
tocsin_status tocsin_select_logical(tocsin_logical_index *index, const tocsin_cuts *cuts,
                                    const tocsin_part_interface *part,
                                    tocsin_part_selection *selection, bool *known,
                                    tocsin_error *error);
void tocsin_part_selection_free(tocsin_part_selection *selection);
static inline bool tocsin_part_selection_is_empty(const tocsin_part_selection *selection)
{
    return selection->ops.count + selection->exports.count + selection->outputs.count == 0;
}

/* ---- digests (part_digest.c) ----------------------------------------------------------------- */

/* Of mesh, groups, assumptions and the ranks that the roles stand for, of what is asked, and of the
 * version of the rules. */
tocsin_status tocsin_digest_header(const tocsin_plan *plan, const tocsin_verify_options *options,
                                   tocsin_hash128 *digest, tocsin_error *error);
/* Of all of the role that tier 0 looks at: schedule, communication, who reads what crosses
 * segments, persists, or is pending. */
tocsin_status tocsin_digest_communication(const tocsin_role_parts *parts, tocsin_hash128 *digest,
                                          tocsin_error *error);
/* Of all that the part's plan says about the role (or the logical model: `parts` NULL); labels and
 * source lines do not count. */
tocsin_status tocsin_digest_selection(const tocsin_plan *plan, const tocsin_cuts *cuts,
                                      const tocsin_role_parts *parts,
                                      const tocsin_part_selection *selection,
                                      tocsin_hash128 *digest, tocsin_error *error);

/* ---- plans of parts (part_plan.c) ------------------------------------------------------------ */

/* The parallel plan of a part: `selections` by ascending role; the other roles are empty. */
tocsin_status tocsin_part_plan(const tocsin_cuts *cuts, const tocsin_role_parts *parts,
                               const tocsin_part_selection *selections, size_t count,
                               const tocsin_plan *parallel, tocsin_plan **plan,
                               tocsin_error *error);
tocsin_status tocsin_part_logical(const tocsin_cuts *cuts, const tocsin_plan *logical,
                                  const tocsin_part_selection *selection, tocsin_plan **plan,
                                  tocsin_error *error);

/* ---- texts of roles (plan_blocks.c) ---------------------------------------------------------- */

/* A file of a plan, not parsed. Zero is empty. */
typedef struct tocsin_plan_block {
    uint64_t offset; /* in the file, of the statements of one role */
    size_t bytes, first_line_bytes;
    tocsin_hash128 digest;
} tocsin_plan_block;
typedef struct tocsin_plan_blocks {
    const char *path;
    int fd;
    bool is_text;                        /* a .plan text; else there are no blocks */
    tocsin_string header;                /* what stands before the first role */
    TOCSIN_VEC(tocsin_plan_block) items; /* one for each role, in order */
} tocsin_plan_blocks;

/* Find the roles of the file, which stays open. `path` must stay. Errors: as tocsin_plan_read. */
tocsin_status tocsin_plan_blocks_load(tocsin_plan_blocks *blocks, const char *path,
                                      tocsin_error *error);
/* Read the plan with the roles for which wanted[role]; the others are empty. NULL: all of them, and
 * the way for what is no text. E_IO when the file has changed since. */
tocsin_status tocsin_plan_blocks_read(const tocsin_plan_blocks *blocks, const uint8_t *wanted,
                                      const tocsin_plan_options *options, tocsin_plan **plan,
                                      tocsin_error *error);
void tocsin_plan_blocks_free(tocsin_plan_blocks *blocks);

/* ---- what is known (proof_store.c) ----------------------------------------------------------- */

/* What of a role belongs to a part, by digest. */
typedef struct tocsin_contribution {
    uint32_t part;
    tocsin_hash128 digest;
} tocsin_contribution;

typedef struct tocsin_known_role {
    tocsin_hash128 text, communication;
    uint64_t operators, executions, nodes;
    TOCSIN_VEC(tocsin_contribution) contributions; /* by ascending part */
} tocsin_known_role;

typedef struct tocsin_known_part {
    tocsin_hash128 key;     /* of all contributions, of `logical`, and of the header */
    tocsin_hash128 logical; /* of what it needs of the logical model */
    tocsin_part_interface interface;
    uint64_t outputs, gradients; /* of the plan, that the part proves; on all ranks */
    uint64_t dead;               /* operators that nothing needs */
} tocsin_known_part;

/* The proof of a plan by parts: all of them are proved. Zero is empty. */
typedef struct tocsin_known {
    tocsin_hash128 header, logical; /* logical: of the model's file */
    tocsin_cuts cuts;
    tocsin_known_role *roles; /* cuts.role_count */
    tocsin_known_part *parts; /* cuts.part_count */
    uint64_t dead;
    TOCSIN_VEC(char *) assumptions, dead_lines; /* of the result */
} tocsin_known;

void tocsin_known_free(tocsin_known *known);
/* *found: the text is a whole file of the cache, of this header; then `copy` (or NULL) is the same
 * once more. Anything else is as if there were none, and both are empty. Errors: E_MEMORY. */
tocsin_status tocsin_known_parse(tocsin_known *known, tocsin_known *copy, const char *text,
                                 size_t bytes, tocsin_hash128 header, size_t role_count,
                                 bool *found, tocsin_error *error);
/* Append the file's text. */
tocsin_status tocsin_known_write(const tocsin_known *known, tocsin_string *file,
                                 tocsin_error *error);

#endif
