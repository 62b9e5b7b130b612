/* tocsin/check.h - a run against invariants, while it is written or afterwards: one engine. */
#ifndef TOCSIN_CHECK_H
#define TOCSIN_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/invariant.h>
#include <tocsin/status.h>
#include <tocsin/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_checker tocsin_checker;

/* ---- Suppressions: violations that are known and meant, with the reason --------------------- */

/* File format: docs/formats/suppressions.md. Texts are owned by the collection. */
typedef struct tocsin_suppression {
    const char *invariant; /* id; "": any */
    const char *code;      /* "TOC004"; "": any. One of the two is given. */
    const char *entity;    /* pattern of * and ? for the variable or function; "": any */
    const char *reason;    /* never empty */
    const char *until;     /* the last day on which it holds, "2027-01-31" (UTC); "": for ever */
    bool expired;
    uint64_t occurrences; /* violations that it has suppressed */
} tocsin_suppression;

typedef struct tocsin_suppressions tocsin_suppressions;

/* `today` as "2026-11-29": what ended before is kept as expired and suppresses nothing. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_suppressions_new(const char *today, tocsin_suppressions **suppressions, tocsin_error *error);
TOCSIN_API void tocsin_suppressions_free(tocsin_suppressions *suppressions);
/* Add the lines of a file. Errors: E_NOT_FOUND, E_IO, E_FORMAT (line in the message), E_VERSION,
 * E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_suppressions_read(tocsin_suppressions *suppressions, const char *path, tocsin_error *error);
/* Add a copy. E_ARGUMENT, with the reason, when it does not say what, why or until when. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_suppressions_add(
    tocsin_suppressions *suppressions, const tocsin_suppression *suppression, tocsin_error *error);
/* Write all to `path`, replacing it at once. Errors: E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_suppressions_save(
    const tocsin_suppressions *suppressions, const char *path, tocsin_error *error);
TOCSIN_API size_t tocsin_suppressions_count(const tocsin_suppressions *suppressions);
TOCSIN_API const tocsin_suppression *
tocsin_suppressions_get(const tocsin_suppressions *suppressions, size_t index);

/* ---- Checking ------------------------------------------------------------------------------ */

/* One violated invariant (all its occurrences together). Strings are owned by the checker. */
typedef struct tocsin_finding {
    const char *code;      /* stable: "TOC001"; one per relation, see tocsin_code_find */
    const char *invariant; /* id */
    const char *relation;
    const char *sentence; /* the invariant in words */
    const char *rendered; /* the finding in words: what was expected, what was seen, where */
    const char *entity;   /* "fc1.weight", "torch.optim.Optimizer.step" */
    const char *site;     /* "train.py:31 in train" or "" */
    int64_t step;         /* of the first occurrence; -1 when unknown */
    int64_t last_step;
    int32_t rank; /* of the first occurrence; -1: one process, or all */
    int64_t pid;
    uint64_t occurrences;
    const char *cause;    /* "gradient missing" */
    int cause_order;      /* of several causes in a step the smallest is upstream of the others */
    const char *severity; /* "error": the state of training is wrong; "warning": something is done
                             otherwise than it always is */
    double specificity;   /* larger: says more precisely what is wrong */
    uint32_t cluster;     /* from 1: findings that mostly have one cause; known after _finish */
} tocsin_finding;

typedef struct tocsin_check_summary {
    uint64_t holds; /* invariants judged at least once and never violated */
    uint64_t violated;
    uint64_t unknown;    /* never judged: their population or precondition did not occur */
    uint64_t suppressed; /* judged, and violated only where a suppression says so */
    uint64_t events;
    uint64_t instances;
    uint64_t corrupt_blocks;
    uint64_t incomplete_processes; /* files without footer whose process is gone */
} tocsin_check_summary;

/* Why an invariant was never judged. */
typedef enum tocsin_unknown_reason {
    TOCSIN_UNKNOWN_NOT_RECORDED,        /* the recording has no calls, or only selected ones */
    TOCSIN_UNKNOWN_NO_CALL,             /* the call that it speaks of was not made */
    TOCSIN_UNKNOWN_ONE_RANK,            /* it compares ranks, and one alone made the call */
    TOCSIN_UNKNOWN_NO_SUBJECT,          /* the call was made, without what it speaks of */
    TOCSIN_UNKNOWN_CONDITION_NEVER_MET, /* `seen` times its subject, never its condition */
    TOCSIN_UNKNOWN_NO_RELATION          /* it is of a user's relation that was not given */
} tocsin_unknown_reason;

/* An invariant that was never judged. Strings are owned by the checker. */
typedef struct tocsin_unknown {
    const char *invariant; /* id */
    const char *sentence;
    tocsin_unknown_reason reason;
    const char *why; /* the reason in words: "zero_grad was never called" */
    uint64_t seen;
} tocsin_unknown;

/* How often an invariant was judged, and how often it was violated. */
typedef struct tocsin_invariant_counts {
    const char *invariant; /* id; owned by the set */
    uint64_t judged;
    uint64_t violated;
} tocsin_invariant_counts;

typedef struct tocsin_checker_options {
    size_t struct_bytes;
    /* Called at the first occurrence of each finding, while checking; may be NULL. */
    void (*found)(void *context, const tocsin_finding *finding);
    void *context;
} tocsin_checker_options;

/* The set is borrowed and must outlive the checker. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checker_new(const tocsin_invariant_set *set,
                                                              const tocsin_checker_options *options,
                                                              tocsin_checker **checker,
                                                              tocsin_error *error);
/* From here on, what these suppress is not a violation. The checker owns them; once, before the
 * first event. */
TOCSIN_API void tocsin_checker_suppress(tocsin_checker *checker, tocsin_suppressions *suppressions);
/* NULL: there are none. */
TOCSIN_API const tocsin_suppressions *tocsin_checker_suppressions(const tocsin_checker *checker);
/* Evaluate what is in the run now and has not been evaluated yet, up to a tenth of a second's work:
 * the caller may have signals to see to. `*events` (nullable) is how many new events there were; 0:
 * that was all for now. Call again for more, or to follow. A stalled process stalls only what needs
 * its events. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checker_advance(tocsin_checker *checker,
                                                                  tocsin_run *run, uint64_t *events,
                                                                  tocsin_error *error);
/* No more events will come: close the open windows. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checker_finish(tocsin_checker *checker,
                                                                 tocsin_error *error);
TOCSIN_API void tocsin_checker_summary(const tocsin_checker *checker,
                                       tocsin_check_summary *summary);
TOCSIN_API size_t tocsin_checker_finding_count(const tocsin_checker *checker);
/* Finding `index` in report order: by step, in a step by cause, upstream first, then by falling
 * specificity. */
TOCSIN_API const tocsin_finding *tocsin_checker_finding(const tocsin_checker *checker,
                                                        size_t index);
/* Invariants that have not been judged, and why; known after _finish, 0 before. */
TOCSIN_API size_t tocsin_checker_unknown_count(const tocsin_checker *checker);
TOCSIN_API const tocsin_unknown *tocsin_checker_unknown(const tocsin_checker *checker,
                                                        size_t index);
/* "no_call", "one_rank", ... */
TOCSIN_API const char *tocsin_unknown_reason_name(tocsin_unknown_reason reason);
/* Of invariant `index` of the set, so far. */
TOCSIN_API tocsin_invariant_counts tocsin_checker_counts(const tocsin_checker *checker,
                                                         size_t index);
TOCSIN_API void tocsin_checker_free(tocsin_checker *checker);

#ifdef __cplusplus
}
#endif
#endif
