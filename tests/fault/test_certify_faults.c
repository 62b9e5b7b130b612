/* Each allocation, and each read or write of a file, in proving with a certificate and in checking
 * it fails once: the call says so, and leaks nothing (the sanitizer build watches). */
#include <tocsin/certify.h>
#include <tocsin/verify.h>
#include <unistd.h>

#include "every_fault.h"
#include "plan_example.h"

static const char logical_text[] = "tocsin-plan 1\nmesh\nrole\n"
                                   "in %x:float32[8,6] = x[0:8, 0:6]\n"
                                   "in %w:float32[4,6] = w[0:4, 0:6]\n"
                                   "segment s\n%y:float32[8,4] = linear(%x, %w)\n"
                                   "%a:float32[8,4] = tanh(%y)\n"
                                   "%v:float32[4,2,4] = view(%a) {shape=[4,2,4]}\n"
                                   "%t:float32[] = sum(%v) {dims=[0,1,2], keepdim=0}\n"
                                   "out loss loss[] = %t\nend\n";

static const char role_text[] = "segment s\n%p:float32[2,4] = linear(%x, %w)\n"
                                "%y:float32[2,4] = all_reduce(%p) {op=sum} group=g\n"
                                "%a:float32[2,4] = tanh(%y)\n"
                                "%v:float32[1,2,4] = view(%a) {shape=[1,2,4]}\n"
                                "%t:float32[] = sum(%v) {dims=[0,1,2], keepdim=0}\n"
                                "%k:float32[] keep = accumulate(%t)\n"
                                "schedule s.0 s.1\nout loss loss[] = %k fold=sum,equal\nend\n";

typedef struct scratch {
    tocsin_plan *logical, *parallel;
    char path[64];
} scratch;

static tocsin_status prove(void *context, tocsin_error *error)
{
    const scratch *files = context;
    const tocsin_verify_options options = {.certificate_path = files->path};
    tocsin_verify_result *result = NULL;
    const tocsin_status status =
        tocsin_verify(files->logical, files->parallel, &options, &result, error);
    if (status == TOCSIN_OK)
        assert_int_equal(result->verdict, TOCSIN_VERDICT_PROVED);
    tocsin_verify_result_free(result);
    return status;
}

static tocsin_status check(void *context, tocsin_error *error)
{
    const scratch *files = context;
    tocsin_certify_result result;
    TOCSIN_TRY(tocsin_certify(files->path, files->logical, files->parallel, &result, error));
    assert_true(result.accepted);
    return TOCSIN_OK;
}

static void test_faults(void **state)
{
    char text[4096];
    scratch files = {.logical = plan_read(logical_text), .path = "/tmp/tocsin-certificate-XXXXXX"};
    (void)state;
    snprintf(text, sizeof text,
             "tocsin-plan 1\nmesh dp=2* tp=2\nmicrobatches 2\ngroup g = (tp=0) (tp=1)\n"
             "role tp=0\nin %%x:float32[2,3] each = x[dp*4+mb*2:2, 0:3]\n"
             "in %%w:float32[4,3] = w[0:4, 0:3]\n%s"
             "role tp=1\nin %%x:float32[2,3] each = x[dp*4+mb*2:2, 3:3]\n"
             "in %%w:float32[4,3] = w[0:4, 3:3]\n%s",
             role_text, role_text);
    files.parallel = plan_read(text);
    const int fd = mkstemp(files.path);
    assert_true(fd >= 0);
    close(fd);
    bool all_tried = false;
    for (uint64_t nth = 1; !all_tried; ++nth) { /* the prover can do without some of its memory */
        tocsin_error error = {0};
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        const tocsin_status status = prove(&files, &error);
        all_tried = !tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_true(status == TOCSIN_OK || (!all_tried && status == TOCSIN_E_MEMORY));
    }
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, prove, &files) >= 3);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, check, &files) > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, check, &files) >= 2);
    unlink(files.path);
    tocsin_plan_free(files.parallel);
    tocsin_plan_free(files.logical);
}

/* None of what a certificate lists for dims is there. */
static void test_scalars(void **state)
{
    scratch files = {.path = "/tmp/tocsin-certificate-XXXXXX"};
    (void)state;
    files.logical = files.parallel =
        plan_read("tocsin-plan 1\nmesh\nrole\nin %x:float32[] = x\nsegment s\n"
                  "%y:float32[] = add(%x, %x)\nout loss y = %y\nend\n");
    const int fd = mkstemp(files.path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(prove(&files, NULL), TOCSIN_OK);
    assert_int_equal(check(&files, NULL), TOCSIN_OK);
    unlink(files.path);
    tocsin_plan_free(files.logical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_scalars)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
