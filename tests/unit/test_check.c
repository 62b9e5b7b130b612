/* The checker on real traces: healthy runs hold, faults are found at their step and named, ranks
 * are compared, runs are followed while they are written, damage is survived. */
#include "fake_training.h"
#include <sys/wait.h>
#include <tocsin/check.h>

static const char RULES[] =
    "{\"format\":\"tocsin-invariants\",\"version\":1}\n"
    "{\"relation\":\"EventContainEach\",\"population\":{\"kind\":\"parameter with a non-zero "
    "gradient\",\"role\":\"optimizer.step\"},\"fact\":{\"is\":\"data changes\"},\"when\":[]}\n"
    "{\"relation\":\"EventContainEach\",\"population\":{\"kind\":\"trainable parameter of the "
    "optimizer\",\"role\":\"optimizer.step\"},\"fact\":{\"is\":\"gradient present\"},\"when\":[]}\n"
    "{\"relation\":\"EventContainEach\",\"population\":{\"kind\":\"parameter updated "
    "again\",\"role\":\"optimizer.step\"},\"fact\":{\"is\":\"gradient cleared since the previous "
    "step\"},\"when\":[]}\n"
    "{\"relation\":\"APISequence\",\"population\":{\"kind\":\"repeated call\",\"role\":"
    "\"optimizer.step\"},\"fact\":{\"is\":\"preceded by\",\"role\":\"zero_grad\"},"
    "\"when\":[[{\"kind\":\"constant\",\"field\":\"meta.stage\",\"value\":\"training\"}]]}\n"
    "{\"relation\":\"APIArg\",\"population\":{\"kind\":\"call\",\"function\":\"dropout\"},"
    "\"fact\":{\"is\":\"argument equals\",\"field\":\"arg.p\",\"value\":0.5},\"when\":[]}\n"
    "{\"relation\":\"Consistent\",\"population\":{\"kind\":\"replicas\",\"variable\":"
    "\"parameter\",\"attribute\":\"data\",\"role\":\"optimizer.step\",\"moment\":\"exit\"},"
    "\"fact\":{\"is\":\"equal\"},\"when\":[[{\"kind\":\"consistent\",\"field\":\"var.name\"}]]}\n";

#define RULE_COUNT 6

typedef struct checking {
    scratch run;
    tocsin_invariant_set *set;
    tocsin_run *reading;
    tocsin_checker *checker;
    char told[1024]; /* what `found` was called with */
} checking;

static void found(void *context, const tocsin_finding *finding)
{
    checking *check = context;
    size_t used = strlen(check->told);
    snprintf(check->told + used, sizeof check->told - used, "%lld %s %s\n",
             (long long)finding->step, finding->code, finding->rendered);
}

