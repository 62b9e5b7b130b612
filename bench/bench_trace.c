/* bench_trace.c - what an event costs: nanoseconds to emit and to read, bytes in the file.
 *
 * The mix is that of recorded training: per step 24 functions nested two deep, each entered with
 * two tensors and a number and left with one tensor; 40 parameters with digests at four moments; a
 * few meta variables. Digests are random, as those of changing weights are: they do not compress.
 * Prints `figure NAME VALUE UNIT` lines: medians of the rounds. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <tocsin/trace.h>
#include <unistd.h>

enum { ROUNDS = 9, STEPS = 400, FUNCTIONS = 24, PARAMETERS = 40, PLAIN = 400000 };

typedef struct workload {
    tocsin_trace_writer *writer;
    tocsin_id functions[FUNCTIONS];
    tocsin_id variables[PARAMETERS];
    tocsin_id shapes[4];
    tocsin_id input, weight, flag, data, grad, step;
    uint64_t random;
    uint64_t events;
} workload;

static void fail(const char *what)
{
    fprintf(stderr, "bench_trace: %s\n", what);
    exit(1);
}

static tocsin_id text(tocsin_trace_writer *writer, const char *string)
{
    return tocsin_trace_define_string(writer, string, strlen(string));
}

static workload begin(const char *directory)
{
    workload made = {.random = 1};
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options, .directory = directory};
    if (tocsin_trace_writer_open(&options, &made.writer, NULL) != TOCSIN_OK)
        fail("no writer");
    char name[64];
    for (int i = 0; i < FUNCTIONS; ++i) {
        snprintf(name, sizeof name, "torch.nn.functional.function_%d", i);
        made.functions[i] =
            tocsin_trace_define_function(made.writer, name, (tocsin_role)(i % 3 ? 0 : 1));
    }
    for (int i = 0; i < PARAMETERS; ++i) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        made.variables[i] = tocsin_trace_define_variable(
            made.writer, name, TOCSIN_VARIABLE_PARAMETER, "torch.nn.Parameter");
    }
    for (int i = 0; i < 4; ++i) {
        int64_t sizes[2] = {64 << i, 384};
        made.shapes[i] = tocsin_trace_define_shape(made.writer, 2, sizes);
    }
    made.input = text(made.writer, "input");
    made.weight = text(made.writer, "weight");
    made.flag = text(made.writer, "p");
    made.data = text(made.writer, "data");
    made.grad = text(made.writer, "grad");
    made.step = text(made.writer, "step");
    return made;
}

static uint64_t enter(workload *mix, int function)
{
    tocsin_value values[3] = {{.kind = TOCSIN_VALUE_TENSOR,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .name = mix->input,
                               .as.shape = mix->shapes[function & 3]},
                              {.kind = TOCSIN_VALUE_TENSOR,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .flags = TOCSIN_VALUE_REQUIRES_GRAD,
                               .name = mix->weight,
                               .as.shape = mix->shapes[1]},
                              {.kind = TOCSIN_VALUE_FLOAT, .name = mix->flag, .as.real = 0.1}};
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = mix->functions[function],
                          .value_count = 3,
                          .values = values};
    ++mix->events;
    return tocsin_trace_emit(mix->writer, &event);
}

static void leave(workload *mix, int function, uint64_t call)
{
    tocsin_value value = {.kind = TOCSIN_VALUE_TENSOR,
                          .dtype = TOCSIN_DTYPE_FLOAT32,
                          .ndim = 2,
                          .flags = TOCSIN_VALUE_HAS_GRAD_FN,
                          .as.shape = mix->shapes[0]};
    tocsin_event event = {.kind = TOCSIN_EVENT_EXIT,
                          .function = mix->functions[function],
                          .call = call,
                          .value_count = 1,
                          .values = &value};
    ++mix->events;
    tocsin_trace_emit(mix->writer, &event);
}

static void state(workload *mix, int variable, tocsin_id attribute, uint8_t moment)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    tocsin_state *seen = &event.state;
    seen->variable = mix->variables[variable];
    seen->attribute = attribute;
    seen->moment = moment;
    seen->dtype = TOCSIN_DTYPE_FLOAT32;
    seen->ndim = 2;
    seen->shape = mix->shapes[variable & 3];
    seen->flags = 1 | 2 | 4 | 8 | 16 | 32 | 64;
    seen->lr = 3e-4;
    seen->digest.sum = tocsin_mix64(++mix->random);
    seen->digest.exclusive = tocsin_mix64(++mix->random) >> 32;
    seen->digest.polynomial = tocsin_mix64(++mix->random) >> 3;
    seen->statistics.absmax = (double)(float)(tocsin_mix64(++mix->random) >> 40) * 1e-7;
    seen->statistics.sum_squares = (double)(tocsin_mix64(++mix->random) >> 12) * 1e-12;
    ++mix->events;
    tocsin_trace_emit(mix->writer, &event);
}

static void step(workload *mix, int number)
{
    for (int i = 0; i < FUNCTIONS; i += 2) {
        uint64_t outer = enter(mix, i);
        uint64_t inner = enter(mix, i + 1);
        leave(mix, i + 1, inner);
        leave(mix, i, outer);
    }
    for (uint8_t moment = TOCSIN_MOMENT_ENTER; moment <= TOCSIN_MOMENT_EXIT; ++moment)
        for (int i = 0; i < PARAMETERS; ++i) {
            state(mix, i, mix->grad, moment);
            state(mix, i, mix->data, moment);
        }
    tocsin_value value = {.kind = TOCSIN_VALUE_INT, .as.integer = number};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_META, .key = mix->step, .value_count = 1, .values = &value};
    ++mix->events;
    tocsin_trace_emit(mix->writer, &event);
}

static double read_events(const char *directory)
{
    tocsin_run *run;
    if (tocsin_run_open(directory, false, &run, NULL) != TOCSIN_OK)
        fail("the run is not readable");
    uint64_t started_ns = tocsin_clock_ns();
    uint64_t count = 0;
    const tocsin_event *event;
    do {
        if (tocsin_trace_next(tocsin_run_process(run, 0), &event, NULL) != TOCSIN_OK)
            fail("an event is not readable");
        ++count;
    } while (event);
    double ns = (double)(tocsin_clock_ns() - started_ns) / (double)(count - 1);
    tocsin_run_close(run);
    return ns;
}

/* A plain ENTER, and nothing else. */
static double emit_plain(workload *mix)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = mix->functions[0]};
    tocsin_event end = {.kind = TOCSIN_EVENT_EXIT, .function = mix->functions[0]};
    uint64_t started_ns = tocsin_clock_ns();
    for (int i = 0; i < PLAIN; ++i) {
        end.call = tocsin_trace_emit(mix->writer, &event);
        tocsin_trace_emit(mix->writer, &end);
    }
    return (double)(tocsin_clock_ns() - started_ns) / (2.0 * PLAIN);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_median(const char *name, double *values, const char *unit)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    printf("figure %s %.1f %s\n", name, values[ROUNDS / 2], unit);
}

