/* lib/guard/guard.h - layer 3: decisions about the evidence of guarded steps. Internal to it.
 *
 *   finding.c           a finding: its memory, its invariant, its JSON
 *   gradient_check.c    check 1: NaN and Inf in gradients
 *   vote.c              check 3: replicas that differ
 *   replay_batches.c    check 2: runs sorted by batch, and what each batch shows
 *   replay_request.c    which runs are still wanted
 *   replay_judge.c      the verdict on a replay
 *   vertex_cover.c      sets of ranks that would explain all mismatches
 *   comparison.c        a rank that differs from itself
 *   ledger.c            the file of findings
 */
#ifndef TOCSIN_GUARD_INTERNAL_H
#define TOCSIN_GUARD_INTERNAL_H

#include <base/base.h>
#include <tocsin/guard.h>

/* ---- finding.c ----------------------------------------------------------------------------- */

/* A finding as it is put together. Zero is empty; ended by _finish or _free. */
typedef struct finding_draft {
    tocsin_guard_finding content; /* its texts and arrays: borrowed until _finish copies them */
    TOCSIN_VEC(uint32_t) ranks;
    tocsin_string text;
    tocsin_string evidence;
    tocsin_json json; /* into evidence; the outer object is open */
} finding_draft;

void tocsin_draft_begin(finding_draft *draft, tocsin_guard_check check, tocsin_guard_moment moment,
                        size_t replicas);
/* Make the finding, and free the draft whether that succeeds or not. */
tocsin_status tocsin_draft_finish(finding_draft *draft, tocsin_guard_finding **finding,
                                  tocsin_error *error);
void tocsin_draft_free(finding_draft *draft);
/* "rank 3", "ranks 1, 2 and 7", the first few of many. */
void tocsin_draft_ranks_text(tocsin_string *text, const uint32_t *ranks, size_t count);
/* A member of the open object: a list of ranks, a digest as three numbers in hex. */
void tocsin_draft_put_ranks(tocsin_json *json, const char *key, const uint32_t *ranks,
                            size_t count);
void tocsin_draft_put_digest(tocsin_json *json, const char *key, tocsin_digest digest);
/* TRANSIENT, or PERSISTENT if one of the ranks was named before. */
tocsin_guard_cause tocsin_draft_cause(const finding_draft *draft, const uint32_t *named,
                                      size_t named_count);

/* ---- ledger.c ------------------------------------------------------------------------------ */

typedef struct ledger_line {
    const char *path;
    uint64_t number; /* of the line in the file, from 1 */
    const char *json;
    size_t bytes;
    const tocsin_json_value *value; /* an object */
} ledger_line;

typedef tocsin_status ledger_visitor(void *context, const ledger_line *line, tocsin_error *error);

/* What was read, and what could not be. */
typedef struct ledger_summary {
    uint64_t lines;   /* visited */
    uint64_t damaged; /* complete lines that are no JSON objects: half written, then went on */
    uint64_t first_damaged; /* its number; 0: none */
    uint64_t torn_bytes;    /* of a last line that was never completed */
} ledger_summary;

/* Every line of a ledger, the header not among them. Errors: those of the visitor, E_NOT_FOUND,
 * E_IO, E_FORMAT and E_VERSION (the header), E_LIMIT (a long line), E_MEMORY. */
tocsin_status tocsin_ledger_read(const char *path, ledger_visitor *visit, void *context,
                                 ledger_summary *summary, tocsin_error *error);

static inline bool digest_equal(const tocsin_digest *a, const tocsin_digest *b)
{
    return a->sum == b->sum && a->exclusive == b->exclusive && a->polynomial == b->polynomial;
}

/* Their order is by members; it means nothing but is the same everywhere. */
static inline int digest_compare(const tocsin_digest *a, const tocsin_digest *b)
{
    if (a->sum != b->sum)
        return a->sum < b->sum ? -1 : 1;
    if (a->exclusive != b->exclusive)
        return a->exclusive < b->exclusive ? -1 : 1;
    return (a->polynomial > b->polynomial) - (a->polynomial < b->polynomial);
}

#endif
