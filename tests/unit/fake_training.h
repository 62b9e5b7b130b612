/* fake_training.h - a small training process made of events, for tests of relations and checking.
 *
 * The same events go either straight into an observer (its dictionary is here) or through a trace
 * writer into a run. A step is: zero_grad, forward, loss, backward, optimizer.step, meta; `step`
 * says what is wrong with it.
 */
#ifndef TOCSIN_FAKE_TRAINING_H
#define TOCSIN_FAKE_TRAINING_H

#include "trace_scratch.h"
#include <invariant/instance.h>
#include <math.h>

#define FAKE_PARAMETERS_MAX 8

typedef struct fake_parameter {
    const char *name;
    uint32_t flags;   /* TOCSIN_STATE_* without PRESENT and DIGESTED */
    uint8_t kind;     /* 0: parameter */
    uint8_t dtype;    /* 0: float32 */
    bool no_gradient; /* None at optimizer.step */
    bool zero_gradient;
    bool kept_gradient; /* at optimizer.step it is what the backward pass found */
    bool stuck;         /* optimizer.step leaves it as it is */
    bool moves;         /* it changes even without a gradient */
    uint64_t bad;       /* NaN and Inf in data after the step */
    uint64_t bad_gradient;
    double absmax;   /* of the data; 0: 1 */
    double gradient; /* absmax; 0: 0.1 */
    uint64_t data;   /* the digest's sum, changed by steps */
    tocsin_id id;
} fake_parameter;

#define FAKE_TRAINABLE                                                                             \
    (TOCSIN_STATE_REQUIRES_GRAD | TOCSIN_STATE_IS_LEAF | TOCSIN_STATE_IN_OPTIMIZER |               \
     TOCSIN_STATE_IN_THIS_OPTIMIZER | TOCSIN_STATE_IN_MODEL | TOCSIN_STATE_MODULE_TRAINING)

typedef struct fake_process {
    tocsin_trace_writer *writer; /* NULL: into the observer */
    tocsin_observer *observer;
    size_t index;
    tocsin_status status; /* of the observer, */
    tocsin_error error;   /* and what it said */
    tocsin_intern strings, functions, sites;
    tocsin_role roles[64];
    struct {
        const char *name;
        tocsin_variable_kind kind;
    } variables[64];
    uint32_t variable_count;
    struct {
        uint32_t ndim;
        int64_t sizes[4];
    } shapes[16];
    uint32_t shape_count;
    uint64_t calls;
    uint64_t open[64];
    uint32_t depth;
    uint32_t thread;
    int64_t step;
    fake_parameter parameters[FAKE_PARAMETERS_MAX];
    size_t parameter_count;
    bool undigested; /* steps of a recording with sampling: data are reported as present */
} fake_process;

typedef struct fake_step {
    bool no_zero_grad;
    bool no_backward;
    bool stale_gradient;      /* the first backward starts with non-zero gradients */
    double lr;                /* 0: 0.1; negative: 0 */
    unsigned micro_steps;     /* 0: 1 */
    bool same_optimizer_only; /* no end of the training step: a second optimizer follows */
    const char *stage;
} fake_step;

/* ---- dictionary ---------------------------------------------------------------------------- */

static inline const char *fake_text(const tocsin_intern *table, tocsin_id id)
{
    const char *text = tocsin_intern_text(table, id, NULL);
    return id == 0 ? "" : text == NULL ? "?" : text;
}

static inline const char *fake_string(const void *fake, tocsin_id id)
{
    return fake_text(&((const fake_process *)fake)->strings, id);
}

static inline const char *fake_function_name(const void *fake, tocsin_id id)
{
    return fake_text(&((const fake_process *)fake)->functions, id);
}

static inline tocsin_role fake_function_role(const void *fake, tocsin_id id)
{
    return id < 64 ? ((const fake_process *)fake)->roles[id] : TOCSIN_ROLE_NONE;
}

static inline const char *fake_variable_name(const void *fake, tocsin_id id)
{
    return ((const fake_process *)fake)->variables[id].name;
}

