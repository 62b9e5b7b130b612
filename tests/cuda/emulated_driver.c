/* emulated_driver.c - a stand-in for libcuda.so.1 that runs the digest's kernels on the CPU.
 *
 * It is no CUDA: it has the functions that the digest uses, device memory is memory, the kernels
 * are those of emulated_grid.h. It proves the layout of tables, the parameters of launches and the
 * life of what is allocated; nothing about a GPU. Work on a stream waits in a queue until somebody
 * asks for an event: a result that is read too early is one that has not been computed.
 */
#include "cuda/emulated_driver.h"

#include "cuda/emulated_grid.h"
#include "tensor/cuda/cuda_driver.h"

#define EXPORTED                     __attribute__((visibility("default")))
#define QUEUE_MAX                    64
#define BUSY_BLOCKS_MAX              (1u << 22)

#define X(field, symbol, parameters) EXPORTED int symbol parameters;
CUDA_DRIVER_TABLE(X)
#undef X

EXPORTED emulated_driver_control emulated_control;

typedef enum work_kind { WORK_TILES, WORK_TENSORS, WORK_COPY, WORK_EVENT } work_kind;

typedef struct work {
    work_kind kind;
    uint32_t blocks;
    uint64_t addresses[3];
    digest_constants constants;
    size_t bytes;
} work;

static work queue[QUEUE_MAX];
static size_t queued;
static int context;      /* its address is the context */
static int module;       /* likewise */
static int kernels[2];   /* of tiles, of tensors */
static int event_is_set; /* there is one event */

/* What an injected failure is, or 0. */
static int count_call(void)
{
    ++emulated_control.call_count;
    return emulated_control.call_count == emulated_control.failing_call ? emulated_control.failure
                                                                        : 0;
}

static int count_blocking_call(void)
{
    ++emulated_control.blocking_calls;
    return count_call();
}

#define RETURN_FAILURE(call)                                                                       \
    do {                                                                                           \
        int failure_ = (call);                                                                     \
        if (failure_ != 0)                                                                         \
            return failure_;                                                                       \
    } while (0)

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address; /* device memory is memory */
}

static void run_next(void)
{
    const work *next = &queue[0];
    uint64_t *state = &emulated_control.random_state;
    switch (next->kind) {
    case WORK_TILES:
        emulated_digest_tiles(pointer(next->addresses[0]), next->blocks,
                              pointer(next->addresses[1]), &next->constants, state);
        break;
    case WORK_TENSORS:
        emulated_digest_tensors(pointer(next->addresses[0]), next->blocks,
                                pointer(next->addresses[1]), pointer(next->addresses[2]), state);
        break;
    case WORK_COPY:
        memcpy(pointer(next->addresses[0]), pointer(next->addresses[1]), next->bytes);
        break;
    case WORK_EVENT:
        event_is_set = 1;
        break;
    }
    --queued;
    memmove(queue, queue + 1, queued * sizeof *queue);
}

static work *enqueue(work_kind kind)
{
    if (queued == QUEUE_MAX)
        abort();
    work *added = &queue[queued++];
    memset(added, 0, sizeof *added);
    added->kind = kind;
    return added;
}

/* ---- the driver's functions ----------------------------------------------------------------- */

int cuGetErrorString(int result, const char **text)
{
    *text = result == CUDA_OUT_OF_MEMORY ? "out of memory" : "emulated failure";
    return 0;
}

int cuCtxGetCurrent(void **current)
{
    RETURN_FAILURE(count_call());
    *current = emulated_control.has_no_context ? NULL : &context;
    return 0;
}

int cuCtxPushCurrent_v2(void *pushed)
{
    RETURN_FAILURE(count_call());
    emulated_control.held += pushed == &context;
    return pushed == &context ? 0 : 201;
}

int cuCtxPopCurrent_v2(void **popped)
{
    --emulated_control.held;
    *popped = &context;
    return 0;
}

int cuCtxSynchronize(void)
{
    while (queued > 0) /* also when what it ran into is reported */
        run_next();
    return count_blocking_call();
}

