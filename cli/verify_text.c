/* verify_text.c - the result of `tocsin verify` as text and as JSON.
 *
 * Text says the verdict first, then each cause in a block of its own, then what was not covered.
 */
#include "verify_text.h"
#include "json_text.h"

#include "cli.h"

enum { LINES_SHOWN = 8 };

/* ---- text ---------------------------------------------------------------------------------------
 */

static void print_field(FILE *stream, const char *name, const char *value)
{
    if (value[0] != '\0')
        fprintf(stream, "    %-9s %s\n", name, value);
}

static void print_cause(FILE *stream, size_t number, const tocsin_cause *cause)
{
    fprintf(stream, "\n%zu. %s: %s\n", number, cause->op, tocsin_cause_text(cause->class));
    print_field(stream, "module", cause->fqn);
    print_field(stream, "source", cause->source);
    print_field(stream, "ranks", cause->ranks);
    print_field(stream, "group", cause->group);
    print_field(stream, "is", cause->relation);
    print_field(stream, "should be", cause->expected);
    print_field(stream, "fix", cause->fix);
    if (cause->occurrences > 1)
        fprintf(stream, "    %-9s %llu times\n", "seen", (unsigned long long)cause->occurrences);
}

static void print_lines(FILE *stream, const char *title, const char *const *lines, size_t count)
{
    if (count == 0)
        return;
    fprintf(stream, "\n%s:\n", title);
    for (size_t k = 0; k < count && k < LINES_SHOWN; k++)
        fprintf(stream, "  - %s\n", lines[k]);
    if (count > LINES_SHOWN)
        fprintf(stream, "  - and %zu more (--format json lists all)\n", count - LINES_SHOWN);
}

static void print_cache(FILE *stream, const tocsin_verify_files_answer *answer)
{
    if (answer->parts > 0)
        fprintf(stream, "  cache: %u of %u parts proved now, %u known%s\n", answer->parts_proved,
                answer->parts, answer->parts - answer->parts_proved,
                answer->reused ? "" : "; first the plan as a whole");
    if (answer->uncached[0] != '\0')
        fprintf(stream, "  cache: nothing kept: %s\n", answer->uncached);
}