static checking *check_new(void)
{
    checking *check = calloc(1, sizeof *check);
    char path[SCRATCH_PATH_BYTES];
    check->run = scratch_new();
    snprintf(path, sizeof path, "%s/rules", check->run.directory);
    scratch_write(path, RULES, strlen(RULES));
    assert_int_equal(tocsin_invariants_load(path, &check->set, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(check->set), RULE_COUNT);
    return check;
}

static void check_start(checking *check, bool follow)
{
    tocsin_error error;
    tocsin_checker_options options = {
        .struct_bytes = sizeof options, .found = found, .context = check};
    assert_int_equal(tocsin_run_open(check->run.directory, follow, &check->reading, &error),
                     TOCSIN_OK);
    assert_int_equal(tocsin_checker_new(check->set, &options, &check->checker, &error), TOCSIN_OK);
}

static uint64_t check_advance(checking *check)
{
    tocsin_error error;
    uint64_t events;
    tocsin_status status = tocsin_checker_advance(check->checker, check->reading, &events, &error);
    if (status != TOCSIN_OK)
        fail_msg("advance: %s", error.message);
    return events;
}

static tocsin_check_summary check_all(checking *check)
{
    tocsin_check_summary summary;
    check_start(check, false);
    check_advance(check);
    assert_int_equal(tocsin_checker_finish(check->checker, NULL), TOCSIN_OK);
    tocsin_checker_summary(check->checker, &summary);
    assert_int_equal(summary.holds + summary.violated + summary.unknown, RULE_COUNT);
    assert_int_equal(summary.violated, tocsin_checker_finding_count(check->checker));
    return summary;
}

static void check_end(checking *check)
{
    tocsin_checker_free(check->checker);
    tocsin_run_close(check->reading);
    check->checker = NULL;
    check->reading = NULL;
}

static void check_free(checking *check)
{
    check_end(check);
    tocsin_invariants_free(check->set);
    scratch_free(&check->run);
    free(check);
}

/* A training process that writes into the run. */
static void start_process(checking *check, fake_process *process)
{
    *process = (fake_process){.writer = scratch_writer(&check->run, 0, 0)};
    fake_start(process);
}

static void end_process(fake_process *process)
{
    assert_int_equal(tocsin_trace_writer_close(process->writer, NULL), TOCSIN_OK);
}

static void dropout(fake_process *process, double p)
{
    tocsin_value value = {
        .kind = TOCSIN_VALUE_FLOAT, .name = define_string(process, "p"), .as.real = p};
    enter_with(process, "dropout", TOCSIN_ROLE_NONE, &value, 1);
    leave(process, "dropout", TOCSIN_ROLE_NONE);
}

static void test_a_healthy_run_holds(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    for (int i = 0; i < 20; ++i) {
        dropout(&process, 0.5);
        train(&process, (fake_step){.stage = NULL});
    }
    end_process(&process);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 0);
    assert_int_equal(summary.holds, 5);
    assert_int_equal(summary.unknown, 1); /* replicas: one process */
    assert_true(summary.events > 400 && summary.instances > 100);
    assert_int_equal(summary.corrupt_blocks + summary.incomplete_processes, 0);
    check_free(check);
}

static void test_offenders_are_named(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    start_process(check, &process);
    for (size_t i = 0; i < 6; ++i)
        add_parameter(&process, (fake_parameter){.name = names[i], .flags = FAKE_TRAINABLE});
    train(&process, (fake_step){.stage = NULL});
    for (size_t i = 1; i < 8; ++i)
        process.parameters[i].stuck = true;
    process.parameters[0].no_gradient = true;
    for (int i = 0; i < 3; ++i)
        train(&process, (fake_step){.stage = NULL});
    end_process(&process);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 2);
    const tocsin_finding *missing = tocsin_checker_finding(check->checker, 0);
    assert_string_equal(missing->rendered, "fc1.weight: no gradient");
    assert_string_equal(missing->cause, "gradient missing");
    const tocsin_finding *stuck = tocsin_checker_finding(check->checker, 1);
    assert_string_equal(stuck->cause, "update missing");
    assert_string_equal(stuck->severity, "error");
    assert_true(missing->cause_order < stuck->cause_order);
    assert_int_equal(missing->cluster, 1);
    assert_int_equal(stuck->cluster, 1); /* the same step */
    assert_string_equal(stuck->rendered, "fc2.weight, a, b, c, d and 2 more: data did not change");
    assert_string_equal(stuck->entity, "fc2.weight");
    assert_string_equal(stuck->code, "TOC003");
    assert_string_equal(stuck->site, "train.py:7 in train");
    assert_int_equal(stuck->step, 2);
    assert_int_equal(stuck->last_step, 4);
    assert_int_equal(stuck->rank, -1);
    assert_int_equal(stuck->pid, getpid());
    assert_int_equal(stuck->occurrences, 21);
    uint64_t violated = 0;
    for (size_t i = 0; i < RULE_COUNT; ++i)
        if (strcmp(tocsin_invariant_id(check->set, i), stuck->invariant) == 0)
            violated = tocsin_checker_counts(check->checker, i).violated;
    assert_int_equal(violated, 21);
    assert_true(stuck->specificity > missing->specificity);
    assert_string_equal(check->told,
                        "2 TOC003 fc1.weight: no gradient\n2 TOC003 fc2.weight, a, b, c, "
                        "d and 2 more: data did not change\n");
    check_free(check);
}

/* What begins later and can follow from what was found before joins it; what is upstream of it, or
 * about something else, does not. */
