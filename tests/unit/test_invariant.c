/* Invariants in files: what is written is read, what is wrong is named with its line, sentences,
 * ids and order depend on content alone; and what a recorder must record for them. */
#include "trace_scratch.h"
#include <invariant/instance.h>

#define HEADER "{\"format\":\"tocsin-invariants\",\"version\":1}\n"

static const char *source_path(const char *name, char path[SCRATCH_PATH_BYTES])
{
    const char *source = getenv("TOCSIN_SOURCE");
    snprintf(path, SCRATCH_PATH_BYTES, "%s/tests/golden/invariants/%s",
             source != NULL ? source : ".", name);
    return path;
}

static tocsin_invariant_set *load(const char *path)
{
    tocsin_error error;
    tocsin_invariant_set *set;
    if (tocsin_invariants_load(path, &set, &error) != TOCSIN_OK)
        fail_msg("%s: %s", path, error.message);
    return set;
}

static void file_path(const scratch *run, const char *name, char path[SCRATCH_PATH_BYTES])
{
    snprintf(path, SCRATCH_PATH_BYTES, "%s/%s", run->directory, name);
}

/* ---- golden files -------------------------------------------------------------------------- */

static void expect_golden(const char *path, const char *golden)
{
    char golden_path[SCRATCH_PATH_BYTES];
    size_t made_bytes, golden_bytes;
    uint8_t *made = scratch_read(path, &made_bytes);
    uint8_t *expected = scratch_read(source_path(golden, golden_path), &golden_bytes);
    made[made_bytes] = expected[golden_bytes] = 0;
    assert_string_equal((const char *)made, (const char *)expected);
    free(made);
    free(expected);
}

static void test_by_hand(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_BYTES], saved[SCRATCH_PATH_BYTES], again[SCRATCH_PATH_BYTES];
    scratch run = scratch_new();
    tocsin_invariant_set *set = load(source_path("by_hand.jsonl", path));
    assert_int_equal(tocsin_invariants_count(set), 12);
    file_path(&run, "saved.jsonl", saved);
    file_path(&run, "again.jsonl", again);
    assert_int_equal(tocsin_invariants_save(set, saved, 0, NULL), TOCSIN_OK);
    expect_golden(saved, "saved.jsonl");
    tocsin_error error;
    assert_int_equal(tocsin_invariants_save(set, saved, 0, &error), TOCSIN_E_EXISTS);
    assert_int_equal(tocsin_invariants_save(set, saved, 1, &error), TOCSIN_OK);

    tocsin_invariant_set *read = load(saved);
    assert_int_equal(tocsin_invariants_save(read, again, 0, NULL), TOCSIN_OK);
    expect_golden(again, "saved.jsonl");
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i)
        assert_string_equal(tocsin_invariant_id(set, i), tocsin_invariant_id(read, i));
    /* appending what is there adds nothing */
    assert_int_equal(tocsin_invariants_append(read, path, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(read), 12);
    tocsin_invariants_free(read);

    file_path(&run, "selection", again);
    assert_int_equal(tocsin_invariants_write_selection(set, again, &error), TOCSIN_OK);
    expect_golden(again, "selection.txt");
    tocsin_invariants_free(set);
    scratch_free(&run);
}

static bool says(const tocsin_invariant_set *set, const char *sentence)
{
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i)
        if (strcmp(tocsin_invariant_sentence(set, i), sentence) == 0)
            return true;
    return false;
}

static void test_sentences(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set = load(source_path("by_hand.jsonl", path));
    assert_true(says(set, "Every call of optimizer.step changes each parameter that has a non-zero "
                          "gradient."));
    assert_true(says(set, "The data of each parameter after optimizer.step is equal on every two "
                          "ranks, when meta.rank differs and var.name is the same on both and "
                          "var.tensor_parallel is False on both."));
    assert_true(says(set, "Every call of optimizer.step calls torch._foreach_add_, when "
                          "self.foreach is True, or self.fused is there."));
    assert_true(says(set, "Every call of train_step calls backward, unless meta.stage is "
                          "'evaluation'."));
    assert_true(says(set, "Between two calls of optimizer.step, zero_grad is called."));
    assert_true(says(set, "Every call of torch.nn.functional.dropout has arg.p = 0.1, when "
                          "arg.training is True."));
    uint64_t instances = 9, sum = 0;
    uint32_t runs = 9;
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i) {
        tocsin_invariant_support(set, i, &instances, &runs);
        sum += instances + runs;
        const tocsin_code *code = tocsin_code_find(tocsin_relation_code(tocsin_population_relation(
            tocsin_invariants_vocabulary(set), tocsin_invariants_get(set, i)->population)));
        assert_non_null(code);
        assert_string_equal(code->relation, tocsin_invariant_relation(set, i));
    }
    assert_int_equal(sum, 15);
    tocsin_invariants_free(set);
    assert_null(tocsin_code_find("TOC999"));
    assert_null(tocsin_code_at(99));
    assert_string_equal(tocsin_code_at(0)->code, "TOC001");
}

