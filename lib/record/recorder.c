/* recorder.c - the recorder of one process: its file, what it records, steps, meta variables, cost.
 *
 * Data structure: a table of meta variables with their last values; the known ones stand first.
 * Invariant: a value that was set is in the file, unless the process has no file; then it will be
 * written before the first event of the file. Dictionary ids belong to one generation: a forked
 * child starts a new one.
 * Cost: setting an unchanged meta variable is one comparison; nothing here is on the path of an
 * ordinary call except tocsin_recorder_writer().
 */
#include <assert.h>

#include "record/record.h"

typedef struct meta_variable {
    char *name;
    tocsin_id key; /* of this generation; 0: not defined yet */
    bool present;  /* has been set */
    uint8_t kind;  /* BOOL, INT, FLOAT or STRING */
    union {
        int64_t integer;
        double real;
    } as;
    char text[TOCSIN_META_TEXT_BYTES_MAX];
    size_t text_bytes;
} meta_variable;

struct tocsin_recorder {
    char *directory;
    bool selective;
    uint32_t digest_every;
    tocsin_selection selection; /* its plan is used in both modes */

    tocsin_trace_writer *writer;
    uint32_t generation;
    bool failed; /* opening failed: not tried again */
    tocsin_error failure;

    TOCSIN_VEC(meta_variable) meta;
    tocsin_id attributes[TOCSIN_ATTRIBUTE_COUNT];
    tocsin_id step_end; /* function "tocsin.step_end" */

    int64_t step, micro_step;
    bool has_leader, user_steps, user_stage;
    uint32_t leader_slot;
    uint32_t leader_lag; /* steps of others since the leader's last */

    tocsin_drill drill;
    uint64_t digested_bytes;
    uint64_t cost_ns, steps_seen; /* since the file was opened */
    uint64_t first_step_ns, first_step_cost_ns, last_step_ns, last_step_cost_ns;
    uint64_t first_step_digested, last_step_digested;
};

static const char *const known_keys[TOCSIN_META_KNOWN_COUNT] = {
    "rank", "world_size", "local_rank", "step", "micro_step", "stage", "autocast", "grad_enabled"};

/* ---- 1. Life ------------------------------------------------------------------------------- */

static void recorder_free(tocsin_recorder *recorder)
{
    for (size_t i = 0; i < recorder->meta.count; i++)
        tocsin_free(recorder->meta.items[i].name);
    TOCSIN_VEC_FREE(&recorder->meta);
    tocsin_selection_free(&recorder->selection);
    tocsin_drill_end(&recorder->drill);
    tocsin_free(recorder->directory);
    tocsin_free(recorder);
}

tocsin_status tocsin_recorder_open(const tocsin_recorder_options *options,
                                   tocsin_recorder **recorder, tocsin_error *error)
{
    *recorder = NULL;
    if (options->struct_bytes != sizeof *options || options->directory == NULL)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "bad recorder options");
    tocsin_recorder *fresh = tocsin_zalloc(1, sizeof *fresh);
    if (fresh == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = TOCSIN_OK;
    fresh->generation = 1;
    fresh->digest_every = options->digest_every;
    fresh->directory = tocsin_copy_text(options->directory, strlen(options->directory));
    for (int key = 0; key < TOCSIN_META_KNOWN_COUNT && fresh->directory != NULL; key++)
        if (tocsin_recorder_meta_key(fresh, known_keys[key]) != key)
            status = TOCSIN_E_MEMORY;
    if (fresh->directory == NULL || status != TOCSIN_OK) {
        status = tocsin_error_memory(error);
    } else if (options->selection != NULL) {
        fresh->selective = true;
        status = tocsin_selection_load(&fresh->selection, options->selection, error);
    } else {
        tocsin_sampling_plan_all(&fresh->selection.plan);
    }
    if (status != TOCSIN_OK) {
        recorder_free(fresh);
        return status;
    }
    tocsin_recorder_meta_int(fresh, TOCSIN_META_STEP, 0);
    tocsin_recorder_meta_int(fresh, TOCSIN_META_MICRO_STEP, 0);
    tocsin_recorder_meta_text(fresh, TOCSIN_META_STAGE, "init", 4);
    *recorder = fresh;
    return TOCSIN_OK;
}

