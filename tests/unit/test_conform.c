/* Plan against run, on traces written here: what recordings may lack, and what is hostile. The
 * deviations of real runs are tested in tests/python/test_conform.py. */
#include "every_fault.h"
#include "plan_example.h"
#include "trace_scratch.h"
#include <tocsin/conform.h>

enum { RANKS = 8 };

/* Every rank: two sums over the even ranks (of the odd ones none), and one over all in backward. */
static tocsin_plan *eight_ranks(void)
{
    static char text[4096];
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "tocsin-plan 1\nmesh r=8\n"
                                   "group even = (r=0) (r=2) (r=4) (r=6)\ngroup all =");
    for (int r = 0; r < RANKS; ++r)
        used += (size_t)snprintf(text + used, sizeof text - used, " (r=%d)", r);
    for (int r = 0; r < RANKS; ++r) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "\nrole r=%d\nin %%x:float32[4] = x[0 : 4]\nsegment s\n", r);
        if (r % 2 == 0)
            used += (size_t)snprintf(
                text + used, sizeof text - used,
                "%%a:float32[4] = all_reduce(%%x) {op=sum} group=even fw label=first\n"
                "%%b:float32[4] = all_reduce(%%a) {op=sum} group=even fw label=second\n");
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%%c:float32[4] = all_reduce(%%x) {op=avg} group=all bw "
                                 "label=third\nend");
    }
    assert_true(used < sizeof text);
    return plan_read(text);
}

/* ---- a process that is recorded ----------------------------------------------------------------
 */

typedef struct recorded_rank {
    tocsin_trace_writer *writer;
    tocsin_id all_reduce, step_end, forward, tensor, group, reduction, shape;
} recorded_rank;

static tocsin_id string(recorded_rank *process, const char *text)
{
    return tocsin_trace_define_string(process->writer, text, strlen(text));
}

static recorded_rank begin(const scratch *run, int64_t rank, int64_t world_size)
{
    recorded_rank made = {.writer = scratch_writer(run, 0, 0)};
    made.all_reduce = tocsin_trace_define_function(made.writer, "torch.distributed.all_reduce",
                                                   TOCSIN_ROLE_COLLECTIVE);
    made.step_end =
        tocsin_trace_define_function(made.writer, "tocsin.step_end", TOCSIN_ROLE_STEP_END);
    made.forward =
        tocsin_trace_define_function(made.writer, "torch.nn.Module.__call__", TOCSIN_ROLE_FORWARD);
    made.tensor = string(&made, "tensor");
    made.group = string(&made, "arg2");
    made.reduction = string(&made, "op");
    made.shape = tocsin_trace_define_shape(made.writer, 1, (int64_t[]){4});
    if (rank >= 0)
        scratch_meta(made.writer, string(&made, "rank"), rank);
    if (world_size >= 0)
        scratch_meta(made.writer, string(&made, "world_size"), world_size);
    return made;
}

static void call(recorded_rank *process, const char *group, const char *reduction)
{
    tocsin_value values[3] = {{.kind = TOCSIN_VALUE_TENSOR,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 1,
                               .name = process->tensor,
                               .as.shape = process->shape},
                              {.kind = TOCSIN_VALUE_STRING,
                               .name = process->reduction,
                               .as.text = string(process, reduction)},
                              {.kind = TOCSIN_VALUE_STRING, .name = process->group}};
    if (group)
        values[2].as.text = string(process, group);
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = process->all_reduce,
                          .value_count = group ? 3 : 2,
                          .values = values};
    scratch_exit(process->writer, process->all_reduce, tocsin_trace_emit(process->writer, &event));
}

static void step_end(recorded_rank *process)
{
    scratch_exit(process->writer, process->step_end,
                 scratch_enter(process->writer, process->step_end));
}

/* A step as planned for an even rank, its first group written as `group`. */
static void step(recorded_rank *process, const char *group)
{
    call(process, group, "RedOpType.SUM");
    call(process, "group:4:0+2", "RedOpType.SUM");
    call(process, NULL, "RedOpType.AVG");
    step_end(process);
}

static void end(recorded_rank *process)
{
    assert_int_equal(tocsin_trace_writer_close(process->writer, NULL), TOCSIN_OK);
}

