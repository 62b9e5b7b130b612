/* lib/invariant/invariant_set.h - the set from inside, and its JSON. Inside the module only. */
#ifndef TOCSIN_INVARIANT_SET_H
#define TOCSIN_INVARIANT_SET_H

#include <invariant/instance.h>

#define TOCSIN_INVARIANTS_FORMAT  "tocsin-invariants"
#define TOCSIN_INVARIANTS_VERSION 1
#define TOCSIN_INVARIANTS_MAX     (1u << 20) /* in a set */
#define TOCSIN_LINE_BYTES_MAX     (1u << 20)
#define TOCSIN_CONJUNCTIONS_MAX   1024u /* in a precondition */
#define TOCSIN_CLAUSES_MAX        1024u /* in a conjunction */
#define TOCSIN_ID_BYTES           21    /* "inv-" and 16 hexadecimal digits, and a 0 */

typedef struct tocsin_invariant_entry {
    tocsin_invariant invariant; /* clauses in the set's arena */
    char id[TOCSIN_ID_BYTES];
    char *sentence; /* in the arena */
} tocsin_invariant_entry;

struct tocsin_invariant_set {
    tocsin_vocabulary *vocabulary;
    tocsin_arena arena;
    TOCSIN_VEC(tocsin_invariant_entry) entries;
    tocsin_intern ids;                        /* to find duplicates */
    const struct tocsin_relations *relations; /* the user's; NULL: none. Borrowed. */
};

/* The members that define an invariant ("relation" to "when"), appended to an open JSON object. */
void tocsin_invariant_put_json(const tocsin_vocabulary *vocabulary,
                               const tocsin_invariant *invariant, tocsin_json *json);

/* Add the invariants of a text in the format of files; `name` is for errors. */
TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_append_text(tocsin_invariant_set *set,
                                                              const char *name, const char *text,
                                                              size_t bytes, tocsin_error *error);

#endif
