/* lib/align/boundary.c - the boundaries of one process, step by step, from its events.
 *
 * A boundary is a place where a value was read: a state, a loss, a batch. Its symbol says what it
 * is: the variable's name without what wrappers add, attribute, moment, the call it was read in,
 * and the phase of training. The value is a hash of all that was read. Open calls are followed by
 * thread, since a state belongs to the innermost of them.
 *
 * Invariant: two boundaries have equal values exactly if everything that was read of them is equal
 * (but for collisions of 64 bits); what was not read has the value 0.
 * Cost: linear in events; memory is that of one step.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "align/align.h"

typedef struct open_call {
    uint64_t call;
    uint32_t operation; /* text */
    uint32_t site;      /* of it or of the nearest call around it */
    tocsin_id module;   /* string of the trace: whose call it is; 0: no module's */
    uint8_t role;
    uint8_t phase;                  /* of phases[] */
    const tocsin_call_chain *chain; /* in this window; NULL: not needed so far */
} open_call;

typedef struct boundary_thread {
    TOCSIN_VEC(open_call) calls;
    tocsin_boundary_stream stream;
} boundary_thread;

struct tocsin_boundary_reader {
    tocsin_trace *trace;
    tocsin_intern *names;
    const tocsin_align_options *options;
    TOCSIN_VEC(boundary_thread) threads;
    tocsin_map functions, variables, strings, shapes, sites; /* id -> text in `names` */
    uint32_t phase_texts[8];
    tocsin_arena texts; /* of the window */
    tocsin_map groups;  /* text -> meetings of this group so far */
    tocsin_meetings meetings;
    uint32_t backwards; /* passes that have ended in this window */
    bool data_parallel; /* gradients are averaged inside backward, by calls that are not seen */
    bool complete;
    bool starved; /* memory ran out */
    uint64_t events;
    uint64_t now_ns; /* of the event in hand */
    int64_t rank;
};

enum { NO_PHASE, DATA, FORWARD, LOSS, BACKWARD, RECOMPUTE, OPTIMIZER, CHECKPOINT };
static const char *const phases[] = {"",         "data",      "forward",   "loss",
                                     "backward", "recompute", "optimizer", "checkpoint"};

/* ---- texts ----------------------------------------------------------------------------------- */

/* What wrappers put into names; the recorder leaves most of it out already. */
static const char *const wrappers[] = {"_checkpoint_wrapped_module.", "_fsdp_wrapped_module.",
                                       "_orig_mod."};

static uint32_t put_text(tocsin_boundary_reader *reader, const char *text)
{
    return tocsin_intern_put(reader->names, text, strlen(text));
}

/* The name without wrappers' parts. */
static uint32_t put_name(tocsin_boundary_reader *reader, const char *name)
{
    char kept[512];
    size_t bytes = 0;
    for (const char *at = name; *at && bytes < sizeof kept;) {
        bool begins = at == name || at[-1] == '.';
        size_t skipped = 0;
        for (size_t k = 0; begins && k < TOCSIN_COUNT_OF(wrappers); ++k) {
            size_t length = strlen(wrappers[k]);
            if (strncmp(at, wrappers[k], length) == 0)
                skipped = length;
        }
        if (skipped == 0)
            kept[bytes++] = *at++;
        at += skipped;
    }
    return tocsin_intern_put(reader->names, kept, bytes);
}

/* The text of an id of one of the dictionary's kinds: looked up once. 0: out of memory, which is
 * remembered. */
static uint32_t cached(tocsin_boundary_reader *reader, tocsin_map *cache, tocsin_id id,
                       uint32_t (*make)(tocsin_boundary_reader *, tocsin_id))
{
    uint64_t *text = tocsin_map_at(cache, id);
    if (text && *text == 0)
        *text = make(reader, id);
    reader->starved = reader->starved || !text || *text == 0;
    return text ? (uint32_t)*text : 0;
}

static uint32_t make_function(tocsin_boundary_reader *reader, tocsin_id id)
{
    tocsin_role role = tocsin_trace_function_role(reader->trace, id);
    return put_text(reader, role == TOCSIN_ROLE_OPTIMIZER_STEP || role == TOCSIN_ROLE_BACKWARD ||
                                    role == TOCSIN_ROLE_ZERO_GRAD
                                ? tocsin_role_name(role)
                                : tocsin_trace_function_name(reader->trace, id));
}

