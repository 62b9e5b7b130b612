/* The ledger: lines that are appended, a file that was cut off at any byte, lines that are damaged.
 */
#include "cmocka_test.h"
#include <guard/guard.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char first[] = "{\"check\":\"weights\",\"step\":1}";
static const char second[] = "{\"check\":\"replay\",\"step\":2}";
static const char header[] = "{\"format\":\"tocsin-guard-ledger\",\"version\":1}\n";

typedef struct fixture {
    char folder[64];
    char path[96];
} fixture;

static fixture begin(void)
{
    fixture f = {.folder = "/tmp/tocsin-ledger-XXXXXX"};
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof f.path, "%s/rank-0.jsonl", f.folder);
    return f;
}

static void end(const fixture *f)
{
    unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0); /* nothing else was left there */
}

static tocsin_status append(const fixture *f, const char *line)
{
    return tocsin_guard_ledger_append(f->path, line, strlen(line), NULL);
}

static void write_file(const fixture *f, const char *text, size_t bytes)
{
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

typedef struct seen_lines {
    int64_t steps[8];
    size_t count;
} seen_lines;

static tocsin_status see(void *context, const ledger_line *line, tocsin_error *error)
{
    seen_lines *seen = context;
    (void)error;
    assert_true(seen->count < TOCSIN_COUNT_OF(seen->steps));
    assert_int_equal(line->json[0], '{');
    assert_true(tocsin_json_get_integer(tocsin_json_get_member(line->value, "step"),
                                        &seen->steps[seen->count++]));
    return TOCSIN_OK;
}

static tocsin_status read_all(const fixture *f, seen_lines *seen, ledger_summary *summary)
{
    *seen = (seen_lines){.count = 0};
    return tocsin_ledger_read(f->path, see, seen, summary, NULL);
}

static void test_append(void **state)
{
    (void)state;
    fixture f = begin();
    seen_lines seen;
    ledger_summary summary;
    assert_int_equal(append(&f, first), TOCSIN_OK);
    assert_int_equal(append(&f, second), TOCSIN_OK);
    assert_int_equal(read_all(&f, &seen, &summary), TOCSIN_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.steps[1], 2);
    assert_int_equal(summary.lines, 2);
    assert_int_equal(summary.torn_bytes + summary.damaged, 0);
    assert_int_equal(append(&f, "[1]"), TOCSIN_E_ARGUMENT);
    assert_int_equal(append(&f, "{\"a\":"), TOCSIN_E_ARGUMENT);
    assert_int_equal(append(&f, "{\"a\":\n1}"), TOCSIN_E_ARGUMENT);
    assert_int_equal(
        tocsin_guard_ledger_append(f.path, first, TOCSIN_GUARD_LINE_BYTES_MAX + 1, NULL),
        TOCSIN_E_LIMIT);
    assert_int_equal(tocsin_guard_ledger_append("/nowhere/at/all", first, strlen(first), NULL),
                     TOCSIN_E_NOT_FOUND);
    assert_int_equal(read_all(&f, &seen, &summary), TOCSIN_OK);
    assert_int_equal(seen.count, 2);
    end(&f);
}

/* A crash after any byte costs the line that was being written and no other. */
static void test_torn(void **state)
{
    (void)state;
    fixture f = begin();
    char text[256];
    size_t begins = sizeof header - 1 + strlen(first) + 1;
    int bytes = snprintf(text, sizeof text, "%s%s\n%s\n", header, first, second);
    for (size_t cut = sizeof header - 1; cut <= (size_t)bytes; ++cut) {
        seen_lines seen;
        ledger_summary summary;
        write_file(&f, text, cut);
        assert_int_equal(read_all(&f, &seen, &summary), TOCSIN_OK);
        size_t whole = cut + 1 >= (size_t)bytes ? 2 : cut + 1 >= begins ? 1 : 0;
        assert_int_equal(seen.count, whole);
        bool torn = cut + 1 != begins && cut != begins && cut != sizeof header - 1 &&
                    cut + 1 < (size_t)bytes;
        assert_int_equal(summary.torn_bytes > 0, torn);
        assert_int_equal(append(&f, "{\"step\":3}"), TOCSIN_OK); /* and it goes on */
        assert_int_equal(read_all(&f, &seen, &summary), TOCSIN_OK);
        assert_int_equal(seen.count, whole + 1);
        assert_int_equal(seen.steps[whole], 3);
        assert_int_equal(summary.damaged, torn);
        assert_int_equal(summary.first_damaged, torn ? whole + 2 : 0);
        assert_int_equal(summary.torn_bytes, 0);
    }
    end(&f);
}

static void expect_status(const fixture *f, const char *text, tocsin_status expected)
{
    seen_lines seen;
    ledger_summary summary;
    write_file(f, text, strlen(text));
    assert_int_equal(read_all(f, &seen, &summary), expected);
}

static void test_refused(void **state)
{
    (void)state;
    fixture f = begin();
    seen_lines seen;
    ledger_summary summary;
    assert_int_equal(read_all(&f, &seen, &summary), TOCSIN_E_NOT_FOUND);
    expect_status(&f, "", TOCSIN_E_FORMAT);
    expect_status(&f, "{\"format\":\"tocsin-guard", TOCSIN_E_FORMAT);
    expect_status(&f, "{\"format\":\"tocsin-map\",\"version\":1}\n", TOCSIN_E_FORMAT);
    expect_status(&f, "{\"format\":\"tocsin-guard-ledger\"}\n", TOCSIN_E_FORMAT);
    expect_status(&f, "{\"format\":\"tocsin-guard-ledger\",\"version\":2}\n", TOCSIN_E_VERSION);
    expect_status(&f, header, TOCSIN_OK);
    expect_status(&f, "{\"format\":\"tocsin-guard-ledger\",\"version\":1}\n\n\n", TOCSIN_OK);
    assert_int_equal(read_all(&f, &seen, &summary), TOCSIN_OK);
    assert_int_equal(summary.damaged + summary.lines + summary.torn_bytes, 0);
    char *text = malloc(TOCSIN_GUARD_LINE_BYTES_MAX + 200);
    memcpy(text, header, sizeof header - 1);
    memset(text + sizeof header - 1, 'x', TOCSIN_GUARD_LINE_BYTES_MAX + 1);
    text[sizeof header + TOCSIN_GUARD_LINE_BYTES_MAX] = 0;
    expect_status(&f, text, TOCSIN_E_LIMIT);
    free(text);
    end(&f);
}

/* A visitor's error ends the reading. */
static tocsin_status refuse(void *context, const ledger_line *line, tocsin_error *error)
{
    (void)context;
    return tocsin_error_at(error, TOCSIN_E_STATE, line->path, 0, "enough");
}

static void test_visitor_fails(void **state)
{
    (void)state;
    fixture f = begin();
    ledger_summary summary;
    assert_int_equal(append(&f, first), TOCSIN_OK);
    assert_int_equal(tocsin_ledger_read(f.path, refuse, NULL, &summary, NULL), TOCSIN_E_STATE);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_append), cmocka_unit_test(test_torn),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_visitor_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