static inline tocsin_variable_kind fake_variable_kind(const void *fake, tocsin_id id)
{
    return ((const fake_process *)fake)->variables[id].kind;
}

static inline const char *fake_variable_type(const void *fake, tocsin_id id)
{
    (void)fake;
    (void)id;
    return "torch.nn.Parameter";
}

static inline uint32_t fake_shape(const void *fake, tocsin_id id, const int64_t **sizes)
{
    const fake_process *process = fake;
    *sizes = id == 0 ? NULL : process->shapes[id].sizes;
    return id == 0 ? 0 : process->shapes[id].ndim;
}

static inline const char *fake_site(const void *fake, tocsin_id id, uint32_t *line,
                                    const char **function)
{
    *line = id;
    *function = "train";
    return fake_text(&((const fake_process *)fake)->sites, id);
}

static inline tocsin_dictionary fake_dictionary(const fake_process *process)
{
    return (tocsin_dictionary){process,
                               1000 + (int64_t)process->index,
                               fake_string,
                               fake_function_name,
                               fake_function_role,
                               fake_variable_name,
                               fake_variable_kind,
                               fake_variable_type,
                               fake_shape,
                               fake_site};
}

static inline tocsin_id define_string(fake_process *process, const char *text)
{
    return process->writer != NULL ? tocsin_trace_define_string(process->writer, text, strlen(text))
                                   : tocsin_intern_put(&process->strings, text, strlen(text));
}

static inline tocsin_id define_function(fake_process *process, const char *name, tocsin_role role)
{
    if (process->writer != NULL)
        return tocsin_trace_define_function(process->writer, name, role);
    tocsin_id id = tocsin_intern_put(&process->functions, name, strlen(name));
    assert_true(id < 64);
    process->roles[id] = role;
    return id;
}

static inline tocsin_id define_variable(fake_process *process, const char *name,
                                        tocsin_variable_kind kind)
{
    if (process->writer != NULL)
        return tocsin_trace_define_variable(process->writer, name, kind, "torch.nn.Parameter");
    for (uint32_t id = 1; id <= process->variable_count; ++id)
        if (strcmp(process->variables[id].name, name) == 0)
            return id;
    uint32_t id = ++process->variable_count;
    assert_true(id < 64);
    process->variables[id].name = name;
    process->variables[id].kind = kind;
    return id;
}

static inline tocsin_id define_shape(fake_process *process, uint32_t ndim, const int64_t *sizes)
{
    if (process->writer != NULL)
        return tocsin_trace_define_shape(process->writer, ndim, sizes);
    for (uint32_t id = 1; id <= process->shape_count; ++id)
        if (process->shapes[id].ndim == ndim &&
            memcmp(process->shapes[id].sizes, sizes, ndim * sizeof *sizes) == 0)
            return id;
    uint32_t id = ++process->shape_count;
    assert_true(id < 16 && ndim <= 4);
    process->shapes[id].ndim = ndim;
    memcpy(process->shapes[id].sizes, sizes, ndim * sizeof *sizes);
    return id;
}

static inline tocsin_id define_site(fake_process *process, const char *file)
{
    return process->writer != NULL ? tocsin_trace_define_site(process->writer, file, 7, "train")
                                   : tocsin_intern_put(&process->sites, file, strlen(file));
}

/* ---- events -------------------------------------------------------------------------------- */

static inline void emit(fake_process *process, tocsin_event *event)
{
    if (event->kind == TOCSIN_EVENT_ENTER)
        event->call = ++process->calls;
    if (process->writer != NULL) {
        uint64_t call = tocsin_trace_emit(process->writer, event);
        if (event->kind == TOCSIN_EVENT_ENTER)
            event->call = call;
        return;
    }
    tocsin_dictionary dictionary = fake_dictionary(process);
    event->thread = process->thread;
    if (process->status == TOCSIN_OK)
        process->status = tocsin_observer_feed(process->observer, process->index, &dictionary,
                                               event, &process->error);
}

