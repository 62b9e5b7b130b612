/* bench/bench_gpu_digest.c - the digest on a GPU: is it right, and how fast is it?
 *
 * Right: random tensors of every dtype, at odd sizes and addresses, against the CPU's digest.
 * Fast: one tensor of 1 KiB ... 4 GiB, beside a copy within the device (which reads and writes as
 * many bytes); the parameters of a transformer of 955 million in one launch; what a launch costs
 * the host, called and replayed from a graph. Times are medians of nine, by the device's own
 * events, each over as many launches as read about 1 GiB.
 *
 * Needs an NVIDIA driver and a build with the kernel; CUDA's headers and libraries are not used.
 * Where that is missing it says so, stores nothing and ends with 0; with --require-gpu with 1.
 *
 * usage: bench_gpu_digest [--require-gpu]
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tocsin/tensor_device.h>

#define ROUNDS             9
#define BYTES_PER_ROUND    ((uint64_t)1 << 30)
#define LAUNCHES_MAX       1000
#define CHECKED_BYTES      ((size_t)3 << 20)
#define LAYERS             32
#define WIDTH              1536
#define VOCABULARY         32000
#define TENSORS_MAX        (LAYERS * 12 + 3)

#define CAPTURE_RELAXED    2
#define STREAM_NONBLOCKING 1

/* X(field, symbol, parameters): handles are pointers, a device is an int. */
#define BENCH_DRIVER_TABLE(X)                                                                      \
    X(init, cuInit, (unsigned))                                                                    \
    X(version, cuDriverGetVersion, (int *))                                                        \
    X(device, cuDeviceGet, (int *, int))                                                           \
    X(device_name, cuDeviceGetName, (char *, int, int))                                            \
    X(retain, cuDevicePrimaryCtxRetain, (void **, int))                                            \
    X(set_current, cuCtxSetCurrent, (void *))                                                      \
    X(free_memory, cuMemGetInfo_v2, (size_t *, size_t *))                                          \
    X(allocate, cuMemAlloc_v2, (uint64_t *, size_t))                                               \
    X(to_device, cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                \
    X(copy, cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *))                            \
    X(create_stream, cuStreamCreate, (void **, unsigned))                                          \
    X(wait_stream, cuStreamSynchronize, (void *))                                                  \
    X(begin_capture, cuStreamBeginCapture_v2, (void *, int))                                       \
    X(end_capture, cuStreamEndCapture, (void *, void **))                                          \
    X(instantiate, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))             \
    X(launch_graph, cuGraphLaunch, (void *, void *))                                               \
    X(create_event, cuEventCreate, (void **, unsigned))                                            \
    X(record, cuEventRecord, (void *, void *))                                                     \
    X(elapsed, cuEventElapsedTime, (float *, void *, void *))                                      \
    X(error_text, cuGetErrorString, (int, const char **))

static struct {
#define X(field, symbol, parameters) int(*field) parameters;
    BENCH_DRIVER_TABLE(X)
#undef X
} cuda;

static void *stream;
static void *events[2];
static uint64_t memory; /* on the device */
static size_t memory_bytes;
static unsigned char *host; /* CHECKED_BYTES of random bytes */

/* ---- failures ------------------------------------------------------------------------------- */

static void check_cuda(int result, const char *what)
{
    const char *text = NULL;
    if (result == 0)
        return;
    if (cuda.error_text(result, &text) != 0 || !text)
        text = "unknown";
    fprintf(stderr, "bench_gpu_digest: %s: %s (%d)\n", what, text, result);
    exit(1);
}

static void check_tocsin(tocsin_status status, const tocsin_error *error)
{
    if (status == TOCSIN_OK)
        return;
    fprintf(stderr, "bench_gpu_digest: %s\n", error->message);
    exit(1);
}

/* ---- the device ----------------------------------------------------------------------------- */

