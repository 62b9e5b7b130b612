/* tocsin/event.h - what an event of a training run is.
 *
 * A run has processes, a process has threads, a thread has an ordered stream of events: a call is
 * entered, left or raises; a tracked variable has a state; a meta variable changes. Names are
 * interned per process (dictionary ids, dense from 1; 0 means none). Writers, engines and readers
 * all speak in these types; files are described in docs/formats/trace.md.
 */
#ifndef TOCSIN_EVENT_H
#define TOCSIN_EVENT_H

#include <stdbool.h>
#include <stdint.h>
#include <tocsin/status.h>
#include <tocsin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t tocsin_id; /* index into a process's dictionary; 0 = none */

/* What a function means for training, whatever its name: invariants over roles carry over between
 * optimizers and models. X(number, NAME, "text"). */
#define TOCSIN_ROLE_TABLE(X)                                                                       \
    X(0, NONE, "")                                                                                 \
    X(1, FORWARD, "forward")               /* a module is called */                                \
    X(2, LOSS, "loss")                     /* a loss function or loss module */                    \
    X(3, BACKWARD, "backward")             /* the autograd engine runs */                          \
    X(4, ZERO_GRAD, "zero_grad")           /* of an optimizer or a module */                       \
    X(5, OPTIMIZER_STEP, "optimizer.step") /* one update, or one skipped update */                 \
    X(6, CLIP_GRAD, "clip_grad")                                                                   \
    X(7, SCHEDULER_STEP, "lr_scheduler.step")                                                      \
    X(8, COLLECTIVE, "collective") /* torch.distributed communication */                           \
    X(9, DATA_NEXT, "data.next")   /* a DataLoader hands over a batch */                           \
    X(10, SCALER, "grad_scaler")                                                                   \
    X(11, MODE, "mode")             /* train(), eval(), requires_grad_() */                        \
    X(12, INITIALIZE, "init")       /* torch.nn.init and in-place random fills */                  \
    X(13, CHECKPOINT, "checkpoint") /* save, load, load_state_dict */                              \
    X(14, STEP_END, "step.end")     /* marker: a training step is complete */                      \
    X(15, USER, "user")             /* functions of packages named by --module */

typedef enum tocsin_role {
#define X(number, name, text) TOCSIN_ROLE_##name = number,
    TOCSIN_ROLE_TABLE(X)
#undef X
} tocsin_role;

/* "optimizer.step"; "" for NONE and unknown numbers. */
TOCSIN_API const char *tocsin_role_name(tocsin_role role);
/* The role of that name, or TOCSIN_ROLE_NONE. */
TOCSIN_API tocsin_role tocsin_role_from_name(const char *name);

/* ---- values: arguments, returns, meta ------------------------------------------------------ */

typedef enum tocsin_value_kind {
    TOCSIN_VALUE_NONE = 0, /* Python's None */
    TOCSIN_VALUE_BOOL = 1,
    TOCSIN_VALUE_INT = 2,
    TOCSIN_VALUE_FLOAT = 3,
    TOCSIN_VALUE_STRING = 4,   /* as.text: string id; texts are cut at 256 bytes */
    TOCSIN_VALUE_TENSOR = 5,   /* dtype, ndim, flags, as.shape; count = a tag of its memory: equal
                                  tags mean the same address (0: unknown); type, if the Python type
                                  is not torch.Tensor or Parameter */
    TOCSIN_VALUE_SEQUENCE = 6, /* list or tuple: count = its length; min(count, 4) values follow,
                                  they belong to it (flag IN_SEQUENCE) and do not nest further */
    TOCSIN_VALUE_OBJECT = 7,   /* any other object: only its type; enum members and dtypes are
                                  STRING ("torch.float32"), and so are process groups and meshes:
                                  count and ranks, "group:3:0,2,5" or first + stride,
                                  "group:4:0+2". count = a tag of its address, of the object that a
                                  method is bound to; else 0 */
    TOCSIN_VALUE_MODULE = 8,   /* a torch.nn.Module: type, as.text = canonical name or 0, flags */
    TOCSIN_VALUE_BIG = 9       /* an int outside 64 bits */
} tocsin_value_kind;

