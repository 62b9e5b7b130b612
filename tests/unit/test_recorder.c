/* The recorder without Python: its file, meta variables, steps, states, forks. */
#include "cmocka_test.h"
#include <dirent.h>
#include <math.h>
#include <record/record.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64];

static int enter_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/tocsin-recorder-XXXXXX");
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int leave_directory(void **state)
{
    (void)state;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        (void)unlink(path);
    }
    closedir(entries);
    return rmdir(directory);
}

static tocsin_recorder *open_recorder(void)
{
    tocsin_recorder_options options = {.struct_bytes = sizeof options, .directory = directory};
    tocsin_recorder *recorder;
    assert_int_equal(tocsin_recorder_open(&options, &recorder, NULL), TOCSIN_OK);
    return recorder;
}

/* The files of the run, by glob order; returns how many. */
static int traces(char paths[4][400])
{
    int count = 0;
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL && count < 4;)
        if (strstr(entry->d_name, ".trace") != NULL)
            snprintf(paths[count++], 400, "%s/%s", directory, entry->d_name);
    closedir(entries);
    return count;
}

/* A short text of each event: "@step=1", ">f", "<f", "=w.data". */
static void describe(const char *path, tocsin_string *text)
{
    tocsin_trace *trace;
    const tocsin_event *event;
    assert_int_equal(tocsin_trace_open(path, false, &trace, NULL), TOCSIN_OK);
    for (;;) {
        assert_int_equal(tocsin_trace_next(trace, &event, NULL), TOCSIN_OK);
        if (event == NULL)
            break;
        const char *function = tocsin_trace_function_name(trace, event->function);
        if (event->kind == TOCSIN_EVENT_META && event->values->kind == TOCSIN_VALUE_STRING)
            tocsin_string_printf(text, "@%s=%s ", tocsin_trace_string(trace, event->key),
                                 tocsin_trace_string(trace, event->values->as.text));
        else if (event->kind == TOCSIN_EVENT_META && event->values->kind == TOCSIN_VALUE_FLOAT)
            tocsin_string_printf(text, "@%s=%g ", tocsin_trace_string(trace, event->key),
                                 event->values->as.real);
        else if (event->kind == TOCSIN_EVENT_META)
            tocsin_string_printf(text, "@%s=%lld ", tocsin_trace_string(trace, event->key),
                                 (long long)event->values->as.integer);
        else if (event->kind == TOCSIN_EVENT_STATE)
            tocsin_string_printf(text, "=%s.%s:%d ",
                                 tocsin_trace_variable_name(trace, event->state.variable),
                                 tocsin_trace_string(trace, event->state.attribute),
                                 (event->state.flags & TOCSIN_STATE_DIGESTED) != 0);
        else
            tocsin_string_printf(text, "%c%s ", event->kind == TOCSIN_EVENT_ENTER ? '>' : '<',
                                 function);
    }
    tocsin_trace_close(trace);
}

static void expect_only_trace(const char *expected)
{
    char paths[4][400];
    tocsin_string text = {0};
    assert_int_equal(traces(paths), 1);
    describe(paths[0], &text);
    char *cost = strstr(text.text, "@cost_ns_per_step");
    if (cost != NULL)
        *cost = '\0';
    assert_string_equal(tocsin_string_text(&text), expected);
    tocsin_string_free(&text);
}

static void test_no_event_no_file(void **state)
{
    (void)state;
    char paths[4][400];
    tocsin_recorder *recorder = open_recorder();
    tocsin_recorder_meta_int(recorder, TOCSIN_META_RANK, 3);
    tocsin_recorder_backward_passed(recorder);
    tocsin_recorder_summary summary;
    tocsin_recorder_summarize(recorder, &summary);
    assert_false(summary.has_file);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    assert_int_equal(traces(paths), 0);
}

static void test_meta_is_written_on_change_and_at_the_start(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    int mine = tocsin_recorder_meta_key(recorder, "mine");
    assert_int_equal(tocsin_recorder_meta_key(recorder, "mine"), mine);
    tocsin_recorder_meta_text(recorder, mine, "a", 1);
    assert_non_null(tocsin_recorder_writer(recorder));
    tocsin_recorder_meta_text(recorder, mine, "a", 1);
    tocsin_recorder_meta_text(recorder, mine, "b", 1);
    tocsin_recorder_meta_bool(recorder, mine, true);
    tocsin_recorder_meta_int(recorder, mine, 1);
    tocsin_recorder_meta_real(recorder, mine, 0.5);
    tocsin_recorder_meta_real(recorder, mine, 0.5);
    tocsin_recorder_meta_int(recorder, -1, 5);
    tocsin_recorder_meta_int(recorder, 1 << 20, 5);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    expect_only_trace("@step=0 @micro_step=0 @stage=init @mine=a "
                      "@mine=b @mine=1 @mine=1 @mine=0.5 ");
}