static void remove_run(const char *directory)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", directory);
    if (system(command) != 0)
        fail("the temporary run stays");
}

int main(void)
{
    double mixed[ROUNDS];
    double plain[ROUNDS];
    double reading[ROUNDS];
    double bytes[ROUNDS];
    for (int round = 0; round < ROUNDS; ++round) {
        char directory[] = "/tmp/tocsin-bench-XXXXXX";
        char path[64];
        if (!mkdtemp(directory))
            fail("no temporary directory");
        snprintf(path, sizeof path, "%s/run.json", directory);
        FILE *json = fopen(path, "w");
        if (!json || fputs("{\"format\":\"tocsin-run\",\"version\":1}", json) < 0 ||
            fclose(json) != 0)
            fail("no run.json");
        workload made = begin(directory);
        uint64_t started_ns = tocsin_clock_ns();
        for (int i = 0; i < STEPS; ++i)
            step(&made, i);
        mixed[round] = (double)(tocsin_clock_ns() - started_ns) / (double)made.events;
        tocsin_trace_statistics statistics;
        if (tocsin_trace_writer_flush(made.writer, NULL) != TOCSIN_OK)
            fail("the file takes no more");
        tocsin_trace_writer_statistics(made.writer, &statistics);
        bytes[round] = (double)statistics.file_bytes / (double)made.events;
        plain[round] = emit_plain(&made);
        if (tocsin_trace_writer_close(made.writer, NULL) != TOCSIN_OK)
            fail("the file takes no more");
        reading[round] = read_events(directory);
        remove_run(directory);
    }
    print_median("emit_ns_mix", mixed, "ns");
    print_median("emit_ns_plain", plain, "ns");
    print_median("read_ns", reading, "ns");
    print_median("bytes_per_event", bytes, "bytes");
    return 0;
}