enum {                                 /* tocsin_value.flags */
       TOCSIN_VALUE_REQUIRES_GRAD = 1, /* TENSOR */
       TOCSIN_VALUE_HAS_GRAD_FN = 2,   /* TENSOR: not a leaf */
       TOCSIN_VALUE_IS_PARAMETER = 4,  /* TENSOR */
       TOCSIN_VALUE_TRAINING = 8,      /* MODULE: module.training */
       TOCSIN_VALUE_IN_SEQUENCE = 16,
       TOCSIN_VALUE_ON_DEVICE = 32, /* TENSOR: not on the CPU */
       TOCSIN_VALUE_HAS_ITEM = 64 /* TENSOR of one element: the next value, a FLOAT or INT with flag
                                     IN_SEQUENCE, is that element */
};

typedef struct tocsin_value {
    uint8_t kind;  /* tocsin_value_kind */
    uint8_t dtype; /* TENSOR: tocsin_dtype */
    uint8_t ndim;  /* TENSOR */
    uint8_t flags;
    uint32_t count; /* SEQUENCE: length; TENSOR, OBJECT: memory tag */
    tocsin_id name; /* string id: argument name ("input", "self", "arg0" when unknown), attribute of
                       the bound object ("self.lr"), or "return" */
    tocsin_id type; /* string id: qualified Python type (OBJECT, MODULE, some TENSORs), else 0 */
    union {
        int64_t integer; /* BOOL (0, 1), INT */
        double real;     /* FLOAT */
        tocsin_id text;  /* STRING, MODULE */
        tocsin_id shape; /* TENSOR: dictionary id of the shape; 0 for 0-d */
    } as;
} tocsin_value;

/* ---- state of a tracked variable ----------------------------------------------------------- */

typedef enum tocsin_variable_kind {
    TOCSIN_VARIABLE_PARAMETER = 1,
    TOCSIN_VARIABLE_BUFFER = 2,
    TOCSIN_VARIABLE_OPTIMIZER_STATE = 3, /* "head.weight#exp_avg": of the parameter before '#' */
    TOCSIN_VARIABLE_RNG = 4,             /* a generator: "torch", "numpy", "python" */
    TOCSIN_VARIABLE_LEDGER = 5,          /* the sample ids a loader hands out: "loader0" */
    TOCSIN_VARIABLE_ATTRIBUTE = 6, /* of a module or optimizer: "dropout.p", "optimizer0.lr" */
    TOCSIN_VARIABLE_BOUNDARY = 7   /* what passes into and out of calls of a module: "layers.0" */
} tocsin_variable_kind;

/* Attributes of variables (tocsin_state.attribute):
 *   "data" "grad"  of a parameter or buffer; "data" also of optimizer state
 *   "saved" "loaded"  a tensor in a checkpoint that was written, or read, named by its key there
 *   "samples"      LEDGER: values = "batch", its number in this pass over the data, then what is
 *                  known of the loader, then each "id" of the batch, in order; the ids of a large
 *                  batch fill several events in a row
 *   "input" "output" "grad_output"  BOUNDARY: a tensor that the enclosing call was given or
 *                  returned, and the gradient of one that it returned; several in their order
 *   "grad_local" "grad_reduced"  BOUNDARY: a parameter's gradient as this process computed it,
 *                  and as it is after communication
 *   "value"        RNG: the digest is that of its state's bytes; ATTRIBUTE: values[0];
 *                  PARAMETER: it is registered anew over the same memory, once as it was (values
 *                  = "replaced", True) and once as it is now (False) */

typedef enum tocsin_moment { /* when the state was read, relative to the enclosing call */
                             TOCSIN_MOMENT_ENTER = 1,
                             TOCSIN_MOMENT_EXIT = 2
} tocsin_moment;

enum {                                 /* tocsin_state.flags */
       TOCSIN_STATE_PRESENT = 1,       /* the attribute is not None; else no dtype, shape, digest */
       TOCSIN_STATE_DIGESTED = 2,      /* digest and statistics are valid */
       TOCSIN_STATE_REQUIRES_GRAD = 4, /* of the variable, also in states of its grad */
       TOCSIN_STATE_IS_LEAF = 8,
       TOCSIN_STATE_IN_OPTIMIZER = 16,      /* held by any live optimizer */
       TOCSIN_STATE_IN_THIS_OPTIMIZER = 32, /* held by the optimizer of the enclosing call */
       TOCSIN_STATE_IN_MODEL = 64,          /* reachable from an outermost module that was called */
       TOCSIN_STATE_TENSOR_PARALLEL = 128,  /* param.tensor_model_parallel is true */
       TOCSIN_STATE_MODULE_TRAINING = 256,  /* the owning module is in training mode */
       TOCSIN_STATE_TIED = 512,             /* another name shares this storage; hashed once */
       TOCSIN_STATE_HASHED = 1024, /* the digest is another tool's hash: equality means something,
                                      statistics are unknown (NaN) */
       TOCSIN_STATE_PIECE = 2048   /* a box of a larger tensor: see below */
};

