/* trace_sample.h - seeded random events of all kinds, and what a reader must make of them. */
#ifndef TOCSIN_TRACE_SAMPLE_H
#define TOCSIN_TRACE_SAMPLE_H

#include "trace_scratch.h"
#include <base/base.h>
#include <math.h>

typedef struct trace_sample {
    uint64_t random; /* the generator's state: splitmix64 */
    uint64_t time_ns;
    uint64_t calls;
    uint64_t open[64];
    uint32_t depth;
    tocsin_id strings[8];
    tocsin_id functions[4];
    tocsin_id variables[6];
    tocsin_id shapes[3];
    tocsin_id sites[2];
    tocsin_value values[TOCSIN_EVENT_VALUES_MAX];
} trace_sample;

static inline uint64_t sample_draw(trace_sample *sample)
{
    return tocsin_mix64(sample->random += UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t sample_below(trace_sample *sample, uint64_t bound)
{
    return sample_draw(sample) % bound;
}

static inline double sample_real(trace_sample *sample)
{
    static const double special[] = {0.0, -0.0, 1.5, -1e308, 5e-324, INFINITY, -INFINITY, NAN};
    uint64_t choice = sample_below(sample, 16);
    return choice < TOCSIN_COUNT_OF(special) ? special[choice]
                                             : (double)(int64_t)sample_draw(sample) / 1024.0;
}

static inline trace_sample sample_begin(tocsin_trace_writer *writer, uint64_t seed)
{
    static const char *const texts[] = {"",     "input", "lr",          "data",
                                        "grad", "step",  "a\"\\\n\xff", "torch.float32"};
    static const int64_t sizes[] = {3, 0, INT64_C(1) << 33, 7};
    trace_sample created = {.random = seed, .time_ns = 1000};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(texts); ++i)
        created.strings[i] = tocsin_trace_define_string(writer, texts[i], strlen(texts[i]));
    for (size_t i = 0; i < TOCSIN_COUNT_OF(created.functions); ++i)
        created.functions[i] =
            tocsin_trace_define_function(writer, texts[i + 1], (tocsin_role)(i * 5));
    for (size_t i = 0; i < TOCSIN_COUNT_OF(created.variables); ++i)
        created.variables[i] = tocsin_trace_define_variable(
            writer, texts[(i + 3) % 8], (tocsin_variable_kind)(i + 1), "torch.nn.Parameter");
    for (size_t i = 0; i < TOCSIN_COUNT_OF(created.shapes); ++i)
        created.shapes[i] = tocsin_trace_define_shape(writer, (uint32_t)i + 1, sizes);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(created.sites); ++i)
        created.sites[i] = tocsin_trace_define_site(writer, "train.py", (uint32_t)i + 30, "main");
    return created;
}

#define SAMPLE_PICK(sample, ids) ((ids)[sample_below((sample), TOCSIN_COUNT_OF(ids))])

static inline void sample_value(trace_sample *sample, tocsin_value *value)
{
    memset(value, 0, sizeof *value);
    value->kind = (uint8_t)sample_below(sample, TOCSIN_VALUE_BIG + 1);
    value->name = SAMPLE_PICK(sample, sample->strings);
    value->flags = (uint8_t)(sample_below(sample, 2) ? sample_below(sample, 128) : 0);
    switch (value->kind) {
    case TOCSIN_VALUE_BOOL:
        value->as.integer = (int64_t)sample_below(sample, 2);
        break;
    case TOCSIN_VALUE_INT:
        value->as.integer = (int64_t)sample_draw(sample) >> sample_below(sample, 64);
        break;
    case TOCSIN_VALUE_FLOAT:
        value->as.real = sample_real(sample);
        break;
    case TOCSIN_VALUE_STRING:
        value->as.text = SAMPLE_PICK(sample, sample->strings);
        break;
    case TOCSIN_VALUE_TENSOR:
        value->dtype = (uint8_t)sample_below(sample, 22);
        value->ndim = (uint8_t)sample_below(sample, 4);
        value->as.shape = value->ndim ? sample->shapes[value->ndim - 1] : 0;
        value->count = (uint32_t)(sample_below(sample, 2) ? sample_draw(sample) : 0);
        value->type = sample_below(sample, 4) ? 0 : SAMPLE_PICK(sample, sample->strings);
        break;
    case TOCSIN_VALUE_SEQUENCE:
        value->count = (uint32_t)(sample_draw(sample) >> sample_below(sample, 64));
        break;
    case TOCSIN_VALUE_OBJECT:
        value->type = SAMPLE_PICK(sample, sample->strings);
        break;
    case TOCSIN_VALUE_MODULE:
        value->type = SAMPLE_PICK(sample, sample->strings);
        value->as.text = SAMPLE_PICK(sample, sample->strings);
        break;
    default:
        break;
    }
}

