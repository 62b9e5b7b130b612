/* report_align_certificate.c - what of two runs was identical, as a file that others can compare.
 *
 * No paths, times or hosts stand in it: whoever aligns the same two recordings gets the same bytes.
 */
#include "report/report_align.h"

#include <inttypes.h>

static void put_rank(tocsin_json *json, const tocsin_align_rank *rank)
{
    char digest[33];
    snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, rank->prefix_digest[1],
             rank->prefix_digest[0]);
    tocsin_json_begin_object(json);
    tocsin_report_json_rank(json, rank->rank);
    tocsin_json_put_unsigned(json, "boundaries", rank->prefix);
    tocsin_json_put_text(json, "digest", digest);
    tocsin_json_put_unsigned(json, "compared", rank->compared);
    tocsin_json_put_unsigned(json, "equal", rank->equal);
    tocsin_json_put_unsigned(json, "unknown", rank->unknown);
    tocsin_json_put_unsigned(json, "only_a", rank->only_a);
    tocsin_json_put_unsigned(json, "only_b", rank->only_b);
    tocsin_json_put_unsigned(json, "steps_a", rank->steps_a);
    tocsin_json_put_unsigned(json, "steps_b", rank->steps_b);
    tocsin_json_put_unsigned(json, "diverged_step", (uint64_t)rank->diverged_step);
    tocsin_json_end_object(json);
}

/* The versions that a run was recorded with. */
static tocsin_status put_versions(tocsin_json *json, const char *key, const char *run_json,
                                  tocsin_error *error)
{
    tocsin_json_value *run;
    TOCSIN_TRY(tocsin_json_parse(run_json, strlen(run_json), "run.json", &run, error));
    const tocsin_json_value *versions = tocsin_json_get_member(run, "versions"), *value;
    void *cursor = NULL;
    const char *name;
    tocsin_json_key(json, key);
    tocsin_json_begin_object(json);
    while (versions && tocsin_json_next_member(versions, &cursor, &name, &value))
        tocsin_json_put_text(json, name, tocsin_json_get_text(value));
    tocsin_json_end_object(json);
    tocsin_json_free(run);
    return TOCSIN_OK;
}

static tocsin_status put_certificate(tocsin_string *out, const tocsin_align_result *result,
                                     const char *run_a, const char *run_b, tocsin_error *error)
{
    tocsin_json json = {.out = out};
    tocsin_json_begin_object(&json);
    tocsin_json_put_text(&json, "format", "tocsin-align-certificate");
    tocsin_json_put_unsigned(&json, "version", 1);
    tocsin_json_put_text(&json, "verdict", tocsin_align_verdict_name(result->verdict));
    tocsin_json_key(&json, "identical");
    tocsin_json_begin_array(&json);
    for (size_t r = 0; r < result->rank_count; ++r)
        put_rank(&json, &result->ranks[r]);
    tocsin_json_end_array(&json);
    TOCSIN_TRY(put_versions(&json, "versions_a", run_a, error));
    TOCSIN_TRY(put_versions(&json, "versions_b", run_b, error));
    tocsin_report_json_conditions(&json, result, false);
    tocsin_report_json_conditions(&json, result, true);
    tocsin_report_json_accepted(&json, result);
    tocsin_json_key(&json, "not_covered");
    tocsin_json_begin_array(&json);
    for (size_t n = 0; n < result->not_covered_count; ++n)
        tocsin_json_text(&json, result->not_covered[n]);
    tocsin_json_end_array(&json);
    tocsin_json_end_object(&json);
    tocsin_string_append_char(out, '\n');
    return tocsin_string_check(out, error);
}

tocsin_status tocsin_report_save_certificate(const tocsin_align_result *result, const char *run_a,
                                             const char *run_b, const char *path,
                                             tocsin_error *error)
{
    tocsin_string out = {0};
    tocsin_status status = put_certificate(&out, result, run_a, run_b, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, out.text, out.bytes, true, error);
    tocsin_string_free(&out);
    return status;
}
