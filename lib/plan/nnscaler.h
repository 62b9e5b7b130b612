/* plan/nnscaler.h - inside the reader of nnScaler's execution plans (nnscaler*.c).
 *
 * Such a file is a pickled ModuleCodeGen: for each device of one replica the *cells* that it runs,
 * in order (data loads, segments of operators, adapters, weight reducers). A cell that several
 * micro-batches use occurs once for each: the n-th occurrence is micro-batch n. Tensors are known
 * by number; one number may have several producers (a gradient whose parts autograd adds), and a
 * reused cell uses the same numbers. Here each becomes values with one producer:
 *
 *   version   a tensor number and how many values of it came before on this device. A cell becomes
 *             a segment when it first runs; it runs again for another micro-batch as the same
 *             segment if the versions that it reads are the same then, else as a new one.
 *   sum       the persistent value to which all gradients of one weight are added.
 *
 * Source: nnScaler (microsoft/nnscaler), nnscaler/ir and nnscaler/execplan.
 */
#ifndef TOCSIN_PLAN_NNSCALER_H
#define TOCSIN_PLAN_NNSCALER_H

#include "plan/pickle.h"
#include "plan/plan.h"

enum {
    TOCSIN_NN_OPERANDS_MAX = 64,  /* of one operator of the file */
    TOCSIN_NN_INTEGERS_MAX = 256, /* in the attributes of one operator */
    TOCSIN_NN_AXES_MAX = TOCSIN_SIGNATURE_AXES_MAX
};

/* An IRSubTensor: a slice of a full tensor. */
typedef struct tocsin_nn_tensor {
    uint64_t id, full_id;
    const char *name;                    /* of the full tensor; for weights the FQN */
    const tocsin_pickle_value *gradient; /* an IRSubTensor, or NULL */
    const tocsin_pickle_value *consumer; /* of the full tensor: a cell, or NULL */
    bool is_weight; /* nnScaler's is_attr: a weight, a buffer or its gradient */
    bool is_gradient, is_loss;
    uint8_t dtype;
    uint8_t ndim;
    int64_t start[TOCSIN_PLAN_NDIM_MAX], size[TOCSIN_PLAN_NDIM_MAX], full[TOCSIN_PLAN_NDIM_MAX];
} tocsin_nn_tensor;

/* One thing that a segment found or left when it was made (nnscaler_role.c). */
typedef enum tocsin_nn_touch_kind {
    TOCSIN_NN_READ,   /* this version, or one that is never written */
    TOCSIN_NN_EXACT,  /* this version; 0: nothing written */
    TOCSIN_NN_WRITTEN /* left behind */
} tocsin_nn_touch_kind;
typedef struct tocsin_nn_touch {
    uint64_t tensor;
    uint32_t version;
    uint8_t kind;
} tocsin_nn_touch;

/* A segment and under which circumstances it may run again. */
typedef struct tocsin_nn_record {
    uint32_t segment; /* TOCSIN_PLAN_NONE: a cell that does nothing */
    uint32_t first_touch, touch_count;
    uint32_t next; /* another record of the same cell, index + 1 */
} tocsin_nn_record;

/* What one device does, while it is translated. Gradients of one weight may have several numbers:
 * the first one stands for all. */
typedef struct tocsin_nn_role {
    uint32_t device;
    tocsin_map versions; /* tensor -> versions given out */
    tocsin_map values;   /* version << 40 | tensor -> value + 1 */
    tocsin_map current;  /* micro-batch << 40 | tensor -> version */
    tocsin_map inputs;   /* weight -> value + 1 */
    tocsin_map sums;     /* gradient of a weight -> value + 1 */
    tocsin_map reduced;  /* gradient of a weight, after its reducer -> value + 1 */
    tocsin_map wanted;   /* weight whose gradient is an output -> tocsin_nn_tensor, its first use */
    tocsin_map gradients; /* gradient of such a weight -> that of its first use */
    tocsin_map used;      /* cell -> how often it ran */
    tocsin_map first;     /* cell -> record + 1 */
    TOCSIN_VEC(tocsin_nn_record) records;
    TOCSIN_VEC(tocsin_nn_touch) touches;
    TOCSIN_VEC(const tocsin_nn_tensor *) weights; /* wanted, in order of use */
    uint32_t auxiliary_count;
    /* the cell at hand */
    int32_t microbatch;
    uint32_t segment; /* TOCSIN_PLAN_NONE: not begun, for want of an operator */
    uint32_t first_touch;
    uint32_t segment_name;
} tocsin_nn_role;

typedef struct tocsin_nn {
    tocsin_plan *plan;
    tocsin_pickle pickle;
    const char *where;
    tocsin_error *error;
    tocsin_plan_order order;
    tocsin_declarations declarations;
    uint32_t devices, replicas, microbatches;
    uint32_t microbatches_seen;
    const tocsin_pickle_value **sequences; /* by device: a list of cells */
    tocsin_arena arena;
    tocsin_map tensors;  /* pickle value -> tocsin_nn_tensor */
    tocsin_map groups;   /* string of the name -> group + 1 */
    tocsin_map adapters; /* device << 40 | cell -> pickle value */
    tocsin_map made;     /* numbers of gradients that some device makes -> 1 */
    tocsin_nn_role role;
} tocsin_nn;

