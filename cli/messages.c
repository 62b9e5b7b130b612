/* messages.c - errors, hints, notes and progress: everything the command says on stderr.
 *
 * A message is one line, written with one call, so that lines of the training job on the same
 * terminal are not torn. Control characters from paths and files are shown as '?'.
 */
#include "cli.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES           2048

#define PROGRESS_DELAY_NS    500000000U
#define PROGRESS_TERMINAL_NS 100000000U
#define PROGRESS_LOG_NS      30000000000U

static void say(const char *prefix, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void say(const char *prefix, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    int start = snprintf(line, sizeof line, "%s", prefix);
    assert(start > 0 && (size_t)start < sizeof line);
    vsnprintf(line + start, sizeof line - (size_t)start - 1, format, arguments);
    for (char *byte = line; *byte; byte++) {
        if ((unsigned char)*byte < 0x20 || *byte == 0x7f) {
            *byte = '?';
        }
    }
    strcat(line, "\n");
    fputs(line, stderr);
}

void cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("tocsin: error: ", format, arguments);
    va_end(arguments);
}

void cli_hint(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("hint: ", format, arguments);
    va_end(arguments);
}

void cli_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("tocsin: ", format, arguments);
    va_end(arguments);
}

int cli_fail(const tocsin_error *error)
{
    assert(error);
    assert(error->code != TOCSIN_OK);
    const char *what = error->message[0] ? error->message : tocsin_status_text(error->code);
    if (error->where[0] && error->offset >= 0) {
        cli_error("%s, %s at byte %" PRId64, what, error->where, error->offset);
    } else if (error->where[0]) {
        cli_error("%s, %s", what, error->where);
    } else {
        cli_error("%s", what);
    }
    bool ours = error->code == TOCSIN_E_MEMORY || error->code == TOCSIN_E_INTERNAL ||
                error->code == TOCSIN_E_STATE;
    return ours ? CLI_INTERNAL : CLI_INPUT;
}

bool cli_options_end(const cli_usage *usage, int argc, char **argv, cli_operands *operands,
                     int *exit_code)
{
    cli_problem problem;
    switch (cli_options_parse(usage, argc, argv, operands, &problem)) {
    case CLI_PARSED:
        return false;
    case CLI_PARSED_HELP:
        cli_help_print(usage, stdout);
        *exit_code = CLI_HOLDS;
        return true;
    case CLI_PARSED_WRONG:
        break;
    }
    cli_error("%s", problem.message);
    if (problem.hint[0]) {
        cli_hint("%s", problem.hint);
    }
    *exit_code = CLI_INPUT;
    return true;
}

bool cli_colour(FILE *stream)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    if ((no_colour && no_colour[0]) || !terminal || strcmp(terminal, "dumb") == 0) {
        return false;
    }
    return isatty(fileno(stream)) == 1;
}

/* ---- progress ------------------------------------------------------------------------------ */

uint64_t cli_clock_ns(void)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(!failed);
    (void)failed;
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void cli_progress_begin(cli_progress *progress, bool quiet)
{
    assert(progress);
    *progress = (cli_progress){0};
    progress->enabled = !quiet;
    progress->terminal = isatty(STDERR_FILENO) == 1;
    progress->start_ns = cli_clock_ns();
    progress->last_ns = progress->start_ns;
}

void cli_progress_update(cli_progress *progress, const char *phase, uint64_t done, uint64_t total)
{
    assert(progress && phase);
    if (!progress->enabled) {
        return;
    }
    uint64_t now = cli_clock_ns();
    uint64_t interval = progress->terminal ? PROGRESS_TERMINAL_NS : PROGRESS_LOG_NS;
    if (now - progress->start_ns < PROGRESS_DELAY_NS || now - progress->last_ns < interval) {
        return;
    }
    progress->last_ns = now;

    double seconds = (double)(now - progress->start_ns) * 1e-9;
    double rate = (double)done / seconds;
    char count[CLI_NUMBER_BYTES];
    char remaining[64] = "";
    if (total > done && rate > 0) {
        snprintf(remaining, sizeof remaining, ", %.0f %%, %.0f s left",
                 100.0 * (double)done / (double)total, (double)(total - done) / rate);
    }
    fprintf(stderr, "%stocsin: %s: %s events, %.0f/s%s%s", progress->terminal ? "\r\033[K" : "",
            phase, cli_count(done, count), rate, remaining, progress->terminal ? "" : "\n");
    progress->shown = progress->terminal;
}

void cli_progress_end(cli_progress *progress)
{
    assert(progress);
    if (progress->shown) {
        fputs("\r\033[K", stderr);
        progress->shown = false;
    }
}

/* ---- numbers ------------------------------------------------------------------------------- */

const char *cli_count(uint64_t count, char buffer[CLI_NUMBER_BYTES])
{
    char digits[CLI_NUMBER_BYTES];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *out = buffer;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            *out++ = ',';
        }
        *out++ = digits[i];
    }
    *out = '\0';
    return buffer;
}

const char *cli_bytes(uint64_t bytes, char buffer[CLI_NUMBER_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, CLI_NUMBER_BYTES, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}
