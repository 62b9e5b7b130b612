/* plan/plan.h - the intermediate representation of a parallel plan. The one header of the module.
 *
 * A plan is a mesh of devices and, for each rank class (*role*), the operators that such a rank
 * executes in one training step, in program order. The logical model is a plan too: one role, one
 * device.
 *
 *   mesh     named axes; a rank is a tuple of coordinates, numbered row-major in the axes' order.
 *            One axis may be the *replica* axis (data parallel): roles are listed for every tuple
 *            of the other coordinates (a *device*), and a role stands for all its replicas alike.
 *   role     values (with local shapes), inputs (which slice of which logical input a value is),
 *            segments of operators, a schedule of (segment, micro-batch), outputs (which logical
 *            output a value stands for).
 *   segment  a straight list of operators. In SSA form: a value has one producer. A segment that
 *            the schedule names with several micro-batches runs once for each; its values are
 *            then separate for each micro-batch, but for *persistent* values (weights, and what
 *            ACCUMULATE adds to).
 *   affine   offsets of slices may depend on the replica and the micro-batch: base + w0 * replica
 *            + w1 * microbatch. This is what lets the prover treat both symbolically.
 *
 * Everything is indices into flat arrays, so that a plan of 10^6 operators is compact.
 * Text form: docs/formats/plan.md. Threads: see tocsin/plan.h.
 */
#ifndef TOCSIN_PLAN_PLAN_H
#define TOCSIN_PLAN_PLAN_H

#include <tocsin/plan.h>

#include "base/base.h"
#include "plan/operators.h"

enum {
    TOCSIN_PLAN_AXES_MAX = 8,           /* of a mesh */
    TOCSIN_PLAN_NDIM_MAX = 12,          /* of a value */
    TOCSIN_PLAN_OPERANDS_MAX = 4096,    /* inputs or outputs of one operator */
    TOCSIN_PLAN_ATTRIBUTES_MAX = 64,    /* of one operator */
    TOCSIN_PLAN_INTEGERS_MAX = 1 << 20, /* in one attribute */
    TOCSIN_PLAN_MICROBATCHES_MAX = 1 << 20,
    TOCSIN_PLAN_RANKS_MAX = 1 << 22,
    TOCSIN_PLAN_OPS_MAX = 1 << 24,          /* listed */
    TOCSIN_PLAN_VALUES_MAX = 1 << 26,       /* also: strings, members, turns, inputs, outputs */
    TOCSIN_PLAN_OPERAND_TOTAL_MAX = 1 << 28 /* also: dims, starts */
};
#define TOCSIN_PLAN_NONE         UINT32_MAX
#define TOCSIN_PLAN_BYTES_MAX    ((size_t)1 << 32)  /* of a plan's file, unpacked */
#define TOCSIN_PLAN_INDEX_MAX    (INT64_C(1) << 47) /* sizes, |base| and |weight| of starts */
#define TOCSIN_PLAN_ELEMENTS_MAX (INT64_C(1) << 62) /* of a value; fewer */

/* base + weight[0] * replica + weight[1] * microbatch */
enum { TOCSIN_SYMBOL_REPLICA, TOCSIN_SYMBOL_MICROBATCH, TOCSIN_SYMBOL_COUNT };
typedef struct tocsin_affine {
    int64_t base;
    int64_t weight[TOCSIN_SYMBOL_COUNT];
} tocsin_affine;

typedef struct tocsin_plan_axis {
    uint32_t name; /* string */
    uint32_t size;
} tocsin_plan_axis;

/* One member of a group: a device, in which replica. */
enum { TOCSIN_MEMBER_SAME = -1, TOCSIN_MEMBER_ALL = -2 };
typedef struct tocsin_plan_member {
    uint32_t device;
    int32_t replica; /* a number, _SAME (the caller's own) or _ALL (every one, in order) */
} tocsin_plan_member;

