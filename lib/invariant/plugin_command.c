/* A relation that is a command: another program, in any language, told of events as lines of JSON.
 *
 * It is a user of tocsin/relation.h like any shared library: each callback becomes a question, each
 * answer the instances that it makes. Because the answer is awaited, an instance is made where its
 * event stands, with the event's context, and the result is the same on every machine. The process
 * that was asked what it wants is not the one that a run is told to: those are one a run.
 * Cost: an exchange of lines a callback. docs/extending.md has the protocol.
 */
#include <assert.h>
#include <event/event.h>
#include <invariant/plugin.h>

#define TIMEOUT_MS_DEFAULT 60000u
#define TIMEOUT_MS_MAX     3600000u

static const char greeting[] = "{\"format\":\"tocsin-relation\",\"version\":1}\n";

struct tocsin_command {
    tocsin_relation_definition definition;
    tocsin_arena arena; /* its texts, calls and states */
    char *text;
    uint32_t timeout_ms;
};

typedef struct conversation { /* of a run */
    const tocsin_command *command;
    tocsin_dialogue dialogue;
    tocsin_string line;
} conversation;

/* ---- answers ------------------------------------------------------------------------------- */

static tocsin_status bad(const char *name, const char *what, tocsin_error *error)
{
    return tocsin_error_at(error, TOCSIN_E_FORMAT, name, -1, "a relation's answer: %s", what);
}

static tocsin_status put_field(tocsin_relation_host *host, const char *name, const char *key,
                               const tocsin_json_value *value, tocsin_error *error)
{
    int64_t integer = 0;
    double real = 0;
    bool boolean = false;
    switch (tocsin_json_get_kind(value)) {
    case TOCSIN_JSON_BOOL:
        tocsin_json_get_bool(value, &boolean);
        host->field_bool(host, key, boolean);
        return TOCSIN_OK;
    case TOCSIN_JSON_INTEGER:
        tocsin_json_get_integer(value, &integer);
        host->field_int(host, key, integer);
        return TOCSIN_OK;
    case TOCSIN_JSON_REAL:
        tocsin_json_get_real(value, &real);
        host->field_real(host, key, real);
        return TOCSIN_OK;
    case TOCSIN_JSON_STRING:
        host->field_text(host, key, tocsin_json_get_text(value));
        return TOCSIN_OK;
    default:
        return bad(name, "a field is neither true, false, a number nor a text", error);
    }
}

static tocsin_status put_fields(tocsin_relation_host *host, const char *name,
                                const tocsin_json_value *instance, tocsin_error *error)
{
    const tocsin_json_value *fields = tocsin_json_get_member(instance, "fields"), *value;
    const char *key;
    void *cursor = NULL;
    if (fields != NULL && tocsin_json_get_kind(fields) != TOCSIN_JSON_OBJECT)
        return bad(name, "\"fields\" is not an object", error);
    while (tocsin_json_next_member(fields, &cursor, &key, &value))
        TOCSIN_TRY(put_field(host, name, key, value, error));
    return TOCSIN_OK;
}

static tocsin_status put_facts(tocsin_relation_host *host, const char *name,
                               const tocsin_json_value *instance, tocsin_error *error)
{
    const tocsin_json_value *facts = tocsin_json_get_member(instance, "facts");
    if (facts != NULL && tocsin_json_get_kind(facts) != TOCSIN_JSON_ARRAY)
        return bad(name, "\"facts\" is not an array", error);
    for (size_t i = 0; i < tocsin_json_get_count(facts); ++i) {
        const char *fact = tocsin_json_get_text(tocsin_json_get_item(facts, i));
        if (fact == NULL)
            return bad(name, "a fact is not a text", error);
        host->fact(host, fact);
    }
    return TOCSIN_OK;
}

