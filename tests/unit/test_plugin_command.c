/* Relations that are commands: what they are told, what is made of their answers, and what becomes
 * of one that is silent, wordy, wrong or dead. The commands are shells, as a user's would be. */
#include "seen_instances.h"
#include <invariant/plugin.h>
#include <signal.h>
#include <tocsin/relation.h>

#define DESCRIBE                                                                                   \
    "echo '{\"relation\":\"told\",\"version\":1,\"on\":[\"enter\",\"step\"],\"calls\":"            \
    "[{\"role\":\"optimizer.step\",\"arguments\":true}]}'; "
#define ANSWER_EACH(answer) "while read -r line; do echo '" answer "'; done"

static void expect_refused(const char *command, uint32_t timeout_ms, tocsin_status status,
                           const char *message)
{
    tocsin_relations *relations;
    tocsin_error error;
    assert_int_equal(tocsin_relations_new(&relations, &error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_start(relations, command, timeout_ms, &error), status);
    assert_non_null(strstr(error.message, message));
    assert_int_equal(tocsin_relations_count(relations), 0);
    tocsin_relations_free(relations);
}

static void test_what_is_no_relation(void **state)
{
    (void)state;
    expect_refused("exit 3", 0, TOCSIN_E_IO, "ended with status 3");
    expect_refused("kill -9 $$", 0, TOCSIN_E_IO, "ended by signal 9");
    expect_refused("sleep 30", 100, TOCSIN_E_IO, "did not answer within 100 ms");
    expect_refused("read line; echo hello", 0, TOCSIN_E_FORMAT, "not valid JSON");
    expect_refused("read line; echo '{\"relation\":\"a\",\"version\":2}'", 0, TOCSIN_E_VERSION,
                   "of version 2");
    expect_refused("read line; echo '{\"version\":1}'", 0, TOCSIN_E_ARGUMENT, "the name");
    expect_refused("read line; echo '{\"error\":\"no such module\"}'", 0, TOCSIN_E_IO,
                   "no such module");
    expect_refused("read line; echo '{\"relation\":\"a\",\"version\":1,\"on\":[\"exit\"]}'", 0,
                   TOCSIN_E_FORMAT, "\"on\"");
    expect_refused("read line; echo '{\"relation\":\"a\",\"version\":1,\"calls\":[{}]}'", 0,
                   TOCSIN_E_ARGUMENT, "asks for a call");
    expect_refused("while :; do printf '%4096s' x; done", 0, TOCSIN_E_LIMIT, "more than");
    expect_refused("true", 3600001, TOCSIN_E_ARGUMENT, "an hour");
}

/* Three steps, told to the command; the status of the run. */
static tocsin_status tell(relation_bench *bench, const char *command, uint32_t timeout_ms,
                          tocsin_error *error)
{
    tocsin_relations *relations;
    assert_int_equal(tocsin_relations_new(&relations, error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_start(relations, command, timeout_ms, error), TOCSIN_OK);
    bench->observer = NULL;
    tocsin_observer_options options = {
        .vocabulary = bench->vocabulary, .sink = collect, .context = bench, .relations = relations};
    fake_process *process = &bench->process[0];
    tocsin_status status = tocsin_observer_new(&options, &process->observer, error);
    if (status == TOCSIN_OK) {
        fake_start(process);
        for (int i = 0; i < 3; ++i)
            train(process, (fake_step){.lr = 0.1});
        status = process->status;
        *error = process->error;
    }
    if (status == TOCSIN_OK)
        status = tocsin_observer_finish(process->observer, error);
    tocsin_observer_free(process->observer);
    tocsin_relations_free(relations);
    return status;
}

static relation_bench *bench_alone(void)
{
    relation_bench *made = calloc(1, sizeof *made);
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    return made;
}

static void free_alone(relation_bench *bench)
{
    tocsin_vocabulary_free(bench->vocabulary);
    fake_free(&bench->process[0]);
    free(bench->list);
    free(bench);
}

static void test_instances_of_answers(void **state)
{
    (void)state;
    relation_bench *bench = bench_alone();
    tocsin_error error;
    assert_int_equal(
        tell(bench,
             "read line; " DESCRIBE "while read -r line; do case $line in "
             "'{\"on\":\"enter\"'*'\"self.lr\"'*) echo '[{\"subject\":\"update\",\"facts\":"
             "[\"is told of\"],\"fields\":{\"word\":\"plain\",\"is_odd\":true,\"large\":1000,"
             "\"real\":0.5},\"context\":true,\"entity\":\"it\"}]';; "
             "'{\"on\":\"step\"'*) echo '[]';; *) echo '{\"error\":\"what?\"}';; esac; done",
             0, &error),
        TOCSIN_OK);
    assert_int_equal(HOLDS(bench, USER, "it", CLAIM), 3);
    size_t found = 0;
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != TOCSIN_POPULATION_USER)
            continue;
        assert_int_equal(seen->step, (int64_t)++found);
        assert_string_equal(field_text(bench, seen, "word"), "plain");
        assert_string_equal(field_text(bench, seen, "large"), "an int");
        assert_string_equal(field_text(bench, seen, "real"), "a float");
        assert_string_equal(field_text(bench, seen, "meta.stage"), "training");
    }
    free_alone(bench);
}