/* An operator under construction. */
typedef struct tocsin_nn_draft {
    tocsin_plan_op op;
    tocsin_attribute attributes[TOCSIN_PLAN_ATTRIBUTES_MAX];
    uint32_t attribute_count;
    int64_t integers[TOCSIN_NN_INTEGERS_MAX];
    uint32_t integer_count;
    uint32_t inputs[TOCSIN_NN_OPERANDS_MAX], outputs[TOCSIN_NN_OPERANDS_MAX];
    tocsin_status status; /* the first failure; _emit returns it */
} tocsin_nn_draft;

/* Where a result goes: the value that the operator writes, and what happens to it afterwards. */
typedef struct tocsin_nn_result {
    uint32_t value;
    enum { TOCSIN_NN_DONE, TOCSIN_NN_ADD, TOCSIN_NN_ACCUMULATE } then;
    uint32_t with, target; /* target = with + value, or target += value */
} tocsin_nn_result;

/* How a second producer of a tensor is understood. */
typedef enum tocsin_nn_mode {
    TOCSIN_NN_REPLACE,
    TOCSIN_NN_MERGE /* gradients are added, everything else is replaced */
} tocsin_nn_mode;

/* E_FORMAT with the file's name. */
tocsin_status tocsin_nn_fail(tocsin_nn *nn, tocsin_status code, const char *format, ...)
    TOCSIN_PRINTF(3, 4);

/* ---- nnscaler_tensor.c: what the pickle says ------------------------------------------------- */

/* An integer, also of numpy. */
bool tocsin_nn_integer(const tocsin_pickle_value *value, int64_t *integer);
/* The number of a cell or tensor, below 2^32. */
tocsin_status tocsin_nn_id(tocsin_nn *nn, const tocsin_pickle_value *value, uint64_t *id);
bool tocsin_nn_true(const tocsin_pickle_value *value, const char *key);
bool tocsin_nn_is_tensor(const tocsin_pickle_value *value);
tocsin_status tocsin_nn_read_tensor(tocsin_nn *nn, const tocsin_pickle_value *value,
                                    const tocsin_nn_tensor **tensor);
/* The keyword arguments of a cell or primitive, a DICT or NULL. */
const tocsin_pickle_value *tocsin_nn_arguments(const tocsin_pickle_value *cell);
/* Inside an ExeReuseCell. */
const tocsin_pickle_value *tocsin_nn_cell(const tocsin_pickle_value *cell);

/* ---- nnscaler_role.c: values, versions, emission --------------------------------------------- */

void tocsin_nn_role_clear(tocsin_nn_role *role);
void tocsin_nn_role_free(tocsin_nn_role *role);
/* The value that a tensor is now. One that was never written is a value without a producer. */
tocsin_status tocsin_nn_read(tocsin_nn *nn, const tocsin_nn_tensor *tensor, uint32_t *value);
/* A value of the tensor's type, or with another shape. */
tocsin_status tocsin_nn_auxiliary(tocsin_nn *nn, const tocsin_nn_tensor *like, const int64_t *shape,
                                  uint32_t ndim, uint32_t *value);
tocsin_status tocsin_nn_begin_result(tocsin_nn *nn, const tocsin_nn_tensor *tensor,
                                     tocsin_nn_mode mode, tocsin_nn_result *result);
/* After the operator that writes it; `draft` is that operator, for its label, phase and source. */
tocsin_status tocsin_nn_end_result(tocsin_nn *nn, const tocsin_nn_result *result,
                                   const tocsin_nn_draft *draft);
/* The value that the tensor had at the end of a micro-batch, or TOCSIN_PLAN_NONE if nothing wrote
 * it; for the gradient of a weight, after its reducer if there is one. */
tocsin_status tocsin_nn_find(tocsin_nn *nn, const tocsin_nn_tensor *tensor, int32_t microbatch,
                             uint32_t *value);
/* A forward operator uses this weight: its gradient is an output. */
tocsin_status tocsin_nn_want(tocsin_nn *nn, const tocsin_nn_tensor *weight);
/* The values of a data load, as inputs. */
tocsin_status tocsin_nn_load(tocsin_nn *nn, const tocsin_nn_tensor *tensor);

/* A draft like `like` (label, phase, module, source), of another operator. */
void tocsin_nn_draft_init(tocsin_nn_draft *draft, tocsin_operator_code code,
                          const tocsin_nn_draft *like);
void tocsin_nn_input(tocsin_nn_draft *draft, uint32_t value);
void tocsin_nn_output(tocsin_nn_draft *draft, uint32_t value);
void tocsin_nn_set_integer(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key, int64_t value);
void tocsin_nn_set_integers(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key,
                            const int64_t *values, uint32_t count);