static tocsin_status put_instance(tocsin_relation_host *host, const char *name,
                                  const tocsin_json_value *instance, tocsin_error *error)
{
    const char *subject = tocsin_json_get_text(tocsin_json_get_member(instance, "subject"));
    bool context = false;
    if (subject == NULL)
        return bad(name, "an instance has no \"subject\"", error);
    host->begin(host, subject);
    tocsin_json_get_bool(tocsin_json_get_member(instance, "context"), &context);
    if (context)
        host->context(host);
    TOCSIN_TRY(put_fields(host, name, instance, error));
    TOCSIN_TRY(put_facts(host, name, instance, error));
    host->emit(host, tocsin_json_get_text(tocsin_json_get_member(instance, "entity")),
               tocsin_json_get_text(tocsin_json_get_member(instance, "detail")));
    return TOCSIN_OK;
}

/* {"error":"message"}: the relation gives up. */
static tocsin_status given_up(const char *name, const tocsin_json_value *answer,
                              tocsin_error *error)
{
    const char *failure = tocsin_json_get_text(tocsin_json_get_member(answer, "error"));
    if (failure == NULL)
        return TOCSIN_OK;
    return tocsin_error_at(error, TOCSIN_E_IO, name, -1, "%.300s",
                           failure[0] != 0 ? failure : "the relation gave up and did not say why");
}

static tocsin_status put_instances(tocsin_relation_host *host, const char *name,
                                   const tocsin_json_value *answer, tocsin_error *error)
{
    TOCSIN_TRY(given_up(name, answer, error));
    if (tocsin_json_get_kind(answer) != TOCSIN_JSON_ARRAY)
        return bad(name, "neither an array nor an \"error\"", error);
    for (size_t i = 0; i < tocsin_json_get_count(answer); ++i)
        TOCSIN_TRY(put_instance(host, name, tocsin_json_get_item(answer, i), error));
    return TOCSIN_OK;
}

tocsin_status tocsin_command_answer(tocsin_relation_host *host, const char *name, const char *line,
                                    size_t bytes, tocsin_error *error)
{
    tocsin_json_value *answer;
    if (bytes == 2 && memcmp(line, "[]", 2) == 0) /* mostly there is nothing to say */
        return TOCSIN_OK;
    TOCSIN_TRY(tocsin_json_parse(line, bytes, name, &answer, error));
    tocsin_status status = put_instances(host, name, answer, error);
    tocsin_json_free(answer);
    return status;
}

/* ---- questions ----------------------------------------------------------------------------- */

static void put_question(conversation *own, const char *on, const tocsin_relation_view *view)
{
    tocsin_json json = {.out = &own->line};
    tocsin_string_clear(&own->line);
    tocsin_json_begin_object(&json);
    tocsin_json_key(&json, "on");
    tocsin_json_text(&json, on);
    tocsin_json_key(&json, "process");
    tocsin_json_unsigned(&json, view->process);
    tocsin_json_key(&json, "rank");
    tocsin_json_integer(&json, view->rank);
    tocsin_json_key(&json, "step");
    tocsin_json_integer(&json, view->step);
    tocsin_json_key(&json, "function");
    tocsin_json_text(&json, view->function);
    tocsin_json_key(&json, "role");
    tocsin_json_text(&json, tocsin_role_name(view->role));
    tocsin_json_key(&json, "completed");
    tocsin_json_bool(&json, view->completed);
    if (view->event != NULL) {
        tocsin_json_key(&json, "event");
        tocsin_event_put_json(view->event, view->dictionary, &json);
    }
    tocsin_json_end_object(&json);
    tocsin_string_append_char(&own->line, '\n');
}

static void ask(void *memory, tocsin_relation_host *host, const tocsin_relation_view *view,
                const char *on)
{
    conversation *own = memory;
    const char *answer;
    size_t bytes;
    tocsin_error error = {.code = TOCSIN_OK};
    put_question(own, on, view);
    tocsin_status status = tocsin_string_check(&own->line, &error);
    if (status == TOCSIN_OK)
        status = tocsin_dialogue_ask(&own->dialogue, own->line.text, own->line.bytes, &answer,
                                     &bytes, &error);
    if (status == TOCSIN_OK)
        status = tocsin_command_answer(host, own->command->definition.name, answer, bytes, &error);
    if (status != TOCSIN_OK)
        host->fail(host, error.message);
}

