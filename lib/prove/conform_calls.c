/* conform_calls.c - do two calls agree, and calls as text.
 *
 * What a side does not know agrees with everything. Reductions, sends, receives and broadcasts keep
 * the operand's shape. The run gathers and scatters along dim 0 of memory, the plan along a dim of
 * the value: there only the number of elements must be the same, and the order of the ranks counts.
 */
#include <stdlib.h>

#include "prove/conform.h"

#define X(name, text, meaning) text,
static const char *const deviation_texts[] = {TOCSIN_DEVIATION_TABLE(X)};
#undef X
#define X(name, text, meaning) meaning,
static const char *const deviation_meanings[] = {TOCSIN_DEVIATION_TABLE(X)};
#undef X

const char *tocsin_deviation_text(tocsin_deviation deviation)
{
    return (unsigned)deviation < TOCSIN_COUNT_OF(deviation_texts) ? deviation_texts[deviation]
                                                                  : "?";
}

const char *tocsin_deviation_meaning(tocsin_deviation deviation)
{
    return (unsigned)deviation < TOCSIN_COUNT_OF(deviation_meanings) ? deviation_meanings[deviation]
                                                                     : "?";
}

/* ---- agreement ------------------------------------------------------------------------------- */

static bool is_peer_to_peer(const tocsin_call *call)
{
    return call->kind == TOCSIN_OPERATOR_SEND || call->kind == TOCSIN_OPERATOR_RECV;
}

static uint32_t rank_at(const char *ranks, size_t index)
{
    uint32_t rank = 0;
    memcpy(&rank, ranks + index * sizeof rank, sizeof rank);
    return rank;
}

static bool has_rank(const char *ranks, size_t bytes, uint32_t rank)
{
    for (size_t k = 0; k < bytes / sizeof rank; ++k)
        if (rank_at(ranks, k) == rank)
            return true;
    return false;
}

static bool same_group(const tocsin_intern *groups, const tocsin_call *planned,
                       const tocsin_call *issued)
{
    const tocsin_call_group *left = &planned->group, *right = &issued->group;
    if (!left->ranks || !right->ranks || is_peer_to_peer(planned))
        return true;
    if (left->count != right->count)
        return false;
    if (left->ranks == right->ranks)
        return true;
    size_t bytes = 0, all = 0;
    const char *known = tocsin_intern_text(groups, right->ranks, &bytes);
    const char *ranks = tocsin_intern_text(groups, left->ranks, &all);
    bool ordered = planned->kind != TOCSIN_OPERATOR_ALL_REDUCE &&
                   planned->kind != TOCSIN_OPERATOR_BARRIER &&
                   planned->kind != TOCSIN_OPERATOR_BROADCAST; /* whose root is a rank here */
    if (ordered)
        return bytes < all && memcmp(known, ranks, bytes) == 0;
    for (size_t k = 0; k < bytes / sizeof(uint32_t); ++k)
        if (!has_rank(ranks, all, rank_at(known, k)))
            return false;
    return true;
}

static bool same_shape(const tocsin_call *planned, const tocsin_call *issued)
{
    if (planned->elements < 0 || issued->elements < 0)
        return true;
    if (planned->elements != issued->elements)
        return false;
    bool free = planned->kind == TOCSIN_OPERATOR_ALL_GATHER ||
                planned->kind == TOCSIN_OPERATOR_REDUCE_SCATTER ||
                planned->kind == TOCSIN_OPERATOR_ALL_TO_ALL;
    if (free || !planned->shape || !issued->shape)
        return true;
    return planned->ndim == issued->ndim &&
           memcmp(planned->shape, issued->shape, planned->ndim * sizeof *planned->shape) == 0;
}

