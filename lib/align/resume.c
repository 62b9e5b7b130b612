/* resume.c - a run that goes on where another one stood: the steps before are read past.
 *
 * Of them only the settings are kept, as they were when they were last written: a process writes
 * them once, and those of the resumed one are compared with them. Cost: that of reading.
 */
#include "align/align.h"

enum { SETTINGS_MAX = 1024 };

static bool keep_setting(tocsin_comparison *comparison, const tocsin_boundary *setting)
{
    tocsin_boundary kept = *setting;
    if (comparison->earlier.count == SETTINGS_MAX)
        return true;
    if (kept.text) {
        kept.text = tocsin_arena_copy(comparison->arena, kept.text, strlen(kept.text));
        if (!kept.text)
            return false;
    }
    return TOCSIN_VEC_PUSH(&comparison->earlier, kept);
}

static bool keep_settings(tocsin_comparison *comparison)
{
    for (size_t t = 0; t < tocsin_whole_stream_count(comparison->a); ++t) {
        const tocsin_boundary_stream *stream = tocsin_whole_stream(comparison->a, t);
        for (size_t k = 0; k < stream->boundaries.count; ++k) {
            if (stream->boundaries.items[k].setting &&
                !keep_setting(comparison, &stream->boundaries.items[k]))
                return false;
        }
    }
    return true;
}

tocsin_status tocsin_resume_skip(tocsin_comparison *comparison)
{
    for (uint64_t k = 0; k < comparison->options->skip; ++k) {
        bool more;
        TOCSIN_TRY(tocsin_whole_step(comparison->a, &more, comparison->error));
        if (!more)
            return TOCSIN_OK; /* a process that does not train */
        comparison->parting->rank.steps_a += tocsin_whole_complete(comparison->a);
        ++comparison->step;
        if (!keep_settings(comparison))
            return tocsin_error_memory(comparison->error);
    }
    return TOCSIN_OK;
}

const tocsin_boundary *tocsin_resume_setting(const tocsin_comparison *comparison, uint32_t name)
{
    for (size_t k = comparison->earlier.count; k-- > 0;) {
        if (comparison->earlier.items[k].name == name)
            return &comparison->earlier.items[k];
    }
    return NULL;
}