static uint32_t make_variable(tocsin_boundary_reader *reader, tocsin_id id)
{
    return put_name(reader, tocsin_trace_variable_name(reader->trace, id));
}

static uint32_t make_string(tocsin_boundary_reader *reader, tocsin_id id)
{
    return put_text(reader, tocsin_trace_string(reader->trace, id));
}

static uint32_t make_shape(tocsin_boundary_reader *reader, tocsin_id id)
{
    const int64_t *sizes = NULL;
    uint32_t ndim = tocsin_trace_shape(reader->trace, id, &sizes);
    return tocsin_intern_put(reader->names, sizes, sizes ? ndim * sizeof *sizes : 0);
}

static uint32_t make_site(tocsin_boundary_reader *reader, tocsin_id id)
{
    uint32_t line;
    const char *function;
    const char *file = tocsin_trace_site(reader->trace, id, &line, &function);
    char text[512];
    if (file[0] == '\0')
        return put_text(reader, "");
    snprintf(text, sizeof text, "%s:%" PRIu32 " (%s)", file, line, function);
    return put_text(reader, text);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static uint8_t phase_of(tocsin_role role, uint8_t around)
{
    switch (role) {
    case TOCSIN_ROLE_FORWARD:
        return around == BACKWARD || around == RECOMPUTE ? RECOMPUTE : FORWARD;
    case TOCSIN_ROLE_LOSS:
        return around == NO_PHASE ? LOSS : around;
    case TOCSIN_ROLE_BACKWARD:
        return BACKWARD;
    case TOCSIN_ROLE_ZERO_GRAD:
    case TOCSIN_ROLE_OPTIMIZER_STEP:
    case TOCSIN_ROLE_CLIP_GRAD:
    case TOCSIN_ROLE_SCALER:
    case TOCSIN_ROLE_SCHEDULER_STEP:
        return OPTIMIZER;
    case TOCSIN_ROLE_DATA_NEXT:
        return DATA;
    case TOCSIN_ROLE_CHECKPOINT:
        return CHECKPOINT;
    case TOCSIN_ROLE_NONE:
    case TOCSIN_ROLE_COLLECTIVE:
    case TOCSIN_ROLE_MODE:
    case TOCSIN_ROLE_INITIALIZE:
    case TOCSIN_ROLE_STEP_END:
    case TOCSIN_ROLE_USER:
        break;
    }
    return around;
}

static bool is_inside(const boundary_thread *thread, tocsin_role role)
{
    for (size_t c = 0; c < thread->calls.count; ++c) {
        if (thread->calls.items[c].role == role)
            return true;
    }
    return false;
}

/* The group over which a collective goes. */
static uint32_t group_of(tocsin_boundary_reader *reader, const tocsin_event *event)
{
    for (uint32_t v = 0; v < event->value_count; ++v) {
        const tocsin_value *value = &event->values[v];
        if (value->kind != TOCSIN_VALUE_STRING)
            continue;
        const char *text = tocsin_trace_string(reader->trace, value->as.text);
        if (strncmp(text, "group:", 6) == 0)
            return put_text(reader, text);
    }
    return put_text(reader, "world");
}

static bool meet(tocsin_boundary_reader *reader, boundary_thread *thread, uint64_t call,
                 tocsin_meeting_kind kind, uint32_t group)
{
    uint64_t *count = group ? tocsin_map_at(&reader->groups, group) : NULL;
    if (!count)
        return false;
    tocsin_meeting meeting = {.kind = kind,
                              .group = group,
                              .ordinal = (uint32_t)(*count)++,
                              .thread = (uint32_t)(thread - reader->threads.items),
                              .item = (uint32_t)thread->stream.items.count,
                              .call = call};
    return TOCSIN_VEC_PUSH(&reader->meetings, meeting);
}

/* What goes into a call that communicates was there before. */
static void meet_later(tocsin_boundary_reader *reader, const boundary_thread *thread, uint64_t call)
{
    tocsin_meeting *last =
        reader->meetings.count ? &reader->meetings.items[reader->meetings.count - 1] : NULL;
    if (last && last->call == call && last->thread == (uint32_t)(thread - reader->threads.items))
        last->item = (uint32_t)thread->stream.items.count;
}

/* Does this call communicate? Of collectives within calls the outermost one counts. */
static bool note_meeting(tocsin_boundary_reader *reader, boundary_thread *thread,
                         const tocsin_event *event, tocsin_role role)
{
    tocsin_meeting_kind kind;
    char message[TOCSIN_MESSAGE_NAME_BYTES];
    if (role == TOCSIN_ROLE_COLLECTIVE &&
        tocsin_message_is_call(tocsin_trace_function_name(reader->trace, event->function)))
        return !tocsin_message_name(reader->trace, event, reader->rank, &kind, message) ||
               meet(reader, thread, event->call, kind, put_text(reader, message));
    if (role == TOCSIN_ROLE_COLLECTIVE && !is_inside(thread, role))
        return meet(reader, thread, event->call, TOCSIN_MEETING_ALL, group_of(reader, event));
    if (role == TOCSIN_ROLE_BACKWARD && reader->data_parallel && !is_inside(thread, role))
        return meet(reader, thread, event->call, TOCSIN_MEETING_ALL, put_text(reader, "backward"));
    return true;
}

static bool enter_call(tocsin_boundary_reader *reader, boundary_thread *thread,
                       const tocsin_event *event)
{
    const open_call *around =
        thread->calls.count ? &thread->calls.items[thread->calls.count - 1] : NULL;
    tocsin_role role = tocsin_trace_function_role(reader->trace, event->function);
    if (!note_meeting(reader, thread, event, role))
        return false;
    open_call call = {.call = event->call,
                      .role = (uint8_t)role,
                      .phase = phase_of(role, around ? around->phase : NO_PHASE)};
    call.operation = cached(reader, &reader->functions, event->function, make_function);
    if (event->value_count > 0 && event->values[0].kind == TOCSIN_VALUE_MODULE)
        call.module = event->values[0].as.text;
    call.site = around ? around->site : 0;
    if (event->site)
        call.site = cached(reader, &reader->sites, event->site, make_site);
    return call.operation && TOCSIN_VEC_PUSH(&thread->calls, call);
}

/* Close the call, and those in it whose end was never seen. */
static void leave_call(boundary_thread *thread, uint64_t call)
{
    while (thread->calls.count && thread->calls.items[thread->calls.count - 1].call >= call)
        --thread->calls.count;
}

/* ---- boundaries ------------------------------------------------------------------------------ */

/* Append what a value says, as text. */
static void append_value(tocsin_boundary_reader *reader, const tocsin_value *value,
                         tocsin_string *out)
{
    char real[TOCSIN_REAL_TEXT_BYTES];
    switch ((tocsin_value_kind)value->kind) {
    case TOCSIN_VALUE_BOOL:
        tocsin_string_append_text(out, value->as.integer ? "True" : "False");
        break;
    case TOCSIN_VALUE_INT:
        tocsin_string_printf(out, "%" PRId64, value->as.integer);
        break;
    case TOCSIN_VALUE_FLOAT:
        tocsin_string_append(out, real, tocsin_real_text(value->as.real, real));
        break;
    case TOCSIN_VALUE_STRING:
        tocsin_string_append_text(out, tocsin_trace_string(reader->trace, value->as.text));
        break;
    case TOCSIN_VALUE_NONE:
    case TOCSIN_VALUE_TENSOR:
    case TOCSIN_VALUE_SEQUENCE:
    case TOCSIN_VALUE_OBJECT:
    case TOCSIN_VALUE_MODULE:
    case TOCSIN_VALUE_BIG:
        tocsin_string_append_text(out, tocsin_value_kind_name((tocsin_value_kind)value->kind));
        break;
    }
}

/* Keep a text as long as the window, and free the string. NULL: out of memory. */
static const char *keep_text(tocsin_boundary_reader *reader, tocsin_string *text)
{
    const char *kept =
        text->status == TOCSIN_OK
            ? tocsin_arena_copy(&reader->texts, tocsin_string_text(text), text->bytes)
            : NULL;
    tocsin_string_free(text);
    return kept;
}

/* The values of a state as one text: "id 3 id 7". NULL: none, or out of memory (*ok false). */
static const char *put_values(tocsin_boundary_reader *reader, const tocsin_event *event,
                              uint32_t value_count, bool *ok)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < value_count; ++v)
        count += !tocsin_shard_is_place(reader->trace, event, v);
    if (count == 0)
        return NULL;
    tocsin_string text = {0};
    for (uint32_t v = 0; v < value_count; ++v) {
        if (tocsin_shard_is_place(reader->trace, event, v))
            continue;
        if (text.bytes > 0)
            tocsin_string_append_char(&text, ' ');
        if (count > 1) {
            tocsin_string_append_text(&text,
                                      tocsin_trace_string(reader->trace, event->values[v].name));
            tocsin_string_append_char(&text, ' ');
        }
        append_value(reader, &event->values[v], &text);
    }
    const char *kept = keep_text(reader, &text);
    *ok = *ok && kept;
    return kept;
}

