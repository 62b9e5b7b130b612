/* lib/align/visit.c - the rows of a pairing, with texts, for who wants to follow the comparison.
 * Cost: one pass over both sequences; nothing, where nobody follows. */
#include "align/align.h"

typedef struct visit {
    const tocsin_align_options *options;
    const tocsin_intern *names;
    tocsin_align_pair row; /* where it stands */
    tocsin_error *error;
} visit;

static tocsin_align_place place_of(const visit *self, const tocsin_boundary *boundary)
{
    return (tocsin_align_place){.name = tocsin_intern_string(self->names, boundary->name),
                                .attribute = tocsin_intern_string(self->names, boundary->attribute),
                                .operation = tocsin_intern_string(self->names, boundary->operation),
                                .phase = tocsin_intern_string(self->names, boundary->phase),
                                .site = tocsin_intern_string(self->names, boundary->site),
                                .call = boundary->point >> 2,
                                .time_ns = boundary->time_ns,
                                .digested = boundary->digested,
                                .digest = boundary->digest};
}

static bool is_condition(const tocsin_boundary *boundary)
{
    return boundary->generator || boundary->setting;
}

static tocsin_status show(const visit *self, const tocsin_boundary *a, const tocsin_boundary *b,
                          tocsin_align_outcome outcome)
{
    tocsin_align_pair row = self->row;
    tocsin_align_place places[2];
    row.outcome = outcome;
    if (is_condition(a ? a : b))
        return TOCSIN_OK;
    if (a) {
        places[0] = place_of(self, a);
        row.a = &places[0];
    }
    if (b) {
        places[1] = place_of(self, b);
        row.b = &places[1];
    }
    return self->options->visit(self->options->context, &row, self->error);
}

static tocsin_align_outcome outcome_of(const tocsin_align_item *a, const tocsin_align_item *b)
{
    if (a->value == 0 || b->value == 0)
        return TOCSIN_ALIGN_NOT_KNOWN;
    return a->value == b->value ? TOCSIN_ALIGN_SAME : TOCSIN_ALIGN_DIFFERS;
}

tocsin_status tocsin_align_visit_rows(const tocsin_align_options *options,
                                      const tocsin_intern *names, const tocsin_align_pair *where,
                                      const tocsin_boundary_stream *a,
                                      const tocsin_boundary_stream *b,
                                      const tocsin_pairing *pairing, tocsin_error *error)
{
    visit self = {.options = options, .names = names, .row = *where, .error = error};
    uint32_t next = 0;
    for (uint32_t i = 0; options->visit && i <= a->items.count; ++i) {
        bool end = i == a->items.count;
        uint32_t j = end ? (uint32_t)b->items.count : pairing->partner[i];
        if (j == TOCSIN_ALIGN_NONE) {
            TOCSIN_TRY(show(&self, &a->boundaries.items[i], NULL, TOCSIN_ALIGN_ONLY_A));
            continue;
        }
        for (; next < j; ++next)
            TOCSIN_TRY(show(&self, NULL, &b->boundaries.items[next], TOCSIN_ALIGN_ONLY_B));
        next = j + 1;
        if (!end)
            TOCSIN_TRY(show(&self, &a->boundaries.items[i], &b->boundaries.items[j],
                            outcome_of(&a->items.items[i], &b->items.items[j])));
    }
    return TOCSIN_OK;
}
