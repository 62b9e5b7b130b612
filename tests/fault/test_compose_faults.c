/* Running out of memory, or of disk, at every place while a plan is verified by parts: an error, no
 * leak, and what the cache holds afterwards still gives the right verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tocsin/compose.h>
#include <unistd.h>

#include "base/base.h"

static const char logical_text[] =
    "tocsin-plan 1\nmesh one=1\nrole one=0\n"
    "in %x:float32[4,6] = x[0 : 4, 0 : 6]\nin %v:float32[6,6] = v[0 : 6, 0 : 6]\n"
    "in %w:float32[6,6] = w[0 : 6, 0 : 6]\nsegment s\n"
    "%y:float32[4,6] = linear(%x, %v) @layers.0\n%a:float32[4,6] = tanh(%y) @layers.0\n"
    "%z:float32[4,6] = linear(%a, %w) @layers.1\n%b:float32[4,6] = exp(%z) @layers.1\n"
    "out other b[0 : 4, 0 : 6] = %b\nend\n";

/* Two stages, two micro-batches, a scaled message; FACTOR undoes the scale. */
#define PARALLEL(FACTOR)                                                                           \
    "tocsin-plan 1\nmesh pp=2\nmicrobatches 2\nrole pp=0\n"                                        \
    "in %x:float32[2,6] each = x[mb*2 : 2, 0 : 6]\nin %v:float32[6,6] = v[0 : 6, 0 : 6]\n"         \
    "segment s\n%y:float32[2,6] = linear(%x, %v) @layers.0\n"                                      \
    "%a:float32[2,6] = tanh(%y) @layers.0\n%c:float32[2,6] = scale(%a) {factor=4.0} @layers.0\n"   \
    "= send(%c) {peer=1}\nschedule s.0 s.1\nend\nrole pp=1\n"                                      \
    "in %w:float32[6,6] = w[0 : 6, 0 : 6]\nsegment s\n%r:float32[2,6] = recv() {peer=0}\n"         \
    "%z1:float32[2,6] = linear(%r, %w) @layers.1\n"                                                \
    "%z:float32[2,6] = scale(%z1) {factor=" FACTOR "} @layers.1\n"                                 \
    "%b:float32[2,6] = exp(%z) @layers.1\nschedule s.0 s.1\n"                                      \
    "out other b[mb*2 : 2, 0 : 6] = %b\nend\n"

static char folder[64], logical[96], parallel[96], other[96], cache[96];

static void write_file(const char *path, const char *text)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tocsin-compose-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(logical, sizeof logical, "%s/l.plan", folder);
    snprintf(parallel, sizeof parallel, "%s/p.plan", folder);
    snprintf(other, sizeof other, "%s/o.plan", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    write_file(logical, logical_text);
    write_file(parallel, PARALLEL("0.25"));
    write_file(other, PARALLEL("0.5"));
    return 0;
}

static int tear_down(void **state)
{
    char command[160];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void clear_cache(void)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    assert_int_equal(system(command), 0);
}

static tocsin_status run(const char *path, tocsin_verify_files_answer *answer, tocsin_error *error)
{
    const tocsin_verify_files_options options = {.cache = cache};
    return tocsin_verify_files(logical, path, &options, answer, error);
}

static void expect(const char *path, tocsin_verdict verdict, bool reused, uint32_t proved)
{
    tocsin_verify_files_answer answer;
    tocsin_error error;
    if (run(path, &answer, &error) != TOCSIN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(answer.result->verdict, verdict);
    assert_int_equal(answer.reused, reused);
    assert_int_equal(answer.parts_proved, proved);
    tocsin_verify_result_free(answer.result);
}

static void parts_are_kept_and_wrong_ones_refuted(void **state)
{
    (void)state;
    clear_cache();
    expect(parallel, TOCSIN_VERDICT_PROVED, false, 2);
    expect(parallel, TOCSIN_VERDICT_PROVED, true, 0);
    expect(other, TOCSIN_VERDICT_REFUTED, false, 0);
    expect(parallel, TOCSIN_VERDICT_PROVED, true, 0);
}

/* None of what a plan lists for dims is there. */
static void plans_of_scalars(void **state)
{
    char path[96];
    (void)state;
    clear_cache();
    snprintf(path, sizeof path, "%s/scalars.plan", folder);
    write_file(path, "tocsin-plan 1\nmesh one=1\nrole one=0\nin %x:float32[] = x\nsegment s\n"
                     "%y:float32[] = add(%x, %x)\nout loss y = %y\nend\n");
    for (int again = 0; again < 2; again++) {
        const tocsin_verify_files_options options = {.cache = cache};
        tocsin_verify_files_answer answer;
        assert_int_equal(tocsin_verify_files(path, path, &options, &answer, NULL), TOCSIN_OK);
        assert_int_equal(answer.result->verdict, TOCSIN_VERDICT_PROVED);
        assert_int_equal(answer.reused, again == 1);
        tocsin_verify_result_free(answer.result);
    }
}

/* `warm`: the cache knows the plan. */
static void fail_everywhere(tocsin_fault kind, bool warm)
{
    for (uint64_t nth = 1;; nth++) {
        tocsin_verify_files_answer answer = {0};
        tocsin_error error;
        clear_cache();
        if (warm)
            expect(parallel, TOCSIN_VERDICT_PROVED, false, 2);
        tocsin_fault_arm(kind, nth);
        const tocsin_status status = run(parallel, &answer, &error);
        const bool fired = tocsin_fault_disarm(kind);
        if (status == TOCSIN_OK) { /* a fault in reading the store makes it unknown, no more */
            assert_int_equal(answer.result->verdict, TOCSIN_VERDICT_PROVED);
            tocsin_verify_result_free(answer.result);
        } else {
            assert_true(fired);
            assert_null(answer.result);
            assert_true(error.message[0] != '\0');
        }
        if (!fired)
            return;
        expect(other, TOCSIN_VERDICT_REFUTED, false, 0);
    }
}

static void out_of_memory(void **state)
{
    (void)state;
    fail_everywhere(TOCSIN_FAULT_MEMORY, false);
    fail_everywhere(TOCSIN_FAULT_MEMORY, true);
}

static void failing_files(void **state)
{
    (void)state;
    fail_everywhere(TOCSIN_FAULT_IO, false);
    fail_everywhere(TOCSIN_FAULT_IO, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_kept_and_wrong_ones_refuted),
        cmocka_unit_test(plans_of_scalars),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(failing_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