/* ---- bad files ----------------------------------------------------------------------------- */

static void expect_error(const char *text, tocsin_status expected, const char *message)
{
    char path[SCRATCH_PATH_BYTES];
    scratch run = scratch_new();
    tocsin_error error = {0};
    tocsin_invariant_set *set = NULL;
    file_path(&run, "bad.jsonl", path);
    scratch_write(path, text, strlen(text));
    tocsin_status status = tocsin_invariants_load(path, &set, &error);
    if (status != expected || strstr(error.message, message) == NULL)
        fail_msg("%s\ngave %d: %s", text, status, error.message);
    assert_string_equal(error.where, path);
    assert_null(set);
    scratch_free(&run);
}

#define STEP "\"population\":{\"kind\":\"repeated call\",\"role\":\"optimizer.step\"}"
#define ZERO "\"fact\":{\"is\":\"preceded by\",\"role\":\"zero_grad\"}"

static void test_bad_files(void **state)
{
    (void)state;
    const tocsin_status format = TOCSIN_E_FORMAT;
    expect_error("", format, "empty");
    expect_error("{}\n", format, "line 1: not a file of invariants");
    expect_error("[1]\n", format, "line 1");
    expect_error("{\"format\":\"tocsin-invariants\",\"version\":2}\n", TOCSIN_E_VERSION,
                 "version 2");
    expect_error(HEADER "{\n", format, "line 2");
    expect_error(HEADER "\n\n[]\n", format, "line 4: the invariant is not an object");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO "}\n", format,
                 "line 2: the invariant needs \"when\"");
    expect_error(HEADER "{\"relation\":\"APIArg\"," STEP "," ZERO ",\"when\":[]}\n", format,
                 "relation \"APIArg\" has no population \"repeated call\"");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP
                        ",\"fact\":{\"is\":\"equal\"},\"when\":[]}\n",
                 format, "can not be stated");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP
                        ",\"fact\":{\"is\":\"preceded by\",\"role\":\"zero\"},\"when\":[]}\n",
                 format, "unknown role \"zero\"");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP
                        ",\"fact\":{\"is\":\"preceded by\"},\"when\":[]}\n",
                 format, "either \"role\" or \"function\"");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO ",\"whenever\":[]}\n",
                 format, "unknown member \"whenever\"");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO ",\"when\":[1]}\n", format,
                 "\"when\" holds something else");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO
                        ",\"when\":[[{\"kind\":\"unequal\",\"field\":\"meta.rank\"}]]}\n",
                 format, "needs a population of pairs");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO
                        ",\"when\":[[{\"kind\":\"constant\",\"field\":\"meta.stage\"}]]}\n",
                 format, "needs \"value\"");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO
                        ",\"inverted\":true,\"when\":[]}\n",
                 format, "never holds");
    expect_error(HEADER "{\"relation\":\"APISequence\"," STEP "," ZERO
                        ",\"when\":[],\"support\":{\"instances\":-1,\"runs\":0}}\n",
                 format, "\"support\"");
    tocsin_error error;
    tocsin_invariant_set *set;
    assert_int_equal(tocsin_invariants_load("/nonexistent/inv.jsonl", &set, &error),
                     TOCSIN_E_NOT_FOUND);
}

/* ---- clauses ------------------------------------------------------------------------------- */

