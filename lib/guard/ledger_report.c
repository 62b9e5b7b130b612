/* ledger_report.c - the findings of all ranks' ledgers, each once, and whom they name.
 *
 * Data: a finding is known by what it says (check, step, cause, ranks, tensor, action), not by when
 * and by whom it was written. Invariant: nobody becomes a culprit but by a finding whose cause is a
 * fault of the ranks that it names; a line that names ranks for another cause is damaged.
 * Cost: a look-up a line; a sort by step; for each named rank a look at the culprits.
 */
#include "guard/ledger_report.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void tocsin_guard_report_free(tocsin_guard_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->findings.count; ++i)
        TOCSIN_VEC_FREE(&report->findings.items[i].reporters);
    TOCSIN_VEC_FREE(&report->findings);
    TOCSIN_VEC_FREE(&report->culprits);
    tocsin_intern_free(&report->keys);
    tocsin_arena_free(&report->arena);
    tocsin_string_free(&report->text);
    tocsin_string_free(&report->json);
    tocsin_free(report->folder);
    tocsin_free(report);
}

size_t tocsin_guard_report_ledgers(const tocsin_guard_report *report)
{
    return report->ledgers;
}

size_t tocsin_guard_report_findings(const tocsin_guard_report *report)
{
    return report->findings.count;
}

int tocsin_guard_report_exit(const tocsin_guard_report *report, double since)
{
    int exit_code = 0;
    for (size_t i = 0; i < report->findings.count; ++i) {
        const reported_finding *finding = &report->findings.items[i];
        if (strcmp(finding->action, "stop") != 0 || finding->last_time < since)
            continue;
        if (finding->rank_count > 0)
            return TOCSIN_GUARD_EXIT_NAMED;
        exit_code = TOCSIN_GUARD_EXIT_UNNAMED;
    }
    return exit_code;
}

/* ---- one line ---------------------------------------------------------------------------------
 */

static const char *copy(tocsin_guard_report *report, const char *text)
{
    return tocsin_arena_copy(&report->arena, text, strlen(text));
}

static const char *text_member(const tocsin_json_value *value, const char *key)
{
    return tocsin_json_get_text(tocsin_json_get_member(value, key));
}

/* Is it a finding, and are ranks named if and only if they are at fault? */
static bool is_finding(const tocsin_json_value *value)
{
    int64_t step, rank;
    const char *check = text_member(value, "check"), *cause = text_member(value, "cause");
    const tocsin_json_value *ranks = tocsin_json_get_member(value, "ranks");
    if (!check || !cause || !text_member(value, "text") || !text_member(value, "action") ||
        !tocsin_json_get_integer(tocsin_json_get_member(value, "step"), &step) || step < 0 ||
        tocsin_json_get_kind(ranks) != TOCSIN_JSON_ARRAY || tocsin_guard_check_number(check) < 0 ||
        tocsin_guard_cause_number(cause) < 0)
        return false;
    size_t count = tocsin_json_get_count(ranks);
    for (size_t i = 0; i < count; ++i)
        if (!tocsin_json_get_integer(tocsin_json_get_item(ranks, i), &rank) || rank < 0 ||
            rank >= TOCSIN_GUARD_RANKS_MAX)
            return false;
    int number = tocsin_guard_cause_number(cause);
    bool fault = number == TOCSIN_GUARD_TRANSIENT || number == TOCSIN_GUARD_PERSISTENT;
    return fault == (count > 0) && count <= TOCSIN_GUARD_RANKS_MAX;
}

static bool make_key(const tocsin_json_value *value, tocsin_string *key)
{
    static const char *const members[] = {"check", "cause", "action", "tensor"};
    const tocsin_json_value *ranks = tocsin_json_get_member(value, "ranks");
    int64_t number = 0;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(members); ++i) {
        const char *text = text_member(value, members[i]);
        tocsin_string_append(key, text ? text : "", text ? strlen(text) + 1 : 1);
    }
    tocsin_json_get_integer(tocsin_json_get_member(value, "step"), &number);
    tocsin_string_printf(key, "%" PRId64, number);
    for (size_t i = 0; i < tocsin_json_get_count(ranks); ++i) {
        tocsin_json_get_integer(tocsin_json_get_item(ranks, i), &number);
        tocsin_string_printf(key, " %" PRId64, number);
    }
    return key->status == TOCSIN_OK;
}