static void emit_meta(tocsin_recorder *recorder, meta_variable *variable)
{
    assert(recorder->writer != NULL && variable->present);
    if (variable->key == 0)
        variable->key =
            tocsin_trace_define_string(recorder->writer, variable->name, strlen(variable->name));
    tocsin_value value = {.kind = variable->kind, .name = variable->key};
    if (variable->kind == TOCSIN_VALUE_FLOAT)
        value.as.real = variable->as.real;
    else if (variable->kind == TOCSIN_VALUE_STRING)
        value.as.text =
            tocsin_trace_define_string(recorder->writer, variable->text, variable->text_bytes);
    else
        value.as.integer = variable->as.integer;
    tocsin_event event = {
        .kind = TOCSIN_EVENT_META, .key = variable->key, .value_count = 1, .values = &value};
    tocsin_trace_emit(recorder->writer, &event);
}

static void open_file(tocsin_recorder *recorder)
{
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = recorder->directory};
    if (tocsin_trace_writer_open(&options, &recorder->writer, &recorder->failure) != TOCSIN_OK) {
        recorder->failed = true;
        recorder->writer = NULL;
        return;
    }
    for (size_t i = 0; i < recorder->meta.count; i++)
        if (recorder->meta.items[i].present)
            emit_meta(recorder, &recorder->meta.items[i]);
}

tocsin_trace_writer *tocsin_recorder_writer(tocsin_recorder *recorder)
{
    if (__builtin_expect(recorder->writer == NULL, 0) && !recorder->failed)
        open_file(recorder);
    return recorder->writer;
}

tocsin_status tocsin_recorder_failure(const tocsin_recorder *recorder, tocsin_error *error)
{
    if (!recorder->failed)
        return TOCSIN_OK;
    if (error != NULL)
        *error = recorder->failure;
    return recorder->failure.code;
}

void tocsin_recorder_forked(tocsin_recorder *recorder)
{
    if (recorder->writer != NULL)
        tocsin_trace_writer_abandon(recorder->writer);
    recorder->writer = NULL;
    recorder->generation++;
    for (size_t i = 0; i < recorder->meta.count; i++)
        recorder->meta.items[i].key = 0;
    memset(recorder->attributes, 0, sizeof recorder->attributes);
    recorder->step_end = 0;
    recorder->cost_ns = recorder->digested_bytes = 0;
    recorder->steps_seen = 0;
}

uint32_t tocsin_recorder_generation(const tocsin_recorder *recorder)
{
    return recorder->generation;
}

tocsin_status tocsin_recorder_close(tocsin_recorder *recorder, tocsin_error *error)
{
    tocsin_status status = TOCSIN_OK;
    if (recorder == NULL)
        return status;
    if (recorder->writer != NULL) {
        tocsin_recorder_summary summary;
        tocsin_recorder_summarize(recorder, &summary);
        int key = tocsin_recorder_meta_key(recorder, "cost_ns_per_step");
        if (summary.measured_steps > 0)
            tocsin_recorder_meta_int(recorder, key,
                                     (int64_t)(summary.steps_cost_ns / summary.measured_steps));
        status = tocsin_trace_writer_close(recorder->writer, error);
    }
    recorder_free(recorder);
    return status;
}

/* ---- 2. What to record --------------------------------------------------------------------- */

bool tocsin_recorder_is_selective(const tocsin_recorder *recorder)
{
    return recorder->selective;
}

bool tocsin_recorder_wants_call(const tocsin_recorder *recorder, const char *name, tocsin_role role,
                                bool *arguments)
{
    const tocsin_selection *selection = &recorder->selection;
    bool wanted = !recorder->selective;
    *arguments = !recorder->selective;
    for (size_t i = 0; recorder->selective && i < selection->roles.count; i++)
        if (selection->roles.items[i].role == role) {
            wanted = true;
            *arguments = *arguments || selection->roles.items[i].arguments;
        }
    uint32_t function = tocsin_intern_find(&selection->functions, name, strlen(name));
    if (function != 0) {
        assert(function <= selection->calls.count);
        wanted = true;
        *arguments = *arguments || selection->calls.items[function - 1].arguments;
    }
    return wanted;
}

const char *tocsin_recorder_selected_role(const tocsin_recorder *recorder, size_t index,
                                          bool *arguments)
{
    if (index >= recorder->selection.roles.count)
        return NULL;
    *arguments = recorder->selection.roles.items[index].arguments;
    return tocsin_role_name(recorder->selection.roles.items[index].role);
}