static uint64_t value_of(const tocsin_align_options *options, const tocsin_boundary *boundary)
{
    if (boundary->present && !boundary->digested && !boundary->text)
        return 0;
    const char *text = tocsin_baseline_text(options, boundary);
    uint64_t words[7] = {[3] = boundary->shape,
                         [4] = tocsin_hash64(text, strlen(text), 0),
                         [5] = (uint64_t)boundary->dtype | (uint64_t)boundary->present << 8,
                         [6] = (uint64_t)boundary->whole << 32 | boundary->offset};
    tocsin_baseline_words(options, boundary, words);
    uint64_t hash = tocsin_hash64(words, sizeof words, 0);
    return hash ? hash : 1;
}

uint32_t tocsin_boundary_symbol(const tocsin_boundary *boundary, tocsin_intern *names)
{
    uint32_t what[] = {boundary->name, boundary->attribute, boundary->operation, boundary->phase,
                       (uint32_t)boundary->point & 3};
    return tocsin_intern_put(names, what, sizeof what);
}

bool tocsin_boundary_make_item(const tocsin_boundary *boundary, const tocsin_align_options *options,
                               tocsin_intern *names, uint32_t symbol, tocsin_align_item *item)
{
    uint32_t form[] = {boundary->shape, boundary->dtype, boundary->ndim, boundary->attribute};
    *item = (tocsin_align_item){.value = value_of(options, boundary), .symbol = symbol};
    item->form = boundary->dtype == TOCSIN_DTYPE_NONE /* no tensor: nothing else can be it */
                     ? symbol
                     : tocsin_intern_put(names, form, sizeof form);
    return item->symbol && item->form;
}

