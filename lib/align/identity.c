/* lib/align/identity.c - what a boundary is called.
 *
 * The id of a boundary is its symbol as text: phase, name, attribute and operation. It has no step,
 * micro-batch or ordinal, so that one id stands for the same place in each of them. It is what
 * rules, lists of unstable boundaries and maps between stacks name; so it never changes its form.
 */
#include "align/align.h"

void tocsin_boundary_id(const tocsin_intern *names, const tocsin_boundary *boundary,
                        tocsin_string *id)
{
    const char *phase = tocsin_intern_string(names, boundary->phase);
    const char *attribute = tocsin_intern_string(names, boundary->attribute);
    bool at_end = (boundary->point & TOCSIN_MOMENT_MASK) == TOCSIN_MOMENT_EXIT;
    bool both = strcmp(attribute, "data") == 0 || strcmp(attribute, "grad") == 0;
    tocsin_string_append_text(id, phase[0] ? phase : "-");
    tocsin_string_append_char(id, '/');
    tocsin_string_append_text(id, tocsin_intern_string(names, boundary->name));
    tocsin_string_append_char(id, '/');
    tocsin_string_append_text(id, attribute);
    tocsin_string_append_char(id, '@');
    tocsin_string_append_text(id, tocsin_intern_string(names, boundary->operation));
    if (at_end && both) /* all else is read either when a call begins or when it ends */
        tocsin_string_append_text(id, "/end");
}

uint32_t tocsin_boundary_ordinal(const tocsin_boundary_stream *stream, uint32_t at)
{
    uint32_t ordinal = 1;
    for (uint32_t k = 0; k < at; ++k)
        ordinal +=
            stream->items.items[k].symbol == stream->items.items[at].symbol &&
            stream->boundaries.items[k].micro_batch == stream->boundaries.items[at].micro_batch;
    return ordinal;
}