static tocsin_status conform(const scratch *run, tocsin_conform_result **result,
                             tocsin_error *error)
{
    tocsin_plan *plan = eight_ranks();
    tocsin_run *opened = NULL;
    assert_int_equal(tocsin_run_open(run->directory, false, &opened, error), TOCSIN_OK);
    tocsin_status status = tocsin_conform(plan, opened, result, error);
    tocsin_run_close(opened);
    tocsin_plan_free(plan);
    return status;
}

static bool has_limit(const tocsin_conform_result *result, const char *part)
{
    for (size_t l = 0; l < result->limit_count; ++l)
        if (strstr(result->limits[l], part))
            return true;
    return false;
}

/* ---- groups -----------------------------------------------------------------------------------
 */

static void groups_are_compared_as_far_as_they_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *group;
        bool differs, unknown;
    } cases[] = {{"group:4:0+2", false, false},
                 {"group:4:0,2,4,6", false, false},
                 {"group:4:6,4,2,0", false, false}, /* of a sum the order does not matter */
                 {"group:4:0,2,4", false, false},   /* cut: the last number is not trusted */
                 {"group:4:0,2,44", false, false},
                 {"group:4:0,1,4", true, false},
                 {"group:3:0+2", true, false},
                 {"group:4:0+1", true, false},
                 {"group:4:", false, true},
                 {"group:4:9,9", false, true},
                 {"group:4:0+0", false, true},
                 {"group:4:0+99999999999999999999", false, true},
                 {"group:99999999999999999999:0+1", false, true},
                 {"group:-4:0+2", false, true},
                 {"group::", false, true},
                 {"group", false, true},
                 {"the group's name", false, true},
                 {"", false, true}};
    for (size_t k = 0; k < TOCSIN_COUNT_OF(cases); ++k) {
        scratch run = scratch_new();
        recorded_rank rank = begin(&run, 0, RANKS);
        step(&rank, cases[k].group);
        end(&rank);
        tocsin_conform_result *result = NULL;
        assert_int_equal(conform(&run, &result, NULL), TOCSIN_OK);
        if (result->finding_count != cases[k].differs)
            fail_msg("%s", cases[k].group);
        if (cases[k].differs)
            assert_int_equal(result->findings[0].deviation, TOCSIN_DEVIATION_GROUP);
        assert_int_equal(has_limit(result, "whose ranks are not recorded"), cases[k].unknown);
        tocsin_conform_result_free(result);
        scratch_free(&run);
    }
}

/* ---- what is left out, or cut -------------------------------------------------------------------
 */

static void calls_before_the_first_step_set_the_run_up(void **state)
{
    (void)state;
    scratch run = scratch_new();
    recorded_rank rank = begin(&run, 0, RANKS);
    call(&rank, NULL, "RedOpType.SUM");
    call(&rank, "group:4:0+2", "RedOpType.MAX");
    step(&rank, "group:4:0+2");
    step(&rank, "group:4:0+2");
    end(&rank);
    tocsin_conform_result *result = NULL;
    assert_int_equal(conform(&run, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->finding_count, 0);
    assert_int_equal(result->steps, 2);
    assert_int_equal(result->calls, 6);
    assert_int_equal(result->ranks, 1);
    assert_true(has_limit(result, "7 of 8 ranks of the plan have no step in the run"));
    tocsin_conform_result_free(result);
    scratch_free(&run);
}

/* DistributedDataParallel reduces gradients in C++; the others are still wanted. */
static void reductions_that_nobody_sees_are_taken_as_made(void **state)
{
    (void)state;
    for (int ddp = 0; ddp < 2; ++ddp) {
        scratch run = scratch_new();
        recorded_rank rank = begin(&run, 2, RANKS);
        tocsin_value module = {
            .kind = TOCSIN_VALUE_MODULE,
            .type = string(&rank, "torch.nn.parallel.distributed.DistributedDataParallel")};
        tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                              .function = rank.forward,
                              .value_count = 1,
                              .values = &module};
        if (ddp)
            scratch_exit(rank.writer, rank.forward, tocsin_trace_emit(rank.writer, &event));
        call(&rank, "group:4:0+2", "RedOpType.SUM");
        call(&rank, "group:4:0+2", "RedOpType.SUM");
        step_end(&rank);
        call(&rank, "group:4:0+2", "RedOpType.SUM");
        step_end(&rank);
        end(&rank);
        tocsin_conform_result *result = NULL;
        assert_int_equal(conform(&run, &result, NULL), TOCSIN_OK);
        assert_int_equal(result->finding_count, ddp ? 1 : 2);
        const tocsin_conform_finding *last = &result->findings[result->finding_count - 1];
        assert_int_equal(last->step, 1);
        assert_int_equal(last->deviation, TOCSIN_DEVIATION_MISSING);
        assert_int_equal(has_limit(result, "DistributedDataParallel"), ddp);
        tocsin_conform_result_free(result);
        scratch_free(&run);
    }
}

