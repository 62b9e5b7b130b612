/* Relations of the user (tocsin/relation.h), as one relation of the observer.
 *
 * Each definition that is wanted gets what it may call, its own memory and the events that it asked
 * for. Data: for each callable a mask of the relations that want its calls; per relation the names
 * that it has used, so that one that makes up names without end is an error, not a leak. Invariant:
 * between two callbacks no instance is half made, because all relations share the scratch.
 * Cost: a mask a call, a comparison a state; what a callback says is looked up by its text.
 */
#include <assert.h>
#include <invariant/plugin.h>
#include <invariant/relation.h>

static const uint8_t kinds[] = {TOCSIN_POPULATION_USER, 0};

typedef enum name_use { USE_SUBJECT, USE_FACT, USE_FIELD, USE_TEXT, USE_COUNT } name_use;

typedef struct relation {      /* of the user, in this observer */
    tocsin_relation_host host; /* first: what its callbacks are given */
    tocsin_observer *observer;
    const tocsin_relation_definition *definition;
    void *own;
    const tocsin_process *process; /* of the running callback; NULL: of no process */
    int64_t step;
    const tocsin_frame *frame;   /* NULL: outside all calls */
    const tocsin_sample *sample; /* NULL: no state */
    bool begun;
    tocsin_population population; /* of the instance that is being made; 0: not wanted */
    tocsin_intern names[USE_COUNT];
} relation;

typedef struct user_relations {
    TOCSIN_VEC(relation *) items;
    TOCSIN_VEC(uint32_t) wanted;      /* by callable: bits of those that want its calls */
    uint32_t roles[TOCSIN_ROLES_MAX]; /* bits of those that want states at calls of a role */
} user_relations;

/* ---- what a relation may call -------------------------------------------------------------- */

static void fail_at(relation *of, tocsin_status status, const char *what, const char *text)
{
    if (of->observer->status != TOCSIN_OK)
        return;
    of->observer->status = status;
    tocsin_error_set(of->observer->error, status, "relation %s: %s%.200s", of->definition->name,
                     what, text);
}

/* A failed observer makes nothing more, and neither does an instance that nobody wants. */
static bool is_making(relation *of)
{
    if (!of->begun)
        fail_at(of, TOCSIN_E_ARGUMENT, "a field, fact or emit without begin", "");
    return of->begun && of->population != 0 && of->observer->status == TOCSIN_OK;
}

/* May it use this text so? */
static bool admit(relation *of, name_use use, const char *text)
{
    static const char *const uses[] = {"subjects", "facts", "fields", "texts in fields"};
    if (of->observer->status != TOCSIN_OK)
        return false;
    if (text == NULL || !tocsin_plugin_is_text(text)) {
        fail_at(of, TOCSIN_E_ARGUMENT, "a text is empty, too long or not printable, of its ",
                uses[use]);
        return false;
    }
    tocsin_intern *names = &of->names[use];
    if (tocsin_intern_put(names, text, strlen(text)) != 0)
        return true;
    if (tocsin_intern_count(names) >= names->limit_count)
        fail_at(of, TOCSIN_E_LIMIT, "too many different ", uses[use]);
    else
        tocsin_observer_fail(of->observer, TOCSIN_E_MEMORY, "out of memory");
    return false;
}

static void begin(tocsin_relation_host *host, const char *subject)
{
    relation *of = (relation *)host;
    char name[TOCSIN_PLUGIN_NAME_BYTES_MAX + 1 + TOCSIN_PLUGIN_TEXT_BYTES_MAX + 1];
    of->begun = admit(of, USE_SUBJECT, subject);
    if (!of->begun)
        return;
    strcpy(name, of->definition->name);
    strcat(name, "/");
    strcat(name, subject);
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_USER};
    key.name = tocsin_observer_need(of->observer, tocsin_symbol_of(of->observer->vocabulary, name));
    of->population = 0;
    if (of->observer->status == TOCSIN_OK)
        of->population = tocsin_observer_population(of->observer, &key);
    tocsin_observer_begin(of->observer);
}

static void context(tocsin_relation_host *host)
{
    relation *of = (relation *)host;
    if (!is_making(of) || of->frame == NULL)
        return;
    if (of->sample != NULL)
        tocsin_fields_of_sample(of->observer, of->frame, of->sample, TOCSIN_FIELDS_ALL);
    else
        tocsin_observer_add_call_fields(of->observer, of->frame);
}

