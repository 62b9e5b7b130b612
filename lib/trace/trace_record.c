/* trace_record.c - events as records: varints, time as differences, nothing that needs context but
 * the time and the number of calls before (docs/formats/trace.md, 3.2).
 *
 * Encoding is the hot path of recording: no branch that is not in the format, no bounds to check,
 * for TOCSIN_TRACE_EVENT_MAX holds the longest record. Decoding trusts nothing.
 */
#include "trace/trace_format.h"

#include <assert.h>

enum { TAG_KIND = 7, TAG_SITE = 8, TAG_VALUES = 16, TAG_LR = 32 };
enum { HEAD_KIND = 15, HEAD_TYPE = 16, HEAD_FLAGS = 32, HEAD_COUNT = 64 };

/* head, flags, dtype, ndim; name, type, count, shape: at most 5 bytes each; 10 for an integer.
 * Without its values a record has at most 140 bytes: a state with digest. */
enum { VALUE_BYTES_MAX = 4 + 4 * 5 + 10, FIXED_BYTES_MAX = 200 };
static_assert(FIXED_BYTES_MAX + VALUE_BYTES_MAX * TOCSIN_EVENT_VALUES_MAX <= TOCSIN_TRACE_EVENT_MAX,
              "the longest record fits");

/* ---- encoding ------------------------------------------------------------------------------ */

static uint8_t *put_real(uint8_t *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    tocsin_put_u64(out, bits);
    return out + 8;
}

static uint8_t *put_value(uint8_t *out, const tocsin_value *value)
{
    uint8_t *head = out++;
    unsigned bits = value->kind & HEAD_KIND;
    out += tocsin_varint_put(out, value->name);
    if (value->type) {
        bits |= HEAD_TYPE;
        out += tocsin_varint_put(out, value->type);
    }
    if (value->flags) {
        bits |= HEAD_FLAGS;
        *out++ = value->flags;
    }
    if (value->count) {
        bits |= HEAD_COUNT;
        out += tocsin_varint_put(out, value->count);
    }
    *head = (uint8_t)bits;
    switch (value->kind) {
    case TOCSIN_VALUE_BOOL:
    case TOCSIN_VALUE_INT:
        return out + tocsin_varint_put(out, tocsin_zigzag_encode(value->as.integer));
    case TOCSIN_VALUE_FLOAT:
        return put_real(out, value->as.real);
    case TOCSIN_VALUE_STRING:
    case TOCSIN_VALUE_MODULE:
        return out + tocsin_varint_put(out, value->as.text);
    case TOCSIN_VALUE_TENSOR:
        *out++ = value->dtype;
        *out++ = value->ndim;
        return out + tocsin_varint_put(out, value->as.shape);
    default:
        return out;
    }
}

static uint8_t *put_state(uint8_t *out, const tocsin_state *state, uint8_t *tag)
{
    out += tocsin_varint_put(out, state->variable);
    out += tocsin_varint_put(out, state->attribute);
    *out++ = state->moment;
    out += tocsin_varint_put(out, state->flags);
    if (state->flags & TOCSIN_STATE_PRESENT) {
        *out++ = state->dtype;
        *out++ = state->ndim;
        out += tocsin_varint_put(out, state->shape);
    }
    if (state->lr == state->lr) {
        *tag |= TAG_LR;
        out = put_real(out, state->lr);
    }
    if (state->flags & TOCSIN_STATE_DIGESTED) {
        tocsin_put_u64(out, state->digest.sum);
        tocsin_put_u64(out + 8, state->digest.exclusive);
        tocsin_put_u64(out + 16, state->digest.polynomial);
        out += 24;
        out += tocsin_varint_put(out, state->statistics.nan_count);
        out += tocsin_varint_put(out, state->statistics.inf_count);
        out += tocsin_varint_put(out, state->statistics.zero_count);
        out = put_real(out, state->statistics.absmax);
        out = put_real(out, state->statistics.sum_squares);
    }
    return out;
}

static uint8_t *put_values(uint8_t *out, const tocsin_event *event, uint8_t *tag)
{
    uint32_t count = event->value_count;
    if (count == 0)
        return out;
    if (count > TOCSIN_EVENT_VALUES_MAX)
        count = TOCSIN_EVENT_VALUES_MAX;
    *tag |= TAG_VALUES;
    out += tocsin_varint_put(out, count);
    for (uint32_t i = 0; i < count; ++i)
        out = put_value(out, &event->values[i]);
    return out;
}

