/* accepting.c - rules of `tocsin align`, as of today. */
#include "accepting.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DAYS_DEFAULT 90

typedef char date_text[sizeof "1970-01-01"];

static void write_date(int days_from_now, date_text text)
{
    time_t then = time(NULL) + (time_t)days_from_now * 86400;
    struct tm parts;
    strcpy(text, "1970-01-01");
    if (gmtime_r(&then, &parts)) {
        strftime(text, sizeof(date_text), "%Y-%m-%d", &parts);
    }
}

bool cli_accepting_check(const cli_accepting *accepting)
{
    const char *missing = NULL;
    if (accepting->id) {
        missing = !accepting->file ? "--rules FILE" : !accepting->because ? "--because TEXT" : NULL;
    } else if (accepting->because || accepting->until) {
        missing = "--accept ID";
    }
    if (missing) {
        cli_error("there is no %s", missing);
        cli_hint("tocsin align A B --rules FILE --accept ID --because TEXT");
    }
    return missing == NULL;
}

tocsin_status cli_accepting_load(const cli_accepting *accepting, tocsin_align_rules **rules,
                                 tocsin_error *error)
{
    date_text today;
    *rules = NULL;
    if (!accepting->file) {
        return TOCSIN_OK;
    }
    write_date(0, today);
    tocsin_status status = tocsin_align_rules_new(today, rules, error);
    bool made = accepting->id && access(accepting->file, F_OK) != 0;
    if (status == TOCSIN_OK && !made) {
        status = tocsin_align_rules_read(*rules, accepting->file, error);
    }
    return status;
}

/* The digest as the report has it, or the value. */
static void write_evidence(const tocsin_align_side *side, char text[128])
{
    if (side->digest.sum || side->digest.polynomial || side->digest.exclusive) {
        snprintf(text, 128, "%016" PRIx64 ":%016" PRIx64 ":%08" PRIx64, side->digest.sum,
                 side->digest.polynomial, side->digest.exclusive);
    } else {
        snprintf(text, 128, "%.100s", side->value);
    }
}

tocsin_status cli_accepting_add(const cli_accepting *accepting, const tocsin_align_result *result,
                                tocsin_align_rules *rules, tocsin_error *error)
{
    size_t pivot = 0;
    while (pivot < result->pivot_count &&
           !tocsin_align_rule_fits(accepting->id, result->pivots[pivot].id)) {
        ++pivot;
    }
    if (pivot == result->pivot_count) {
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "the runs do not part at '%s': there is nothing to accept",
                                accepting->id);
    }
    date_text today, until;
    char a[128], b[128];
    const char *by = getenv("USER");
    write_date(0, today);
    write_date(DAYS_DEFAULT, until);
    write_evidence(&result->pivots[pivot].a, a);
    write_evidence(&result->pivots[pivot].b, b);
    tocsin_align_rule rule = {.id = accepting->id,
                              .because = accepting->because,
                              .by = by ? by : "",
                              .on = today,
                              .until = accepting->until ? accepting->until : until,
                              .a = a,
                              .b = b};
    tocsin_status status = tocsin_align_rules_add(rules, &rule, error);
    if (status == TOCSIN_OK) {
        status = tocsin_align_rules_save(rules, accepting->file, error);
    }
    if (status == TOCSIN_OK) {
        printf("accepted until %s: %s\n", rule.until, rule.id);
    }
    return status;
}