/* The i-th text of each rank, "" where there is none. */
static const char *const *read_places(tocsin_guard_report *report, const tocsin_json_value *list,
                                      size_t count)
{
    const char **texts = TOCSIN_ARENA_ARRAY(&report->arena, const char *, count);
    for (size_t i = 0; texts && i < count; ++i) {
        const char *text = tocsin_json_get_text(tocsin_json_get_item(list, i));
        texts[i] = copy(report, text ? text : "");
        if (!texts[i])
            return NULL;
    }
    return texts;
}

static bool read_finding(tocsin_guard_report *report, const ledger_line *line,
                         reported_finding *finding)
{
    const tocsin_json_value *value = line->value;
    const tocsin_json_value *ranks = tocsin_json_get_member(value, "ranks");
    const tocsin_json_value *window = tocsin_json_get_member(value, "suspect_window");
    size_t count = tocsin_json_get_count(ranks);
    int64_t *numbers = TOCSIN_ARENA_ARRAY(&report->arena, int64_t, count);
    *finding = (reported_finding){
        .json = tocsin_arena_copy(&report->arena, line->json, line->bytes),
        .check = copy(report, text_member(value, "check")),
        .cause = copy(report, text_member(value, "cause")),
        .action = copy(report, text_member(value, "action")),
        .text = copy(report, text_member(value, "text")),
        .ranks = numbers,
        .hosts = read_places(report, tocsin_json_get_member(value, "hosts"), count),
        .devices = read_places(report, tocsin_json_get_member(value, "devices"), count),
        .rank_count = count,
        .order = report->findings.count,
    };
    if (!finding->json || !finding->check || !finding->cause || !finding->action ||
        !finding->text || !numbers || !finding->hosts || !finding->devices)
        return false;
    for (size_t i = 0; i < count; ++i)
        tocsin_json_get_integer(tocsin_json_get_item(ranks, i), &numbers[i]);
    tocsin_json_get_integer(tocsin_json_get_member(value, "step"), &finding->step);
    for (size_t i = 0; i < 2; ++i)
        if (!tocsin_json_get_integer(tocsin_json_get_item(window, i), &finding->window[i]))
            finding->window[0] = finding->window[1] = 0;
    return true;
}

static bool add_finding(tocsin_guard_report *report, const ledger_line *line,
                        const tocsin_string *key)
{
    uint32_t id = tocsin_intern_find(&report->keys, key->text, key->bytes);
    if (id == 0) {
        reported_finding finding;
        if (!TOCSIN_VEC_RESERVE(&report->findings, 1) || !read_finding(report, line, &finding) ||
            tocsin_intern_put(&report->keys, key->text, key->bytes) == 0)
            return false;
        report->findings.items[report->findings.count++] = finding;
        id = (uint32_t)report->findings.count;
    }
    reported_finding *finding = &report->findings.items[id - 1];
    double moment = 0.0;
    tocsin_json_get_real(tocsin_json_get_member(line->value, "time"), &moment);
    finding->last_time = moment > finding->last_time ? moment : finding->last_time;
    size_t reporters = finding->reporters.count;
    if (reporters > 0 && finding->reporters.items[reporters - 1] == report->rank)
        return true; /* said twice by one rank */
    return TOCSIN_VEC_PUSH(&finding->reporters, report->rank);
}

static tocsin_status visit_line(void *context, const ledger_line *line, tocsin_error *error)
{
    tocsin_guard_report *report = context;
    tocsin_string key = {0};
    if (!is_finding(line->value)) {
        ++report->damaged;
        return TOCSIN_OK;
    }
    if (report->findings.count == TOCSIN_GUARD_REPORT_FINDINGS_MAX)
        return tocsin_error_at(error, TOCSIN_E_LIMIT, line->path, -1, "more than %u findings",
                               TOCSIN_GUARD_REPORT_FINDINGS_MAX);
    bool good = make_key(line->value, &key) && add_finding(report, line, &key);
    tocsin_string_free(&key);
    return good ? TOCSIN_OK : tocsin_error_memory(error);
}

/* ---- all files --------------------------------------------------------------------------------
 */

/* The rank of a ledger of this name, or -1. */
static int64_t rank_of(const char *name)
{
    int64_t rank = 0;
    if (strncmp(name, "rank-", 5) != 0)
        return -1;
    size_t digits = strspn(name + 5, "0123456789");
    if (digits == 0 || digits > 6 || (digits > 1 && name[5] == '0') ||
        strcmp(name + 5 + digits, ".jsonl") != 0)
        return -1;
    for (size_t i = 0; i < digits; ++i)
        rank = 10 * rank + name[5 + i] - '0';
    return rank;
}

typedef TOCSIN_VEC(int64_t) rank_list;

