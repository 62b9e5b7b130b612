/* plan_read.c - from a file to a plan: reads it, unpacks it, tells what it is.
 *
 * The kind is told by the first bytes: a zstd frame is unpacked and looked at again; 0x80 (the
 * opcode PROTO) begins a pickle; all else is text. Cost: one copy of the file in memory, and its
 * unpacked content.
 */
#include "plan/plan.h"

#include <assert.h>
#include <zstd.h>

#define PICKLE_PROTO 0x80

static bool is_zstd(const void *memory, size_t bytes)
{
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    return bytes >= sizeof magic && memcmp(memory, magic, sizeof magic) == 0;
}

/* All frames, through a buffer of the size that zstd recommends. */
static tocsin_status unpack_into(ZSTD_DCtx *context, void *buffer, size_t buffer_bytes,
                                 ZSTD_inBuffer *packed, const char *name, tocsin_string *content,
                                 tocsin_error *error)
{
    size_t left = 0; /* 0: a frame has ended */
    while (packed->pos < packed->size) {
        ZSTD_outBuffer out = {.dst = buffer, .size = buffer_bytes};
        left = ZSTD_decompressStream(context, &out, packed);
        if (ZSTD_isError(left))
            return tocsin_error_at(error, TOCSIN_E_FORMAT, name, (int64_t)packed->pos,
                                   "damaged zstd data: %s", ZSTD_getErrorName(left));
        tocsin_string_append(content, buffer, out.pos);
        while (left != 0 && out.pos == out.size) { /* more than fits is waiting */
            out.pos = 0;
            left = ZSTD_decompressStream(context, &out, packed);
            if (ZSTD_isError(left))
                return tocsin_error_at(error, TOCSIN_E_FORMAT, name, (int64_t)packed->pos,
                                       "damaged zstd data: %s", ZSTD_getErrorName(left));
            tocsin_string_append(content, buffer, out.pos);
            if (content->status != TOCSIN_OK)
                break;
        }
        if (content->status == TOCSIN_E_LIMIT)
            return tocsin_error_at(error, TOCSIN_E_LIMIT, name, (int64_t)packed->pos,
                                   "a plan of more than 4 GiB");
        TOCSIN_TRY(tocsin_string_check(content, error));
    }
    if (left != 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, name, (int64_t)packed->pos,
                               "the zstd data are cut off");
    return TOCSIN_OK;
}

static tocsin_status unpack(const void *memory, size_t bytes, const char *name,
                            tocsin_string *content, tocsin_error *error)
{
    size_t buffer_bytes = ZSTD_DStreamOutSize();
    ZSTD_inBuffer packed = {.src = memory, .size = bytes};
    void *buffer = tocsin_alloc(buffer_bytes);
    ZSTD_DCtx *context = buffer ? ZSTD_createDCtx() : NULL;
    tocsin_status status =
        context ? unpack_into(context, buffer, buffer_bytes, &packed, name, content, error)
                : tocsin_error_memory(error);
    ZSTD_freeDCtx(context);
    tocsin_free(buffer);
    return status;
}

static tocsin_status read_unpacked(const void *memory, size_t bytes, const char *name,
                                   const tocsin_plan_options *options, tocsin_plan **plan,
                                   tocsin_error *error)
{
    const unsigned char *first = memory;
    if (bytes == 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, name, 0, "the plan is empty");
    if (*first == PICKLE_PROTO)
        return tocsin_plan_read_nnscaler(memory, bytes, name, options, plan, error);
    return tocsin_plan_read_text(memory, bytes, name, options, plan, error);
}

tocsin_status tocsin_plan_read_memory(const void *memory, size_t bytes, const char *name,
                                      const tocsin_plan_options *options, tocsin_plan **plan,
                                      tocsin_error *error)
{
    assert(name && plan);
    if (!is_zstd(memory, bytes))
        return read_unpacked(memory, bytes, name, options, plan, error);
    tocsin_string content = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX};
    tocsin_status status = unpack(memory, bytes, name, &content, error);
    if (status == TOCSIN_OK)
        status =
            read_unpacked(tocsin_string_text(&content), content.bytes, name, options, plan, error);
    tocsin_string_free(&content);
    return status;
}

tocsin_status tocsin_plan_read(const char *path, const tocsin_plan_options *options,
                               tocsin_plan **plan, tocsin_error *error)
{
    tocsin_string content = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX};
    tocsin_status status = tocsin_file_load(path, TOCSIN_PLAN_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_read_memory(tocsin_string_text(&content), content.bytes, path, options,
                                         plan, error);
    tocsin_string_free(&content);
    return status;
}