static void test_too_many_meta_keys(void **state)
{
    (void)state;
    char name[400];
    tocsin_recorder *recorder = open_recorder();
    for (int i = TOCSIN_META_KNOWN_COUNT; i < TOCSIN_META_KEYS_MAX; i++) {
        snprintf(name, sizeof name, "key%d", i);
        assert_int_equal(tocsin_recorder_meta_key(recorder, name), i);
    }
    assert_int_equal(tocsin_recorder_meta_key(recorder, "one more"), -1);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(tocsin_recorder_meta_key(recorder, name), -1);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
}

#define START    "@step=0 @micro_step=0 @stage=init "
#define STEP_END ">tocsin.step_end <tocsin.step_end "

static void test_the_leading_optimizer_counts_steps(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    assert_non_null(tocsin_recorder_writer(recorder));
    tocsin_recorder_backward_passed(recorder);
    tocsin_recorder_optimizer_stepped(recorder, 4);
    tocsin_recorder_backward_passed(recorder);
    tocsin_recorder_optimizer_stepped(recorder, 1);
    tocsin_recorder_optimizer_stepped(recorder, 4);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    expect_only_trace(START "@micro_step=1 " STEP_END "@step=1 @micro_step=0 @micro_step=1 "
                            "@micro_step=0 " STEP_END "@step=2 ");
}

static int64_t steps_of(const tocsin_recorder *recorder)
{
    tocsin_recorder_summary summary;
    tocsin_recorder_summarize(recorder, &summary);
    return summary.steps;
}

static void test_another_optimizer_takes_over(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    tocsin_recorder_optimizer_stepped(recorder, 0);
    for (int i = 0; i < TOCSIN_LEADER_LAG; i++)
        tocsin_recorder_optimizer_stepped(recorder, 1);
    assert_int_equal(steps_of(recorder), 1);
    tocsin_recorder_optimizer_stepped(recorder, 1);
    tocsin_recorder_optimizer_stepped(recorder, 1);
    assert_int_equal(steps_of(recorder), 3);
    tocsin_recorder_optimizer_stepped(recorder, 0);
    assert_int_equal(steps_of(recorder), 3);
    tocsin_recorder_user_step(recorder);
    tocsin_recorder_optimizer_stepped(recorder, 1);
    assert_int_equal(steps_of(recorder), 4);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
}

static void test_the_next_to_step_leads_when_the_leader_is_gone(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    assert_int_equal(tocsin_recorder_leader(recorder), -1);
    tocsin_recorder_optimizer_stepped(recorder, 2);
    assert_int_equal(tocsin_recorder_leader(recorder), 2);
    tocsin_recorder_depose(recorder);
    tocsin_recorder_optimizer_stepped(recorder, 5);
    tocsin_recorder_optimizer_stepped(recorder, 2);
    assert_int_equal(tocsin_recorder_leader(recorder), 5);
    assert_int_equal(steps_of(recorder), 2);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
}

static void test_the_users_stage_wins(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    assert_non_null(tocsin_recorder_writer(recorder));
    tocsin_recorder_observed_stage(recorder, "training");
    tocsin_recorder_user_stage(recorder, "warmup");
    tocsin_recorder_observed_stage(recorder, "evaluation");
    tocsin_recorder_user_stage(recorder, NULL);
    tocsin_recorder_observed_stage(recorder, "evaluation");
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    expect_only_trace(START "@stage=training @stage=warmup @stage=evaluation ");
}

static void test_states_are_digested_once(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    tocsin_trace_writer *writer = tocsin_recorder_writer(recorder);
    assert_non_null(writer);
    float values[] = {1.0F, -2.0F, 0.0F};
    int64_t shape[] = {3};
    tocsin_tensor_view view = {
        .data = values, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 1, .shape = shape};
    tocsin_sample sample = {
        .variable = tocsin_trace_define_variable(writer, "w", TOCSIN_VARIABLE_PARAMETER, "P"),
        .attribute = TOCSIN_ATTRIBUTE_DATA,
        .moment = TOCSIN_MOMENT_EXIT,
        .flags = TOCSIN_STATE_PRESENT,
        .lr = (double)NAN,
        .dtype = TOCSIN_DTYPE_FLOAT32,
        .ndim = 1,
        .shape = shape,
        .view = &view};
    tocsin_sample_digest computed;
    assert_true(tocsin_recorder_sample(recorder, &sample, &computed));
    assert_int_equal(computed.statistics.zero_count, 1);
    sample.view = NULL;
    sample.known = &computed;
    assert_true(tocsin_recorder_sample(recorder, &sample, NULL));
    sample.known = NULL;
    sample.attribute = TOCSIN_ATTRIBUTE_GRAD;
    assert_false(tocsin_recorder_sample(recorder, &sample, NULL));
    tocsin_recorder_summary summary;
    tocsin_recorder_summarize(recorder, &summary);
    assert_int_equal(summary.digested_bytes, sizeof values);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    expect_only_trace(START "=w.data:1 =w.data:1 =w.grad:0 ");
}

