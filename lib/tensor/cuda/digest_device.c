/* lib/tensor/cuda/digest_device.c - the GPU kernels in the caller's context, on the caller's
 * stream.
 *
 * Data structure: one allocation on the device, which holds the tiles, the ranges of tensors, the
 * sums of tiles and the results; one page-locked buffer on the host for the results. Invariant: all
 * is allocated and copied when _open returns; _launch and _fetch only add work to a stream.
 *
 * Every function makes the context of _open current for its own duration, so that it may be called
 * from any thread (an optimizer's hook, a thread that looks for results).
 *
 * Cost: _open some milliseconds and 72 bytes of device memory a tile, _launch two kernels.
 */
#include "tensor/cuda/digest_device.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "tensor/cuda/cuda_driver.h"
#include "tensor/cuda/digest_tiles.h"

#define SECTION_ALIGNMENT 256

struct tocsin_device_digest {
    tocsin_cuda_driver driver;
    digest_constants constants;
    void *context;
    void *module;
    void *tiles_kernel;
    void *tensors_kernel;
    void *event;          /* of the last fetch */
    digest_sums *fetched; /* page-locked */
    bool has_fetched;
    uint32_t tile_count;
    uint32_t tensor_count;
    uint64_t memory; /* on the device; 0: none */
    uint64_t tiles;  /* the following lie in it */
    uint64_t ranges;
    uint64_t tile_sums;
    uint64_t results;
};

_Static_assert(sizeof(tocsin_device_result) == sizeof(digest_sums), "the same five numbers");
_Static_assert(TOCSIN_DEVICE_TILES_MAX <= INT32_MAX, "tiles are blocks of a grid");

const char *tocsin_device_kernel(void)
{
    return tocsin_digest_image_parts;
}

/* ---- context -------------------------------------------------------------------------------- */

static tocsin_status enter(const tocsin_device_digest *digest, tocsin_error *error)
{
    return tocsin_cuda_check(&digest->driver, digest->driver.push(digest->context),
                             "make the context current", error);
}

/* Nothing can be done when it fails: the stack of contexts is the driver's. */
static void leave(const tocsin_device_digest *digest)
{
    void *popped;
    (void)digest->driver.pop(&popped);
}

static tocsin_status find_context(tocsin_device_digest *digest, tocsin_error *error)
{
    int result = digest->driver.get_current(&digest->context);
    if (result != CUDA_NOT_INITIALIZED)
        TOCSIN_TRY(tocsin_cuda_check(&digest->driver, result, "tell the context", error));
    if (result == CUDA_NOT_INITIALIZED || !digest->context)
        return tocsin_error_set(error, TOCSIN_E_STATE,
                                "this thread has no current CUDA context: use the device first");
    return TOCSIN_OK;
}

/* ---- open ----------------------------------------------------------------------------------- */

static tocsin_status load_kernels(tocsin_device_digest *digest, const void *image,
                                  tocsin_error *error)
{
    const tocsin_cuda_driver *driver = &digest->driver;
    TOCSIN_TRY(tocsin_cuda_check(driver, driver->load_module(&digest->module, image),
                                 "load the digest's kernels", error));
    TOCSIN_TRY(tocsin_cuda_check(
        driver, driver->get_function(&digest->tiles_kernel, digest->module, DIGEST_TILES_KERNEL),
        "find the kernel of tiles", error));
    return tocsin_cuda_check(
        driver,
        driver->get_function(&digest->tensors_kernel, digest->module, DIGEST_TENSORS_KERNEL),
        "find the kernel of tensors", error);
}

/* The next section of `bytes` bytes: its offset. */
static uint64_t section(uint64_t *end, uint64_t count, uint64_t bytes)
{
    uint64_t start = *end;
    *end += (count * bytes + SECTION_ALIGNMENT - 1) / SECTION_ALIGNMENT * SECTION_ALIGNMENT;
    return start;
}