bool tocsin_call_matches(const tocsin_intern *groups, const tocsin_call *planned,
                         const tocsin_call *issued, tocsin_deviation *deviation)
{
    if (planned->kind != issued->kind)
        *deviation = TOCSIN_DEVIATION_KIND;
    else if (!same_group(groups, planned, issued))
        *deviation = TOCSIN_DEVIATION_GROUP;
    else if (planned->reduction && issued->reduction && planned->reduction != issued->reduction)
        *deviation = TOCSIN_DEVIATION_REDUCTION;
    else if (!same_shape(planned, issued))
        *deviation = TOCSIN_DEVIATION_SHAPE;
    else if (planned->dtype && issued->dtype && planned->dtype != issued->dtype)
        *deviation = TOCSIN_DEVIATION_DTYPE;
    else if ((planned->peer >= 0 && issued->peer >= 0 && planned->peer != issued->peer) ||
             planned->tag != issued->tag)
        *deviation = TOCSIN_DEVIATION_PEER;
    else
        return true;
    return false;
}

/* ---- text ------------------------------------------------------------------------------------ */

enum { RANKS_NAMED_MAX = 16 };

void tocsin_call_group_text(const tocsin_intern *groups, tocsin_call_group group,
                            tocsin_string *text)
{
    size_t bytes = 0;
    const char *ranks = tocsin_intern_text(groups, group.ranks, &bytes);
    size_t count = ranks ? bytes / sizeof(uint32_t) : 0;
    if (!count) {
        tocsin_string_append_text(text, "unknown ranks");
        return;
    }
    uint32_t first = rank_at(ranks, 0), last = rank_at(ranks, count - 1);
    uint32_t stride = count > 1 ? rank_at(ranks, 1) - first : 0;
    bool regular = count > 3;
    for (size_t k = 1; k < count && regular; ++k)
        regular = rank_at(ranks, k) - rank_at(ranks, k - 1) == stride;
    if (regular && stride < UINT32_MAX / 2) {
        tocsin_string_printf(text, "ranks %u to %u", first, last);
        if (stride != 1)
            tocsin_string_printf(text, " by %u", stride);
        return;
    }
    tocsin_string_append_text(text, count == 1 ? "rank " : "ranks ");
    for (size_t k = 0; k < count && k < RANKS_NAMED_MAX; ++k)
        tocsin_string_printf(text, "%s%u", k ? "," : "", rank_at(ranks, k));
    if (count > RANKS_NAMED_MAX || group.cut)
        tocsin_string_printf(text, ",... (%u)", group.count);
}

static void append_operand(const tocsin_call *call, tocsin_string *text)
{
    if (call->elements < 0)
        return;
    tocsin_string_printf(text, " %s[", tocsin_dtype_name((tocsin_dtype)call->dtype));
    if (!call->shape && call->elements != 1)
        tocsin_string_printf(text, "%lld elements", (long long)call->elements);
    for (uint8_t d = 0; call->shape && d < call->ndim; ++d)
        tocsin_string_printf(text, "%s%lld", d ? "," : "", (long long)call->shape[d]);
    tocsin_string_append_char(text, ']');
}

void tocsin_call_text(const tocsin_plan *plan, const tocsin_intern *groups, const tocsin_call *call,
                      tocsin_string *text)
{
    static const char *const reductions[] = {"", " sum", " avg", " max", " min", " other"};
    if (plan) {
        const tocsin_plan_op *op = &plan->ops.items[call->op];
        const char *label = tocsin_plan_text(plan, op->label);
        tocsin_string_printf(text, "%s%s%s", label, label[0] ? ": " : "",
                             tocsin_plan_text(plan, op->name));
    } else {
        tocsin_string_append_text(text, call->function);
    }
    tocsin_string_append_text(text, reductions[call->reduction]);
    append_operand(call, text);
    if (is_peer_to_peer(call)) {
        tocsin_string_printf(text, call->kind == TOCSIN_OPERATOR_SEND ? " to" : " from");
        if (call->peer >= 0)
            tocsin_string_printf(text, " rank %lld", (long long)call->peer);
        else
            tocsin_string_append_text(text, " an unknown rank");
        if (call->tag)
            tocsin_string_printf(text, ", tag %lld", (long long)call->tag);
    } else {
        tocsin_string_append_text(text, " over ");
        tocsin_call_group_text(groups, call->group, text);
        if (call->kind == TOCSIN_OPERATOR_BROADCAST && call->peer >= 0)
            tocsin_string_printf(text, " from rank %lld", (long long)call->peer);
    }
    if (plan && call->microbatch >= 0 && plan->microbatches > 1)
        tocsin_string_printf(text, ", micro-batch %d", call->microbatch);
}
