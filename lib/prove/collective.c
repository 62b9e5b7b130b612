/* collective.c - what collectives do to relations, on the declared members in their declared order.
 *
 * Members are either explicit (positions 0..n-1), or devices that each stand for all replicas
 * (replica-major): then the replica is a symbol, and "sum over the group" is a sum over devices
 * followed by the elimination of the symbol (research: parametric in the mesh axis).
 *
 *   all_reduce      sum, mean, maximum of the inputs           same on every member
 *   all_gather      concatenation in group order               same on every member
 *   reduce_scatter  the sum, cut; part j to position j
 *   all_to_all      concatenation over r of part j of r's input
 *   broadcast       the root's input
 */
#include "prove/prover.h"

#include <assert.h>

static bool refuse(const tocsin_prover *prover, const tocsin_exchange *exchange, int cause,
                   const char *text)
{
    tocsin_universe_refuse(prover->universe, cause, "%s: %s", exchange->kind->name, text);
    return false;
}

/* The concatenation of relations in order. */
static tocsin_relation_id joined(const tocsin_prover *prover, const tocsin_relation_id *relations,
                                 uint32_t count, uint32_t dim)
{
    const tocsin_relation_id made = tocsin_relation_cat(prover->universe, relations, count, dim);
    return made == 0 ? 0 : tocsin_relation_realign_pieces(prover->universe, made, prover->size);
}

static bool give_all(const tocsin_exchange *exchange, tocsin_relation_id relation)
{
    for (uint32_t m = 0; m < exchange->member_count; m++)
        exchange->outputs[m] = relation;
    return relation != 0;
}

static int64_t position_count(const tocsin_prover *prover, const tocsin_exchange *exchange)
{
    return (int64_t)exchange->member_count *
           (exchange->over_replicas ? prover->size[TOCSIN_SYMBOL_REPLICA] : 1);
}

static bool same_shapes(const tocsin_prover *prover, const tocsin_exchange *exchange)
{
    const tocsin_relation *first = tocsin_relation_get(prover->universe, exchange->inputs[0]);
    for (uint32_t m = 1; m < exchange->member_count; m++) {
        const tocsin_relation *other = tocsin_relation_get(prover->universe, exchange->inputs[m]);
        if (other->ndim != first->ndim ||
            memcmp(other->shape, first->shape, first->ndim * sizeof first->shape[0]) != 0)
            return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                          "members bring different shapes");
    }
    return true;
}

/* The sum (op sum, avg) or the maximum over all positions; 0: refused. */
static tocsin_relation_id reduced(tocsin_prover *prover, const tocsin_exchange *exchange)
{
    tocsin_universe *universe = prover->universe;
    const char *op = tocsin_kind_text(exchange->kind, "op", "sum");
    const int64_t replicas = prover->size[TOCSIN_SYMBOL_REPLICA];
    tocsin_relation_id result;

    if (strcmp(op, "max") == 0) {
        result = tocsin_relation_join_max(universe, exchange->inputs, exchange->member_count);
        if (result != 0 && exchange->over_replicas)
            result = tocsin_relation_max_over(universe, result, TOCSIN_SYMBOL_REPLICA, replicas);
        return result;
    }
    if (strcmp(op, "sum") != 0 && strcmp(op, "avg") != 0)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                                      "no rule for %s with op=%s", exchange->kind->name, op);
    result = tocsin_relation_add(universe, exchange->inputs, NULL, exchange->member_count);
    if (result != 0 && exchange->over_replicas)
        result = tocsin_relation_sum_over(universe, result, TOCSIN_SYMBOL_REPLICA, replicas);
    if (result != 0 && strcmp(op, "avg") == 0)
        result = tocsin_relation_scale(
            universe, result,
            tocsin_factor_rational(universe, 1, position_count(prover, exchange)));
    return result;
}

static int64_t dim_attribute(const tocsin_prover *prover, const tocsin_exchange *exchange,
                             const char *key)
{
    const int64_t ndim = tocsin_relation_get(prover->universe, exchange->inputs[0])->ndim;
    const int64_t dim = tocsin_kind_integer(exchange->kind, key, 0);
    return dim < 0 ? dim + ndim : dim < ndim ? dim : -1;
}

