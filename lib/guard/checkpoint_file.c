/* checkpoint_file.c - the digests of a checkpoint as canonical JSON (docs/formats/
 * checkpoint-digests.md).
 *
 * Invariant: one content has one text: entries by name, members in a fixed order, no spaces. What
 * was read has passed the same checks as what is added.
 * Cost: about 200 bytes a tensor.
 */
#include <inttypes.h>
#include <stdio.h>

#include "guard/checkpoint_digests.h"

#define FORMAT  "tocsin-checkpoint-digests"
#define VERSION 1

/* ---- writing ----------------------------------------------------------------------------------
 */

static void put_tensor(tocsin_json *json, const char *name, const tocsin_checkpoint_entry *entry)
{
    char digest[64];
    snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, entry->digest.sum,
             entry->digest.exclusive, entry->digest.polynomial);
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "name", name);
    tocsin_json_put_text(json, "dtype", tocsin_dtype_name(entry->dtype));
    tocsin_json_key(json, "shape");
    tocsin_json_begin_array(json);
    for (uint32_t axis = 0; axis < entry->ndim; ++axis)
        tocsin_json_integer(json, entry->shape[axis]);
    tocsin_json_end_array(json);
    if (entry->elements != entry->whole)
        tocsin_json_put_unsigned(json, "elements", entry->elements);
    tocsin_json_put_text(json, "digest", digest);
    tocsin_json_key(json, "voted");
    tocsin_json_bool(json, entry->voted);
    tocsin_json_end_object(json);
}

static void put_value(tocsin_json *json, const char *name, const tocsin_checkpoint_entry *entry)
{
    char hash[40];
    snprintf(hash, sizeof hash, "%016" PRIx64 "%016" PRIx64, entry->hash.high, entry->hash.low);
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "name", name);
    tocsin_json_put_text(json, "hash", hash);
    tocsin_json_end_object(json);
}

static void put_entries(tocsin_json *json, const tocsin_checkpoint_digests *digests,
                        const size_t *order, bool tensors)
{
    tocsin_json_key(json, tensors ? "tensors" : "values");
    tocsin_json_begin_array(json);
    for (size_t i = 0; i < digests->entries.count; ++i) {
        const tocsin_checkpoint_entry *entry = &digests->entries.items[order[i]];
        const char *name = tocsin_checkpoint_name(digests, order[i]);
        if (tensors && entry->dtype != TOCSIN_DTYPE_NONE)
            put_tensor(json, name, entry);
        else if (!tensors && entry->dtype == TOCSIN_DTYPE_NONE)
            put_value(json, name, entry);
    }
    tocsin_json_end_array(json);
}

static tocsin_status write_text(const tocsin_checkpoint_digests *digests, tocsin_string *text,
                                tocsin_error *error)
{
    size_t *order = tocsin_checkpoint_order(digests);
    if (!order)
        return tocsin_error_memory(error);
    tocsin_json json = {.out = text};
    text->limit_bytes = TOCSIN_CHECKPOINT_FILE_BYTES_MAX;
    tocsin_json_begin_object(&json);
    tocsin_json_put_text(&json, "format", FORMAT);
    tocsin_json_put_unsigned(&json, "version", VERSION);
    tocsin_json_put_text(&json, "gate", tocsin_gate_mode_name(digests->origin.mode));
    tocsin_json_put_text(&json, "state", tocsin_gate_state_name(digests->origin.state));
    tocsin_json_key(&json, "step");
    tocsin_json_integer(&json, digests->origin.step);
    tocsin_json_put_unsigned(&json, "replicas", digests->origin.replicas);
    put_entries(&json, digests, order, true);
    put_entries(&json, digests, order, false);
    tocsin_json_end_object(&json);
    tocsin_string_append_char(text, '\n');
    tocsin_free(order);
    return tocsin_string_check(text, error);
}

tocsin_status tocsin_checkpoint_digests_write(const tocsin_checkpoint_digests *digests, char **text,
                                              size_t *bytes, tocsin_error *error)
{
    tocsin_string written = {0};
    tocsin_status status = write_text(digests, &written, error);
    if (status != TOCSIN_OK) {
        tocsin_string_free(&written);
        return status;
    }
    *text = written.text;
    *bytes = written.bytes;
    return TOCSIN_OK;
}

void tocsin_checkpoint_text_free(char *text)
{
    tocsin_free(text);
}

