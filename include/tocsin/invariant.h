/* tocsin/invariant.h - training invariants: what must hold, and when.
 *
 * One shape for all relations. A relation turns the events of a run into *instances*: each belongs
 * to a population ("every call of optimizer.step", "every trainable parameter at optimizer.step",
 * "every pair of replicas of a parameter after optimizer.step"), has *fields* (arguments, flags of
 * the variable, meta variables) and makes a set of *facts* true ("calls clip_grad", "data
 * changed", "equal"). An invariant is: population, precondition over fields, fact.
 * File format: docs/formats/invariants.md (JSON Lines).
 *
 * Threads: a set is immutable after loading or inferring and may be shared.
 */
#ifndef TOCSIN_INVARIANT_H
#define TOCSIN_INVARIANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_invariant_set tocsin_invariant_set;

/* Read a file of invariants; later files may be added with _append. Every line is checked against
 * the format and limits. Errors: E_NOT_FOUND, E_IO, E_FORMAT (line in the message), E_VERSION,
 * E_LIMIT, E_MEMORY. Free with _free (accepts NULL). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_load(const char *path,
                                                                  tocsin_invariant_set **set,
                                                                  tocsin_error *error);
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_append(tocsin_invariant_set *set,
                                                                    const char *path,
                                                                    tocsin_error *error);
/* Write the set to `path` ("-": stdout), deterministically, through a temporary file and a rename.
 * Errors: E_IO, E_EXISTS (path exists and not `force`), E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_save(const tocsin_invariant_set *set,
                                                                  const char *path, int force,
                                                                  tocsin_error *error);
TOCSIN_API void tocsin_invariants_free(tocsin_invariant_set *set);

TOCSIN_API size_t tocsin_invariants_count(const tocsin_invariant_set *set);
/* Stable id of invariant `index` ("inv-1f3a...": from its content), its relation's name, and what
 * it says in one English sentence. Owned by the set. */
TOCSIN_API const char *tocsin_invariant_id(const tocsin_invariant_set *set, size_t index);
TOCSIN_API const char *tocsin_invariant_relation(const tocsin_invariant_set *set, size_t index);
TOCSIN_API const char *tocsin_invariant_sentence(const tocsin_invariant_set *set, size_t index);
/* Instances that supported it when it was inferred, and runs they came from (0: hand-written). */
TOCSIN_API void tocsin_invariant_support(const tocsin_invariant_set *set, size_t index,
                                         uint64_t *instances, uint32_t *runs);
/* How many of these runs, left out while the others were learned from, confirmed it; 0: not known.
 */
TOCSIN_API uint32_t tocsin_invariant_held_out(const tocsin_invariant_set *set, size_t index);

/* What it is about: the code of its findings ("TOC003"), and the function or role whose calls it
 * speaks of ("optimizer.step"; "": none). Owned by the set or static. */
TOCSIN_API const char *tocsin_invariant_code(const tocsin_invariant_set *set, size_t index);
TOCSIN_API const char *tocsin_invariant_call(const tocsin_invariant_set *set, size_t index);
/* The function or role that it says is called between two calls of that one; "": it says nothing of
 * the kind. */
TOCSIN_API const char *tocsin_invariant_between(const tocsin_invariant_set *set, size_t index);
/* The one that it says is called after each call of that one, also after the last; "": nothing. */
TOCSIN_API const char *tocsin_invariant_after(const tocsin_invariant_set *set, size_t index);
/* What its violation points to, in words ("gradient missing"), and how grave that is: "error" (the
 * state of training is wrong) or "warning" (something is done otherwise than it always was). */
TOCSIN_API const char *tocsin_invariant_cause(const tocsin_invariant_set *set, size_t index);
TOCSIN_API const char *tocsin_invariant_severity(const tocsin_invariant_set *set, size_t index);
/* How many bytes of its sentence say what must hold; the condition and the full stop follow. Two
 * invariants may claim the same under different conditions. 0 when out of memory. */
TOCSIN_API size_t tocsin_invariant_claim_bytes(const tocsin_invariant_set *set, size_t index);
/* Is there one with this id? */
TOCSIN_API bool tocsin_invariants_has(const tocsin_invariant_set *set, const char *id);
/* Keep those for which `keep` says true, in their order. Errors: E_MEMORY; then the set is only
 * good for being freed. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_keep(
    tocsin_invariant_set *set,
    bool (*keep)(const void *context, const tocsin_invariant_set *set, size_t index),
    const void *context, tocsin_error *error);

/* Write what a recorder must record so that the set can be checked: docs/formats/selection.md. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_write_selection(
    const tocsin_invariant_set *set, const char *path, tocsin_error *error);

/* Finding codes: one per relation, stable; `tocsin explain TOC001`. Static texts. */
typedef struct tocsin_code {
    const char *code;        /* "TOC001" */
    const char *relation;    /* "Consistent" */
    const char *title;       /* one line */
    const char *explanation; /* what it means and what to do; lines of prose */
} tocsin_code;

/* Code `index` from 0, in ascending order; NULL after the last. */
TOCSIN_API const tocsin_code *tocsin_code_at(size_t index);
/* NULL when there is no such code. */
TOCSIN_API const tocsin_code *tocsin_code_find(const char *code);

#ifdef __cplusplus
}
#endif
#endif
