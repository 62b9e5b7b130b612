/* delivery.c - the verdict on one call of a collective.
 *
 * Two ranks see a transfer, and the link between them is a third suspect, so a pair that differs
 * convicts nobody. More can be told from several pairs:
 *   - one content for all (broadcast, all-gather): ranks may have passed it on to each other, so
 *     several that are wrong need not be all at fault; but a single one that is alone with its copy
 *     got it, or keeps it, wrong;
 *   - direct transfers: a rank at an end of each of them, with several others at the other ends.
 * A wrong sum convicts nobody: which of its terms was another one, it does not tell.
 * Cost: O(members) while nothing differs, else O(members^2).
 */
#include "guard/calls.h"

#include <inttypes.h>

#define NAMED_MEMBERS_MIN     3
#define EVIDENCE_PAIRS        16
#define REORDERED_MIN         2 /* elements; and one in eight */

#define X(number, name, text) [number] = text,
static const char *const kind_names[] = {TOCSIN_GUARD_CALL_TABLE(X)};
#undef X

/* ---- what is moved --------------------------------------------------------------------------- */

static bool add_transfer(call_failure *failure, uint32_t source, uint32_t target,
                         const tocsin_digest *sent, const tocsin_digest *received)
{
    if (digest_equal(sent, received))
        return true;
    bad_transfer bad = {.source = source, .target = target, .sent = *sent, .received = *received};
    return TOCSIN_VEC_PUSH(&failure->transfers, bad);
}

static const tocsin_digest *transfer_of(const call_record *record, uint32_t peer, bool outgoing)
{
    const tocsin_digest *transfers = (const void *)record->payload;
    return &transfers[outgoing ? peer : record->call->members + peer];
}

/* The one receiver that differs from all others, or -1. */
static int64_t lone_receiver(const call_failure *failure)
{
    uint32_t target = failure->transfers.items[0].target;
    for (size_t t = 1; t < failure->transfers.count; ++t) {
        if (failure->transfers.items[t].target != target)
            return -1;
    }
    return target;
}

static bool at_each_end(const call_failure *failure, uint32_t member)
{
    uint32_t peer = UINT32_MAX;
    bool several = false;
    for (size_t t = 0; t < failure->transfers.count; ++t) {
        const bad_transfer *bad = &failure->transfers.items[t];
        if (bad->source != member && bad->target != member)
            return false;
        uint32_t other = bad->source == member ? bad->target : bad->source;
        several |= other != member && peer != UINT32_MAX && peer != other;
        peer = other == member ? peer : other;
    }
    return several;
}

static int64_t shared_end(const call_failure *failure)
{
    const bad_transfer *bad = &failure->transfers.items[0];
    if (at_each_end(failure, bad->source))
        return bad->source;
    return at_each_end(failure, bad->target) ? (int64_t)bad->target : -1;
}

static int64_t transfer_culprit(const whole_call *whole, const call_failure *failure)
{
    uint32_t kind = whole->records[0].call->kind;
    if (whole->count < NAMED_MEMBERS_MIN || failure->transfers.count == 0)
        return -1;
    return kind <= TOCSIN_GUARD_CALL_ALL_GATHER ? lone_receiver(failure) : shared_end(failure);
}

static tocsin_status judge_transfers(const whole_call *whole, tocsin_guard_call_state *state,
                                     call_failure *failure, tocsin_error *error)
{
    tocsin_digest sent = {0}, received = {0};
    bool told = true;
    for (uint32_t m = 0; m < whole->count; ++m) {
        const tocsin_guard_call *call = whole->records[m].call;
        sent = tocsin_digest_merge(sent, call->sent);
        received = tocsin_digest_merge(received, call->received);
        told &= call->payload > 0;
    }
    *state = TOCSIN_GUARD_CALL_PASSED;
    if (digest_equal(&sent, &received))
        return TOCSIN_OK;
    *state = told ? TOCSIN_GUARD_CALL_FAILED : TOCSIN_GUARD_CALL_WANTED;
    for (uint32_t s = 0; told && s < whole->count; ++s) {
        for (uint32_t t = 0; t < whole->count; ++t) {
            if (!add_transfer(failure, s, t, transfer_of(&whole->records[s], t, true),
                              transfer_of(&whole->records[t], s, false)))
                return tocsin_error_memory(error);
        }
    }
    failure->culprit = transfer_culprit(whole, failure);
    return TOCSIN_OK;
}