static bool add_boundary(tocsin_boundary_reader *reader, boundary_thread *thread,
                         tocsin_boundary boundary)
{
    tocsin_align_item item;
    uint32_t symbol = tocsin_boundary_symbol(&boundary, reader->names);
    return boundary.name && boundary.attribute && boundary.operation &&
           tocsin_boundary_make_item(&boundary, reader->options, reader->names, symbol, &item) &&
           TOCSIN_VEC_PUSH(&thread->stream.items, item) &&
           TOCSIN_VEC_PUSH(&thread->stream.boundaries, boundary);
}

/* The calls that are open, as a chain of this window: those around are shared. */
static const tocsin_call_chain *chain_of(tocsin_boundary_reader *reader,
                                         const boundary_thread *thread)
{
    size_t known = thread->calls.count;
    while (known > 0 && !thread->calls.items[known - 1].chain)
        --known;
    const tocsin_call_chain *chain = known > 0 ? thread->calls.items[known - 1].chain : NULL;
    for (size_t c = known; c < thread->calls.count; ++c) {
        open_call *call = &thread->calls.items[c];
        tocsin_call_chain *link = TOCSIN_ARENA_NEW(&reader->texts, tocsin_call_chain);
        reader->starved = reader->starved || !link;
        if (!link)
            return NULL;
        *link =
            (tocsin_call_chain){.operation = call->operation, .site = call->site, .around = chain};
        if (call->role == TOCSIN_ROLE_FORWARD && call->module) {
            link->module = put_name(reader, tocsin_trace_string(reader->trace, call->module));
            reader->starved = reader->starved || !link->module;
        }
        call->chain = chain = link;
    }
    return chain;
}

/* The micro-batch is counted by backward passes; what happens to all of them has none. */
static uint32_t micro_batch_in(const tocsin_boundary_reader *reader, uint8_t phase)
{
    return phase == NO_PHASE || phase == OPTIMIZER || phase == CHECKPOINT ? 0
                                                                          : reader->backwards + 1;
}

/* Where the boundary stands in the course of a step: by micro-batch and phase; around a backward
 * pass and in an optimizer's step what is read of all variables before, and after. */
