/* What ranks tell of a collective, put together: what passes, what fails, and who is named. */
#include <tocsin/communication.h>

#include "made_collective.h"

static uint64_t seed = 20240917;

/* The state of the first record of rank 0, and the finding, which the caller frees. */
static tocsin_guard_call_state judged(const made_collective *made, tocsin_guard_finding **finding)
{
    uint8_t states[2] = {99, 99};
    tocsin_error error;
    size_t count = 1;
    uint32_t own = 0;
    if (made->kind == TOCSIN_GUARD_CALL_SEND) {
        own = made->root;
        count = made->root == made->target ? 2 : 1;
    }
    assert_int_equal(made_judge(made, own, states, count, finding, &error), TOCSIN_OK);
    return (tocsin_guard_call_state)states[0];
}

static made_collective *spoilt(uint32_t kind, uint32_t members, const uint32_t (*pairs)[2],
                               size_t count)
{
    static made_collective made;
    made_begin(&made, kind, members, &seed);
    for (size_t p = 0; p < count; ++p)
        made.received[pairs[p][0]][pairs[p][1]][0] ^= 0x80000000;
    made.details = true;
    made_tell(&made);
    return &made;
}

/* Who is named, or -1. */
static int culprit(uint32_t kind, uint32_t members, const uint32_t (*pairs)[2], size_t count)
{
    tocsin_guard_finding *finding;
    made_collective *made = spoilt(kind, members, pairs, count);
    assert_int_equal(judged(made, &finding), TOCSIN_GUARD_CALL_FAILED);
    assert_non_null(finding);
    assert_int_equal(finding->check, TOCSIN_GUARD_COLLECTIVE);
    int named = finding->rank_count ? (int)finding->ranks[0] : -1;
    assert_true(finding->rank_count <= 1);
    tocsin_guard_finding_free(finding);
    return named;
}

static void test_named(void **state)
{
    static const uint32_t one[][2] = {{0, 2}}, chain[][2] = {{0, 2}, {0, 3}},
                          copy[][2] = {{0, 2}, {1, 2}}, end[][2] = {{0, 2}, {2, 1}};
    (void)state;
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_GATHER, 4, one, 1), 2);
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_GATHER, 4, copy, 2), 2);
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_GATHER, 3, one, 1), 2);
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_GATHER, 4, chain, 2), -1); /* passed on */
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_TO_ALL, 4, one, 1), -1);   /* two ends */
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_TO_ALL, 4, chain, 2), 0);
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_TO_ALL, 4, copy, 2), 2);
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_TO_ALL, 4, end, 2), 2);
    static const uint32_t two[][2] = {{0, 1}};
    assert_int_equal(culprit(TOCSIN_GUARD_CALL_ALL_GATHER, 2, two, 1), -1);
}

static void test_text(void **state)
{
    static const uint32_t pair[][2] = {{0, 2}};
    (void)state;
    tocsin_guard_finding *finding;
    assert_int_equal(judged(spoilt(TOCSIN_GUARD_CALL_ALL_GATHER, 4, pair, 1), &finding),
                     TOCSIN_GUARD_CALL_FAILED);
    assert_string_equal(finding->text,
                        "all-gather 7 of its group of 4: rank 2 did not receive what "
                        "rank 0 sent, in element 0 alone; rank 2 or its link is "
                        "wrong");
    assert_int_equal(finding->cause, TOCSIN_GUARD_TRANSIENT);
    assert_int_equal(finding->index_count, 1);
    assert_int_equal(finding->index[0], 0);
    assert_non_null(strstr(finding->evidence, "\"from\":0,\"to\":2"));
    tocsin_guard_finding_free(finding);
}

/* Without details only that something is wrong is known. */
static void test_wanted(void **state)
{
    static made_collective made;
    tocsin_guard_finding *finding;
    (void)state;
    made_begin(&made, TOCSIN_GUARD_CALL_ALL_TO_ALL, 3, &seed);
    made_tell(&made);
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_PASSED);
    assert_null(finding);
    made.received[1][2][0] ^= 1;
    made_tell(&made);
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_WANTED);
    assert_null(finding);
}

