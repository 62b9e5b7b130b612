/* lib/align/message.c - whom a send or receive goes to, from the call's arguments.
 *
 * Both ends give a message one name, made of sender, receiver and tag; the n-th of a name on one
 * side is the n-th on the other, since backends deliver in order. A partner is given by its rank in
 * the world (`dst`, `src`) or in the group (`group_dst`, `group_src`).
 *
 * Cost: one pass over the values of the call.
 */
#include "align/align.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const sends[] = {"torch.distributed.send", "torch.distributed.isend"};
static const char *const receives[] = {"torch.distributed.recv", "torch.distributed.irecv"};

static bool is_one_of(const char *name, const char *const names[2])
{
    return strcmp(name, names[0]) == 0 || strcmp(name, names[1]) == 0;
}

bool tocsin_message_is_call(const char *function)
{
    return is_one_of(function, sends) || is_one_of(function, receives) ||
           strcmp(function, "torch.distributed.batch_isend_irecv") == 0;
}

/* The argument of this name or, given by position, of this one ("arg1"). NULL: not given, or None.
 */
static const tocsin_value *argument(const tocsin_trace *trace, const tocsin_event *event,
                                    const char *name, const char *position)
{
    for (uint32_t v = 0; v < event->value_count; ++v) {
        const tocsin_value *value = &event->values[v];
        const char *given = tocsin_trace_string(trace, value->name);
        if (!(value->flags & TOCSIN_VALUE_IN_SEQUENCE) &&
            (strcmp(given, name) == 0 || strcmp(given, position) == 0))
            return value->kind == TOCSIN_VALUE_NONE ? NULL : value;
    }
    return NULL;
}

/* A number and what stands behind it; NULL: there is none. */
static const char *take_number(const char *text, char before, int64_t *number)
{
    char *end;
    if (*text != before)
        return NULL;
    *number = strtoll(text + 1, &end, 10);
    return end == text + 1 ? NULL : end;
}

/* The rank in the world of the index-th of a group: "group:3:0,2,5", "group:4:0+2". -1: none. */
static int64_t rank_in(const char *group, int64_t index)
{
    int64_t count, rank, stride;
    const char *at = strncmp(group, "group", 5) == 0 ? take_number(group + 5, ':', &count) : NULL;
    at = at ? take_number(at, ':', &rank) : NULL;
    if (!at || index < 0 || index >= count)
        return -1;
    if (take_number(at, '+', &stride))
        return __builtin_mul_overflow(index, stride, &stride) ||
                       __builtin_add_overflow(rank, stride, &rank)
                   ? -1
                   : rank;
    for (; index > 0; --index) {
        at = take_number(at, ',', &rank);
        if (!at)
            return -1; /* cut off */
    }
    return rank;
}

static int64_t partner(const tocsin_trace *trace, const tocsin_event *event, bool sent)
{
    const tocsin_value *world = argument(trace, event, sent ? "dst" : "src", "arg1");
    if (world)
        return world->kind == TOCSIN_VALUE_INT ? world->as.integer : -1;
    const tocsin_value *index = argument(trace, event, sent ? "group_dst" : "group_src", "arg4");
    if (!index || index->kind != TOCSIN_VALUE_INT)
        return -1; /* from anybody */
    const tocsin_value *group = argument(trace, event, "group", "arg2");
    if (!group)
        return index->as.integer; /* in the world */
    return group->kind == TOCSIN_VALUE_STRING
               ? rank_in(tocsin_trace_string(trace, group->as.text), index->as.integer)
               : -1;
}

bool tocsin_message_name(const tocsin_trace *trace, const tocsin_event *event, int64_t rank,
                         tocsin_meeting_kind *kind, char text[TOCSIN_MESSAGE_NAME_BYTES])
{
    const char *function = tocsin_trace_function_name(trace, event->function);
    bool sent = is_one_of(function, sends);
    if (rank < 0 || (!sent && !is_one_of(function, receives)))
        return false;
    int64_t other = partner(trace, event, sent);
    const tocsin_value *tag = argument(trace, event, "tag", "arg3");
    if (other < 0)
        return false;
    snprintf(text, TOCSIN_MESSAGE_NAME_BYTES, "message:%" PRId64 ":%" PRId64 ":%" PRId64,
             sent ? rank : other, sent ? other : rank,
             tag && tag->kind == TOCSIN_VALUE_INT ? tag->as.integer : 0);
    *kind = sent ? TOCSIN_MEETING_SENT : TOCSIN_MEETING_RECEIVED;
    return true;
}