size_t tocsin_record_encode(const tocsin_event *event, const tocsin_frame *frame,
                            const tocsin_position *before, uint8_t *out)
{
    assert(event->kind >= TOCSIN_EVENT_ENTER && event->kind <= TOCSIN_EVENT_META);
    assert(frame->time_ns >= before->time_ns);
    uint8_t *tag = out + 2;
    uint8_t *next = out + 3;
    *tag = event->kind;
    next += tocsin_varint_put(next, frame->time_ns - before->time_ns);
    if (event->kind != TOCSIN_EVENT_ENTER)
        next +=
            tocsin_varint_put(next, tocsin_zigzag_encode((int64_t)(before->calls - frame->call)));
    next += tocsin_varint_put(next, frame->depth);
    switch (event->kind) {
    case TOCSIN_EVENT_STATE:
        next = put_state(next, &event->state, tag);
        next = put_values(next, event, tag);
        break;
    case TOCSIN_EVENT_META:
        next += tocsin_varint_put(next, event->key);
        next = put_value(next, &event->values[0]);
        break;
    default:
        next += tocsin_varint_put(next, event->function);
        if (event->kind == TOCSIN_EVENT_ENTER && event->site) {
            *tag |= TAG_SITE;
            next += tocsin_varint_put(next, event->site);
        }
        next = put_values(next, event, tag);
    }
    size_t record_bytes = (size_t)(next - out);
    assert(record_bytes <= TOCSIN_TRACE_EVENT_MAX);
    tocsin_put_u16(out, (uint16_t)(record_bytes - 2));
    return record_bytes;
}

/* ---- decoding ------------------------------------------------------------------------------ */

static const uint8_t *take(tocsin_cursor *in, size_t count)
{
    static const uint8_t zeros[8];
    assert(count <= sizeof zeros);
    if ((size_t)(in->end - in->next) < count) {
        in->failed = true;
        return zeros;
    }
    const uint8_t *taken = in->next;
    in->next += count;
    return taken;
}

uint64_t tocsin_cursor_varint(tocsin_cursor *in)
{
    uint64_t value = 0;
    size_t count = tocsin_varint_get(in->next, (size_t)(in->end - in->next), &value);
    if (count == 0) {
        in->failed = true;
        return 0;
    }
    in->next += count;
    return value;
}

uint32_t tocsin_cursor_u32(tocsin_cursor *in)
{
    uint64_t value = tocsin_cursor_varint(in);
    if (value > UINT32_MAX) {
        in->failed = true;
        return 0;
    }
    return (uint32_t)value;
}

static uint64_t take_u64(tocsin_cursor *in)
{
    return tocsin_get_u64(take(in, 8));
}

