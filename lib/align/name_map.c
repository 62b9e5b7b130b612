/* lib/align/name_map.c - maps between the names of two frameworks: read from JSON Lines, and what a
 * name is by them.
 *
 * Names and patterns are lists of components between dots. A component of a pattern is a text, or
 * `{x}`, which stands for one component, or, once in a pattern, `{x*}`, for any number. So whether
 * a name fits is decided from both ends, without trying: linear in its length.
 *
 * Invariant: every pattern of a rule has the same captures, each once.
 * Cost: a name is compared with each pattern in turn; callers keep what they found.
 */
#include "align/name_map.h"

#include <assert.h>

#define FORMAT         "tocsin-map"
#define VERSION        1
#define RULES_MAX      4096u
#define LINE_BYTES_MAX (1u << 16)
#define NAME_BYTES_MAX 1024u
#define COMPONENTS_MAX 64u
#define CAPTURES_MAX   8u

struct tocsin_name_map {
    TOCSIN_VEC(tocsin_map_rule) rules;
    tocsin_arena arena;
};

typedef struct component { /* of a name, borrowed */
    const char *text;
    size_t bytes;
} component;

typedef struct component_list {
    component items[COMPONENTS_MAX];
    uint32_t count;
} component_list;

typedef struct capture {
    component name;
    component first; /* what it stands for: from here ... */
    uint32_t count;  /* this many components */
} capture;

typedef struct capture_list {
    capture items[CAPTURES_MAX];
    uint32_t count;
} capture_list;

