/* lib/align/own_name.c - what a run itself calls a boundary that a map gave the other run's name,
 * and where the element that differs lies in it. */
#include "align/align.h"

/* "a.q + a.k + a.v": which part differs is not known. */
static const char *join_names(tocsin_arena *arena, const tocsin_intern *names,
                              const tocsin_boundary *boundary)
{
    tocsin_string text = {0};
    for (uint32_t part = 0; part < boundary->part_count; ++part) {
        const char *name = tocsin_intern_text(names, boundary->parts[part].name, NULL);
        tocsin_string_printf(&text, "%s%s", part > 0 ? " + " : "", name ? name : "");
    }
    const char *kept = text.status == TOCSIN_OK
                           ? tocsin_arena_copy(arena, tocsin_string_text(&text), text.bytes)
                           : NULL;
    tocsin_string_free(&text);
    return kept;
}

/* The part in which the element lies, and where. */
static bool place_in_part(tocsin_arena *arena, const tocsin_boundary *boundary,
                          const tocsin_align_pivot *pivot, tocsin_align_side *side, uint32_t *name)
{
    int64_t period = boundary->group_rows;
    int64_t group = period ? pivot->index[0] / period : 0;
    int64_t row = pivot->index[0] - group * period;
    uint32_t part = boundary->part_count - 1;
    while (part > 0 && boundary->parts[part].begin > row)
        --part;
    const tocsin_boundary_part *found = &boundary->parts[part];
    int64_t *index = TOCSIN_ARENA_ARRAY(arena, int64_t, pivot->ndim);
    if (!index)
        return false;
    memcpy(index, pivot->index, pivot->ndim * sizeof *index);
    index[0] = group * found->rows + row - found->begin;
    if (boundary->exchanged && pivot->ndim == 2) {
        index[0] = pivot->index[1];
        index[1] = pivot->index[0];
    }
    side->index = index;
    side->ndim = pivot->ndim;
    *name = found->name;
    return true;
}

bool tocsin_align_own_place(tocsin_arena *arena, const tocsin_intern *names,
                            const tocsin_boundary *boundary, const tocsin_align_pivot *pivot,
                            tocsin_align_side *side)
{
    uint32_t own = boundary->own;
    side->name = "";
    if (boundary->part_count > 0 && pivot->located && pivot->ndim > 0) {
        if (!place_in_part(arena, boundary, pivot, side, &own))
            return false;
    } else if (boundary->part_count > 0) {
        side->name = join_names(arena, names, boundary);
        return side->name != NULL;
    }
    const char *text = own ? tocsin_intern_text(names, own, NULL) : NULL;
    if (text)
        side->name = tocsin_arena_copy(arena, text, strlen(text));
    return side->name != NULL;
}
