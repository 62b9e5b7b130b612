/* trace_names.c - the dictionary as a reader builds it: one table per kind, indexed by id.
 *
 * Ids come in order, so tables are dense; after lost blocks there may be holes, which stay zero and
 * are shown as "?". How many is limited, over all kinds together: a small hostile file must not
 * make large tables.
 */
#include "trace/trace_reader.h"

#include <assert.h>

/* Make entry id - 1 of a vec exist, zeroed. Evaluates to false when out of memory. */
#define REACH(vec, id)                                                                             \
    ((id) <= (vec)->count ||                                                                       \
     (TOCSIN_VEC_RESERVE(vec, (id) - (vec)->count) &&                                              \
      (memset((vec)->items + (vec)->count, 0, ((id) - (vec)->count) * sizeof *(vec)->items),       \
       (vec)->count = (id), true)))

static size_t known_count(const tocsin_names *names, unsigned kind)
{
    switch (kind) {
    case TOCSIN_DEFINE_STRING:
        return names->strings.count;
    case TOCSIN_DEFINE_FUNCTION:
        return names->functions.count;
    case TOCSIN_DEFINE_VARIABLE:
        return names->variables.count;
    case TOCSIN_DEFINE_SHAPE:
        return names->shapes.count;
    default:
        return names->sites.count;
    }
}

static bool define_string(tocsin_names *names, uint64_t id, tocsin_cursor *in)
{
    if ((size_t)(in->end - in->next) > TOCSIN_TRACE_STRING_MAX) {
        in->failed = true;
        return true;
    }
    if (!REACH(&names->strings, id))
        return false;
    char *text = tocsin_arena_copy(&names->arena, in->next, (size_t)(in->end - in->next));
    names->strings.items[id - 1] = text;
    return text != NULL;
}

static bool define_shape(tocsin_names *names, uint64_t id, tocsin_cursor *in)
{
    uint32_t ndim = tocsin_cursor_u32(in);
    if (ndim > TOCSIN_NDIM_MAX || in->failed) {
        in->failed = true;
        return true;
    }
    if (!REACH(&names->shapes, id))
        return false;
    int64_t *sizes = TOCSIN_ARENA_ARRAY(&names->arena, int64_t, ndim + 1u);
    if (!sizes)
        return false;
    for (uint32_t i = 0; i < ndim; ++i)
        sizes[i] = (int64_t)tocsin_cursor_varint(in);
    if (!in->failed)
        names->shapes.items[id - 1] = (tocsin_names_shape){.sizes = sizes, .ndim = ndim};
    return true;
}

static bool define_numbers(tocsin_names *names, unsigned kind, uint64_t id, tocsin_cursor *in)
{
    uint32_t first = tocsin_cursor_u32(in);
    uint32_t second = tocsin_cursor_u32(in);
    uint32_t third = kind == TOCSIN_DEFINE_FUNCTION ? 0 : tocsin_cursor_u32(in);
    if (in->failed)
        return true;
    if (kind == TOCSIN_DEFINE_FUNCTION) {
        if (!REACH(&names->functions, id))
            return false;
        names->functions.items[id - 1] = (tocsin_names_function){.name = first, .role = second};
    } else if (kind == TOCSIN_DEFINE_VARIABLE) {
        if (!REACH(&names->variables, id))
            return false;
        names->variables.items[id - 1] =
            (tocsin_names_variable){.name = first, .kind = second, .type = third};
    } else {
        if (!REACH(&names->sites, id))
            return false;
        names->sites.items[id - 1] =
            (tocsin_names_site){.file = first, .line = second, .function = third};
    }
    return true;
}

/* One record's kind, id and content. false: out of memory. */
static bool define(tocsin_names *names, tocsin_cursor *in)
{
    if (in->next == in->end) {
        in->failed = true;
        return true;
    }
    unsigned kind = *in->next++;
    uint64_t id = tocsin_cursor_varint(in);
    if (kind == 0 || kind >= TOCSIN_DEFINE_KINDS)
        return true; /* of a later version */
    uint64_t dense = known_count(names, kind) + 1;
    uint64_t skipped = id > dense ? id - dense : 0;
    if (id == 0 || id > TOCSIN_TRACE_ID_MAX || skipped > TOCSIN_TRACE_HOLES_MAX - names->holes) {
        in->failed = true;
        return true;
    }
    names->holes += (uint32_t)skipped;
    if (kind == TOCSIN_DEFINE_STRING)
        return define_string(names, id, in);
    if (kind == TOCSIN_DEFINE_SHAPE)
        return define_shape(names, id, in);
    return define_numbers(names, kind, id, in);
}