const char *tocsin_map_layout_text(tocsin_map_layout layout)
{
    static const char *const texts[] = {
#define X(name, text) text,
        TOCSIN_MAP_LAYOUT_TABLE(X)
#undef X
    };
    return texts[layout];
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* false: it has too many components. */
static bool split(const char *text, component_list *list)
{
    list->count = 0;
    for (const char *at = text;;) {
        size_t bytes = strcspn(at, ".");
        if (list->count == COMPONENTS_MAX)
            return false;
        list->items[list->count++] = (component){at, bytes};
        if (at[bytes] == '\0')
            return true;
        at += bytes + 1;
    }
}

static bool same(component a, component b)
{
    return a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0;
}

/* Is it `{x}` or `{x*}`? */
static bool is_capture(component part, component *name, bool *star)
{
    if (part.bytes < 3 || part.text[0] != '{' || part.text[part.bytes - 1] != '}')
        return false;
    *star = part.text[part.bytes - 2] == '*';
    *name = (component){part.text + 1, part.bytes - (*star ? 3 : 2)};
    return true;
}

/* Does one component of a pattern fit `count` of the name's? */
static bool fits(component part, const component *of_name, uint32_t count, capture_list *captures)
{
    component name;
    bool star;
    if (!is_capture(part, &name, &star))
        return count == 1 && same(part, *of_name);
    captures->items[captures->count++] =
        (capture){name, count > 0 ? *of_name : (component){"", 0}, count};
    return count == 1 ? of_name->bytes > 0 : true;
}

/* Does the name fit the pattern, and what do its captures stand for? */
static bool match(const char *pattern, const component_list *name, capture_list *captures)
{
    component_list parts;
    component unused;
    uint32_t star_at = COMPONENTS_MAX, at = 0;
    captures->count = 0;
    if (!split(pattern, &parts))
        return false;
    for (uint32_t p = 0; p < parts.count; ++p) {
        bool star = false;
        if (is_capture(parts.items[p], &unused, &star) && star)
            star_at = p;
    }
    if (star_at == COMPONENTS_MAX ? parts.count != name->count : parts.count > name->count + 1)
        return false;
    for (uint32_t p = 0; p < parts.count; ++p) {
        uint32_t count = p == star_at ? name->count + 1 - parts.count : 1;
        if (!fits(parts.items[p], count > 0 ? &name->items[at] : NULL, count, captures))
            return false;
        at += count;
    }
    return true;
}

/* The pattern with what its captures stand for. */
static void substitute(const char *pattern, const capture_list *captures, tocsin_string *out)
{
    component_list parts;
    component name;
    bool star, first = true;
    if (!split(pattern, &parts))
        return;
    for (uint32_t p = 0; p < parts.count; ++p) {
        component text = parts.items[p];
        uint32_t c = captures->count, count = 1;
        if (is_capture(text, &name, &star)) {
            for (c = 0; c < captures->count && !same(captures->items[c].name, name);)
                ++c;
        }
        if (c < captures->count) {
            const capture *found = &captures->items[c];
            count = found->count;
            text = found->first;
            for (uint32_t k = 1; k < count; ++k) /* components of one text, with dots between */
                text.bytes += 1 + strcspn(text.text + text.bytes + 1, ".");
        }
        if (count == 0)
            continue;
        if (!first)
            tocsin_string_append_char(out, '.');
        tocsin_string_append(out, text.text, text.bytes);
        first = false;
    }
}

bool tocsin_name_map_find(const tocsin_name_map *map, const char *name, tocsin_string *whole,
                          tocsin_map_place *place)
{
    component_list parts;
    capture_list captures;
    if (strlen(name) > NAME_BYTES_MAX || !split(name, &parts))
        return false;
    for (size_t r = 0; r < map->rules.count; ++r) {
        const tocsin_map_rule *rule = &map->rules.items[r];
        uint32_t part = 0;
        while (part < rule->parts && !match(rule->b[part], &parts, &captures))
            ++part;
        if (part == rule->parts && !match(rule->a, &parts, &captures))
            continue;
        *place = (tocsin_map_place){rule, part < rule->parts ? part : TOCSIN_MAP_PARTS_MAX};
        if (part < rule->parts)
            substitute(rule->a, &captures, whole);
        else
            tocsin_string_append_text(whole, name);
        return true;
    }
    return false;
}

bool tocsin_name_map_look_up(const tocsin_name_map *map, const char *name,
                             tocsin_mapped_name *found)
{
    tocsin_string whole = {.limit_bytes = sizeof found->whole - 1};
    tocsin_map_place place;
    bool known = tocsin_name_map_find(map, name, &whole, &place) &&
                 place.part < place.rule->parts && whole.status == TOCSIN_OK;
    if (known) {
        memcpy(found->whole, tocsin_string_text(&whole), whole.bytes + 1);
        found->part = place.part;
        found->parts = place.rule->parts;
        found->layout = tocsin_map_layout_text(place.rule->layout);
    }
    tocsin_string_free(&whole);
    return known;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What is wrong with a pattern, or NULL; `captures` are its own, not what they stand for. */
static const char *fault_of(const char *pattern, capture_list *captures)
{
    component_list parts;
    bool stars = false;
    captures->count = 0;
    if (strlen(pattern) > NAME_BYTES_MAX || !split(pattern, &parts))
        return "a pattern is too long";
    for (uint32_t p = 0; p < parts.count; ++p) {
        component part = parts.items[p], name;
        bool star;
        if (part.bytes == 0)
            return "a pattern has an empty component";
        bool is = is_capture(part, &name, &star);
        if (!is && (memchr(part.text, '{', part.bytes) || memchr(part.text, '}', part.bytes)))
            return "{x} and {x*} stand between dots";
        if (!is)
            continue;
        if (name.bytes == 0 || memchr(name.text, '{', name.bytes) ||
            memchr(name.text, '}', name.bytes) || memchr(name.text, '*', name.bytes))
            return "a capture needs a name";
        if (star && stars)
            return "{x*} stands once in a pattern";
        stars = stars || star;
        for (uint32_t c = 0; c < captures->count; ++c) {
            if (same(captures->items[c].name, name))
                return "a capture stands twice in a pattern";
        }
        if (captures->count == CAPTURES_MAX)
            return "a pattern has too many captures";
        captures->items[captures->count++] = (capture){.name = name, .count = star};
    }
    return NULL;
}

/* Are they the same, in any order? */
static bool same_captures(const capture_list *a, const capture_list *b)
{
    for (uint32_t i = 0; i < a->count; ++i) {
        uint32_t k = 0;
        while (k < b->count && !(same(a->items[i].name, b->items[k].name) &&
                                 a->items[i].count == b->items[k].count))
            ++k;
        if (k == b->count)
            return false;
    }
    return a->count == b->count;
}

static tocsin_status add_pattern(const tocsin_json_lines *lines, const tocsin_json_value *value,
                                 const capture_list *of_a, const char **pattern)
{
    capture_list captures;
    const char *text = tocsin_json_get_text(value);
    if (!text)
        return tocsin_json_lines_refuse(lines, "\"b\" is a pattern, or a list of them");
    const char *fault = fault_of(text, &captures);
    if (fault)
        return tocsin_json_lines_refuse(lines, "%s", fault);
    if (!same_captures(&captures, of_a))
        return tocsin_json_lines_refuse(lines, "the patterns of a rule have the same captures");
    tocsin_name_map *map = lines->context;
    *pattern = tocsin_arena_copy(&map->arena, text, strlen(text));
    return *pattern ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

static tocsin_status read_layout(const tocsin_json_lines *lines, const tocsin_json_value *value,
                                 tocsin_map_rule *rule)
{
    const char *text = tocsin_json_get_text(value);
    for (int layout = 0; text && layout <= TOCSIN_MAP_TRANSPOSED; ++layout) {
        if (strcmp(text, tocsin_map_layout_text((tocsin_map_layout)layout)) != 0)
            continue;
        rule->layout = (tocsin_map_layout)layout;
        if (layout == TOCSIN_MAP_TRANSPOSED && rule->parts != 1)
            return tocsin_json_lines_refuse(lines, "one part can be transposed, not several");
        return TOCSIN_OK;
    }
    return tocsin_json_lines_refuse(lines, "\"layout\" is joined, interleaved or transposed");
}

static tocsin_status check_members(const tocsin_json_lines *lines, const tocsin_json_value *object)
{
    void *cursor = NULL;
    const char *key;
    const tocsin_json_value *value;
    while (tocsin_json_next_member(object, &cursor, &key, &value)) {
        if (strcmp(key, "a") != 0 && strcmp(key, "b") != 0 && strcmp(key, "layout") != 0)
            return tocsin_json_lines_refuse(lines, "a rule has the members a, b, layout");
    }
    return TOCSIN_OK;
}

static tocsin_status read_rule(const tocsin_json_lines *lines, const tocsin_json_value *object)
{
    tocsin_name_map *map = lines->context;
    tocsin_map_rule rule = {0};
    capture_list captures;
    TOCSIN_TRY(check_members(lines, object));
    const char *a = tocsin_json_get_text(tocsin_json_get_member(object, "a"));
    const tocsin_json_value *b = tocsin_json_get_member(object, "b");
    const tocsin_json_value *layout = tocsin_json_get_member(object, "layout");
    const char *fault = a ? fault_of(a, &captures) : "a rule needs \"a\", a pattern";
    if (fault)
        return tocsin_json_lines_refuse(lines, "%s", fault);
    rule.a = tocsin_arena_copy(&map->arena, a, strlen(a));
    if (!rule.a)
        return tocsin_error_memory(lines->error);
    bool list = tocsin_json_get_kind(b) == TOCSIN_JSON_ARRAY;
    rule.parts = list ? (uint32_t)tocsin_json_get_count(b) : 1;
    if (rule.parts == 0 || rule.parts > TOCSIN_MAP_PARTS_MAX)
        return tocsin_json_lines_refuse(lines, "\"b\" has 1 to 16 parts");
    for (uint32_t part = 0; part < rule.parts; ++part)
        TOCSIN_TRY(
            add_pattern(lines, list ? tocsin_json_get_item(b, part) : b, &captures, &rule.b[part]));
    if (layout)
        TOCSIN_TRY(read_layout(lines, layout, &rule));
    if (map->rules.count == RULES_MAX)
        return tocsin_error_at(lines->error, TOCSIN_E_LIMIT, lines->path, -1, "more than %u rules",
                               RULES_MAX);
    return TOCSIN_VEC_PUSH(&map->rules, rule) ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

tocsin_status tocsin_name_map_load(const char *source, tocsin_name_map **map, tocsin_error *error)
{
    *map = NULL;
    tocsin_name_map *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    tocsin_json_lines lines = {.format = FORMAT,
                               .title = "a map of names",
                               .version = VERSION,
                               .line_bytes_max = LINE_BYTES_MAX,
                               .path = source,
                               .context = made,
                               .item = read_rule,
                               .error = error};
    const tocsin_shipped_map *shipped = tocsin_shipped_maps;
    while (shipped->name && strcmp(shipped->name, source) != 0)
        ++shipped;
    tocsin_status status =
        shipped->name ? tocsin_json_lines_read_text(&lines, shipped->bytes, shipped->byte_count)
                      : tocsin_json_lines_read(&lines);
    if (status == TOCSIN_OK)
        *map = made;
    else
        tocsin_name_map_free(made);
    return status;
}

void tocsin_name_map_free(tocsin_name_map *map)
{
    if (!map)
        return;
    TOCSIN_VEC_FREE(&map->rules);
    tocsin_arena_free(&map->arena);
    tocsin_free(map);
}

size_t tocsin_name_map_rule_count(const tocsin_name_map *map)
{
    return map->rules.count;
}

const tocsin_map_rule *tocsin_name_map_rule(const tocsin_name_map *map, size_t index)
{
    assert(index < map->rules.count);
    return &map->rules.items[index];
}

const char *tocsin_name_map_shipped(size_t index)
{
    size_t k = 0;
    while (k < index && tocsin_shipped_maps[k].name)
        ++k;
    return tocsin_shipped_maps[k].name;
}
