/* emulated_grid.h - the two kernels of digest_kernel.cu on the CPU, in any order.
 *
 * The threads' work is the kernel's own source (digest_kernel.h). What is imitated is the rest of
 * digest_kernel.cu: blocks come in random order, the threads of a block too, and the sums of a warp
 * are added by the same exchange between lanes.
 */
#ifndef TOCSIN_EMULATED_GRID_H
#define TOCSIN_EMULATED_GRID_H

#include <stdlib.h>

#include "prop/digest_oracle.h"
#include "tensor/cuda/digest_kernel.h"

#define EMULATED_WARP 32u

/* 0 ... count - 1 in random order; free it. */
static inline uint32_t *emulated_order(uint32_t count, uint64_t *state)
{
    uint32_t *order = malloc((count + 1) * sizeof *order);
    if (!order)
        abort();
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t at = (uint32_t)oracle_below(state, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    return order;
}

/* The sums of a block's threads: lanes exchange theirs over distances 16, 8, 4, 2, 1; the first
 * lane of the first warp adds those of the other warps. */
static inline digest_sums emulated_merge(digest_sums *threads)
{
    for (uint32_t distance = EMULATED_WARP / 2; distance > 0; distance /= 2) {
        digest_sums before[DIGEST_THREADS];
        memcpy(before, threads, sizeof before);
        for (uint32_t t = 0; t < DIGEST_THREADS; ++t)
            threads[t] = digest_sums_merge(before[t], before[t ^ distance]);
    }
    digest_sums sums = threads[0];
    for (uint32_t t = EMULATED_WARP; t < DIGEST_THREADS; t += EMULATED_WARP)
        sums = digest_sums_merge(sums, threads[t]);
    return sums;
}

static inline void emulated_digest_tiles(const digest_tile *tiles, uint32_t count,
                                         digest_sums *tile_sums, const digest_constants *constants,
                                         uint64_t *state)
{
    uint32_t *blocks = emulated_order(count, state);
    for (uint32_t i = 0; i < count; ++i) {
        digest_sums sums[DIGEST_THREADS];
        uint32_t *threads = emulated_order(DIGEST_THREADS, state);
        const digest_tile *tile = &tiles[blocks[i]];
        for (uint32_t k = 0; k < DIGEST_THREADS; ++k)
            sums[threads[k]] = digest_thread(tile, constants, threads[k]);
        tile_sums[blocks[i]] = digest_tile_close(emulated_merge(sums), tile);
        free(threads);
    }
    free(blocks);
}

static inline void emulated_digest_tensors(const digest_range *ranges, uint32_t count,
                                           const digest_sums *tile_sums, digest_sums *results,
                                           uint64_t *state)
{
    uint32_t *blocks = emulated_order(count, state);
    for (uint32_t i = 0; i < count; ++i) {
        digest_sums sums[DIGEST_THREADS];
        for (uint32_t t = 0; t < DIGEST_THREADS; ++t)
            sums[t] = digest_thread_tiles(&ranges[blocks[i]], tile_sums, t);
        results[blocks[i]] = emulated_merge(sums);
    }
    free(blocks);
}

#endif