static tocsin_status judge_message(const whole_call *whole, tocsin_guard_call_state *state,
                                   call_failure *failure, tocsin_error *error)
{
    if (!add_transfer(failure, 0, 1, &whole->records[0].call->sent,
                      &whole->records[1].call->received))
        return tocsin_error_memory(error);
    *state = failure->transfers.count ? TOCSIN_GUARD_CALL_FAILED : TOCSIN_GUARD_CALL_PASSED;
    return TOCSIN_OK;
}

/* ---- what is reduced ------------------------------------------------------------------------- */

/* The one member whose result is unlike that of all others, which are alike; -1: there is none. */
static int64_t lone_result(const whole_call *whole)
{
    const call_record *records = whole->records;
    if (whole->count < NAMED_MEMBERS_MIN)
        return -1;
    for (uint32_t lone = 0; lone < whole->count; ++lone) {
        const tocsin_digest *others = &records[lone == 0].call->received;
        bool alike = true;
        for (uint32_t m = 0; m < whole->count && alike; ++m)
            alike = digest_equal(&records[m].call->received, others) != (m == lone);
        if (alike)
            return lone;
    }
    return -1;
}

static bool results_equal(const whole_call *whole)
{
    for (uint32_t m = 1; m < whole->count; ++m) {
        if (!digest_equal(&whole->records[m].call->received, &whole->records[0].call->received))
            return false;
    }
    return true;
}

static tocsin_guard_ring order_of(const tocsin_guard_call *call)
{
    if (call->ring == 0)
        return TOCSIN_GUARD_RING_NONE;
    return call->kind == TOCSIN_GUARD_CALL_REDUCE ? TOCSIN_GUARD_RING_FILLED
                                                  : TOCSIN_GUARD_RING_EVEN;
}

tocsin_status tocsin_guard_part_check(const tocsin_guard_call *call, const tocsin_guard_part *part,
                                      tocsin_guard_reduced *found, tocsin_error *error)
{
    if (!call_is_reduction(call->kind) ||
        tocsin_dtype_bytes((tocsin_dtype)call->dtype) != call->width)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no reduction of known elements");
    tocsin_guard_reduction reduction = {.dtype = (tocsin_dtype)call->dtype,
                                        .operation = (tocsin_guard_operation)call->operation,
                                        .ring = order_of(call),
                                        .members = call->members,
                                        .count = call->count,
                                        .first = part->first,
                                        .length = part->length,
                                        .inputs = part->inputs,
                                        .result = part->result};
    tocsin_guard_reduced here;
    TOCSIN_TRY(tocsin_guard_reduction_check(&reduction, &here, error));
    tocsin_guard_reduced_add(found, &here);
    return TOCSIN_OK;
}

/* Recompute one slice: of all inputs the k-th of their payload. */
static tocsin_status check_slice(const whole_call *whole, const void **inputs, uint32_t k,
                                 call_failure *failure, tocsin_error *error)
{
    const tocsin_guard_call *call = whole->records[0].call;
    bool scattered = call->kind == TOCSIN_GUARD_CALL_REDUCE_SCATTER;
    uint64_t bytes = call->length * call->width;
    uint32_t holder = scattered ? k : call->source;
    for (uint32_t m = 0; m < whole->count; ++m)
        inputs[m] = whole->records[m].payload + k * bytes;
    tocsin_guard_part part = {.first = k * call_span(call) + call->first,
                              .length = call->length,
                              .inputs = inputs,
                              .result = whole->records[holder].payload +
                                        bytes * (scattered ? call->members : 1)};
    return tocsin_guard_part_check(call, &part, &failure->reduced, error);
}

static tocsin_status judge_slices(const whole_call *whole, call_failure *failure,
                                  tocsin_error *error)
{
    const tocsin_guard_call *call = whole->records[0].call;
    uint32_t parts = call->kind == TOCSIN_GUARD_CALL_REDUCE_SCATTER ? whole->count : 1;
    if (call->length == 0 || tocsin_dtype_bytes((tocsin_dtype)call->dtype) != call->width)
        return TOCSIN_OK;
    for (uint32_t m = 0; m < whole->count; ++m) {
        if (whole->records[m].call->payload == 0)
            return TOCSIN_OK;
    }
    const void **inputs = tocsin_zalloc(whole->count, sizeof *inputs);
    if (!inputs)
        return tocsin_error_memory(error);
    tocsin_status status = TOCSIN_OK;
    for (uint32_t part = 0; status == TOCSIN_OK && part < parts; ++part)
        status = check_slice(whole, inputs, part, failure, error);
    tocsin_free(inputs);
    return status;
}

/* Do all members say so? */
static bool all_whole(const whole_call *whole, tocsin_guard_whole wanted)
{
    for (uint32_t m = 0; m < whole->count; ++m) {
        if (whole->records[m].call->whole != wanted)
            return false;
    }
    return true;
}

