/* certifying.c - the judgement of a certificate as text and as JSON. */
#include "certifying.h"

#include <tocsin/certify.h>

#include "cli.h"
#include "json_text.h"

static void print_json(const tocsin_certify_result *result, double seconds)
{
    printf("{\"schema\":1,\"verdict\":\"%s\",\"facts\":%llu,\"outputs\":%llu,",
           result->accepted ? "ACCEPTED" : "REJECTED", (unsigned long long)result->facts,
           (unsigned long long)result->outputs);
    cli_json_member(stdout, "reason", result->text);
    printf(",\"seconds\":%.6f}\n", seconds);
}

static void print_text(const tocsin_certify_result *result, const char *path, double seconds)
{
    char facts[CLI_NUMBER_BYTES], outputs[CLI_NUMBER_BYTES];
    if (!result->accepted) {
        printf("REJECTED: %s\n  %s\n", path, result->text);
        return;
    }
    printf("ACCEPTED: %s\n  %s facts and %s outputs hold, judged in %.3g s\n", path,
           cli_count(result->facts, facts), cli_count(result->outputs, outputs), seconds);
}

int cli_certify(const char *certificate_path, const char *logical_path, const char *parallel_path,
                const tocsin_plan_options *reading, bool json)
{
    tocsin_plan *logical = NULL, *parallel = NULL;
    tocsin_plan_options logical_reading = *reading;
    tocsin_certify_result result;
    tocsin_error error;

    logical_reading.world = (tocsin_plan_world){0}; /* --world is the parallel plan's */
    tocsin_status status = tocsin_plan_read(logical_path, &logical_reading, &logical, &error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_read(parallel_path, reading, &parallel, &error);
    const uint64_t start_ns = cli_clock_ns();
    if (status == TOCSIN_OK)
        status = tocsin_certify(certificate_path, logical, parallel, &result, &error);
    const double seconds = (double)(cli_clock_ns() - start_ns) * 1e-9;
    tocsin_plan_free(parallel);
    tocsin_plan_free(logical);
    if (status != TOCSIN_OK)
        return cli_fail(&error);
    if (json)
        print_json(&result, seconds);
    else
        print_text(&result, certificate_path, seconds);
    return result.accepted ? CLI_HOLDS : CLI_FINDING;
}
