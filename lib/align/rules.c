/* lib/align/rules.c - differences that are known and meant, read from and written to JSON Lines.
 *
 * Data: a vec in the order of the file, texts in an arena. Dates are compared as texts.
 * Invariant: every rule has an id, a reason and a last day.
 * Cost: an id is compared with each rule in turn; there are few, and a person accepted each.
 */
#include <tocsin/align_rules.h>

#include <assert.h>

#include "base/base.h"

#define FORMAT         "tocsin-align-rules"
#define VERSION        1
#define LINE_BYTES_MAX (1u << 16)

struct tocsin_align_rules {
    TOCSIN_VEC(tocsin_align_rule) items;
    tocsin_arena arena;
    const char *today;
};

typedef struct rule_reader {
    tocsin_align_rules *rules;
    const char *path;
    uint64_t line;
    tocsin_error *error;
} rule_reader;

static bool copy_text(tocsin_align_rules *rules, const char **text)
{
    *text = tocsin_arena_copy(&rules->arena, *text, strlen(*text));
    return *text != NULL;
}

tocsin_status tocsin_align_rules_new(const char *today, tocsin_align_rules **rules,
                                     tocsin_error *error)
{
    *rules = NULL;
    if (!tocsin_text_is_date(today))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "'%s' is not a date", today);
    tocsin_align_rules *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    made->today = today;
    if (!copy_text(made, &made->today)) {
        tocsin_align_rules_free(made);
        return tocsin_error_memory(error);
    }
    *rules = made;
    return TOCSIN_OK;
}

void tocsin_align_rules_free(tocsin_align_rules *rules)
{
    if (!rules)
        return;
    TOCSIN_VEC_FREE(&rules->items);
    tocsin_arena_free(&rules->arena);
    tocsin_free(rules);
}

/* The members of a rule in a file, in their order. */
#define TEXT_COUNT 7
static const char *const members[TEXT_COUNT] = {"id", "because", "by", "on", "until", "a", "b"};

static void list_texts(tocsin_align_rule *rule, const char **texts[TEXT_COUNT])
{
    const char **const all[TEXT_COUNT] = {&rule->id,    &rule->because, &rule->by, &rule->on,
                                          &rule->until, &rule->a,       &rule->b};
    memcpy(texts, all, sizeof all);
}

/* What is wrong with it, or NULL. */
static const char *fault_of(const tocsin_align_rule *rule)
{
    if (rule->id[0] == '\0')
        return "a rule needs the id of a boundary";
    if (rule->because[strspn(rule->because, " \t")] == '\0')
        return "a rule needs a reason";
    if (!tocsin_text_is_date(rule->until))
        return "\"until\" is not a date like 2027-01-31";
    if (!tocsin_text_is_date(rule->on))
        return "\"on\" is not a date like 2026-11-29";
    return NULL;
}

tocsin_status tocsin_align_rules_add(tocsin_align_rules *rules, const tocsin_align_rule *rule,
                                     tocsin_error *error)
{
    const char *fault = fault_of(rule), **texts[TEXT_COUNT];
    if (fault)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "%s", fault);
    if (rules->items.count >= TOCSIN_ALIGN_RULES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %d rules",
                                TOCSIN_ALIGN_RULES_MAX);
    tocsin_align_rule copy = *rule;
    copy.expired = strcmp(copy.until, rules->today) < 0;
    list_texts(&copy, texts);
    for (size_t i = 0; i < TEXT_COUNT; ++i) {
        if (!copy_text(rules, texts[i]))
            return tocsin_error_memory(error);
    }
    return TOCSIN_VEC_PUSH(&rules->items, copy) ? TOCSIN_OK : tocsin_error_memory(error);
}

/* ---- reading --------------------------------------------------------------------------------- */

static tocsin_status bad(const rule_reader *reader, const char *message)
{
    return tocsin_error_at(reader->error, TOCSIN_E_FORMAT, reader->path, -1, "line %llu: %s",
                           (unsigned long long)reader->line, message);
}

static tocsin_status read_header(const rule_reader *reader, const tocsin_json_value *line)
{
    const char *format = tocsin_json_get_text(tocsin_json_get_member(line, "format"));
    int64_t version;
    if (!format || strcmp(format, FORMAT) != 0)
        return bad(reader, "not a file of rules: no \"format\":\"" FORMAT "\"");
    if (!tocsin_json_get_integer(tocsin_json_get_member(line, "version"), &version))
        return bad(reader, "there is no \"version\"");
    if (version != VERSION)
        return tocsin_error_at(reader->error, TOCSIN_E_VERSION, reader->path, -1,
                               "version %lld of the format is not supported, only %d",
                               (long long)version, VERSION);
    return TOCSIN_OK;
}