static void judge_parts(const whole_call *whole, call_failure *failure)
{
    for (uint32_t m = 0; m < whole->count; ++m) {
        tocsin_guard_reduced part;
        memcpy(&part, whole->records[m].payload, sizeof part);
        tocsin_guard_reduced_add(&failure->reduced, &part);
    }
}

static tocsin_status judge_reduction(const whole_call *whole, tocsin_guard_call_state *state,
                                     call_failure *failure, tocsin_error *error)
{
    const tocsin_guard_call *call = whole->records[0].call;
    *state = TOCSIN_GUARD_CALL_FAILED;
    if (call->kind == TOCSIN_GUARD_CALL_ALL_REDUCE && !results_equal(whole)) {
        failure->results_differ = true;
        failure->culprit = lone_result(whole);
        return TOCSIN_OK;
    }
    if (all_whole(whole, TOCSIN_GUARD_WHOLE_HELD)) {
        *state = TOCSIN_GUARD_CALL_WHOLE;
        return TOCSIN_OK;
    }
    if (all_whole(whole, TOCSIN_GUARD_WHOLE_VERIFIED))
        judge_parts(whole, failure);
    else
        TOCSIN_TRY(judge_slices(whole, failure, error));
    uint64_t other = failure->reduced.other;
    if (failure->reduced.wrong == 0 && other == 0)
        *state = TOCSIN_GUARD_CALL_PASSED;
    else if (failure->reduced.wrong == 0 &&
             (call->ring < 2 || (other > REORDERED_MIN && other > failure->reduced.recomputed / 8)))
        *state = TOCSIN_GUARD_CALL_REORDERED;
    return TOCSIN_OK;
}

tocsin_status tocsin_call_judge(const whole_call *whole, tocsin_guard_call_state *state,
                                call_failure *failure, tocsin_error *error)
{
    uint32_t kind = whole->records[0].call->kind;
    if (call_is_message(kind))
        return judge_message(whole, state, failure, error);
    if (call_is_reduction(kind))
        return judge_reduction(whole, state, failure, error);
    return judge_transfers(whole, state, failure, error);
}

/* ---- the finding ----------------------------------------------------------------------------- */

static uint32_t rank_of(const whole_call *whole, uint32_t record)
{
    return whole->records[record].rank;
}

static uint64_t words_each(const whole_call *whole)
{
    uint32_t width = whole->records[0].call->width;
    return width > 4 ? width / 4 : 1;
}

/* Words of the longest transfer. */
static uint64_t words_of(const whole_call *whole)
{
    uint64_t count = 0, limit = TOCSIN_GUARD_TRANSFER_WORDS(1);
    for (uint32_t m = 0; m < whole->count; ++m) {
        const tocsin_guard_call *call = whole->records[m].call;
        count = call->count > count ? call->count : count;
    }
    uint64_t each = words_each(whole);
    return count > limit / each ? limit : count * each;
}

/* The element that changed, if it was one. */
static bool locate(const whole_call *whole, const bad_transfer *bad, int64_t *element)
{
    tocsin_word_change change;
    if (!tocsin_digest_locate(bad->sent, bad->received, words_of(whole), &change))
        return false;
    *element = (int64_t)(change.word / words_each(whole));
    return true;
}

