/* lib/exchange/traincheck_translation.h - one invariant of TrainCheck becoming one of ours. */
#ifndef TOCSIN_TRAINCHECK_TRANSLATION_H
#define TOCSIN_TRAINCHECK_TRANSLATION_H

#include <exchange/exchange.h>
#include <invariant/instance.h>

#define TOCSIN_TRANSLATION_CONJUNCTIONS_MAX 64u
#define TOCSIN_TRANSLATION_FACTS_MAX        32u

typedef struct tocsin_translation {
    tocsin_vocabulary *vocabulary;
    const tocsin_json_value *root;
    const tocsin_json_value *params[3];
    const char *group; /* the part of an example that the precondition speaks of */
    bool pair;
    tocsin_population_key population;
    tocsin_fact_key fact;
    tocsin_fact_key more[TOCSIN_TRANSLATION_FACTS_MAX]; /* each an invariant, too */
    uint32_t more_count;
    tocsin_clause also[2]; /* what every part of the precondition gets besides; kind 0: none */
    tocsin_arena arena;
    tocsin_conjunction any[TOCSIN_TRANSLATION_CONJUNCTIONS_MAX];
    uint32_t any_count;
    bool unconditional;
    bool inverted;
    bool no_memory;
    const char *why; /* there is no translation */
} tocsin_translation;

/* Note why there is none; the first reason stays. Returns NULL. */
void *tocsin_translation_refuse(tocsin_translation *made, const char *why);
/* The member's text; NULL when it is none. */
const char *tocsin_json_member_text(const tocsin_json_value *object, const char *key);
bool tocsin_json_member_is(const tocsin_json_value *object, const char *key, const char *text);
tocsin_symbol tocsin_translation_symbol(tocsin_translation *made, const char *text);
/* A plain value as a scalar: 128.0 is 128, None is None, "torch.float32" of a field called dtype is
 * "float32". 0: it is none, which is refused. */
tocsin_scalar tocsin_translation_scalar(tocsin_translation *made, const char *field,
                                        const tocsin_json_value *value);

/* traincheck_relation_read.c: root -> population, fact, group, also. */
void tocsin_translation_take_relation(tocsin_translation *made);
/* traincheck_clause_read.c: root, group -> any, inverted. */
void tocsin_translation_take_precondition(tocsin_translation *made);
/* Add the clauses `also` to the precondition. */
void tocsin_translation_add_also(tocsin_translation *made);
/* And, of variables, where the data are not the first that were seen. */
void tocsin_translation_leave_out_first(tocsin_translation *made);

#endif
