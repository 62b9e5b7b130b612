/* lib/align/stability.c - which boundaries differed among the repeats of one program; the file.
 *
 * Data: an entry a boundary, found by its four texts as one key; entry i has the key of id i + 1.
 * Invariant: a boundary is counted once for each repeat, however often it differs in it.
 * Cost: a look-up hashes the four texts.
 */
#include "align/align.h"

#include <assert.h>

#define FORMAT         "tocsin-unstable"
#define VERSION        1
#define LINE_BYTES_MAX (1u << 16)

typedef struct stability_entry {
    tocsin_unstable_boundary boundary;
    uint32_t repeat; /* the last in which it was counted */
} stability_entry;

struct tocsin_stability {
    uint32_t repeats;
    uint32_t repeat; /* that is compared now, from 1 */
    tocsin_intern keys;
    TOCSIN_VEC(stability_entry) entries;
    tocsin_arena texts;
    tocsin_string key; /* of the last look-up */
};

/* ---- the map --------------------------------------------------------------------------------- */

tocsin_status tocsin_stability_new(uint32_t repeats, tocsin_stability **stability,
                                   tocsin_error *error)
{
    *stability = NULL;
    if (repeats < 2 || repeats > TOCSIN_STABILITY_REPEATS_MAX)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a map is of 2 to %d repeats, not %u",
                                TOCSIN_STABILITY_REPEATS_MAX, repeats);
    tocsin_stability *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    made->repeats = repeats;
    made->keys.limit_count = TOCSIN_STABILITY_BOUNDARIES_MAX;
    *stability = made;
    return TOCSIN_OK;
}

void tocsin_stability_free(tocsin_stability *stability)
{
    if (!stability)
        return;
    tocsin_intern_free(&stability->keys);
    TOCSIN_VEC_FREE(&stability->entries);
    tocsin_arena_free(&stability->texts);
    tocsin_string_free(&stability->key);
    tocsin_free(stability);
}

uint32_t tocsin_stability_repeats(const tocsin_stability *stability)
{
    return stability->repeats;
}

size_t tocsin_stability_count(const tocsin_stability *stability)
{
    return stability->entries.count;
}

tocsin_unstable_boundary tocsin_stability_get(const tocsin_stability *stability, size_t index)
{
    assert(index < stability->entries.count);
    return stability->entries.items[index].boundary;
}

/* The four texts, each ended by a 0. false: out of memory. */
static bool make_key(tocsin_stability *stability, const tocsin_unstable_boundary *boundary)
{
    const char *texts[] = {boundary->name, boundary->attribute, boundary->operation,
                           boundary->phase};
    tocsin_string_clear(&stability->key);
    for (size_t t = 0; t < TOCSIN_COUNT_OF(texts); ++t)
        tocsin_string_append(&stability->key, texts[t], strlen(texts[t]) + 1);
    return stability->key.status == TOCSIN_OK;
}

bool tocsin_stability_find(tocsin_stability *stability, const tocsin_unstable_boundary *boundary,
                           size_t *index)
{
    *index = SIZE_MAX;
    if (!make_key(stability, boundary))
        return false;
    uint32_t id = tocsin_intern_find(&stability->keys, stability->key.text, stability->key.bytes);
    *index = id ? id - 1 : SIZE_MAX;
    return true;
}

static bool keep_text(tocsin_stability *stability, const char **text)
{
    *text = tocsin_arena_copy(&stability->texts, *text, strlen(*text));
    return *text != NULL;
}

/* Add one that is not there; its key has just been made. */
static bool add_entry(tocsin_stability *stability, const tocsin_unstable_boundary *boundary)
{
    stability_entry entry = {.boundary = *boundary, .repeat = stability->repeat};
    if (!keep_text(stability, &entry.boundary.name) ||
        !keep_text(stability, &entry.boundary.attribute) ||
        !keep_text(stability, &entry.boundary.operation) ||
        !keep_text(stability, &entry.boundary.phase) || !TOCSIN_VEC_RESERVE(&stability->entries, 1))
        return false;
    if (!tocsin_intern_put(&stability->keys, stability->key.text, stability->key.bytes))
        return false;
    return TOCSIN_VEC_PUSH(&stability->entries, entry);
}

void tocsin_stability_begin(tocsin_stability *stability)
{
    ++stability->repeat;
}

