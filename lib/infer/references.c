/* References of several runs: a set, its file, its provenance.
 *
 * Each reference is kept as the bytes that it was made as. Invariant: ascending by the runs'
 * identities, none twice, so what is made of a set does not depend on how it came together. Cost:
 * adding moves O(count) pointers; 64 at most. */
#include <assert.h>
#include <infer/reference.h>
#include <inttypes.h>
#include <stdio.h>
#include <tocsin/version.h>

/* A file: this line, the number of references, and of each its length and its bytes. */
static const char magic[] = "tocsin-examples 1\n";

struct item {
    char *bytes;
    size_t count;
    char *run; /* its name as text */
    tocsin_reference_head head;
};

struct tocsin_references {
    TOCSIN_VEC(struct item) items;
};

tocsin_status tocsin_references_new(tocsin_references **references, tocsin_error *error)
{
    assert(references != NULL);
    *references = tocsin_zalloc(1, sizeof **references);
    return *references != NULL ? TOCSIN_OK : tocsin_error_memory(error);
}

static void item_free(struct item *item)
{
    tocsin_free(item->bytes);
    tocsin_free(item->run);
}

void tocsin_references_free(tocsin_references *references)
{
    if (references == NULL)
        return;
    for (size_t i = 0; i < references->items.count; ++i)
        item_free(&references->items.items[i]);
    TOCSIN_VEC_FREE(&references->items);
    tocsin_free(references);
}

size_t tocsin_references_count(const tocsin_references *references)
{
    return references->items.count;
}

tocsin_reference tocsin_references_get(const tocsin_references *references, size_t index)
{
    assert(index < references->items.count);
    const struct item *item = &references->items.items[index];
    tocsin_reference reference = {.run = item->run,
                                  .wide = item->head.wide,
                                  .processes = item->head.processes,
                                  .events = item->head.events,
                                  .instances = item->head.instances};
    snprintf(reference.identity, sizeof reference.identity, "%016" PRIx64 "%016" PRIx64,
             item->head.identity.high, item->head.identity.low);
    return reference;
}

/* ---- adding -------------------------------------------------------------------------------- */

static int compare(const struct item *a, const struct item *b)
{
    const tocsin_hash128 x = a->head.identity, y = b->head.identity;
    return x.high != y.high ? (x.high > y.high) - (x.high < y.high)
                            : (x.low > y.low) - (x.low < y.low);
}

static tocsin_status insert(tocsin_references *references, const struct item *item,
                            tocsin_error *error)
{
    size_t at = 0;
    while (at < references->items.count && compare(&references->items.items[at], item) < 0)
        ++at;
    if (at < references->items.count && compare(&references->items.items[at], item) == 0)
        return tocsin_error_set(error, TOCSIN_E_EXISTS,
                                "the same run twice tells nothing new: %.100s and %.100s",
                                references->items.items[at].run, item->run);
    if (references->items.count > 0 && references->items.items[0].head.wide != item->head.wide)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "%.100s was counted %s: all runs must be counted alike", item->run,
                                item->head.wide ? "wide" : "without wide");
    if (references->items.count == TOCSIN_REFERENCES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "at most %zu runs are learned from",
                                TOCSIN_REFERENCES_MAX);
    if (!TOCSIN_VEC_RESERVE(&references->items, 1))
        return tocsin_error_memory(error);
    struct item *place = &references->items.items[at];
    memmove(place + 1, place, (references->items.count - at) * sizeof *place);
    *place = *item;
    ++references->items.count;
    return TOCSIN_OK;
}

