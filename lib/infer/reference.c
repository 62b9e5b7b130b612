/* The bytes of a reference: docs/formats/examples.md, "A reference".
 *
 * A checksum, who wrote it, which run it is of, and the body that examples_encode.c makes.
 * Invariant: what reads without an error is what was written, by the same version of Tocsin. */
#include <assert.h>
#include <infer/reference.h>
#include <tocsin/version.h>

enum { HASH_BYTES = 16, FLAG_WIDE = 1, FLAG_SHARD = 2, FLAGS = FLAG_WIDE | FLAG_SHARD };

static void put_hash(tocsin_string *out, tocsin_hash128 hash)
{
    uint64_t halves[] = {hash.low, hash.high};
    for (int i = 0; i < HASH_BYTES; ++i)
        tocsin_string_append_char(out, (char)(halves[i / 8] >> (i % 8 * 8) & 0xff));
}

static tocsin_hash128 get_hash(const char *bytes)
{
    uint64_t halves[2] = {0, 0};
    for (int i = 0; i < HASH_BYTES; ++i)
        halves[i / 8] |= (uint64_t)(uint8_t)bytes[i] << (i % 8 * 8);
    return (tocsin_hash128){.low = halves[0], .high = halves[1]};
}

static void put(tocsin_string *out, uint64_t number)
{
    uint8_t bytes[TOCSIN_VARINT_BYTES_MAX];
    tocsin_string_append(out, bytes, tocsin_varint_put(bytes, number));
}

static void put_text(tocsin_string *out, const char *text)
{
    put(out, strlen(text));
    tocsin_string_append_text(out, text);
}

static tocsin_status write_rest(const tocsin_reference_head *head, const tocsin_examples *examples,
                                tocsin_string *rest, tocsin_error *error)
{
    put_text(rest, TOCSIN_VERSION);
    put(rest, tocsin_keys_fingerprint());
    put_hash(rest, head->identity);
    put(rest, (head->wide ? FLAG_WIDE : 0) | (head->shards > 0 ? FLAG_SHARD : 0));
    if (head->shards > 0) {
        put(rest, head->shard);
        put(rest, head->shards);
    }
    put_text(rest, head->run);
    put(rest, head->processes);
    put(rest, head->events);
    put(rest, head->instances);
    return tocsin_examples_encode(examples, rest, error);
}

tocsin_status tocsin_reference_write(const tocsin_reference_head *head,
                                     const tocsin_examples *examples, tocsin_string *out,
                                     tocsin_error *error)
{
    tocsin_string rest = {0};
    tocsin_status status = write_rest(head, examples, &rest, error);
    if (status == TOCSIN_OK) {
        put_hash(out, tocsin_hash128_of(tocsin_string_text(&rest), rest.bytes, 0));
        tocsin_string_append(out, tocsin_string_text(&rest), rest.bytes);
        status = tocsin_string_check(out, error);
    }
    tocsin_string_free(&rest);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct bytes {
    const char *at, *end;
};

static bool get(struct bytes *bytes, uint64_t *number)
{
    size_t taken =
        tocsin_varint_get((const uint8_t *)bytes->at, (size_t)(bytes->end - bytes->at), number);
    bytes->at += taken;
    return taken > 0;
}

static bool get_text(struct bytes *bytes, const char **text, size_t *count)
{
    uint64_t length;
    if (!get(bytes, &length) || length > (uint64_t)(bytes->end - bytes->at))
        return false;
    *text = bytes->at;
    *count = (size_t)length;
    bytes->at += length;
    return true;
}

/* After the version. */
static bool get_head(struct bytes *bytes, tocsin_reference_head *head)
{
    uint64_t flags, shard = 0, shards = 0;
    if (bytes->end - bytes->at < HASH_BYTES)
        return false;
    head->identity = get_hash(bytes->at);
    bytes->at += HASH_BYTES;
    if (!get(bytes, &flags) || (flags & ~(uint64_t)FLAGS) != 0)
        return false;
    if ((flags & FLAG_SHARD) != 0 && (!get(bytes, &shard) || !get(bytes, &shards) ||
                                      shards > TOCSIN_SHARDS_MAX || shard >= shards))
        return false;
    if (!get_text(bytes, &head->run, &head->run_bytes) ||
        memchr(head->run, 0, head->run_bytes) != NULL || !get(bytes, &head->processes) ||
        !get(bytes, &head->events) || !get(bytes, &head->instances))
        return false;
    head->wide = (flags & FLAG_WIDE) != 0;
    head->shard = (uint32_t)shard;
    head->shards = (uint32_t)shards;
    head->body = bytes->at;
    head->body_bytes = (size_t)(bytes->end - bytes->at);
    return true;
}

tocsin_status tocsin_reference_read(const char *bytes, size_t count, const char *where,
                                    tocsin_reference_head *head, tocsin_error *error)
{
    static const char damaged[] = "the examples of a run are damaged";
    const char *version;
    size_t version_bytes;
    uint64_t fingerprint;
    if (count < HASH_BYTES)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, where, -1, damaged);
    struct bytes rest = {bytes + HASH_BYTES, bytes + count};
    tocsin_hash128 stored = get_hash(bytes);
    tocsin_hash128 actual = tocsin_hash128_of(rest.at, count - HASH_BYTES, 0);
    if (stored.low != actual.low || stored.high != actual.high ||
        !get_text(&rest, &version, &version_bytes))
        return tocsin_error_at(error, TOCSIN_E_FORMAT, where, -1, damaged);
    bool ours = version_bytes == strlen(TOCSIN_VERSION) &&
                memcmp(version, TOCSIN_VERSION, version_bytes) == 0;
    if (!ours || !get(&rest, &fingerprint) || fingerprint != tocsin_keys_fingerprint())
        return tocsin_error_at(error, TOCSIN_E_VERSION, where, -1,
                               "examples counted by another Tocsin (%.*s, this is " TOCSIN_VERSION
                               "): count the runs again",
                               (int)(version_bytes > 40 ? 40 : version_bytes), version);
    if (!get_head(&rest, head))
        return tocsin_error_at(error, TOCSIN_E_FORMAT, where, -1, damaged);
    return TOCSIN_OK;
}