static void test_later_findings_join_what_they_follow_from(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    for (int i = 0; i < 6; ++i) {
        process.parameters[0].no_gradient = i == 2;
        process.parameters[0].stuck = i == 4; /* fc1: its update, after its gradient */
        dropout(&process, i == 5 ? 0.25 : 0.5);
        train(&process, (fake_step){.stage = NULL});
    }
    end_process(&process);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 3);
    static const struct {
        int64_t step;
        const char *relation;
        uint32_t cluster;
    } expected[] = {{3, "EventContainEach", 1}, {5, "EventContainEach", 1}, {6, "APIArg", 2}};
    for (size_t i = 0; i < 3; ++i) {
        const tocsin_finding *finding = tocsin_checker_finding(check->checker, i);
        assert_int_equal(finding->step, expected[i].step);
        assert_string_equal(finding->relation, expected[i].relation);
        assert_int_equal(finding->cluster, expected[i].cluster);
    }
    check_free(check);

    check = check_new();
    start_process(check, &process);
    for (int i = 0; i < 6; ++i) {
        process.parameters[0].stuck = i == 2;
        process.parameters[0].no_gradient = i == 4; /* upstream: another cause */
        train(&process, (fake_step){.stage = NULL});
    }
    end_process(&process);
    summary = check_all(check);
    assert_int_equal(summary.violated, 2);
    assert_int_equal(tocsin_checker_finding(check->checker, 0)->cluster, 1);
    assert_int_equal(tocsin_checker_finding(check->checker, 1)->cluster, 2);
    check_free(check);
}

static void test_zero_grad_forgotten(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    for (int i = 0; i < 5; ++i)
        train(&process, (fake_step){.no_zero_grad = true});
    end_process(&process);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 2);
    const tocsin_finding *state_based = tocsin_checker_finding(check->checker, 1);
    assert_string_equal(state_based->rendered,
                        "fc1.weight and fc2.weight: gradient not cleared since the previous step");
    assert_int_equal(state_based->step, 2);
    const tocsin_finding *sequence = tocsin_checker_finding(check->checker, 0);
    assert_string_equal(sequence->severity, "warning");
    assert_string_equal(
        sequence->rendered,
        "torch.optim.Optimizer.step: zero_grad was not called since the previous call");
    assert_string_equal(sequence->code, "TOC004");
    assert_int_equal(sequence->step, 2);
    assert_int_equal(sequence->occurrences, 4);
    check_free(check);
}

static void test_preconditions_come_first(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    for (int i = 0; i < 3; ++i)
        train(&process, (fake_step){.no_zero_grad = true, .stage = "evaluation"});
    dropout(&process, 0.25);
    end_process(&process);
    tocsin_check_summary summary = check_all(check);
    bool argument = false;
    for (size_t i = 0; i < summary.violated; ++i) {
        const tocsin_finding *finding = tocsin_checker_finding(check->checker, i);
        assert_string_not_equal(finding->relation, "APISequence");
        if (strcmp(finding->relation, "APIArg") == 0) {
            argument = true;
            assert_string_equal(finding->rendered, "dropout: arg.p is 0.25, not 0.5");
            assert_int_equal(finding->step, 4);
        }
    }
    assert_true(argument);
    check_free(check);
}

/* The reason why the invariant about `what` was not judged, or -1. */
static int reason_of(const checking *check, const char *what, const char **why)
{
    for (size_t i = 0; i < tocsin_checker_unknown_count(check->checker); ++i) {
        const tocsin_unknown *unknown = tocsin_checker_unknown(check->checker, i);
        if (strstr(unknown->sentence, what) != NULL) {
            *why = unknown->why;
            return (int)unknown->reason;
        }
    }
    return -1;
}

