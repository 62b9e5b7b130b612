/* Importing TrainCheck's traces: what each kind of record becomes, ranks, rounds of the sampler,
 * and what is left out. */
#include "traincheck_scratch.h"

/* The next line of `*at` that has `word` in it; moves past it. */
static void expect_line(const char **at, const char *word)
{
    const char *found = strstr(*at, word);
    if (found == NULL)
        fail_msg("no \"%s\" in what is left:\n%s", word, *at);
    *at = strchr(found, '\n');
    assert_non_null(*at);
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        ++count;
    return count;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void expect_parsed(const char *text, const char *member, const char *expected)
{
    tocsin_json_value *root = NULL;
    tocsin_error error = {0};
    tocsin_status status = tocsin_python_json_parse(text, strlen(text), "here", &root, &error);
    assert_int_equal(status, expected != NULL ? TOCSIN_OK : TOCSIN_E_FORMAT);
    if (expected != NULL)
        assert_string_equal(tocsin_json_get_text(tocsin_json_get_member(root, member)), expected);
    else
        assert_true(error.message[0] != 0);
    tocsin_json_free(root);
}

static void test_what_only_python_writes_is_read(void **state)
{
    (void)state;
    expect_parsed("{\"a\":NaN}", "a", "NaN");
    expect_parsed("{\"a\": -Infinity, \"b\":\"NaN, \\\" Infinity\"}", "a", "-Infinity");
    expect_parsed("{\"a\": -Infinity, \"b\":\"NaN, \\\" Infinity\"}", "b", "NaN, \" Infinity");
    expect_parsed("{\"a\":9223372036854775808}", "a", "9223372036854775808");
    expect_parsed("{\"b\":[NaN,9223372036854775807,-9223372036854775808,1.5e300],\"a\":\"x\"}", "a",
                  "x");
    expect_parsed("{\"a\":NaN", "a", NULL);
    expect_parsed("{\"a\":Nan}", "a", NULL);
    expect_parsed("{\"a\":\"NaN", "a", NULL);
    expect_parsed("", "a", NULL);
}

static void test_a_glimpse_finds_what_a_parse_finds(void **state)
{
    (void)state;
    const struct {
        const char *line;
        bool found;
        int64_t process, rank;
        uint64_t time_ns;
        bool is_state;
    } cases[] = {
        {"{\"process_id\":7,\"time\":12}", true, 7, -1, 12, false},
        {" { \"time\" : 3 , \"x\":[{\"process_id\":1},\"]\\\"\"], \"process_id\" :8}", true, 8, -1,
         3, false},
        {"{\"meta_vars\":{\"step\":1,\"_DATA_PARALLEL_RANK\":5},\"process_id\":7,\"time\":1,"
         "\"var_name\":\"w\"}",
         true, 7, 5, 1, true},
        {"{\"args\":{\"_DATA_PARALLEL_RANK\":5},\"process_id\":7,\"time\":1}", true, 7, -1, 1,
         false},
        {"{\"process_id\":\"7\",\"time\":12}", false, 0, -1, 12, false},
        {"{\"process_id\":7", false, 7, -1, 0, false},
        {"{\"process_id\":7,\"time", false, 7, -1, 0, false},
        {"[1]", false, 0, -1, 0, false},
        {"", false, 0, -1, 0, false},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_traincheck_glimpse glimpse;
        assert_int_equal(
            tocsin_traincheck_record_glimpse(cases[i].line, strlen(cases[i].line), &glimpse),
            cases[i].found);
        assert_int_equal(glimpse.rank, cases[i].rank);
        if (!cases[i].found)
            continue;
        assert_int_equal(glimpse.process, cases[i].process);
        assert_int_equal(glimpse.time_ns, cases[i].time_ns);
        assert_int_equal(glimpse.is_state, cases[i].is_state);
    }
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void test_calls_nest_and_carry_their_values(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    const char *file = "trace_API_9_5.log";
    traincheck_put_call(&folder, file, 10, "a", "outer",
                        "\"0\":{\"a.Model\":{\"training\":true}},\"1\":{\"torch.FloatTensor\":"
                        "{\"_TRAINCHECK_data_ID\":3,\"dtype\":\"torch.bfloat16\",\"shape\":[4,2],"
                        "\"requires_grad\":true,\"grad_fn\":null,\"is_cpu\":false}},\"2\":{\"list\""
                        ":[1,2,3,4,5]},\"3\":{\"float\":-Infinity},\"4\":{\"int\":1e1},\"5\":"
                        "{\"int\":99999999999999999999}");
    traincheck_put_call(&folder, file, 11, "b", "inner", "\"0\":{\"NoneType\":null}");
    traincheck_put_return(&folder, file, 12, "b", "inner",
                          "[{\"str\":\"x\"},{\"torch.Tensor\":{\"dtype\":\"torch.int64\",\"shape\":"
                          "[]}}]");
    traincheck_put(&folder, file,
                   "{\"func_call_id\":\"a\",\"thread_id\":5,\"process_id\":9,\"meta_vars\":{\"step"
                   "\":0},\"type\":\"function_call (post) (exception)\",\"function\":\"outer\","
                   "\"exception\":\"StopIteration\",\"time\":13}\n");
    tocsin_import_summary summary = traincheck_import(&folder);
    assert_int_equal(summary.records, 4);
    assert_int_equal(summary.calls, 2);
    assert_int_equal(summary.incomplete, 0);
    char *text = traincheck_events(&folder, "9");
    const char *at = text;
    expect_line(&at, "\"time_ns\":10,\"depth\":0,\"call\":1,\"kind\":\"enter\",\"function\":"
                     "\"outer\",\"role\":\"user\",\"values\":["
                     "{\"name\":\"self\",\"kind\":\"module\",\"type\":\"a.Model\","
                     "\"value\":\"\",\"flags\":[\"training\"]}");
    at = text;
    expect_line(&at, "\"name\":\"arg1\",\"kind\":\"tensor\",\"type\":\"torch.FloatTensor;"
                     "grad_fn=None;is_cpu=False\",\"dtype\":\"bfloat16\",\"ndim\":2,"
                     "\"shape\":[4,2],\"memory\":");
    at = text;
    expect_line(&at, "\"flags\":[\"requires_grad\",\"on_device\"]},{\"name\":\"arg2\"");
    at = text;
    expect_line(&at, "{\"name\":\"arg2\",\"kind\":\"sequence\",\"count\":5},{\"name\":\"arg2\","
                     "\"kind\":\"int\",\"value\":1,\"flags\":[\"in_sequence\"]}");
    at = text;
    expect_line(&at, "\"name\":\"arg5\",\"kind\":\"big\"},{\"name\":\"inplace\",\"kind\":\"bool\"");
    expect_line(&at, "\"time_ns\":11,\"depth\":1,\"call\":2,\"kind\":\"enter\"");
    expect_line(&at, "\"kind\":\"exit\",\"function\":\"inner\",\"role\":\"user\",\"values\":["
                     "{\"name\":\"return\",\"kind\":\"sequence\",\"count\":2}");
    expect_line(&at, "\"call\":1,\"kind\":\"raise\",\"function\":\"outer\"");
    assert_string_equal(at, "\n");
    free(text);
    traincheck_free(&folder);
}

static uint64_t id_of(const char *events, const char *function)
{
    char word[100];
    snprintf(word, sizeof word, "\"function\":\"%s\"", function);
    const char *at = strstr(events, word);
    assert_non_null(at);
    at = strstr(at, "{\"name\":\"id\",\"kind\":\"int\",\"value\":");
    assert_non_null(at);
    return (uint64_t)strtoll(strstr(at, "value\":") + 7, NULL, 10);
}

static void test_equal_arguments_have_equal_ids(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    const char *file = "trace_API_9_5.log";
    const char *tensor = "\"0\":{\"torch.Tensor\":{\"_ML_DAIKON_data_ID\":%d,\"dtype\":"
                         "\"torch.float32\",\"shape\":[1]}},\"1\":{\"float\":0.5}";
    char one[200], two[200];
    snprintf(one, sizeof one, tensor, 1);
    snprintf(two, sizeof two, tensor, 2);
    traincheck_put_call(&folder, file, 1, "a", "first", one);
    traincheck_put_call(&folder, file, 2, "b", "again", one);
    traincheck_put_call(&folder, file, 3, "c", "other", two);
    assert_int_equal(traincheck_import(&folder).incomplete, 3);
    char *text = traincheck_events(&folder, "9");
    assert_true(id_of(text, "first") == id_of(text, "again"));
    assert_true(id_of(text, "first") != id_of(text, "other"));
    free(text);
    traincheck_free(&folder);
}

typedef struct dropped_list {
    char text[2000];
} dropped_list;

static void note_dropped(void *context, const char *file, uint64_t line, const char *why)
{
    dropped_list *list = context;
    size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "%s:%d %s\n", file, (int)line, why);
}

static void test_what_cannot_be_used_is_named(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    const char *file = "trace_API_9_5.log";
    traincheck_put_call(&folder, file, 10, "a", "f", "");
    traincheck_put_call(&folder, file, 10, "a", "f", "");       /* the same line */
    traincheck_put_call(&folder, file, 11, "a", "f", "");       /* the same call */
    traincheck_put_return(&folder, file, 12, "b", "f", "null"); /* never begun */
    traincheck_put(&folder, file, "{\"process_id\":9,\"time\":13,\"type\":\"other\"}\n\nnoise\n");
    traincheck_put_return(&folder, file, 14, "a", "f", "null");
    traincheck_put(&folder, file, "{\"func_call_id\": \"c\", \"thr");
    dropped_list list = {.text = ""};
    tocsin_import_options options = {
        .struct_bytes = sizeof options, .dropped = note_dropped, .context = &list};
    tocsin_import_summary summary;
    assert_int_equal(
        tocsin_traincheck_import(folder.traces.directory, folder.run, &options, &summary, NULL),
        TOCSIN_OK);
    assert_string_equal(list.text, "trace_API_9_5.log:2 an equal line came before\n"
                                   "trace_API_9_5.log:3 a call of this id is open already\n"
                                   "trace_API_9_5.log:4 the end of a call whose start is missing\n"
                                   "trace_API_9_5.log:5 not a record\n"
                                   "trace_API_9_5.log:7 not a record\n"
                                   "trace_API_9_5.log:9 the end of the file is broken off\n");
    assert_int_equal(summary.records, 2);
    assert_int_equal(summary.duplicates, 2);
    assert_int_equal(summary.unmatched, 1);
    assert_int_equal(summary.unreadable, 3);
    assert_int_equal(summary.incomplete, 0);
    traincheck_free(&folder);
}

/* ---- variables ------------------------------------------------------------------------------ */

static void put_round(const traincheck_folder *folder, int pid, int time, const char *meta,
                      int data)
{
    char file[60];
    snprintf(file, sizeof file, "trace_VAR_%d_%d.log", pid, pid);
    traincheck_put_sample(folder, file, pid, time, meta, "w", data, "");
    traincheck_put_sample(folder, file, pid, time, meta, "b", data + 1,
                          ",\"partition_dim\":-1,\"tensor_model_parallel\":true");
}

static void test_the_sampler_takes_rounds(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    put_round(&folder, 20, 5, "\"step\":0,\"stage\":\"init\"", 100);
    put_round(&folder, 20, 6, "\"step\":0,\"stage\":\"init\"", 200); /* a variable comes again */
    put_round(&folder, 20, 7, "\"step\":1,\"stage\":\"training\"", 300);
    put_round(&folder, 10, 8, "\"step\":1,\"stage\":\"training\"", 300);
    tocsin_import_summary summary = traincheck_import(&folder);
    assert_int_equal(summary.states, 8);
    assert_int_equal(summary.ranks, 2);
    char *text = traincheck_events(&folder, "20");
    assert_int_equal(
        count_of(text, "\"function\":\"traincheck.sample\",\"role\":\"optimizer.step\""), 6);
    assert_int_equal(count_of(text, "\"attribute\":\"data\",\"moment\":\"exit\""), 6);
    assert_int_equal(count_of(text, "\"attribute\":\"grad\",\"moment\":\"enter\""), 6);
    const char *at = text;
    /* no rank in the trace: each process is given one, in the order of the process ids */
    expect_line(&at, "\"key\":\"rank\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":1}");
    expect_line(&at,
                "\"key\":\"world_size\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":2}");
    expect_line(&at, "\"key\":\"stage\"");
    expect_line(&at, "\"call\":1,\"kind\":\"enter\"");
    expect_line(&at, "\"call\":1,\"kind\":\"exit\"");
    expect_line(&at, "\"call\":2,\"kind\":\"exit\"");
    expect_line(&at, "\"key\":\"step\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":1}");
    expect_line(&at, "\"call\":3,\"kind\":\"enter\"");
    expect_line(&at, "\"variable\":\"b\"");
    at = strstr(text, "\"variable\":\"b\"");
    expect_line(&at, "\"flags\":[\"present\",\"digested\",\"requires_grad\",\"is_leaf\","
                     "\"tensor_parallel\"");
    free(text);
    traincheck_free(&folder);
}

static void test_ranks_of_the_trace_are_believed(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    put_round(&folder, 10, 5, "\"step\":0", 1); /* the launcher */
    put_round(&folder, 20, 5, "\"step\":0,\"_DATA_PARALLEL_RANK\":3", 1);
    put_round(&folder, 30, 5, "\"step\":0", 1);
    put_round(&folder, 30, 6, "\"step\":0,\"_DATA_PARALLEL_RANK\":1", 2); /* told late */
    assert_int_equal(traincheck_import(&folder).ranks, 2);
    char *launcher = traincheck_events(&folder, "10");
    char *third = traincheck_events(&folder, "20");
    char *first = traincheck_events(&folder, "30");
    assert_null(strstr(launcher, "\"rank\""));
    assert_non_null(
        strstr(third, "\"key\":\"rank\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":3}"));
    assert_non_null(
        strstr(first, "\"key\":\"rank\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":1}"));
    assert_non_null(strstr(
        first, "\"key\":\"world_size\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":2}"));
    assert_null(strstr(first, "_DATA_PARALLEL_RANK"));
    free(launcher);
    free(third);
    free(first);
    traincheck_free(&folder);
}

static void put_tracked(const traincheck_folder *folder, int pid, int time, const char *mode,
                        const char *data)
{
    char line[TRAINCHECK_LINE_BYTES];
    snprintf(line, sizeof line,
             "{\"process_id\":%d,\"thread_id\":5,\"time\":%d,\"meta_vars\":{\"step\":-1},"
             "\"var_name\":\"w\",\"var_type\":\"torch.Tensor\",\"mode\":\"%s\",\"dump_loc\":\"f\","
             "\"attributes\":{\"_TRAINCHECK_data_ID\":1,\"data\":%s,\"grad\":7},"
             "\"type\":\"state_change\"}\n",
             pid, time, mode, data);
    traincheck_put(folder, "proxy_log.json", line);
}

static void test_tracked_states_stand_where_they_were_seen(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    traincheck_put_call(&folder, "trace_API_9_5.log", 10, "a", "f", "");
    traincheck_put_return(&folder, "trace_API_9_5.log", 20, "a", "f", "null");
    put_tracked(&folder, 9, 5, "update", "1");
    put_tracked(&folder, 9, 12, "pre_observe", "1");
    put_tracked(&folder, 8, 13, "update", "{\"min\":0,\"max\":1}"); /* another process */
    put_tracked(&folder, 9, 14, "post_observe", "2");
    traincheck_import(&folder);
    char *text = traincheck_events(&folder, "9");
    const char *at = text;
    assert_null(strstr(text, "\"step\",\"value\":{\"name\":\"\",\"kind\":\"int\",\"value\":-1}"));
    expect_line(&at, "\"time_ns\":5,\"depth\":0,\"call\":0,\"kind\":\"state\"");
    expect_line(&at, "\"kind\":\"enter\",\"function\":\"f\"");
    expect_line(&at, "\"time_ns\":12,\"depth\":1,\"call\":1,\"kind\":\"state\"");
    expect_line(&at, "\"variable_kind\":\"buffer\",\"type\":\"torch.Tensor\",\"attribute\":"
                     "\"data\",\"moment\":\"enter\"");
    expect_line(&at, "\"time_ns\":14,\"depth\":1,\"call\":1,\"kind\":\"state\"");
    expect_line(&at, "\"attribute\":\"data\",\"moment\":\"exit\"");
    assert_null(strstr(text, "traincheck.sample"));
    free(text);
    text = traincheck_events(&folder, "8");
    assert_int_equal(count_of(text, "\"kind\":\"state\""), 2);
    free(text);
    traincheck_free(&folder);
}

/* ---- folders -------------------------------------------------------------------------------- */

static void expect_refused(const char *directory, const char *run, tocsin_status expected)
{
    tocsin_error error = {0};
    assert_int_equal(tocsin_traincheck_import(directory, run, NULL, NULL, &error), expected);
    assert_true(error.message[0] != 0);
}

static void test_folders_that_cannot_be_imported(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    const char *traces = folder.traces.directory;
    expect_refused("/nonexistent/folder", folder.run, TOCSIN_E_NOT_FOUND);
    expect_refused(traces, folder.run, TOCSIN_E_NOT_FOUND);
    traincheck_put(&folder, "instrumentation_1.log", "{}\n");
    expect_refused(traces, folder.run, TOCSIN_E_NOT_FOUND);
    traincheck_put_call(&folder, "trace_API_9_5.log", 10, "a", "f", "");
    expect_refused(traces, traces, TOCSIN_E_EXISTS);
    expect_refused(traces, "/nonexistent/folder/run", TOCSIN_E_NOT_FOUND);
    tocsin_import_options options = {.struct_bytes = 1};
    assert_int_equal(tocsin_traincheck_import(traces, folder.run, &options, NULL, NULL),
                     TOCSIN_E_ARGUMENT);
    assert_int_equal(access(folder.run, F_OK), -1);
    assert_int_equal(mkdir(folder.run, 0777), 0); /* an empty one will do */
    assert_int_equal(traincheck_import(&folder).records, 1);
    expect_refused(traces, folder.run, TOCSIN_E_EXISTS);
    traincheck_free(&folder);
}

/* A file of a trace where a folder stands cannot be read: nothing is left of the run. */
static void test_nothing_is_left_of_what_failed(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    char path[SCRATCH_PATH_BYTES];
    traincheck_put_call(&folder, "trace_API_9_5.log", 10, "a", "f", "");
    snprintf(path, sizeof path, "%s/trace_API_9_6.log", folder.traces.directory);
    assert_int_equal(mkdir(path, 0777), 0);
    expect_refused(folder.traces.directory, folder.run, TOCSIN_E_IO);
    assert_int_equal(access(folder.run, F_OK), -1);
    traincheck_free(&folder);
}

/* ---- the way back --------------------------------------------------------------------------- */

static tocsin_status export(const traincheck_folder *folder, tocsin_error *error)
{
    char path[SCRATCH_PATH_BYTES];
    uint64_t files = 0;
    snprintf(path, sizeof path, "%s/back", folder->traces.directory);
    tocsin_status status = tocsin_traincheck_export(folder->run, path, &files, error);
    if (status == TOCSIN_OK)
        assert_int_equal(files, 2);
    else
        assert_int_equal(access(path, F_OK), -1);
    return status;
}

static void expect_equal_files(const traincheck_folder *folder, const char *name)
{
    char path[SCRATCH_PATH_BYTES];
    size_t bytes, back_bytes;
    snprintf(path, sizeof path, "%s/%s", folder->traces.directory, name);
    uint8_t *original = scratch_read(path, &bytes);
    snprintf(path, sizeof path, "%s/back/%s", folder->traces.directory, name);
    uint8_t *back = scratch_read(path, &back_bytes);
    assert_int_equal(back_bytes, bytes);
    assert_memory_equal(back, original, bytes);
    free(original);
    free(back);
}

static void test_an_import_can_be_exported(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    char text[3000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    for (int i = 0; i < 1200; ++i) { /* more than one frame of lines */
        char id[20], line[4000];
        snprintf(id, sizeof id, "call%d", i);
        snprintf(line, sizeof line,
                 "{\"func_call_id\":\"%s\",\"thread_id\":5,\"process_id\":9,\"meta_vars\":{},"
                 "\"type\":\"function_call (pre)\",\"function\":\"f\",\"args\":{\"0\":"
                 "{\"str\":\"%s\"}},\"kwargs\":{\"x\":{\"float\":NaN}},\"time\":%d}\n",
                 id, text, i);
        traincheck_put(&folder, "trace_API_9_5.log", line);
        traincheck_put_return(&folder, "trace_API_9_5.log", i, id, "f", "{\"str\":\"y\"}");
    }
    put_round(&folder, 20, 5, "\"step\":0", 1);
    traincheck_import(&folder);
    tocsin_error error = {0};
    assert_int_equal(export(&folder, &error), TOCSIN_OK);
    expect_equal_files(&folder, "trace_API_9_5.log");
    expect_equal_files(&folder, "trace_VAR_20_20.log");
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/back", folder.traces.directory);
    assert_int_equal(tocsin_traincheck_export(folder.run, path, NULL, &error), TOCSIN_E_EXISTS);
    traincheck_free(&folder);
}

static void test_what_cannot_be_exported(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    tocsin_error error = {0};
    assert_int_equal(export(&folder, &error), TOCSIN_E_NOT_FOUND); /* no run */
    put_round(&folder, 20, 5, "\"step\":0", 1);
    traincheck_import(&folder);
    char path[SCRATCH_PATH_BYTES * 2];
    snprintf(path, sizeof path, "%s/traincheck/trace_VAR_20_20.log.zst", folder.run);
    size_t bytes;
    uint8_t *kept = scratch_read(path, &bytes);
    scratch_write(path, kept, bytes - 1); /* cut off */
    assert_int_equal(export(&folder, &error), TOCSIN_E_CORRUPT);
    kept[0] ^= 1;
    scratch_write(path, kept, bytes);
    assert_int_equal(export(&folder, &error), TOCSIN_E_CORRUPT);
    free(kept);
    unlink(path);
    snprintf(path, sizeof path, "%s/traincheck", folder.run);
    rmdir(path);
    assert_int_equal(export(&folder, &error), TOCSIN_E_NOT_FOUND); /* not imported */
    assert_non_null(strstr(error.message, "not imported"));
    traincheck_free(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_only_python_writes_is_read),
        cmocka_unit_test(test_a_glimpse_finds_what_a_parse_finds),
        cmocka_unit_test(test_calls_nest_and_carry_their_values),
        cmocka_unit_test(test_equal_arguments_have_equal_ids),
        cmocka_unit_test(test_what_cannot_be_used_is_named),
        cmocka_unit_test(test_the_sampler_takes_rounds),
        cmocka_unit_test(test_ranks_of_the_trace_are_believed),
        cmocka_unit_test(test_tracked_states_stand_where_they_were_seen),
        cmocka_unit_test(test_folders_that_cannot_be_imported),
        cmocka_unit_test(test_nothing_is_left_of_what_failed),
        cmocka_unit_test(test_an_import_can_be_exported),
        cmocka_unit_test(test_what_cannot_be_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
