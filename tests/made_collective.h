/* made_collective.h - collectives of a few members in memory, and what the members tell of them. */
#ifndef TOCSIN_MADE_COLLECTIVE_H
#define TOCSIN_MADE_COLLECTIVE_H

#include "cmocka_test.h"
#include <stdbool.h>
#include <string.h>
#include <tocsin/communication.h>

#include "prop/digest_oracle.h"

#define MADE_MEMBERS 6
#define MADE_WORDS   48
#define MADE_BYTES   (sizeof(tocsin_guard_call) + 2 * MADE_WORDS * 8 + 2 * MADE_MEMBERS * 24)

typedef struct made_collective {
    uint32_t kind, members, root, target; /* messages: from root to target */
    uint64_t number;
    uint32_t words[MADE_MEMBERS][MADE_MEMBERS]; /* [from][to] */
    uint32_t sent[MADE_MEMBERS][MADE_MEMBERS][MADE_WORDS];
    uint32_t received[MADE_MEMBERS][MADE_MEMBERS][MADE_WORDS];
    bool details; /* digests of each transfer are told, too */
    uint64_t bytes[MADE_MEMBERS][MADE_BYTES / 8];
    tocsin_guard_message messages[MADE_MEMBERS];
} made_collective;

static inline tocsin_digest made_digest(const uint32_t *words, uint32_t count)
{
    tocsin_digest digest;
    const int64_t shape[] = {count};
    const tocsin_tensor_view view = {
        .data = words, .dtype = TOCSIN_DTYPE_UINT32, .ndim = 1, .shape = shape};
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, NULL), TOCSIN_OK);
    return digest;
}

static inline bool made_moves(const made_collective *made, uint32_t from, uint32_t to)
{
    switch (made->kind) {
    case TOCSIN_GUARD_CALL_BROADCAST:
    case TOCSIN_GUARD_CALL_SCATTER:
        return from == made->root;
    case TOCSIN_GUARD_CALL_GATHER:
        return to == made->root;
    case TOCSIN_GUARD_CALL_SEND:
        return from == made->root && to == made->target;
    default:
        return true;
    }
}

/* A healthy collective of random words. */
static inline void made_begin(made_collective *made, uint32_t kind, uint32_t members,
                              uint64_t *random)
{
    *made = (made_collective){.kind = kind, .members = members, .number = 7};
    made->root = (uint32_t)oracle_below(random, members);
    made->target = (uint32_t)oracle_below(random, members);
    bool uneven = kind >= TOCSIN_GUARD_CALL_ALL_TO_ALL;
    uint32_t even = 1 + (uint32_t)oracle_below(random, MADE_WORDS);
    for (uint32_t from = 0; from < members; ++from) {
        for (uint32_t to = 0; to < members; ++to) {
            if (!made_moves(made, from, to))
                continue;
            uint32_t words = uneven ? 1 + (uint32_t)oracle_below(random, MADE_WORDS) : even;
            made->words[from][to] = words;
            for (uint32_t w = 0; w < words; ++w)
                made->sent[from][to][w] = (uint32_t)oracle_random(random);
            if (kind <= TOCSIN_GUARD_CALL_ALL_GATHER && to > 0)
                memcpy(made->sent[from][to], made->sent[from][0], sizeof made->sent[from][0]);
            memcpy(made->received[from][to], made->sent[from][to], sizeof made->sent[from][to]);
        }
    }
}

static inline void made_record(made_collective *made, uint32_t member, uint32_t kind)
{
    tocsin_digest transfers[2][MADE_MEMBERS];
    tocsin_guard_call call = {.group = 3,
                              .number = made->number,
                              .kind = kind,
                              .members = made->members,
                              .member = member,
                              .width = 4};
    for (uint32_t peer = 0; peer < made->members; ++peer) {
        uint32_t out = made->words[member][peer], in = made->words[peer][member];
        transfers[0][peer] = made_digest(made->sent[member][peer], out);
        transfers[1][peer] = made_digest(made->received[peer][member], in);
        call.count = out > call.count ? out : call.count;
        call.count = in > call.count ? in : call.count;
    }
    call.sent = tocsin_guard_transfer_sum(transfers[0], made->members, member, true);
    call.received = tocsin_guard_transfer_sum(transfers[1], made->members, member, false);
    if (made->kind == TOCSIN_GUARD_CALL_SEND) {
        call.source = made->root;
        call.target = made->target;
        call.count = made->words[made->root][made->target];
        call.sent = transfers[0][made->target];
        call.received = transfers[1][made->root];
    } else if (made->details) {
        call.payload = 2 * made->members * sizeof(tocsin_digest);
    }
    unsigned char *at = (unsigned char *)made->bytes[member] + made->messages[member].size;
    memcpy(at, &call, sizeof call);
    memcpy(at + sizeof call, transfers[0], made->members * sizeof(tocsin_digest));
    memcpy(at + sizeof call + made->members * sizeof(tocsin_digest), transfers[1],
           made->members * sizeof(tocsin_digest));
    made->messages[member].size += sizeof call + call.payload;
}

/* What the members tell; ranks are members. */
static inline void made_tell(made_collective *made)
{
    for (uint32_t m = 0; m < made->members; ++m) {
        made->messages[m] = (tocsin_guard_message){.bytes = made->bytes[m]};
        if (made->kind != TOCSIN_GUARD_CALL_SEND)
            made_record(made, m, made->kind);
    }
    if (made->kind == TOCSIN_GUARD_CALL_SEND) {
        made_record(made, made->root, TOCSIN_GUARD_CALL_SEND);
        made_record(made, made->target, TOCSIN_GUARD_CALL_RECEIVE);
    }
}

static inline tocsin_status made_judge(const made_collective *made, uint32_t own, uint8_t *states,
                                       size_t count, tocsin_guard_finding **finding,
                                       tocsin_error *error)
{
    const tocsin_guard_calls calls = {.moment = {.step = 5, .passed = 4},
                                      .messages = made->messages,
                                      .rank_count = made->members,
                                      .own = own};
    tocsin_guard_undone undone;
    tocsin_status status = tocsin_guard_judge_calls(&calls, states, count, &undone, finding, error);
    if (status == TOCSIN_OK && count)
        assert_int_equal(undone.wanted, states[0] == TOCSIN_GUARD_CALL_WANTED ||
                                            states[0] == TOCSIN_GUARD_CALL_WHOLE);
    return status;
}

#endif