static void test_what_is_unknown_has_a_reason(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    const char *why = NULL;
    start_process(check, &process);
    for (int i = 0; i < 3; ++i)
        train(&process, (fake_step){.stage = "evaluation"});
    end_process(&process);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(tocsin_checker_unknown_count(check->checker), summary.unknown);
    assert_int_equal(reason_of(check, "dropout", &why), TOCSIN_UNKNOWN_NO_CALL);
    assert_string_equal(why, "dropout was never called");
    assert_int_equal(reason_of(check, "on every two ranks", &why), TOCSIN_UNKNOWN_ONE_RANK);
    assert_string_equal(why, "only one process called optimizer.step: no two ranks to compare");
    assert_int_equal(reason_of(check, "Between two calls of optimizer.step, zero_grad", &why),
                     TOCSIN_UNKNOWN_CONDITION_NEVER_MET);
    assert_string_equal(why, "meta.stage is 'training' never held for a 'repeated call' of "
                             "optimizer.step");
    uint64_t judged = 0, violated = 0;
    for (size_t i = 0; i < RULE_COUNT; ++i) {
        tocsin_invariant_counts counts = tocsin_checker_counts(check->checker, i);
        assert_string_equal(counts.invariant, tocsin_invariant_id(check->set, i));
        judged += counts.judged > 0;
        violated += counts.violated;
    }
    assert_int_equal(judged, RULE_COUNT - summary.unknown);
    assert_int_equal(violated, 0);
    check_free(check);
}

static void test_a_call_without_its_subject(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    const char *why = NULL;
    start_process(check, &process);
    train(&process, (fake_step){.stage = NULL}); /* one step: nothing is updated *again* */
    end_process(&process);
    check_all(check);
    assert_int_equal(reason_of(check, "its gradient is cleared", &why), TOCSIN_UNKNOWN_NO_SUBJECT);
    assert_string_equal(why, "there was no 'parameter updated again' at optimizer.step");
    check_free(check);
}

static void test_suppressed_violations_are_no_findings(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    tocsin_suppressions *suppressions;
    tocsin_suppression known = {
        .invariant = "", .code = "TOC003", .entity = "*1.weight", .reason = "meant", .until = ""};
    tocsin_check_summary summary;
    start_process(check, &process);
    for (int i = 0; i < 5; ++i)
        train(&process, (fake_step){.no_zero_grad = true});
    end_process(&process);
    assert_int_equal(tocsin_suppressions_new("2026-11-29", &suppressions, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_suppressions_add(suppressions, &known, NULL), TOCSIN_OK);
    known = (tocsin_suppression){
        .invariant = "", .code = "TOC004", .entity = "", .reason = "meant", .until = ""};
    assert_int_equal(tocsin_suppressions_add(suppressions, &known, NULL), TOCSIN_OK);
    check_start(check, false);
    tocsin_checker_suppress(check->checker, suppressions);
    check_advance(check);
    assert_int_equal(tocsin_checker_finish(check->checker, NULL), TOCSIN_OK);
    tocsin_checker_summary(check->checker, &summary);
    assert_int_equal(summary.violated, 1);
    assert_int_equal(summary.suppressed, 1); /* the order of calls; the gradients only in part */
    assert_int_equal(summary.holds + summary.violated + summary.unknown + summary.suppressed,
                     RULE_COUNT);
    const tocsin_finding *left = tocsin_checker_finding(check->checker, 0);
    assert_string_equal(left->rendered, "fc2.weight: gradient not cleared since the previous step");
    assert_int_equal(left->occurrences, 4);
    assert_ptr_equal(tocsin_checker_suppressions(check->checker), suppressions);
    assert_int_equal(tocsin_suppressions_get(suppressions, 0)->occurrences, 4);
    assert_int_equal(tocsin_suppressions_get(suppressions, 1)->occurrences, 4);
    check_free(check);
}

/* ---- several processes --------------------------------------------------------------------- */

static void rank_of_two(checking *check, int rank, int drift_at, bool die)
{
    fake_process process;
    start_process(check, &process);
    meta_int(&process, "rank", rank);
    meta_int(&process, "world_size", 2);
    for (int i = 0; i < 6; ++i) {
        if (rank == 1 && i == drift_at)
            process.parameters[1].data ^= 1;
        train(&process, (fake_step){.stage = NULL});
    }
    if (die) {
        assert_int_equal(tocsin_trace_writer_flush(process.writer, NULL), TOCSIN_OK);
        _exit(9);
    }
    end_process(&process);
    _exit(0);
}

static void run_ranks(checking *check, int drift_at, bool die)
{
    for (int rank = 0; rank < 2; ++rank) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            rank_of_two(check, rank, drift_at, die);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), die ? 9 : 0);
    }
}