const char *tocsin_recorder_selected_function(const tocsin_recorder *recorder, size_t index,
                                              bool *arguments)
{
    if (index >= recorder->selection.calls.count)
        return NULL;
    *arguments = recorder->selection.calls.items[index].arguments;
    return tocsin_intern_text(&recorder->selection.functions,
                              recorder->selection.calls.items[index].function, NULL);
}

bool tocsin_recorder_samples(const tocsin_recorder *recorder, tocsin_role role,
                             tocsin_moment moment)
{
    static const uint8_t nothing[TOCSIN_ATTRIBUTE_COUNT][TOCSIN_KIND_COUNT];
    assert((unsigned)role < TOCSIN_ROLE_COUNT);
    return memcmp(recorder->selection.plan.amount[role][moment - 1], nothing, sizeof nothing) != 0;
}

/* Are data and gradients digested in the present step? */
static bool digests_now(const tocsin_recorder *recorder)
{
    return recorder->digest_every < 2 || recorder->step < TOCSIN_DIGEST_ALWAYS ||
           recorder->step % recorder->digest_every == 0;
}

tocsin_sampling tocsin_recorder_sampling(const tocsin_recorder *recorder, tocsin_role role,
                                         tocsin_moment moment, tocsin_attribute attribute,
                                         tocsin_variable_kind kind)
{
    assert((unsigned)role < TOCSIN_ROLE_COUNT && kind >= 1 && (unsigned)kind <= TOCSIN_KIND_COUNT);
    uint8_t amount = recorder->selection.plan.amount[role][moment - 1][attribute][kind - 1];
    /* What later micro-steps find is the gradient of those before: its value says nothing. */
    if (recorder->selective && role == TOCSIN_ROLE_BACKWARD && moment == TOCSIN_MOMENT_ENTER &&
        recorder->micro_step > 0 && amount == TOCSIN_SAMPLING_DIGEST)
        amount = TOCSIN_SAMPLING_PRESENCE;
    bool of_model = attribute <= TOCSIN_ATTRIBUTE_GRAD && kind <= TOCSIN_VARIABLE_BUFFER;
    if (amount == TOCSIN_SAMPLING_DIGEST && of_model && !digests_now(recorder))
        amount = TOCSIN_SAMPLING_PRESENCE;
    return (tocsin_sampling)amount;
}

tocsin_status tocsin_recorder_drill(tocsin_recorder *recorder, int64_t step, const char *name,
                                    const char *attribute, tocsin_error *error)
{
    tocsin_drill_end(&recorder->drill);
    return tocsin_drill_begin(&recorder->drill, step, name, attribute, error);
}

bool tocsin_recorder_looks_closely(const tocsin_recorder *recorder)
{
    return recorder->drill.step == 0 || recorder->step + 1 == recorder->drill.step;
}

/* ---- 3. States ----------------------------------------------------------------------------- */

static tocsin_id attribute_id(tocsin_recorder *recorder, tocsin_attribute attribute)
{
    tocsin_id *id = &recorder->attributes[attribute];
    const char *name = tocsin_attribute_name(attribute);
    if (*id == 0)
        *id = tocsin_trace_define_string(recorder->writer, name, strlen(name));
    return *id;
}

static uint64_t view_bytes(const tocsin_tensor_view *view)
{
    uint64_t bytes = tocsin_dtype_bytes(view->dtype);
    for (uint32_t axis = 0; axis < view->ndim; axis++)
        bytes *= (uint64_t)view->shape[axis];
    return bytes;
}