static void test_clauses(void **state)
{
    (void)state;
    const tocsin_field fields[] = {{2, 7, 7}, {5, 7, 8}, {9, 0, 3}};
    const struct {
        tocsin_clause clause;
        bool holds;
    } cases[] = {
        {{TOCSIN_CLAUSE_CONSTANT, 2, 7}, true},    {{TOCSIN_CLAUSE_CONSTANT, 2, 8}, false},
        {{TOCSIN_CLAUSE_CONSTANT, 5, 7}, false},   {{TOCSIN_CLAUSE_CONSISTENT, 2, 0}, true},
        {{TOCSIN_CLAUSE_CONSISTENT, 5, 0}, false}, {{TOCSIN_CLAUSE_UNEQUAL, 5, 0}, true},
        {{TOCSIN_CLAUSE_UNEQUAL, 2, 0}, false},    {{TOCSIN_CLAUSE_UNEQUAL, 9, 0}, false},
        {{TOCSIN_CLAUSE_UNEQUAL, 2, 8}, true},     {{TOCSIN_CLAUSE_UNEQUAL, 2, 7}, false},
        {{TOCSIN_CLAUSE_UNEQUAL, 5, 3}, true},     {{TOCSIN_CLAUSE_UNEQUAL, 5, 8}, false},
        {{TOCSIN_CLAUSE_EXIST, 5, 0}, true},       {{TOCSIN_CLAUSE_EXIST, 9, 0}, false},
        {{TOCSIN_CLAUSE_EXIST, 1, 0}, false},      {{TOCSIN_CLAUSE_EXIST, 10, 0}, false}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i)
        assert_int_equal(tocsin_clause_holds(&cases[i].clause, fields, 3), cases[i].holds);

    const tocsin_clause yes = {TOCSIN_CLAUSE_CONSTANT, 2, 7}, no = {TOCSIN_CLAUSE_CONSTANT, 2, 8};
    const tocsin_clause both[] = {yes, no};
    const tocsin_conjunction any[] = {{2, both}, {1, &yes}};
    tocsin_instance instance = {.fields = fields, .field_count = 3};
    tocsin_precondition when = {.count = 1, .any = any};
    assert_false(tocsin_precondition_holds(&when, &instance));
    when.inverted = true;
    assert_true(tocsin_precondition_holds(&when, &instance));
    when = (tocsin_precondition){.count = 2, .any = any};
    assert_true(tocsin_precondition_holds(&when, &instance));
    when = (tocsin_precondition){.count = 0};
    assert_true(tocsin_precondition_holds(&when, &instance));
}

/* ---- vocabulary ---------------------------------------------------------------------------- */

static tocsin_scalar real_scalar(tocsin_vocabulary *vocabulary, double real)
{
    tocsin_literal literal = {.kind = TOCSIN_VALUE_FLOAT, .real = real};
    return tocsin_scalar_of(vocabulary, &literal);
}

static void test_vocabulary(void **state)
{
    (void)state;
    tocsin_vocabulary *vocabulary, *copy;
    assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
    tocsin_literal one = {.kind = TOCSIN_VALUE_INT, .integer = 1};
    tocsin_literal truth = {.kind = TOCSIN_VALUE_BOOL, .integer = 1};
    tocsin_literal word = {.kind = TOCSIN_VALUE_STRING, .text = "1"};
    tocsin_literal none = {.kind = TOCSIN_VALUE_NONE};
    tocsin_scalar ids[] = {tocsin_scalar_of(vocabulary, &none),
                           tocsin_scalar_of(vocabulary, &truth), tocsin_scalar_of(vocabulary, &one),
                           real_scalar(vocabulary, 1), tocsin_scalar_of(vocabulary, &word)};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(ids); ++i)
        for (size_t k = 0; k < TOCSIN_COUNT_OF(ids); ++k) {
            int order = tocsin_scalar_compare(vocabulary, ids[i], ids[k]);
            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
        }
    assert_int_equal(real_scalar(vocabulary, -0.0), real_scalar(vocabulary, 0.0));
    assert_int_equal(real_scalar(vocabulary, 0.0 / 0.0 * 1.0),
                     real_scalar(vocabulary, -(0.0 / 0.0)));
    assert_true(tocsin_scalar_compare(vocabulary, real_scalar(vocabulary, -5),
                                      real_scalar(vocabulary, 2)) < 0);
    assert_int_equal(tocsin_vocabulary_copy(vocabulary, &copy, NULL), TOCSIN_OK);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(ids); ++i)
        assert_int_equal(tocsin_scalar_literal(copy, ids[i]).kind,
                         tocsin_scalar_literal(vocabulary, ids[i]).kind);
    tocsin_vocabulary_free(copy);
    assert_true(tocsin_field_is_identity("meta.rank"));
    assert_false(tocsin_field_is_identity("meta.stage"));
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_ARGUMENT_IS,
                           .name = tocsin_symbol_of(vocabulary, "arg.p"),
                           .value = ids[2]};
    tocsin_fact fact = tocsin_fact_of(vocabulary, &key);
    assert_int_equal(tocsin_fact_find(vocabulary, &key), fact);
    assert_true(tocsin_fact_is_about(vocabulary, fact, tocsin_symbol_of(vocabulary, "arg.p")));
    assert_true(
        tocsin_fact_is_about(vocabulary, fact, tocsin_symbol_of(vocabulary, "arg.p.dtype")));
    assert_false(
        tocsin_fact_is_about(vocabulary, fact, tocsin_symbol_of(vocabulary, "arg.padding")));
    tocsin_vocabulary_free(vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),    cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_bad_files),  cmocka_unit_test(test_clauses),
        cmocka_unit_test(test_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