static tocsin_status add(tocsin_references *references, const char *bytes, size_t count,
                         const char *where, tocsin_error *error)
{
    struct item item = {.bytes = tocsin_copy_text(bytes, count), .count = count};
    if (item.bytes == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_reference_read(item.bytes, count, where, &item.head, error);
    if (status == TOCSIN_OK && item.head.shards > 0)
        status = tocsin_error_at(error, TOCSIN_E_FORMAT, where, -1,
                                 "a shard of a run's examples, without the others");
    if (status == TOCSIN_OK) {
        item.run = tocsin_copy_text(item.head.run, item.head.run_bytes);
        status = item.run != NULL ? insert(references, &item, error) : tocsin_error_memory(error);
    }
    if (status != TOCSIN_OK)
        item_free(&item);
    return status;
}

tocsin_status tocsin_references_add(tocsin_references *references, const char *bytes, size_t count,
                                    tocsin_error *error)
{
    return add(references, bytes, count, NULL, error);
}

static tocsin_status check_options(const tocsin_infer_options *options, tocsin_error *error)
{
    if (options != NULL && options->struct_bytes != sizeof *options)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "options of %zu bytes, this library knows %zu",
                                options->struct_bytes, sizeof *options);
    return TOCSIN_OK;
}

void tocsin_counting_tell(const tocsin_counting *counting, const char *directory, uint64_t more)
{
    uint64_t done = atomic_fetch_add(counting->events, more) + more;
    const tocsin_infer_options *options = counting->options;
    if (options != NULL && options->progress != NULL &&
        pthread_equal(counting->teller, pthread_self()))
        options->progress(options->context, directory, done, 0);
}

tocsin_status tocsin_reference_count_shard(const char *run_directory, uint32_t shard,
                                           uint32_t shards, const tocsin_infer_options *options,
                                           char **bytes, size_t *count, tocsin_error *error)
{
    _Atomic uint64_t events = 0;
    tocsin_counting counting = {.options = options, .teller = pthread_self(), .events = &events};
    tocsin_string out = {0};
    *bytes = NULL;
    *count = 0;
    TOCSIN_TRY(check_options(options, error));
    if (shards > TOCSIN_SHARDS_MAX || shard >= shards + (shards == 0))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "shard %u of %u: at most %u", shard,
                                shards, TOCSIN_SHARDS_MAX);
    tocsin_status status = tocsin_count_run(run_directory, shard, shards, &counting, &out, error);
    if (status != TOCSIN_OK) {
        tocsin_string_free(&out);
        return status;
    }
    *bytes = out.text;
    *count = out.bytes;
    return TOCSIN_OK;
}

tocsin_status tocsin_reference_count(const char *run_directory, const tocsin_infer_options *options,
                                     char **bytes, size_t *count, tocsin_error *error)
{
    return tocsin_reference_count_shard(run_directory, 0, 0, options, bytes, count, error);
}

void tocsin_reference_bytes_free(char *bytes)
{
    tocsin_free(bytes);
}

struct batch {
    tocsin_counting counting;
    const char *const *directories;
    tocsin_string *references; /* one a run */
};

static tocsin_status count_one(void *context, size_t index, tocsin_error *error)
{
    struct batch *batch = context;
    return tocsin_count_run(batch->directories[index], 0, 0, &batch->counting,
                            &batch->references[index], error);
}

tocsin_status tocsin_references_add_runs(tocsin_references *references,
                                         const char *const *run_directories, size_t run_count,
                                         const tocsin_infer_options *options, tocsin_error *error)
{
    _Atomic uint64_t events = 0;
    TOCSIN_TRY(check_options(options, error));
    if (run_count > TOCSIN_REFERENCES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "%zu runs: at most %zu are learned from",
                                run_count, TOCSIN_REFERENCES_MAX);
    struct batch batch = {
        .counting = {.options = options, .teller = pthread_self(), .events = &events},
        .directories = run_directories,
        .references = tocsin_zalloc(run_count, sizeof *batch.references)};
    if (batch.references == NULL)
        return tocsin_error_memory(error);
    tocsin_pool *pool = NULL;
    unsigned threads = options != NULL ? options->threads : 0;
    tocsin_status status = tocsin_pool_new(run_count < 2 ? 1 : threads, &pool, error);
    if (status == TOCSIN_OK)
        status = tocsin_pool_run(pool, run_count, count_one, &batch, error);
    tocsin_pool_free(pool);
    for (size_t i = 0; i < run_count; ++i) {
        const tocsin_string *bytes = &batch.references[i];
        if (status == TOCSIN_OK)
            status =
                tocsin_references_add(references, tocsin_string_text(bytes), bytes->bytes, error);
        tocsin_string_free(&batch.references[i]);
    }
    tocsin_free(batch.references);
    return status;
}