/* X(callback): what a relation may want to be asked on. */
#define CALLBACKS(X) X(enter) X(leave) X(state) X(meta) X(step) X(finish)

#define X(callback)                                                                                \
    static void ask_##callback(void *own, tocsin_relation_host *host,                              \
                               const tocsin_relation_view *view)                                   \
    {                                                                                              \
        ask(own, host, view, #callback);                                                           \
    }
CALLBACKS(X)
#undef X

static void end(void *memory)
{
    conversation *own = memory;
    tocsin_dialogue_end(&own->dialogue);
    tocsin_string_free(&own->line);
    tocsin_free(own);
}

static tocsin_status greet(const tocsin_command *command, tocsin_dialogue *dialogue,
                           const char **answer, size_t *bytes, tocsin_error *error)
{
    TOCSIN_TRY(tocsin_dialogue_begin(dialogue, command->text, command->timeout_ms, error));
    return tocsin_dialogue_ask(dialogue, greeting, sizeof greeting - 1, answer, bytes, error);
}

static void *begin(const void *context, tocsin_relation_host *host)
{
    const char *answer;
    size_t bytes;
    tocsin_error error = {.code = TOCSIN_OK};
    conversation *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        host->fail(host, "out of memory");
        return NULL;
    }
    own->command = context;
    if (greet(own->command, &own->dialogue, &answer, &bytes, &error) != TOCSIN_OK) {
        host->fail(host, error.message);
        end(own);
        return NULL;
    }
    return own;
}

/* ---- what it wants ------------------------------------------------------------------------- */

static const char *member_text(const tocsin_json_value *object, const char *key)
{
    const char *text = tocsin_json_get_text(tocsin_json_get_member(object, key));
    return text != NULL ? text : "";
}

static bool member_true(const tocsin_json_value *object, const char *key)
{
    bool truth = false;
    tocsin_json_get_bool(tocsin_json_get_member(object, key), &truth);
    return truth;
}

static bool copy_text(tocsin_command *command, const char *text, const char **copy)
{
    *copy = tocsin_arena_copy(&command->arena, text, strlen(text));
    return *copy != NULL;
}

static bool read_call(tocsin_command *command, const tocsin_json_value *from,
                      tocsin_relation_call *to)
{
    const char *function = tocsin_json_get_text(tocsin_json_get_member(from, "function"));
    *to = (tocsin_relation_call){.role = tocsin_role_from_name(member_text(from, "role")),
                                 .arguments = member_true(from, "arguments")};
    return function == NULL || copy_text(command, function, &to->function);
}

static bool read_state(tocsin_command *command, const tocsin_json_value *from,
                       tocsin_relation_state *to)
{
    const char *moment = member_text(from, "moment");
    const char *variable = member_text(from, "variable");
    *to = (tocsin_relation_state){.role = tocsin_role_from_name(member_text(from, "role")),
                                  .digest = member_true(from, "digest")};
    if (strcmp(moment, "enter") == 0 || strcmp(moment, "exit") == 0)
        to->moment = moment[1] == 'n' ? TOCSIN_MOMENT_ENTER : TOCSIN_MOMENT_EXIT;
    for (unsigned kind = TOCSIN_VARIABLE_PARAMETER; kind <= TOCSIN_VARIABLE_ATTRIBUTE; ++kind)
        if (strcmp(tocsin_variable_kind_name((tocsin_variable_kind)kind), variable) == 0)
            to->variable = (tocsin_variable_kind)kind;
    return copy_text(command, member_text(from, "attribute"), &to->attribute);
}