static void set_course(const tocsin_boundary_reader *reader, tocsin_boundary *boundary,
                       uint8_t phase)
{
    bool back = phase == BACKWARD || phase == RECOMPUTE;
    bool before = (boundary->point & TOCSIN_MOMENT_MASK) == TOCSIN_MOMENT_ENTER;
    bool variable = boundary->parameter || boundary->buffer;
    uint64_t batch = reader->backwards + (phase < OPTIMIZER ? 1U : 0U), order = 1;
    if (back && variable)
        order = before ? 0 : 2;
    else if (phase == OPTIMIZER)
        order = before ? 0 : variable ? 1 : 2;
    boundary->course =
        phase == NO_PHASE ? 0 : batch << 8 | (uint64_t)(back ? BACKWARD : phase) << 2 | order;
    boundary->backward = back && !variable;
}

static uint8_t phase_now(const boundary_thread *thread)
{
    return thread->calls.count ? thread->calls.items[thread->calls.count - 1].phase : NO_PHASE;
}

static tocsin_boundary boundary_in(tocsin_boundary_reader *reader, const boundary_thread *thread,
                                   uint8_t moment)
{
    const open_call *call =
        thread->calls.count ? &thread->calls.items[thread->calls.count - 1] : NULL;
    uint8_t phase = phase_now(thread);
    tocsin_boundary boundary = {.point = moment,
                                .time_ns = reader->now_ns,
                                .chain = chain_of(reader, thread),
                                .micro_batch = micro_batch_in(reader, phase)};
    boundary.operation = call ? call->operation : put_text(reader, "-");
    boundary.phase = reader->phase_texts[phase];
    boundary.site = call ? call->site : 0;
    boundary.point |= (call ? call->call : 0) << 2;
    set_course(reader, &boundary, phase);
    return boundary;
}

/* A tile of the boundary before it. */
static bool add_tile(tocsin_boundary_reader *reader, boundary_thread *thread,
                     const tocsin_event *event)
{
    if (thread->stream.boundaries.count == 0)
        return true;
    tocsin_boundary *boundary =
        &thread->stream.boundaries.items[thread->stream.boundaries.count - 1];
    uint32_t name = cached(reader, &reader->variables, event->state.variable, make_variable);
    uint32_t attribute = cached(reader, &reader->strings, event->state.attribute, make_string);
    if (boundary->name != name || boundary->attribute != attribute)
        return true;
    return tocsin_tile_add(reader->trace, reader->names, event, boundary, &reader->texts);
}

/* A gradient in the middle of a backward pass, which no other rank has changed. */
static bool is_on_its_way(const tocsin_boundary_reader *reader, const tocsin_state *state)
{
    return strcmp(tocsin_trace_string(reader->trace, state->attribute), "grad_output") == 0;
}

static bool add_state(tocsin_boundary_reader *reader, boundary_thread *thread,
                      const tocsin_event *event)
{
    const tocsin_state *state = &event->state;
    if (!tocsin_baseline_looks(reader->options, TOCSIN_ROLE_NONE,
                               tocsin_trace_variable_name(reader->trace, state->variable),
                               tocsin_trace_string(reader->trace, state->attribute)))
        return true;
    if (tocsin_tile_is(reader->trace, event))
        return add_tile(reader, thread, event);
    tocsin_boundary boundary = boundary_in(reader, thread, state->moment);
    bool ok = true;
    boundary.name = cached(reader, &reader->variables, state->variable, make_variable);
    boundary.attribute = cached(reader, &reader->strings, state->attribute, make_string);
    boundary.gradient = strcmp(tocsin_trace_string(reader->trace, state->attribute), "grad") == 0;
    tocsin_variable_kind kind = tocsin_trace_variable_kind(reader->trace, state->variable);
    boundary.parameter = kind == TOCSIN_VARIABLE_PARAMETER;
    boundary.buffer = kind == TOCSIN_VARIABLE_BUFFER;
    boundary.generator = kind == TOCSIN_VARIABLE_RNG;
    boundary.setting = kind == TOCSIN_VARIABLE_BOUNDARY && event->value_count > 0 &&
                       !(state->flags & TOCSIN_STATE_PIECE);
    set_course(reader, &boundary, phase_now(thread));
    boundary.cut = kind == TOCSIN_VARIABLE_BOUNDARY && (state->flags & TOCSIN_STATE_PIECE) &&
                   (boundary.gradient ||
                    strcmp(tocsin_trace_string(reader->trace, state->attribute), "data") == 0);
    boundary.present = state->flags & TOCSIN_STATE_PRESENT;
    if (boundary.present) {
        boundary.dtype = state->dtype;
        boundary.ndim = state->ndim;
        boundary.shape = cached(reader, &reader->shapes, state->shape, make_shape);
        boundary.digested = state->flags & TOCSIN_STATE_DIGESTED;
    }
    /* Gradients are not, while they are accumulated. */
    boundary.replica =
        reader->data_parallel && kind == TOCSIN_VARIABLE_PARAMETER && !boundary.gradient;
    if (state->flags & TOCSIN_STATE_PIECE)
        ok = tocsin_shard_read(reader->trace, event, reader->names, &boundary);
    if (boundary.digested) {
        boundary.digest = state->digest;
        boundary.statistics = state->statistics;
    }
    if (boundary.setting)
        boundary.rating = (uint8_t)tocsin_setting_rating(reader->trace, event);
    boundary.text = put_values(reader, event, boundary.setting ? 1 : event->value_count, &ok);
    ok = ok && add_boundary(reader, thread, boundary);
    if (state->moment == TOCSIN_MOMENT_ENTER || is_on_its_way(reader, state))
        meet_later(reader, thread, event->call);
    return ok;
}

