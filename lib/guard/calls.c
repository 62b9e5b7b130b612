/* calls.c - the records of all ranks, sorted into calls.
 *
 * Data: one array of records, sorted by group, channel, number and member, so that a call is a run
 * of neighbours; records stay where they came in. Invariant: every rank sorts the same records and
 * finds the same. Cost: O(n log n) records, and what each call costs.
 */
#include "guard/calls.h"

#include <stdlib.h>

typedef struct record_list {
    TOCSIN_VEC(call_record) calls;
    TOCSIN_VEC(call_record) any; /* RECEIVE_ANY */
    size_t own_count;
} record_list;

static void list_free(record_list *list)
{
    TOCSIN_VEC_FREE(&list->calls);
    TOCSIN_VEC_FREE(&list->any);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Slices in a payload: of the input, and of the result. */
static uint64_t slice_copies(const tocsin_guard_call *call)
{
    if (call->kind == TOCSIN_GUARD_CALL_REDUCE_SCATTER)
        return (uint64_t)call->members + 1;
    return call->member == call->source ? 2 : 1;
}

static bool is_verified(const tocsin_guard_call *call)
{
    return call->whole == TOCSIN_GUARD_WHOLE_VERIFIED;
}

static bool payload_fits(const tocsin_guard_call *call)
{
    if (call_is_reduction(call->kind) && is_verified(call))
        return call->payload == sizeof(tocsin_guard_reduced);
    if (call->payload == 0)
        return true;
    if (call->kind <= TOCSIN_GUARD_CALL_SCATTER)
        return call->payload == 2 * (uint64_t)call->members * sizeof(tocsin_digest);
    if (!call_is_reduction(call->kind) || call->length > TOCSIN_GUARD_SLICE_BYTES_MAX)
        return false;
    return call->payload == call->length * call->width * slice_copies(call);
}

static bool call_valid(const tocsin_guard_call *call)
{
    return call->kind <= TOCSIN_GUARD_CALL_REDUCE && call->members > 0 &&
           call->whole <= TOCSIN_GUARD_WHOLE_VERIFIED &&
           call->members <= TOCSIN_GUARD_MEMBERS_MAX && call->member < call->members &&
           call->source < call->members && call->target < call->members && call->width > 0 &&
           call->width <= 16 && call->first <= call_span(call) &&
           call->length <= call_span(call) - call->first && payload_fits(call) &&
           (!call_is_message(call->kind) ||
            call->member == (call->kind == TOCSIN_GUARD_CALL_SEND ? call->source : call->target));
}

static tocsin_status read_record(record_list *list, const tocsin_guard_message *message,
                                 uint32_t rank, size_t *at, uint32_t place, tocsin_error *error)
{
    const unsigned char *bytes = message->bytes;
    const tocsin_guard_call *call = (const void *)(bytes + *at);
    size_t left = message->size - *at;
    if (left < sizeof *call || call->payload > left - sizeof *call || !call_valid(call))
        return tocsin_error_set(error, TOCSIN_E_FORMAT, "record %u of rank %u is no call", place,
                                rank);
    call_record record = {
        .call = call, .payload = bytes + *at + sizeof *call, .rank = rank, .place = place};
    size_t size = sizeof *call + (size_t)(call->payload + 7) / 8 * 8;
    if (size > left)
        return tocsin_error_set(error, TOCSIN_E_FORMAT, "record %u of rank %u is cut short", place,
                                rank);
    *at += size;
    if (list->calls.count + list->any.count >= TOCSIN_GUARD_CALLS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u calls",
                                TOCSIN_GUARD_CALLS_MAX);
    bool pushed = call->kind == TOCSIN_GUARD_CALL_RECEIVE_ANY
                      ? TOCSIN_VEC_PUSH(&list->any, record)
                      : TOCSIN_VEC_PUSH(&list->calls, record);
    return pushed ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status read_records(record_list *list, const tocsin_guard_calls *calls,
                                  tocsin_error *error)
{
    if (calls->rank_count > TOCSIN_GUARD_RANKS_MAX || calls->own >= calls->rank_count)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no such rank");
    for (uint32_t rank = 0; rank < calls->rank_count; ++rank) {
        uint32_t place = 0;
        for (size_t at = 0; at < calls->messages[rank].size; ++place)
            TOCSIN_TRY(read_record(list, &calls->messages[rank], rank, &at, place, error));
        if (rank == calls->own)
            list->own_count = place;
    }
    return TOCSIN_OK;
}

/* ---- sorting --------------------------------------------------------------------------------- */

#define COMPARE(a, b)                                                                              \
    do {                                                                                           \
        if ((a) != (b))                                                                            \
            return (a) < (b) ? -1 : 1;                                                             \
    } while (0)

static int compare_calls(const tocsin_guard_call *a, const tocsin_guard_call *b)
{
    bool message = call_is_message(a->kind);
    COMPARE(a->group, b->group);
    COMPARE(message, call_is_message(b->kind));
    if (message) {
        COMPARE(a->source, b->source);
        COMPARE(a->target, b->target);
    }
    COMPARE(a->number, b->number);
    return 0;
}

static int compare_records(const void *left, const void *right)
{
    const call_record *a = left, *b = right;
    int order = compare_calls(a->call, b->call);
    if (order != 0)
        return order;
    if (call_is_message(a->call->kind))
        COMPARE(a->call->kind, b->call->kind);
    COMPARE(a->call->member, b->call->member);
    COMPARE(a->rank, b->rank);
    COMPARE(a->place, b->place);
    return 0;
}

static int compare_receivers(const void *left, const void *right)
{
    const call_record *a = left, *b = right;
    COMPARE(a->call->group, b->call->group);
    COMPARE(a->call->target, b->call->target);
    return 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The records of the call that begins at `from`. */
static whole_call call_at(const record_list *list, size_t from)
{
    size_t end = from + 1;
    const call_record *records = list->calls.items;
    while (end < list->calls.count && compare_calls(records[from].call, records[end].call) == 0)
        ++end;
    return (whole_call){.records = &records[from], .count = (uint32_t)(end - from)};
}

static bool comparable(const tocsin_guard_call *a, const tocsin_guard_call *b)
{
    bool message = call_is_message(a->kind);
    return a->width == b->width && a->members == b->members &&
           (message ? a->count == b->count : a->kind == b->kind) &&
           (!call_is_reduction(a->kind) ||
            (a->count == b->count && a->dtype == b->dtype && a->operation == b->operation &&
             a->ring == b->ring && a->first == b->first && a->length == b->length &&
             a->source == b->source && is_verified(a) == is_verified(b)));
}

/* OPEN, UNCOVERED, or PASSED: it can be judged. */
static tocsin_guard_call_state call_ready(const whole_call *whole, const record_list *list)
{
    const tocsin_guard_call *first = whole->records[0].call;
    bool message = call_is_message(first->kind);
    if (message && list->any.count &&
        bsearch(&whole->records[0], list->any.items, list->any.count, sizeof(call_record),
                compare_receivers))
        return TOCSIN_GUARD_CALL_UNCOVERED;
    uint32_t wanted = message ? 2 : first->members;
    if (whole->count < wanted)
        return TOCSIN_GUARD_CALL_OPEN;
    if (whole->count > wanted || (message && whole->records[1].call->kind == first->kind))
        return TOCSIN_GUARD_CALL_UNCOVERED;
    for (uint32_t m = 0; m < whole->count; ++m) {
        const tocsin_guard_call *call = whole->records[m].call;
        if (!comparable(first, call) || (!message && call->member != m))
            return TOCSIN_GUARD_CALL_UNCOVERED;
    }
    return TOCSIN_GUARD_CALL_PASSED;
}

static bool is_partial(const tocsin_guard_call *call, tocsin_guard_call_state state)
{
    return call_is_reduction(call->kind) && call->dtype != 0 &&
           (state == TOCSIN_GUARD_CALL_OPEN ||
            (call->length < call_span(call) && state != TOCSIN_GUARD_CALL_WHOLE &&
             !is_verified(call)));
}

static tocsin_status judge_all(const tocsin_guard_calls *calls, const record_list *list,
                               uint8_t *states, tocsin_guard_undone *undone,
                               tocsin_guard_finding **finding, tocsin_error *error)
{
    call_failure failure = {.culprit = -1};
    whole_call failed_call = {0};
    uint64_t failed = 0;
    tocsin_status status = TOCSIN_OK;
    for (size_t at = 0; status == TOCSIN_OK && at < list->calls.count;) {
        whole_call whole = call_at(list, at);
        call_failure here = {.culprit = -1};
        tocsin_guard_call_state state = call_ready(&whole, list);
        if (state == TOCSIN_GUARD_CALL_PASSED)
            status = tocsin_call_judge(&whole, &state, &here, error);
        if (state == TOCSIN_GUARD_CALL_FAILED && failed++ == 0) {
            failure = here;
            failed_call = whole;
        } else {
            TOCSIN_VEC_FREE(&here.transfers);
        }
        undone->wanted += state == TOCSIN_GUARD_CALL_WANTED || state == TOCSIN_GUARD_CALL_WHOLE;
        undone->partial += is_partial(whole.records[0].call, state);
        for (uint32_t m = 0; m < whole.count; ++m) {
            if (whole.records[m].rank == calls->own)
                states[whole.records[m].place] = (uint8_t)state;
        }
        at += whole.count;
    }
    if (status == TOCSIN_OK && failed)
        status = tocsin_call_finding(&failed_call, &failure, calls, failed - 1, finding, error);
    TOCSIN_VEC_FREE(&failure.transfers);
    return status;
}

tocsin_status tocsin_guard_judge_calls(const tocsin_guard_calls *calls, uint8_t *states,
                                       size_t state_count, tocsin_guard_undone *undone,
                                       tocsin_guard_finding **finding, tocsin_error *error)
{
    *finding = NULL;
    *undone = (tocsin_guard_undone){0};
    record_list list = {0};
    tocsin_status status = read_records(&list, calls, error);
    if (status == TOCSIN_OK && list.own_count != state_count)
        status = tocsin_error_set(error, TOCSIN_E_ARGUMENT, "%zu states for %zu records",
                                  state_count, list.own_count);
    if (status == TOCSIN_OK && state_count)
        memset(states, TOCSIN_GUARD_CALL_OPEN, state_count);
    if (status == TOCSIN_OK && list.calls.count) {
        qsort(list.calls.items, list.calls.count, sizeof(call_record), compare_records);
        if (list.any.count)
            qsort(list.any.items, list.any.count, sizeof(call_record), compare_receivers);
        status = judge_all(calls, &list, states, undone, finding, error);
    }
    list_free(&list);
    return status;
}
