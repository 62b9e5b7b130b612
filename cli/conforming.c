/* conforming.c - a plan against a run: the comparison's result as text and as JSON. */
#include "conforming.h"

#include <assert.h>
#include <tocsin/conform.h>

#include "cli.h"
#include "json_text.h"

typedef struct conformed_run {
    const char *plan_path, *run_path;
    const tocsin_conform_result *result;
} conformed_run;

static const char *verdict_of(const tocsin_conform_result *result)
{
    if (result->finding_count > 0)
        return "DIFFERS";
    return result->steps > 0 ? "CONFORMS" : "UNKNOWN";
}

static void print_side(const char *name, const char *call, const char *where, const char *site)
{
    if (call[0] == '\0')
        return;
    printf("    %-9s %s", name, call);
    if (where[0] != '\0' || site[0] != '\0')
        printf("  [%s%s%s]", where, where[0] != '\0' && site[0] != '\0' ? ", " : "", site);
    putchar('\n');
}

static void print_text(const conformed_run *conformance)
{
    const tocsin_conform_result *result = conformance->result;
    char steps[CLI_NUMBER_BYTES], calls[CLI_NUMBER_BYTES];

    printf("%s: %s against %s\n", verdict_of(result), conformance->run_path,
           conformance->plan_path);
    printf("  %llu rank%s, %s step%s of one rank compared, %s calls as planned\n",
           (unsigned long long)result->ranks, result->ranks == 1 ? "" : "s",
           cli_count(result->steps, steps), result->steps == 1 ? "" : "s",
           cli_count(result->calls, calls));
    for (size_t k = 0; k < result->finding_count; k++) {
        const tocsin_conform_finding *finding = &result->findings[k];
        printf("\n%zu. %s: %s\n", k + 1, tocsin_deviation_text(finding->deviation),
               tocsin_deviation_meaning(finding->deviation));
        printf("    %-9s rank %u, step %llu, call %llu of the step\n", "first at", finding->rank,
               (unsigned long long)finding->step, (unsigned long long)finding->index);
        print_side("planned", finding->planned, finding->fqn, finding->source);
        print_side("issued", finding->issued, finding->site, "");
        if (finding->occurrences > 1)
            printf("    %-9s %llu times, on ranks %s\n", "seen",
                   (unsigned long long)finding->occurrences, finding->ranks);
    }
    for (size_t k = 0; k < result->limit_count; k++)
        printf("%s  - %s\n", k == 0 ? "\nnot compared:\n" : "", result->limits[k]);
}

static void print_finding(const tocsin_conform_finding *finding)
{
    putchar('{');
    cli_json_member(stdout, "deviation", tocsin_deviation_text(finding->deviation));
    printf(",\"rank\":%u,\"step\":%llu,\"index\":%llu,", finding->rank,
           (unsigned long long)finding->step, (unsigned long long)finding->index);
    cli_json_member(stdout, "planned", finding->planned);
    putchar(',');
    cli_json_member(stdout, "fqn", finding->fqn);
    putchar(',');
    cli_json_member(stdout, "source", finding->source);
    putchar(',');
    cli_json_member(stdout, "issued", finding->issued);
    putchar(',');
    cli_json_member(stdout, "site", finding->site);
    putchar(',');
    cli_json_member(stdout, "ranks", finding->ranks);
    printf(",\"occurrences\":%llu}", (unsigned long long)finding->occurrences);
}

static void print_json(const conformed_run *conformance)
{
    const tocsin_conform_result *result = conformance->result;

    printf("{\"schema\":1,");
    cli_json_member(stdout, "verdict", verdict_of(result));
    putchar(',');
    cli_json_member(stdout, "plan", conformance->plan_path);
    putchar(',');
    cli_json_member(stdout, "run", conformance->run_path);
    printf(",\"ranks\":%llu,\"steps\":%llu,\"calls\":%llu,\"findings\":[",
           (unsigned long long)result->ranks, (unsigned long long)result->steps,
           (unsigned long long)result->calls);
    for (size_t k = 0; k < result->finding_count; k++) {
        if (k > 0)
            putchar(',');
        print_finding(&result->findings[k]);
    }
    printf("],");
    cli_json_list(stdout, "limits", result->limits, result->limit_count);
    printf("}\n");
}

int cli_conform(const char *plan_path, const tocsin_plan_options *reading, const char *run_path,
                bool json)
{
    assert(plan_path && run_path);
    tocsin_plan *plan = NULL;
    tocsin_run *run = NULL;
    tocsin_conform_result *result = NULL;
    tocsin_error error;
    int exit_code;

    tocsin_status status = tocsin_plan_read(plan_path, reading, &plan, &error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(run_path, false, &run, &error);
    if (status == TOCSIN_OK)
        status = tocsin_conform(plan, run, &result, &error);
    if (status == TOCSIN_OK) {
        conformed_run conformed = {plan_path, run_path, result};
        if (json)
            print_json(&conformed);
        else
            print_text(&conformed);
        exit_code = result->finding_count > 0 ? CLI_FINDING
                    : result->steps > 0       ? CLI_HOLDS
                                              : CLI_UNDECIDED;
    } else {
        exit_code = cli_fail(&error);
    }
    tocsin_conform_result_free(result);
    if (run != NULL)
        tocsin_run_close(run);
    tocsin_plan_free(plan);
    return exit_code;
}
