/* lib/tensor/digest.c - the public digest: walk the view, run a kernel, close the tally.
 *
 * The maths is in docs/digest.md. Floating point runs in a fixed environment (round to nearest, no
 * flush to zero, no traps), whatever the calling thread has set, and the caller's environment,
 * sticky flags included, is restored: the result depends on the bits of the tensor alone, and
 * training is not disturbed.
 *
 * Cost: one pass over memory. Stack: about 45 KiB in an optimised build.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "tensor/mersenne61.h"
#include "tensor/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <fenv.h>
#endif

/* ---- floating point environment ------------------------------------------------------------- */

#if defined(__x86_64__)
typedef unsigned float_environment;

static float_environment float_environment_enter(void)
{
    unsigned saved = _mm_getcsr();
    _mm_setcsr(0x1f80); /* the power-on default: all exceptions masked, nearest, no FTZ, no DAZ */
    return saved;
}

static void float_environment_leave(float_environment saved)
{
    _mm_setcsr(saved);
}
#else
typedef fenv_t float_environment;

static float_environment float_environment_enter(void)
{
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static void float_environment_leave(float_environment saved)
{
    fesetenv(&saved);
}
#endif

/* ---- from tally to result -------------------------------------------------------------------- */

static tocsin_statistics close_histogram(const tocsin_tally *tally, tocsin_dtype dtype)
{
    tocsin_statistics statistics = {0};
    for (unsigned bits = 0; bits < 256; ++bits) {
        uint64_t count = tally->histogram[bits];
        if (count == 0)
            continue;
        double value = tocsin_byte_decode(dtype, (uint8_t)bits);
        if (isnan(value)) {
            statistics.nan_count += count;
        } else if (isinf(value)) {
            statistics.inf_count += count;
        } else {
            statistics.zero_count += value == 0 ? count : 0;
            statistics.absmax = fmax(statistics.absmax, fabs(value));
            statistics.sum_squares = fma(value * value, (double)count, statistics.sum_squares);
        }
    }
    return statistics;
}

static tocsin_statistics close_lanes(const tocsin_tally *tally)
{
    double lanes[TOCSIN_LANES];
    memcpy(lanes, tally->lanes, sizeof lanes);
    for (size_t half = TOCSIN_LANES / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i)
            lanes[i] += lanes[i + half];
    }
    return (tocsin_statistics){.nan_count = tally->nan_count,
                               .inf_count = tally->inf_count,
                               .zero_count = tally->zero_count,
                               .absmax = tally->absmax,
                               .sum_squares = lanes[0]};
}

static tocsin_statistics close_statistics(const tocsin_tally *tally, const tocsin_walk *walk)
{
    tocsin_statistics statistics = walk->layout->encoding == TOCSIN_ENCODING_BYTE
                                       ? close_histogram(tally, walk->dtype)
                                       : close_lanes(tally);
    statistics.nan_count *= walk->repeat_count;
    statistics.inf_count *= walk->repeat_count;
    statistics.zero_count *= walk->repeat_count;
    statistics.sum_squares *= (double)walk->repeat_count;
    return statistics;
}

static tocsin_digest close_digest(const tocsin_tally *tally, const tocsin_walk *walk)
{
    assert(tally->polynomial < M61_PRIME);
    return (tocsin_digest){.sum = tally->sum * walk->repeat_count,
                           .exclusive = walk->repeat_count % 2 ? tally->exclusive : 0,
                           .polynomial = m61_mul(tally->polynomial, walk->repeat_weight)};
}

tocsin_status tocsin_digest_with(tocsin_digest_kernel *kernel, const tocsin_tensor_view *view,
                                 tocsin_digest *digest, tocsin_statistics *statistics,
                                 tocsin_error *error)
{
    tocsin_walk walk;
    tocsin_status status = tocsin_walk_init(&walk, view, error);
    if (status != TOCSIN_OK)
        return status;
    tocsin_tally tally;
    memset(&tally, 0, sizeof tally);
    float_environment saved = float_environment_enter();
    if (!walk.finished)
        kernel(&walk, &tally);
    assert(walk.finished);
    if (digest)
        *digest = close_digest(&tally, &walk);
    if (statistics)
        *statistics = close_statistics(&tally, &walk);
    float_environment_leave(saved);
    return TOCSIN_OK;
}

/* The kernels, best first. */
static const struct kernel_choice {
    const char *name;
    tocsin_digest_kernel *kernel;
    bool (*is_supported)(void);
} kernels[] = {
    {"avx512", tocsin_digest_walk_avx512, tocsin_digest_avx512_is_supported},
    {"avx2", tocsin_digest_walk_avx2, tocsin_digest_avx2_is_supported},
    {"scalar", tocsin_digest_walk_scalar, NULL},
};

static const struct kernel_choice *best_kernel(void)
{
    const struct kernel_choice *choice = kernels;
    while (choice->is_supported && !choice->is_supported())
        ++choice;
    return choice;
}

tocsin_status tocsin_tensor_digest(const tocsin_tensor_view *view, tocsin_digest *digest,
                                   tocsin_statistics *statistics, tocsin_error *error)
{
    return tocsin_digest_with(best_kernel()->kernel, view, digest, statistics, error);
}

tocsin_status tocsin_tensor_digest_scalar(const tocsin_tensor_view *view, tocsin_digest *digest,
                                          tocsin_statistics *statistics, tocsin_error *error)
{
    return tocsin_digest_with(tocsin_digest_walk_scalar, view, digest, statistics, error);
}

const char *tocsin_tensor_kernel(void)
{
    return best_kernel()->name;
}

/* ---- algebra --------------------------------------------------------------------------------- */

tocsin_digest tocsin_digest_merge(tocsin_digest a, tocsin_digest b)
{
    return (tocsin_digest){.sum = a.sum + b.sum,
                           .exclusive = a.exclusive ^ b.exclusive,
                           .polynomial = m61_add(a.polynomial, b.polynomial)};
}

tocsin_digest tocsin_digest_shift(tocsin_digest digest, uint64_t words)
{
    digest.polynomial = m61_mul(digest.polynomial, m61_pow(M61_BASE, words));
    return digest;
}

tocsin_statistics tocsin_statistics_merge(tocsin_statistics a, tocsin_statistics b)
{
    return (tocsin_statistics){.nan_count = a.nan_count + b.nan_count,
                               .inf_count = a.inf_count + b.inf_count,
                               .zero_count = a.zero_count + b.zero_count,
                               .absmax = fmax(a.absmax, b.absmax),
                               .sum_squares = a.sum_squares + b.sum_squares};
}
