/* compose/composer.h - the state of one verification by parts: inside of the module.
 *
 * Every rank of a scale does the same up to the jobs, which are the parts to be proved; so all that
 * they decide by (the store, the cuts) comes from rank 0.
 */
#ifndef TOCSIN_COMPOSE_COMPOSER_H
#define TOCSIN_COMPOSE_COMPOSER_H

#include "compose/compose.h"

typedef struct tocsin_composer {
    const tocsin_verify_files_options *options;
    tocsin_scale *scale; /* the options', or one rank of its own */
    tocsin_plan *logical, *parallel;
    tocsin_plan_blocks blocks;
    tocsin_logical_index index;
    tocsin_hash128 header;
    tocsin_string store_path;
    tocsin_known before, now; /* of the store; what is proved in this call */
    size_t role_count;
    uint8_t *wanted;          /* by role: it is parsed */
    tocsin_role_parts *parts; /* by role: for those parsed */
    uint8_t *each;            /* by value of the parallel plan */
    uint8_t *changed;         /* by part: it is to be proved */
    tocsin_arena arena;
    uint64_t read_ns;
    uint32_t proved;
} tocsin_composer;

static inline bool tocsin_same_digest(tocsin_hash128 a, tocsin_hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

/* Prove the parts that changed, unless the store has one of the same key. *fits: all are proved.
 * (part_proof.c) */
tocsin_status tocsin_prove_changed(tocsin_composer *one, bool *fits, tocsin_error *error);
/* Add what a proof rests on to the lines of what is known. false: out of memory. */
bool tocsin_note_assumptions(tocsin_known *known, const char *const *lines, size_t count);

#endif
