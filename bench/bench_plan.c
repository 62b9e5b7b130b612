/* How fast is a large `.plan` text read, checked and written? One pipeline-, tensor- and data-
 * parallel plan with every operator of each (pp, tp) role listed. Prints one JSON line; nothing is
 * asserted. Usage: bench_plan [OPERATORS] */
#include "plan/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { STAGES = 16, TENSOR_RANKS = 8, OPERATORS = 1500000 };

static void append_layer(tocsin_string *text, unsigned stage, unsigned step)
{
    const char *source = "src=/opt/train/models/llama3/model.py";
    unsigned layer = stage * 8 + step / 20, line = 100 + step % 300;
    tocsin_string_printf(text,
                         "%%l%u_mm:bfloat16[1,4096,2048] = linear(%%x%u, %%w) fw "
                         "@model.layers.%u.attention.wq %s:%u label=linear%u\n",
                         step, step, layer, source, line, step);
    tocsin_string_printf(text,
                         "%%l%u_ar:bfloat16[1,4096,2048] = all_reduce(%%l%u_mm) {op=sum} "
                         "group=tp.%u fw @model.layers.%u.attention.wq %s:%u label=reduce%u\n",
                         step, step, stage, layer, source, line, step);
    tocsin_string_printf(text,
                         "%%l%u_v:bfloat16[1,4096,16,128] = view(%%l%u_ar) "
                         "{shape=[1,4096,16,128]} fw @model.layers.%u.attention %s:%u label=v%u\n",
                         step, step, layer, source, line, step);
    tocsin_string_printf(text,
                         "%%x%u:bfloat16[1,4096,2048] = view(%%l%u_v) {shape=[1,4096,2048]} fw "
                         "@model.layers.%u.attention %s:%u label=w%u\n",
                         step + 1, step, layer, source, line, step);
}

static void append_plan(tocsin_string *text, unsigned operators)
{
    unsigned steps = operators / (STAGES * TENSOR_RANKS * 4);
    tocsin_string_printf(text, "tocsin-plan 1\nmesh dp=64* pp=%d tp=%d\nmicrobatches 16\n", STAGES,
                         TENSOR_RANKS);
    for (unsigned pp = 0; pp < STAGES; ++pp) {
        tocsin_string_printf(text, "group tp.%u =", pp);
        for (unsigned tp = 0; tp < TENSOR_RANKS; ++tp)
            tocsin_string_printf(text, " (pp=%u tp=%u)", pp, tp);
        tocsin_string_append_char(text, '\n');
    }
    for (unsigned role = 0; role < STAGES * TENSOR_RANKS; ++role) {
        unsigned pp = role / TENSOR_RANKS, tp = role % TENSOR_RANKS;
        tocsin_string_printf(text,
                             "role pp=%u tp=%u\n"
                             "in %%x0:bfloat16[1,4096,2048] each = x[dp*16+mb*1 : 1, 0 : 4096, "
                             "0 : 2048]\nin %%w:bfloat16[2048,2048] = w[%u : 2048, 0 : 2048]\n"
                             "segment fw\n",
                             pp, tp, tp * 2048);
        for (unsigned step = 0; step < steps; ++step)
            append_layer(text, pp, step);
        tocsin_string_append_text(text, "schedule");
        for (unsigned microbatch = 0; microbatch < 16; ++microbatch)
            tocsin_string_printf(text, " fw.%u", microbatch);
        tocsin_string_append_text(text, "\nend\n");
    }
}

static double seconds_since(uint64_t begin_ns)
{
    return (double)(tocsin_clock_ns() - begin_ns) * 1e-9;
}

int main(int argc, char **argv)
{
    unsigned long operators = argc > 1 ? strtoul(argv[1], NULL, 10) : OPERATORS;
    tocsin_string text = {0};
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    append_plan(&text, (unsigned)operators);
    uint64_t begin = tocsin_clock_ns();
    tocsin_status status = tocsin_string_check(&text, &error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_read_memory(text.text, text.bytes, "bench", NULL, &plan, &error);
    double read = seconds_since(begin);
    begin = tocsin_clock_ns();
    FILE *sink = fopen("/dev/null", "w");
    if (status == TOCSIN_OK && sink)
        status = tocsin_plan_write(plan, sink, &error);
    double written = seconds_since(begin);
    if (status != TOCSIN_OK || !sink) {
        fprintf(stderr, "bench_plan: %s\n", error.message);
        return 1;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double megabytes = (double)text.bytes * 1e-6;
    printf(
        "{\"operators\":%llu,\"megabytes\":%.1f,\"read_seconds\":%.3f,\"read_mb_per_second\":%.0f,"
        "\"write_seconds\":%.3f,\"peak_rss_mib\":%ld}\n",
        (unsigned long long)tocsin_plan_get_size(plan).operators, megabytes, read, megabytes / read,
        written, usage.ru_maxrss / 1024);
    fclose(sink);
    tocsin_plan_free(plan);
    tocsin_string_free(&text);
    return 0;
}
