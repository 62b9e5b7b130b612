/* Counted runs: bytes that mean the same elsewhere, sets without order, files, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "healthy_runs.h"
#include "infer_examples.h"

#include <infer/reference.h>

enum { RUNS = 3 };

struct folder {
    char path[64];
    char runs[RUNS][96];
    char file[96];
};

static int make_runs(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    strcpy(folder->path, "/tmp/tocsin-references-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    for (int i = 0; i < RUNS; ++i) {
        snprintf(folder->runs[i], sizeof folder->runs[i], "%s/run%d", folder->path, i);
        assert_true(write_run(folder->runs[i], 4 + i, (uint64_t)i * 1000));
    }
    snprintf(folder->file, sizeof folder->file, "%s/kept", folder->path);
    *state = folder;
    return 0;
}

static int remove_runs(void **state)
{
    struct folder *folder = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder->path);
    int status = system(command);
    free(folder);
    return status;
}

static tocsin_references *new_references(void)
{
    tocsin_references *references;
    assert_int_equal(tocsin_references_new(&references, NULL), TOCSIN_OK);
    return references;
}

static tocsin_string load(const char *path)
{
    tocsin_string content = {0};
    assert_int_equal(tocsin_file_load(path, 1 << 24, &content, NULL), TOCSIN_OK);
    return content;
}

/* What is inferred from the references, as a file's text. */
static tocsin_string infer_text(const struct folder *folder, const tocsin_references *references)
{
    tocsin_invariant_set *set;
    tocsin_infer_summary summary;
    char path[128];
    assert_int_equal(tocsin_references_infer(references, NULL, &set, &summary, NULL), TOCSIN_OK);
    assert_true(summary.kept > 5);
    snprintf(path, sizeof path, "%s/inv.jsonl", folder->path);
    assert_int_equal(tocsin_invariants_save(set, path, 1, NULL), TOCSIN_OK);
    tocsin_invariants_free(set);
    return load(path);
}

static void assert_same(tocsin_string *a, tocsin_string *b)
{
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->text, b->text, a->bytes);
    tocsin_string_free(b);
}

static void add_run(tocsin_references *references, const struct folder *folder, int run)
{
    char *bytes;
    size_t count;
    assert_int_equal(tocsin_reference_count(folder->runs[run], NULL, &bytes, &count, NULL),
                     TOCSIN_OK);
    assert_int_equal(tocsin_references_add(references, bytes, count, NULL), TOCSIN_OK);
    tocsin_reference_bytes_free(bytes);
}

static void a_run_added_later_changes_nothing(void **state)
{
    struct folder *folder = *state;
    const char *runs[] = {folder->runs[0], folder->runs[1], folder->runs[2]};
    tocsin_references *together = new_references();
    assert_int_equal(tocsin_references_add_runs(together, runs, RUNS, NULL, NULL), TOCSIN_OK);
    tocsin_string expected = infer_text(folder, together);
    static const int orders[][RUNS] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    for (size_t o = 0; o < TOCSIN_COUNT_OF(orders); ++o) {
        tocsin_references *kept = new_references(), *more = new_references();
        add_run(kept, folder, orders[o][0]);
        add_run(kept, folder, orders[o][1]);
        assert_int_equal(tocsin_references_save(kept, folder->file, 1, NULL), TOCSIN_OK);
        add_run(more, folder, orders[o][2]);
        assert_int_equal(tocsin_references_load(more, folder->file, NULL), TOCSIN_OK);
        tocsin_string text = infer_text(folder, more);
        assert_same(&expected, &text);
        tocsin_references_free(kept);
        tocsin_references_free(more);
    }
    tocsin_string_free(&expected);
    tocsin_references_free(together);
}

static void files_depend_on_what_is_in_them_alone(void **state)
{
    struct folder *folder = *state;
    tocsin_references *forth = new_references(), *back = new_references();
    for (int i = 0; i < RUNS; ++i) {
        add_run(forth, folder, i);
        add_run(back, folder, RUNS - 1 - i);
    }
    assert_int_equal(tocsin_references_save(forth, folder->file, 0, NULL), TOCSIN_OK);
    tocsin_string first = load(folder->file);
    assert_int_equal(tocsin_references_save(back, folder->file, 0, NULL), TOCSIN_E_EXISTS);
    assert_int_equal(tocsin_references_save(back, folder->file, 1, NULL), TOCSIN_OK);
    tocsin_string second = load(folder->file);
    assert_same(&first, &second);
    tocsin_string_free(&first);
    tocsin_references_free(forth);
    tocsin_references_free(back);
}

static void the_same_run_is_refused_wherever_it_lies(void **state)
{
    struct folder *folder = *state;
    char copy[128], command[320];
    snprintf(copy, sizeof copy, "%s/copy", folder->path);
    snprintf(command, sizeof command, "cp -r %s %s", folder->runs[0], copy);
    assert_int_equal(system(command), 0);
    const char *runs[] = {folder->runs[0], folder->runs[1], copy};
    tocsin_references *references = new_references();
    tocsin_error error;
    assert_int_equal(tocsin_references_add_runs(references, runs, 3, NULL, &error),
                     TOCSIN_E_EXISTS);
    assert_non_null(strstr(error.message, folder->runs[0]));
    assert_non_null(strstr(error.message, copy));
    assert_int_equal(tocsin_references_count(references), 2);
    tocsin_references_free(references);
}

