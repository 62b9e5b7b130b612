/* tocsin/record.h - the recorder of one training process, without the language it runs in.
 *
 * A recorder owns this process's trace writer, knows what is to be recorded (everything, or a
 * selection), counts training steps, writes meta variables when they change and reads variables'
 * states. The Python extension observes calls and tells the recorder.
 *
 * Threads: one caller at a time (the extension holds the interpreter lock). The recorder lives
 * inside a training job: apart from opening, nothing fails visibly; after an error of the writer
 * the job goes on unrecorded. Processes: the file of a process is created at its first event, so a
 * process that does nothing of interest leaves none.
 */
#ifndef TOCSIN_RECORD_H
#define TOCSIN_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/event.h>
#include <tocsin/status.h>
#include <tocsin/tensor.h>
#include <tocsin/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_recorder tocsin_recorder;

typedef enum tocsin_attribute {
    TOCSIN_ATTRIBUTE_DATA = 0,
    TOCSIN_ATTRIBUTE_GRAD = 1,
    TOCSIN_ATTRIBUTE_SAVED = 2,
    TOCSIN_ATTRIBUTE_LOADED = 3,
    TOCSIN_ATTRIBUTE_SAMPLES = 4,
    TOCSIN_ATTRIBUTE_VALUE = 5,
    TOCSIN_ATTRIBUTE_INPUT = 6,
    TOCSIN_ATTRIBUTE_OUTPUT = 7,
    TOCSIN_ATTRIBUTE_GRAD_OUTPUT = 8,
    TOCSIN_ATTRIBUTE_GRAD_LOCAL = 9,
    TOCSIN_ATTRIBUTE_GRAD_REDUCED = 10,
    TOCSIN_ATTRIBUTE_COUNT = 11
} tocsin_attribute;

/* "saved"; "" for other numbers. */
TOCSIN_API const char *tocsin_attribute_name(tocsin_attribute attribute);
/* The attribute of that name, -1: none. */
TOCSIN_API int tocsin_attribute_from_name(const char *name);

/* How much of a state is read. */
typedef enum tocsin_sampling {
    TOCSIN_SAMPLING_NONE = 0,
    TOCSIN_SAMPLING_PRESENCE = 1, /* is it there; dtype, shape, flags */
    TOCSIN_SAMPLING_DIGEST = 2    /* and its digest and statistics */
} tocsin_sampling;

#define TOCSIN_DIGEST_ALWAYS 2

/* ---- 1. Life ------------------------------------------------------------------------------- */

typedef struct tocsin_recorder_options {
    size_t struct_bytes;   /* sizeof this struct */
    const char *directory; /* the run; must exist when the first event is written */
    const char *selection; /* path of a selection file; NULL: record everything */
    uint32_t digest_every; /* digest data and gradients of the model only in the first
                              TOCSIN_DIGEST_ALWAYS steps and each such step; 0, 1: in all */
} tocsin_recorder_options;

/* Read the selection; no file is created yet. Errors: E_MEMORY, and those of the selection file:
 * E_NOT_FOUND, E_IO, E_FORMAT, E_VERSION, E_LIMIT. Free with _close. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_recorder_open(
    const tocsin_recorder_options *options, tocsin_recorder **recorder, tocsin_error *error);

/* The writer of this process, created at the first call; NULL after a failure (asked once). */
TOCSIN_API tocsin_trace_writer *tocsin_recorder_writer(tocsin_recorder *recorder);
/* Why there is no writer; OK while there was no failure. */
TOCSIN_API tocsin_status tocsin_recorder_failure(const tocsin_recorder *recorder,
                                                 tocsin_error *error);

/* In a forked child: drop the parent's writer, count from zero, open a file at the next event.
 * Dictionary ids obtained before are void: _generation changes. */
TOCSIN_API void tocsin_recorder_forked(tocsin_recorder *recorder);
TOCSIN_API uint32_t tocsin_recorder_generation(const tocsin_recorder *recorder);

/* Write the cost as meta variables, close the file, free. Accepts NULL. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_recorder_close(tocsin_recorder *recorder,
                                                                 tocsin_error *error);

/* ---- 2. What to record --------------------------------------------------------------------- */

/* Is there a selection? Without one everything is recorded. */
TOCSIN_API bool tocsin_recorder_is_selective(const tocsin_recorder *recorder);
/* Is a function of this name and role to be recorded, and with arguments and returns? */
TOCSIN_API bool tocsin_recorder_wants_call(const tocsin_recorder *recorder, const char *name,
                                           tocsin_role role, bool *arguments);
/* The selected roles and functions, in file order; NULL past the end. A role's name comes from
 * tocsin_role_name. */
TOCSIN_API const char *tocsin_recorder_selected_role(const tocsin_recorder *recorder, size_t index,
                                                     bool *arguments);
TOCSIN_API const char *tocsin_recorder_selected_function(const tocsin_recorder *recorder,
                                                         size_t index, bool *arguments);
/* Does anything have to be read at this point? */
TOCSIN_API bool tocsin_recorder_samples(const tocsin_recorder *recorder, tocsin_role role,
                                        tocsin_moment moment);
/* How much of this attribute of such variables, here and now. */
TOCSIN_API tocsin_sampling tocsin_recorder_sampling(const tocsin_recorder *recorder,
                                                    tocsin_role role, tocsin_moment moment,
                                                    tocsin_attribute attribute,
                                                    tocsin_variable_kind kind);

