/* made_step.h - one step of two runs, made by hand: boundaries that both have, or one alone. */
#ifndef TOCSIN_MADE_STEP_H
#define TOCSIN_MADE_STEP_H

#include "cmocka_test.h"

#include "align/align.h"

typedef struct made_step {
    tocsin_intern names;
    tocsin_arena arena;
    tocsin_boundary_stream a, b;
    uint32_t partner[32];
} made_step;

typedef struct made_boundary {
    const char *name, *attribute, *operation, *phase;
    uint64_t call;
    tocsin_moment moment;
    bool module;   /* the call is a module's */
    uint64_t a, b; /* values; 0: not read */
    enum { IN_BOTH, IN_A, IN_B } in;
} made_boundary;

static inline uint32_t made_text(made_step *step, const char *words)
{
    return tocsin_intern_put(&step->names, words, strlen(words));
}

static inline uint32_t made_put(tocsin_boundary_stream *stream, tocsin_boundary boundary,
                                uint32_t symbol, uint64_t value)
{
    tocsin_align_item item = {.value = value, .symbol = symbol};
    boundary.digested = value != 0;
    boundary.digest.sum = value;
    assert_true(TOCSIN_VEC_PUSH(&stream->items, item));
    assert_true(TOCSIN_VEC_PUSH(&stream->boundaries, boundary));
    return (uint32_t)stream->items.count - 1;
}

/* Append it; returns where it stands, in b if it is there alone. */
static inline uint32_t made_add(made_step *step, made_boundary it)
{
    tocsin_boundary boundary = {.name = made_text(step, it.name),
                                .attribute = made_text(step, it.attribute),
                                .operation = made_text(step, it.operation),
                                .phase = made_text(step, it.phase),
                                .point = it.call << 2 | it.moment,
                                .micro_batch = 1,
                                .present = true};
    uint32_t symbol[] = {boundary.name, boundary.attribute, boundary.operation, boundary.phase};
    uint32_t id = tocsin_intern_put(&step->names, symbol, sizeof symbol);
    tocsin_call_chain *chain = TOCSIN_ARENA_NEW(&step->arena, tocsin_call_chain);
    assert_non_null(chain);
    *chain = (tocsin_call_chain){.operation = boundary.operation,
                                 .module = it.module ? boundary.name : 0};
    boundary.chain = chain;
    boundary.gradient = strcmp(it.attribute, "grad") == 0;
    boundary.parameter = strstr(it.name, "weight") != NULL;
    uint32_t in_a = it.in == IN_B ? 0 : made_put(&step->a, boundary, id, it.a);
    uint32_t in_b = it.in == IN_A ? 0 : made_put(&step->b, boundary, id, it.b);
    if (it.in != IN_B)
        step->partner[in_a] = it.in == IN_A ? TOCSIN_ALIGN_NONE : in_b;
    return it.in == IN_B ? in_b : in_a;
}

static inline tocsin_paired_step made_pair(const made_step *step)
{
    static const tocsin_align_options exact;
    return (tocsin_paired_step){.a = &step->a,
                                .b = &step->b,
                                .partner = step->partner,
                                .names = &step->names,
                                .options = &exact,
                                .step = 2};
}

static inline void made_free(made_step *step)
{
    TOCSIN_VEC_FREE(&step->a.items);
    TOCSIN_VEC_FREE(&step->a.boundaries);
    TOCSIN_VEC_FREE(&step->b.items);
    TOCSIN_VEC_FREE(&step->b.boundaries);
    tocsin_intern_free(&step->names);
    tocsin_arena_free(&step->arena);
}

#endif