/* NULL when there is a device to measure on, which is then current; else why not. */
static const char *find_device(void)
{
    static char reason[256];
    if (tocsin_device_kernel()[0] == 0)
        return "this build has no GPU kernel, because it was configured without nvcc";
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return "there is no NVIDIA driver (libcuda.so.1)";
#define X(field, symbol, parameters)                                                               \
    void *address_of_##field = dlsym(library, #symbol);                                            \
    if (!address_of_##field)                                                                       \
        return "the NVIDIA driver has no " #symbol;                                                \
    memcpy(&cuda.field, &address_of_##field, sizeof cuda.field);
    BENCH_DRIVER_TABLE(X)
#undef X
    int device;
    void *context;
    int result = cuda.init(0);
    if (result == 0)
        result = cuda.device(&device, 0);
    if (result == 0)
        result = cuda.retain(&context, device);
    if (result == 0)
        result = cuda.set_current(context);
    if (result != 0) {
        snprintf(reason, sizeof reason, "the NVIDIA driver finds no usable device (error %d)",
                 result);
        return reason;
    }
    int version;
    char name[256] = "";
    check_cuda(cuda.device_name(name, sizeof name, device), "name the device");
    check_cuda(cuda.version(&version), "tell the driver's version");
    printf("%s, driver for CUDA %d.%d, kernel for %s\n", name, version / 1000, version % 1000 / 10,
           tocsin_device_kernel());
    return NULL;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Random bytes everywhere; few of them are NaN in any dtype, as bits 6, 14, 22, 30 are mostly 0. */
static void fill_memory(void)
{
    size_t free_bytes, total;
    uint64_t state = 1;
    check_cuda(cuda.free_memory(&free_bytes, &total), "tell the free memory");
    memory_bytes = free_bytes / 10 * 8;
    if (memory_bytes > (size_t)9 << 30)
        memory_bytes = (size_t)9 << 30; /* 4 GiB, and a copy of it */
    memory_bytes -= memory_bytes % CHECKED_BYTES;
    check_cuda(cuda.allocate(&memory, memory_bytes), "allocate memory");
    host = malloc(CHECKED_BYTES);
    if (!host)
        exit(1);
    for (size_t i = 0; i < CHECKED_BYTES; i += 8) {
        uint64_t bits = next_random(&state);
        if (bits % 1000 != 0)
            bits &= UINT64_C(0xbfffbfffbfffbfff);
        memcpy(host + i, &bits, 8);
    }
    for (size_t at = 0; at < memory_bytes; at += CHECKED_BYTES)
        check_cuda(cuda.to_device(memory + at, host, CHECKED_BYTES), "copy to the device");
    check_cuda(cuda.create_stream(&stream, STREAM_NONBLOCKING), "make a stream");
    check_cuda(cuda.create_event(&events[0], 0), "make an event");
    check_cuda(cuda.create_event(&events[1], 0), "make an event");
}

/* ---- right? --------------------------------------------------------------------------------- */

static tocsin_device_digest *open_digest(const tocsin_tensor_view *views, size_t count)
{
    tocsin_device_digest *digest;
    tocsin_error error;
    check_tocsin(tocsin_device_digest_open(views, count, &digest, &error), &error);
    return digest;
}

static void read_digest(tocsin_device_digest *digest, tocsin_device_result *results)
{
    tocsin_error error;
    bool is_there;
    check_tocsin(tocsin_device_digest_fetch(digest, stream, &error), &error);
    check_tocsin(tocsin_device_digest_read(digest, true, results, &is_there, &error), &error);
}

static bool is_right(const tocsin_tensor_view *on_device, const tocsin_device_result *result)
{
    tocsin_tensor_view view = *on_device;
    view.data = host + ((uintptr_t)view.data - memory);
    tocsin_digest digest;
    tocsin_statistics statistics;
    tocsin_error error;
    check_tocsin(tocsin_tensor_digest(&view, &digest, &statistics, &error), &error);
    return memcmp(&digest, &result->digest, sizeof digest) == 0 &&
           statistics.nan_count == result->nan_count && statistics.inf_count == result->inf_count;
}

/* All dtypes in one launch: sizes and addresses at random, every third a shard of columns. */
static unsigned count_wrong(uint64_t seed)
{
    enum { COUNT = 3 * TOCSIN_DTYPE_FLOAT8_E8M0FNU };
    static const int64_t whole[2] = {INT64_C(1) << 20, INT64_C(1) << 20};
    static const int64_t offset[2] = {12345, 67};
    int64_t shapes[COUNT][2];
    tocsin_tensor_view views[COUNT];
    tocsin_device_result results[COUNT];
    for (size_t i = 0; i < COUNT; ++i) {
        tocsin_dtype dtype = (tocsin_dtype)(i / 3 + 1);
        size_t bytes = tocsin_dtype_bytes(dtype);
        size_t at = next_random(&seed) % (CHECKED_BYTES / 2) / bytes * bytes;
        size_t room = (CHECKED_BYTES - at) / bytes;
        bool is_shard = i % 3 == 0;
        shapes[i][1] = (int64_t)(64 + next_random(&seed) % (is_shard ? 3000 : room - 64));
        shapes[i][0] = is_shard ? (int64_t)(next_random(&seed) % (room / 3064)) : 1;
        views[i] = (tocsin_tensor_view){.data = (const void *)(uintptr_t)(memory + at),
                                        .dtype = dtype,
                                        .ndim = 2,
                                        .shape = shapes[i],
                                        .global_shape = is_shard ? whole : NULL,
                                        .offset = is_shard ? offset : NULL};
    }
    tocsin_device_digest *digest = open_digest(views, COUNT);
    tocsin_error error;
    check_tocsin(tocsin_device_digest_launch(digest, stream, &error), &error);
    read_digest(digest, results);
    tocsin_device_digest_close(digest);
    unsigned wrong = 0;
    for (size_t i = 0; i < COUNT; ++i) {
        if (!is_right(&views[i], &results[i])) {
            printf("WRONG: %s [%lld,%lld] at %llu\n", tocsin_dtype_name(views[i].dtype),
                   (long long)shapes[i][0], (long long)shapes[i][1],
                   (unsigned long long)((uintptr_t)views[i].data - memory));
            ++wrong;
        }
    }
    return wrong;
}

/* ---- fast? ---------------------------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b)
{
    float x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

typedef void work_function(void *context);

/* Median milliseconds of one call, `calls` at a time. */
static double median_ms(work_function *work, void *context, unsigned calls)
{
    float times[ROUNDS];
    work(context); /* warm up */
    for (int round = 0; round < ROUNDS; ++round) {
        check_cuda(cuda.record(events[0], stream), "record an event");
        for (unsigned i = 0; i < calls; ++i)
            work(context);
        check_cuda(cuda.record(events[1], stream), "record an event");
        check_cuda(cuda.wait_stream(stream), "wait");
        check_cuda(cuda.elapsed(&times[round], events[0], events[1]), "measure");
    }
    qsort(times, ROUNDS, sizeof times[0], compare_floats);
    return (double)times[ROUNDS / 2] / calls;
}

static unsigned calls_for(uint64_t bytes)
{
    uint64_t calls = BYTES_PER_ROUND / bytes;
    return calls < 1 ? 1 : calls > LAUNCHES_MAX ? LAUNCHES_MAX : (unsigned)calls;
}

static void launch_work(void *context)
{
    tocsin_error error;
    check_tocsin(tocsin_device_digest_launch(context, stream, &error), &error);
}

static void graph_work(void *context)
{
    check_cuda(cuda.launch_graph(context, stream), "launch the graph");
}

static void copy_work(void *context)
{
    const uint64_t *bytes = context;
    check_cuda(cuda.copy(memory + *bytes, memory, *bytes, stream), "copy");
}

static double rate(uint64_t bytes, double ms)
{
    return (double)bytes / ms / 1e6;
}

/* GB/s of one contiguous tensor; 0: does not fit. */
static double measure_one(tocsin_dtype dtype, uint64_t bytes)
{
    if (bytes > memory_bytes)
        return 0;
    int64_t elements = (int64_t)(bytes / tocsin_dtype_bytes(dtype));
    tocsin_tensor_view view = {
        .data = (const void *)(uintptr_t)memory, .dtype = dtype, .ndim = 1, .shape = &elements};
    tocsin_device_digest *digest = open_digest(&view, 1);
    double ms = median_ms(launch_work, digest, calls_for(bytes));
    tocsin_device_digest_close(digest);
    return rate(bytes, ms);
}

static void measure_sizes(void)
{
    printf("%12s %10s %10s %10s %10s %12s\n", "bytes", "fp32", "bf16", "fp64", "int8",
           "copy (GB/s)");
    for (uint64_t bytes = 1024; bytes <= (uint64_t)4 << 30; bytes *= 4) {
        double copied = 0;
        if (2 * bytes <= memory_bytes) /* bytes read and bytes written */
            copied = rate(2 * bytes, median_ms(copy_work, &bytes, calls_for(bytes)));
        double fp32 = measure_one(TOCSIN_DTYPE_FLOAT32, bytes);
        double bf16 = measure_one(TOCSIN_DTYPE_BFLOAT16, bytes);
        printf("%12llu %10.1f %10.1f %10.1f %10.1f %12.1f\n", (unsigned long long)bytes, fp32, bf16,
               measure_one(TOCSIN_DTYPE_FLOAT64, bytes), measure_one(TOCSIN_DTYPE_INT8, bytes),
               copied);
        if (bytes == (uint64_t)1 << 30 && copied > 0) {
            printf("figure gpu_digest_fp32_vs_copy %.3f ratio\n", fp32 / copied);
            printf("figure gpu_digest_bf16_vs_copy %.3f ratio\n", bf16 / copied);
        }
    }
}

/* The parameters of a transformer, one after the other in memory, each at a multiple of 512 bytes.
 */
static size_t list_parameters(tocsin_dtype dtype, tocsin_tensor_view *views, int64_t (*shapes)[2],
                              uint64_t *bytes)
{
    static const int64_t layer[12][2] = {{3 * WIDTH, WIDTH}, {3 * WIDTH, 1},     {WIDTH, WIDTH},
                                         {WIDTH, 1},         {4 * WIDTH, WIDTH}, {4 * WIDTH, 1},
                                         {WIDTH, 1},         {WIDTH, 4 * WIDTH}, {WIDTH, 1},
                                         {WIDTH, 1},         {WIDTH, 1},         {WIDTH, 1}};
    size_t count = 0;
    uint64_t at = 0;
    *bytes = 0;
    for (size_t i = 0; i < TENSORS_MAX; ++i) {
        shapes[i][0] = i < LAYERS * 12 ? layer[i % 12][0] : i == LAYERS * 12 ? VOCABULARY : WIDTH;
        shapes[i][1] = i < LAYERS * 12 ? layer[i % 12][1] : i == LAYERS * 12 ? WIDTH : 1;
        uint64_t size = (uint64_t)shapes[i][0] * (uint64_t)shapes[i][1] * tocsin_dtype_bytes(dtype);
        if (at + size > memory_bytes)
            return 0;
        views[count++] = (tocsin_tensor_view){.data = (const void *)(uintptr_t)(memory + at),
                                              .dtype = dtype,
                                              .ndim = 2,
                                              .shape = shapes[i]};
        *bytes += size;
        at += (size + 511) / 512 * 512;
    }
    return count;
}

static void measure_parameters(tocsin_dtype dtype, const char *figure)
{
    static tocsin_tensor_view views[TENSORS_MAX];
    static int64_t shapes[TENSORS_MAX][2];
    uint64_t bytes;
    size_t count = list_parameters(dtype, views, shapes, &bytes);
    if (count == 0) {
        printf("%s: the parameters do not fit this device\n", tocsin_dtype_name(dtype));
        return;
    }
    tocsin_device_digest *digest = open_digest(views, count);
    double ms = median_ms(launch_work, digest, 1);
    printf("%zu tensors of parameters, %llu bytes of %s: %.3f ms, %.1f GB/s\n", count,
           (unsigned long long)bytes, tocsin_dtype_name(dtype), ms, rate(bytes, ms));
    printf("figure %s %.3f ms\n", figure, ms);
    tocsin_device_digest_close(digest);
}

static double host_us(work_function *work, void *context)
{
    struct timespec begin, end;
    work(context);
    check_cuda(cuda.wait_stream(stream), "wait");
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 200; ++i)
        work(context);
    clock_gettime(CLOCK_MONOTONIC, &end);
    check_cuda(cuda.wait_stream(stream), "wait");
    return ((double)(end.tv_sec - begin.tv_sec) * 1e6 +
            (double)(end.tv_nsec - begin.tv_nsec) / 1e3) /
           200;
}

/* A launch over 63 small tensors, called and replayed; the replay must give the same results. */
static unsigned measure_graph(void)
{
    enum { COUNT = 63 };
    static const int64_t elements = 4096;
    tocsin_tensor_view views[COUNT];
    tocsin_device_result results[COUNT];
    tocsin_error error;
    for (size_t i = 0; i < COUNT; ++i)
        views[i] = (tocsin_tensor_view){.data = (const void *)(uintptr_t)(memory + i * 16384),
                                        .dtype = TOCSIN_DTYPE_FLOAT32,
                                        .ndim = 1,
                                        .shape = &elements};
    tocsin_device_digest *digest = open_digest(views, COUNT);
    void *graph, *replayable;
    check_cuda(cuda.begin_capture(stream, CAPTURE_RELAXED), "begin a capture");
    check_tocsin(tocsin_device_digest_launch(digest, stream, &error), &error);
    check_cuda(cuda.end_capture(stream, &graph), "end the capture");
    check_cuda(cuda.instantiate(&replayable, graph, 0), "instantiate the graph");
    graph_work(replayable);
    read_digest(digest, results);
    unsigned wrong = 0;
    for (size_t i = 0; i < COUNT; ++i)
        wrong += !is_right(&views[i], &results[i]);
    printf("63 tensors of 16 KiB: launched %.2f us on the host, %.2f us on the device; replayed "
           "%.2f and %.2f us\n",
           host_us(launch_work, digest), median_ms(launch_work, digest, 200) * 1e3,
           host_us(graph_work, replayable), median_ms(graph_work, replayable, 200) * 1e3);
    tocsin_device_digest_close(digest);
    return wrong;
}

int main(int argc, char **argv)
{
    bool is_required = argc == 2 && strcmp(argv[1], "--require-gpu") == 0;
    if (argc > 1 && !is_required) {
        fprintf(stderr, "usage: bench_gpu_digest [--require-gpu]\n");
        return 2;
    }
    const char *reason = find_device();
    if (reason) {
        printf("no GPU: not measured (%s)\n", reason);
        return is_required ? 1 : 0;
    }
    fill_memory();
    unsigned wrong = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed)
        wrong += count_wrong(seed);
    wrong += measure_graph();
    printf("figure gpu_digest_wrong %u tensors\n", wrong);
    if (wrong > 0)
        return 1;
    measure_sizes();
    measure_parameters(TOCSIN_DTYPE_FLOAT32, "gpu_digest_955m_fp32_ms");
    measure_parameters(TOCSIN_DTYPE_BFLOAT16, "gpu_digest_955m_bf16_ms");
    return 0;
}