static double take_real(tocsin_cursor *in)
{
    uint64_t bits = take_u64(in);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void take_value(tocsin_cursor *in, tocsin_value *value)
{
    uint8_t head = *take(in, 1);
    *value = (tocsin_value){.kind = head & HEAD_KIND};
    value->name = tocsin_cursor_u32(in);
    if (head & HEAD_TYPE)
        value->type = tocsin_cursor_u32(in);
    if (head & HEAD_FLAGS)
        value->flags = *take(in, 1);
    if (head & HEAD_COUNT)
        value->count = tocsin_cursor_u32(in);
    switch (value->kind) {
    case TOCSIN_VALUE_BOOL:
    case TOCSIN_VALUE_INT:
        value->as.integer = tocsin_zigzag_decode(tocsin_cursor_varint(in));
        break;
    case TOCSIN_VALUE_FLOAT:
        value->as.real = take_real(in);
        break;
    case TOCSIN_VALUE_STRING:
    case TOCSIN_VALUE_MODULE:
        value->as.text = tocsin_cursor_u32(in);
        break;
    case TOCSIN_VALUE_TENSOR:
        value->dtype = *take(in, 1);
        value->ndim = *take(in, 1);
        value->as.shape = tocsin_cursor_u32(in);
        in->failed |= value->ndim > TOCSIN_NDIM_MAX;
        break;
    case TOCSIN_VALUE_NONE:
    case TOCSIN_VALUE_SEQUENCE:
    case TOCSIN_VALUE_OBJECT:
    case TOCSIN_VALUE_BIG:
        break;
    default:
        in->failed = true; /* its length is unknown */
    }
}

static void take_state(tocsin_cursor *in, uint8_t tag, tocsin_state *state)
{
    state->variable = tocsin_cursor_u32(in);
    state->attribute = tocsin_cursor_u32(in);
    state->moment = *take(in, 1);
    state->flags = tocsin_cursor_u32(in);
    if (state->flags & TOCSIN_STATE_PRESENT) {
        state->dtype = *take(in, 1);
        state->ndim = *take(in, 1);
        state->shape = tocsin_cursor_u32(in);
        in->failed |= state->ndim > TOCSIN_NDIM_MAX;
    }
    state->lr = tag & TAG_LR ? take_real(in) : __builtin_nan("");
    if (state->flags & TOCSIN_STATE_DIGESTED) {
        state->digest.sum = take_u64(in);
        state->digest.exclusive = take_u64(in);
        state->digest.polynomial = take_u64(in);
        state->statistics.nan_count = tocsin_cursor_varint(in);
        state->statistics.inf_count = tocsin_cursor_varint(in);
        state->statistics.zero_count = tocsin_cursor_varint(in);
        state->statistics.absmax = take_real(in);
        state->statistics.sum_squares = take_real(in);
    }
}

static void take_values(tocsin_cursor *in, tocsin_event *event, tocsin_value *values)
{
    uint64_t count = tocsin_cursor_varint(in);
    if (count > TOCSIN_EVENT_VALUES_MAX) {
        in->failed = true;
        return;
    }
    for (uint64_t i = 0; i < count && !in->failed; ++i)
        take_value(in, &values[i]);
    event->value_count = (uint32_t)count;
}

bool tocsin_record_skip(const uint8_t *bytes, size_t available, tocsin_position *position)
{
    size_t record_bytes = tocsin_record_bytes(bytes, available);
    if (record_bytes < 4)
        return false;
    uint64_t passed_ns;
    if (tocsin_varint_get(bytes + 3, record_bytes - 3, &passed_ns) == 0)
        return false;
    position->offset += record_bytes;
    position->time_ns += passed_ns;
    position->calls += (bytes[2] & TAG_KIND) == TOCSIN_EVENT_ENTER;
    return true;
}

bool tocsin_record_decode(const uint8_t *bytes, size_t record_bytes, const tocsin_position *after,
                          tocsin_event *event, tocsin_value values[TOCSIN_EVENT_VALUES_MAX])
{
    assert(record_bytes >= 4 && record_bytes <= TOCSIN_TRACE_RECORD_MAX);
    tocsin_cursor in = {.next = bytes + 3, .end = bytes + record_bytes};
    uint8_t tag = bytes[2];
    memset(event, 0, sizeof *event);
    event->kind = tag & TAG_KIND;
    event->time_ns = after->time_ns;
    event->values = values;
    (void)tocsin_cursor_varint(&in); /* the time, which `after` has counted */
    if (event->kind < TOCSIN_EVENT_ENTER || event->kind > TOCSIN_EVENT_META) {
        event->kind = 0;
        return !in.failed;
    }
    event->call = after->calls;
    if (event->kind != TOCSIN_EVENT_ENTER)
        event->call -= (uint64_t)tocsin_zigzag_decode(tocsin_cursor_varint(&in));
    event->depth = tocsin_cursor_u32(&in);
    switch (event->kind) {
    case TOCSIN_EVENT_STATE:
        take_state(&in, tag, &event->state);
        if (tag & TAG_VALUES)
            take_values(&in, event, values);
        break;
    case TOCSIN_EVENT_META:
        event->key = tocsin_cursor_u32(&in);
        take_value(&in, &values[0]);
        event->value_count = 1;
        break;
    default:
        event->function = tocsin_cursor_u32(&in);
        if (tag & TAG_SITE)
            event->site = tocsin_cursor_u32(&in);
        if (tag & TAG_VALUES)
            take_values(&in, event, values);
    }
    return !in.failed;
}