/* An ordered process group, or with _SAME members one such group per replica. If one member is
 * _ALL, all are; they then stand replica-major: (replica 0: all devices), (replica 1: ...) ... */
typedef struct tocsin_plan_group {
    uint32_t name; /* string */
    uint32_t first_member, member_count;
} tocsin_plan_group;

/* A value of one role. */
typedef struct tocsin_plan_value {
    uint32_t name;       /* string, unique in the role */
    uint32_t first_dim;  /* into dims */
    uint8_t ndim;        /* TOCSIN_PLAN_NDIM_UNKNOWN: it is read, but nothing writes it */
    uint8_t dtype;       /* tocsin_dtype, 0 unknown */
    bool persistent;     /* one for all micro-batches; inputs: unless per_microbatch */
    bool per_microbatch; /* an input that differs between micro-batches */
} tocsin_plan_value;
enum { TOCSIN_PLAN_NDIM_UNKNOWN = UINT8_MAX };

/* Attributes of an operator: `key = value` in key order, interned, so that equal sets have one id.
 * Kinds: an integer list ([2,0,1]; a single integer is a list of one written bare), a real, a
 * string. */
typedef enum tocsin_attribute_kind {
    TOCSIN_ATTRIBUTE_INTEGERS,
    TOCSIN_ATTRIBUTE_REAL,
    TOCSIN_ATTRIBUTE_TEXT
} tocsin_attribute_kind;
typedef struct tocsin_attribute {
    uint32_t key; /* string */
    uint8_t kind;
    uint32_t count; /* INTEGERS */
    const int64_t *integers;
    double real;
    uint32_t text; /* string */
} tocsin_attribute;
typedef struct tocsin_attribute_set {
    const tocsin_attribute *items;
    uint32_t count;
} tocsin_attribute_set;

typedef enum tocsin_plan_phase {
    TOCSIN_PHASE_NONE,
    TOCSIN_PHASE_FORWARD,
    TOCSIN_PHASE_BACKWARD,
    TOCSIN_PHASE_OPTIMIZER,
    TOCSIN_PHASE_RECOMPUTE
} tocsin_plan_phase;

typedef struct tocsin_plan_op {
    uint16_t code;  /* tocsin_operator_code */
    uint8_t phase;  /* tocsin_plan_phase */
    bool flawed;    /* set by tocsin_plan_finish: it cannot run, see tocsin_plan_flaw */
    uint32_t name;  /* string: the operator's name, which is the table's unless code is CALL
                       ("apply_rotary_emb") */
    uint32_t label; /* string: how reports call it, "linear47"; pairs it with the logical op of
                       the same label, for diagnosis only; "" when unknown */
    uint32_t fqn, source;   /* strings, "" when unknown */
    uint32_t signature;     /* into signatures; TOCSIN_PLAN_NONE: the operator table's own rule */
    uint32_t attributes;    /* into attribute_sets; 0 is the empty set */
    uint32_t group;         /* collectives; else TOCSIN_PLAN_NONE */
    uint32_t first_operand; /* into operands: input_count values, then output_count values */
    uint16_t input_count, output_count;
} tocsin_plan_op;

/* value = NAME[start_d : start_d + length_d, ...] of the logical input NAME; the lengths are the
 * value's shape. */
typedef struct tocsin_plan_input {
    uint32_t value;
    uint32_t name;        /* string: the logical input */
    uint32_t first_start; /* into starts, one tocsin_affine per dim of the value */
} tocsin_plan_input;

typedef enum tocsin_output_kind {
    TOCSIN_OUTPUT_LOSS,
    TOCSIN_OUTPUT_GRADIENT,  /* of the parameter NAME */
    TOCSIN_OUTPUT_PARAMETER, /* NAME after the optimizer's step */
    TOCSIN_OUTPUT_STATE,     /* optimizer state NAME after the step */
    TOCSIN_OUTPUT_OTHER
} tocsin_output_kind;