/* Part `position` of `parts` along dim, for each member. */
static bool scatter(tocsin_prover *prover, const tocsin_exchange *exchange,
                    tocsin_relation_id whole, uint32_t dim)
{
    const int64_t parts = position_count(prover, exchange);
    if (tocsin_relation_get(prover->universe, whole)->shape[dim] % parts != 0)
        return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_SHARD,
                      "the size is not a multiple of the group's");
    for (uint32_t m = 0; m < exchange->member_count; m++) {
        tocsin_affine position = {.base = m};
        if (exchange->over_replicas)
            position.weight[TOCSIN_SYMBOL_REPLICA] = exchange->member_count;
        exchange->outputs[m] =
            tocsin_relation_chunk_at(prover->universe, whole, dim, (uint32_t)parts, position);
        if (exchange->outputs[m] == 0)
            return false;
    }
    return true;
}

static bool all_gather(tocsin_prover *prover, const tocsin_exchange *exchange)
{
    const int64_t dim = dim_attribute(prover, exchange, "dim");
    if (dim < 0)
        return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE, "dim is out of range");
    if (!exchange->over_replicas)
        return give_all(exchange,
                        joined(prover, exchange->inputs, exchange->member_count, (uint32_t)dim));
    return give_all(exchange,
                    tocsin_relation_cat_members_over(
                        prover->universe, exchange->inputs, exchange->member_count, (uint32_t)dim,
                        TOCSIN_SYMBOL_REPLICA, prover->size[TOCSIN_SYMBOL_REPLICA]));
}

static bool all_to_all(tocsin_prover *prover, const tocsin_exchange *exchange)
{
    const int64_t split = dim_attribute(prover, exchange, "split_dim");
    const int64_t join = dim_attribute(prover, exchange, "join_dim");
    const uint32_t count = exchange->member_count;
    if (split < 0 || join < 0)
        return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE, "a dim is out of range");
    if (exchange->over_replicas)
        return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                      "all_to_all over replicas needs --enumerate");
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_relation_id *parts = TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_relation_id, count);
    bool done = parts != NULL;
    for (uint32_t j = 0; done && j < count; j++) {
        for (uint32_t r = 0; done && r < count; r++) {
            parts[r] = tocsin_relation_chunk_at(prover->universe, exchange->inputs[r],
                                                (uint32_t)split, count, (tocsin_affine){.base = j});
            done = parts[r] != 0;
        }
        if (done)
            exchange->outputs[j] =
                tocsin_relation_cat(prover->universe, parts, count, (uint32_t)join);
        done = done && exchange->outputs[j] != 0;
    }
    tocsin_arena_reset_to(&prover->arena, mark);
    return done;
}

static bool broadcast(tocsin_prover *prover, const tocsin_exchange *exchange)
{
    const int64_t root = tocsin_kind_integer(exchange->kind, "root", 0);
    if (root < 0 || root >= position_count(prover, exchange))
        return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE, "the root is no member");
    const tocsin_relation_id source = exchange->inputs[root % exchange->member_count];
    if (source == 0)
        return refuse(prover, exchange, TOCSIN_CAUSE_UNDEFINED_VALUE, "the root brings no value");
    if (!exchange->over_replicas)
        return give_all(exchange, source);
    return give_all(exchange, tocsin_relation_fix(prover->universe, source, TOCSIN_SYMBOL_REPLICA,
                                                  root / exchange->member_count));
}

bool tocsin_exchange_relations(tocsin_prover *prover, const tocsin_exchange *exchange)
{
    assert(exchange->member_count >= 1);
    for (uint32_t m = 0; m < exchange->member_count; m++)
        exchange->outputs[m] = 0;
    if (exchange->kind->code == TOCSIN_OPERATOR_BROADCAST)
        return broadcast(prover, exchange);
    for (uint32_t m = 0; m < exchange->member_count; m++)
        if (exchange->inputs[m] == 0)
            return refuse(prover, exchange, TOCSIN_CAUSE_UNDEFINED_VALUE,
                          "a member brings an undefined value");
    if (exchange->kind->code != TOCSIN_OPERATOR_ALL_GATHER && !same_shapes(prover, exchange))
        return false;
    tocsin_relation_id whole;
    int64_t dim;
    switch (exchange->kind->code) {
    case TOCSIN_OPERATOR_ALL_REDUCE:
        return give_all(exchange, reduced(prover, exchange));
    case TOCSIN_OPERATOR_REDUCE_SCATTER:
        dim = dim_attribute(prover, exchange, "dim");
        if (dim < 0)
            return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE, "dim is out of range");
        whole = reduced(prover, exchange);
        return whole != 0 && scatter(prover, exchange, whole, (uint32_t)dim);
    case TOCSIN_OPERATOR_ALL_GATHER:
        return all_gather(prover, exchange);
    case TOCSIN_OPERATOR_ALL_TO_ALL:
        return all_to_all(prover, exchange);
    default:
        return refuse(prover, exchange, TOCSIN_CAUSE_WRONG_COLLECTIVE, "is no collective");
    }
}