static inline void enter_with(fake_process *process, const char *name, tocsin_role role,
                              const tocsin_value *values, uint32_t count)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = define_function(process, name, role),
                          .site = process->depth == 0 ? define_site(process, "train.py") : 0,
                          .value_count = count,
                          .values = values};
    emit(process, &event);
    process->open[process->depth++] = event.call;
}

static inline void enter(fake_process *process, const char *name, tocsin_role role)
{
    enter_with(process, name, role, NULL, 0);
}

static inline void leave_with(fake_process *process, const char *name, tocsin_role role,
                              uint8_t kind, const tocsin_value *values, uint32_t count)
{
    tocsin_event event = {.kind = kind,
                          .function = define_function(process, name, role),
                          .call = process->open[--process->depth],
                          .value_count = count,
                          .values = values};
    emit(process, &event);
}

static inline void leave(fake_process *process, const char *name, tocsin_role role)
{
    leave_with(process, name, role, TOCSIN_EVENT_EXIT, NULL, 0);
}

static inline void call(fake_process *process, const char *name, tocsin_role role)
{
    enter(process, name, role);
    leave(process, name, role);
}

static inline void meta_value(fake_process *process, const char *key, tocsin_value value)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_META,
                          .key = define_string(process, key),
                          .value_count = 1,
                          .values = &value};
    emit(process, &event);
}

static inline void meta_int(fake_process *process, const char *key, int64_t number)
{
    meta_value(process, key, (tocsin_value){.kind = TOCSIN_VALUE_INT, .as.integer = number});
}

static inline void meta_text(fake_process *process, const char *key, const char *text)
{
    meta_value(
        process, key,
        (tocsin_value){.kind = TOCSIN_VALUE_STRING, .as.text = define_string(process, text)});
}

static inline tocsin_value tensor_value(fake_process *process, const char *name, uint8_t dtype,
                                        int64_t rows, int64_t columns)
{
    int64_t sizes[2] = {rows, columns};
    return (tocsin_value){.kind = TOCSIN_VALUE_TENSOR,
                          .dtype = dtype,
                          .ndim = 2,
                          .name = define_string(process, name),
                          .as.shape = define_shape(process, 2, sizes)};
}

static inline void emit_state(fake_process *process, fake_parameter *parameter,
                              const char *attribute, uint8_t moment, bool present, bool digested,
                              uint64_t digest, double absmax, uint64_t bad, double lr)
{
    int64_t sizes[2] = {4, 4};
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    tocsin_state *state = &event.state;
    state->variable = parameter->id;
    state->attribute = define_string(process, attribute);
    state->moment = moment;
    state->flags = parameter->flags;
    state->lr = lr;
    if (present) {
        state->flags |= TOCSIN_STATE_PRESENT;
        state->dtype = parameter->dtype != 0 ? parameter->dtype : (uint8_t)TOCSIN_DTYPE_FLOAT32;
        state->ndim = 2;
        state->shape = define_shape(process, 2, sizes);
    }
    if (present && digested) {
        state->flags |= TOCSIN_STATE_DIGESTED;
        state->digest = (tocsin_digest){digest, digest, digest};
        state->statistics.absmax = absmax;
        state->statistics.nan_count = bad;
    }
    emit(process, &event);
}

static inline void gradients(fake_process *process, uint8_t moment, bool present, double absmax)
{
    for (size_t i = 0; i < process->parameter_count; ++i)
        if (process->parameters[i].kind != TOCSIN_VARIABLE_BUFFER)
            emit_state(process, &process->parameters[i], "grad", moment, present, true,
                       absmax == 0 ? 0 : 5, absmax, 0, (double)NAN);
}

