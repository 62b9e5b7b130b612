/* tocsin/plan.h - parallel training plans: what every rank computes in one training step.
 *
 * A plan is read from a `.plan` text (docs/formats/plan.md) or from an nnScaler execution plan
 * (`.pkl`, `.pkl.zst`: a pickle that is read as data, nothing in it is ever executed). The logical
 * model and its parallel version are two plans; tocsin/verify.h decides whether they are the same
 * maths.
 *
 * Threads: a plan belongs to one thread while it is read or built; afterwards it is read-only and
 * may be shared.
 */
#ifndef TOCSIN_PLAN_H
#define TOCSIN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_plan tocsin_plan;

/* Which order the members of a process group have when shards are gathered or cut in a plan of
 * nnScaler, whose file names the members without an order that the runtime keeps. */
typedef enum tocsin_plan_order {
    TOCSIN_PLAN_ORDER_GROUP,   /* ascending ranks: what torch.distributed does */
    TOCSIN_PLAN_ORDER_METADATA /* the order of the slices that the plan's tensors declare */
} tocsin_plan_order;

/* The sizes of a parallel world; 0: not given. */
typedef struct tocsin_plan_world {
    uint32_t dp;
    uint32_t pp;
    uint32_t tp;
    uint32_t nm; /* micro-batches of one step */
} tocsin_plan_world;

typedef struct tocsin_plan_options {
    tocsin_plan_world world; /* for pickles; 0: from the file's name, as `_dp2_pp2_tp2_nm2_` */
    tocsin_plan_order order;
    const char *operators_path; /* a file of operator declarations (`--ops`), or NULL */
} tocsin_plan_options;

typedef struct tocsin_plan_size {
    uint64_t roles;      /* rank classes that are listed */
    uint64_t ranks;      /* of the world */
    uint64_t operators;  /* listed */
    uint64_t executions; /* operators x replicas x micro-batches */
} tocsin_plan_size;

/* Read a plan; the kind of the file is told by its content. `options` may be NULL. The plan is the
 * caller's, to be freed. A plan with operators that cannot run (shapes that do not fit, a
 * collective whose caller is not in its group) is read: tocsin_verify reports them.
 * Errors: E_NOT_FOUND, E_IO, E_FORMAT (with the byte offset; in a text also the line), E_VERSION,
 * E_LIMIT, E_UNSUPPORTED (an object or operator that the reader does not know, by name), E_MEMORY.
 */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_plan_read(const char *path,
                                                            const tocsin_plan_options *options,
                                                            tocsin_plan **plan,
                                                            tocsin_error *error);

/* The same from `bytes` bytes of memory; `name` stands in errors and gives a pickle's world. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_plan_read_memory(const void *memory, size_t bytes, const char *name,
                        const tocsin_plan_options *options, tocsin_plan **plan,
                        tocsin_error *error);

/* Write `.plan` text, which reads back as an equal plan. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_plan_write(const tocsin_plan *plan, FILE *stream,
                                                             tocsin_error *error);

TOCSIN_API tocsin_plan_size tocsin_plan_get_size(const tocsin_plan *plan);
TOCSIN_API void tocsin_plan_free(tocsin_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