static void wide_and_narrow_do_not_mix(void **state)
{
    struct folder *folder = *state;
    const char *runs[] = {folder->runs[0], folder->runs[1]};
    tocsin_references *references = new_references();
    tocsin_infer_options wide = {.struct_bytes = sizeof wide, .wide = true};
    assert_int_equal(tocsin_references_add_runs(references, runs, 1, &wide, NULL), TOCSIN_OK);
    assert_true(tocsin_references_get(references, 0).wide);
    assert_int_equal(tocsin_references_add_runs(references, runs + 1, 1, NULL, NULL),
                     TOCSIN_E_ARGUMENT);
    assert_int_equal(tocsin_references_count(references), 1);
    tocsin_references_free(references);
}

static void provenance_names_runs_and_counts(void **state)
{
    struct folder *folder = *state;
    tocsin_references *references = new_references();
    add_run(references, folder, 0);
    add_run(references, folder, 2);
    tocsin_infer_summary summary = {.hypotheses = 9, .dropped = 7, .kept = 2};
    assert_int_equal(tocsin_references_write_provenance(references, &summary, folder->file, NULL),
                     TOCSIN_OK);
    tocsin_string text = load(folder->file);
    tocsin_json_value *root;
    assert_int_equal(tocsin_json_parse(text.text, text.bytes, "", &root, NULL), TOCSIN_OK);
    const tocsin_json_value *runs = tocsin_json_get_member(root, "runs");
    assert_int_equal(tocsin_json_get_count(runs), 2);
    for (size_t i = 0; i < 2; ++i) {
        const tocsin_json_value *run = tocsin_json_get_item(runs, i);
        tocsin_reference reference = tocsin_references_get(references, i);
        int64_t events = 0;
        assert_string_equal(tocsin_json_get_text(tocsin_json_get_member(run, "run")),
                            reference.run);
        assert_string_equal(tocsin_json_get_text(tocsin_json_get_member(run, "identity")),
                            reference.identity);
        assert_true(tocsin_json_get_integer(tocsin_json_get_member(run, "events"), &events));
        assert_true(events > 0 && (uint64_t)events == reference.events);
        assert_int_equal(reference.processes, 1);
    }
    int64_t kept = 0;
    assert_true(tocsin_json_get_integer(tocsin_json_get_member(root, "kept"), &kept));
    assert_int_equal(kept, 2);
    tocsin_json_free(root);
    tocsin_string_free(&text);
    tocsin_references_free(references);
}

/* ---- damage -------------------------------------------------------------------------------- */

