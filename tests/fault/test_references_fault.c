/* Every allocation and every file operation of counting, keeping and adding runs fails once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "every_fault.h"
#include "healthy_runs.h"

#include <tocsin/infer.h>

struct folder {
    char path[64];
    char runs[2][96];
    char kept[96], provenance[96];
};

static int make_runs(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    strcpy(folder->path, "/tmp/tocsin-references-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    for (int i = 0; i < 2; ++i) {
        snprintf(folder->runs[i], sizeof folder->runs[i], "%s/run%d", folder->path, i);
        assert_true(write_run(folder->runs[i], 3, (uint64_t)i * 1000));
    }
    snprintf(folder->kept, sizeof folder->kept, "%s/kept", folder->path);
    snprintf(folder->provenance, sizeof folder->provenance, "%s/provenance", folder->path);
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

static tocsin_status keep(const struct folder *folder, tocsin_references *references,
                          tocsin_error *error)
{
    const char *runs[] = {folder->runs[0]};
    tocsin_infer_options options = {.struct_bytes = sizeof options, .threads = 1};
    TOCSIN_TRY(tocsin_references_add_runs(references, runs, 1, &options, error));
    return tocsin_references_save(references, folder->kept, 1, error);
}

/* The second run, counted as two shards. */
static tocsin_status add_shards(const struct folder *folder, tocsin_references *references,
                                tocsin_error *error)
{
    char *bytes[2] = {NULL, NULL};
    size_t counts[2];
    tocsin_status status = TOCSIN_OK;
    for (uint32_t i = 0; i < 2 && status == TOCSIN_OK; ++i)
        status =
            tocsin_reference_count_shard(folder->runs[1], i, 2, NULL, &bytes[i], &counts[i], error);
    if (status == TOCSIN_OK)
        status =
            tocsin_references_add_shards(references, (const char *const *)bytes, counts, 2, error);
    for (size_t i = 0; i < 2; ++i)
        tocsin_reference_bytes_free(bytes[i]);
    return status;
}

static tocsin_status infer(const struct folder *folder, tocsin_references *references,
                           tocsin_error *error)
{
    tocsin_infer_options options = {.struct_bytes = sizeof options, .threads = 1};
    tocsin_invariant_set *set;
    tocsin_infer_summary summary;
    TOCSIN_TRY(tocsin_references_load(references, folder->kept, error));
    TOCSIN_TRY(add_shards(folder, references, error));
    TOCSIN_TRY(tocsin_references_infer(references, &options, &set, &summary, error));
    size_t count = tocsin_invariants_count(set);
    tocsin_invariants_free(set);
    if (count < 5)
        return tocsin_error_set(error, TOCSIN_E_INTERNAL, "too little was learned");
    return tocsin_references_write_provenance(references, &summary, folder->provenance, error);
}

static tocsin_status the_whole_way(void *context, tocsin_error *error)
{
    const struct folder *folder = context;
    tocsin_references *references;
    TOCSIN_TRY(tocsin_references_new(&references, error));
    tocsin_status status = keep(folder, references, error);
    tocsin_references_free(references);
    TOCSIN_TRY(status);
    TOCSIN_TRY(tocsin_references_new(&references, error));
    status = infer(folder, references, error);
    tocsin_references_free(references);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    uint64_t faults = every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, the_whole_way, *state);
    assert_true(faults > 200);
}

static void every_file_operation_may_fail(void **state)
{
    uint64_t faults = every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, the_whole_way, *state);
    assert_true(faults > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(every_file_operation_may_fail, make_runs, remove_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
