/* Every allocation of learning fails once: the failure is reported and nothing leaks (run under
 * AddressSanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/infer_examples.h"

static tocsin_status add_examples(examples_writer *writer, tocsin_fact fact)
{
    static const struct {
        uint32_t run;
        bool fact;
        const char *fields;
    } instances[] = {
        {0, true, "var.a=x var.b=x meta.c=True"},   {0, true, "var.a=y var.b=y meta.c=True"},
        {1, true, "var.a=x var.b=x meta.c=True"},   {1, true, "var.a=y var.b=y meta.c=True"},
        {0, false, "var.a=x var.b=y meta.c=True"},  {0, false, "var.a=y var.b=x meta.c=True"},
        {1, false, "var.a=x var.b=y meta.c=True"},  {1, false, "var.a=y var.b=x meta.c=True"},
        {0, false, "var.a=x var.b=x meta.c=False"}, {1, false, "var.a=x var.b=x meta.c=False"}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(instances); ++i)
        TOCSIN_TRY(write_example(writer, instances[i].run, instances[i].fields,
                                 instances[i].fact ? fact : 0));
    return TOCSIN_OK;
}

static void note(void *context, const char *relation, const char *sentence, const char *reason)
{
    (void)relation;
    (void)sentence;
    *(const char **)context = reason;
}

/* Two populations, a split, a dropped hypothesis. */
static tocsin_status learn_all(tocsin_error *error)
{
    tocsin_invariant_set *set;
    TOCSIN_TRY(tocsin_invariants_new(&set, error));
    tocsin_vocabulary *vocabulary = tocsin_invariants_vocabulary(set);
    examples_writer writer = {.examples = {.vocabulary = vocabulary}};
    tocsin_fact_key facts[] = {{.predicate = TOCSIN_PREDICATE_DATA_CHANGES},
                               {.predicate = TOCSIN_PREDICATE_FINITE}};
    tocsin_population_key keys[] = {{.kind = TOCSIN_POPULATION_DRIVEN_PARAMETER},
                                    {.kind = TOCSIN_POPULATION_PARAMETER}};
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(keys) && status == TOCSIN_OK; ++i) {
        writer.population = tocsin_population_of(vocabulary, &keys[i]);
        tocsin_fact fact = tocsin_fact_of(vocabulary, &facts[i]);
        status =
            writer.population != 0 && fact != 0 ? add_examples(&writer, fact) : TOCSIN_E_MEMORY;
        if (status == TOCSIN_OK && i == 1)
            status = write_example(&writer, 0, "var.a=x var.b=x meta.c=True", 0);
    }
    const char *reason = NULL;
    tocsin_infer_options options = {
        .struct_bytes = sizeof options, .threads = 1, .dropped = note, .context = &reason};
    tocsin_infer_summary summary = {0};
    if (status == TOCSIN_OK)
        status = tocsin_learn(&writer.examples, 2, &options, set, &summary, error);
    if (status == TOCSIN_OK && (tocsin_invariants_count(set) != 1 || reason == NULL))
        status = TOCSIN_E_INTERNAL;
    tocsin_examples_free(&writer.examples);
    tocsin_invariants_free(set);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    uint64_t nth = 1;
    for (;; ++nth) {
        tocsin_error error = {0};
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status = learn_all(&error);
        if (!tocsin_fault_disarm(TOCSIN_FAULT_MEMORY)) {
            assert_int_equal(status, TOCSIN_OK);
            break;
        }
        assert_int_equal(status, TOCSIN_E_MEMORY);
    }
    assert_true(nth > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
