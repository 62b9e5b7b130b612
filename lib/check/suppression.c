/* Suppressions: violations that are known and meant, read from and written to JSON Lines.
 *
 * Data: a vec in the order of the files, texts in an arena. Dates are compared as texts, which for
 * "YYYY-MM-DD" is their order in time.
 * Cost: a violation is compared with each suppression in turn; there are few, and a person wrote
 * them.
 */
#include <assert.h>
#include <check/check.h>

#define FORMAT           "tocsin-suppressions"
#define VERSION          1
#define SUPPRESSIONS_MAX 10000u
#define LINE_BYTES_MAX   (1u << 16)
#define DATE_BYTES       10

struct tocsin_suppressions {
    TOCSIN_VEC(tocsin_suppression) items;
    tocsin_arena arena;
    char today[DATE_BYTES + 1];
};

tocsin_status tocsin_suppressions_new(const char *today, tocsin_suppressions **suppressions,
                                      tocsin_error *error)
{
    *suppressions = NULL;
    if (!tocsin_text_is_date(today))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "'%s' is not a date", today);
    tocsin_suppressions *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        return tocsin_error_memory(error);
    memcpy(made->today, today, DATE_BYTES);
    *suppressions = made;
    return TOCSIN_OK;
}

void tocsin_suppressions_free(tocsin_suppressions *suppressions)
{
    if (suppressions == NULL)
        return;
    TOCSIN_VEC_FREE(&suppressions->items);
    tocsin_arena_free(&suppressions->arena);
    tocsin_free(suppressions);
}

/* ---- adding -------------------------------------------------------------------------------- */

/* What is wrong with it, or NULL. */
static const char *fault_of(const tocsin_suppression *suppression)
{
    bool by_id = suppression->invariant[0] != 0, by_code = suppression->code[0] != 0;
    if (by_id == by_code)
        return "a suppression names either an invariant by its id or a code";
    if (by_code && tocsin_code_find(suppression->code) == NULL)
        return "no finding has this code";
    if (suppression->reason[strspn(suppression->reason, " \t")] == 0)
        return "a suppression needs a reason";
    if (suppression->until[0] != 0 && !tocsin_text_is_date(suppression->until))
        return "\"until\" is not a date like 2027-01-31";
    return NULL;
}

static bool copy_text(tocsin_suppressions *suppressions, const char **text)
{
    *text = tocsin_arena_copy(&suppressions->arena, *text, strlen(*text));
    return *text != NULL;
}

tocsin_status tocsin_suppressions_add(tocsin_suppressions *suppressions,
                                      const tocsin_suppression *suppression, tocsin_error *error)
{
    const char *fault = fault_of(suppression);
    if (fault != NULL)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "%s", fault);
    if (suppressions->items.count >= SUPPRESSIONS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u suppressions",
                                SUPPRESSIONS_MAX);
    tocsin_suppression copy = *suppression;
    copy.occurrences = 0;
    copy.expired = copy.until[0] != 0 && strcmp(copy.until, suppressions->today) < 0;
    if (!copy_text(suppressions, &copy.invariant) || !copy_text(suppressions, &copy.code) ||
        !copy_text(suppressions, &copy.entity) || !copy_text(suppressions, &copy.reason) ||
        !copy_text(suppressions, &copy.until) || !TOCSIN_VEC_PUSH(&suppressions->items, copy))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

static tocsin_status read_suppression(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    tocsin_suppression suppression = {.invariant = ""};
    const struct {
        const char *name;
        const char **text;
    } members[] = {{"invariant", &suppression.invariant},
                   {"code", &suppression.code},
                   {"entity", &suppression.entity},
                   {"reason", &suppression.reason},
                   {"until", &suppression.until}};
    size_t known = 0;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(members); ++i) {
        const tocsin_json_value *value = tocsin_json_get_member(line, members[i].name);
        *members[i].text = value != NULL ? tocsin_json_get_text(value) : "";
        if (*members[i].text == NULL)
            return tocsin_json_lines_refuse(lines, "a member of a suppression is not a text");
        known += value != NULL;
    }
    if (tocsin_json_get_kind(line) != TOCSIN_JSON_OBJECT || tocsin_json_get_count(line) != known)
        return tocsin_json_lines_refuse(
            lines, "a suppression has the members invariant or code, entity, reason and "
                   "until, and no others");
    tocsin_error inner;
    if (tocsin_suppressions_add(lines->context, &suppression, &inner) == TOCSIN_OK)
        return TOCSIN_OK;
    return tocsin_json_lines_fail(lines, &inner);
}

tocsin_status tocsin_suppressions_read(tocsin_suppressions *suppressions, const char *path,
                                       tocsin_error *error)
{
    tocsin_json_lines lines = {.format = FORMAT,
                               .title = "a file of suppressions",
                               .version = VERSION,
                               .line_bytes_max = LINE_BYTES_MAX,
                               .path = path,
                               .context = suppressions,
                               .item = read_suppression,
                               .error = error};
    return tocsin_json_lines_read(&lines);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void put_member(tocsin_json *json, const char *name, const char *text)
{
    if (text[0] != 0) {
        tocsin_json_key(json, name);
        tocsin_json_text(json, text);
    }
}

static void put_suppression(const tocsin_suppression *suppression, tocsin_json *json)
{
    tocsin_json_begin_object(json);
    put_member(json, "invariant", suppression->invariant);
    put_member(json, "code", suppression->code);
    put_member(json, "entity", suppression->entity);
    put_member(json, "reason", suppression->reason);
    put_member(json, "until", suppression->until);
    tocsin_json_end_object(json);
}

tocsin_status tocsin_suppressions_save(const tocsin_suppressions *suppressions, const char *path,
                                       tocsin_error *error)
{
    tocsin_string text = {0};
    tocsin_string_printf(&text, "{\"format\":\"%s\",\"version\":%d}\n", FORMAT, VERSION);
    for (size_t i = 0; i < suppressions->items.count; ++i) {
        tocsin_json json = {.out = &text};
        put_suppression(&suppressions->items.items[i], &json);
        tocsin_string_append_char(&text, '\n');
    }
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, text.text, text.bytes, true, error);
    tocsin_string_free(&text);
    return status;
}

/* ---- looking ------------------------------------------------------------------------------- */

size_t tocsin_suppressions_count(const tocsin_suppressions *suppressions)
{
    return suppressions->items.count;
}

const tocsin_suppression *tocsin_suppressions_get(const tocsin_suppressions *suppressions,
                                                  size_t index)
{
    assert(index < suppressions->items.count);
    return &suppressions->items.items[index];
}

static bool matches(const tocsin_suppression *suppression, const char *invariant, const char *code,
                    const char *entity)
{
    if (suppression->expired ||
        (suppression->invariant[0] != 0 && strcmp(suppression->invariant, invariant) != 0) ||
        (suppression->code[0] != 0 && strcmp(suppression->code, code) != 0))
        return false;
    return suppression->entity[0] == 0 || tocsin_text_fits(suppression->entity, entity);
}

bool tocsin_suppressions_match(tocsin_suppressions *suppressions, const char *invariant,
                               const char *code, const char *entity)
{
    if (suppressions == NULL)
        return false;
    for (size_t i = 0; i < suppressions->items.count; ++i) {
        tocsin_suppression *suppression = &suppressions->items.items[i];
        if (matches(suppression, invariant, code, entity)) {
            ++suppression->occurrences;
            return true;
        }
    }
    return false;
}
