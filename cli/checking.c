/* checking.c - a run checked against files of invariants. */
#include "checking.h"

#include <assert.h>
#include <stdlib.h>
#include <tocsin/library.h>

#include "foreign.h"
#include "traces.h"

int cli_checking_load(cli_checking *checking, const cli_texts *files, bool library,
                      const cli_texts *relations)
{
    assert(checking && !checking->set);
    tocsin_error error;
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < files->count && status == TOCSIN_OK; i++) {
        status = cli_invariants_load(files->items[i], &checking->set, &error);
    }
    if (files->count == 0) {
        status = tocsin_library_load(&checking->set, &error);
    } else if (library && status == TOCSIN_OK) {
        status = tocsin_library_append(checking->set, &error);
    }
    if (status == TOCSIN_OK) {
        status = cli_relations_open(relations, &checking->relations, &error);
    }
    if (status == TOCSIN_OK) {
        tocsin_invariants_use(checking->set, checking->relations);
    }
    return status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
}

static void print_found(void *context, const tocsin_finding *finding)
{
    const cli_checking *checking = context;
    tocsin_error error;
    if (!checking->aloud) {
        return;
    }
    /* One write: the job prints on the same terminal. */
    char *line = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&line, &bytes);
    if (!memory) {
        return; /* the report at the end has it */
    }
    fputs("tocsin: ", memory);
    tocsin_status status = tocsin_report_print_finding(finding, cli_colour(stderr), memory, &error);
    if (fclose(memory) == 0 && status == TOCSIN_OK) {
        fputs(line, stderr);
    } else if (status != TOCSIN_OK) {
        cli_fail(&error);
    }
    free(line);
}

int cli_checking_open(cli_checking *checking, const char *directory, const char *name, bool follow)
{
    assert(checking && checking->set);
    assert(!checking->run && !checking->checker);
    tocsin_error error;
    tocsin_checker_options options = {
        .struct_bytes = sizeof options,
        .found = print_found,
        .context = checking,
    };
    checking->name = name;
    if (tocsin_run_open(directory, follow, &checking->run, &error) != TOCSIN_OK) {
        int exit_code = cli_fail(&error);
        if (error.code == TOCSIN_E_NOT_FOUND) {
            cli_hint("tocsin record -o %s -- python train.py makes a recording", name);
        }
        return exit_code;
    }
    if (tocsin_checker_new(checking->set, &options, &checking->checker, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    return CLI_HOLDS;
}

int cli_checking_advance(cli_checking *checking, uint64_t *events)
{
    assert(checking && checking->checker && events);
    tocsin_error error;
    tocsin_status status = tocsin_checker_advance(checking->checker, checking->run, events, &error);
    return status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
}

bool cli_checking_is_live(const cli_checking *checking)
{
    assert(checking && checking->run);
    size_t count = tocsin_run_process_count(checking->run);
    for (size_t i = 0; i < count; i++) {
        const tocsin_trace *trace = tocsin_run_process(checking->run, i);
        if (!tocsin_trace_is_complete(trace) && tocsin_trace_is_alive(trace)) {
            return true;
        }
    }
    return false;
}

int cli_checking_finish(cli_checking *checking)
{
    assert(checking && checking->checker);
    tocsin_error error;
    if (tocsin_checker_finish(checking->checker, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    return CLI_HOLDS;
}

static bool tell_damage(const cli_checking *checking)
{
    bool damaged = false;
    size_t count = tocsin_run_process_count(checking->run);
    for (size_t i = 0; i < count; i++) {
        damaged = cli_traces_tell_damage(tocsin_run_process(checking->run, i)) || damaged;
    }
    return damaged;
}

/* A damaged recording is an input error unless something worse was found. */
static int verdict_exit_code(const tocsin_check_report *report, bool damaged)
{
    switch (tocsin_report_verdict(report)) {
    case TOCSIN_VERDICT_VIOLATED:
        return CLI_FINDING;
    case TOCSIN_VERDICT_HOLDS:
        return damaged ? CLI_INPUT : CLI_HOLDS;
    case TOCSIN_VERDICT_UNKNOWN:
        break;
    }
    return damaged ? CLI_INPUT : CLI_UNDECIDED;
}

int cli_checking_report(const cli_checking *checking, tocsin_report_format format, bool all,
                        bool partial, FILE *stream)
{
    assert(checking && checking->checker && stream);
    tocsin_check_report report;
    tocsin_error error;

    if (tocsin_report_collect(checking->checker, checking->name, &report, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    report.partial = partial || cli_checking_is_live(checking);
    int exit_code = CLI_HOLDS;
    if (tocsin_report_print(&report, format, all, cli_colour(stream), stream, &error) !=
        TOCSIN_OK) {
        exit_code = cli_fail(&error);
    }
    bool damaged = tell_damage(checking);
    if (exit_code == CLI_HOLDS) {
        exit_code = verdict_exit_code(&report, damaged);
    }
    tocsin_report_release(&report);
    return exit_code;
}

void cli_checking_close(cli_checking *checking)
{
    assert(checking);
    tocsin_checker_free(checking->checker);
    tocsin_run_close(checking->run);
    tocsin_invariants_free(checking->set);
    tocsin_relations_free(checking->relations);
    *checking = (cli_checking){0};
}