/* A PIECE is what one rank holds of a sharded tensor, or one tile of a tensor. The state's shape is
 * the piece's own; its values are an INT "whole" for each axis, the shape of the whole, then an INT
 * "offset" for each, where the piece begins. The digest is one in the coordinates of the whole: the
 * digests of disjoint pieces add up (tocsin_digest_merge). A STRING "partial" ("sum") says that the
 * tensor is what all ranks' become when they are reduced so, which digests do not add up to. Of a
 * tile, which follows the state of its tensor, the first value is an INT "tile", its number. */

typedef struct tocsin_state {
    tocsin_id variable;  /* dictionary id of the variable */
    tocsin_id attribute; /* string id: see above */
    uint8_t moment;      /* tocsin_moment */
    uint8_t dtype;       /* tocsin_dtype */
    uint8_t ndim;
    uint32_t flags;
    tocsin_id shape;
    double lr; /* of the variable's group at a state inside optimizer.step; NaN elsewhere */
    tocsin_digest digest;
    tocsin_statistics statistics;
} tocsin_state;

/* ---- events -------------------------------------------------------------------------------- */

typedef enum tocsin_event_kind {
    TOCSIN_EVENT_ENTER = 1, /* function, site, values = arguments; `call` is given by the writer */
    TOCSIN_EVENT_EXIT = 2,  /* function, call of its ENTER, values = returns */
    TOCSIN_EVENT_RAISE = 3, /* function, call, values[0] = STRING with the exception's type */
    TOCSIN_EVENT_STATE = 4, /* state, values = what else is known of the variable; belongs to the
                               innermost open call of its thread */
    TOCSIN_EVENT_META = 5   /* key and value: holds for the process from here on */
} tocsin_event_kind;

/* Meta keys that the recorder writes; users may add others with set_meta.
 *   "rank" "world_size" "local_rank"   INT, once the process group exists; absent: one process
 *   "step"        INT: optimizer steps completed so far by the first optimizer (0 before)
 *   "micro_step"  INT: backward passes completed since the last optimizer step
 *   "stage"       STRING: "init" "training" "evaluation" or the user's word
 *   "autocast"    STRING: "" or the autocast dtype ("torch.bfloat16")
 *   "grad_enabled" BOOL
 *   "scaler.scale" FLOAT: of the GradScaler, as its update() left it
 *   "expect.steps" "expect.tokens"  INT: the declared plan
 *   "data_parallel" STRING: "world": a DistributedDataParallel over all ranks lives here */

#define TOCSIN_EVENT_VALUES_MAX 64

typedef struct tocsin_event {
    uint8_t kind;     /* tocsin_event_kind */
    uint32_t thread;  /* index of the thread's stream in the process, from 1 */
    uint32_t depth;   /* open calls of this thread before the event (reader fills it) */
    uint64_t time_ns; /* CLOCK_MONOTONIC of the process; never compared between processes */
    uint64_t call;    /* ordinal of the call in its thread, from 1; STATE and META: the innermost
                         open call, 0 at top level (reader fills it) */
    tocsin_id function;
    tocsin_id site; /* ENTER at depth 0 or with a role: where in the user's code; else 0 */
    tocsin_id key;  /* META: string id */
    uint32_t value_count;
    const tocsin_value *values; /* ENTER, EXIT, RAISE, STATE; META: one value */
    tocsin_state state;         /* STATE */
} tocsin_event;

/* Words for numbers: "enter", "tensor", "parameter"; "" for unknown numbers. */
TOCSIN_API const char *tocsin_event_kind_name(tocsin_event_kind kind);
TOCSIN_API const char *tocsin_value_kind_name(tocsin_value_kind kind);
TOCSIN_API const char *tocsin_variable_kind_name(tocsin_variable_kind kind);

#ifdef __cplusplus
}
#endif
#endif
