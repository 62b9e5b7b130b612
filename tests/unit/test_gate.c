/* The gate: each check must have passed at this very step, and what is published has a name at
 * every moment. */
#include "trace_scratch.h"
#include <base/base.h>
#include <sys/stat.h>
#include <tocsin/gate.h>

static const tocsin_gate_evidence good = {.mode = TOCSIN_GATE_AUDIT,
                                          .step = 7,
                                          .gradients_step = 7,
                                          .weights_step = 7,
                                          .replay_step = 7,
                                          .replicas = 2};

static void assert_state(tocsin_gate_evidence evidence, tocsin_gate_state state, const char *reason)
{
    char given[TOCSIN_GATE_REASON_BYTES];
    assert_int_equal(tocsin_gate_decide(&evidence, given), state);
    assert_string_equal(given, reason);
}

static void test_decisions(void **state)
{
    (void)state;
    tocsin_gate_evidence evidence = good;
    assert_state(good, TOCSIN_GATE_VERIFIED, "");
    evidence.gradients_step = 6;
    assert_state(evidence, TOCSIN_GATE_QUARANTINED,
                 "the check of the gradients did not pass at step 7");
    evidence = good;
    evidence.weights_step = 6;
    assert_state(evidence, TOCSIN_GATE_QUARANTINED,
                 "the vote on the weights did not pass at step 7");
    evidence = good;
    evidence.replay_step = -1;
    assert_state(evidence, TOCSIN_GATE_QUARANTINED, "the replay did not pass at step 7");
    evidence.mode = TOCSIN_GATE_VOTE;
    assert_state(evidence, TOCSIN_GATE_VERIFIED, "");
    evidence.differing = 1;
    assert_state(evidence, TOCSIN_GATE_QUARANTINED,
                 "what was written is not what was to be saved (entries: 1)");
    evidence.unreadable = 1;
    assert_state(evidence, TOCSIN_GATE_QUARANTINED,
                 "what was written cannot be read back (ranks: 1)");
    evidence = good;
    evidence.replicas = 1;
    assert_state(evidence, TOCSIN_GATE_CANDIDATE,
                 "there is no second replica of some tensors: nobody could vote on them");
    evidence = (tocsin_gate_evidence){.mode = TOCSIN_GATE_AUDIT,
                                      .gradients_step = -1,
                                      .replay_step = -1,
                                      .replicas = 3}; /* before the first step */
    assert_state(evidence, TOCSIN_GATE_VERIFIED, "");
    assert_string_equal(tocsin_gate_state_name(TOCSIN_GATE_QUARANTINED), "quarantined");
}

static void put(const char *path, const char *text)
{
    assert_int_equal(tocsin_file_store(path, text, strlen(text), true, NULL), TOCSIN_OK);
}

static void assert_text(const char *path, const char *text)
{
    tocsin_string content = {0};
    assert_int_equal(tocsin_file_load(path, 100, &content, NULL), TOCSIN_OK);
    assert_string_equal(tocsin_string_text(&content), text);
    tocsin_string_free(&content);
}

static void test_publishing(void **state)
{
    (void)state;
    scratch place = scratch_new();
    char staged[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES];
    char in_staged[SCRATCH_PATH_BYTES + 8], in_path[SCRATCH_PATH_BYTES + 8];
    bool replaced = true;
    snprintf(staged, sizeof staged, "%s/.staged", place.directory);
    snprintf(path, sizeof path, "%s/model", place.directory);
    put(staged, "new");
    assert_int_equal(tocsin_gate_publish(staged, path, &replaced, NULL), TOCSIN_OK);
    assert_false(replaced);
    assert_text(path, "new");
    put(staged, "newer");
    assert_int_equal(tocsin_gate_publish(staged, path, &replaced, NULL), TOCSIN_OK);
    assert_false(replaced);
    assert_text(path, "newer");
    assert_int_equal(tocsin_gate_publish(staged, path, &replaced, NULL), TOCSIN_E_NOT_FOUND);
    assert_text(path, "newer");
    unlink(path);

    assert_int_equal(mkdir(staged, 0700), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(in_staged, sizeof in_staged, "%s/f", staged);
    snprintf(in_path, sizeof in_path, "%s/f", path);
    put(in_staged, "new");
    put(in_path, "old");
    assert_int_equal(tocsin_gate_publish(staged, path, &replaced, NULL), TOCSIN_OK);
    assert_true(replaced);
    assert_text(in_path, "new");
    assert_text(in_staged, "old");
    unlink(in_path);
    unlink(in_staged);
    rmdir(staged);
    rmdir(path);
    scratch_free(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_publishing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
