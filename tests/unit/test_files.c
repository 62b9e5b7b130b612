/* Files: whole reads and writes, lines of any length, and replacement that is all or nothing. */
#include "cmocka_test.h"
#include <base/base.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static const char *inside(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int enter_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/tocsin-files-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static size_t count_and_remove_files(void)
{
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlink(inside(entry->d_name));
            ++count;
        }
    }
    closedir(entries);
    return count;
}

static int leave_directory(void **state)
{
    (void)state;
    count_and_remove_files();
    return rmdir(directory);
}

static void assert_content(const char *path, const char *expected)
{
    tocsin_string content = {0};
    assert_int_equal(tocsin_file_load(path, 1 << 20, &content, NULL), TOCSIN_OK);
    assert_string_equal(tocsin_string_text(&content), expected);
    tocsin_string_free(&content);
}

static void store_replaces_only_with_force(void **state)
{
    (void)state;
    const char *path = inside("f");
    tocsin_error error;
    assert_int_equal(tocsin_file_store(path, "one", 3, false, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_file_store(path, "two", 3, false, &error), TOCSIN_E_EXISTS);
    assert_string_equal(error.where, path);
    assert_content(path, "one");
    assert_int_equal(tocsin_file_store(path, "two", 3, true, NULL), TOCSIN_OK);
    assert_content(path, "two");
    assert_int_equal(count_and_remove_files(), 1);
}

/* Someone creates the target between open and commit: it is theirs. */
static void a_late_rival_is_not_overwritten(void **state)
{
    (void)state;
    tocsin_writer writer;
    assert_int_equal(tocsin_writer_open(&writer, inside("f"), false, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_writer_write(&writer, "mine", 4, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_file_store(inside("f"), "theirs", 6, false, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_writer_commit(&writer, NULL), TOCSIN_E_EXISTS);
    assert_content(inside("f"), "theirs");
    assert_int_equal(count_and_remove_files(), 1);
}

static void an_abandoned_file_never_was(void **state)
{
    (void)state;
    tocsin_writer writer;
    assert_int_equal(tocsin_writer_open(&writer, inside("f"), false, NULL), TOCSIN_OK);
    for (int i = 0; i < 100000; ++i)
        assert_int_equal(tocsin_writer_write(&writer, "0123456789", 10, NULL), TOCSIN_OK);
    assert_int_equal(access(inside("f"), F_OK), -1);
    tocsin_writer_abandon(&writer);
    tocsin_writer_abandon(&writer);
    assert_int_equal(tocsin_writer_commit(&writer, NULL), TOCSIN_OK);
    assert_int_equal(count_and_remove_files(), 0);
}

static void a_device_is_written_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(tocsin_file_store("/dev/null", "x", 1, true, NULL), TOCSIN_OK);
    struct stat facts;
    assert_int_equal(stat("/dev/null", &facts), 0);
    assert_true(S_ISCHR(facts.st_mode));
    tocsin_error error;
    assert_int_equal(tocsin_file_store(directory, "x", 1, true, &error), TOCSIN_E_IO);
    assert_int_equal(tocsin_file_store("/dev/full", "x", 1, false, &error), TOCSIN_E_IO);
    assert_non_null(strstr(error.message, "cannot write: "));
}

static void missing_and_large_files_are_errors(void **state)
{
    (void)state;
    tocsin_string content = {0};
    tocsin_error error;
    assert_int_equal(tocsin_file_load(inside("no"), 10, &content, &error), TOCSIN_E_NOT_FOUND);
    assert_string_equal(error.where, inside("no"));
    assert_int_equal(tocsin_file_store(inside("no/f"), "", 0, false, &error), TOCSIN_E_NOT_FOUND);
    assert_string_equal(error.where, inside("no/f"));
    assert_int_equal(tocsin_file_store(inside("f"), "12345", 5, false, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_file_load(inside("f"), 4, &content, &error), TOCSIN_E_LIMIT);
    tocsin_string_clear(&content);
    assert_int_equal(tocsin_file_load(inside("f"), 5, &content, &error), TOCSIN_OK);
    assert_string_equal(content.text, "12345");
    assert_int_equal(tocsin_file_load(directory, 5, &content, &error), TOCSIN_E_IO);
    tocsin_string_free(&content);
    count_and_remove_files();
}

/* Lengths around the buffer's 64 KiB, with and without a newline at the end. */
static void lines_of_any_length(void **state)
{
    (void)state;
    const size_t lengths[] = {0, 1, 65535, 65536, 65537, 0, 200000, 3};
    for (int ends = 0; ends < 2; ++ends) {
        tocsin_string text = {0};
        for (size_t i = 0; i < TOCSIN_COUNT_OF(lengths); ++i) {
            for (size_t j = 0; j < lengths[i]; ++j)
                tocsin_string_append_char(&text, (char)('a' + (i + j) % 26));
            if (ends || i + 1 < TOCSIN_COUNT_OF(lengths))
                tocsin_string_append_char(&text, '\n');
        }
        assert_int_equal(tocsin_file_store(inside("l"), text.text, text.bytes, true, NULL), 0);
        tocsin_reader reader;
        assert_int_equal(tocsin_reader_open(&reader, inside("l"), NULL), TOCSIN_OK);
        const char *line = NULL;
        size_t bytes = 0;
        for (size_t i = 0; i < TOCSIN_COUNT_OF(lengths); ++i) {
            assert_int_equal(tocsin_reader_line(&reader, 200000, &line, &bytes, NULL), TOCSIN_OK);
            assert_non_null(line);
            assert_int_equal(bytes, lengths[i]);
            for (size_t j = 0; j < bytes; ++j)
                assert_int_equal(line[j], 'a' + (i + j) % 26);
        }
        assert_int_equal(tocsin_reader_line(&reader, 200000, &line, &bytes, NULL), TOCSIN_OK);
        assert_null(line);
        assert_int_equal(reader.offset, text.bytes);
        tocsin_reader_close(&reader);
        tocsin_string_free(&text);
    }
    count_and_remove_files();
}

static void a_long_line_is_refused(void **state)
{
    (void)state;
    char *text = tocsin_alloc(100000);
    assert_non_null(text);
    memset(text, 'x', 100000);
    text[9] = '\n';
    assert_int_equal(tocsin_file_store(inside("l"), text, 100000, false, NULL), TOCSIN_OK);
    tocsin_free(text);
    const char *line = NULL;
    size_t bytes = 0;
    tocsin_reader reader;
    tocsin_error error;
    assert_int_equal(tocsin_reader_open(&reader, inside("l"), NULL), TOCSIN_OK);
    assert_int_equal(tocsin_reader_line(&reader, 8, &line, &bytes, &error), TOCSIN_E_LIMIT);
    assert_int_equal(tocsin_reader_line(&reader, 9, &line, &bytes, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_reader_line(&reader, 99989, &line, &bytes, &error), TOCSIN_E_LIMIT);
    tocsin_reader_close(&reader);
    count_and_remove_files();
}

static void reads_cross_the_buffer(void **state)
{
    (void)state;
    unsigned char *bytes = tocsin_alloc(150000);
    unsigned char *copy = tocsin_alloc(150000);
    assert_true(bytes && copy);
    for (size_t i = 0; i < 150000; ++i)
        bytes[i] = (unsigned char)tocsin_mix64(i);
    assert_int_equal(tocsin_file_store(inside("b"), bytes, 150000, false, NULL), TOCSIN_OK);
    tocsin_reader reader;
    size_t done = 0;
    size_t count = 0;
    assert_int_equal(tocsin_reader_open(&reader, inside("b"), NULL), TOCSIN_OK);
    do {
        assert_int_equal(tocsin_reader_read(&reader, copy + done, 7777, &count, NULL), TOCSIN_OK);
        done += count;
    } while (count == 7777 && done + 7777 <= 150000);
    assert_int_equal(tocsin_reader_read(&reader, copy + done, 150000 - done, &count, NULL), 0);
    done += count;
    assert_int_equal(done, 150000);
    assert_memory_equal(copy, bytes, 150000);
    assert_int_equal(tocsin_reader_read(&reader, copy, 1, &count, NULL), TOCSIN_OK);
    assert_int_equal(count, 0);
    tocsin_reader_close(&reader);
    tocsin_free(bytes);
    tocsin_free(copy);
    count_and_remove_files();
}

static void a_mapping_is_shared(void **state)
{
    (void)state;
    int fd = -1;
    void *memory = NULL;
    uint64_t bytes = 0;
    const char *path = inside("m");
    assert_int_equal(tocsin_file_open(path, O_RDWR | O_CREAT, 0600, &fd, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_file_resize(fd, 8192, path, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_file_size(fd, &bytes, path, NULL), TOCSIN_OK);
    assert_int_equal(bytes, 8192);
    assert_int_equal(tocsin_file_map(fd, 4096, 4096, true, &memory, path, NULL), TOCSIN_OK);
    memcpy(memory, "seen", 4);
    char seen[5] = {0};
    size_t count = 0;
    assert_int_equal(tocsin_file_read(fd, seen, 4, 4096, &count, path, NULL), TOCSIN_OK);
    assert_string_equal(seen, "seen");
    tocsin_file_unmap(memory, 4096);
    assert_int_equal(tocsin_file_close(&fd, path, NULL), TOCSIN_OK);
    assert_int_equal(fd, -1);
    assert_int_equal(tocsin_file_close(&fd, path, NULL), TOCSIN_OK);
    count_and_remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_replaces_only_with_force),
        cmocka_unit_test(a_late_rival_is_not_overwritten),
        cmocka_unit_test(an_abandoned_file_never_was),
        cmocka_unit_test(a_device_is_written_not_replaced),
        cmocka_unit_test(missing_and_large_files_are_errors),
        cmocka_unit_test(lines_of_any_length),
        cmocka_unit_test(a_long_line_is_refused),
        cmocka_unit_test(reads_cross_the_buffer),
        cmocka_unit_test(a_mapping_is_shared),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