bool tocsin_recorder_sample(tocsin_recorder *recorder, const tocsin_sample *sample,
                            tocsin_sample_digest *computed)
{
    if (tocsin_recorder_writer(recorder) == NULL)
        return false;
    tocsin_sample_digest result = {0};
    bool digested = sample->known != NULL;
    if (digested) {
        result = *sample->known;
    } else if (sample->view != NULL) {
        digested = tocsin_tensor_digest(sample->view, &result.digest, &result.statistics, NULL) ==
                   TOCSIN_OK;
        if (digested)
            recorder->digested_bytes += view_bytes(sample->view);
    }
    tocsin_id shape = sample->shape_id;
    if (shape == 0 && sample->ndim > 0 && sample->shape != NULL)
        shape = tocsin_trace_define_shape(recorder->writer, sample->ndim, sample->shape);
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE,
                          .values = sample->values,
                          .value_count = sample->value_count,
                          .state = {.variable = sample->variable,
                                    .attribute = attribute_id(recorder, sample->attribute),
                                    .moment = (uint8_t)sample->moment,
                                    .dtype = (uint8_t)sample->dtype,
                                    .ndim = (uint8_t)sample->ndim,
                                    .flags = sample->flags,
                                    .shape = shape,
                                    .lr = sample->lr,
                                    .digest = result.digest,
                                    .statistics = result.statistics}};
    if (digested)
        event.state.flags |= TOCSIN_STATE_DIGESTED;
    tocsin_trace_emit(recorder->writer, &event);
    if (__builtin_expect(recorder->drill.step != 0, 0) && digested && sample->view != NULL &&
        tocsin_recorder_looks_closely(recorder))
        tocsin_drill_tiles(&recorder->drill, recorder->writer, event.state.attribute, sample);
    if (digested && computed != NULL)
        *computed = result;
    return digested;
}

/* ---- 4. Meta variables --------------------------------------------------------------------- */

int tocsin_recorder_meta_key(tocsin_recorder *recorder, const char *name)
{
    for (size_t i = 0; i < recorder->meta.count; i++)
        if (strcmp(recorder->meta.items[i].name, name) == 0)
            return (int)i;
    if (recorder->meta.count >= TOCSIN_META_KEYS_MAX || strlen(name) > TOCSIN_META_TEXT_BYTES_MAX)
        return -1;
    meta_variable variable = {.name = tocsin_copy_text(name, strlen(name))};
    if (variable.name == NULL || !TOCSIN_VEC_PUSH(&recorder->meta, variable)) {
        tocsin_free(variable.name);
        return -1;
    }
    return (int)recorder->meta.count - 1;
}

static meta_variable *meta_at(tocsin_recorder *recorder, int key)
{
    bool known = key >= 0 && (size_t)key < recorder->meta.count;
    return known ? &recorder->meta.items[key] : NULL;
}

static void meta_changed(tocsin_recorder *recorder, meta_variable *variable, uint8_t kind)
{
    variable->present = true;
    variable->kind = kind;
    if (recorder->writer != NULL)
        emit_meta(recorder, variable);
}

static bool meta_is(const meta_variable *variable, uint8_t kind)
{
    return variable->present && variable->kind == kind;
}

static void meta_integer(tocsin_recorder *recorder, int key, uint8_t kind, int64_t value)
{
    meta_variable *variable = meta_at(recorder, key);
    if (variable == NULL || (meta_is(variable, kind) && variable->as.integer == value))
        return;
    variable->as.integer = value;
    meta_changed(recorder, variable, kind);
}

void tocsin_recorder_meta_int(tocsin_recorder *recorder, int key, int64_t value)
{
    meta_integer(recorder, key, TOCSIN_VALUE_INT, value);
}

void tocsin_recorder_meta_bool(tocsin_recorder *recorder, int key, bool value)
{
    meta_integer(recorder, key, TOCSIN_VALUE_BOOL, value);
}

void tocsin_recorder_meta_real(tocsin_recorder *recorder, int key, double value)
{
    meta_variable *variable = meta_at(recorder, key);
    if (variable == NULL || (meta_is(variable, TOCSIN_VALUE_FLOAT) &&
                             memcmp(&variable->as.real, &value, sizeof value) == 0))
        return;
    variable->as.real = value;
    meta_changed(recorder, variable, TOCSIN_VALUE_FLOAT);
}

void tocsin_recorder_meta_text(tocsin_recorder *recorder, int key, const char *text, size_t bytes)
{
    meta_variable *variable = meta_at(recorder, key);
    if (bytes > TOCSIN_META_TEXT_BYTES_MAX)
        bytes = TOCSIN_META_TEXT_BYTES_MAX;
    if (variable == NULL ||
        (meta_is(variable, TOCSIN_VALUE_STRING) && variable->text_bytes == bytes &&
         memcmp(variable->text, text, bytes) == 0))
        return;
    memcpy(variable->text, text, bytes);
    variable->text_bytes = bytes;
    meta_changed(recorder, variable, TOCSIN_VALUE_STRING);
}

/* ---- 5. Steps ------------------------------------------------------------------------------ */