static void test_ranks_that_agree(void **state)
{
    (void)state;
    checking *check = check_new();
    run_ranks(check, -1, false);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 0);
    assert_int_equal(summary.holds, 5);
    check_free(check);
}

static void test_ranks_that_drift(void **state)
{
    (void)state;
    checking *check = check_new();
    run_ranks(check, 3, false);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 1);
    const tocsin_finding *finding = tocsin_checker_finding(check->checker, 0);
    assert_string_equal(finding->code, "TOC001");
    assert_int_equal(finding->step, 4);
    assert_string_equal(finding->entity, "fc2.weight");
    assert_non_null(strstr(finding->rendered, "fc2.weight: data differs between ranks 0 and 1"));
    check_free(check);
}

static void test_processes_that_died(void **state)
{
    (void)state;
    checking *check = check_new();
    run_ranks(check, 3, true);
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.violated, 1);
    assert_int_equal(summary.incomplete_processes, 2);
    check_free(check);
}

/* Rank 0 is read to its end before rank 1 writes: what rank 1 did earlier was still the first. */
static void test_the_first_occurrence_is_of_the_earliest_step(void **state)
{
    (void)state;
    checking *check = check_new();
    check_start(check, true);
    for (int rank = 0; rank < 2; ++rank) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            fake_process process;
            start_process(check, &process);
            meta_int(&process, "rank", rank);
            for (int i = 1; i <= 6; ++i) {
                process.parameters[rank].stuck = i == 5 - 2 * rank;
                dropout(&process, i == 4 && rank == 0 ? 0.25 : 0.5);
                train(&process, (fake_step){.stage = NULL});
            }
            end_process(&process);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        check_advance(check);
        assert_int_equal(tocsin_checker_finding_count(check->checker), 2);
        assert_int_equal(tocsin_checker_finding(check->checker, 0)->step, rank == 0 ? 4 : 3);
    }
    assert_int_equal(tocsin_checker_finish(check->checker, NULL), TOCSIN_OK);
    const tocsin_finding *first = tocsin_checker_finding(check->checker, 0);
    assert_string_equal(first->rendered, "fc2.weight: data did not change");
    assert_string_equal(first->entity, "fc2.weight");
    assert_int_equal(first->rank, 1);
    assert_int_equal(first->last_step, 5);
    assert_int_equal(first->occurrences, 2);
    assert_string_equal(tocsin_checker_finding(check->checker, 1)->relation, "APIArg");
    check_free(check);
}

/* ---- following, damage --------------------------------------------------------------------- */

static void test_following(void **state)
{
    (void)state;
    checking *check = check_new();
    check_start(check, true);
    assert_int_equal(check_advance(check), 0);
    fake_process process;
    start_process(check, &process);
    train(&process, (fake_step){.stage = NULL});
    assert_int_equal(tocsin_trace_writer_flush(process.writer, NULL), TOCSIN_OK);
    assert_true(check_advance(check) > 0);
    assert_int_equal(tocsin_checker_finding_count(check->checker), 0);
    process.parameters[0].stuck = true;
    train(&process, (fake_step){.stage = NULL});
    assert_int_equal(tocsin_trace_writer_flush(process.writer, NULL), TOCSIN_OK);
    assert_true(check_advance(check) > 0);
    assert_string_equal(check->told, "2 TOC003 fc1.weight: data did not change\n");
    assert_int_equal(check_advance(check), 0);
    end_process(&process);
    check_advance(check);
    assert_int_equal(tocsin_checker_finish(check->checker, NULL), TOCSIN_OK);
    check_free(check);
}

/* The caller is asked in between, however much there is to read. */
static void test_a_backlog_is_read_in_parts(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    enum { CALLS = 60000 };
    for (int i = 0; i < CALLS; ++i)
        dropout(&process, 0.5);
    end_process(&process);
    check_start(check, false);
    uint64_t total = 0;
    unsigned parts = 0;
    for (uint64_t events; (events = check_advance(check)) > 0; ++parts)
        total += events;
    assert_true(total >= 2 * CALLS);
    assert_in_range(parts, 2, 8);
    assert_int_equal(tocsin_checker_finish(check->checker, NULL), TOCSIN_OK);
    check_free(check);
}

