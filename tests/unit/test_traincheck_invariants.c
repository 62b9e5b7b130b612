/* TrainCheck's invariants as ours: what each relation and clause becomes, and what is refused. */
#include "traincheck_scratch.h"
#include <invariant/instance.h>

typedef struct skipped_list {
    size_t count;
    char text[1000]; /* of the last */
} skipped_list;

static void note_skipped(void *context, const char *file, uint64_t line, const char *text,
                         const char *why)
{
    skipped_list *list = context;
    (void)file;
    ++list->count;
    snprintf(list->text, sizeof list->text, "%d %s: %s", (int)line, text, why);
}

static tocsin_status load(const char *text, tocsin_invariant_set **set, skipped_list *list,
                          tocsin_error *error)
{
    traincheck_folder folder = traincheck_new();
    char path[SCRATCH_PATH_BYTES * 2];
    traincheck_put(&folder, "invariants.json", text);
    snprintf(path, sizeof path, "%s/invariants.json", folder.traces.directory);
    tocsin_foreign_options options = {
        .struct_bytes = sizeof options, .skipped = note_skipped, .context = list};
    tocsin_status status = tocsin_traincheck_invariants_load(path, &options, set, error);
    traincheck_free(&folder);
    return status;
}

#define CLAUSE(type, name, more)                                                                   \
    "{\"type\":\"" type "\",\"prop_name\":\"" name                                                 \
    "\",\"additional_path\":\"None\",\"prop_dtype\":\"__import__('os').abort()\"" more "}"
#define CONSTANT(name, values) CLAUSE("constant", name, ",\"values\":[" values "]")
#define PARAMETERS                                                                                 \
    "[{\"param_type\":\"VarTypeParam\",\"var_type\":\"torch.nn.Parameter\",\"attr_name\":"         \
    "\"grad\"},{\"param_type\":\"VarTypeParam\",\"var_type\":\"torch.nn.Parameter\","              \
    "\"attr_name\":\"grad\"}]"
#define FUNCTIONS                                                                                  \
    "[{\"param_type\":\"APIParam\",\"api_full_name\":\"a.step\"},{\"param_type\":\"APIParam\","    \
    "\"api_full_name\":\"a.zero_grad\"}]"
#define INVARIANT(relation, params, group, inverted, parts)                                        \
    "{\"text_description\":\"text\",\"relation\":\"" relation "\",\"params\":" params              \
    ",\"precondition\":{\"" group "\":{\"inverted\":" inverted ",\"preconditions\":[" parts        \
    "]}},\"num_positive_examples\":448,\"num_negative_examples\":2}\n"
#define CONSISTENCY(inverted, parts)                                                               \
    INVARIANT("ConsistencyRelation", PARAMETERS, "var", inverted, parts)
#define PART(clauses) "{\"clauses\":[" clauses "]}"
#define ALWAYS        "{\"clauses\":\"Unconditional\"}"

/* One invariant, with this sentence. */
static void expect_sentence(const char *text, const char *sentence)
{
    tocsin_invariant_set *set = NULL;
    skipped_list list = {.count = 0};
    tocsin_error error = {0};
    if (load(text, &set, &list, &error) != TOCSIN_OK)
        fail_msg("%s", error.message);
    if (list.count > 0)
        fail_msg("%s", list.text);
    assert_int_equal(tocsin_invariants_count(set), 1);
    assert_string_equal(tocsin_invariant_sentence(set, 0), sentence);
    uint64_t instances;
    uint32_t runs;
    tocsin_invariant_support(set, 0, &instances, &runs);
    assert_int_equal(instances, 448);
    tocsin_invariants_free(set);
}

