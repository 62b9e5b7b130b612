/* lib/align/recompute.c - what activation checkpointing computes again against the first time.
 *
 * A module that runs again within a backward pass must return what it returned before: a check that
 * costs nothing but the comparison. What is recomputed is looked for among all that the module
 * passed in this step's forward pass, so that neither the order, which checkpointing turns round,
 * nor modules that are called twice, nor a recomputation that stops early matters.
 *
 * Cost: one pass over a step in which something was recomputed, with two look-ups a boundary.
 */
#include "align/align.h"

typedef struct forward_pass {
    tocsin_map values;           /* place and value -> 1 */
    tocsin_map places;           /* place -> the last boundary of it (as an address) */
    uint32_t forward, recompute; /* texts */
} forward_pass;

/* What a boundary is, whichever the phase. */
static uint64_t place_of(const tocsin_boundary *boundary)
{
    uint32_t words[] = {boundary->name, boundary->attribute, boundary->operation,
                        (uint32_t)(boundary->point & TOCSIN_MOMENT_MASK)};
    return tocsin_hash64(words, sizeof words, 0);
}

static uint64_t value_at(uint64_t place, uint64_t value)
{
    return tocsin_mix64(place + tocsin_mix64(value));
}

static bool note_forward(forward_pass *pass, const tocsin_boundary_stream *stream)
{
    for (size_t k = 0; k < stream->items.count; ++k) {
        const tocsin_boundary *boundary = &stream->boundaries.items[k];
        if (boundary->phase != pass->forward || stream->items.items[k].value == 0)
            continue;
        uint64_t place = place_of(boundary);
        if (!tocsin_map_put(&pass->values, value_at(place, stream->items.items[k].value), 1) ||
            !tocsin_map_put(&pass->places, place, (uintptr_t)boundary))
            return false;
    }
    return true;
}

static bool add_found(const tocsin_comparison *comparison, const tocsin_boundary *first,
                      const tocsin_boundary *again, bool in_a)
{
    tocsin_parting *parting = comparison->parting;
    if (parting->recomputed.count == TOCSIN_ALIGN_RECOMPUTED_MAX)
        return true;
    tocsin_recomputed_found found = {.step = comparison->step, .in_a = in_a};
    return tocsin_difference_make(comparison, again, first, &found.difference) &&
           TOCSIN_VEC_PUSH(&parting->recomputed, found);
}

static bool check_stream(const tocsin_comparison *comparison, const forward_pass *pass,
                         const tocsin_boundary_stream *stream, bool in_a)
{
    tocsin_align_recompute *account = &comparison->parting->recompute[in_a ? 0 : 1];
    for (size_t k = 0; k < stream->items.count; ++k) {
        const tocsin_boundary *again = &stream->boundaries.items[k];
        if (again->phase != pass->recompute || stream->items.items[k].value == 0)
            continue;
        uint64_t place = place_of(again);
        const uint64_t *before = tocsin_map_find(&pass->places, place);
        if (!before)
            continue;
        ++account->compared;
        if (tocsin_map_find(&pass->values, value_at(place, stream->items.items[k].value))) {
            ++account->equal;
            continue;
        }
        const tocsin_boundary *first = (const tocsin_boundary *)(uintptr_t)*before;
        if (!add_found(comparison, first, again, in_a))
            return false;
    }
    return true;
}

static bool is_recomputed(const forward_pass *pass, const tocsin_boundary_stream *stream)
{
    for (size_t k = 0; k < stream->items.count; ++k) {
        if (stream->boundaries.items[k].phase == pass->recompute)
            return true;
    }
    return false;
}

bool tocsin_recompute_check(const tocsin_comparison *comparison, const tocsin_whole *whole,
                            bool in_a)
{
    size_t threads = tocsin_whole_stream_count(whole);
    forward_pass pass = {.forward = tocsin_intern_find(comparison->names, "forward", 7),
                         .recompute = tocsin_intern_find(comparison->names, "recompute", 9)};
    bool any = false, ok = true;
    for (size_t t = 0; t < threads; ++t)
        any = any || is_recomputed(&pass, tocsin_whole_stream(whole, t));
    for (size_t t = 0; any && ok && t < threads; ++t)
        ok = note_forward(&pass, tocsin_whole_stream(whole, t));
    for (size_t t = 0; any && ok && t < threads; ++t)
        ok = check_stream(comparison, &pass, tocsin_whole_stream(whole, t), in_a);
    tocsin_map_free(&pass.values);
    tocsin_map_free(&pass.places);
    return ok;
}