void tocsin_nn_set_real(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key, double value);
void tocsin_nn_set_text(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key, const char *value);
tocsin_status tocsin_nn_emit(tocsin_nn *nn, tocsin_nn_draft *draft);
/* One operator with one input and one output. */
tocsin_status tocsin_nn_emit_simple(tocsin_nn *nn, tocsin_nn_draft *draft, uint32_t input,
                                    uint32_t output);

/* Begin the cell at hand for its next micro-batch: `done` if a segment of it could run again. */
tocsin_status tocsin_nn_begin_cell(tocsin_nn *nn, uint64_t cell, const char *kind,
                                   int32_t microbatch, bool *done);
tocsin_status tocsin_nn_end_cell(tocsin_nn *nn, uint64_t cell);

/* ---- nnscaler_signature.c: annotations ------------------------------------------------------- */

/* One axis of a dim of an operand: an index into the annotation's axes, or TOCSIN_AXIS_ANY for a
 * number, of which it has a local size. */
typedef struct tocsin_nn_axis {
    int8_t axis;
    int64_t size;
} tocsin_nn_axis;
/* A tensor as the operator sees it. `grouped`: some dim of it, such as (h d 3), has several axes,
 * so the operator sees a view of it, in which each axis is a dim. */
typedef struct tocsin_nn_shape {
    const tocsin_nn_tensor *tensor;
    bool grouped;
    uint8_t ndim;
    tocsin_nn_axis dims[TOCSIN_PLAN_NDIM_MAX];
} tocsin_nn_shape;

/* What an operator's annotation says of its tensors. */
typedef struct tocsin_nn_annotation {
    uint32_t axis_count;
    char name[TOCSIN_NN_AXES_MAX][12];
    char mark[TOCSIN_NN_AXES_MAX]; /* '+', '^' or ' ' */
    bool in_output[TOCSIN_NN_AXES_MAX];
    uint16_t linear; /* inputs in which the forward operator is linear, one at a time */
    tocsin_nn_shape inputs[TOCSIN_SIGNATURE_OPERANDS_MAX], outputs[TOCSIN_SIGNATURE_OPERANDS_MAX];
    uint32_t input_count, output_count; /* tensors */
} tocsin_nn_annotation;

/* An operator of the file. */
typedef struct tocsin_nn_operator {
    const tocsin_pickle_value *forward; /* the IRDimops */
    const char *name;
    uint64_t id; /* of the logical operator where that can be told, else its own */
    const tocsin_pickle_value
        *arguments[TOCSIN_NN_OPERANDS_MAX]; /* as listed: tensors, constants */
    uint32_t argument_count;
    const tocsin_nn_tensor *inputs[TOCSIN_NN_OPERANDS_MAX], *outputs[TOCSIN_NN_OPERANDS_MAX];
    uint32_t position[TOCSIN_NN_OPERANDS_MAX]; /* of each tensor among the arguments */
    uint32_t input_count, output_count;        /* tensors */
    tocsin_nn_draft like;                      /* label, module, source, phase */
} tocsin_nn_operator;

tocsin_status tocsin_nn_annotate(tocsin_nn *nn, const tocsin_nn_operator *op,
                                 tocsin_nn_annotation *annotation);
/* Which out-gradients a backward operator reads, and which inputs it differentiates. */
typedef struct tocsin_nn_derivative {
    uint32_t gradients[TOCSIN_SIGNATURE_OPERANDS_MAX]; /* index of the forward output */
    uint32_t gradient_count;
    uint32_t wrt; /* index of the forward input */
} tocsin_nn_derivative;
/* The signature of the forward operator, or of one of its derivatives. */
tocsin_status tocsin_nn_add_signature(tocsin_nn *nn, const tocsin_nn_annotation *annotation,
                                      const tocsin_nn_derivative *derivative, uint32_t *signature);
/* `value`, seen as the annotation wants it; adds a view where it is grouped. */
tocsin_status tocsin_nn_split(tocsin_nn *nn, const tocsin_nn_shape *shape,
                              const tocsin_nn_draft *like, uint32_t value, uint32_t *split);

/* ---- nnscaler_{attributes,operator,adapter}.c: what a cell does ------------------------------ */

/* Parse an IRDimops; `backward`: on behalf of its IRBpOperation. */
tocsin_status tocsin_nn_read_operator(tocsin_nn *nn, const tocsin_pickle_value *forward,
                                      bool backward, tocsin_nn_operator *op);
/* The attributes that belong to the operator's meaning: keyword arguments and constants. */
tocsin_status tocsin_nn_set_attributes(tocsin_nn *nn, const tocsin_nn_operator *op,
                                       tocsin_nn_draft *draft);
/* A number, also of numpy, or the value of an IRObject. */
bool tocsin_nn_number(const tocsin_pickle_value *value, double *number);
tocsin_status tocsin_nn_forward(tocsin_nn *nn, const tocsin_pickle_value *cell);
tocsin_status tocsin_nn_backward(tocsin_nn *nn, const tocsin_pickle_value *cell);
tocsin_status tocsin_nn_adapter(tocsin_nn *nn, const tocsin_pickle_value *cell);
tocsin_status tocsin_nn_reducer(tocsin_nn *nn, const tocsin_pickle_value *cell);

#endif