/* Elements of losses and norms: numbers that a call returned. */
static bool add_returned(tocsin_boundary_reader *reader, boundary_thread *thread,
                         const tocsin_event *event)
{
    if (!tocsin_baseline_looks(reader->options,
                               tocsin_trace_function_role(reader->trace, event->function), "",
                               "return"))
        return true;
    for (uint32_t v = 0; v + 1 < event->value_count; ++v) {
        if (!(event->values[v].flags & TOCSIN_VALUE_HAS_ITEM))
            continue;
        tocsin_boundary boundary = boundary_in(reader, thread, TOCSIN_MOMENT_EXIT);
        tocsin_string text = {0};
        append_value(reader, &event->values[v + 1], &text);
        boundary.text = keep_text(reader, &text);
        bool ok = boundary.text != NULL;
        boundary.name = cached(reader, &reader->functions, event->function, make_function);
        boundary.attribute = put_text(reader, "return");
        boundary.present = true;
        if (!ok || !add_boundary(reader, thread, boundary))
            return false;
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void note_meta(tocsin_boundary_reader *reader, const char *key, const tocsin_value *value)
{
    if (strcmp(key, "rank") == 0 && value->kind == TOCSIN_VALUE_INT)
        reader->rank = value->as.integer;
    if (strcmp(key, "data_parallel") == 0)
        reader->data_parallel = value->kind == TOCSIN_VALUE_STRING && value->as.text != 0;
}

static bool take(tocsin_boundary_reader *reader, const tocsin_event *event)
{
    if (event->thread == 0 || event->thread > TOCSIN_ALIGN_THREADS_MAX)
        return true;
    while (reader->threads.count < event->thread) {
        if (!TOCSIN_VEC_PUSH(&reader->threads, (boundary_thread){0}))
            return false;
    }
    boundary_thread *thread = &reader->threads.items[event->thread - 1];
    switch ((tocsin_event_kind)event->kind) {
    case TOCSIN_EVENT_ENTER:
        return enter_call(reader, thread, event);
    case TOCSIN_EVENT_EXIT:
        leave_call(thread, event->call + 1); /* those in it */
        bool ok = add_returned(reader, thread, event);
        leave_call(thread, event->call);
        reader->backwards +=
            tocsin_trace_function_role(reader->trace, event->function) == TOCSIN_ROLE_BACKWARD &&
            !is_inside(thread, TOCSIN_ROLE_BACKWARD);
        return ok;
    case TOCSIN_EVENT_RAISE:
        leave_call(thread, event->call);
        return true;
    case TOCSIN_EVENT_STATE:
        return add_state(reader, thread, event);
    case TOCSIN_EVENT_META:
        if (event->value_count > 0)
            note_meta(reader, tocsin_trace_string(reader->trace, event->key), &event->values[0]);
        return true;
    }
    return true;
}

static bool ends_step(const tocsin_boundary_reader *reader, const tocsin_event *event)
{
    return event->kind == TOCSIN_EVENT_EXIT &&
           tocsin_trace_function_role(reader->trace, event->function) == TOCSIN_ROLE_STEP_END;
}

tocsin_status tocsin_boundary_reader_step(tocsin_boundary_reader *reader, bool *more,
                                          tocsin_error *error)
{
    for (size_t t = 0; t < reader->threads.count; ++t) {
        reader->threads.items[t].stream.items.count = 0;
        reader->threads.items[t].stream.boundaries.count = 0;
        for (size_t c = 0; c < reader->threads.items[t].calls.count; ++c)
            reader->threads.items[t].calls.items[c].chain = NULL;
    }
    reader->backwards = 0;
    tocsin_arena_reset(&reader->texts);
    reader->meetings.count = 0;
    reader->complete = false;
    *more = false;
    for (;;) {
        const tocsin_event *event;
        TOCSIN_TRY(tocsin_trace_next(reader->trace, &event, error));
        if (!event)
            return TOCSIN_OK;
        *more = true;
        ++reader->events;
        reader->now_ns = event->time_ns;
        if (!take(reader, event) || reader->starved)
            return tocsin_error_memory(error);
        if (event->thread <= reader->threads.count && event->thread > 0 &&
            reader->threads.items[event->thread - 1].stream.items.count > TOCSIN_ALIGN_WINDOW_MAX)
            return tocsin_error_set(error, TOCSIN_E_LIMIT, "a step has more than %u boundaries",
                                    TOCSIN_ALIGN_WINDOW_MAX);
        reader->complete = ends_step(reader, event);
        if (reader->complete)
            return TOCSIN_OK;
    }
}

tocsin_status tocsin_boundary_reader_new(tocsin_trace *trace, tocsin_intern *names,
                                         const tocsin_align_options *options,
                                         tocsin_boundary_reader **reader, tocsin_error *error)
{
    *reader = tocsin_zalloc(1, sizeof **reader);
    if (!*reader)
        return tocsin_error_memory(error);
    (*reader)->trace = trace;
    (*reader)->names = names;
    (*reader)->options = options;
    (*reader)->rank = -1;
    for (size_t k = 0; k < TOCSIN_COUNT_OF(phases); ++k) {
        (*reader)->phase_texts[k] = put_text(*reader, phases[k]);
        if ((*reader)->phase_texts[k] == 0) {
            tocsin_boundary_reader_free(*reader);
            *reader = NULL;
            return tocsin_error_memory(error);
        }
    }
    return TOCSIN_OK;
}

void tocsin_boundary_reader_free(tocsin_boundary_reader *reader)
{
    if (!reader)
        return;
    for (size_t t = 0; t < reader->threads.count; ++t) {
        TOCSIN_VEC_FREE(&reader->threads.items[t].calls);
        TOCSIN_VEC_FREE(&reader->threads.items[t].stream.items);
        TOCSIN_VEC_FREE(&reader->threads.items[t].stream.boundaries);
    }
    TOCSIN_VEC_FREE(&reader->threads);
    TOCSIN_VEC_FREE(&reader->meetings);
    tocsin_map_free(&reader->groups);
    tocsin_arena_free(&reader->texts);
    tocsin_map_free(&reader->functions);
    tocsin_map_free(&reader->variables);
    tocsin_map_free(&reader->strings);
    tocsin_map_free(&reader->shapes);
    tocsin_map_free(&reader->sites);
    tocsin_free(reader);
}

size_t tocsin_boundary_reader_stream_count(const tocsin_boundary_reader *reader)
{
    return reader->threads.count;
}

const tocsin_boundary_stream *tocsin_boundary_reader_stream(const tocsin_boundary_reader *reader,
                                                            size_t thread)
{
    assert(thread < reader->threads.count);
    return &reader->threads.items[thread].stream;
}

const tocsin_meetings *tocsin_boundary_reader_meetings(const tocsin_boundary_reader *reader)
{
    return &reader->meetings;
}

bool tocsin_boundary_reader_complete(const tocsin_boundary_reader *reader)
{
    return reader->complete;
}

uint64_t tocsin_boundary_reader_events(const tocsin_boundary_reader *reader)
{
    return reader->events;
}

int64_t tocsin_boundary_reader_rank(const tocsin_boundary_reader *reader)
{
    return reader->rank;
}