tocsin_status tocsin_names_read(tocsin_names *names, const uint8_t *bytes, size_t count,
                                bool *damaged, tocsin_error *error)
{
    assert(names && damaged && (bytes || count == 0));
    for (size_t begin = 0; begin < count;) {
        size_t record_bytes = tocsin_record_bytes(bytes + begin, count - begin);
        if (record_bytes == 0) {
            *damaged = true;
            return TOCSIN_OK;
        }
        tocsin_cursor in = {.next = bytes + begin + 2, .end = bytes + begin + record_bytes};
        if (!define(names, &in))
            return tocsin_error_memory(error);
        *damaged |= in.failed;
        begin += record_bytes;
    }
    return TOCSIN_OK;
}

void tocsin_names_free(tocsin_names *names)
{
    tocsin_arena_free(&names->arena);
    TOCSIN_VEC_FREE(&names->strings);
    TOCSIN_VEC_FREE(&names->functions);
    TOCSIN_VEC_FREE(&names->variables);
    TOCSIN_VEC_FREE(&names->shapes);
    TOCSIN_VEC_FREE(&names->sites);
}

/* ---- look-ups ------------------------------------------------------------------------------- */

static const char *string_of(const tocsin_names *names, tocsin_id id)
{
    if (id == 0)
        return "";
    const char *text = id <= names->strings.count ? names->strings.items[id - 1] : NULL;
    return text ? text : "?";
}

/* Entry of `id`, or NULL when the id is unknown or 0. */
#define ENTRY(vec, id) ((id)-1u < (vec)->count ? &(vec)->items[(id)-1u] : NULL)

const char *tocsin_trace_string(const tocsin_trace *trace, tocsin_id id)
{
    return string_of(&trace->names, id);
}

const char *tocsin_trace_function_name(const tocsin_trace *trace, tocsin_id id)
{
    const tocsin_names_function *function = ENTRY(&trace->names.functions, id);
    if (id == 0)
        return "";
    return function && function->name ? string_of(&trace->names, function->name) : "?";
}

tocsin_role tocsin_trace_function_role(const tocsin_trace *trace, tocsin_id id)
{
    const tocsin_names_function *function = ENTRY(&trace->names.functions, id);
    return function ? (tocsin_role)function->role : TOCSIN_ROLE_NONE;
}

const char *tocsin_trace_variable_name(const tocsin_trace *trace, tocsin_id id)
{
    const tocsin_names_variable *variable = ENTRY(&trace->names.variables, id);
    if (id == 0)
        return "";
    return variable && variable->name ? string_of(&trace->names, variable->name) : "?";
}

tocsin_variable_kind tocsin_trace_variable_kind(const tocsin_trace *trace, tocsin_id id)
{
    const tocsin_names_variable *variable = ENTRY(&trace->names.variables, id);
    return variable ? (tocsin_variable_kind)variable->kind : (tocsin_variable_kind)0;
}

const char *tocsin_trace_variable_type(const tocsin_trace *trace, tocsin_id id)
{
    const tocsin_names_variable *variable = ENTRY(&trace->names.variables, id);
    if (id == 0)
        return "";
    return variable ? string_of(&trace->names, variable->type) : "?";
}

uint32_t tocsin_trace_shape(const tocsin_trace *trace, tocsin_id id, const int64_t **sizes)
{
    assert(sizes);
    const tocsin_names_shape *shape = ENTRY(&trace->names.shapes, id);
    *sizes = shape ? shape->sizes : NULL;
    return shape ? shape->ndim : 0;
}

const char *tocsin_trace_site(const tocsin_trace *trace, tocsin_id id, uint32_t *line,
                              const char **function)
{
    assert(line && function);
    const tocsin_names_site *site = ENTRY(&trace->names.sites, id);
    *line = site ? site->line : 0;
    *function = site ? string_of(&trace->names, site->function) : "";
    return site ? string_of(&trace->names, site->file) : "";
}