/* How per-rank or per-micro-batch values together make the logical one: for each symbol. */
typedef enum tocsin_output_fold {
    TOCSIN_FOLD_EQUAL, /* each one alone is (the slice of) the logical value */
    TOCSIN_FOLD_SUM,
    TOCSIN_FOLD_MEAN
} tocsin_output_fold;

typedef struct tocsin_plan_output {
    uint8_t kind;                      /* tocsin_output_kind */
    uint8_t fold[TOCSIN_SYMBOL_COUNT]; /* tocsin_output_fold */
    uint32_t name;                     /* string */
    uint32_t value;
    uint32_t first_start; /* into starts; like an input */
} tocsin_plan_output;

typedef struct tocsin_plan_segment {
    uint32_t name; /* string */
    uint32_t first_op, op_count;
} tocsin_plan_segment;

typedef struct tocsin_plan_turn {
    uint32_t segment;   /* index within the role */
    int32_t microbatch; /* -1: not of a micro-batch */
} tocsin_plan_turn;

typedef struct tocsin_plan_role {
    uint32_t device;                       /* row-major number without the replica axis */
    uint32_t first_replica, replica_count; /* the replicas that it stands for */
    uint32_t first_value, value_count;     /* into values; ids in operands are role-local */
    uint32_t first_input, input_count;
    uint32_t first_segment, segment_count;
    uint32_t first_turn, turn_count;
    uint32_t first_output, output_count;
} tocsin_plan_role;

/* Why an operator cannot run as it stands. Such a plan is well-formed but wrong: the verifier
 * reports the operator, and must not rely on its shapes or attributes. */
typedef enum tocsin_flaw_kind {
    TOCSIN_FLAW_SHAPE, /* shapes and attributes of the operator contradict one another */
    TOCSIN_FLAW_GROUP, /* the caller is not in the collective's group */
    TOCSIN_FLAW_PEER,  /* there is no such device to send to or receive from */
    TOCSIN_FLAW_ORDER  /* a value is read before it is written */
} tocsin_flaw_kind;
typedef struct tocsin_plan_flaw {
    uint32_t op;   /* into ops */
    uint8_t kind;  /* tocsin_flaw_kind */
    uint32_t text; /* string: one clause, "dim 2 is out of range" */
} tocsin_plan_flaw;

struct tocsin_plan {
    tocsin_plan_axis axes[TOCSIN_PLAN_AXES_MAX];
    uint32_t axis_count;
    uint32_t replica_axis; /* or TOCSIN_PLAN_NONE: one replica */
    uint32_t microbatches; /* >= 1 */
    tocsin_intern strings; /* id 1 is "", ids from 2 the names of the operator table, in order */
    TOCSIN_VEC(tocsin_plan_group) groups;
    TOCSIN_VEC(tocsin_plan_member) members;
    TOCSIN_VEC(tocsin_plan_role) roles;
    TOCSIN_VEC(tocsin_plan_value) values;
    TOCSIN_VEC(int64_t) dims;
    TOCSIN_VEC(tocsin_affine) starts;
    TOCSIN_VEC(tocsin_plan_input) inputs;
    TOCSIN_VEC(tocsin_plan_output) outputs;
    TOCSIN_VEC(tocsin_plan_segment) segments;
    TOCSIN_VEC(tocsin_plan_turn) turns;
    TOCSIN_VEC(tocsin_plan_op) ops;
    TOCSIN_VEC(uint32_t) operands;
    TOCSIN_VEC(tocsin_attribute_set) attribute_sets; /* [0] is the empty set */
    TOCSIN_VEC(tocsin_signature) signatures;
    TOCSIN_VEC(uint32_t) assumptions;   /* strings: what a reader took for granted */
    TOCSIN_VEC(tocsin_plan_flaw) flaws; /* in order of ops; one for each flawed op */
    uint32_t checked_role, checked_op;  /* where tocsin_plan_finish stopped, or NONE */
    tocsin_arena arena;                 /* attributes */
    tocsin_intern attribute_keys;       /* id - 1: attribute set with these bytes (builder.c) */
    tocsin_intern signature_keys;       /* id - 1: signature of this canonical text */
    tocsin_intern signature_sources;    /* texts as given; id - 1 into: */
    TOCSIN_VEC(uint32_t) signature_of_source;
};

