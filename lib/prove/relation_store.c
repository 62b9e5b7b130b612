/* relation_store.c - from the words of a relation to its view, once per relation.
 *
 * normal_form.c lays the words out; digits, boxes and segments are read where they lie. Cost: a
 * hash of the words, and for a new relation a pass over its terms.
 */
#include <assert.h>

#include "prove/universe.h"

enum { COUNT_BYTES = 16, ITEM_WORDS = 7 };

const tocsin_relation *tocsin_relation_get(const tocsin_universe *universe, tocsin_relation_id id)
{
    assert(id > 0 && id <= universe->relations.count);
    return &universe->relations.items[id - 1]->view;
}

static uint8_t symbols_of(const tocsin_term *term)
{
    uint8_t symbols = 0;
    for (uint32_t i = 0; i < term->digit_total + term->pinned_count; ++i)
        symbols |= tocsin_affine_symbols(&term->digits[i].start);
    for (uint32_t i = 0; i < term->box_count; ++i)
        symbols |= tocsin_affine_symbols(&term->box[i].start);
    return symbols;
}

static const uint64_t *decode_term(const uint64_t *word, tocsin_term *term)
{
    *term = (tocsin_term){.atom = (tocsin_atom_id)word[0],
                          .factor = (tocsin_factor_id)(word[0] >> 32),
                          .digit_total = (uint16_t)word[1],
                          .pinned_count = (uint16_t)(word[1] >> 16),
                          .box_count = (uint32_t)(word[1] >> 32),
                          .digit_count = (const uint8_t *)(word + 2)};
    word += 2 + COUNT_BYTES / 8;
    term->digits = (const tocsin_digit *)word;
    word += (size_t)(term->digit_total + term->pinned_count) * ITEM_WORDS;
    term->box = (const tocsin_box_entry *)word;
    return word + (size_t)term->box_count * ITEM_WORDS;
}

static bool is_foreign(const tocsin_universe *universe, const tocsin_relation *view)
{
    for (uint32_t k = 0; k < view->count; ++k) {
        if (view->segmented ? tocsin_relation_get(universe, view->segments[k])->foreign
                            : !tocsin_atom_get(universe, view->terms[k].atom)->logical)
            return true;
    }
    return false;
}

static bool decode(tocsin_universe *universe, const uint64_t *words, tocsin_relation *view)
{
    *view = (tocsin_relation){.ndim = (uint8_t)words[0],
                              .segmented = words[0] >> 8 & 1,
                              .segment_dim = (uint8_t)(words[0] >> 16),
                              .count = (uint32_t)(words[0] >> 32),
                              .shape = (const int64_t *)(words + 1)};
    const uint64_t *word = words + 1 + view->ndim;
    if (view->segmented) {
        view->segments = (const tocsin_relation_id *)word;
        for (uint32_t k = 0; k < view->count; ++k)
            view->symbols |= tocsin_relation_get(universe, view->segments[k])->symbols;
    } else {
        tocsin_term *terms = tocsin_arena_alloc(&universe->arena, view->count * sizeof *terms,
                                                _Alignof(tocsin_term));
        if (!terms)
            return false;
        for (uint32_t k = 0; k < view->count; ++k) {
            word = decode_term(word, &terms[k]);
            view->symbols |= symbols_of(&terms[k]);
        }
        view->terms = terms;
    }
    view->foreign = is_foreign(universe, view);
    return true;
}

tocsin_relation_id tocsin_relation_intern(tocsin_universe *universe, const uint64_t *words,
                                          uint32_t count)
{
    bool made;
    uint32_t id =
        tocsin_words_put(&universe->relation_table, &universe->arena, words, count, &made);
    if (!id)
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    if (made) {
        struct tocsin_stored_relation *stored =
            TOCSIN_ARENA_NEW(&universe->arena, struct tocsin_stored_relation);
        const uint64_t *kept = universe->relation_table.entries.items[id - 1].words;
        if (!stored || !decode(universe, kept, &stored->view) ||
            !TOCSIN_VEC_PUSH(&universe->relations, stored))
            return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
        stored->registered = false;
        assert(universe->relations.count == id);
    }
    struct tocsin_stored_relation *stored = universe->relations.items[id - 1];
    if (universe->logical && !stored->registered) {
        stored->registered = true;
        stored->view.foreign = is_foreign(universe, &stored->view);
        if (!tocsin_windows_register(universe, &stored->view))
            return 0;
    }
    return id;
}