/* Transfers that changed places hold the same words. */
static void test_swapped_transfers(void **state)
{
    static made_collective made;
    tocsin_guard_finding *finding;
    (void)state;
    made_begin(&made, TOCSIN_GUARD_CALL_ALL_GATHER, 3, &seed);
    memcpy(made.received[0][2], made.sent[1][2], sizeof made.sent[1][2]);
    memcpy(made.received[1][2], made.sent[0][2], sizeof made.sent[0][2]);
    made_tell(&made);
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_WANTED);
    assert_null(finding);
}

static void test_open_and_uncovered(void **state)
{
    static made_collective made;
    tocsin_guard_finding *finding;
    (void)state;
    made_begin(&made, TOCSIN_GUARD_CALL_BROADCAST, 3, &seed);
    made_tell(&made);
    made.messages[2].size = 0; /* has not waited for it yet */
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_OPEN);
    made_tell(&made);
    ((tocsin_guard_call *)made.bytes[1])->width = 2;
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_UNCOVERED);
    assert_null(finding);
    do {
        made_begin(&made, TOCSIN_GUARD_CALL_SEND, 3, &seed);
    } while (made.root == made.target);
    made.received[made.root][made.target][0] ^= 1;
    made_tell(&made);
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_FAILED);
    assert_int_equal(finding->rank_count, 0);
    assert_int_equal(finding->cause, TOCSIN_GUARD_UNATTRIBUTABLE);
    tocsin_guard_finding_free(finding);
    uint32_t receiver = made.target;
    ((tocsin_guard_call *)made.bytes[receiver])->kind = TOCSIN_GUARD_CALL_RECEIVE_ANY;
    assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_UNCOVERED);
    assert_null(finding);
}

/* Nothing that a record says is believed before it was looked at. */
static void test_bad_records(void **state)
{
    static made_collective made;
    tocsin_guard_finding *finding;
    uint8_t states[1];
    (void)state;
    made_begin(&made, TOCSIN_GUARD_CALL_ALL_GATHER, 3, &seed);
    for (int change = 0; change < 9; ++change) {
        tocsin_error error = {0};
        made.details = true;
        made_tell(&made);
        tocsin_guard_call *call = (tocsin_guard_call *)made.bytes[1];
        made.messages[1].size -= change == 0 ? 8 : 0;
        call->payload += change == 1 ? 8 : 0;
        call->payload = change == 2 ? UINT64_MAX - 3 : call->payload;
        call->members = change == 3 ? 0 : call->members;
        call->member = change == 4 ? 3 : call->member;
        call->kind = change == 5 ? 11 : call->kind;
        call->width = change == 6 ? 0 : call->width;
        call->first = change == 7 ? call->count + 1 : call->first;
        call->whole = change == 8 ? TOCSIN_GUARD_WHOLE_VERIFIED + 1 : 0;
        assert_int_equal(made_judge(&made, 0, states, 1, &finding, &error), TOCSIN_E_FORMAT);
        assert_null(finding);
    }
    made_tell(&made);
    tocsin_error error = {0};
    assert_int_equal(made_judge(&made, 0, states, 0, &finding, &error), TOCSIN_E_ARGUMENT);
    assert_int_equal(made_judge(&made, 3, states, 0, &finding, &error), TOCSIN_E_ARGUMENT);
}

/* ---- reductions ------------------------------------------------------------------------------ */

enum { MEMBERS = 3, COUNT = 30 };

typedef struct made_reduction {
    float inputs[MEMBERS][COUNT], result[COUNT];
    tocsin_guard_reduction slice;
    const void *pointers[MEMBERS];
} made_reduction;

/* Chunks of 10 elements: chunk k is added up from the member before k, backwards. */
static void reduce(made_reduction *made, bool average)
{
    for (int m = 0; m < MEMBERS; ++m) {
        for (int i = 0; i < COUNT; ++i)
            made->inputs[m][i] = (float)((double)oracle_random(&seed) / 0x1p62 - 2);
        made->pointers[m] = made->inputs[m];
    }
    for (int i = 0; i < COUNT; ++i) {
        int start = i / 10 + MEMBERS - 1;
        float sum = made->inputs[start % MEMBERS][i];
        for (int back = 1; back < MEMBERS; ++back)
            sum += made->inputs[(start + MEMBERS - back) % MEMBERS][i];
        made->result[i] = average ? sum / MEMBERS : sum;
    }
    made->slice =
        (tocsin_guard_reduction){.dtype = TOCSIN_DTYPE_FLOAT32,
                                 .operation = average ? TOCSIN_GUARD_AVERAGE : TOCSIN_GUARD_SUM,
                                 .ring = true,
                                 .members = MEMBERS,
                                 .count = COUNT,
                                 .length = COUNT,
                                 .inputs = made->pointers,
                                 .result = made->result};
}