static void expect_skipped(const char *text, const char *why)
{
    tocsin_invariant_set *set = NULL;
    skipped_list list = {.count = 0};
    assert_int_equal(load(text, &set, &list, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 0);
    assert_int_equal(list.count, 1);
    if (strstr(list.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", list.text, why);
    tocsin_invariants_free(set);
}

/* ---- preconditions -------------------------------------------------------------------------- */

#define EQUAL "The grad of each parameter before optimizer.step is equal on every two ranks"

static void test_identities_are_decided_by_what_a_pair_is(void **state)
{
    (void)state;
    expect_sentence(
        CONSISTENCY("false", PART(CLAUSE("unequal", "process_id", "") "," CLAUSE(
                                 "unequal", "thread_id",
                                 "") "," CLAUSE("unequal", "attributes._TRAINCHECK_data_ID",
                                                "") "," CLAUSE("consistent", "meta_vars.step",
                                                               "") "," CLAUSE("unequal",
                                                                              "meta_vars._DATA_"
                                                                              "PARALLEL_RANK",
                                                                              ""))),
        EQUAL ", when meta.rank differs.");
    expect_sentence(CONSISTENCY("false", PART(CLAUSE("unequal", "process_id", ""))), EQUAL ".");
    expect_skipped(CONSISTENCY("false", PART(CONSTANT("process_id", "77"))), "no run but the one");
    expect_skipped(CONSISTENCY("true", PART(CLAUSE("unequal", "process_id", ""))),
                   "no run but the one");
    /* one of two parts is impossible: the other stays */
    expect_sentence(CONSISTENCY("false", PART(CLAUSE("consistent", "process_id", "")) "," PART(
                                             CONSTANT("meta_vars.stage", "\"training\""))),
                    EQUAL ", when meta.stage is 'training' on both.");
    /* not (impossible) is always */
    expect_sentence(CONSISTENCY("true", PART(CLAUSE("consistent", "process_id", ""))), EQUAL ".");
}

static void test_clauses_have_their_counterparts(void **state)
{
    (void)state;
    expect_sentence(
        CONSISTENCY(
            "false",
            PART(CONSTANT("attributes.nbytes", "128.0") "," CONSTANT(
                "attributes.tensor_model_parallel",
                "false") "," CONSTANT("attributes.dtype",
                                      "\"torch.bfloat16\"") "," CLAUSE("exist", "meta_vars.group",
                                                                       "") "," CLAUSE("consistent",
                                                                                      "var_name",
                                                                                      ""))),
        EQUAL ", when meta.group is there on both and var.dtype is 'bfloat16' on both and "
              "var.name is the same on both and var.nbytes is 128 on both and "
              "var.tensor_parallel is False on both.");
    /* several values: any of them */
    expect_sentence(
        CONSISTENCY("true", PART(CONSTANT("meta_vars.stage", "\"init\",\"testing\"") "," CONSTANT(
                                "attributes.lr", "0.5"))),
        EQUAL ", unless meta.stage is 'init' on both and var.lr is 0.5 on both, or meta.stage is "
              "'testing' on both and var.lr is 0.5 on both.");
    expect_skipped(CONSISTENCY("false", PART(CONSTANT("meta_vars.context_managers.a", "1"))),
                   "a property that runs do not have");
    expect_skipped(CONSISTENCY("false", PART(CONSTANT("attributes.shape", "[1,2]"))), "a list");
    expect_skipped(CONSISTENCY("false", PART(CLAUSE("like", "var_name", ""))), "unknown form");
    expect_skipped(CONSISTENCY("false", "{\"clauses\":7}"), "unknown form");
    expect_skipped(CONSISTENCY("false", PART(CONSTANT("var_name", ""))), "no run but the one");
}

static void test_the_first_data_are_left_out(void **state)
{
    (void)state;
#define DATA                                                                                       \
    "[{\"var_type\":\"torch.nn.Parameter\",\"attr_name\":\"data\"},"                               \
    "{\"var_type\":\"torch.nn.Parameter\",\"attr_name\":\"data\"}]"
    expect_sentence(INVARIANT("ConsistencyRelation", DATA, "var", "false", ALWAYS),
                    "The data of each parameter after optimizer.step is equal on every two ranks, "
                    "when self.lr is there on both, or var.initial is False on both.");
    expect_skipped(INVARIANT("ConsistencyRelation", DATA, "var", "true",
                             PART(CONSTANT("meta_vars.stage", "\"init\""))),
                   "an inverted");
}

static void test_a_path_into_a_value_is_refused(void **state)
{
    (void)state;
    expect_skipped(CONSISTENCY("false", PART("{\"type\":\"constant\",\"prop_name\":\"meta_vars.x\","
                                             "\"additional_path\":[\"dtype\"],\"values\":[1]}")),
                   "a part of a value");
}

static void test_too_many_clauses_are_refused(void **state)
{
    (void)state;
#define EIGHT "1,2,3,4,5,6,7,8"
    expect_sentence(CONSISTENCY("false", PART(CONSTANT("meta_vars.a", "1"))),
                    EQUAL ", when meta.a is 1 on both.");
    expect_skipped(
        CONSISTENCY("false", PART(CONSTANT("meta_vars.a", EIGHT) "," CONSTANT(
                                 "meta_vars.b", EIGHT) "," CONSTANT("meta_vars.c", "1,2"))),
        "too many clauses");
    expect_skipped(
        CONSISTENCY("false", PART(CONSTANT("meta_vars.a", EIGHT) "," CONSTANT(
                                 "meta_vars.b", EIGHT)) "," PART(CONSTANT("meta_vars.c", "1"))),
        "too many parts");
}

/* ---- relations ------------------------------------------------------------------------------ */

static void test_relations_have_their_counterparts(void **state)
{
    (void)state;
    expect_sentence(INVARIANT("DistinctArgumentRelation",
                              "[{\"param_type\":\"APIParam\",\"api_full_name\":\"a.normal_\"}]",
                              "distinct_arg", "false", ALWAYS),
                    "No two calls of a.normal_ in one step have the same arguments.");
    expect_sentence(INVARIANT("FunctionCoverRelation", FUNCTIONS, "func_cover", "false", ALWAYS),
                    "Between two calls of a.zero_grad, a.step is called.");
    expect_sentence(INVARIANT("FunctionLeadRelation", FUNCTIONS, "func_lead", "false",
                              PART(CONSTANT("meta_vars.stage", "\"training\""))),
                    "After every call of a.step, a.zero_grad is called before the next one and "
                    "before the end, when call.last is False and meta.stage is 'training'.");
    /* "unless" leaves no room for "but the last": the next call is looked at instead */
    expect_sentence(INVARIANT("FunctionLeadRelation", FUNCTIONS, "func_lead", "true",
                              PART(CONSTANT("meta_vars.step", "0"))),
                    "Between two calls of a.step, a.zero_grad is called, unless meta.step is 0.");
    expect_sentence(
        INVARIANT("APIContainRelation", FUNCTIONS, "parent_func_call_pre", "false", ALWAYS),
        "Every call of a.step calls a.zero_grad.");
#define CHANGE(before, after)                                                                      \
    INVARIANT("APIContainRelation",                                                                \
              "[{\"param_type\":\"APIParam\",\"api_full_name\":\"a.step\"},{\"param_type\":"       \
              "\"VarTypeParam\",\"var_type\":\"torch.nn.Parameter\",\"attr_name\":\"grad\","       \
              "\"pre_value\":" before ",\"post_value\":" after "}]",                               \
              "parent_func_call_pre", "true", PART(CONSTANT("meta_vars.step", "0")))
    expect_sentence(
        CHANGE("\"non_zero\"", "null"),
        "Every call of a.step turns some grad from 'non_zero>none', unless meta.step is "
        "0.");
    expect_skipped(CHANGE("\"above_zero\"", "null"), "a plain change");
    expect_skipped(INVARIANT("FunctionLeadRelation", FUNCTIONS, "func_cover", "false", ALWAYS),
                   "no precondition for its relation");
    expect_skipped(INVARIANT("OtherRelation", FUNCTIONS, "x", "false", ALWAYS), "no counterpart");
    expect_skipped(INVARIANT("FunctionLeadRelation", "[]", "func_lead", "false", ALWAYS),
                   "no function");
    expect_skipped(INVARIANT("ConsistencyRelation",
                             "[{\"var_type\":\"torch.nn.Parameter\",\"attr_name\":\"data\"},"
                             "{\"var_type\":\"torch.nn.Parameter\",\"attr_name\":\"grad\"}]",
                             "var", "false", ALWAYS),
                   "two different attributes");
}

/* ---- files ---------------------------------------------------------------------------------- */

static void test_lines_that_are_no_invariants(void **state)
{
    (void)state;
    static const char *const bad[] = {"{",
                                      "[]",
                                      "7",
                                      "{\"relation\":\"x\",\"params\":[]}",
                                      "{\"relation\":7,\"params\":[],\"precondition\":{}}",
                                      "{\"relation\":\"x\",\"params\":{},\"precondition\":{}}"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(bad); ++i) {
        char text[3000];
        tocsin_invariant_set *set = NULL;
        skipped_list list = {.count = 0};
        tocsin_error error = {0};
        snprintf(text, sizeof text, "%s\n%s\n", CONSISTENCY("false", ALWAYS), bad[i]);
        assert_int_equal(load(text, &set, &list, &error), TOCSIN_E_FORMAT);
        assert_non_null(strstr(error.message, "line 3")); /* an empty one stands between */
        assert_null(set);
    }
    tocsin_invariant_set *set = NULL;
    assert_int_equal(tocsin_traincheck_invariants_load("/nonexistent", NULL, &set, NULL),
                     TOCSIN_E_NOT_FOUND);
    tocsin_foreign_options options = {.struct_bytes = 1};
    assert_int_equal(tocsin_traincheck_invariants_load("/dev/null", &options, &set, NULL),
                     TOCSIN_E_ARGUMENT);
}

static void test_files_are_told_apart(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    char path[SCRATCH_PATH_BYTES];
    traincheck_put(&folder, "theirs", "\n" CONSISTENCY("false", ALWAYS));
    traincheck_put(&folder, "ours", "{\"format\":\"tocsin-invariants\",\"version\":1}\n");
    traincheck_put(&folder, "empty", "\n");
    snprintf(path, sizeof path, "%s/theirs", folder.traces.directory);
    assert_true(tocsin_traincheck_is_invariant_file(path));
    snprintf(path, sizeof path, "%s/ours", folder.traces.directory);
    assert_false(tocsin_traincheck_is_invariant_file(path));
    snprintf(path, sizeof path, "%s/empty", folder.traces.directory);
    assert_false(tocsin_traincheck_is_invariant_file(path));
    assert_false(tocsin_traincheck_is_invariant_file("/nonexistent"));
    traincheck_free(&folder);
}

static void test_sets_are_added_to(void **state)
{
    (void)state;
    tocsin_invariant_set *set = NULL;
    skipped_list list = {.count = 0};
    assert_int_equal(load(CONSISTENCY("false", ALWAYS), &set, &list, NULL), TOCSIN_OK);
    assert_int_equal(
        load(CONSISTENCY("false", PART(CONSTANT("meta_vars.a", "null"))), &set, &list, NULL),
        TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 2);
    assert_int_equal(load("{}\n", &set, &list, NULL), TOCSIN_E_FORMAT);
    assert_int_equal(tocsin_invariants_count(set), 2);
    tocsin_invariants_free(set);
}

/* ---- tensors in calls ----------------------------------------------------------------------- */

#define API "{\"param_type\":\"APIParam\",\"api_full_name\":\"a.relu\"}"
#define OUTPUT(property, value, parts)                                                             \
    INVARIANT("ConsistentOutputRelation",                                                          \
              "[" API ",{\"param_type\":\"VarTypeParam\",\"var_type\":\"torch.Tensor\","           \
              "\"attr_name\":\"" property "\",\"const_value\":" value "}]",                        \
              "pre_event", "false", parts)
#define TENSOR(input, index, path)                                                                 \
    "{\"param_type\":\"InputOutputParam\",\"name\":\"tensors\",\"index\":" index                   \
    ",\"type\":\"torch.Tensor\",\"additional_path\":[" path                                        \
    "],\"api_name\":\"a.relu\",\"is_input\":" input "}"
#define INPUT_OUTPUT(in, out)                                                                      \
    INVARIANT("ConsistentInputOutputRelation", "[" in "," API "," out "]", "pre_event", "false",   \
              ALWAYS)

static void test_what_is_returned_has_its_counterparts(void **state)
{
    (void)state;
    expect_sentence(OUTPUT("dtype", "\"torch.float16\"", ALWAYS),
                    "Every call of a.relu returns output.dtype = 'float16'.");
    expect_sentence(OUTPUT("shape", "[16,10]", PART(CONSTANT("meta_vars.stage", "\"training\""))),
                    "Every call of a.relu returns output.shape = '(16, 10)', when meta.stage is "
                    "'training'.");
#define AUTOCAST "meta_vars.context_managers.torch.amp.autocast_mode.autocast"
#define IN_AUTOCAST                                                                                \
    CLAUSE("exist", AUTOCAST, "")                                                                  \
    "," CONSTANT(AUTOCAST ".device_type", "\"cuda\"") "," CONSTANT(AUTOCAST ".enabled", "true")
    expect_sentence(OUTPUT("dtype", "\"torch.float16\"",
                           PART(IN_AUTOCAST "," CONSTANT(AUTOCAST ".dtype", "\"torch.float16\""))),
                    "Every call of a.relu returns output.dtype = 'float16', when meta.autocast is "
                    "'torch.float16'.");
    expect_skipped(OUTPUT("dtype", "\"torch.float16\"", PART(IN_AUTOCAST)), "of any dtype");
    expect_skipped(OUTPUT("dtype", "\"torch.float16\"",
                          PART(CONSTANT(AUTOCAST ".enabled", "false") "," CONSTANT(
                              AUTOCAST ".dtype", "\"torch.float16\""))),
                   "no run but the one");
    /* what not every recording says is judged only where it does */
    expect_sentence(OUTPUT("is_cuda", "false", ALWAYS),
                    "Every call of a.relu returns output.is_cuda = False, when output.is_cuda is "
                    "there.");
    expect_sentence(OUTPUT("grad", "null", ALWAYS),
                    "Every call of a.relu returns output.grad = None, when output.grad is there.");
    expect_skipped(OUTPUT("layout", "{}", ALWAYS), "a list or an object");
    expect_skipped(OUTPUT("shape", "[\"a\"]", ALWAYS), "no shape");
    expect_skipped(OUTPUT("_ML_DAIKON_data_ID", "7", ALWAYS), "no plain property");
    expect_sentence(
        INPUT_OUTPUT(TENSOR("true", "1", "\"shape\",0"), TENSOR("false", "0", "\"shape\",1")),
        "Every call of a.relu returns output[0].shape[1] equal to input[1].shape[0], "
        "when input[1].shape[0] is there and output[0].shape[1] is there.");
    expect_skipped(
        INPUT_OUTPUT(TENSOR("false", "0", "\"dtype\""), TENSOR("false", "0", "\"dtype\"")),
        "a part of a tensor");
    expect_skipped(
        INPUT_OUTPUT(TENSOR("true", "0", "\"lengths\",0"), TENSOR("false", "0", "\"dtype\"")),
        "a part of a tensor");
    expect_skipped(
        INPUT_OUTPUT(TENSOR("true", "99", "\"dtype\""), TENSOR("false", "0", "\"dtype\"")),
        "a part of a tensor");
}

#define WITH(caller, arguments)                                                                    \
    INVARIANT("APIContainRelation",                                                                \
              "[{\"param_type\":\"APIParam\",\"api_full_name\":\"a.step\"" caller                  \
              "},{\"param_type\":\"APIParam\",\"api_full_name\":\"a.zeros\",\"arguments\":{"       \
              "\"args\":{" arguments "},\"func_name\":\"a.zeros\"}}]",                             \
              "parent_func_call_pre", "false", ALWAYS)

/* One invariant an argument. */
static void test_arguments_of_what_is_called(void **state)
{
    (void)state;
    static const char *const sentences[] = {
        "Every call of a.step calls a.zeros with arg.dtype = 'torch.float32'.",
        "Every call of a.step calls a.zeros with arg.group.type = 'dict'.",
        "Every call of a.step calls a.zeros with arg.items.length = 0.",
        "Every call of a.step calls a.zeros with arg.lr = 1.0.",
        "Every call of a.step calls a.zeros with arg.n = 1.",
        "Every call of a.step calls a.zeros with arg.out = None.",
        "Every call of a.step calls a.zeros with arg.x.dtype = 'float16'.",
        "Every call of a.step calls a.zeros with self.type = 'a.Adam'."};
    tocsin_invariant_set *set = NULL;
    skipped_list list = {.count = 0};
    assert_int_equal(
        load(
            WITH("",
                 "\"self\":{\"a.Adam\":{}},\"group\":{\"dict\":{\"lr\":1}},\"items\":{\"list\":[]},"
                 "\"lr\":{\"float\":1.0},\"n\":{\"int\":1},\"out\":{\"NoneType\":null},"
                 "\"dtype\":{\"torch.dtype\":\"torch.float32\"},\"x\":{\"torch.HalfTensor\":"
                 "{\"dtype\":\"torch.float16\"}}"),
            &set, &list, NULL),
        TOCSIN_OK);
    assert_int_equal(list.count, 0);
    assert_int_equal(tocsin_invariants_count(set), TOCSIN_COUNT_OF(sentences));
    for (size_t i = 0; i < TOCSIN_COUNT_OF(sentences); ++i) {
        bool found = false;
        for (size_t j = 0; j < tocsin_invariants_count(set); ++j)
            found |= strcmp(tocsin_invariant_sentence(set, j), sentences[i]) == 0;
        if (!found)
            fail_msg("nothing says: %s", sentences[i]);
    }
    tocsin_invariants_free(set);
    expect_skipped(WITH("", "\"p\":7"), "another form");
    expect_skipped(WITH(",\"exception\":\"E\"", "\"p\":{\"int\":7}"), "raises");
    expect_skipped(WITH(",\"arguments\":{\"args\":{\"p\":{\"int\":7}}}", "\"p\":{\"int\":7}"),
                   "given arguments");
}

static void test_limits_have_their_counterparts(void **state)
{
    (void)state;
#define LIMIT "{\"param_type\":\"InputOutputParam\",\"name\":\"max_length\",\"is_input\":true}"
#define LEAST "{\"param_type\":\"InputOutputParam\",\"name\":\"min_length\",\"is_input\":true}"
    expect_sentence(INVARIANT("ThresholdRelation",
                              "[" LIMIT "," API "," TENSOR("false", "0", "\"shape\",1") "]",
                              "pre_event", "false", ALWAYS),
                    "Every call of a.relu returns return.shape[1] of at most arg.max_length, when "
                    "arg.max_length is there.");
    expect_sentence(INVARIANT("ThresholdRelation",
                              "[" TENSOR("false", "0", "\"shape\",0") "," API "," LEAST "]",
                              "pre_event", "false", ALWAYS),
                    "Every call of a.relu returns return.shape[0] of at least arg.min_length, "
                    "when arg.min_length is there.");
    expect_skipped(INVARIANT("ThresholdRelation",
                             "[" LIMIT "," API "," TENSOR("false", "0", "\"lengths\",0") "]",
                             "pre_event", "false", ALWAYS),
                   "something else than a size");
}

/* ---- the way back --------------------------------------------------------------------------- */

/* Written and read again, the invariant says the same. */
static void expect_return(const char *text, const char *sentence)
{
    tocsin_invariant_set *set = NULL, *again = NULL;
    skipped_list list = {.count = 0};
    assert_int_equal(load(text, &set, &list, NULL), TOCSIN_OK);
    traincheck_folder folder = traincheck_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/back.json", folder.traces.directory);
    uint64_t written = 0;
    assert_int_equal(tocsin_traincheck_invariants_save(set, path, false, NULL, &written, NULL),
                     TOCSIN_OK);
    assert_int_equal(written, 1);
    assert_int_equal(tocsin_traincheck_invariants_save(set, path, false, NULL, NULL, NULL),
                     TOCSIN_E_EXISTS);
    assert_true(tocsin_traincheck_is_invariant_file(path));
    assert_int_equal(tocsin_traincheck_invariants_load(path, NULL, &again, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(again), 1);
    assert_string_equal(tocsin_invariant_sentence(again, 0), sentence);
    tocsin_invariants_free(set);
    tocsin_invariants_free(again);
    traincheck_free(&folder);
}

static void test_what_was_read_can_be_written(void **state)
{
    (void)state;
    expect_return(INVARIANT("APIContainRelation", FUNCTIONS, "parent_func_call_pre", "true",
                            PART(CONSTANT("meta_vars.step", "0"))),
                  "Every call of a.step calls a.zero_grad, unless meta.step is 0.");
    expect_return(CHANGE("\"non_zero\"", "null"),
                  "Every call of a.step turns some grad from 'non_zero>none', unless meta.step is "
                  "0.");
    expect_return(INVARIANT("FunctionCoverRelation", FUNCTIONS, "func_cover", "false", ALWAYS),
                  "Between two calls of a.zero_grad, a.step is called.");
    expect_return(INVARIANT("FunctionLeadRelation", FUNCTIONS, "func_lead", "false", ALWAYS),
                  "After every call of a.step, a.zero_grad is called before the next one and "
                  "before the end, when call.last is False.");
    expect_return(INVARIANT("DistinctArgumentRelation",
                            "[{\"param_type\":\"APIParam\",\"api_full_name\":\"a.normal_\"}]",
                            "distinct_arg", "false", ALWAYS),
                  "No two calls of a.normal_ in one step have the same arguments.");
    expect_return(WITH("", "\"lr\":{\"float\":0.5}"),
                  "Every call of a.step calls a.zeros with arg.lr = 0.5.");
    expect_return(WITH("", "\"self\":{\"a.Adam\":{}}"),
                  "Every call of a.step calls a.zeros with self.type = 'a.Adam'.");
    expect_return(WITH("", "\"out\":{\"NoneType\":null}"),
                  "Every call of a.step calls a.zeros with arg.out = None.");
    expect_return(OUTPUT("shape", "[16,10]", ALWAYS),
                  "Every call of a.relu returns output.shape = '(16, 10)'.");
    expect_return(OUTPUT("is_cuda", "false", PART(CONSTANT("meta_vars.step", "0"))),
                  "Every call of a.relu returns output.is_cuda = False, when meta.step is 0 and "
                  "output.is_cuda is there.");
    expect_return(
        INPUT_OUTPUT(TENSOR("true", "1", "\"shape\",0"), TENSOR("false", "0", "\"shape\",1")),
        "Every call of a.relu returns output[0].shape[1] equal to input[1].shape[0], "
        "when input[1].shape[0] is there and output[0].shape[1] is there.");
    /* ranks are told apart, and variables by their name, as ours always are */
    expect_return(
        CONSISTENCY("false", PART(CONSTANT("attributes.dtype", "\"torch.float16\"") "," CLAUSE(
                                 "unequal", "meta_vars.group", ""))),
        EQUAL ", when meta.group differs and var.dtype is 'float16' on both and var.name "
              "is the same on both.");
    expect_return(INVARIANT("ConsistencyRelation", DATA, "var", "false", ALWAYS),
                  "The data of each parameter after optimizer.step is equal on every two ranks, "
                  "when self.lr is there on both and var.name is the same on both, or var.initial "
                  "is False on both and var.name is the same on both.");
}

static void test_what_it_cannot_say_is_named(void **state)
{
    (void)state;
    tocsin_invariant_set *set = NULL;
    skipped_list list = {.count = 0};
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/tests/golden/invariants/by_hand.jsonl",
             getenv("TOCSIN_SOURCE") != NULL ? getenv("TOCSIN_SOURCE") : ".");
    assert_int_equal(tocsin_invariants_load(path, &set, NULL), TOCSIN_OK);
    tocsin_foreign_options options = {
        .struct_bytes = sizeof options, .skipped = note_skipped, .context = &list};
    uint64_t written = 0;
    assert_int_equal(
        tocsin_traincheck_invariants_save(set, "/dev/null", true, &options, &written, NULL),
        TOCSIN_OK);
    assert_true(list.count > 0);
    assert_int_equal(list.count + written, tocsin_invariants_count(set));
    tocsin_invariants_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identities_are_decided_by_what_a_pair_is),
        cmocka_unit_test(test_clauses_have_their_counterparts),
        cmocka_unit_test(test_the_first_data_are_left_out),
        cmocka_unit_test(test_a_path_into_a_value_is_refused),
        cmocka_unit_test(test_too_many_clauses_are_refused),
        cmocka_unit_test(test_relations_have_their_counterparts),
        cmocka_unit_test(test_what_is_returned_has_its_counterparts),
        cmocka_unit_test(test_arguments_of_what_is_called),
        cmocka_unit_test(test_limits_have_their_counterparts),
        cmocka_unit_test(test_lines_that_are_no_invariants),
        cmocka_unit_test(test_files_are_told_apart),
        cmocka_unit_test(test_sets_are_added_to),
        cmocka_unit_test(test_what_was_read_can_be_written),
        cmocka_unit_test(test_what_it_cannot_say_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