static inline void optimizer_step(fake_process *process, double lr)
{
    tocsin_value values[2] = {{.kind = TOCSIN_VALUE_FLOAT, .as.real = lr},
                              {.kind = TOCSIN_VALUE_STRING}};
    values[0].name = define_string(process, "self.lr");
    values[1].name = define_string(process, "self.type");
    values[1].as.text = define_string(process, "SGD");
    enter_with(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP, values, 2);
    for (size_t i = 0; i < process->parameter_count; ++i) {
        fake_parameter *p = &process->parameters[i];
        double group_lr = p->flags & TOCSIN_STATE_IN_THIS_OPTIMIZER ? lr : (double)NAN;
        double absmax = p->zero_gradient ? 0 : p->gradient != 0 ? p->gradient : 0.1;
        if (p->kind != TOCSIN_VARIABLE_BUFFER)
            emit_state(process, p, "grad", TOCSIN_MOMENT_ENTER, !p->no_gradient, true,
                       p->kept_gradient ? 5 : (uint64_t)process->step * 1000 + i, absmax,
                       p->bad_gradient, group_lr);
        emit_state(process, p, "data", TOCSIN_MOMENT_ENTER, true, !process->undigested, p->data,
                   p->absmax != 0 ? p->absmax : 1, 0, group_lr);
    }
    for (size_t i = 0; i < process->parameter_count; ++i) {
        fake_parameter *p = &process->parameters[i];
        bool driven = !p->no_gradient && !p->zero_gradient && lr > 0 &&
                      (p->flags & TOCSIN_STATE_IN_THIS_OPTIMIZER) != 0 &&
                      (p->flags & TOCSIN_STATE_REQUIRES_GRAD) != 0;
        if ((driven && !p->stuck) || p->moves)
            p->data = tocsin_mix64(p->data + 1);
        emit_state(process, p, "data", TOCSIN_MOMENT_EXIT, true, !process->undigested, p->data,
                   p->absmax != 0 ? p->absmax : 1, p->bad, lr);
    }
    leave(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP);
}

/* One training step. */
static inline void train(fake_process *process, fake_step step)
{
    double lr = step.lr == 0 ? 0.1 : step.lr < 0 ? 0 : step.lr;
    unsigned micro_steps = step.micro_steps == 0 ? 1 : step.micro_steps;
    meta_text(process, "stage", step.stage != NULL ? step.stage : "training");
    if (!step.no_zero_grad) {
        enter(process, "torch.optim.Optimizer.zero_grad", TOCSIN_ROLE_ZERO_GRAD);
        gradients(process, TOCSIN_MOMENT_EXIT, false, 0);
        leave(process, "torch.optim.Optimizer.zero_grad", TOCSIN_ROLE_ZERO_GRAD);
    }
    for (unsigned micro = 0; micro < micro_steps && !step.no_backward; ++micro) {
        meta_int(process, "micro_step", micro);
        call(process, "torch.nn.Module.__call__", TOCSIN_ROLE_FORWARD);
        call(process, "torch.nn.functional.cross_entropy", TOCSIN_ROLE_LOSS);
        enter(process, "torch.Tensor.backward", TOCSIN_ROLE_BACKWARD);
        bool present = micro > 0 || step.stale_gradient || (step.no_zero_grad && process->step > 0);
        gradients(process, TOCSIN_MOMENT_ENTER, present, 0.1);
        leave(process, "torch.Tensor.backward", TOCSIN_ROLE_BACKWARD);
    }
    optimizer_step(process, lr);
    if (!step.same_optimizer_only) {
        meta_int(process, "step", ++process->step);
        meta_int(process, "micro_step", 0);
    }
}

static inline void add_parameter(fake_process *process, fake_parameter parameter)
{
    if (parameter.kind == 0)
        parameter.kind = TOCSIN_VARIABLE_PARAMETER;
    parameter.id = define_variable(process, parameter.name, (tocsin_variable_kind)parameter.kind);
    parameter.data = 100 + process->parameter_count;
    process->parameters[process->parameter_count++] = parameter;
}

/* Two layers that train. */
static inline void fake_start(fake_process *process)
{
    process->thread = 1;
    meta_int(process, "step", 0);
    meta_int(process, "micro_step", 0);
    add_parameter(process, (fake_parameter){.name = "fc1.weight", .flags = FAKE_TRAINABLE});
    add_parameter(process, (fake_parameter){.name = "fc2.weight", .flags = FAKE_TRAINABLE});
}

static inline void fake_free(fake_process *process)
{
    tocsin_intern_free(&process->strings);
    tocsin_intern_free(&process->functions);
    tocsin_intern_free(&process->sites);
}

#endif