tocsin_status tocsin_checkpoint_digests_save(const tocsin_checkpoint_digests *digests,
                                             const char *path, tocsin_error *error)
{
    tocsin_string text = {0};
    tocsin_status status = write_text(digests, &text, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, text.text, text.bytes, true, error);
    tocsin_string_free(&text);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

typedef struct digests_file {
    const char *where;
    tocsin_checkpoint_digests *digests;
    tocsin_error *error;
} digests_file;

static tocsin_status refuse(const digests_file *file, const char *message)
{
    return tocsin_error_at(file->error, TOCSIN_E_FORMAT, file->where, -1, "%s", message);
}

/* `count` numbers of 16 hexadecimal digits each, as we write them, and nothing else. */
static bool read_numbers(const tocsin_json_value *value, uint64_t *numbers, size_t count)
{
    const char *text = tocsin_json_get_text(value);
    if (!text || strlen(text) != 16 * count || strspn(text, "0123456789abcdef") != 16 * count)
        return false;
    for (size_t i = 0; i < count; ++i) {
        numbers[i] = 0;
        for (size_t d = 0; d < 16; ++d) {
            char digit = text[16 * i + d];
            numbers[i] =
                numbers[i] << 4 | (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        }
    }
    return true;
}

static bool read_shape(const tocsin_json_value *value, int64_t shape[TOCSIN_NDIM_MAX],
                       uint32_t *ndim)
{
    size_t count = tocsin_json_get_count(value);
    if (tocsin_json_get_kind(value) != TOCSIN_JSON_ARRAY || count > TOCSIN_NDIM_MAX)
        return false;
    for (size_t axis = 0; axis < count; ++axis)
        if (!tocsin_json_get_integer(tocsin_json_get_item(value, axis), &shape[axis]))
            return false;
    *ndim = (uint32_t)count;
    return true;
}

static tocsin_status put_once(const digests_file *file, const char *name,
                              const tocsin_checkpoint_entry *entry)
{
    if (tocsin_intern_find(&file->digests->names, name, strlen(name)) != 0)
        return refuse(file, "a name stands twice in the digests of a checkpoint");
    tocsin_error error;
    tocsin_status status = tocsin_checkpoint_put(file->digests, name, entry, &error);
    if (status == TOCSIN_E_ARGUMENT)
        return refuse(file, error.message);
    if (status != TOCSIN_OK && file->error)
        *file->error = error;
    return status;
}

static tocsin_status read_tensor(const digests_file *file, const tocsin_json_value *value)
{
    int64_t shape[TOCSIN_NDIM_MAX], elements = 0;
    uint64_t numbers[3];
    tocsin_checkpoint_entry entry = {.shape = shape};
    const char *name = tocsin_json_get_text(tocsin_json_get_member(value, "name"));
    const char *dtype = tocsin_json_get_text(tocsin_json_get_member(value, "dtype"));
    const tocsin_json_value *partial = tocsin_json_get_member(value, "elements");
    entry.dtype = dtype ? tocsin_dtype_from_name(dtype) : TOCSIN_DTYPE_NONE;
    if (!name || entry.dtype == TOCSIN_DTYPE_NONE)
        return refuse(file, "a tensor needs a name and a dtype that is known");
    if (!read_shape(tocsin_json_get_member(value, "shape"), shape, &entry.ndim))
        return refuse(file, "\"shape\" is no shape");
    if (!read_numbers(tocsin_json_get_member(value, "digest"), numbers, 3) ||
        numbers[2] >= (UINT64_C(1) << 61) - 1)
        return refuse(file, "\"digest\" is no digest");
    if (!tocsin_json_get_bool(tocsin_json_get_member(value, "voted"), &entry.voted))
        return refuse(file, "\"voted\" is neither true nor false");
    if (partial && (!tocsin_json_get_integer(partial, &elements) || elements < 0))
        return refuse(file, "\"elements\" is no number of elements");
    entry.digest = (tocsin_digest){numbers[0], numbers[1], numbers[2]};
    entry.elements = (uint64_t)elements;
    TOCSIN_TRY(put_once(file, name, &entry));
    tocsin_checkpoint_entry *added =
        &file->digests->entries.items[file->digests->entries.count - 1];
    if (!partial)
        added->elements = added->whole;
    return TOCSIN_OK;
}

static tocsin_status read_value(const digests_file *file, const tocsin_json_value *value)
{
    static const int64_t no_shape[1];
    uint64_t numbers[2];
    const char *name = tocsin_json_get_text(tocsin_json_get_member(value, "name"));
    if (!name || !read_numbers(tocsin_json_get_member(value, "hash"), numbers, 2))
        return refuse(file, "a value needs a name and a hash");
    const tocsin_checkpoint_entry entry = {.dtype = TOCSIN_DTYPE_NONE,
                                           .shape = no_shape,
                                           .hash = {.high = numbers[0], .low = numbers[1]}};
    return put_once(file, name, &entry);
}

static tocsin_status read_entries(const digests_file *file, const tocsin_json_value *list,
                                  tocsin_status (*read)(const digests_file *,
                                                        const tocsin_json_value *))
{
    size_t count = tocsin_json_get_count(list);
    if (tocsin_json_get_kind(list) != TOCSIN_JSON_ARRAY)
        return refuse(file, "the digests of a checkpoint need the lists tensors and values");
    for (size_t i = 0; i < count; ++i)
        TOCSIN_TRY(read(file, tocsin_json_get_item(list, i)));
    return TOCSIN_OK;
}

static tocsin_status read_origin(const digests_file *file, const tocsin_json_value *root)
{
    tocsin_checkpoint_origin *origin = &file->digests->origin;
    const char *gate = tocsin_json_get_text(tocsin_json_get_member(root, "gate"));
    const char *state = tocsin_json_get_text(tocsin_json_get_member(root, "state"));
    int64_t replicas;
    bool audit = gate && strcmp(gate, tocsin_gate_mode_name(TOCSIN_GATE_AUDIT)) == 0;
    bool verified = state && strcmp(state, tocsin_gate_state_name(TOCSIN_GATE_VERIFIED)) == 0;
    if (!audit && (!gate || strcmp(gate, tocsin_gate_mode_name(TOCSIN_GATE_VOTE)) != 0))
        return refuse(file, "\"gate\" is neither vote nor audit");
    if (!verified && (!state || strcmp(state, tocsin_gate_state_name(TOCSIN_GATE_CANDIDATE)) != 0))
        return refuse(file, "\"state\" is neither candidate nor verified");
    if (!tocsin_json_get_integer(tocsin_json_get_member(root, "step"), &origin->step) ||
        origin->step < 0)
        return refuse(file, "\"step\" is no step");
    if (!tocsin_json_get_integer(tocsin_json_get_member(root, "replicas"), &replicas) ||
        replicas < 1 || replicas > UINT32_MAX)
        return refuse(file, "\"replicas\" is no number of replicas");
    origin->mode = audit ? TOCSIN_GATE_AUDIT : TOCSIN_GATE_VOTE;
    origin->state = verified ? TOCSIN_GATE_VERIFIED : TOCSIN_GATE_CANDIDATE;
    origin->replicas = (uint32_t)replicas;
    return TOCSIN_OK;
}

static tocsin_status read_root(const digests_file *file, const tocsin_json_value *root)
{
    const char *format = tocsin_json_get_text(tocsin_json_get_member(root, "format"));
    int64_t version;
    if (!format || strcmp(format, FORMAT) != 0)
        return refuse(file,
                      "these are no digests of a checkpoint (\"format\" is not \"" FORMAT "\")");
    if (!tocsin_json_get_integer(tocsin_json_get_member(root, "version"), &version))
        return refuse(file, "\"version\" is no number");
    if (version != VERSION)
        return tocsin_error_at(file->error, TOCSIN_E_VERSION, file->where, -1,
                               "digests of a checkpoint of version %" PRId64 "; %d can be read",
                               version, VERSION);
    TOCSIN_TRY(read_origin(file, root));
    TOCSIN_TRY(read_entries(file, tocsin_json_get_member(root, "tensors"), read_tensor));
    return read_entries(file, tocsin_json_get_member(root, "values"), read_value);
}

tocsin_status tocsin_checkpoint_digests_parse(const char *text, size_t bytes, const char *where,
                                              tocsin_checkpoint_digests **digests,
                                              tocsin_error *error)
{
    tocsin_json_value *root = NULL;
    *digests = NULL;
    if (bytes > TOCSIN_CHECKPOINT_FILE_BYTES_MAX)
        return tocsin_error_at(error, TOCSIN_E_LIMIT, where, -1,
                               "digests of a checkpoint of more than %u bytes",
                               TOCSIN_CHECKPOINT_FILE_BYTES_MAX);
    TOCSIN_TRY(tocsin_json_parse(text, bytes, where, &root, error));
    digests_file file = {.where = where, .error = error};
    tocsin_status status = tocsin_checkpoint_digests_new(&file.digests, error);
    if (status == TOCSIN_OK)
        status = read_root(&file, root);
    tocsin_json_free(root);
    if (status == TOCSIN_OK)
        *digests = file.digests;
    else
        tocsin_checkpoint_digests_free(file.digests);
    return status;
}

tocsin_status tocsin_checkpoint_digests_read(const char *path, tocsin_checkpoint_digests **digests,
                                             tocsin_error *error)
{
    tocsin_string content = {0};
    *digests = NULL;
    tocsin_status status =
        tocsin_file_load(path, TOCSIN_CHECKPOINT_FILE_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK)
        status = tocsin_checkpoint_digests_parse(tocsin_string_text(&content), content.bytes, path,
                                                 digests, error);
    tocsin_string_free(&content);
    const char *incomplete = *digests ? tocsin_checkpoint_digests_incomplete(*digests) : NULL;
    if (incomplete) {
        status =
            tocsin_error_at(error, TOCSIN_E_FORMAT, path, -1,
                            "the digest of %.200s is not that of the whole tensor", incomplete);
        tocsin_checkpoint_digests_free(*digests);
        *digests = NULL;
    }
    return status;
}
