/* trace_block.c - blocks: header, zstd frame, checksums. The only file that knows zstd.
 *
 * The header has a checksum of its own, so that a block with a damaged payload is stepped over by
 * its length, and a cut-off block is told from a damaged one.
 */
#include "trace/trace_format.h"

#include <assert.h>
#include <zstd.h>

struct tocsin_compressor {
    ZSTD_CCtx *context;
};

tocsin_compressor *tocsin_compressor_new(int level)
{
    tocsin_compressor *compressor = tocsin_alloc(sizeof *compressor);
    if (!compressor)
        return NULL;
    compressor->context = ZSTD_createCCtx();
    if (!compressor->context) {
        tocsin_free(compressor);
        return NULL;
    }
    /* An unacceptable level leaves the library's default: worse figures, same format. */
    (void)ZSTD_CCtx_setParameter(compressor->context, ZSTD_c_compressionLevel, level);
    (void)ZSTD_CCtx_setParameter(compressor->context, ZSTD_c_checksumFlag, 0);
    return compressor;
}

void tocsin_compressor_free(tocsin_compressor *compressor)
{
    if (!compressor)
        return;
    ZSTD_freeCCtx(compressor->context);
    tocsin_free(compressor);
}

size_t tocsin_block_encode(tocsin_compressor *compressor, tocsin_block_header *header,
                           const uint8_t *raw, uint8_t *out)
{
    assert(header->raw_bytes <= TOCSIN_BLOCK_RAW_MAX);
    assert(raw || header->raw_bytes == 0);
    uint8_t *payload = out + TOCSIN_BLOCK_HEADER_BYTES;
    size_t stored_bytes = 0;
    if (compressor && header->raw_bytes > 0) {
        /* Room for one byte less than raw: what does not shrink is stored. */
        size_t result = ZSTD_compress2(compressor->context, payload, header->raw_bytes - 1, raw,
                                       header->raw_bytes);
        stored_bytes = ZSTD_isError(result) ? 0 : result;
    }
    header->codec = stored_bytes ? TOCSIN_CODEC_ZSTD : TOCSIN_CODEC_STORED;
    if (!stored_bytes) {
        stored_bytes = header->raw_bytes;
        if (stored_bytes)
            memcpy(payload, raw, stored_bytes);
    }
    header->stored_bytes = (uint32_t)stored_bytes;

    memcpy(out, TOCSIN_BLOCK_MAGIC, TOCSIN_MAGIC_BYTES);
    tocsin_put_u32(out + 8, header->stream);
    tocsin_put_u16(out + 12, header->codec);
    tocsin_put_u16(out + 14, header->flags);
    tocsin_put_u64(out + 16, header->start.offset);
    tocsin_put_u32(out + 24, header->raw_bytes);
    tocsin_put_u32(out + 28, header->stored_bytes);
    tocsin_put_u64(out + 32, header->start.time_ns);
    tocsin_put_u64(out + 40, header->start.calls);
    tocsin_put_u64(out + 48, header->pass_ns);
    tocsin_put_u32(out + 56, header->record_count);
    tocsin_put_u32(out + 60, (uint32_t)tocsin_hash64(out, 60, 0));
    size_t hashed_bytes = TOCSIN_BLOCK_HEADER_BYTES + stored_bytes;
    tocsin_put_u64(out + hashed_bytes, tocsin_hash64(out, hashed_bytes, 0));
    return hashed_bytes + TOCSIN_BLOCK_TRAILER_BYTES;
}

bool tocsin_block_header_decode(const uint8_t in[TOCSIN_BLOCK_HEADER_BYTES],
                                tocsin_block_header *header)
{
    if (memcmp(in, TOCSIN_BLOCK_MAGIC, TOCSIN_MAGIC_BYTES) != 0 ||
        tocsin_get_u32(in + 60) != (uint32_t)tocsin_hash64(in, 60, 0))
        return false;
    header->stream = tocsin_get_u32(in + 8);
    header->codec = tocsin_get_u16(in + 12);
    header->flags = tocsin_get_u16(in + 14);
    header->start.offset = tocsin_get_u64(in + 16);
    header->raw_bytes = tocsin_get_u32(in + 24);
    header->stored_bytes = tocsin_get_u32(in + 28);
    header->start.time_ns = tocsin_get_u64(in + 32);
    header->start.calls = tocsin_get_u64(in + 40);
    header->pass_ns = tocsin_get_u64(in + 48);
    header->record_count = tocsin_get_u32(in + 56);
    return header->raw_bytes <= TOCSIN_BLOCK_RAW_MAX && header->stored_bytes <= header->raw_bytes &&
           header->start.offset <= UINT64_MAX - header->raw_bytes;
}

bool tocsin_block_is_intact(const uint8_t *block, const tocsin_block_header *header)
{
    size_t hashed_bytes = TOCSIN_BLOCK_HEADER_BYTES + (size_t)header->stored_bytes;
    return tocsin_get_u64(block + hashed_bytes) == tocsin_hash64(block, hashed_bytes, 0);
}

bool tocsin_block_decompress(const uint8_t *stored, const tocsin_block_header *header, uint8_t *raw)
{
    if (header->codec == TOCSIN_CODEC_STORED) {
        if (header->stored_bytes != header->raw_bytes)
            return false;
        if (header->raw_bytes)
            memcpy(raw, stored, header->raw_bytes);
        return true;
    }
    if (header->codec != TOCSIN_CODEC_ZSTD)
        return false;
    size_t result = ZSTD_decompress(raw, header->raw_bytes, stored, header->stored_bytes);
    return !ZSTD_isError(result) && result == header->raw_bytes;
}
