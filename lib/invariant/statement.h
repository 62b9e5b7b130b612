/* lib/invariant/statement.h - which facts can be stated of which populations, and their members.
 * Inside the module only. */
#ifndef TOCSIN_STATEMENT_H
#define TOCSIN_STATEMENT_H

#include <invariant/instance.h>

typedef enum tocsin_population_members {
    TOCSIN_MEMBERS_NONE,
    TOCSIN_MEMBERS_CALL,     /* role or name */
    TOCSIN_MEMBERS_REPLICA,  /* variable, name (attribute), role, moment */
    TOCSIN_MEMBERS_VARIABLE, /* variable */
    TOCSIN_MEMBERS_USER,     /* name: "relation/subject" */
    TOCSIN_MEMBERS_ARGUMENT  /* name */
} tocsin_population_members;

typedef enum tocsin_fact_members {
    TOCSIN_FACT_MEMBERS_NONE,
    TOCSIN_FACT_MEMBERS_CALLEE,   /* role or name */
    TOCSIN_FACT_MEMBERS_FIELD,    /* name */
    TOCSIN_FACT_MEMBERS_VALUE,    /* name, value */
    TOCSIN_FACT_MEMBERS_OTHER,    /* name, other */
    TOCSIN_FACT_MEMBERS_ARGUMENT, /* role or name; other, value */
    TOCSIN_FACT_MEMBERS_CLAIM     /* name: words */
} tocsin_fact_members;

typedef struct tocsin_population_trait {
    const char *slug;
    tocsin_relation_kind relation;
    bool pair;
    tocsin_population_members members;
} tocsin_population_trait;

const tocsin_population_trait *tocsin_population_get_trait(uint8_t kind);
const char *tocsin_predicate_slug(uint8_t predicate); /* NULL: no such number */
tocsin_fact_members tocsin_predicate_members(uint8_t predicate);

/* Can this predicate be stated of this kind of population? */
bool tocsin_statement_exists(uint8_t kind, uint8_t predicate);

/* "parameter", "buffer", "optimizer state" in files of invariants; NULL: no such kind there. */
const char *tocsin_variable_slug(uint8_t kind);

/* "None", "True", "3", "0.1", "'mean'". */
void tocsin_scalar_say(const tocsin_vocabulary *vocabulary, tocsin_scalar scalar,
                       tocsin_string *out);

#endif