/* ---- files --------------------------------------------------------------------------------- */

static tocsin_status cut_short(const tocsin_string *content, const char *at, const char *path,
                               tocsin_error *error)
{
    return tocsin_error_at(error, TOCSIN_E_FORMAT, path, at - content->text,
                           "the file of examples ends too early, or is damaged");
}

static tocsin_status read_file(tocsin_references *references, const tocsin_string *content,
                               const char *path, tocsin_error *error)
{
    const char *at = tocsin_string_text(content), *end = at + content->bytes;
    if (content->bytes < sizeof magic - 1 || memcmp(at, magic, sizeof magic - 1) != 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, path, -1,
                               "no file of counted examples, as infer --keep writes");
    at += sizeof magic - 1;
    uint64_t count, bytes;
    size_t taken = tocsin_varint_get((const uint8_t *)at, (size_t)(end - at), &count);
    if (taken == 0)
        return cut_short(content, at, path, error);
    at += taken;
    for (uint64_t i = 0; i < count; ++i) {
        taken = tocsin_varint_get((const uint8_t *)at, (size_t)(end - at), &bytes);
        if (taken == 0 || bytes > (uint64_t)(end - at) - taken)
            return cut_short(content, at, path, error);
        at += taken;
        TOCSIN_TRY(add(references, at, (size_t)bytes, path, error));
        at += bytes;
    }
    return at == end ? TOCSIN_OK
                     : tocsin_error_at(error, TOCSIN_E_FORMAT, path, at - content->text,
                                       "bytes after the end of the examples");
}

tocsin_status tocsin_references_load(tocsin_references *references, const char *path,
                                     tocsin_error *error)
{
    tocsin_string content = {0};
    tocsin_status status = tocsin_file_load(path, TOCSIN_INFER_FILE_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK)
        status = read_file(references, &content, path, error);
    tocsin_string_free(&content);
    return status;
}

static tocsin_status put_number(tocsin_writer *writer, uint64_t number, tocsin_error *error)
{
    uint8_t bytes[TOCSIN_VARINT_BYTES_MAX];
    return tocsin_writer_write(writer, bytes, tocsin_varint_put(bytes, number), error);
}

static tocsin_status write_file(const tocsin_references *references, tocsin_writer *writer,
                                tocsin_error *error)
{
    TOCSIN_TRY(tocsin_writer_write(writer, magic, sizeof magic - 1, error));
    TOCSIN_TRY(put_number(writer, references->items.count, error));
    for (size_t i = 0; i < references->items.count; ++i) {
        const struct item *item = &references->items.items[i];
        TOCSIN_TRY(put_number(writer, item->count, error));
        TOCSIN_TRY(tocsin_writer_write(writer, item->bytes, item->count, error));
    }
    return tocsin_writer_commit(writer, error);
}

tocsin_status tocsin_references_save(const tocsin_references *references, const char *path,
                                     int force, tocsin_error *error)
{
    tocsin_writer writer;
    TOCSIN_TRY(tocsin_writer_open(&writer, path, force != 0, error));
    tocsin_status status = write_file(references, &writer, error);
    tocsin_writer_abandon(&writer);
    return status;
}

/* ---- inference ----------------------------------------------------------------------------- */