static void test_a_damaged_block_is_passed_over(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    for (int i = 0; i < 40; ++i) {
        train(&process, (fake_step){.stage = NULL});
        assert_int_equal(tocsin_trace_writer_flush(process.writer, NULL), TOCSIN_OK);
    }
    end_process(&process);
    char path[SCRATCH_PATH_BYTES];
    size_t bytes;
    scratch_find(&check->run, "process-", ".trace", path);
    uint8_t *content = scratch_read(path, &bytes);
    content[bytes / 2] ^= 0x10;
    scratch_write(path, content, bytes);
    free(content);
    tocsin_check_summary summary = check_all(check);
    assert_true(summary.corrupt_blocks > 0);
    assert_true(summary.holds >= 3);
    check_free(check);
}

/* The second block names zero_grad: without it, calls of it cannot be told from none. */
static void test_lost_names_are_no_violation(void **state)
{
    (void)state;
    checking *check = check_new();
    fake_process process;
    start_process(check, &process);
    for (int i = 0; i < 6; ++i) {
        train(&process, (fake_step){.stage = NULL, .no_zero_grad = i == 0});
        assert_int_equal(tocsin_trace_writer_flush(process.writer, NULL), TOCSIN_OK);
    }
    end_process(&process);
    char path[SCRATCH_PATH_BYTES];
    size_t bytes;
    scratch_find(&check->run, "process-", ".trace", path);
    uint8_t *content = scratch_read(path, &bytes);
    unsigned damaged = 0;
    for (size_t at = bytes / 8; at < bytes; at += 32) {
        content[at] ^= 0x10;
        scratch_write(path, content, bytes);
        content[at] ^= 0x10;
        tocsin_check_summary summary = check_all(check);
        assert_int_equal(summary.violated, 0);
        damaged += summary.corrupt_blocks > 0;
        check_end(check);
    }
    assert_true(damaged > 10);
    free(content);
    check_free(check);
}

static void test_nothing_to_check(void **state)
{
    (void)state;
    checking *check = check_new();
    tocsin_check_summary summary = check_all(check);
    assert_int_equal(summary.unknown, RULE_COUNT);
    assert_int_equal(tocsin_checker_unknown_count(check->checker), RULE_COUNT);
    for (size_t i = 0; i < RULE_COUNT; ++i)
        assert_int_equal(tocsin_checker_unknown(check->checker, i)->reason,
                         TOCSIN_UNKNOWN_NOT_RECORDED);
    tocsin_checker_options wrong = {.struct_bytes = 1};
    tocsin_checker *checker;
    tocsin_error error;
    assert_int_equal(tocsin_checker_new(check->set, &wrong, &checker, &error), TOCSIN_E_ARGUMENT);
    check_free(check);

    tocsin_invariant_set *empty;
    assert_int_equal(tocsin_invariants_new(&empty, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_checker_new(empty, NULL, &checker, NULL), TOCSIN_OK);
    tocsin_checker_summary(checker, &summary);
    assert_int_equal(summary.holds + summary.violated + summary.unknown, 0);
    tocsin_checker_free(checker);
    tocsin_invariants_free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_healthy_run_holds),
        cmocka_unit_test(test_offenders_are_named),
        cmocka_unit_test(test_later_findings_join_what_they_follow_from),
        cmocka_unit_test(test_zero_grad_forgotten),
        cmocka_unit_test(test_preconditions_come_first),
        cmocka_unit_test(test_what_is_unknown_has_a_reason),
        cmocka_unit_test(test_a_call_without_its_subject),
        cmocka_unit_test(test_suppressed_violations_are_no_findings),
        cmocka_unit_test(test_ranks_that_agree),
        cmocka_unit_test(test_ranks_that_drift),
        cmocka_unit_test(test_processes_that_died),
        cmocka_unit_test(test_the_first_occurrence_is_of_the_earliest_step),
        cmocka_unit_test(test_following),
        cmocka_unit_test(test_a_backlog_is_read_in_parts),
        cmocka_unit_test(test_a_damaged_block_is_passed_over),
        cmocka_unit_test(test_lost_names_are_no_violation),
        cmocka_unit_test(test_nothing_to_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