void cli_verify_print_text(const cli_verification *verification, FILE *stream)
{
    const tocsin_verify_result *result = verification->answer->result;
    char operators[CLI_NUMBER_BYTES], ranks[CLI_NUMBER_BYTES], nodes[CLI_NUMBER_BYTES];

    fprintf(stream, "%s: %s against %s\n", tocsin_verdict_text(result->verdict),
            verification->parallel_path, verification->logical_path);
    fprintf(
        stream,
        "  %llu of %llu outputs proved (%.4g %%), %llu of %llu gradients; %.4g %% of the needed "
        "operators known\n",
        (unsigned long long)result->outputs_proved, (unsigned long long)result->outputs,
        result->outputs_pct, (unsigned long long)result->gradients_proved,
        (unsigned long long)result->gradients, result->nodes_pct);
    fprintf(stream,
            "  %s operators listed for %s ranks, %s executed%s\n"
            "  %.3g s to read, %.3g s to prove\n",
            cli_count(verification->answer->size.operators, operators),
            cli_count(verification->answer->size.ranks, ranks), cli_count(result->nodes, nodes),
            result->collapsed ? " (all replicas and micro-batches at once)" : "",
            verification->answer->read_seconds, result->seconds);
    print_cache(stream, verification->answer);
    if (result->verdict == TOCSIN_VERDICT_PROBABLE)
        fprintf(stream,
                "  the rest by evaluation over a finite field; wrong with probability < %.2g\n",
                result->epsilon);
    if (result->verdict == TOCSIN_VERDICT_REFUTED)
        fprintf(stream, "  %s\n",
                result->confirmed
                    ? "confirmed: run over a finite field, the two plans differ too"
                    : "by normal forms alone: the plan cannot run, or cannot be evaluated");
    for (size_t k = 0; k < result->cause_count; k++)
        print_cause(stream, k + 1, &result->causes[k]);
    if (result->causes_hidden > 0)
        fprintf(stream, "\nand %llu further causes (--causes N shows more)\n",
                (unsigned long long)result->causes_hidden);
    print_lines(stream, "not decided", result->unknown, result->unknown_count);
    print_lines(stream, "needed by no output", result->dead, result->dead_count);
    print_lines(stream, "assumed", result->assumptions, result->assumption_count);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* One more member of an object. */
static void put_list(FILE *stream, const char *name, const char *const *lines, size_t count)
{
    fputc(',', stream);
    cli_json_list(stream, name, lines, count);
}

static void put_member(FILE *stream, const char *name, const char *value)
{
    fprintf(stream, ",\"%s\":", name);
    cli_json_string(stream, value);
}

static void put_cause(FILE *stream, const tocsin_cause *cause)
{
    fputs("{\"op\":", stream);
    cli_json_string(stream, cause->op);
    put_member(stream, "cause", tocsin_cause_text(cause->class));
    put_member(stream, "fqn", cause->fqn);
    put_member(stream, "source", cause->source);
    put_member(stream, "ranks", cause->ranks);
    put_member(stream, "group", cause->group);
    put_member(stream, "relation", cause->relation);
    put_member(stream, "expected", cause->expected);
    put_member(stream, "fix", cause->fix);
    fprintf(stream, ",\"occurrences\":%llu}", (unsigned long long)cause->occurrences);
}

void cli_verify_print_json(const cli_verification *verification, FILE *stream)
{
    const tocsin_verify_result *result = verification->answer->result;

    fprintf(stream, "{\"schema\":1,\"verdict\":\"%s\"", tocsin_verdict_text(result->verdict));
    put_member(stream, "logical", verification->logical_path);
    put_member(stream, "parallel", verification->parallel_path);
    fprintf(stream, ",\"coverage\":{\"nodes_pct\":%.6g,\"outputs_pct\":%.6g}", result->nodes_pct,
            result->outputs_pct);
    fputs(",\"causes\":[", stream);
    for (size_t k = 0; k < result->cause_count; k++) {
        fputs(k == 0 ? "" : ",", stream);
        put_cause(stream, &result->causes[k]);
    }
    fprintf(stream, "],\"causes_hidden\":%llu", (unsigned long long)result->causes_hidden);
    put_list(stream, "unknown", result->unknown, result->unknown_count);
    put_list(stream, "assumptions", result->assumptions, result->assumption_count);
    put_list(stream, "dead", result->dead, result->dead_count);
    fprintf(stream,
            ",\"nodes\":%llu,\"nodes_dead\":%llu,\"outputs\":%llu,\"outputs_proved\":%llu,"
            "\"gradients\":%llu,\"gradients_proved\":%llu,\"operators\":%llu,\"ranks\":%llu",
            (unsigned long long)result->nodes, (unsigned long long)result->nodes_dead,
            (unsigned long long)result->outputs, (unsigned long long)result->outputs_proved,
            (unsigned long long)result->gradients, (unsigned long long)result->gradients_proved,
            (unsigned long long)verification->answer->size.operators,
            (unsigned long long)verification->answer->size.ranks);
    fprintf(stream, ",\"parts\":%u,\"parts_proved\":%u,\"reused\":%s", verification->answer->parts,
            verification->answer->parts_proved, verification->answer->reused ? "true" : "false");
    fprintf(stream,
            ",\"collapsed\":%s,\"confirmed\":%s,\"epsilon\":%.3g,\"read_seconds\":%.6f,\"seconds\":"
            "%.6f,"
            "\"peak_rss_bytes\":%llu}\n",
            result->collapsed ? "true" : "false", result->confirmed ? "true" : "false",
            result->epsilon, verification->answer->read_seconds, result->seconds,
            (unsigned long long)result->peak_rss_bytes);
}
