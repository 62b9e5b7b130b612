/* chains.c - orders of calls, put together from the invariants that state them pair by pair.
 *
 * "Between two calls of A, B is called", and the same of B and A: the two take turns. Calls of
 * which each two take turns, under one condition, are one chain. "After every call of A, B is
 * called", also after the last one, but not the other way round: A comes first; a chain of which
 * that is stated of each two calls is printed in this order. Data: both kinds of statements as
 * edges, sorted by condition, caller and callee; an edge is found by bisection. Cost: the square of
 * the calls of a condition, times log of the edges.
 */
#include "chains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct edge { /* between two calls of `call`, or after it, `other` is called */
    const char *condition;
    const char *call;
    const char *other;
} edge;

typedef struct edge_list {
    edge *items;
    size_t count;
} edge_list;

typedef struct node { /* a call of one condition */
    const char *call;
    size_t chain; /* from 1; 0: in none yet */
} node;

static int compare(const void *a, const void *b)
{
    const edge *x = a;
    const edge *y = b;
    int order = strcmp(x->condition, y->condition);
    if (order == 0) {
        order = strcmp(x->call, y->call);
    }
    return order != 0 ? order : strcmp(x->other, y->other);
}

static bool has_edge(const edge *edges, size_t count, const char *condition, const char *call,
                     const char *other)
{
    edge wanted = {.condition = condition, .call = call, .other = other};
    return bsearch(&wanted, edges, count, sizeof *edges, compare) != NULL;
}

static bool take_turns(const edge *edges, size_t count, const char *a, const char *b)
{
    return has_edge(edges, count, edges->condition, a, b) &&
           has_edge(edges, count, edges->condition, b, a);
}

/* Does the node take turns with all of this chain so far? */
static bool fits(const edge *edges, size_t count, const node *nodes, size_t at, size_t chain)
{
    for (size_t i = 0; i < at; i++) {
        if (nodes[i].chain == chain && !take_turns(edges, count, nodes[i].call, nodes[at].call)) {
            return false;
        }
    }
    return true;
}

/* Put each call into the first chain that it fits, or begin one. Returns the number of nodes. */
static size_t find_chains(const edge *edges, size_t count, node *nodes, size_t *chains)
{
    size_t made = 0;
    *chains = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(edges[i].call, edges[i - 1].call) == 0) {
            continue;
        }
        nodes[made] = (node){.call = edges[i].call};
        size_t chain = 1;
        while (chain <= *chains && !fits(edges, count, nodes, made, chain)) {
            chain++;
        }
        *chains = chain > *chains ? chain : *chains;
        nodes[made++].chain = chain;
    }
    return made;
}

static size_t chain_of(const node *nodes, size_t count, const char *call)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(nodes[i].call, call) == 0) {
            return nodes[i].chain;
        }
    }
    return 0;
}

/* How many calls of its chain come after this one? */
static size_t count_led(const edge_list *after, const char *condition, const node *nodes,
                        size_t count, const node *first)
{
    size_t led = 0;
    for (size_t i = 0; i < count; i++) {
        led += nodes[i].chain == first->chain &&
               has_edge(after->items, after->count, condition, first->call, nodes[i].call) &&
               !has_edge(after->items, after->count, condition, nodes[i].call, first->call);
    }
    return led;
}

/* The call of the chain that so many others come after; NULL: no or several ones, so that the order
 * is not known. */
static const node *find_leading(const edge_list *after, const char *condition, const node *nodes,
                                size_t count, size_t chain, size_t led)
{
    const node *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].chain == chain &&
            count_led(after, condition, nodes, count, &nodes[i]) == led) {
            if (found) {
                return NULL;
            }
            found = &nodes[i];
        }
    }
    return found;
}

static void print_chain(const edge_list *after, const node *nodes, size_t count, size_t chain,
                        const char *condition)
{
    size_t members = 0;
    for (size_t i = 0; i < count; i++) {
        members += nodes[i].chain == chain;
    }
    if (members < 2) {
        return;
    }
    bool ordered = true;
    for (size_t led = 0; led < members; led++) {
        ordered = ordered && find_leading(after, condition, nodes, count, chain, led);
    }
    size_t printed = 0;
    for (size_t led = members; ordered && led-- > 0; printed++) {
        const node *next = find_leading(after, condition, nodes, count, chain, led);
        printf("%s%s", printed > 0 ? " -> " : "", next->call);
    }
    for (size_t i = 0; i < count && !ordered; i++) {
        if (nodes[i].chain == chain) {
            printf("%s%s",
                   printed++ == 0       ? ""
                   : printed == members ? " and "
                                        : ", ",
                   nodes[i].call);
        }
    }
    printf(" take turns%s\n", condition);
}

/* What is called between two calls of one, without being in its chain. */
static void print_rest(const edge *edges, size_t count, const node *nodes, size_t node_count)
{
    for (size_t i = 0; i < count; i++) {
        size_t own = chain_of(nodes, node_count, edges[i].call);
        if (own != chain_of(nodes, node_count, edges[i].other)) {
            printf("%s between two calls of %s%s\n", edges[i].other, edges[i].call,
                   edges[i].condition);
        }
    }
}

/* The edges that `other` makes of invariants. False: out of memory. */
static bool collect(const tocsin_invariant_set *set,
                    const char *(*other)(const tocsin_invariant_set *set, size_t index),
                    edge_list *made)
{
    *made = (edge_list){.items = calloc(tocsin_invariants_count(set) + 1, sizeof *made->items)};
    for (size_t i = 0; made->items && i < tocsin_invariants_count(set); i++) {
        const char *called = other(set, i);
        if (called[0] != '\0') {
            made->items[made->count++] = (edge){
                .condition =
                    tocsin_invariant_sentence(set, i) + tocsin_invariant_claim_bytes(set, i),
                .call = tocsin_invariant_call(set, i),
                .other = called,
            };
        }
    }
    if (made->items) {
        qsort(made->items, made->count, sizeof *made->items, compare);
    }
    return made->items != NULL;
}

static void print_all(const edge_list *between, const edge_list *after, node *nodes)
{
    for (size_t first = 0, end; first < between->count; first = end) {
        const edge *edges = &between->items[first];
        size_t chains;
        for (end = first + 1; end < between->count; end++) {
            if (strcmp(between->items[end].condition, edges->condition) != 0) {
                break;
            }
        }
        size_t made = find_chains(edges, end - first, nodes, &chains);
        for (size_t chain = 1; chain <= chains; chain++) {
            print_chain(after, nodes, made, chain, edges->condition);
        }
        print_rest(edges, end - first, nodes, made);
    }
}

int cli_chains_print(const tocsin_invariant_set *set)
{
    edge_list between = {0};
    edge_list after = {0};
    node *nodes = calloc(tocsin_invariants_count(set) + 1, sizeof *nodes);
    bool made = nodes && collect(set, tocsin_invariant_between, &between) &&
                collect(set, tocsin_invariant_after, &after);
    if (made) {
        print_all(&between, &after, nodes);
    } else {
        cli_error("out of memory");
    }
    free(between.items);
    free(after.items);
    free(nodes);
    return made ? CLI_HOLDS : CLI_INTERNAL;
}