/* Look closely at one training step (from 1; 0: none, the default): whatever is digested in it is
 * digested by tiles, too, rows of its leading axis, finest the tensor of this name and attribute.
 * Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_recorder_drill(tocsin_recorder *recorder,
                                                                 int64_t step, const char *name,
                                                                 const char *attribute,
                                                                 tocsin_error *error);
/* Is the present step that one, or is there none? Else boundaries need not be read. */
TOCSIN_API bool tocsin_recorder_looks_closely(const tocsin_recorder *recorder);

/* ---- 3. States ----------------------------------------------------------------------------- */

typedef struct tocsin_sample_digest {
    tocsin_digest digest;
    tocsin_statistics statistics;
} tocsin_sample_digest;

/* One attribute of one variable at one moment. */
typedef struct tocsin_sample {
    tocsin_id variable;
    tocsin_attribute attribute;
    tocsin_moment moment;
    uint32_t flags; /* tocsin_state.flags; DIGESTED is set by _sample */
    double lr;      /* NaN: unknown */
    tocsin_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    tocsin_id shape_id;                /* 0: defined from `shape` when there are axes */
    const tocsin_tensor_view *view;    /* non-NULL: digest it, unless it is known */
    const tocsin_sample_digest *known; /* non-NULL: this digest, already computed (tied names) */
    const tocsin_value *values;        /* what else is known */
    uint32_t value_count;
} tocsin_sample;

/* Emit the state. With a view the digest is computed, and stored in `*computed` (nullable).
 * Returns whether the state carries a digest. */
TOCSIN_API bool tocsin_recorder_sample(tocsin_recorder *recorder, const tocsin_sample *sample,
                                       tocsin_sample_digest *computed);

/* ---- 4. Meta variables --------------------------------------------------------------------- */

enum { /* keys known from the start; see tocsin/event.h for their meaning */
       TOCSIN_META_RANK,
       TOCSIN_META_WORLD_SIZE,
       TOCSIN_META_LOCAL_RANK,
       TOCSIN_META_STEP,
       TOCSIN_META_MICRO_STEP,
       TOCSIN_META_STAGE,
       TOCSIN_META_AUTOCAST,
       TOCSIN_META_GRAD_ENABLED,
       TOCSIN_META_KNOWN_COUNT
};
#define TOCSIN_META_KEYS_MAX       256
#define TOCSIN_META_TEXT_BYTES_MAX 256

/* The index of a key, known or new; -1 when there are too many keys or no memory. */
TOCSIN_API int tocsin_recorder_meta_key(tocsin_recorder *recorder, const char *name);
/* Set a meta variable; an event is written only when the value changes, and only if this process
 * has a file (when it gets one, all values are written first). Indices out of range are ignored. */
TOCSIN_API void tocsin_recorder_meta_int(tocsin_recorder *recorder, int key, int64_t value);
TOCSIN_API void tocsin_recorder_meta_bool(tocsin_recorder *recorder, int key, bool value);
TOCSIN_API void tocsin_recorder_meta_real(tocsin_recorder *recorder, int key, double value);
TOCSIN_API void tocsin_recorder_meta_text(tocsin_recorder *recorder, int key, const char *text,
                                          size_t bytes);

/* ---- 5. Steps ------------------------------------------------------------------------------ */

/* An optimizer has completed a step. The training step advances with the leading optimizer: the
 * first one that completed a step; another takes over after TOCSIN_LEADER_LAG steps of others in a
 * row (training went on with another optimizer). Any step ends the micro-steps. */
#define TOCSIN_LEADER_LAG 16
TOCSIN_API void tocsin_recorder_optimizer_stepped(tocsin_recorder *recorder, uint32_t slot);
/* The slot of the leading optimizer, -1: none yet. _depose: it is gone, the next to step leads. */
TOCSIN_API int64_t tocsin_recorder_leader(const tocsin_recorder *recorder);
TOCSIN_API void tocsin_recorder_depose(tocsin_recorder *recorder);
/* Does this optimizer lead? Any does while no step was completed. */
TOCSIN_API bool tocsin_recorder_leads(const tocsin_recorder *recorder, uint32_t slot);
/* A backward pass is complete. */
TOCSIN_API void tocsin_recorder_backward_passed(tocsin_recorder *recorder);
/* The user says that a step is complete: from now on only the user does. */
TOCSIN_API void tocsin_recorder_user_step(tocsin_recorder *recorder);
/* The stage as observed ("training", "evaluation"); ignored after _user_stage. */
TOCSIN_API void tocsin_recorder_observed_stage(tocsin_recorder *recorder, const char *stage);
/* The user's word; NULL: back to observing. */
TOCSIN_API void tocsin_recorder_user_stage(tocsin_recorder *recorder, const char *stage);

/* ---- 6. Cost ------------------------------------------------------------------------------- */

/* Add time spent in observing. */
TOCSIN_API void tocsin_recorder_add_cost(tocsin_recorder *recorder, uint64_t cost_ns);

typedef struct tocsin_recorder_summary {
    int64_t steps;    /* completed in this process: a forked child does not count its parent's */
    uint64_t cost_ns; /* inside the recorder, as far as _add_cost was told */
    /* From the end of the first step, which finds and names everything, to the end of the last. */
    uint64_t measured_steps;
    uint64_t steps_cost_ns;
    uint64_t steps_wall_ns;
    uint64_t steps_digested_bytes;
    uint64_t digested_bytes;
    bool has_file;
    tocsin_trace_statistics trace;
} tocsin_recorder_summary;

TOCSIN_API void tocsin_recorder_summarize(const tocsin_recorder *recorder,
                                          tocsin_recorder_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