/* A process that lives, or was killed, in the middle of a step: what there is must fit. */
static void a_step_that_is_not_over_is_compared_as_a_beginning(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; ++wrong) {
        scratch run = scratch_new();
        recorded_rank rank = begin(&run, 4, RANKS);
        step(&rank, "group:4:0+2");
        call(&rank, "group:4:0+2", "RedOpType.SUM");
        if (wrong)
            call(&rank, NULL, "RedOpType.AVG");
        assert_int_equal(tocsin_trace_writer_flush(rank.writer, NULL), TOCSIN_OK);
        tocsin_conform_result *result = NULL;
        assert_int_equal(conform(&run, &result, NULL), TOCSIN_OK);
        assert_int_equal(result->steps, 1);
        assert_int_equal(result->finding_count, wrong);
        if (wrong) {
            assert_int_equal(result->findings[0].step, 1);
            assert_string_equal(result->findings[0].planned,
                                "second: all_reduce sum float32[4] over ranks 0 to 6 by 2");
        }
        tocsin_conform_result_free(result);
        end(&rank);
        scratch_free(&run);
    }
}

static void processes_beside_the_job_are_left_out(void **state)
{
    (void)state;
    scratch run = scratch_new();
    recorded_rank rank = begin(&run, -1, -1);
    step(&rank, "group:2:0,1");
    end(&rank);
    tocsin_conform_result *result = NULL;
    assert_int_equal(conform(&run, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->steps, 0);
    assert_int_equal(result->finding_count, 0);
    tocsin_conform_result_free(result);
    scratch_free(&run);
}

static void another_number_of_ranks_is_an_error(void **state)
{
    (void)state;
    scratch run = scratch_new();
    recorded_rank rank = begin(&run, 0, 2);
    step(&rank, "group:2:0,1");
    end(&rank);
    tocsin_conform_result *result = NULL;
    tocsin_error error;
    assert_int_equal(conform(&run, &result, &error), TOCSIN_E_ARGUMENT);
    assert_string_equal(error.message, "the run has 2 ranks, the plan 8");
    assert_null(result);
    scratch_free(&run);
}

/* ---- faults ------------------------------------------------------------------------------------
 */

typedef struct fault_context {
    const scratch *run;
    tocsin_plan *plan;
} fault_context;

static tocsin_status conform_again(void *context, tocsin_error *error)
{
    const fault_context *again = context;
    tocsin_run *run = NULL;
    tocsin_conform_result *result = NULL;
    tocsin_status status = tocsin_run_open(again->run->directory, false, &run, error);
    if (status != TOCSIN_OK)
        return status;
    status = tocsin_conform(again->plan, run, &result, error);
    tocsin_conform_result_free(result);
    tocsin_run_close(run);
    return status;
}

static void memory_faults_are_reported(void **state)
{
    (void)state;
    scratch run = scratch_new();
    recorded_rank rank = begin(&run, 0, RANKS);
    step(&rank, "group:4:0+2");
    step(&rank, "group:2:0,1");
    step(&rank, "no group");
    end(&rank);
    fault_context again = {.run = &run, .plan = eight_ranks()};
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, conform_again, &again) > 10);
    tocsin_plan_free(again.plan);
    scratch_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_compared_as_far_as_they_are_known),
        cmocka_unit_test(calls_before_the_first_step_set_the_run_up),
        cmocka_unit_test(reductions_that_nobody_sees_are_taken_as_made),
        cmocka_unit_test(a_step_that_is_not_over_is_compared_as_a_beginning),
        cmocka_unit_test(processes_beside_the_job_are_left_out),
        cmocka_unit_test(another_number_of_ranks_is_an_error),
        cmocka_unit_test(memory_faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