static tocsin_status list_ranks(const char *folder, rank_list *ranks, tocsin_error *error)
{
    DIR *directory = tocsin_fault_hit(TOCSIN_FAULT_IO) ? (errno = EIO, NULL) : opendir(folder);
    if (!directory)
        return tocsin_error_system(error, "open", folder);
    bool good = true;
    for (struct dirent *entry = readdir(directory); good && entry; entry = readdir(directory)) {
        int64_t rank = rank_of(entry->d_name);
        good = rank < 0 || TOCSIN_VEC_PUSH(ranks, rank);
    }
    closedir(directory);
    return good ? TOCSIN_OK : tocsin_error_memory(error);
}

static int compare_ranks(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static tocsin_status read_ledger(tocsin_guard_report *report, int64_t rank, tocsin_error *error)
{
    ledger_summary summary;
    tocsin_string path = {0};
    tocsin_string_printf(&path, "%s/rank-%" PRId64 ".jsonl", report->folder, rank);
    report->rank = rank;
    tocsin_status status = tocsin_string_check(&path, error);
    if (status == TOCSIN_OK)
        status = tocsin_ledger_read(path.text, visit_line, report, &summary, error);
    tocsin_string_free(&path);
    if (status != TOCSIN_OK)
        return status;
    ++report->ledgers;
    report->damaged += summary.damaged;
    report->torn += summary.torn_bytes > 0;
    return TOCSIN_OK;
}

static int compare_findings(const void *a, const void *b)
{
    const reported_finding *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static named_rank *culprit_of(tocsin_guard_report *report, const reported_finding *finding,
                              size_t i)
{
    for (size_t c = 0; c < report->culprits.count; ++c) {
        named_rank *there = &report->culprits.items[c];
        if (there->rank == finding->ranks[i] && strcmp(there->host, finding->hosts[i]) == 0)
            return there;
    }
    const named_rank added = {.rank = finding->ranks[i],
                              .host = finding->hosts[i],
                              .device = finding->devices[i],
                              .last_step = -1};
    return TOCSIN_VEC_PUSH(&report->culprits, added)
               ? &report->culprits.items[report->culprits.count - 1]
               : NULL;
}

/* Findings are in order of steps: one step counts once, and as persistent if anything says so. */
static tocsin_status name_culprits(tocsin_guard_report *report, tocsin_error *error)
{
    for (size_t f = 0; f < report->findings.count; ++f) {
        const reported_finding *finding = &report->findings.items[f];
        bool persistent = tocsin_guard_cause_number(finding->cause) == TOCSIN_GUARD_PERSISTENT;
        for (size_t i = 0; i < finding->rank_count; ++i) {
            named_rank *culprit = culprit_of(report, finding, i);
            if (!culprit)
                return tocsin_error_memory(error);
            if (report->culprits.count > TOCSIN_GUARD_REPORT_CULPRITS_MAX)
                return tocsin_error_at(error, TOCSIN_E_LIMIT, report->folder, -1,
                                       "more than %d ranks are named",
                                       TOCSIN_GUARD_REPORT_CULPRITS_MAX);
            culprit->persistent += persistent;
            culprit->transient += !persistent && culprit->last_step != finding->step;
            culprit->last_step = finding->step;
        }
    }
    return TOCSIN_OK;
}

static tocsin_status read_all(tocsin_guard_report *report, tocsin_error *error)
{
    rank_list ranks = {0};
    tocsin_status status = list_ranks(report->folder, &ranks, error);
    if (ranks.count > 0)
        qsort(ranks.items, ranks.count, sizeof *ranks.items, compare_ranks);
    for (size_t i = 0; status == TOCSIN_OK && i < ranks.count; ++i)
        status = read_ledger(report, ranks.items[i], error);
    TOCSIN_VEC_FREE(&ranks);
    if (status != TOCSIN_OK)
        return status;
    if (report->findings.count > 0)
        qsort(report->findings.items, report->findings.count, sizeof *report->findings.items,
              compare_findings);
    return name_culprits(report, error);
}

tocsin_status tocsin_guard_report_read(const char *folder, tocsin_guard_report **report,
                                       tocsin_error *error)
{
    *report = NULL;
    tocsin_guard_report *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    made->folder = tocsin_copy_text(folder, strlen(folder));
    made->keys.limit_count = TOCSIN_GUARD_REPORT_FINDINGS_MAX;
    tocsin_status status = made->folder ? read_all(made, error) : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        *report = made;
    else
        tocsin_guard_report_free(made);
    return status;
}