static void add_field(relation *of, const char *name, tocsin_scalar value)
{
    tocsin_symbol symbol =
        tocsin_observer_need(of->observer, tocsin_symbol_of(of->observer->vocabulary, name));
    if (of->observer->status == TOCSIN_OK)
        tocsin_observer_add_field(of->observer, symbol, value, value);
}

static void field_bool(tocsin_relation_host *host, const char *name, bool value)
{
    relation *of = (relation *)host;
    if (is_making(of) && admit(of, USE_FIELD, name))
        add_field(of, name, of->observer->truth[value]);
}

static void field_int(tocsin_relation_host *host, const char *name, int64_t value)
{
    relation *of = (relation *)host;
    tocsin_value number = {.kind = TOCSIN_VALUE_INT, .as.integer = value};
    if (is_making(of) && admit(of, USE_FIELD, name))
        add_field(of, name, tocsin_scalar_of_value(of->observer, NULL, &number));
}

static void field_real(tocsin_relation_host *host, const char *name, double value)
{
    relation *of = (relation *)host;
    (void)value; /* only that it is one: tocsin_scalar_of_value */
    if (is_making(of) && admit(of, USE_FIELD, name))
        add_field(of, name, of->observer->opaque_float);
}

static void field_text(tocsin_relation_host *host, const char *name, const char *value)
{
    relation *of = (relation *)host;
    if (!is_making(of) || !admit(of, USE_FIELD, name) || !admit(of, USE_TEXT, value))
        return;
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = value};
    add_field(
        of, name,
        tocsin_observer_need(of->observer, tocsin_scalar_of(of->observer->vocabulary, &literal)));
}

static void add_fact(tocsin_relation_host *host, const char *fact)
{
    relation *of = (relation *)host;
    if (!is_making(of) || !admit(of, USE_FACT, fact))
        return;
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_CLAIM};
    key.name = tocsin_observer_need(of->observer, tocsin_symbol_of(of->observer->vocabulary, fact));
    if (of->observer->status == TOCSIN_OK)
        tocsin_observer_add_fact(of->observer, tocsin_observer_fact(of->observer, &key));
}

static tocsin_evidence evidence_of(const relation *of, const char *entity)
{
    const tocsin_process *process = of->process;
    if (process != NULL && of->frame != NULL)
        return tocsin_observer_evidence(of->observer, process, of->frame, entity);
    return (tocsin_evidence){.step = of->step,
                             .rank = process != NULL ? process->rank : -1,
                             .other_rank = -1,
                             .pid = process != NULL ? process->dictionary.pid : -1,
                             .entity = entity != NULL ? entity : of->definition->name,
                             .other = "",
                             .file = "",
                             .function = ""};
}

static void emit(tocsin_relation_host *host, const char *entity, const char *detail)
{
    relation *of = (relation *)host;
    bool making = is_making(of);
    of->begun = false;
    if (!making)
        return;
    tocsin_instance instance = {.population = of->population, .evidence = evidence_of(of, entity)};
    if (of->sample != NULL && entity == NULL)
        instance.evidence.entity = of->sample->variable->name;
    instance.evidence.detail = detail;
    tocsin_observer_emit(of->observer, &instance);
}