static void put_transfers(tocsin_json *json, const whole_call *whole, const call_failure *failure)
{
    tocsin_json_put_unsigned(json, "transfers_differ", failure->transfers.count);
    tocsin_json_key(json, "transfers");
    tocsin_json_begin_array(json);
    for (size_t t = 0; t < failure->transfers.count && t < EVIDENCE_PAIRS; ++t) {
        const bad_transfer *bad = &failure->transfers.items[t];
        int64_t element;
        tocsin_json_begin_object(json);
        tocsin_json_put_unsigned(json, "from", rank_of(whole, bad->source));
        tocsin_json_put_unsigned(json, "to", rank_of(whole, bad->target));
        tocsin_draft_put_digest(json, "sent", bad->sent);
        tocsin_draft_put_digest(json, "received", bad->received);
        if (locate(whole, bad, &element))
            tocsin_json_put_unsigned(json, "element", (uint64_t)element);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}

static void put_reduced(tocsin_json *json, const tocsin_guard_call *call,
                        const call_failure *failure)
{
    const tocsin_guard_reduced *reduced = &failure->reduced;
    tocsin_json_put_unsigned(json, "recomputed", reduced->recomputed);
    tocsin_json_put_unsigned(json, "wrong", reduced->wrong);
    if (call->ring)
        tocsin_json_put_unsigned(json, "not_as_in_ring", reduced->other);
    tocsin_json_put_unsigned(json, "element", reduced->first);
    tocsin_json_key(json, "expected");
    tocsin_json_real(json, reduced->expected);
    tocsin_json_key(json, "seen");
    tocsin_json_real(json, reduced->seen);
    tocsin_json_key(json, "bound");
    tocsin_json_real(json, reduced->bound);
}

static void tell_transfers(finding_draft *draft, const whole_call *whole,
                           const call_failure *failure, int64_t *element)
{
    if (failure->transfers.count == 0) { /* they differ only together: by chance about 2^-61 */
        tocsin_string_append_text(&draft->text, "more or other words arrived than were sent");
        return;
    }
    const bad_transfer *bad = &failure->transfers.items[0];
    tocsin_string_printf(&draft->text, "rank %u did not receive what rank %u sent",
                         rank_of(whole, bad->target), rank_of(whole, bad->source));
    if (failure->transfers.count > 1)
        tocsin_string_printf(&draft->text, ", and %zu other transfers differ",
                             failure->transfers.count - 1);
    if (locate(whole, bad, element))
        tocsin_string_printf(&draft->text, ", in element %" PRId64 " alone", *element);
    draft->content.index = element;
    draft->content.index_count = *element >= 0;
}

static void tell_reduced(finding_draft *draft, const call_failure *failure, int64_t *element)
{
    char expected[TOCSIN_REAL_TEXT_BYTES], seen[TOCSIN_REAL_TEXT_BYTES];
    const tocsin_guard_reduced *reduced = &failure->reduced;
    if (failure->results_differ) {
        tocsin_string_append_text(&draft->text, "its results differ between ranks");
        return;
    }
    tocsin_real_text(reduced->expected, expected);
    tocsin_real_text(reduced->seen, seen);
    tocsin_string_printf(&draft->text, "element %" PRIu64 " is %s where %s is due", reduced->first,
                         seen, expected);
    *element = (int64_t)reduced->first;
    draft->content.index = element;
    draft->content.index_count = 1;
}

static void put_members(tocsin_json *json, const whole_call *whole)
{
    tocsin_json_key(json, "members");
    tocsin_json_begin_array(json);
    for (uint32_t m = 0; m < whole->count && m < 64; ++m)
        tocsin_json_unsigned(json, rank_of(whole, m));
    tocsin_json_end_array(json);
}

tocsin_status tocsin_call_finding(const whole_call *whole, const call_failure *failure,
                                  const tocsin_guard_calls *calls, uint64_t failed,
                                  tocsin_guard_finding **finding, tocsin_error *error)
{
    const tocsin_guard_call *call = whole->records[0].call;
    const char *kind = kind_names[call->kind];
    int64_t element = -1;
    finding_draft draft;
    tocsin_guard_moment moment = calls->moment;
    if (call_is_reduction(call->kind) && !failure->results_differ && call->length < call_span(call))
        moment.passed = calls->passed_whole;
    tocsin_draft_begin(&draft, TOCSIN_GUARD_COLLECTIVE, moment, whole->count);
    tocsin_json_put_text(&draft.json, "collective", kind);
    tocsin_json_put_unsigned(&draft.json, "call", call->number);
    put_members(&draft.json, whole);
    if (call_is_reduction(call->kind) && !failure->results_differ)
        put_reduced(&draft.json, call, failure);
    else if (!call_is_reduction(call->kind))
        put_transfers(&draft.json, whole, failure);
    tocsin_json_put_unsigned(&draft.json, "other_calls_failed", failed);
    tocsin_string_printf(&draft.text, "%s %" PRIu64 " of its group of %u: ", kind, call->number,
                         call->members);
    if (call_is_reduction(call->kind))
        tell_reduced(&draft, failure, &element);
    else
        tell_transfers(&draft, whole, failure, &element);
    if (failure->culprit >= 0) {
        uint32_t rank = rank_of(whole, (uint32_t)failure->culprit);
        if (!TOCSIN_VEC_PUSH(&draft.ranks, rank))
            draft.text.status = TOCSIN_E_MEMORY;
        draft.content.cause = tocsin_draft_cause(&draft, calls->named, calls->named_count);
        tocsin_string_printf(&draft.text, "; rank %u or its link is wrong", rank);
    } else {
        tocsin_string_append_text(&draft.text, call_is_reduction(call->kind)
                                                   ? "; a rank or a link is wrong"
                                                   : "; either end or what lies between may be "
                                                     "wrong");
    }
    return tocsin_draft_finish(&draft, finding, error);
}
