/* tocsin/align_rules.h - differences between runs that are known and meant, with the reason.
 *
 * A rule accepts the differences at boundaries of an id until a day: tocsin_align_runs makes no
 * pivots of them, counts them, and its report names every rule. A rule is written from what was
 * seen: both values at the time stand in it. Format of the file: docs/formats/align-rules.md.
 *
 * Threads: an object belongs to one thread at a time.
 */
#ifndef TOCSIN_ALIGN_RULES_H
#define TOCSIN_ALIGN_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOCSIN_ALIGN_RULES_MAX 10000

/* Texts are the collection's, never NULL. */
typedef struct tocsin_align_rule {
    const char *id;      /* of boundaries (docs/align.md); * stands for any characters, ? for one */
    const char *because; /* why the difference is meant */
    const char *by;      /* who says so; or "" */
    const char *on;      /* the day it was said: "2026-11-29" */
    const char *until;   /* the last day on which it holds */
    const char *a, *b;   /* what the two runs had there: digests or values */
    bool expired;
} tocsin_align_rule;

typedef struct tocsin_align_rules tocsin_align_rules;

/* None, as of `today`. Errors: E_ARGUMENT (not a date), E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_align_rules_new(const char *today,
                                                                  tocsin_align_rules **rules,
                                                                  tocsin_error *error);
TOCSIN_API void tocsin_align_rules_free(tocsin_align_rules *rules);

/* Add what a file has. Errors: E_NOT_FOUND, E_IO, E_FORMAT (where: file and line), E_VERSION,
 * E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_align_rules_read(tocsin_align_rules *rules,
                                                                   const char *path,
                                                                   tocsin_error *error);
/* Add a copy of one; `expired` is found out. Errors: E_ARGUMENT (no id, no reason, no date),
 * E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_align_rules_add(tocsin_align_rules *rules,
                                                                  const tocsin_align_rule *rule,
                                                                  tocsin_error *error);
/* The file is replaced at once. Errors: E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_align_rules_save(const tocsin_align_rules *rules,
                                                                   const char *path,
                                                                   tocsin_error *error);
TOCSIN_API size_t tocsin_align_rules_count(const tocsin_align_rules *rules);
TOCSIN_API const tocsin_align_rule *tocsin_align_rules_get(const tocsin_align_rules *rules,
                                                           size_t index);
/* Does a rule's id stand for the boundary of this id? */
TOCSIN_API bool tocsin_align_rule_fits(const char *pattern, const char *id);
/* The first that accepts differences at the boundary of this id, or SIZE_MAX. */
TOCSIN_API size_t tocsin_align_rules_find(const tocsin_align_rules *rules, const char *id);

#ifdef __cplusplus
}
#endif
#endif
