/* prove/evaluate_world.h - all ranks of a plan, run to the end of the step. */
#ifndef TOCSIN_PROVE_EVALUATE_WORLD_H
#define TOCSIN_PROVE_EVALUATE_WORLD_H

#include "prove/evaluate_kernel.h"

/* Integers that a logical input may hold: [0, bound); 0: any real number. By the logical plan's
 * string id of the input's name. */
typedef struct tocsin_input_bounds {
    const tocsin_plan *logical;
    tocsin_map bound;
    uint64_t default_bound; /* for integers of which nothing else is known */
    int64_t constants[16];  /* integers that the plan compares with, perhaps */
    uint32_t constant_count;
} tocsin_input_bounds;

tocsin_status tocsin_input_bounds_find(const tocsin_plan *logical, tocsin_input_bounds *bounds,
                                       tocsin_error *error);

typedef struct tocsin_world_rank {
    const tocsin_plan_role *role;
    uint32_t device, replica;
    uint32_t turn, op; /* the next one: index of the turn in the role, of the op in the segment */
    tocsin_array *values; /* value v of micro-batch m: [v * microbatches + m]; single ones: m = 0 */
    const bool *single;   /* per value: one for all micro-batches */
} tocsin_world_rank;

typedef struct tocsin_message {
    uint32_t source, destination;
    int64_t tag;
    tocsin_array array;
    bool taken;
} tocsin_message;

typedef struct tocsin_world {
    const tocsin_plan *plan;
    tocsin_kernel *kernel;
    tocsin_world_rank *ranks; /* by rank number */
    uint32_t rank_count;
    TOCSIN_VEC(tocsin_message) messages;
    char stuck[256]; /* why it cannot go on, or "" */
} tocsin_world;

/* Fill the inputs and run. A plan that gets stuck is no error. Free in any case. */
tocsin_status tocsin_world_run(tocsin_world *world, const tocsin_plan *plan, tocsin_kernel *kernel,
                               const tocsin_input_bounds *bounds);
void tocsin_world_free(tocsin_world *world);

/* The value as micro-batch m sees it; NULL: a value of micro-batches, seen from none (m = -1). */
tocsin_array *tocsin_world_value(const tocsin_world *world, const tocsin_world_rank *rank,
                                 uint32_t value, int64_t microbatch);
int64_t tocsin_affine_at(const tocsin_affine *affine, uint32_t replica, int64_t microbatch);

#endif