/* ---- reading a plan (plan.c) ----------------------------------------------------------------- */

const char *tocsin_plan_text(const tocsin_plan *plan, uint32_t string);
static inline const int64_t *tocsin_plan_shape(const tocsin_plan *plan,
                                               const tocsin_plan_value *value)
{
    return plan->dims.items + value->first_dim;
}
uint32_t tocsin_plan_replicas(const tocsin_plan *plan); /* size of the replica axis, or 1 */
uint32_t tocsin_plan_devices(const tocsin_plan *plan);  /* product of the other axes */
uint32_t tocsin_plan_rank(const tocsin_plan *plan, uint32_t device, uint32_t replica);
/* The coordinates of a device on the axes other than the replica axis, in their order; 0 on it. */
void tocsin_plan_coordinates(const tocsin_plan *plan, uint32_t device,
                             uint32_t coordinates[TOCSIN_PLAN_AXES_MAX]);
/* Ranks in one instance of the group. */
uint64_t tocsin_plan_group_size(const tocsin_plan *plan, uint32_t group);
/* each[v] = 1 for the plan values (one byte each) that are separate for every micro-batch: inputs
 * that say so, and what is made in a segment that runs for each and does not persist. */
void tocsin_plan_mark_microbatches(const tocsin_plan *plan, uint8_t *each);
/* The flaw of a flawed op. */
const tocsin_plan_flaw *tocsin_plan_flaw_of(const tocsin_plan *plan, uint32_t op);
/* "pp=1 tp=0" of a device, into the string. */
void tocsin_plan_device_text(const tocsin_plan *plan, uint32_t device, tocsin_string *text);
/* XXH3-128 of the canonical text (plan_digest.c): what certificates name a plan by. Errors:
 * E_MEMORY, E_IO. */
tocsin_status tocsin_plan_digest(const tocsin_plan *plan, tocsin_hash128 *digest,
                                 tocsin_error *error);
/* The attribute called `key`, or NULL. */
const tocsin_attribute *tocsin_plan_attribute(const tocsin_plan *plan, uint32_t attribute_set,
                                              const char *key);

/* ---- building a plan (builder.c): used by every reader and by tests ---------------------------
 */

/* A plan under construction is a tocsin_plan; these append to it. Strings are copied. Each fails
 * with E_MEMORY, E_LIMIT or E_FORMAT (what is wrong with the plan). */
tocsin_plan *tocsin_plan_new(void); /* NULL: out of memory */
/* The string's id; 0: out of memory, or too many. */
uint32_t tocsin_plan_string(tocsin_plan *plan, const char *text, size_t bytes);
/* The error of a tocsin_plan_string that returned 0. */
tocsin_status tocsin_plan_string_error(const tocsin_plan *plan, tocsin_error *error);
tocsin_status tocsin_plan_set_microbatches(tocsin_plan *plan, uint64_t count, tocsin_error *error);
/* The mesh comes before groups and roles. */
tocsin_status tocsin_plan_add_axis(tocsin_plan *plan, const char *name, uint32_t size,
                                   bool is_replica, tocsin_error *error);
tocsin_status tocsin_plan_add_group(tocsin_plan *plan, const char *name,
                                    const tocsin_plan_member *members, uint32_t count,
                                    uint32_t *group, tocsin_error *error);
/* Sorts by key and interns; the integers are copied. */
tocsin_status tocsin_plan_add_attributes(tocsin_plan *plan, const tocsin_attribute *items,
                                         uint32_t count, uint32_t *attribute_set,
                                         tocsin_error *error);