/* At most 2^22 tiles and 2^20 tensors: below 2^29 bytes. */
static tocsin_status allocate(tocsin_device_digest *digest, tocsin_error *error)
{
    const tocsin_cuda_driver *driver = &digest->driver;
    uint64_t bytes = 0;
    digest->tiles = section(&bytes, digest->tile_count, sizeof(digest_tile));
    digest->ranges = section(&bytes, digest->tensor_count, sizeof(digest_range));
    digest->tile_sums = section(&bytes, digest->tile_count, sizeof(digest_sums));
    digest->results = section(&bytes, digest->tensor_count, sizeof(digest_sums));
    TOCSIN_TRY(tocsin_cuda_check(driver, driver->allocate(&digest->memory, bytes),
                                 "allocate the digest's tables", error));
    digest->tiles += digest->memory;
    digest->ranges += digest->memory;
    digest->tile_sums += digest->memory;
    digest->results += digest->memory;
    void *fetched = NULL;
    TOCSIN_TRY(tocsin_cuda_check(driver,
                                 driver->allocate_host(&fetched,
                                                       digest->tensor_count * sizeof(digest_sums),
                                                       CUDA_HOST_PORTABLE),
                                 "allocate page-locked memory", error));
    digest->fetched = fetched;
    return tocsin_cuda_check(driver,
                             driver->create_event(&digest->event, CUDA_EVENT_WITHOUT_TIMING),
                             "make an event", error);
}

/* A copy from pageable memory may still be under way when it returns, and streams of frameworks do
 * not wait for it: hence the synchronization. */
static tocsin_status copy_tables(tocsin_device_digest *digest, const tocsin_digest_tiles *tables,
                                 tocsin_error *error)
{
    const tocsin_cuda_driver *driver = &digest->driver;
    if (digest->tile_count > 0)
        TOCSIN_TRY(
            tocsin_cuda_check(driver,
                              driver->copy_to_device(digest->tiles, tables->tiles.items,
                                                     digest->tile_count * sizeof(digest_tile)),
                              "copy the tiles", error));
    TOCSIN_TRY(
        tocsin_cuda_check(driver,
                          driver->copy_to_device(digest->ranges, tables->ranges.items,
                                                 digest->tensor_count * sizeof(digest_range)),
                          "copy the tensors' ranges", error));
    return tocsin_cuda_check(driver, driver->synchronize(), "wait for the tables", error);
}

static tocsin_status prepare(tocsin_device_digest *digest, const void *image,
                             const tocsin_tensor_view *views, size_t count, tocsin_error *error)
{
    TOCSIN_TRY(tocsin_cuda_driver_load(&digest->driver, error));
    TOCSIN_TRY(find_context(digest, error));
    digest->constants = tocsin_digest_constants();
    tocsin_digest_tiles tables = {0};
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < count && status == TOCSIN_OK; ++i)
        status = tocsin_digest_tiles_add(&tables, &views[i], error);
    digest->tile_count = (uint32_t)tables.tiles.count;
    digest->tensor_count = (uint32_t)count;
    if (status == TOCSIN_OK)
        status = load_kernels(digest, image, error);
    if (status == TOCSIN_OK && count > 0)
        status = allocate(digest, error);
    if (status == TOCSIN_OK && count > 0)
        status = copy_tables(digest, &tables, error);
    tocsin_digest_tiles_free(&tables);
    return status;
}

tocsin_status tocsin_device_digest_open_image(const void *image, const tocsin_tensor_view *views,
                                              size_t count, tocsin_device_digest **opened,
                                              tocsin_error *error)
{
    *opened = NULL;
    if (count > TOCSIN_DEVICE_TENSORS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %zu tensors",
                                TOCSIN_DEVICE_TENSORS_MAX);
    tocsin_device_digest *digest = tocsin_zalloc(1, sizeof *digest);
    if (!digest)
        return tocsin_error_memory(error);
    tocsin_status status = prepare(digest, image, views, count, error);
    if (status == TOCSIN_OK)
        *opened = digest;
    else
        tocsin_device_digest_close(digest);
    return status;
}

tocsin_status tocsin_device_digest_open(const tocsin_tensor_view *views, size_t count,
                                        tocsin_device_digest **opened, tocsin_error *error)
{
    *opened = NULL;
    if (tocsin_digest_image_bytes == 0)
        return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED,
                                "this build has no GPU kernel: it was configured without nvcc");
    return tocsin_device_digest_open_image(tocsin_digest_image, views, count, opened, error);
}

/* ---- on a stream ---------------------------------------------------------------------------- */