bool tocsin_stability_note(tocsin_stability *stability, const tocsin_unstable_boundary *boundary)
{
    size_t index;
    if (!tocsin_stability_find(stability, boundary, &index))
        return false;
    if (index == SIZE_MAX) {
        if (stability->entries.count == TOCSIN_STABILITY_BOUNDARIES_MAX)
            return true;
        tocsin_unstable_boundary first = *boundary;
        first.differs = 1;
        return add_entry(stability, &first);
    }
    stability_entry *entry = &stability->entries.items[index];
    entry->boundary.differs += entry->repeat != stability->repeat;
    entry->repeat = stability->repeat;
    if (boundary->step < entry->boundary.step) {
        entry->boundary.step = boundary->step;
        entry->boundary.rank = boundary->rank;
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The context of the lines is where the map is put. */
static tocsin_status read_repeats(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    tocsin_stability **stability = lines->context;
    int64_t repeats;
    if (!tocsin_json_get_integer(tocsin_json_get_member(line, "repeats"), &repeats) ||
        repeats < 2 || repeats > TOCSIN_STABILITY_REPEATS_MAX)
        return tocsin_json_lines_refuse(lines, "\"repeats\" is no number of repeats");
    return tocsin_stability_new((uint32_t)repeats, stability, lines->error);
}

static tocsin_status read_boundary(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    tocsin_stability *stability = *(tocsin_stability **)lines->context;
    tocsin_unstable_boundary boundary = {.rank = -1};
    const struct {
        const char *name;
        const char **text;
    } members[] = {{"fqn", &boundary.name},
                   {"role", &boundary.attribute},
                   {"op", &boundary.operation},
                   {"phase", &boundary.phase}};
    for (size_t m = 0; m < TOCSIN_COUNT_OF(members); ++m) {
        *members[m].text = tocsin_json_get_text(tocsin_json_get_member(line, members[m].name));
        if (!*members[m].text)
            return tocsin_json_lines_refuse(lines,
                                            "a boundary needs the texts fqn, role, op and phase");
    }
    int64_t differs = 0;
    const tocsin_json_value *rank = tocsin_json_get_member(line, "rank");
    if (!tocsin_json_get_integer(tocsin_json_get_member(line, "differs"), &differs) ||
        differs < 1 || differs >= stability->repeats)
        return tocsin_json_lines_refuse(lines, "\"differs\" is no number of repeats");
    if (!tocsin_json_get_integer(tocsin_json_get_member(line, "step"), &boundary.step) ||
        boundary.step < 1)
        return tocsin_json_lines_refuse(lines, "\"step\" is no step");
    if (tocsin_json_get_kind(rank) != TOCSIN_JSON_NULL &&
        (!tocsin_json_get_integer(rank, &boundary.rank) || boundary.rank < 0))
        return tocsin_json_lines_refuse(lines, "\"rank\" is no rank");
    boundary.differs = (uint32_t)differs;
    size_t index;
    if (!tocsin_stability_find(stability, &boundary, &index))
        return tocsin_error_memory(lines->error);
    if (index != SIZE_MAX)
        return tocsin_json_lines_refuse(lines, "the same boundary again");
    if (stability->entries.count == TOCSIN_STABILITY_BOUNDARIES_MAX)
        return tocsin_error_at(lines->error, TOCSIN_E_LIMIT, lines->path, -1,
                               "more than %u unstable boundaries", TOCSIN_STABILITY_BOUNDARIES_MAX);
    return add_entry(stability, &boundary) ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

tocsin_status tocsin_stability_read(const char *path, tocsin_stability **stability,
                                    tocsin_error *error)
{
    tocsin_stability *made = NULL;
    tocsin_json_lines lines = {.format = FORMAT,
                               .title = "a map of unstable boundaries",
                               .version = VERSION,
                               .line_bytes_max = LINE_BYTES_MAX,
                               .path = path,
                               .context = &made,
                               .header = read_repeats,
                               .item = read_boundary,
                               .error = error};
    *stability = NULL;
    tocsin_status status = tocsin_json_lines_read(&lines);
    if (status == TOCSIN_OK)
        *stability = made;
    else
        tocsin_stability_free(made);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_boundary(tocsin_json *json, const tocsin_unstable_boundary *boundary)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "fqn", boundary->name);
    tocsin_json_put_text(json, "role", boundary->attribute);
    tocsin_json_put_text(json, "op", boundary->operation);
    tocsin_json_put_text(json, "phase", boundary->phase);
    tocsin_json_key(json, "differs");
    tocsin_json_unsigned(json, boundary->differs);
    tocsin_json_key(json, "step");
    tocsin_json_integer(json, boundary->step);
    tocsin_json_key(json, "rank");
    if (boundary->rank < 0)
        tocsin_json_null(json);
    else
        tocsin_json_integer(json, boundary->rank);
    tocsin_json_end_object(json);
}

tocsin_status tocsin_stability_save(const tocsin_stability *stability, const char *path,
                                    tocsin_error *error)
{
    tocsin_string text = {0};
    tocsin_string_printf(&text, "{\"format\":\"%s\",\"version\":%d,\"repeats\":%u}\n", FORMAT,
                         VERSION, stability->repeats);
    for (size_t e = 0; e < stability->entries.count; ++e) {
        tocsin_json json = {.out = &text};
        put_boundary(&json, &stability->entries.items[e].boundary);
        tocsin_string_append_char(&text, '\n');
    }
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, text.text, text.bytes, true, error);
    tocsin_string_free(&text);
    return status;
}
