/* library_bench.h - an observer that sees what the shipped library asks for. */
#ifndef TOCSIN_LIBRARY_BENCH_H
#define TOCSIN_LIBRARY_BENCH_H

#include "seen_instances.h"
#include <tocsin/library.h>

static inline relation_bench *library_bench(void)
{
    tocsin_invariant_set *set;
    relation_bench *made = calloc(1, sizeof *made);
    tocsin_population populations[128];
    tocsin_fact facts[128];
    assert_int_equal(tocsin_library_load(&set, NULL), TOCSIN_OK);
    size_t count = tocsin_invariants_count(set);
    assert_true(count <= 128);
    for (size_t i = 0; i < count; ++i) {
        populations[i] = tocsin_invariants_get(set, i)->population;
        facts[i] = tocsin_invariants_get(set, i)->fact;
    }
    assert_int_equal(
        tocsin_vocabulary_copy(tocsin_invariants_vocabulary(set), &made->vocabulary, NULL),
        TOCSIN_OK);
    tocsin_invariants_free(set);
    tocsin_wanted wanted = {
        .populations = populations, .population_count = count, .facts = facts, .fact_count = count};
    tocsin_observer_options options = {
        .vocabulary = made->vocabulary, .sink = collect, .context = made, .wanted = &wanted};
    assert_int_equal(tocsin_observer_new(&options, &made->observer, NULL), TOCSIN_OK);
    for (size_t i = 0; i < 2; ++i) {
        made->process[i].observer = made->observer;
        made->process[i].index = i;
    }
    fake_start(&made->process[0]);
    return made;
}

#endif