static tocsin_guard_reduced checked(const made_reduction *made)
{
    tocsin_error error;
    tocsin_guard_reduced reduced;
    assert_int_equal(tocsin_guard_reduction_check(&made->slice, &reduced, &error), TOCSIN_OK);
    return reduced;
}

static void test_sums(void **state)
{
    made_reduction made;
    (void)state;
    for (int average = 0; average < 2; ++average) {
        reduce(&made, average != 0);
        tocsin_guard_reduced reduced = checked(&made);
        assert_int_equal(reduced.wrong + reduced.other, 0);
        made.result[17] = nextafterf(made.result[17], 9);
        reduced = checked(&made);
        assert_int_equal(reduced.other, 1); /* the last bit */
        assert_int_equal(reduced.wrong, 0);
        assert_int_equal(reduced.first, 17);
        made.slice.ring = false;
        assert_int_equal(checked(&made).wrong, 0);
        made.result[17] *= 1.0001F;
        reduced = checked(&made);
        assert_int_equal(reduced.wrong, 1);
        assert_true(fabs(reduced.expected - reduced.seen) > reduced.bound);
    }
}

static void test_sums_without_a_value(void **state)
{
    made_reduction made;
    (void)state;
    reduce(&made, false);
    made.inputs[1][3] = INFINITY;
    made.result[3] = INFINITY;
    made.inputs[2][4] = NAN;
    made.result[4] = NAN;
    made.inputs[0][5] = made.inputs[1][5] = made.inputs[2][5] = 3e38F;
    made.result[5] = INFINITY;
    assert_int_equal(checked(&made).wrong + checked(&made).other, 0);
    made.result[3] = 1;
    made.result[6] = NAN;
    assert_int_equal(checked(&made).wrong, 2);
}

static void test_exact_reductions(void **state)
{
    const int32_t a[] = {1, -5, INT32_MAX}, b[] = {2, 3, 1};
    int32_t result[] = {3, -2, INT32_MIN};
    const void *inputs[] = {a, b};
    tocsin_guard_reduced reduced;
    tocsin_error error;
    tocsin_guard_reduction slice = {.dtype = TOCSIN_DTYPE_INT32,
                                    .operation = TOCSIN_GUARD_SUM,
                                    .members = 2,
                                    .count = 3,
                                    .length = 3,
                                    .inputs = inputs,
                                    .result = result};
    (void)state;
    assert_int_equal(tocsin_guard_reduction_check(&slice, &reduced, &error), TOCSIN_OK);
    assert_int_equal(reduced.wrong, 0);
    slice.operation = TOCSIN_GUARD_MINIMUM;
    memcpy(result, (int32_t[]){1, -5, 1}, sizeof result);
    assert_int_equal(tocsin_guard_reduction_check(&slice, &reduced, &error), TOCSIN_OK);
    assert_int_equal(reduced.wrong, 0);
    slice.operation = TOCSIN_GUARD_MAXIMUM;
    assert_int_equal(tocsin_guard_reduction_check(&slice, &reduced, &error), TOCSIN_OK);
    assert_int_equal(reduced.wrong, 3);
    slice.length = 4;
    assert_int_equal(tocsin_guard_reduction_check(&slice, &reduced, &error), TOCSIN_E_ARGUMENT);
    slice.dtype = TOCSIN_DTYPE_COMPLEX64;
    assert_int_equal(tocsin_guard_reduction_check(&slice, &reduced, &error), TOCSIN_E_ARGUMENT);
}

