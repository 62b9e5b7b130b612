/* bench/bench_digest.c - digest and statistics against plain reading of the same memory.
 *
 * Reading is an AVX2 sum of 64-bit words with four accumulators (plain C elsewhere). Both run on
 * one thread over the same buffer, far larger than the cache, interleaved for nine rounds; a figure
 * is the median over the rounds of read time / digest time: 1 would be as fast as reading. Times
 * are the thread's CPU time: both sides only compute and wait for memory, and other programs on the
 * machine then do not count as either.
 *
 * usage: bench_digest [OUT_DIRECTORY]    (else $TOCSIN_BENCH_OUT, else build/bench)
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <tocsin/tensor.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROUNDS       9
#define BUFFER_BYTES ((size_t)192 << 20)

typedef struct layout {
    const char *figure; /* name of the published figure, or NULL: printed only */
    const char *text;
    tocsin_dtype dtype;
    uint32_t ndim;
    int64_t shape[4];
    int64_t strides[4];
    int64_t whole[4];
} layout;

/* Each layout has as many bytes of elements as fit the buffer; axis 0 is computed from it. The
 * strides of axis 0 and `whole` are the tensor's, so rows64 does not become one long row: its rows
 * are shards of rows of 4096. */
static const layout layouts[] = {
    {"digest_vs_read", "fp32 contiguous", TOCSIN_DTYPE_FLOAT32, 2, {0, 4096}, {4096, 1}, {0, 4096}},
    {"digest_vs_read_rows64",
     "fp32 [*,64], a column shard of [*,4096]",
     TOCSIN_DTYPE_FLOAT32,
     2,
     {0, 64},
     {64, 1},
     {0, 4096}},
    {"digest_vs_read_channels_last",
     "fp32 conv weight [O,256,3,3] channels_last",
     TOCSIN_DTYPE_FLOAT32,
     4,
     {0, 256, 3, 3},
     {2304, 1, 768, 256},
     {0, 256, 3, 3}},
    {NULL,
     "fp32 images [N,3,224,224] channels_last",
     TOCSIN_DTYPE_FLOAT32,
     4,
     {0, 3, 224, 224},
     {150528, 1, 672, 3},
     {0, 3, 224, 224}},
    {NULL, "fp32 transposed [4096,*]", TOCSIN_DTYPE_FLOAT32, 2, {0, 4096}, {1, 0}, {0, 4096}},
    {NULL, "fp32 [*,64] of memory [*,128]", TOCSIN_DTYPE_FLOAT32, 2, {0, 64}, {128, 1}, {0, 64}},
    {NULL, "fp32 every second", TOCSIN_DTYPE_FLOAT32, 1, {0}, {2}, {0}},
    {NULL, "bf16 contiguous", TOCSIN_DTYPE_BFLOAT16, 1, {0}, {1}, {0}},
    {NULL, "fp16 contiguous", TOCSIN_DTYPE_FLOAT16, 1, {0}, {1}, {0}},
    {NULL, "fp64 contiguous", TOCSIN_DTYPE_FLOAT64, 1, {0}, {1}, {0}},
    {NULL, "int64 contiguous", TOCSIN_DTYPE_INT64, 1, {0}, {1}, {0}},
    {NULL, "int8 contiguous", TOCSIN_DTYPE_INT8, 1, {0}, {1}, {0}},
};
#define LAYOUT_COUNT (sizeof layouts / sizeof layouts[0])

static double thread_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_buffer(const unsigned char *buffer,
                                                            size_t bytes)
{
    __m256i sums[4];
    memset(sums, 0, sizeof sums);
    for (size_t i = 0; i + 128 <= bytes; i += 128) {
        for (size_t k = 0; k < 4; ++k) {
            const void *at = buffer + i + k * 32;
            sums[k] = _mm256_add_epi64(sums[k], _mm256_loadu_si256((const __m256i *)at));
        }
    }
    uint64_t lanes[16];
    memcpy(lanes, sums, sizeof lanes);
    uint64_t sum = 0;
    for (size_t k = 0; k < 16; ++k)
        sum += lanes[k];
    return sum;
}
#else
static uint64_t read_buffer(const unsigned char *buffer, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, buffer + i, 8);
        sum += word;
    }
    return sum;
}
#endif

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof values[0], compare_doubles);
    return values[ROUNDS / 2];
}

/* Values of the scale of weights, in the layout's own float format; other dtypes read fp32 bits. */
static void fill(unsigned char *buffer, tocsin_dtype dtype)
{
    uint64_t state = 1;
    bool is_narrow = dtype == TOCSIN_DTYPE_BFLOAT16 || dtype == TOCSIN_DTYPE_FLOAT16;
    for (size_t i = 0; i < BUFFER_BYTES; i += is_narrow ? 2 : 4) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        float value = ((float)(state >> 40) / 8388608.0f - 1.0f) * 0.02f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        uint16_t narrow = (uint16_t)(bits >> 16); /* bf16, and a finite small fp16 */
        if (dtype == TOCSIN_DTYPE_FLOAT16)
            narrow &= 0xbfff;
        if (is_narrow)
            memcpy(buffer + i, &narrow, 2);
        else
            memcpy(buffer + i, &bits, 4);
    }
}