/* The marker that closes a step: readers end their windows here. */
static void end_step(tocsin_recorder *recorder)
{
    tocsin_trace_writer *writer = tocsin_recorder_writer(recorder);
    if (writer != NULL) {
        if (recorder->step_end == 0)
            recorder->step_end =
                tocsin_trace_define_function(writer, "tocsin.step_end", TOCSIN_ROLE_STEP_END);
        tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = recorder->step_end};
        event.call = tocsin_trace_emit(writer, &event);
        event.kind = TOCSIN_EVENT_EXIT;
        tocsin_trace_emit(writer, &event);
    }
    recorder->step++;
    recorder->last_step_ns = tocsin_clock_ns();
    recorder->last_step_cost_ns = recorder->cost_ns;
    recorder->last_step_digested = recorder->digested_bytes;
    if (recorder->steps_seen++ == 0) {
        recorder->first_step_ns = recorder->last_step_ns;
        recorder->first_step_cost_ns = recorder->cost_ns;
        recorder->first_step_digested = recorder->digested_bytes;
    }
    tocsin_recorder_meta_int(recorder, TOCSIN_META_STEP, recorder->step);
}

static void reset_micro_steps(tocsin_recorder *recorder)
{
    recorder->micro_step = 0;
    tocsin_recorder_meta_int(recorder, TOCSIN_META_MICRO_STEP, 0);
}

void tocsin_recorder_optimizer_stepped(tocsin_recorder *recorder, uint32_t slot)
{
    if (!recorder->has_leader || recorder->leader_lag >= TOCSIN_LEADER_LAG) {
        recorder->has_leader = true;
        recorder->leader_slot = slot;
    }
    bool leads = slot == recorder->leader_slot;
    recorder->leader_lag = leads ? 0 : recorder->leader_lag + 1;
    if (leads && !recorder->user_steps)
        end_step(recorder);
    reset_micro_steps(recorder);
}

int64_t tocsin_recorder_leader(const tocsin_recorder *recorder)
{
    return recorder->has_leader ? (int64_t)recorder->leader_slot : -1;
}

void tocsin_recorder_depose(tocsin_recorder *recorder)
{
    recorder->has_leader = false;
}

bool tocsin_recorder_leads(const tocsin_recorder *recorder, uint32_t slot)
{
    return !recorder->has_leader || recorder->leader_slot == slot;
}

void tocsin_recorder_backward_passed(tocsin_recorder *recorder)
{
    recorder->micro_step++;
    tocsin_recorder_meta_int(recorder, TOCSIN_META_MICRO_STEP, recorder->micro_step);
}

void tocsin_recorder_user_step(tocsin_recorder *recorder)
{
    recorder->user_steps = true;
    end_step(recorder);
}

void tocsin_recorder_observed_stage(tocsin_recorder *recorder, const char *stage)
{
    if (!recorder->user_stage)
        tocsin_recorder_meta_text(recorder, TOCSIN_META_STAGE, stage, strlen(stage));
}

void tocsin_recorder_user_stage(tocsin_recorder *recorder, const char *stage)
{
    recorder->user_stage = stage != NULL;
    if (stage != NULL)
        tocsin_recorder_meta_text(recorder, TOCSIN_META_STAGE, stage, strlen(stage));
}

/* ---- 6. Cost ------------------------------------------------------------------------------- */

void tocsin_recorder_add_cost(tocsin_recorder *recorder, uint64_t cost_ns)
{
    recorder->cost_ns += cost_ns;
}

void tocsin_recorder_summarize(const tocsin_recorder *recorder, tocsin_recorder_summary *summary)
{
    *summary = (tocsin_recorder_summary){.steps = (int64_t)recorder->steps_seen,
                                         .cost_ns = recorder->cost_ns,
                                         .digested_bytes = recorder->digested_bytes,
                                         .has_file = recorder->writer != NULL};
    if (recorder->steps_seen > 1) {
        summary->measured_steps = recorder->steps_seen - 1;
        summary->steps_cost_ns = recorder->last_step_cost_ns - recorder->first_step_cost_ns;
        summary->steps_digested_bytes =
            recorder->last_step_digested - recorder->first_step_digested;
        summary->steps_wall_ns = recorder->last_step_ns - recorder->first_step_ns;
    }
    if (recorder->writer != NULL)
        tocsin_trace_writer_statistics(recorder->writer, &summary->trace);
}