/* An all-reduce as its members tell of it. */
static void tell_reduction(const made_reduction *made, made_collective *told)
{
    *told = (made_collective){.kind = TOCSIN_GUARD_CALL_ALL_REDUCE, .members = MEMBERS};
    for (uint32_t m = 0; m < MEMBERS; ++m) {
        tocsin_guard_call call = {.group = 1,
                                  .kind = told->kind,
                                  .members = MEMBERS,
                                  .member = m,
                                  .source = 1,
                                  .width = 4,
                                  .dtype = TOCSIN_DTYPE_FLOAT32,
                                  .ring = 2,
                                  .count = COUNT,
                                  .length = COUNT,
                                  .payload = COUNT * 4 * (m == 1 ? 2 : 1)};
        const float *result = made->result;
        memcpy(&call.received, result, sizeof call.received); /* any number, the same for all */
        memcpy(told->bytes[m], &call, sizeof call);
        memcpy((char *)told->bytes[m] + sizeof call, made->inputs[m], COUNT * 4);
        memcpy((char *)told->bytes[m] + sizeof call + COUNT * 4, result, COUNT * 4);
        told->messages[m] = (tocsin_guard_message){
            .bytes = told->bytes[m], .size = sizeof call + (call.payload + 7) / 8 * 8};
    }
}

static void test_reduction_calls(void **state)
{
    static made_collective told;
    made_reduction made;
    tocsin_guard_finding *finding;
    (void)state;
    reduce(&made, false);
    tell_reduction(&made, &told);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_PASSED);
    ((tocsin_guard_call *)told.bytes[2])->received.sum += 1;
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_FAILED);
    assert_int_equal(finding->ranks[0], 2);
    tocsin_guard_finding_free(finding);
    made.result[9] = nextafterf(made.result[9], 9); /* on all ranks */
    tell_reduction(&made, &told);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_FAILED);
    assert_int_equal(finding->rank_count, 0);
    assert_int_equal(finding->index[0], 9);
    tocsin_guard_finding_free(finding);
    ((tocsin_guard_call *)told.bytes[0])->ring = 1; /* is it the ring at all? */
    ((tocsin_guard_call *)told.bytes[1])->ring = 1;
    ((tocsin_guard_call *)told.bytes[2])->ring = 1;
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_REORDERED);
    assert_null(finding);
    for (int i = 0; i < COUNT; ++i) /* as another order would */
        made.result[i] = nextafterf(made.result[i], i % 3 ? 9 : -9);
    tell_reduction(&made, &told);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_REORDERED);
    assert_null(finding);
}

static void set_whole(made_collective *told, uint32_t member, tocsin_guard_whole whole)
{
    ((tocsin_guard_call *)told->bytes[member])->whole = whole;
}

/* A member tells what it found in its part instead of its slice. */
static void tell_part(made_collective *told, uint32_t member, tocsin_guard_reduced part)
{
    tocsin_guard_call *call = (tocsin_guard_call *)told->bytes[member];
    call->whole = TOCSIN_GUARD_WHOLE_VERIFIED;
    call->payload = sizeof part;
    memcpy(call + 1, &part, sizeof part);
    told->messages[member].size = sizeof *call + sizeof part;
}

static void test_whole_reductions(void **state)
{
    static made_collective told;
    made_reduction made;
    tocsin_guard_finding *finding;
    (void)state;
    reduce(&made, false);
    tell_reduction(&made, &told);
    set_whole(&told, 0, TOCSIN_GUARD_WHOLE_HELD);
    set_whole(&told, 1, TOCSIN_GUARD_WHOLE_HELD);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_PASSED); /* the slice alone */
    set_whole(&told, 2, TOCSIN_GUARD_WHOLE_HELD);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_WHOLE);
    assert_null(finding);
    tocsin_guard_reduced right = {.recomputed = 10},
                         bad = {.recomputed = 10, .wrong = 1, .other = 1, .first = 17, .seen = 2};
    tell_part(&told, 0, right);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_UNCOVERED);
    tell_part(&told, 1, right);
    tell_part(&told, 2, right);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_PASSED);
    tell_part(&told, 1, bad);
    assert_int_equal(judged(&told, &finding), TOCSIN_GUARD_CALL_FAILED);
    assert_int_equal(finding->index[0], 17);
    assert_non_null(strstr(finding->evidence, "\"recomputed\":30,\"wrong\":1"));
    tocsin_guard_finding_free(finding);
    ((tocsin_guard_call *)told.bytes[2])->payload = 0; /* says nothing */
    uint8_t states[1];
    tocsin_error error;
    assert_int_equal(made_judge(&told, 0, states, 1, &finding, &error), TOCSIN_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_swapped_transfers),
        cmocka_unit_test(test_open_and_uncovered),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_sums_without_a_value),
        cmocka_unit_test(test_exact_reductions),
        cmocka_unit_test(test_reduction_calls),
        cmocka_unit_test(test_whole_reductions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
