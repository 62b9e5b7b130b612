/* chains.c - orders of calls, put together from the invariants that state them pair by pair.
 *
 * "Between two calls of A, B is called", and the same of B and A: the two take turns. Calls of
 * which each two take turns, under one condition, are one chain. Data: the statements as edges,
 * sorted by condition, caller and callee; an edge is found by bisection. Cost: the square of the
 * calls of a condition, times log of the edges.
 */
#include "chains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct edge { /* between two calls of `call`, `between` is called */
    const char *condition;
    const char *call;
    const char *between;
} edge;

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
    return order != 0 ? order : strcmp(x->between, y->between);
}

static bool has_edge(const edge *edges, size_t count, const char *call, const char *between)
{
    edge wanted = {.condition = edges->condition, .call = call, .between = between};
    return bsearch(&wanted, edges, count, sizeof *edges, compare) != NULL;
}

static bool take_turns(const edge *edges, size_t count, const char *a, const char *b)
{
    return has_edge(edges, count, a, b) && has_edge(edges, count, b, a);
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

static void print_chain(const node *nodes, size_t count, size_t chain, const char *condition)
{
    size_t members = 0;
    for (size_t i = 0; i < count; i++) {
        members += nodes[i].chain == chain;
    }
    if (members < 2) {
        return;
    }
    size_t printed = 0;
    for (size_t i = 0; i < count; i++) {
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
        if (own != chain_of(nodes, node_count, edges[i].between)) {
            printf("%s between two calls of %s%s\n", edges[i].between, edges[i].call,
                   edges[i].condition);
        }
    }
}

static size_t collect(const tocsin_invariant_set *set, edge *edges)
{
    size_t made = 0;
    for (size_t i = 0; i < tocsin_invariants_count(set); i++) {
        const char *between = tocsin_invariant_between(set, i);
        if (between[0] != '\0') {
            edges[made++] = (edge){
                .condition =
                    tocsin_invariant_sentence(set, i) + tocsin_invariant_claim_bytes(set, i),
                .call = tocsin_invariant_call(set, i),
                .between = between,
            };
        }
    }
    qsort(edges, made, sizeof *edges, compare);
    return made;
}

int cli_chains_print(const tocsin_invariant_set *set)
{
    size_t limit = tocsin_invariants_count(set) + 1;
    edge *edges = calloc(limit, sizeof *edges);
    node *nodes = calloc(limit, sizeof *nodes);
    if (!edges || !nodes) {
        free(edges);
        free(nodes);
        cli_error("out of memory");
        return CLI_INTERNAL;
    }
    size_t count = collect(set, edges);
    for (size_t first = 0, end; first < count; first = end) {
        size_t chains;
        for (end = first + 1; end < count; end++) {
            if (strcmp(edges[end].condition, edges[first].condition) != 0) {
                break;
            }
        }
        size_t made = find_chains(edges + first, end - first, nodes, &chains);
        for (size_t chain = 1; chain <= chains; chain++) {
            print_chain(nodes, made, chain, edges[first].condition);
        }
        print_rest(edges + first, end - first, nodes, made);
    }
    free(edges);
    free(nodes);
    return CLI_HOLDS;
}
