/* event_text.c - one recorded event as a line of text.
 *
 * Calls are indented by their depth: '>' enters, '<' leaves, '!' raises, '=' is a state, '@' a meta
 * variable. Texts come from the traced program, so control characters are shown as '?'.
 */
#include "event_text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define DEPTH_MAX 40 /* deeper calls are not indented further */

static void print_visible(const char *text, FILE *stream)
{
    for (; *text; text++) {
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, stream);
    }
}

static void print_tensor(const tocsin_trace *trace, uint8_t dtype, tocsin_id shape, FILE *stream)
{
    const int64_t *sizes = NULL;
    uint32_t ndim = tocsin_trace_shape(trace, shape, &sizes);
    fprintf(stream, "%s[", tocsin_dtype_name((tocsin_dtype)dtype));
    for (uint32_t axis = 0; sizes && axis < ndim; axis++) {
        fprintf(stream, "%s%" PRId64, axis ? "," : "", sizes[axis]);
    }
    fputc(']', stream);
}

static void print_value(const tocsin_trace *trace, const tocsin_value *value, FILE *stream)
{
    switch ((tocsin_value_kind)value->kind) {
    case TOCSIN_VALUE_NONE:
        fputs("None", stream);
        break;
    case TOCSIN_VALUE_BOOL:
        fputs(value->as.integer ? "True" : "False", stream);
        break;
    case TOCSIN_VALUE_INT:
        fprintf(stream, "%" PRId64, value->as.integer);
        break;
    case TOCSIN_VALUE_FLOAT:
        fprintf(stream, "%.9g", value->as.real);
        break;
    case TOCSIN_VALUE_STRING:
        fputc('\'', stream);
        print_visible(tocsin_trace_string(trace, value->as.text), stream);
        fputc('\'', stream);
        break;
    case TOCSIN_VALUE_TENSOR:
        print_tensor(trace, value->dtype, value->as.shape, stream);
        break;
    case TOCSIN_VALUE_SEQUENCE:
        fprintf(stream, "sequence of %" PRIu32, value->count);
        break;
    case TOCSIN_VALUE_MODULE:
        print_visible(tocsin_trace_string(trace, value->type), stream);
        fputs(" '", stream);
        print_visible(tocsin_trace_string(trace, value->as.text), stream);
        fputc('\'', stream);
        break;
    case TOCSIN_VALUE_OBJECT:
        fputc('<', stream);
        print_visible(tocsin_trace_string(trace, value->type), stream);
        fputc('>', stream);
        break;
    case TOCSIN_VALUE_BIG:
        fputs("<large int>", stream);
        break;
    }
}

/* "name=value, ..."; what a sequence or a one-element tensor holds stands in brackets after it. */
static void print_values(const tocsin_trace *trace, const tocsin_event *event, bool names,
                         FILE *stream)
{
    bool in_sequence = false;
    for (uint32_t i = 0; i < event->value_count; i++) {
        const tocsin_value *value = &event->values[i];
        bool is_element = (value->flags & TOCSIN_VALUE_IN_SEQUENCE) != 0;
        if (in_sequence && !is_element) {
            fputc(']', stream);
        }
        if (is_element) {
            fputs(in_sequence ? ", " : " [", stream);
        } else if (i > 0) {
            fputs(", ", stream);
        }
        in_sequence = is_element;
        if (names && !is_element) {
            print_visible(tocsin_trace_string(trace, value->name), stream);
            fputc('=', stream);
        }
        print_value(trace, value, stream);
    }
    if (in_sequence) {
        fputc(']', stream);
    }
}

