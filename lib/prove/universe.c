/* universe.c - the life of a universe, its failures and refusals, its scratch memory.
 *
 * Invariant: once `status` is not OK it stays so, and every operation answers 0; a refusal, by
 * contrast, concerns one operation. Cost: an allocation from scratch is a comparison and an
 * addition; scratch keeps its first chunk, so that ordinary operations allocate nothing.
 */
#include "prove/universe.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#define SCRATCH_CHUNK_BYTES ((size_t)1 << 20)
#define ARENA_CHUNK_BYTES   ((size_t)1 << 18)

/* Factors 1 and 0, atoms ONE and IOTA: what every universe has from the start. */
static bool fill(tocsin_universe *universe)
{
    const int64_t extent = TOCSIN_IOTA_EXTENT;
    tocsin_factor_id one = tocsin_factor_rational(universe, 1, 1);
    tocsin_factor_id zero = tocsin_factor_rational(universe, 0, 1);
    tocsin_atom_id unit = tocsin_atom_builtin(universe, TOCSIN_ATOM_ONE, NULL, 0);
    tocsin_atom_id iota = tocsin_atom_builtin(universe, TOCSIN_ATOM_IOTA, &extent, 1);
    bool filled = universe->status == TOCSIN_OK;
    assert(!filled || (one == 0 && zero == TOCSIN_FACTOR_ZERO));
    assert(!filled || (unit == TOCSIN_ATOM_ID_ONE && iota == TOCSIN_ATOM_ID_IOTA));
    (void)one, (void)zero, (void)unit, (void)iota;
    return filled;
}

tocsin_universe *tocsin_universe_new(void)
{
    tocsin_universe *universe = tocsin_zalloc(1, sizeof *universe);
    if (!universe)
        return NULL;
    universe->arena.chunk_bytes = ARENA_CHUNK_BYTES;
    universe->scratch.chunk_bytes = SCRATCH_CHUNK_BYTES;
    /* The first chunk stays: marks are then never taken of an arena without one. */
    bool ready = tocsin_arena_alloc(&universe->scratch, sizeof(uint64_t), 8) && fill(universe);
    if (!ready) {
        tocsin_universe_free(universe);
        return NULL;
    }
    return universe;
}

void tocsin_universe_free(tocsin_universe *universe)
{
    if (!universe)
        return;
    tocsin_definitions_free(universe->definitions);
    tocsin_alignments_free(universe->alignments);
    for (size_t i = 0; i < universe->windows.count; ++i)
        tocsin_free(universe->windows.items[i].items);
    TOCSIN_VEC_FREE(&universe->windows);
    tocsin_intern_free(&universe->window_keys);
    tocsin_intern_free(&universe->view_keys);
    TOCSIN_VEC_FREE(&universe->view_patterns);
    tocsin_map_free(&universe->names);
    TOCSIN_VEC_FREE(&universe->relations);
    tocsin_words_free(&universe->relation_table);
    TOCSIN_VEC_FREE(&universe->atoms);
    tocsin_words_free(&universe->atom_table);
    tocsin_words_free(&universe->factors);
    tocsin_intern_free(&universe->strings);
    tocsin_arena_free(&universe->scratch);
    tocsin_arena_free(&universe->arena);
    tocsin_free(universe);
}

size_t tocsin_universe_relations(const tocsin_universe *universe)
{
    return universe->relations.count;
}

tocsin_status tocsin_universe_status(const tocsin_universe *universe, tocsin_error *error)
{
    if (universe->status == TOCSIN_OK)
        return TOCSIN_OK;
    if (universe->status == TOCSIN_E_MEMORY)
        return tocsin_error_memory(error);
    return tocsin_error_set(
        error, universe->status,
        "the proof exceeds a limit: a factor beyond 64 bits, or too many values");
}

void tocsin_universe_set_strict(tocsin_universe *universe, bool strict)
{
    universe->strict = strict;
}

bool tocsin_universe_is_lenient(tocsin_universe *universe)
{
    universe->lenient |= !universe->strict;
    return !universe->strict;
}

bool tocsin_universe_was_lenient(const tocsin_universe *universe)
{
    return universe->lenient;
}

void tocsin_universe_set_logical(tocsin_universe *universe, bool logical)
{
    universe->logical = logical;
}

void tocsin_universe_set_plan(tocsin_universe *universe, const tocsin_plan *logical)
{
    universe->plan = logical;
}

void tocsin_universe_set_sizes(tocsin_universe *universe, const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; ++symbol) {
        assert(size[symbol] >= 0);
        universe->symbol_size[symbol] = size[symbol];
    }
}

uint32_t tocsin_universe_fail(tocsin_universe *universe, tocsin_status status)
{
    assert(status != TOCSIN_OK);
    if (universe->status == TOCSIN_OK)
        universe->status = status;
    return 0;
}

const tocsin_refusal *tocsin_universe_refusal(const tocsin_universe *universe)
{
    return &universe->refusal;
}

tocsin_relation_id tocsin_universe_refuse(tocsin_universe *universe, int cause, const char *format,
                                          ...)
{
    va_list arguments;
    va_start(arguments, format);
    universe->refusal.cause = cause;
    vsnprintf(universe->refusal.text, sizeof universe->refusal.text, format, arguments);
    va_end(arguments);
    return 0;
}

uint32_t tocsin_universe_refuse_overflow(tocsin_universe *universe)
{
    return tocsin_universe_refuse(universe, TOCSIN_CAUSE_UNPROVED_OUTPUT,
                                  "an index or size exceeds 64 bits");
}

void *tocsin_scratch_alloc(tocsin_universe *universe, size_t count, size_t bytes)
{
    void *memory = NULL;
    if (universe->status == TOCSIN_OK && count <= PTRDIFF_MAX / bytes)
        memory = tocsin_arena_alloc(&universe->scratch, count * bytes, _Alignof(uint64_t));
    if (!memory)
        tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    return memory;
}

const char *tocsin_universe_text(const tocsin_universe *universe, uint32_t string)
{
    return string ? tocsin_intern_text(&universe->strings, string, NULL) : "";
}