typedef struct result {
    double ratio;
    double digest_gb_s;
    double read_gb_s;
} result;

static bool measure(const layout *what, const unsigned char *buffer, result *measured)
{
    int64_t element_bytes = (int64_t)tocsin_dtype_bytes(what->dtype);
    int64_t capacity = (int64_t)BUFFER_BYTES / element_bytes;
    int64_t inner = 1;
    for (uint32_t d = 1; d < what->ndim; ++d)
        inner *= what->shape[d];
    int64_t shape[4];
    int64_t whole[4];
    int64_t strides[4];
    memcpy(shape, what->shape, sizeof shape);
    memcpy(whole, what->whole, sizeof whole);
    memcpy(strides, what->strides, sizeof strides);
    shape[0] = what->strides[0] > inner ? capacity / what->strides[0] : capacity / inner;
    whole[0] = shape[0];
    if (what->ndim == 2 && strides[1] == 0)
        strides[1] = shape[0];
    tocsin_tensor_view view = {.data = buffer,
                               .dtype = what->dtype,
                               .ndim = what->ndim,
                               .shape = shape,
                               .strides = strides,
                               .global_shape = whole};
    double ratios[ROUNDS];
    double digest_s[ROUNDS];
    double read_s[ROUNDS];
    for (int round = -1; round < ROUNDS; ++round) { /* the first one only warms up */
        volatile uint64_t sink;
        double start = thread_s();
        sink = read_buffer(buffer, BUFFER_BYTES);
        double middle = thread_s();
        tocsin_digest digest;
        tocsin_statistics statistics;
        if (tocsin_tensor_digest(&view, &digest, &statistics, NULL) != TOCSIN_OK)
            return false;
        double end = thread_s();
        (void)sink;
        if (round < 0)
            continue;
        read_s[round] = middle - start;
        digest_s[round] = end - middle;
        ratios[round] = (middle - start) / (end - middle);
    }
    *measured = (result){.ratio = median(ratios),
                         .digest_gb_s = (double)BUFFER_BYTES * 1e-9 / median(digest_s),
                         .read_gb_s = (double)BUFFER_BYTES * 1e-9 / median(read_s)};
    return true;
}

static bool write_json(const char *directory, const result results[LAYOUT_COUNT])
{
    char path[4096];
    snprintf(path, sizeof path, "%s/digest_vs_read.json", directory);
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "bench_digest: %s: %s\n", path, strerror(errno));
        return false;
    }
    fprintf(file, "{\"schema\":1,\"kernel\":\"%s\",\"buffer_bytes\":%zu,\"rounds\":%d",
            tocsin_tensor_kernel(), BUFFER_BYTES, ROUNDS);
    fprintf(file, ",\"results\":[");
    for (size_t i = 0; i < LAYOUT_COUNT; ++i)
        fprintf(file,
                "%s\n{\"layout\":\"%s\",\"figure\":\"%s\",\"ratio\":%.4f,"
                "\"digest_gb_s\":%.3f,\"read_gb_s\":%.3f}",
                i ? "," : "", layouts[i].text, layouts[i].figure ? layouts[i].figure : "",
                results[i].ratio, results[i].digest_gb_s, results[i].read_gb_s);
    fprintf(file, "\n]}\n");
    return fclose(file) == 0;
}

static void make_directories(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/", directory);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); ++slash) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : getenv("TOCSIN_BENCH_OUT");
    if (!directory)
        directory = "build/bench";
    unsigned char *buffer = aligned_alloc(64, BUFFER_BYTES);
    if (!buffer) {
        fprintf(stderr, "bench_digest: no memory for a buffer of %zu bytes\n", BUFFER_BYTES);
        return 1;
    }
    result results[LAYOUT_COUNT];
    for (size_t i = 0; i < LAYOUT_COUNT; ++i) {
        if (i == 0 || layouts[i].dtype != layouts[i - 1].dtype)
            fill(buffer, layouts[i].dtype);
        if (!measure(&layouts[i], buffer, &results[i])) {
            fprintf(stderr, "bench_digest: %s was refused\n", layouts[i].text);
            free(buffer);
            return 1;
        }
        fprintf(stderr, "%-48s digest %6.2f GB/s, read %6.2f GB/s, ratio %.3f\n", layouts[i].text,
                results[i].digest_gb_s, results[i].read_gb_s, results[i].ratio);
        if (layouts[i].figure)
            printf("figure %s %.3f ratio\n", layouts[i].figure, results[i].ratio);
    }
    free(buffer);
    make_directories(directory);
    return write_json(directory, results) ? 0 : 1;
}