/* Parse and intern "q[b h s d^] k[b h t^ d^] -> [b h s t^]" (operators.h). */
tocsin_status tocsin_plan_add_signature(tocsin_plan *plan, const char *text, size_t bytes,
                                        uint32_t *signature, tocsin_error *error);
/* The calls below go to the role begun last. */
tocsin_status tocsin_plan_begin_role(tocsin_plan *plan, uint32_t device, uint32_t first_replica,
                                     uint32_t replica_count, tocsin_error *error);
tocsin_status tocsin_plan_add_value(tocsin_plan *plan, const tocsin_plan_value *value,
                                    const int64_t *shape, uint32_t *id, tocsin_error *error);
tocsin_status tocsin_plan_add_input(tocsin_plan *plan, uint32_t value, uint32_t name,
                                    const tocsin_affine *starts, tocsin_error *error);
tocsin_status tocsin_plan_add_output(tocsin_plan *plan, const tocsin_plan_output *output,
                                     const tocsin_affine *starts, tocsin_error *error);
tocsin_status tocsin_plan_begin_segment(tocsin_plan *plan, uint32_t name, tocsin_error *error);
/* Replace the type of a value of which only the name was known (NDIM_UNKNOWN). */
tocsin_status tocsin_plan_define_value(tocsin_plan *plan, uint32_t id,
                                       const tocsin_plan_value *value, const int64_t *shape,
                                       tocsin_error *error);
/* `op` without first_operand; goes to the segment begun last. name, label, fqn and source may be 0
 * for "" (name: for the table's). */
tocsin_status tocsin_plan_add_op(tocsin_plan *plan, const tocsin_plan_op *op,
                                 const uint32_t *inputs, const uint32_t *outputs,
                                 tocsin_error *error);
tocsin_status tocsin_plan_add_turn(tocsin_plan *plan, uint32_t segment, int32_t microbatch,
                                   tocsin_error *error);
tocsin_status tocsin_plan_assume(tocsin_plan *plan, const char *text, tocsin_error *error);
/* Check the whole. E_FORMAT for what is no plan: a device and replica without a role or with two, a
 * value with two producers (ACCUMULATE excepted), a collective without a group, an operator with
 * the wrong number of operands or without an attribute that it needs (or with one that its rule
 * does not know), a read that cannot say which micro-batch it means.
 * An operator that cannot run (shapes that do not fit, a group without the caller, a value read
 * before it is written) is marked `flawed`, and its flaw listed: reporting it is the verifier's
 * business, and so is a value that is never written. Roles without a schedule get one. */
tocsin_status tocsin_plan_finish(tocsin_plan *plan, tocsin_error *error);

/* ---- operators that the user declares (declarations.c) ----------------------------------------
 */

/* The lines `op NAME SIGNATURE` of a file (`--ops`). Zero is empty. */
typedef struct tocsin_declarations {
    tocsin_intern names;                 /* id - 1 into: */
    TOCSIN_VEC(const char *) signatures; /* texts, in the arena */
    tocsin_arena arena;
} tocsin_declarations;

/* Errors: E_FORMAT (with the offset), E_LIMIT, E_NOT_FOUND, E_IO, E_MEMORY. `path` NULL: none. */
tocsin_status tocsin_declarations_load(const char *path, tocsin_declarations *declarations,
                                       tocsin_error *error);
/* The signature that `name` was declared with, or NULL. */
const char *tocsin_declarations_find(const tocsin_declarations *declarations, const char *name,
                                     size_t bytes);
void tocsin_declarations_free(tocsin_declarations *declarations);

/* ---- readers (one file each) ------------------------------------------------------------------
 */

tocsin_status tocsin_plan_read_text(const char *text, size_t bytes, const char *name,
                                    const tocsin_plan_options *options, tocsin_plan **plan,
                                    tocsin_error *error);
tocsin_status tocsin_plan_read_nnscaler(const void *memory, size_t bytes, const char *name,
                                        const tocsin_plan_options *options, tocsin_plan **plan,
                                        tocsin_error *error);

#endif