static void write_bytes(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void every_damaged_byte_is_noticed(void **state)
{
    struct folder *folder = *state;
    tocsin_references *references = new_references();
    add_run(references, folder, 0);
    add_run(references, folder, 1);
    assert_int_equal(tocsin_references_save(references, folder->file, 1, NULL), TOCSIN_OK);
    tocsin_references_free(references);
    tocsin_string whole = load(folder->file);
    for (size_t i = 0; i < whole.bytes; ++i) {
        for (int cut = 0; cut < 2; ++cut) {
            char kept = whole.text[i];
            whole.text[i] = (char)(kept ^ 0x10);
            write_bytes(folder->file, whole.text, cut ? i : whole.bytes);
            whole.text[i] = kept;
            tocsin_error error = {0};
            references = new_references();
            assert_int_equal(tocsin_references_load(references, folder->file, &error),
                             TOCSIN_E_FORMAT);
            assert_true(error.message[0] != 0);
            tocsin_references_free(references);
        }
    }
    tocsin_string_free(&whole);
}

/* The checksum keeps no stranger out: the examples themselves may be anything. */
static void any_bytes_of_examples_are_survived(void **state)
{
    struct folder *folder = *state;
    char *bytes;
    size_t count, refused = 0;
    tocsin_reference_head head;
    assert_int_equal(tocsin_reference_count(folder->runs[0], NULL, &bytes, &count, NULL),
                     TOCSIN_OK);
    assert_int_equal(tocsin_reference_read(bytes, count, NULL, &head, NULL), TOCSIN_OK);
    char *body = bytes + (head.body - bytes);
    for (size_t i = 0; i < head.body_bytes * 8; ++i) {
        tocsin_vocabulary *vocabulary;
        assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
        tocsin_examples examples = {.vocabulary = vocabulary};
        tocsin_error error = {0};
        body[i / 8] = (char)(body[i / 8] ^ 1 << i % 8);
        tocsin_status status =
            tocsin_examples_decode(&examples, body, head.body_bytes, folder->runs[0], &error);
        assert_true(status == TOCSIN_OK || status == TOCSIN_E_FORMAT);
        assert_true((error.message[0] != 0) == (status != TOCSIN_OK));
        refused += status != TOCSIN_OK;
        body[i / 8] = (char)(body[i / 8] ^ 1 << i % 8);
        tocsin_examples_free(&examples);
        tocsin_vocabulary_free(vocabulary);
    }
    assert_true(refused > head.body_bytes);
    tocsin_reference_bytes_free(bytes);
}

typedef struct shard_set {
    char *bytes[TOCSIN_SHARDS_MAX];
    size_t counts[TOCSIN_SHARDS_MAX];
} shard_set;

static void count_shards(shard_set *set, const char *run, uint32_t shards,
                         const tocsin_infer_options *options)
{
    for (uint32_t i = 0; i < shards; ++i)
        assert_int_equal(tocsin_reference_count_shard(run, i, shards, options, &set->bytes[i],
                                                      &set->counts[i], NULL),
                         TOCSIN_OK);
}

static tocsin_status add_shards(tocsin_references *references, const shard_set *set,
                                uint32_t shards)
{
    return tocsin_references_add_shards(references, (const char *const *)set->bytes, set->counts,
                                        shards, NULL);
}

static void free_shards(shard_set *set, uint32_t shards)
{
    for (uint32_t i = 0; i < shards; ++i)
        tocsin_reference_bytes_free(set->bytes[i]);
}

static void shards_are_the_run(void **state)
{
    struct folder *folder = *state;
    for (int wide = 0; wide < 2; ++wide) {
        tocsin_infer_options options = {
            .struct_bytes = sizeof options, .threads = 1, .wide = wide == 1};
        const char *run = folder->runs[0];
        tocsin_references *whole = new_references();
        assert_int_equal(tocsin_references_add_runs(whole, &run, 1, &options, NULL), TOCSIN_OK);
        assert_int_equal(tocsin_references_save(whole, folder->file, 1, NULL), TOCSIN_OK);
        tocsin_string expected = load(folder->file);
        for (uint32_t shards = 1; shards <= TOCSIN_SHARDS_MAX; ++shards) {
            shard_set set;
            tocsin_references *joined = new_references();
            count_shards(&set, run, shards, &options);
            assert_int_equal(add_shards(joined, &set, shards), TOCSIN_OK);
            assert_int_equal(tocsin_references_save(joined, folder->file, 1, NULL), TOCSIN_OK);
            tocsin_string text = load(folder->file);
            assert_same(&expected, &text);
            assert_int_equal(tocsin_references_get(joined, 0).instances,
                             tocsin_references_get(whole, 0).instances);
            tocsin_references_free(joined);
            free_shards(&set, shards);
        }
        tocsin_string_free(&expected);
        tocsin_references_free(whole);
    }
}

static void shards_alone_or_of_others_are_refused(void **state)
{
    struct folder *folder = *state;
    tocsin_references *references = new_references();
    shard_set set, other;
    char *bytes;
    size_t count;
    count_shards(&set, folder->runs[0], 2, NULL);
    count_shards(&other, folder->runs[1], 2, NULL);
    assert_int_equal(tocsin_references_add(references, set.bytes[0], set.counts[0], NULL),
                     TOCSIN_E_FORMAT);
    assert_int_equal(add_shards(references, &set, 1), TOCSIN_E_ARGUMENT);
    assert_int_equal(add_shards(references, &set, 0), TOCSIN_E_ARGUMENT);
    shard_set swapped = {{set.bytes[1], set.bytes[0]}, {set.counts[1], set.counts[0]}};
    assert_int_equal(add_shards(references, &swapped, 2), TOCSIN_E_ARGUMENT);
    shard_set mixed = {{set.bytes[0], other.bytes[1]}, {set.counts[0], other.counts[1]}};
    assert_int_equal(add_shards(references, &mixed, 2), TOCSIN_E_ARGUMENT);
    assert_int_equal(tocsin_references_count(references), 0);
    assert_int_equal(tocsin_reference_count_shard(folder->runs[0], 0, TOCSIN_SHARDS_MAX + 1, NULL,
                                                  &bytes, &count, NULL),
                     TOCSIN_E_ARGUMENT);
    assert_int_equal(
        tocsin_reference_count_shard(folder->runs[0], 2, 2, NULL, &bytes, &count, NULL),
        TOCSIN_E_ARGUMENT);
    free_shards(&set, 2);
    free_shards(&other, 2);
    tocsin_references_free(references);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_added_later_changes_nothing, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(files_depend_on_what_is_in_them_alone, make_runs,
                                        remove_runs),
        cmocka_unit_test_setup_teardown(the_same_run_is_refused_wherever_it_lies, make_runs,
                                        remove_runs),
        cmocka_unit_test_setup_teardown(wide_and_narrow_do_not_mix, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(shards_are_the_run, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(shards_alone_or_of_others_are_refused, make_runs,
                                        remove_runs),
        cmocka_unit_test_setup_teardown(provenance_names_runs_and_counts, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(every_damaged_byte_is_noticed, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(any_bytes_of_examples_are_survived, make_runs, remove_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
