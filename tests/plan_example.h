/* plan_example.h - plans for tests: texts read and written in memory. */
#ifndef TOCSIN_PLAN_EXAMPLE_H
#define TOCSIN_PLAN_EXAMPLE_H

#include "cmocka_test.h"
#include "plan/plan.h"
#include <stdio.h>
#include <stdlib.h>

/* What is read from the text; a failure ends the test with the error. */
static inline tocsin_plan *plan_read(const char *text)
{
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    tocsin_status status =
        tocsin_plan_read_text(text, strlen(text), "test.plan", NULL, &plan, &error);
    if (status != TOCSIN_OK)
        fail_msg("%s", error.message);
    return plan;
}

/* The plan's canonical text, to be freed. */
static inline char *plan_write(const tocsin_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    assert_int_equal(tocsin_plan_write(plan, stream, NULL), TOCSIN_OK);
    assert_int_equal(fclose(stream), 0);
    return text;
}

/* One rank of two in a group, with values to compute with and `operators` in its only segment. */
static inline char *plan_around(const char *operators)
{
    static const char before[] =
        "tocsin-plan 1\nmesh tp=2\ngroup all = (tp=0) (tp=1)\ngroup other = (tp=1)\nrole tp=0\n"
        "in %a:float32[4,6] = a\nin %b:float32[6,8] = b\nin %c:float32[4,1] = c\n"
        "in %i:int64[3,5] = i\nin %s:float32[] = s\nin %t:float32[2,3,4] = t\nsegment all\n";
    char *text = NULL;
    assert_true(asprintf(&text, "%s%s\nend\nrole tp=1\nend\n", before, operators) > 0);
    return text;
}

#endif