static tocsin_status launch_kernel(const tocsin_device_digest *digest, void *kernel,
                                   uint32_t blocks, void **parameters, void *stream,
                                   tocsin_error *error)
{
    return tocsin_cuda_check(&digest->driver,
                             digest->driver.launch(kernel, blocks, 1, 1, DIGEST_THREADS, 1, 1, 0,
                                                   stream, parameters, NULL),
                             "launch the digest", error);
}

tocsin_status tocsin_device_digest_launch(tocsin_device_digest *digest, void *stream,
                                          tocsin_error *error)
{
    if (digest->tensor_count == 0)
        return TOCSIN_OK;
    TOCSIN_TRY(enter(digest, error));
    tocsin_status status = TOCSIN_OK;
    if (digest->tile_count > 0) {
        void *parameters[] = {&digest->tiles, &digest->tile_sums, &digest->constants};
        status = launch_kernel(digest, digest->tiles_kernel, digest->tile_count, parameters, stream,
                               error);
    }
    if (status == TOCSIN_OK) {
        void *parameters[] = {&digest->ranges, &digest->tile_sums, &digest->results};
        status = launch_kernel(digest, digest->tensors_kernel, digest->tensor_count, parameters,
                               stream, error);
    }
    leave(digest);
    return status;
}

tocsin_status tocsin_device_digest_fetch(tocsin_device_digest *digest, void *stream,
                                         tocsin_error *error)
{
    const tocsin_cuda_driver *driver = &digest->driver;
    if (digest->tensor_count > 0) {
        TOCSIN_TRY(enter(digest, error));
        tocsin_status status = tocsin_cuda_check(
            driver,
            driver->copy_to_host(digest->fetched, digest->results,
                                 digest->tensor_count * sizeof(digest_sums), stream),
            "copy the results", error);
        if (status == TOCSIN_OK)
            status = tocsin_cuda_check(driver, driver->record_event(digest->event, stream),
                                       "record an event", error);
        leave(digest);
        TOCSIN_TRY(status);
    }
    digest->has_fetched = true;
    return TOCSIN_OK;
}

static tocsin_status look(const tocsin_device_digest *digest, bool wait, bool *is_there,
                          tocsin_error *error)
{
    const tocsin_cuda_driver *driver = &digest->driver;
    TOCSIN_TRY(enter(digest, error));
    int result = wait ? driver->wait_event(digest->event) : driver->query_event(digest->event);
    leave(digest);
    *is_there = result == 0;
    return result == CUDA_NOT_READY
               ? TOCSIN_OK
               : tocsin_cuda_check(driver, result, "finish what was launched", error);
}

tocsin_status tocsin_device_digest_read(tocsin_device_digest *digest, bool wait,
                                        tocsin_device_result *results, bool *is_there,
                                        tocsin_error *error)
{
    *is_there = false;
    if (!digest->has_fetched)
        return tocsin_error_set(error, TOCSIN_E_STATE, "no results have been fetched");
    if (digest->tensor_count == 0) {
        *is_there = true;
        return TOCSIN_OK;
    }
    TOCSIN_TRY(look(digest, wait, is_there, error));
    for (uint32_t i = 0; *is_there && i < digest->tensor_count; ++i) {
        const digest_sums *sums = &digest->fetched[i];
        assert(sums->polynomial < M61_PRIME);
        results[i] = (tocsin_device_result){.digest = {.sum = sums->sum,
                                                       .exclusive = sums->exclusive,
                                                       .polynomial = sums->polynomial},
                                            .nan_count = sums->nan_count,
                                            .inf_count = sums->inf_count};
    }
    return TOCSIN_OK;
}

uint64_t tocsin_device_digest_results(const tocsin_device_digest *digest)
{
    return digest->results;
}

void tocsin_device_digest_close(tocsin_device_digest *digest)
{
    if (!digest)
        return;
    const tocsin_cuda_driver *driver = &digest->driver;
    if (digest->context) { /* the driver's answers do not matter: there is nothing else to do */
        bool has_entered = enter(digest, NULL) == TOCSIN_OK;
        if (digest->memory)
            (void)driver->synchronize();
        if (digest->event)
            (void)driver->destroy_event(digest->event);
        if (digest->fetched)
            (void)driver->release_host(digest->fetched);
        if (digest->memory)
            (void)driver->release(digest->memory);
        if (digest->module)
            (void)driver->unload_module(digest->module);
        if (has_entered)
            leave(digest);
    }
    tocsin_cuda_driver_unload(&digest->driver);
    tocsin_free(digest);
}
