/* lib/tensor/cuda/digest_kernel.cu - the digest of many tensors on a GPU, in two launches.
 *
 * tocsin_digest_tiles: one block a tile, of whichever tensor; writes the tile's sums to its place.
 * tocsin_digest_tensors: one block a tensor; adds the sums of its tiles, which lie side by side.
 * No atomic operation, nothing to clear before, nothing allocated, nothing waited for: the result
 * does not depend on the order of blocks, and both can be captured into a graph.
 *
 * What a thread computes is in digest_kernel.h, which is also compiled for the host and tested
 * there; here is only what a host has not: the threads of a block telling each other their sums.
 */
#include "tensor/cuda/digest_kernel.h"

#define WARP_THREADS 32u
#define WARPS        (DIGEST_THREADS / WARP_THREADS)

static __device__ uint64_t from_lane(uint64_t value, unsigned distance)
{
    return __shfl_xor_sync(0xffffffffu, value, static_cast<int>(distance));
}

/* The sums of all threads of the block, in its first thread. Every thread of the block calls it. */
static __device__ digest_sums block_merge(digest_sums sums)
{
    __shared__ digest_sums warps[WARPS];
    for (unsigned distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        digest_sums other;
        other.sum = from_lane(sums.sum, distance);
        other.exclusive = from_lane(sums.exclusive, distance);
        other.polynomial = from_lane(sums.polynomial, distance);
        other.nan_count = from_lane(sums.nan_count, distance);
        other.inf_count = from_lane(sums.inf_count, distance);
        sums = digest_sums_merge(sums, other);
    }
    if (threadIdx.x % WARP_THREADS == 0)
        warps[threadIdx.x / WARP_THREADS] = sums;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < WARPS; ++warp)
            sums = digest_sums_merge(sums, warps[warp]);
    }
    return sums;
}

extern "C" __global__ void __launch_bounds__(DIGEST_THREADS)
    tocsin_digest_tiles(const digest_tile *tiles, digest_sums *tile_sums,
                        const __grid_constant__ digest_constants constants)
{
    const digest_tile tile = tiles[blockIdx.x];
    digest_sums sums = block_merge(digest_thread(&tile, &constants, threadIdx.x));
    if (threadIdx.x == 0)
        tile_sums[blockIdx.x] = digest_tile_close(sums, &tile);
}

extern "C" __global__ void __launch_bounds__(DIGEST_THREADS)
    tocsin_digest_tensors(const digest_range *ranges, const digest_sums *tile_sums,
                          digest_sums *results)
{
    const digest_range range = ranges[blockIdx.x];
    digest_sums sums = block_merge(digest_thread_tiles(&range, tile_sums, threadIdx.x));
    if (threadIdx.x == 0)
        results[blockIdx.x] = sums;
}
