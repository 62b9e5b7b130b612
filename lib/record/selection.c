/* selection.c - what a recorder is asked to record: docs/formats/selection.md.
 *
 *     tocsin-selection 1
 *     role optimizer.step args
 *     function torch.nn.functional.dropout
 *     state optimizer.step exit data digest parameter
 *
 * Data structure: two short lists (roles, functions) and the sampling plan, a dense table.
 * Invariant: a role or function stands in its list once; asking for arguments wins.
 * Cost: linear in the file; a look-up is linear in the number of roles or one intern probe.
 */
#include <assert.h>
#include <ctype.h>

#include "record/record.h"

enum { WORDS_MAX = 6 };

typedef struct words {
    const char *text[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    size_t count;
} words;

/* Split at blanks. False: more than WORDS_MAX words. */
static bool split(const char *line, size_t bytes, words *out)
{
    size_t at = 0;
    out->count = 0;
    for (;;) {
        while (at < bytes && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r'))
            at++;
        if (at == bytes)
            return true;
        if (out->count == WORDS_MAX)
            return false;
        size_t begin = at;
        while (at < bytes && line[at] != ' ' && line[at] != '\t' && line[at] != '\r')
            at++;
        out->text[out->count] = line + begin;
        out->bytes[out->count++] = at - begin;
    }
}

static bool word_is(const words *line, size_t index, const char *text)
{
    return index < line->count && line->bytes[index] == strlen(text) &&
           memcmp(line->text[index], text, line->bytes[index]) == 0;
}

/* Index of the word among `count` choices, or -1. */
static int choose(const words *line, size_t index, const char *const *choices, int count)
{
    for (int i = 0; i < count; i++)
        if (word_is(line, index, choices[i]))
            return i;
    return -1;
}

static tocsin_role role_of(const words *line, size_t index)
{
    for (int role = 1; role < TOCSIN_ROLE_COUNT; role++)
        if (word_is(line, index, tocsin_role_name((tocsin_role)role)))
            return (tocsin_role)role;
    return TOCSIN_ROLE_NONE;
}

/* "role R [args]" and "function NAME [args]". */
static const char *parse_call(tocsin_selection *selection, const words *line, bool is_role)
{
    tocsin_selected selected = {.arguments = word_is(line, 2, "args")};
    if (line->count < 2 || line->count > 3 || (line->count == 3 && !selected.arguments))
        return is_role ? "expected 'role ROLE [args]'" : "expected 'function NAME [args]'";
    if (is_role) {
        selected.role = role_of(line, 1);
        if (selected.role == TOCSIN_ROLE_NONE)
            return "unknown role";
        for (size_t i = 0; i < selection->roles.count; i++)
            if (selection->roles.items[i].role == selected.role) {
                selection->roles.items[i].arguments |= selected.arguments;
                return NULL;
            }
        return TOCSIN_VEC_PUSH(&selection->roles, selected) ? NULL : "";
    }
    uint32_t known = tocsin_intern_count(&selection->functions);
    selected.function = tocsin_intern_put(&selection->functions, line->text[1], line->bytes[1]);
    if (selected.function == 0)
        return "";
    if (selected.function <= known) {
        selection->calls.items[selected.function - 1].arguments |= selected.arguments;
        return NULL;
    }
    return TOCSIN_VEC_PUSH(&selection->calls, selected) ? NULL : "";
}

static const char *const attribute_names[TOCSIN_ATTRIBUTE_COUNT] = {
    "data",  "grad",   "saved",       "loaded",     "samples",     "value",
    "input", "output", "grad_output", "grad_local", "grad_reduced"};

const char *tocsin_attribute_name(tocsin_attribute attribute)
{
    return (unsigned)attribute < TOCSIN_ATTRIBUTE_COUNT ? attribute_names[attribute] : "";
}

int tocsin_attribute_from_name(const char *name)
{
    for (int i = 0; i < TOCSIN_ATTRIBUTE_COUNT; i++)
        if (strcmp(name, attribute_names[i]) == 0)
            return i;
    return -1;
}

/* Index of the variable kind minus 1, -1: there is none of that name. */
static int kind_of(const words *line, size_t index)
{
    for (int kind = 1; kind <= TOCSIN_KIND_COUNT; kind++)
        if (word_is(line, index, tocsin_variable_kind_name((tocsin_variable_kind)kind)))
            return kind - 1;
    return -1;
}

/* "state ROLE enter|exit ATTRIBUTE digest|presence KIND". */
static const char *parse_state(tocsin_selection *selection, const words *line)
{
    static const char *const moments[] = {"enter", "exit"}, *const amounts[] = {"presence",
                                                                                "digest"};
    tocsin_role role = role_of(line, 1);
    int moment = choose(line, 2, moments, 2),
        attribute = choose(line, 3, attribute_names, TOCSIN_ATTRIBUTE_COUNT);
    int amount = choose(line, 4, amounts, 2), kind = kind_of(line, 5);
    if (line->count != 6 || moment < 0 || attribute < 0 || amount < 0 || kind < 0)
        return "expected 'state ROLE enter|exit ATTRIBUTE presence|digest KIND'";
    if (role == TOCSIN_ROLE_NONE)
        return "unknown role";
    uint8_t *planned = &selection->plan.amount[role][moment][attribute][kind];
    if (*planned < amount + 1)
        *planned = (uint8_t)(amount + 1);
    return NULL;
}

/* NULL, or what is wrong with the line ("" when out of memory). */
static const char *parse_line(tocsin_selection *selection, const char *text, size_t bytes)
{
    words line;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\0')
            return "zero byte";
    if (!split(text, bytes, &line))
        return "too many words";
    if (line.count == 0 || line.text[0][0] == '#')
        return NULL;
    if (word_is(&line, 0, "role"))
        return parse_call(selection, &line, true);
    if (word_is(&line, 0, "function"))
        return parse_call(selection, &line, false);
    if (word_is(&line, 0, "state"))
        return parse_state(selection, &line);
    return "expected 'role', 'function' or 'state'";
}

static tocsin_status parse_header(const char *line, size_t bytes, const char *path,
                                  tocsin_error *error)
{
    static const char magic[] = "tocsin-selection ";
    size_t magic_bytes = sizeof magic - 1;
    while (bytes > 0 && isspace((unsigned char)line[bytes - 1]))
        bytes--;
    if (bytes < magic_bytes || memcmp(line, magic, magic_bytes) != 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, path, 0, "not a selection file");
    if (bytes != magic_bytes + 1 || line[magic_bytes] != '1')
        return tocsin_error_at(error, TOCSIN_E_VERSION, path, 0,
                               "selection file of an unknown version");
    return TOCSIN_OK;
}

static tocsin_status parse_text(tocsin_selection *selection, const tocsin_string *content,
                                const char *path, tocsin_error *error)
{
    const char *text = tocsin_string_text(content), *end = text + content->bytes;
    for (size_t number = 1; text < end; number++) {
        if (number > TOCSIN_SELECTION_LINES_MAX)
            return tocsin_error_at(error, TOCSIN_E_LIMIT, path, -1, "more than %u lines",
                                   TOCSIN_SELECTION_LINES_MAX);
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((stop == NULL ? end : stop) - text);
        if (number == 1) {
            TOCSIN_TRY(parse_header(text, bytes, path, error));
        } else {
            const char *wrong = parse_line(selection, text, bytes);
            if (wrong != NULL && *wrong == '\0')
                return tocsin_error_memory(error);
            if (wrong != NULL)
                return tocsin_error_at(error, TOCSIN_E_FORMAT, path,
                                       text - tocsin_string_text(content), "line %zu: %s", number,
                                       wrong);
        }
        text += bytes + (stop != NULL);
    }
    if (content->bytes == 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, path, 0, "empty selection file");
    return TOCSIN_OK;
}

tocsin_status tocsin_selection_load(tocsin_selection *selection, const char *path,
                                    tocsin_error *error)
{
    assert(selection != NULL && path != NULL);
    tocsin_string content = {0};
    tocsin_status status = tocsin_file_load(path, TOCSIN_SELECTION_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK)
        status = parse_text(selection, &content, path, error);
    tocsin_string_free(&content);
    if (status != TOCSIN_OK)
        tocsin_selection_free(selection);
    return status;
}

void tocsin_selection_free(tocsin_selection *selection)
{
    TOCSIN_VEC_FREE(&selection->roles);
    TOCSIN_VEC_FREE(&selection->calls);
    tocsin_intern_free(&selection->functions);
    memset(selection, 0, sizeof *selection);
}

/* Gradients around backward and zero_grad, everything around optimizer.step: traps of sampling in
 * docs/recording.md. Buffers have no gradient and move in forward: once a step is enough. What a
 * checkpoint holds, which samples a loader hands out, generators, optimizer state and attributes
 * are read by Python code, when these calls return. */
void tocsin_sampling_plan_all(tocsin_sampling_plan *plan)
{
    static const struct {
        uint8_t role, moment, attribute, kind, amount;
    } points[] = {
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_DATA,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_GRAD,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
         TOCSIN_VARIABLE_BUFFER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_BACKWARD, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_GRAD,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_BACKWARD, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_GRAD, TOCSIN_VARIABLE_PARAMETER,
         TOCSIN_SAMPLING_PRESENCE},
        {TOCSIN_ROLE_ZERO_GRAD, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_GRAD,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
         TOCSIN_VARIABLE_OPTIMIZER_STATE, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE,
         TOCSIN_VARIABLE_RNG, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE,
         TOCSIN_VARIABLE_ATTRIBUTE, TOCSIN_SAMPLING_PRESENCE},
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_PRESENCE},
        {TOCSIN_ROLE_DATA_NEXT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE, TOCSIN_VARIABLE_RNG,
         TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_DATA_NEXT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAMPLES,
         TOCSIN_VARIABLE_LEDGER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAVED,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
        {TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_LOADED,
         TOCSIN_VARIABLE_PARAMETER, TOCSIN_SAMPLING_DIGEST},
    };
    memset(plan, 0, sizeof *plan);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(points); i++)
        plan->amount[points[i].role][points[i].moment - 1][points[i].attribute]
                    [points[i].kind - 1] = points[i].amount;
}