static void expect_failure(const char *command, uint32_t timeout_ms, const char *message)
{
    relation_bench *bench = bench_alone();
    tocsin_error error;
    assert_int_not_equal(tell(bench, command, timeout_ms, &error), TOCSIN_OK);
    assert_non_null(strstr(error.message, "relation told: "));
    if (strstr(error.message, message) == NULL)
        fail_msg("%s", error.message);
    free_alone(bench);
}

static void test_a_relation_that_breaks(void **state)
{
    (void)state;
    expect_failure("read line; " DESCRIBE "read line && exit 7", 0, "ended with status 7");
    expect_failure("read line; " DESCRIBE "read line && { exec >&- <&-; sleep 30; }", 200, "");
    expect_failure("read line; " DESCRIBE "read line && sleep 30", 200,
                   "did not answer within 200 ms");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("nonsense"), 0, "not valid JSON");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("{}"), 0, "neither an array");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("[{}]"), 0, "no \"subject\"");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("[{\"subject\":\"\"}]"), 0, "its subjects");
    expect_failure(
        "read line; " DESCRIBE ANSWER_EACH("[{\"subject\":\"a\",\"fields\":{\"b\":[]}}]"), 0,
        "neither true");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("[{\"subject\":\"a\",\"facts\":\"b\"}]"), 0,
                   "not an array");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("[{\"subject\":\"a\",\"facts\":[1]}]"), 0,
                   "not a text");
    expect_failure("read line; " DESCRIBE ANSWER_EACH("{\"error\":\"KeyError: x\"}"), 0,
                   "KeyError: x");
    expect_failure("read line; " DESCRIBE "while read -r line; do printf '[]\\n[]\\n'; done", 0,
                   "more than one line");
    expect_failure("read line; " DESCRIBE "read line && yes '[]'", 0, "more than one line");
}

/* One that neither reads nor ends is ended; what it has started, too. */
static void test_no_process_is_left(void **state)
{
    (void)state;
    relation_bench *bench = bench_alone();
    tocsin_error error;
    char command[512], path[] = "/tmp/tocsin-command-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command,
             "read line; " DESCRIBE "sleep 1000 & echo $! >>%s; trap '' TERM; wait", path);
    assert_int_equal(tell(bench, command, 100, &error), TOCSIN_E_IO);
    FILE *file = fopen(path, "r");
    int pid, count = 0;
    assert_non_null(file);
    for (; fscanf(file, "%d", &pid) == 1; ++count) {
        char stat[64], status = 'Z';
        snprintf(stat, sizeof stat, "/proc/%d/stat", pid);
        for (int wait = 0; wait < 5000; ++wait) { /* killed, but it may take a moment */
            FILE *process = fopen(stat, "r");
            status = 'X';
            if (process != NULL && fscanf(process, "%*d %*s %c", &status) >= 0)
                fclose(process);
            if (status == 'Z' || status == 'X')
                break;
            usleep(1000);
        }
        assert_true(status == 'Z' || status == 'X');
    }
    fclose(file);
    unlink(path);
    assert_int_equal(count, 2);
    free_alone(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_relation),
        cmocka_unit_test(test_instances_of_answers),
        cmocka_unit_test(test_a_relation_that_breaks),
        cmocka_unit_test(test_no_process_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