static void test_everything_is_recorded_without_a_selection(void **state)
{
    (void)state;
    tocsin_recorder *recorder = open_recorder();
    bool arguments = false;
    assert_true(tocsin_recorder_wants_call(recorder, "f", TOCSIN_ROLE_NONE, &arguments));
    assert_true(arguments);
    assert_false(tocsin_recorder_is_selective(recorder));
    assert_null(tocsin_recorder_selected_role(recorder, 0, &arguments));
    assert_true(tocsin_recorder_samples(recorder, TOCSIN_ROLE_BACKWARD, TOCSIN_MOMENT_EXIT));
    assert_false(tocsin_recorder_samples(recorder, TOCSIN_ROLE_LOSS, TOCSIN_MOMENT_EXIT));
    assert_int_equal(tocsin_recorder_sampling(recorder, TOCSIN_ROLE_BACKWARD, TOCSIN_MOMENT_EXIT,
                                              TOCSIN_ATTRIBUTE_GRAD, TOCSIN_VARIABLE_PARAMETER),
                     TOCSIN_SAMPLING_PRESENCE);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
}

static void test_digests_of_every_third_step(void **state)
{
    (void)state;
    tocsin_recorder_options options = {
        .struct_bytes = sizeof options, .directory = directory, .digest_every = 3};
    tocsin_recorder *recorder;
    assert_int_equal(tocsin_recorder_open(&options, &recorder, NULL), TOCSIN_OK);
    static const int digested[] = {1, 1, 0, 1, 0, 0, 1}; /* by step */
    for (size_t step = 0; step < TOCSIN_COUNT_OF(digested); step++) {
        assert_int_equal(tocsin_recorder_sampling(recorder, TOCSIN_ROLE_OPTIMIZER_STEP,
                                                  TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                                                  TOCSIN_VARIABLE_PARAMETER),
                         digested[step] ? TOCSIN_SAMPLING_DIGEST : TOCSIN_SAMPLING_PRESENCE);
        assert_int_equal(tocsin_recorder_sampling(recorder, TOCSIN_ROLE_DATA_NEXT,
                                                  TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAMPLES,
                                                  TOCSIN_VARIABLE_LEDGER),
                         TOCSIN_SAMPLING_DIGEST);
        tocsin_recorder_user_step(recorder);
    }
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
}

static void test_a_forked_child_has_a_file_of_its_own(void **state)
{
    (void)state;
    char paths[4][400];
    tocsin_recorder *recorder = open_recorder();
    assert_non_null(tocsin_recorder_writer(recorder));
    uint32_t generation = tocsin_recorder_generation(recorder);
    tocsin_recorder_user_step(recorder);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tocsin_recorder_forked(recorder);
        bool fresh = tocsin_recorder_generation(recorder) != generation && steps_of(recorder) == 0;
        tocsin_recorder_user_step(recorder);
        bool closed = tocsin_recorder_close(recorder, NULL) == TOCSIN_OK;
        _exit(fresh && closed ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    assert_int_equal(traces(paths), 2);
    for (int i = 0; i < 2; i++) {
        char pid[32];
        tocsin_string text = {0};
        snprintf(pid, sizeof pid, "-%d.", (int)child);
        describe(paths[i], &text);
        assert_non_null(strstr(tocsin_string_text(&text), strstr(paths[i], pid) != NULL
                                                              ? "@step=1 @micro_step=0"
                                                              : "@step=0 @micro_step=0"));
        tocsin_string_free(&text);
    }
}

static void test_a_directory_that_is_not_there(void **state)
{
    (void)state;
    tocsin_recorder_options options = {.struct_bytes = sizeof options,
                                       .directory = "/nonexistent/run"};
    tocsin_recorder *recorder;
    tocsin_error error;
    assert_int_equal(tocsin_recorder_open(&options, &recorder, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_recorder_failure(recorder, &error), TOCSIN_OK);
    assert_null(tocsin_recorder_writer(recorder));
    assert_null(tocsin_recorder_writer(recorder));
    tocsin_recorder_user_step(recorder);
    assert_int_equal(tocsin_recorder_failure(recorder, &error), TOCSIN_E_NOT_FOUND);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
    options.struct_bytes = 1;
    assert_int_equal(tocsin_recorder_open(&options, &recorder, &error), TOCSIN_E_ARGUMENT);
    assert_null(recorder);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, enter_directory, leave_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_no_event_no_file),
        IN_DIRECTORY(test_meta_is_written_on_change_and_at_the_start),
        IN_DIRECTORY(test_too_many_meta_keys),
        IN_DIRECTORY(test_the_leading_optimizer_counts_steps),
        IN_DIRECTORY(test_another_optimizer_takes_over),
        IN_DIRECTORY(test_the_next_to_step_leads_when_the_leader_is_gone),
        IN_DIRECTORY(test_the_users_stage_wins),
        IN_DIRECTORY(test_states_are_digested_once),
        IN_DIRECTORY(test_everything_is_recorded_without_a_selection),
        IN_DIRECTORY(test_digests_of_every_third_step),
        IN_DIRECTORY(test_a_forked_child_has_a_file_of_its_own),
        IN_DIRECTORY(test_a_directory_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