tocsin_status tocsin_references_infer(const tocsin_references *references,
                                      const tocsin_infer_options *options,
                                      tocsin_invariant_set **set, tocsin_infer_summary *summary,
                                      tocsin_error *error)
{
    assert(set != NULL);
    tocsin_infer_summary counted = {0};
    size_t count = references->items.count;
    *set = NULL;
    TOCSIN_TRY(check_options(options, error));
    if (count == 0)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no run to infer from");
    tocsin_invariant_set *learned;
    TOCSIN_TRY(tocsin_invariants_new(&learned, error));
    tocsin_examples examples = {.vocabulary = tocsin_invariants_vocabulary(learned),
                                .wide = references->items.items[0].head.wide};
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < count && status == TOCSIN_OK; ++i) {
        const struct item *item = &references->items.items[i];
        examples.run = (uint32_t)i;
        counted.events += item->head.events;
        counted.instances += item->head.instances;
        status = tocsin_examples_decode(&examples, item->head.body, item->head.body_bytes,
                                        item->run, error);
    }
    if (status == TOCSIN_OK)
        status = tocsin_learn(&examples, (uint32_t)count, options, learned, &counted, error);
    tocsin_examples_free(&examples);
    if (status != TOCSIN_OK) {
        tocsin_invariants_free(learned);
        return status;
    }
    *set = learned;
    if (summary != NULL)
        *summary = counted;
    return TOCSIN_OK;
}

tocsin_status tocsin_infer(const char *const *run_directories, size_t run_count,
                           const tocsin_infer_options *options, tocsin_invariant_set **set,
                           tocsin_infer_summary *summary, tocsin_error *error)
{
    assert(set != NULL);
    *set = NULL;
    tocsin_references *references;
    TOCSIN_TRY(tocsin_references_new(&references, error));
    tocsin_status status =
        tocsin_references_add_runs(references, run_directories, run_count, options, error);
    if (status == TOCSIN_OK)
        status = tocsin_references_infer(references, options, set, summary, error);
    tocsin_references_free(references);
    return status;
}

/* ---- provenance ---------------------------------------------------------------------------- */

static void say_run(tocsin_json *json, const tocsin_reference *reference)
{
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "run");
    tocsin_json_text(json, reference->run);
    tocsin_json_key(json, "identity");
    tocsin_json_text(json, reference->identity);
    tocsin_json_key(json, "processes");
    tocsin_json_unsigned(json, reference->processes);
    tocsin_json_key(json, "events");
    tocsin_json_unsigned(json, reference->events);
    tocsin_json_key(json, "instances");
    tocsin_json_unsigned(json, reference->instances);
    tocsin_json_end_object(json);
}

static void say_provenance(const tocsin_references *references, const tocsin_infer_summary *summary,
                           tocsin_string *out)
{
    tocsin_json json = {.out = out};
    bool wide = references->items.count > 0 && references->items.items[0].head.wide;
    tocsin_json_begin_object(&json);
    tocsin_json_key(&json, "format");
    tocsin_json_text(&json, "tocsin-provenance");
    tocsin_json_key(&json, "version");
    tocsin_json_integer(&json, 1);
    tocsin_json_key(&json, "tocsin");
    tocsin_json_text(&json, TOCSIN_VERSION);
    tocsin_json_key(&json, "wide");
    tocsin_json_bool(&json, wide);
    tocsin_json_key(&json, "hypotheses");
    tocsin_json_unsigned(&json, summary->hypotheses);
    tocsin_json_key(&json, "dropped");
    tocsin_json_unsigned(&json, summary->dropped);
    tocsin_json_key(&json, "kept");
    tocsin_json_unsigned(&json, summary->kept);
    tocsin_json_key(&json, "runs");
    tocsin_json_begin_array(&json);
    for (size_t i = 0; i < references->items.count; ++i) {
        tocsin_reference reference = tocsin_references_get(references, i);
        say_run(&json, &reference);
    }
    tocsin_json_end_array(&json);
    tocsin_json_end_object(&json);
    tocsin_string_append_char(out, '\n');
}

tocsin_status tocsin_references_write_provenance(const tocsin_references *references,
                                                 const tocsin_infer_summary *summary,
                                                 const char *path, tocsin_error *error)
{
    tocsin_string text = {0};
    say_provenance(references, summary, &text);
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, tocsin_string_text(&text), text.bytes, true, error);
    tocsin_string_free(&text);
    return status;
}