static void print_state(const tocsin_trace *trace, const tocsin_state *state, FILE *stream)
{
    print_visible(tocsin_trace_variable_name(trace, state->variable), stream);
    fputc('.', stream);
    print_visible(tocsin_trace_string(trace, state->attribute), stream);
    fputs(state->moment == TOCSIN_MOMENT_ENTER ? " before: " : " after: ", stream);
    if (!(state->flags & TOCSIN_STATE_PRESENT)) {
        fputs("None", stream);
        return;
    }
    if (state->dtype != TOCSIN_DTYPE_NONE)
        print_tensor(trace, state->dtype, state->shape, stream);
    if (state->flags & TOCSIN_STATE_DIGESTED) {
        const tocsin_statistics *statistics = &state->statistics;
        fprintf(stream, " digest %016" PRIx64 "%016" PRIx64 " absmax %.6g", state->digest.sum,
                state->digest.polynomial, statistics->absmax);
        if (statistics->nan_count > 0 || statistics->inf_count > 0) {
            fprintf(stream, " nan %" PRIu64 " inf %" PRIu64, statistics->nan_count,
                    statistics->inf_count);
        }
    }
    tocsin_variable_kind kind = tocsin_trace_variable_kind(trace, state->variable);
    const char *attribute = tocsin_trace_string(trace, state->attribute);
    bool tracked = strcmp(attribute, "data") == 0 || strcmp(attribute, "grad") == 0;
    if (!tracked || (kind != TOCSIN_VARIABLE_PARAMETER && kind != TOCSIN_VARIABLE_BUFFER))
        return;
    fputs(state->flags & TOCSIN_STATE_REQUIRES_GRAD ? "" : " frozen", stream);
    fputs(state->flags & TOCSIN_STATE_IN_OPTIMIZER ? "" : " not-in-optimizer", stream);
    fputs(state->flags & TOCSIN_STATE_IN_MODEL ? "" : " not-in-model", stream);
}

static void print_site(const tocsin_trace *trace, tocsin_id site, FILE *stream)
{
    uint32_t line = 0;
    const char *function = "";
    const char *file = tocsin_trace_site(trace, site, &line, &function);
    if (file[0]) {
        fputs("  at ", stream);
        print_visible(file, stream);
        fprintf(stream, ":%" PRIu32 " in ", line);
        print_visible(function, stream);
    }
}

void event_text_print(const tocsin_trace *trace, const tocsin_event *event, uint64_t start_ns,
                      FILE *stream)
{
    assert(trace && event && stream);
    static const char marks[] = "?><!=@";
    assert(event->kind < sizeof marks - 1);
    int64_t elapsed_ns = (int64_t)(event->time_ns - start_ns);
    bool leaves = event->kind == TOCSIN_EVENT_EXIT || event->kind == TOCSIN_EVENT_RAISE;
    uint32_t depth = event->depth - (leaves && event->depth > 0);

    fprintf(stream, "%" PRId64 ".%" PRIu32 " %12.6f %*s%c ", tocsin_trace_pid(trace), event->thread,
            (double)elapsed_ns * 1e-9, (int)(depth < DEPTH_MAX ? depth : DEPTH_MAX), "",
            marks[event->kind]);
    switch ((tocsin_event_kind)event->kind) {
    case TOCSIN_EVENT_ENTER:
        print_visible(tocsin_trace_function_name(trace, event->function), stream);
        fputc('(', stream);
        print_values(trace, event, true, stream);
        fputc(')', stream);
        print_site(trace, event->site, stream);
        break;
    case TOCSIN_EVENT_EXIT:
    case TOCSIN_EVENT_RAISE:
        print_visible(tocsin_trace_function_name(trace, event->function), stream);
        fputs(event->value_count ? ": " : "", stream);
        print_values(trace, event, false, stream);
        break;
    case TOCSIN_EVENT_STATE:
        print_state(trace, &event->state, stream);
        fputs(event->value_count ? " (" : "", stream);
        print_values(trace, event, true, stream);
        fputs(event->value_count ? ")" : "", stream);
        break;
    case TOCSIN_EVENT_META:
        print_visible(tocsin_trace_string(trace, event->key), stream);
        fputs(" = ", stream);
        print_values(trace, event, false, stream);
        break;
    }
    fputc('\n', stream);
}
