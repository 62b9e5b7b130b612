/* Every allocation and every system call of the base module fails once: each failure is reported,
 * nothing leaks (sanitizer build), and a file that could not be replaced is the old one. */
#include "every_fault.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char directory[64];
static char path[128];

static int enter_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/tocsin-faults-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/f", directory);
    return 0;
}

static int leave_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory); /* fails when a temporary file was left */
}

static tocsin_status fill_containers(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_arena arena = {.chunk_bytes = 64};
    tocsin_map map = {0};
    tocsin_intern table = {0};
    tocsin_string string = {0};
    TOCSIN_VEC(uint64_t) vec = {0};
    bool good = true;
    for (uint64_t i = 0; good && i < 300; ++i) {
        char name[32];
        int bytes = snprintf(name, sizeof name, "%llu", (unsigned long long)i);
        uint32_t id = tocsin_intern_put(&table, name, (size_t)bytes);
        good = id != 0 && tocsin_map_put(&map, i, i) && TOCSIN_VEC_PUSH(&vec, i) &&
               tocsin_arena_alloc(&arena, 40, 8) != NULL;
        tocsin_string_printf(&string, "%300d", 1);
        good = good && string.status == TOCSIN_OK;
        if (good)
            assert_int_equal(id, i + 1);
    }
    /* A failed insertion leaves what was there. */
    for (uint64_t i = 0; i < vec.count; ++i) {
        assert_int_equal(vec.items[i], i);
        assert_int_equal(*tocsin_map_find(&map, i), i);
        assert_non_null(tocsin_intern_text(&table, (uint32_t)i + 1, NULL));
    }
    tocsin_arena_free(&arena);
    tocsin_map_free(&map);
    tocsin_intern_free(&table);
    tocsin_string_free(&string);
    TOCSIN_VEC_FREE(&vec);
    return good ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status nothing(void *context, size_t index, tocsin_error *error)
{
    (void)context;
    (void)index;
    (void)error;
    return TOCSIN_OK;
}

static tocsin_status use_pool(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_pool *pool = NULL;
    TOCSIN_TRY(tocsin_pool_new(3, &pool, error));
    tocsin_status status = tocsin_pool_run(pool, 10, nothing, NULL, error);
    tocsin_pool_free(pool);
    return status;
}

static tocsin_status parse(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_json_value *root = NULL;
    TOCSIN_TRY(tocsin_json_parse("[1]", 3, "", &root, error));
    tocsin_json_free(root);
    return TOCSIN_OK;
}

static tocsin_status read_lines(tocsin_error *error)
{
    tocsin_reader reader;
    TOCSIN_TRY(tocsin_reader_open(&reader, path, error));
    const char *line = NULL;
    size_t bytes = 0;
    tocsin_status status = TOCSIN_OK;
    do
        status = tocsin_reader_line(&reader, 1 << 20, &line, &bytes, error);
    while (status == TOCSIN_OK && line);
    tocsin_reader_close(&reader);
    return status;
}

static tocsin_status map_file(int fd, tocsin_error *error)
{
    uint64_t bytes = 0;
    void *memory = NULL;
    TOCSIN_TRY(tocsin_file_size(fd, &bytes, path, error));
    TOCSIN_TRY(tocsin_file_resize(fd, bytes + 1, path, error));
    TOCSIN_TRY(tocsin_file_sync(fd, path, error));
    TOCSIN_TRY(tocsin_file_map(fd, 0, (size_t)bytes, false, &memory, path, error));
    tocsin_file_unmap(memory, (size_t)bytes);
    return TOCSIN_OK;
}

/* Replaces the file by 200,000 bytes with a newline in the middle, reads and maps it. */
static tocsin_status use_files(void *context, tocsin_error *error)
{
    static char bytes[200000];
    memset(bytes, *(const char *)context, sizeof bytes);
    bytes[sizeof bytes / 2] = '\n';
    TOCSIN_TRY(tocsin_file_store(path, bytes, sizeof bytes, true, error));
    TOCSIN_TRY(read_lines(error));
    tocsin_string content = {0};
    tocsin_status status = tocsin_file_load(path, 1 << 20, &content, error);
    tocsin_string_free(&content);
    TOCSIN_TRY(status);
    int fd = -1;
    TOCSIN_TRY(tocsin_file_open(path, O_RDWR, 0, &fd, error));
    status = map_file(fd, error);
    tocsin_status closed = tocsin_file_close(&fd, path, status == TOCSIN_OK ? error : NULL);
    return status != TOCSIN_OK ? status : closed;
}

static void memory_faults(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, fill_containers, NULL) > 100);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, use_pool, NULL) == 2);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, parse, NULL) == 1);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, use_files, "m") > 5);
}

static void file_faults(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, use_pool, NULL) == 2);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, use_files, "i") > 15);
}

static void a_failed_replacement_leaves_the_old_file(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; ++nth) {
        assert_int_equal(tocsin_file_store(path, "old", 3, true, NULL), TOCSIN_OK);
        tocsin_fault_arm(TOCSIN_FAULT_IO, nth);
        tocsin_status status = tocsin_file_store(path, "new", 3, true, NULL);
        bool fired = tocsin_fault_disarm(TOCSIN_FAULT_IO);
        tocsin_string content = {0};
        assert_int_equal(tocsin_file_load(path, 10, &content, NULL), TOCSIN_OK);
        assert_int_equal(status, fired ? TOCSIN_E_IO : TOCSIN_OK);
        assert_string_equal(content.text, fired ? "old" : "new");
        tocsin_string_free(&content);
        if (!fired)
            break;
    }
}

static void unarmed_calls_never_fail(void **state)
{
    (void)state;
    assert_false(tocsin_fault_hit(TOCSIN_FAULT_MEMORY));
    tocsin_fault_arm(TOCSIN_FAULT_IO, 1);
    assert_false(tocsin_fault_hit(TOCSIN_FAULT_MEMORY));
    assert_true(tocsin_fault_hit(TOCSIN_FAULT_IO));
    assert_false(tocsin_fault_hit(TOCSIN_FAULT_IO)); /* once */
    assert_true(tocsin_fault_disarm(TOCSIN_FAULT_IO));
    assert_false(tocsin_fault_hit(TOCSIN_FAULT_IO));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_faults),
        cmocka_unit_test(file_faults),
        cmocka_unit_test(a_failed_replacement_leaves_the_old_file),
        cmocka_unit_test(unarmed_calls_never_fail),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
