/* tests/healthy_runs.h - recordings of a small healthy training loop, for tests of inference. */
#ifndef TOCSIN_TESTS_HEALTHY_RUNS_H
#define TOCSIN_TESTS_HEALTHY_RUNS_H

#include <base/base.h>
#include <stdio.h>
#include <sys/stat.h>
#include <tocsin/run.h>
#include <tocsin/trace.h>

struct script {
    tocsin_trace_writer *writer;
    tocsin_id zero_grad, backward, step, site, lr, type, adam, data, grad, key_micro, key_step;
    tocsin_id weight, shape;
    uint64_t random;
};

static inline void emit_meta(struct script *script, tocsin_id key, int64_t value)
{
    tocsin_value number = {.kind = TOCSIN_VALUE_INT, .as.integer = value};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_META, .key = key, .value_count = 1, .values = &number};
    tocsin_trace_emit(script->writer, &event);
}

static inline uint64_t enter(struct script *script, tocsin_id function)
{
    tocsin_value values[] = {
        {.kind = TOCSIN_VALUE_STRING, .name = script->type, .as.text = script->adam},
        {.kind = TOCSIN_VALUE_FLOAT, .name = script->lr, .as.real = 0.1}};
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = function,
                          .site = script->site,
                          .value_count = function == script->step ? 2 : 0,
                          .values = values};
    return tocsin_trace_emit(script->writer, &event);
}

static inline void leave(struct script *script, tocsin_id function, uint64_t call)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_EXIT, .function = function, .call = call};
    tocsin_trace_emit(script->writer, &event);
}

static inline void emit_state(struct script *script, tocsin_id attribute, uint8_t moment)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    event.state = (tocsin_state){.variable = script->weight,
                                 .attribute = attribute,
                                 .moment = moment,
                                 .dtype = TOCSIN_DTYPE_FLOAT32,
                                 .ndim = 1,
                                 .shape = script->shape,
                                 .lr = 0.1,
                                 .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED |
                                          TOCSIN_STATE_REQUIRES_GRAD | TOCSIN_STATE_IS_LEAF |
                                          TOCSIN_STATE_IN_OPTIMIZER |
                                          TOCSIN_STATE_IN_THIS_OPTIMIZER | TOCSIN_STATE_IN_MODEL,
                                 .digest = {.sum = ++script->random, .exclusive = script->random},
                                 .statistics = {.absmax = 1, .sum_squares = 1}};
    tocsin_trace_emit(script->writer, &event);
}

static inline bool open_script(struct script *script, const char *directory)
{
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options, .directory = directory};
    if (tocsin_trace_writer_open(&options, &script->writer, NULL) != TOCSIN_OK)
        return false;
    tocsin_trace_writer *writer = script->writer;
#define STRING(text) tocsin_trace_define_string(writer, text, strlen(text))
    script->zero_grad = tocsin_trace_define_function(writer, "torch.optim.adam.Adam.zero_grad",
                                                     TOCSIN_ROLE_ZERO_GRAD);
    script->backward =
        tocsin_trace_define_function(writer, "torch.Tensor.backward", TOCSIN_ROLE_BACKWARD);
    script->step = tocsin_trace_define_function(writer, "torch.optim.adam.Adam.step",
                                                TOCSIN_ROLE_OPTIMIZER_STEP);
    script->site = tocsin_trace_define_site(writer, "train.py", 7, "main");
    script->lr = STRING("self.lr");
    script->type = STRING("self.type");
    script->adam = STRING("Adam");
    script->data = STRING("data");
    script->grad = STRING("grad");
    script->key_micro = STRING("micro_step");
    script->key_step = STRING("step");
    script->weight = tocsin_trace_define_variable(writer, "fc.weight", TOCSIN_VARIABLE_PARAMETER,
                                                  "torch.nn.parameter.Parameter");
    int64_t size = 4;
    script->shape = tocsin_trace_define_shape(writer, 1, &size);
#undef STRING
    return true;
}

/* A run of `steps` steps of a healthy loop. False: it could not be written. */
static inline bool write_run(const char *directory, int steps, uint64_t seed)
{
    struct script script = {.random = seed};
    tocsin_run_description description = {.cwd = "/", .host = "here", .mode = "record"};
    if (mkdir(directory, 0755) != 0 ||
        tocsin_run_describe(directory, &description, NULL) != TOCSIN_OK ||
        !open_script(&script, directory))
        return false;
    for (int64_t i = 0; i < steps; ++i) {
        emit_meta(&script, script.key_step, i);
        emit_meta(&script, script.key_micro, 0);
        leave(&script, script.zero_grad, enter(&script, script.zero_grad));
        leave(&script, script.backward, enter(&script, script.backward));
        emit_meta(&script, script.key_micro, 1);
        uint64_t call = enter(&script, script.step);
        emit_state(&script, script.grad, TOCSIN_MOMENT_ENTER);
        emit_state(&script, script.data, TOCSIN_MOMENT_ENTER);
        emit_state(&script, script.data, TOCSIN_MOMENT_EXIT);
        leave(&script, script.step, call);
    }
    return tocsin_trace_writer_close(script.writer, NULL) == TOCSIN_OK;
}

#endif