static inline void sample_state(trace_sample *sample, tocsin_state *state)
{
    state->variable = SAMPLE_PICK(sample, sample->variables);
    state->attribute = SAMPLE_PICK(sample, sample->strings);
    state->moment = (uint8_t)(1 + sample_below(sample, 2));
    state->flags = (uint32_t)sample_below(sample, 2048);
    state->lr = sample_below(sample, 2) ? NAN : 0.001;
    if (state->flags & TOCSIN_STATE_PRESENT) {
        state->dtype = (uint8_t)sample_below(sample, 22);
        state->ndim = 2;
        state->shape = sample->shapes[1];
    }
    if (state->flags & TOCSIN_STATE_DIGESTED) {
        state->digest = (tocsin_digest){sample_draw(sample), sample_draw(sample) >> 32,
                                        sample_draw(sample) >> 3};
        state->statistics = (tocsin_statistics){.nan_count = sample_below(sample, 3),
                                                .inf_count = sample_below(sample, 300),
                                                .zero_count = sample_draw(sample),
                                                .absmax = sample_real(sample),
                                                .sum_squares = sample_real(sample)};
    }
}

/* Draw the next event and complete it as a reader shows it (but for the thread). Its values lie in
 * the sample until the next draw. */
static inline tocsin_event sample_event(trace_sample *sample)
{
    tocsin_event event = {.kind = (uint8_t)(1 + sample_below(sample, 5)), .values = sample->values};
    bool closes = event.kind == TOCSIN_EVENT_EXIT || event.kind == TOCSIN_EVENT_RAISE;
    if (closes && sample->depth == 0)
        event.kind = TOCSIN_EVENT_META;
    if (event.kind == TOCSIN_EVENT_ENTER && sample->depth == TOCSIN_COUNT_OF(sample->open))
        event.kind = TOCSIN_EVENT_EXIT;
    sample->time_ns += sample_draw(sample) >> (40 + sample_below(sample, 24));
    event.time_ns = sample->time_ns;
    event.depth = sample->depth;
    event.call = sample->depth ? sample->open[sample->depth - 1] : 0;
    switch (event.kind) {
    case TOCSIN_EVENT_STATE:
        sample_state(sample, &event.state);
        event.value_count = (uint32_t)(sample_below(sample, 3) ? 0 : sample_below(sample, 4));
        break;
    case TOCSIN_EVENT_META:
        event.key = SAMPLE_PICK(sample, sample->strings);
        event.value_count = 1;
        break;
    case TOCSIN_EVENT_ENTER:
        event.call = sample->open[sample->depth++] = ++sample->calls;
        event.site = sample_below(sample, 3) ? 0 : SAMPLE_PICK(sample, sample->sites);
        event.value_count = (uint32_t)sample_below(sample, 6);
        break;
    default:
        --sample->depth;
        event.value_count = (uint32_t)sample_below(sample, 2);
    }
    if (event.kind != TOCSIN_EVENT_META && event.kind != TOCSIN_EVENT_STATE)
        event.function = SAMPLE_PICK(sample, sample->functions);
    if (sample_below(sample, 200) == 0 && event.kind != TOCSIN_EVENT_META)
        event.value_count = TOCSIN_EVENT_VALUES_MAX;
    for (uint32_t i = 0; i < event.value_count; ++i)
        sample_value(sample, &sample->values[i]);
    return event;
}

static inline void sample_compare(const tocsin_event *read, const tocsin_event *expected)
{
    assert_int_equal(read->kind, expected->kind);
    assert_int_equal(read->depth, expected->depth);
    assert_int_equal(read->time_ns, expected->time_ns);
    assert_int_equal(read->call, expected->call);
    assert_int_equal(read->function, expected->function);
    assert_int_equal(read->site, expected->site);
    assert_int_equal(read->key, expected->key);
    assert_int_equal(read->value_count, expected->value_count);
    assert_memory_equal(read->values, expected->values,
                        sizeof *read->values * expected->value_count);
    if (expected->kind == TOCSIN_EVENT_STATE) {
        tocsin_state a = read->state;
        tocsin_state b = expected->state;
        assert_true(a.lr == b.lr || (isnan(a.lr) && isnan(b.lr)));
        a.lr = b.lr = 0;
        assert_memory_equal(&a, &b, sizeof a);
    }
}

#endif