static void fail(tocsin_relation_host *host, const char *message)
{
    fail_at((relation *)host, TOCSIN_E_IO, "", message != NULL ? message : "failed");
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool is_wanted(const tocsin_observer *observer, const tocsin_relation_definition *definition)
{
    size_t cursor = 0;
    uint64_t population, *value;
    while (observer->filtered &&
           tocsin_map_next(&observer->wanted_populations, &cursor, &population, &value)) {
        tocsin_population_key key =
            tocsin_population_get_key(observer->vocabulary, (tocsin_population)population);
        if (key.kind == TOCSIN_POPULATION_USER &&
            tocsin_plugin_owns(definition, tocsin_symbol_text(observer->vocabulary, key.name)))
            return true;
    }
    return !observer->filtered;
}

static void close_relations(void *memory)
{
    user_relations *own = memory;
    for (size_t i = 0; i < own->items.count; ++i) {
        relation *of = own->items.items[i];
        if (of->definition->close != NULL && of->own != NULL)
            of->definition->close(of->own);
        for (size_t use = 0; use < USE_COUNT; ++use)
            tocsin_intern_free(&of->names[use]);
        tocsin_free(of);
    }
    TOCSIN_VEC_FREE(&own->items);
    TOCSIN_VEC_FREE(&own->wanted);
    tocsin_free(own);
}

static void open_relation(tocsin_observer *observer, user_relations *own,
                          const tocsin_relation_definition *definition)
{
    static const tocsin_relation_host host = {TOCSIN_RELATION_VERSION,
                                              begin,
                                              context,
                                              field_bool,
                                              field_int,
                                              field_real,
                                              field_text,
                                              add_fact,
                                              emit,
                                              fail};
    static const uint32_t limits[USE_COUNT] = {256, 256, 1024, 4096};
    relation *of = tocsin_zalloc(1, sizeof *of);
    if (of == NULL || !TOCSIN_VEC_PUSH(&own->items, of)) {
        tocsin_free(of);
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    of->host = host;
    of->observer = observer;
    of->definition = definition;
    for (size_t use = 0; use < USE_COUNT; ++use)
        of->names[use].limit_count = limits[use];
    for (size_t i = 0; i < definition->state_count; ++i)
        own->roles[definition->states[i].role] |= UINT32_C(1) << (own->items.count - 1);
    if (definition->open == NULL)
        return;
    of->own = definition->open(definition->context, &of->host);
    if (of->own == NULL)
        fail_at(of, TOCSIN_E_MEMORY, "it could not begin", "");
}

static void *open_relations(tocsin_observer *observer)
{
    user_relations *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    for (size_t i = 0; own != NULL && i < observer->relations->items.count; ++i) {
        const tocsin_relation_definition *definition =
            observer->relations->items.items[i].definition;
        if (observer->status == TOCSIN_OK && is_wanted(observer, definition))
            open_relation(observer, own, definition);
    }
    return own;
}

/* ---- events -------------------------------------------------------------------------------- */

static bool wants_call(const tocsin_relation_definition *definition, uint8_t role,
                       const char *function)
{
    for (size_t i = 0; i < definition->call_count; ++i) {
        const tocsin_relation_call *call = &definition->calls[i];
        if (role != TOCSIN_ROLE_NONE
                ? (uint8_t)call->role == role
                : call->function != NULL && strcmp(call->function, function) == 0)
            return true;
    }
    return false;
}

static void callable(tocsin_observer *observer, tocsin_callable *callable)
{
    user_relations *own = observer->own[TOCSIN_PART_USER];
    const char *name = tocsin_symbol_text(observer->vocabulary, callable->name);
    uint32_t mask = 0;
    for (size_t i = 0; i < own->items.count; ++i)
        if (wants_call(own->items.items[i]->definition, callable->role, name))
            mask |= UINT32_C(1) << i;
    while (own->wanted.count <= observer->callables.count)
        if (!TOCSIN_VEC_PUSH(&own->wanted, 0)) {
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
            return;
        }
    own->wanted.items[observer->callables.count] = mask;
    callable->interesting |= (mask | own->roles[callable->role]) != 0;
}

static tocsin_relation_view view_of(const tocsin_observer *observer, const tocsin_process *process,
                                    const tocsin_frame *frame, const tocsin_event *event)
{
    tocsin_relation_view view = {.event = event,
                                 .dictionary = &process->dictionary,
                                 .process = process->index,
                                 .rank = process->rank,
                                 .step = frame != NULL ? frame->step : process->step + 1,
                                 .function = ""};
    if (frame != NULL) {
        view.function = tocsin_symbol_text(observer->vocabulary,
                                           observer->callables.items[frame->callables[0]].name);
        view.role = (tocsin_role)frame->role;
    }
    return view;
}

static void tell(relation *of, tocsin_relation_callback *callback, const tocsin_process *process,
                 const tocsin_frame *frame, const tocsin_sample *sample,
                 const tocsin_relation_view *view)
{
    if (callback == NULL || of->observer->status != TOCSIN_OK)
        return;
    of->process = process;
    of->frame = frame;
    of->sample = sample;
    of->step = view->step;
    callback(of->own, &of->host, view);
    of->begun = false;
    of->process = NULL;
    of->frame = NULL;
    of->sample = NULL;
}

/* A call begins or is over: tell those that want to hear of it. */
static void tell_of_call(tocsin_observer *observer, const tocsin_process *process,
                         const tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    const user_relations *own = observer->own[TOCSIN_PART_USER];
    uint32_t mask = 0;
    for (uint32_t i = 0; i < frame->callable_count; ++i)
        if (frame->callables[i] < own->wanted.count)
            mask |= own->wanted.items[frame->callables[i]];
    if (mask == 0)
        return;
    tocsin_relation_view view = view_of(observer, process, frame, event);
    view.completed = completed;
    for (size_t i = 0; i < own->items.count; ++i) {
        const tocsin_relation_definition *definition = own->items.items[i]->definition;
        bool begins = event->kind == TOCSIN_EVENT_ENTER;
        if ((mask >> i & 1) != 0)
            tell(own->items.items[i], begins ? definition->enter : definition->leave, process,
                 frame, NULL, &view);
    }
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    (void)thread;
    tell_of_call(observer, process, frame, event, false);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    tell_of_call(observer, process, frame, event, completed);
}

static bool wants_state(const tocsin_relation_definition *definition, const tocsin_frame *frame,
                        const tocsin_sample *sample)
{
    for (size_t i = 0; i < definition->state_count; ++i) {
        const tocsin_relation_state *state = &definition->states[i];
        if ((uint8_t)state->role == frame->role && (uint8_t)state->moment == sample->moment &&
            (uint8_t)state->variable == sample->variable->kind &&
            tocsin_attribute_of(state->attribute) == (tocsin_attribute)sample->attribute)
            return true;
    }
    return false;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    const user_relations *own = observer->own[TOCSIN_PART_USER];
    uint32_t mask = frame != NULL ? own->roles[frame->role] : 0;
    for (size_t i = 0; mask >> i != 0; ++i) {
        relation *of = own->items.items[i];
        if ((mask >> i & 1) == 0 || of->definition->state == NULL ||
            !wants_state(of->definition, frame, sample))
            continue;
        tocsin_relation_view view = view_of(observer, process, frame, event);
        tell(of, of->definition->state, process, frame, sample, &view);
    }
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    const user_relations *own = observer->own[TOCSIN_PART_USER];
    for (size_t i = 0; i < own->items.count; ++i) {
        tocsin_relation_view view = view_of(observer, process, NULL, event);
        tell(own->items.items[i], own->items.items[i]->definition->meta, process, NULL, NULL,
             &view);
    }
}

static void step(tocsin_observer *observer, tocsin_process *process)
{
    const user_relations *own = observer->own[TOCSIN_PART_USER];
    for (size_t i = 0; i < own->items.count; ++i) {
        tocsin_relation_view view = view_of(observer, process, NULL, NULL);
        view.step = process->step;
        tell(own->items.items[i], own->items.items[i]->definition->step, process, NULL, NULL,
             &view);
    }
}

static void finish(tocsin_observer *observer)
{
    const user_relations *own = observer->own[TOCSIN_PART_USER];
    const tocsin_relation_view view = {.rank = -1, .step = -1, .function = ""};
    for (size_t i = 0; i < own->items.count; ++i)
        tell(own->items.items[i], own->items.items[i]->definition->finish, NULL, NULL, NULL, &view);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    const tocsin_relation_definition *definition = tocsin_relations_of(
        tocsin_needs_relations(needs), tocsin_symbol_text(vocabulary, key.name));
    for (size_t i = 0; definition != NULL && i < definition->call_count; ++i) {
        const tocsin_relation_call *call = &definition->calls[i];
        if (call->role != TOCSIN_ROLE_NONE)
            tocsin_need_call(needs, (uint8_t)call->role, 0, call->arguments);
        else
            tocsin_need_function(needs, call->function, call->arguments);
    }
    for (size_t i = 0; definition != NULL && i < definition->state_count; ++i) {
        const tocsin_relation_state *state = &definition->states[i];
        tocsin_need_state(needs, (uint8_t)state->role, (uint8_t)state->moment,
                          tocsin_attribute_of(state->attribute), (uint8_t)state->variable,
                          state->digest);
    }
}

const tocsin_relation_part tocsin_relation_user = {.kinds = kinds,
                                                   .open = open_relations,
                                                   .close = close_relations,
                                                   .callable = callable,
                                                   .enter = enter,
                                                   .leave = leave,
                                                   .state = state,
                                                   .meta = meta,
                                                   .step = step,
                                                   .finish = finish,
                                                   .need = need};
