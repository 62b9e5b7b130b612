/* Every allocation and system call of the user's relations fails once: it is reported, nothing
 * leaks, and no process is left behind. */
#include "../unit/fake_training.h"
#include "every_fault.h"
#include <tocsin/relation.h>

static void enter_step(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    (void)own;
    (void)view;
    host->begin(host, "update");
    host->context(host);
    host->field_text(host, "word", "plain");
    host->fact(host, "is seen");
    host->emit(host, NULL, NULL);
}

static const tocsin_relation_call steps[] = {{.role = TOCSIN_ROLE_OPTIMIZER_STEP}};
static const tocsin_relation_definition seeing = {.version = TOCSIN_RELATION_VERSION,
                                                  .name = "seeing",
                                                  .calls = steps,
                                                  .call_count = 1,
                                                  .enter = enter_step};
static const char command[] =
    "read -r line; echo '{\"relation\":\"told\",\"version\":1,\"on\":[\"enter\"],\"calls\":["
    "{\"role\":\"optimizer.step\"}]}'; while read -r line; do echo "
    "'[{\"subject\":\"update\",\"facts\":[\"is told of\"],\"context\":true}]'; done";

static tocsin_status ignore(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)error;
    if (instance->evidence.detail == NULL)
        ++*(unsigned *)context;
    return TOCSIN_OK;
}

static tocsin_status observe(const tocsin_relations *relations, tocsin_error *error)
{
    tocsin_vocabulary *vocabulary;
    tocsin_observer *observer = NULL;
    unsigned made = 0;
    TOCSIN_TRY(tocsin_vocabulary_new(&vocabulary, error));
    tocsin_observer_options options = {
        .vocabulary = vocabulary, .sink = ignore, .context = &made, .relations = relations};
    tocsin_status status = tocsin_observer_new(&options, &observer, error);
    if (status == TOCSIN_OK) {
        static fake_process process; /* its tables are made once, with no fault armed */
        process.observer = observer;
        process.status = TOCSIN_OK;
        process.parameter_count = 0;
        fake_start(&process);
        train(&process, (fake_step){.lr = 0.1});
        status = process.status;
        if (status != TOCSIN_OK)
            *error = process.error;
    }
    if (status == TOCSIN_OK)
        status = tocsin_observer_finish(observer, error);
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(vocabulary);
    return status;
}

static tocsin_status of_the_program(void *context, tocsin_error *error)
{
    tocsin_relations *relations;
    (void)context;
    TOCSIN_TRY(tocsin_relations_new(&relations, error));
    tocsin_status status = tocsin_relations_add(relations, &seeing, error);
    if (status == TOCSIN_OK)
        status = observe(relations, error);
    tocsin_relations_free(relations);
    return status;
}

static tocsin_status of_a_command(void *context, tocsin_error *error)
{
    tocsin_relations *relations;
    (void)context;
    TOCSIN_TRY(tocsin_relations_new(&relations, error));
    tocsin_status status = tocsin_relations_start(relations, command, 0, error);
    if (status == TOCSIN_OK)
        status = observe(relations, error);
    tocsin_relations_free(relations);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    tocsin_error error;
    assert_int_equal(of_the_program(NULL, &error), TOCSIN_OK); /* fills the fake's tables */
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, of_the_program, NULL) > 20);
}

/* What a command is asked in the middle of a run fails as the relation, whatever the reason was. */
static void test_commands(void **state)
{
    (void)state;
    uint64_t nth = 0;
    for (bool hit = true; hit;) {
        tocsin_error error = {0};
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, ++nth);
        tocsin_status status = of_a_command(NULL, &error);
        hit = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_true(status == TOCSIN_OK ? !hit : error.message[0] != 0);
    }
    assert_true(nth > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, of_a_command, NULL) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