static tocsin_status read_rule(const rule_reader *reader, const tocsin_json_value *line)
{
    tocsin_align_rule rule = {0};
    const char **texts[TEXT_COUNT];
    size_t known = 0;
    list_texts(&rule, texts);
    for (size_t i = 0; i < TEXT_COUNT; ++i) {
        const tocsin_json_value *value = tocsin_json_get_member(line, members[i]);
        *texts[i] = value ? tocsin_json_get_text(value) : "";
        if (!*texts[i])
            return bad(reader, "a member of a rule is not a text");
        known += value != NULL;
    }
    if (tocsin_json_get_kind(line) != TOCSIN_JSON_OBJECT || tocsin_json_get_count(line) != known)
        return bad(reader, "a rule has the members id, because, by, on, until, a and b, and no "
                           "others");
    tocsin_error inner = {.code = TOCSIN_OK};
    tocsin_status status = tocsin_align_rules_add(reader->rules, &rule, &inner);
    if (status == TOCSIN_E_ARGUMENT)
        return bad(reader, inner.message);
    if (status != TOCSIN_OK && reader->error)
        *reader->error = inner;
    return status;
}

static tocsin_status read_line(const rule_reader *reader, const char *text, size_t bytes)
{
    tocsin_json_value *root;
    tocsin_error inner = {.code = TOCSIN_OK};
    tocsin_status status = tocsin_json_parse(text, bytes, reader->path, &root, &inner);
    if (status == TOCSIN_E_FORMAT)
        return bad(reader, inner.message);
    if (status != TOCSIN_OK) {
        if (reader->error)
            *reader->error = inner;
        return status;
    }
    status = reader->line == 1 ? read_header(reader, root) : read_rule(reader, root);
    tocsin_json_free(root);
    return status;
}

static tocsin_status read_lines(rule_reader *reader, tocsin_reader *file)
{
    for (;;) {
        const char *text;
        size_t bytes;
        TOCSIN_TRY(tocsin_reader_line(file, LINE_BYTES_MAX, &text, &bytes, reader->error));
        if (!text)
            break;
        ++reader->line;
        if (bytes > 0)
            TOCSIN_TRY(read_line(reader, text, bytes));
    }
    return reader->line > 0 ? TOCSIN_OK : bad(reader, "the file is empty");
}

tocsin_status tocsin_align_rules_read(tocsin_align_rules *rules, const char *path,
                                      tocsin_error *error)
{
    rule_reader reader = {.rules = rules, .path = path, .error = error};
    tocsin_reader file;
    TOCSIN_TRY(tocsin_reader_open(&file, path, error));
    tocsin_status status = read_lines(&reader, &file);
    tocsin_reader_close(&file);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_rule(const tocsin_align_rule *rule, tocsin_json *json)
{
    tocsin_align_rule copy = *rule;
    const char **texts[TEXT_COUNT];
    list_texts(&copy, texts);
    tocsin_json_begin_object(json);
    for (size_t i = 0; i < TEXT_COUNT; ++i) {
        if (*texts[i][0] == '\0')
            continue;
        tocsin_json_key(json, members[i]);
        tocsin_json_text(json, *texts[i]);
    }
    tocsin_json_end_object(json);
}

tocsin_status tocsin_align_rules_save(const tocsin_align_rules *rules, const char *path,
                                      tocsin_error *error)
{
    tocsin_string text = {0};
    tocsin_string_printf(&text, "{\"format\":\"%s\",\"version\":%d}\n", FORMAT, VERSION);
    for (size_t i = 0; i < rules->items.count; ++i) {
        tocsin_json json = {.out = &text};
        put_rule(&rules->items.items[i], &json);
        tocsin_string_append_char(&text, '\n');
    }
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, text.text, text.bytes, true, error);
    tocsin_string_free(&text);
    return status;
}

/* ---- looking --------------------------------------------------------------------------------- */

size_t tocsin_align_rules_count(const tocsin_align_rules *rules)
{
    return rules->items.count;
}

const tocsin_align_rule *tocsin_align_rules_get(const tocsin_align_rules *rules, size_t index)
{
    assert(index < rules->items.count);
    return &rules->items.items[index];
}

bool tocsin_align_rule_fits(const char *pattern, const char *id)
{
    return tocsin_text_fits(pattern, id);
}

size_t tocsin_align_rules_find(const tocsin_align_rules *rules, const char *id)
{
    for (size_t i = 0; i < rules->items.count; ++i) {
        const tocsin_align_rule *rule = &rules->items.items[i];
        if (!rule->expired && tocsin_align_rule_fits(rule->id, id))
            return i;
    }
    return SIZE_MAX;
}
