/* Each allocation, and each read of a file, in reading, checking and writing a plan fails once: the
 * call says so, and leaks nothing (the sanitizer build watches). */
#include "every_fault.h"
#include "plan_example.h"
#include <unistd.h>

static const char text[] =
    "tocsin-plan 1\nmesh dp=2* tp=2\nmicrobatches 2\ngroup g = (tp=1) (tp=0)\n"
    "assume \"a \\\"quoted\\\" text\"\nrole tp=0\nin %x:float32[2,3] each = x[dp*4+mb*2 : 2, 0 : "
    "3]\n"
    "segment a\n%y:float32[2,3] = f(%x) {k=[1,2], e=0.5, t=word} sig=\"[a b^] -> [a b]\"\n"
    "%h:float32[2,3] = declared(%y) @m src=f:1 label=l\n%z:float32[2,4] = neg(%y)\n"
    "= barrier() group=g\nsegment b\n%k:float32[2,3] keep = accumulate(%y)\n"
    "schedule a.0 b.0 a.1 b.1\nout grad x[0:2, 0:3] = %k fold=sum,equal\nend\nrole tp=1\nend\n";

typedef struct scratch {
    char plan_path[64], operators_path[64];
    tocsin_plan_options options;
} scratch;

static void write_file(char path[64], const char *template, const char *content)
{
    strcpy(path, template);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    close(fd);
}

static tocsin_status read_and_write(void *context, tocsin_error *error)
{
    const scratch *files = context;
    tocsin_plan *plan = NULL;
    TOCSIN_TRY(tocsin_plan_read(files->plan_path, &files->options, &plan, error));
    assert_int_equal(plan->flaws.count, 1);
    FILE *stream = fopen("/dev/null", "w");
    assert_non_null(stream);
    tocsin_status status = tocsin_plan_write(plan, stream, error);
    fclose(stream);
    tocsin_plan_free(plan);
    return status;
}

static void test_faults(void **state)
{
    (void)state;
    scratch files = {0};
    write_file(files.plan_path, "/tmp/tocsin-plan-XXXXXX", text);
    write_file(files.operators_path, "/tmp/tocsin-ops-XXXXXX", "op declared [...] -> [...]\n");
    files.options.operators_path = files.operators_path;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, read_and_write, &files) > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, read_and_write, &files) >= 4);
    unlink(files.plan_path);
    unlink(files.operators_path);
}

/* A full disk is an error of the writer, not silence. */
static void test_full_disk(void **state)
{
    (void)state;
    tocsin_plan *plan = plan_read("tocsin-plan 1\nrole\nend\n");
    FILE *stream = fopen("/dev/full", "w");
    tocsin_error error = {0};
    assert_non_null(stream);
    assert_int_equal(tocsin_plan_write(plan, stream, &error), TOCSIN_E_IO);
    assert_true(error.message[0] != 0);
    fclose(stream);
    tocsin_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_full_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
