/* lib/align/rules.c - differences that are known and meant, read from and written to JSON Lines.
 *
 * Data: a vec in the order of the file, texts in an arena. Dates are compared as texts.
 * Invariant: every rule has an id, a reason and a last day.
 * Cost: an id is compared with each rule in turn; there are few, and a person accepted each.
 */
#include <tocsin/align_rules.h>

#include <assert.h>

#include "align/align.h"

#define FORMAT         "tocsin-align-rules"
#define VERSION        1
#define LINE_BYTES_MAX (1u << 16)

struct tocsin_align_rules {
    TOCSIN_VEC(tocsin_align_rule) items;
    tocsin_arena arena;
    const char *today;
};

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
static const char *const members[TOCSIN_ALIGN_RULE_TEXTS] = {"id",    "because", "by", "on",
                                                             "until", "a",       "b"};

void tocsin_align_rule_texts(tocsin_align_rule *rule, const char **texts[TOCSIN_ALIGN_RULE_TEXTS])
{
    const char **const all[TOCSIN_ALIGN_RULE_TEXTS] = {
        &rule->id, &rule->because, &rule->by, &rule->on, &rule->until, &rule->a, &rule->b};
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
    const char *fault = fault_of(rule), **texts[TOCSIN_ALIGN_RULE_TEXTS];
    if (fault)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "%s", fault);
    if (rules->items.count >= TOCSIN_ALIGN_RULES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %d rules",
                                TOCSIN_ALIGN_RULES_MAX);
    tocsin_align_rule copy = *rule;
    copy.expired = strcmp(copy.until, rules->today) < 0;
    tocsin_align_rule_texts(&copy, texts);
    for (size_t i = 0; i < TOCSIN_ALIGN_RULE_TEXTS; ++i) {
        if (!copy_text(rules, texts[i]))
            return tocsin_error_memory(error);
    }
    return TOCSIN_VEC_PUSH(&rules->items, copy) ? TOCSIN_OK : tocsin_error_memory(error);
}

/* ---- reading --------------------------------------------------------------------------------- */

static tocsin_status read_rule(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    tocsin_align_rule rule = {0};
    const char **texts[TOCSIN_ALIGN_RULE_TEXTS];
    size_t known = 0;
    tocsin_align_rule_texts(&rule, texts);
    for (size_t i = 0; i < TOCSIN_ALIGN_RULE_TEXTS; ++i) {
        const tocsin_json_value *value = tocsin_json_get_member(line, members[i]);
        *texts[i] = value ? tocsin_json_get_text(value) : "";
        if (!*texts[i])
            return tocsin_json_lines_refuse(lines, "a member of a rule is not a text");
        known += value != NULL;
    }
    if (tocsin_json_get_kind(line) != TOCSIN_JSON_OBJECT || tocsin_json_get_count(line) != known)
        return tocsin_json_lines_refuse(
            lines, "a rule has the members id, because, by, on, until, a and b, and no "
                   "others");
    tocsin_error inner;
    if (tocsin_align_rules_add(lines->context, &rule, &inner) == TOCSIN_OK)
        return TOCSIN_OK;
    return tocsin_json_lines_fail(lines, &inner);
}

tocsin_status tocsin_align_rules_read(tocsin_align_rules *rules, const char *path,
                                      tocsin_error *error)
{
    tocsin_json_lines lines = {.format = FORMAT,
                               .title = "a file of rules",
                               .version = VERSION,
                               .line_bytes_max = LINE_BYTES_MAX,
                               .path = path,
                               .context = rules,
                               .item = read_rule,
                               .error = error};
    return tocsin_json_lines_read(&lines);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_rule(const tocsin_align_rule *rule, tocsin_json *json)
{
    tocsin_align_rule copy = *rule;
    const char **texts[TOCSIN_ALIGN_RULE_TEXTS];
    tocsin_align_rule_texts(&copy, texts);
    tocsin_json_begin_object(json);
    for (size_t i = 0; i < TOCSIN_ALIGN_RULE_TEXTS; ++i) {
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
