/* Which ranks parted by themselves: meetings carry a difference, time does not. */
#include "cmocka_test.h"

#include <align/align.h>

/* A process that came through `meetings` (group, ordinal) and parted after `parted` of them. */
static tocsin_parting process(size_t parted, size_t count, const uint32_t (*meetings)[2])
{
    tocsin_parting made = {.parted = parted};
    for (size_t m = 0; m < count; ++m) {
        tocsin_meeting meeting = {.group = meetings[m][0], .ordinal = meetings[m][1]};
        assert_true(TOCSIN_VEC_PUSH(&made.meetings, meeting));
    }
    return made;
}

static void check(tocsin_parting *partings, size_t count, const char *origins)
{
    assert_int_equal(tocsin_frontier_find(partings, count, NULL), TOCSIN_OK);
    for (size_t r = 0; r < count; ++r) {
        assert_int_equal(partings[r].origin, origins[r] == 'o');
        tocsin_parting_free(&partings[r]);
    }
}

static const uint32_t world[3][2] = {{1, 0}, {1, 1}, {1, 2}};

static void test_one_rank_first(void **unused)
{
    (void)unused;
    /* Rank 1 parts before the second meeting, the others after it. */
    tocsin_parting partings[] = {process(2, 3, world), process(1, 3, world), process(2, 3, world)};
    check(partings, 3, "-o-");
}

static void test_all_at_once(void **unused)
{
    (void)unused;
    tocsin_parting partings[] = {process(2, 3, world), process(2, 3, world)};
    check(partings, 2, "oo");
    tocsin_parting alone[] = {process(0, 0, NULL)};
    check(alone, 1, "o");
    tocsin_parting same[] = {process(SIZE_MAX, 3, world)};
    check(same, 1, "-");
}

/* Before anybody met, who is later does not matter. */
static void test_no_meeting_between(void **unused)
{
    (void)unused;
    tocsin_parting partings[] = {process(0, 1, world), process(0, 3, world)};
    check(partings, 2, "oo");
}

/* Rank 0 meets rank 1, which then meets rank 2: what rank 0 had comes to rank 2 without that the
 * two ever met, and rank 1 itself never shows it. */
static void test_by_a_third(void **unused)
{
    (void)unused;
    static const uint32_t first[1][2] = {{7, 0}}, middle[2][2] = {{7, 0}, {8, 0}},
                          last[1][2] = {{8, 0}};
    tocsin_parting partings[] = {process(0, 1, first), process(SIZE_MAX, 2, middle),
                                 process(1, 1, last)};
    check(partings, 3, "o--");
    /* The other way round in time: rank 1 met rank 2 before it met rank 0. */
    static const uint32_t turned[2][2] = {{8, 0}, {7, 0}};
    tocsin_parting others[] = {process(0, 1, first), process(SIZE_MAX, 2, turned),
                               process(1, 1, last)};
    check(others, 3, "o-o");
}

/* A process that came through these meetings of group 1, 2, ... one each, and parted. */
static tocsin_parting messages(size_t parted, size_t count, const tocsin_meeting *meetings)
{
    tocsin_parting made = {.parted = parted};
    for (size_t m = 0; m < count; ++m)
        assert_true(TOCSIN_VEC_PUSH(&made.meetings, meetings[m]));
    return made;
}

/* A pipeline of three stages: activations go up, gradients come down. */
static void test_pipeline(void **unused)
{
    (void)unused;
    static const tocsin_meeting first[] = {{.kind = TOCSIN_MEETING_SENT, .group = 1},
                                           {.kind = TOCSIN_MEETING_RECEIVED, .group = 4}};
    static const tocsin_meeting middle[] = {{.kind = TOCSIN_MEETING_RECEIVED, .group = 1},
                                            {.kind = TOCSIN_MEETING_SENT, .group = 2},
                                            {.kind = TOCSIN_MEETING_RECEIVED, .group = 3},
                                            {.kind = TOCSIN_MEETING_SENT, .group = 4}};
    static const tocsin_meeting last[] = {{.kind = TOCSIN_MEETING_RECEIVED, .group = 2},
                                          {.kind = TOCSIN_MEETING_SENT, .group = 3}};
    /* The first stage goes wrong in its forward pass: it alone is the origin. */
    tocsin_parting forward[] = {messages(0, 2, first), messages(1, 4, middle),
                                messages(1, 2, last)};
    check(forward, 3, "o--");
    /* The last one, in its backward pass: the others received it. */
    tocsin_parting backward[] = {messages(2, 2, first), messages(3, 4, middle),
                                 messages(1, 2, last)};
    check(backward, 3, "--o");
    /* What was sent before does not carry back: sender and receiver parted by themselves. */
    tocsin_parting both[] = {messages(1, 1, first), messages(0, 1, middle)};
    check(both, 2, "oo");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_first),     cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_no_meeting_between), cmocka_unit_test(test_by_a_third),
        cmocka_unit_test(test_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