static tocsin_status read_wants(tocsin_command *command, const tocsin_json_value *root,
                                tocsin_error *error)
{
    const tocsin_json_value *calls = tocsin_json_get_member(root, "calls");
    const tocsin_json_value *states = tocsin_json_get_member(root, "states");
    tocsin_relation_definition *made = &command->definition;
    made->call_count = tocsin_json_get_count(calls);
    made->state_count = tocsin_json_get_count(states);
    tocsin_relation_call *call =
        TOCSIN_ARENA_ARRAY(&command->arena, tocsin_relation_call, made->call_count);
    tocsin_relation_state *state =
        TOCSIN_ARENA_ARRAY(&command->arena, tocsin_relation_state, made->state_count);
    bool done = call != NULL && state != NULL;
    for (size_t i = 0; i < made->call_count && done; ++i)
        done = read_call(command, tocsin_json_get_item(calls, i), &call[i]);
    for (size_t i = 0; i < made->state_count && done; ++i)
        done = read_state(command, tocsin_json_get_item(states, i), &state[i]);
    made->calls = call;
    made->states = state;
    return done ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status read_callbacks(tocsin_command *command, const tocsin_json_value *root,
                                    tocsin_error *error)
{
    const tocsin_json_value *on = tocsin_json_get_member(root, "on");
    const struct {
        const char *word;
        tocsin_relation_callback **place, *asks;
    } callbacks[] = {
#define X(callback) {#callback, &command->definition.callback, ask_##callback},
        CALLBACKS(X)
#undef X
    };
    for (size_t i = 0; i < tocsin_json_get_count(on); ++i) {
        const char *word = tocsin_json_get_text(tocsin_json_get_item(on, i));
        bool known = false;
        for (size_t c = 0; word != NULL && c < TOCSIN_COUNT_OF(callbacks); ++c)
            if (strcmp(word, callbacks[c].word) == 0) {
                *callbacks[c].place = callbacks[c].asks;
                known = true;
            }
        if (!known)
            return bad(command->text, "\"on\" holds what it can not be asked on", error);
    }
    return TOCSIN_OK;
}

static tocsin_status read_description(tocsin_command *command, const char *line, size_t bytes,
                                      tocsin_error *error)
{
    tocsin_json_value *root;
    TOCSIN_TRY(tocsin_json_parse(line, bytes, command->text, &root, error));
    int64_t version = 0;
    tocsin_json_get_integer(tocsin_json_get_member(root, "version"), &version);
    command->definition = (tocsin_relation_definition){
        .version = version > 0 && version < UINT16_MAX ? (uint32_t)version : 0,
        .context = command,
        .open = begin,
        .close = end};
    tocsin_status status = given_up(command->text, root, error);
    if (status == TOCSIN_OK &&
        !copy_text(command, member_text(root, "relation"), &command->definition.name))
        status = tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = read_wants(command, root, error);
    if (status == TOCSIN_OK)
        status = read_callbacks(command, root, error);
    tocsin_json_free(root);
    return status;
}

tocsin_status tocsin_command_new(const char *text, uint32_t timeout_ms, tocsin_command **made,
                                 tocsin_error *error)
{
    *made = NULL;
    if (timeout_ms > TIMEOUT_MS_MAX)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a relation may take an hour at most");
    tocsin_command *command = tocsin_zalloc(1, sizeof *command);
    if (command == NULL)
        return tocsin_error_memory(error);
    command->timeout_ms = timeout_ms != 0 ? timeout_ms : TIMEOUT_MS_DEFAULT;
    command->text = tocsin_arena_copy(&command->arena, text, strlen(text));
    tocsin_dialogue dialogue = {.fd = -1};
    const char *line;
    size_t bytes;
    tocsin_status status = command->text != NULL ? greet(command, &dialogue, &line, &bytes, error)
                                                 : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = read_description(command, line, bytes, error);
    tocsin_dialogue_end(&dialogue);
    if (status == TOCSIN_OK)
        *made = command;
    else
        tocsin_command_free(command);
    return status;
}

const tocsin_relation_definition *tocsin_command_definition(const tocsin_command *command)
{
    return &command->definition;
}

void tocsin_command_free(tocsin_command *command)
{
    if (command == NULL)
        return;
    tocsin_arena_free(&command->arena);
    tocsin_free(command);
}