int cuModuleLoadData(void **loaded, const void *image)
{
    RETURN_FAILURE(count_blocking_call());
    ++emulated_control.held;
    *loaded = &module;
    return image ? 0 : CUDA_INVALID_PTX;
}

int cuModuleUnload(void *unloaded)
{
    emulated_control.held -= unloaded == &module;
    return 0;
}

int cuModuleGetFunction(void **function, void *of_module, const char *name)
{
    RETURN_FAILURE(count_call());
    if (of_module != &module)
        return 400;
    if (strcmp(name, DIGEST_TILES_KERNEL) == 0)
        *function = &kernels[0];
    else if (strcmp(name, DIGEST_TENSORS_KERNEL) == 0)
        *function = &kernels[1];
    else
        return 500;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    RETURN_FAILURE(count_blocking_call());
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!memory)
        return CUDA_OUT_OF_MEMORY;
    memset(memory, 0xa5, bytes); /* nothing is zero by itself */
    ++emulated_control.held;
    *address = (uint64_t)(uintptr_t)memory;
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    --emulated_control.held;
    free(pointer(address));
    return 0;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    RETURN_FAILURE(count_blocking_call());
    if (flags != CUDA_HOST_PORTABLE || bytes == 0)
        return 1;
    *memory = malloc(bytes);
    emulated_control.held += *memory != NULL;
    return *memory ? 0 : CUDA_OUT_OF_MEMORY;
}

int cuMemFreeHost(void *memory)
{
    --emulated_control.held;
    free(memory);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    RETURN_FAILURE(count_blocking_call());
    memcpy(pointer(to), from, bytes);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    (void)stream;
    RETURN_FAILURE(count_call());
    work *added = enqueue(WORK_COPY);
    added->addresses[0] = (uint64_t)(uintptr_t)to;
    added->addresses[1] = from;
    added->bytes = bytes;
    return 0;
}

int cuLaunchKernel(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **parameters, void **extra)
{
    (void)stream;
    RETURN_FAILURE(count_call());
    bool is_tiles = kernel == &kernels[0];
    if ((!is_tiles && kernel != &kernels[1]) || grid_x == 0 || grid_x > BUSY_BLOCKS_MAX ||
        grid_y != 1 || grid_z != 1 || block_x != DIGEST_THREADS || block_y != 1 || block_z != 1 ||
        shared_bytes != 0 || extra)
        return 1;
    work *added = enqueue(is_tiles ? WORK_TILES : WORK_TENSORS);
    added->blocks = grid_x;
    memcpy(&added->addresses[0], parameters[0], 8);
    memcpy(&added->addresses[1], parameters[1], 8);
    if (is_tiles)
        memcpy(&added->constants, parameters[2], sizeof added->constants);
    else
        memcpy(&added->addresses[2], parameters[2], 8);
    return 0;
}

int cuEventCreate(void **event, unsigned flags)
{
    RETURN_FAILURE(count_blocking_call());
    ++emulated_control.held;
    *event = &event_is_set;
    return flags == CUDA_EVENT_WITHOUT_TIMING ? 0 : 1;
}

int cuEventDestroy_v2(void *event)
{
    emulated_control.held -= event == &event_is_set;
    return 0;
}

int cuEventRecord(void *event, void *stream)
{
    (void)stream;
    RETURN_FAILURE(count_call());
    if (event != &event_is_set)
        return 400;
    event_is_set = 0;
    (void)enqueue(WORK_EVENT);
    return 0;
}

int cuEventQuery(void *event)
{
    RETURN_FAILURE(count_call());
    if (event != &event_is_set)
        return 400;
    if (!event_is_set && queued > 0) {
        run_next(); /* the device makes some progress meanwhile */
        return CUDA_NOT_READY;
    }
    return 0;
}

int cuEventSynchronize(void *event)
{
    RETURN_FAILURE(count_blocking_call());
    if (event != &event_is_set)
        return 400;
    while (!event_is_set)
        run_next();
    return 0;
}
