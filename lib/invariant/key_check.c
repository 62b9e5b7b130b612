/* Keys of populations and facts that came from a file: could an observer have made them? And is the
 * file of a build in which their numbers mean the same? */
#include <invariant/instance.h>
#include <invariant/statement.h>

/* A role, or a function's name. */
static bool is_callable(uint8_t role, tocsin_symbol name)
{
    return role != TOCSIN_ROLE_NONE ? tocsin_role_name((tocsin_role)role)[0] != 0 : name != 0;
}

bool tocsin_population_key_exists(const tocsin_population_key *key)
{
    if (key->kind == 0 || key->kind >= TOCSIN_POPULATION_KIND_COUNT)
        return false;
    const tocsin_population_trait *trait = tocsin_population_get_trait(key->kind);
    if (trait->slug == NULL)
        return false;
    switch (trait->members) {
    case TOCSIN_MEMBERS_CALL:
        return is_callable(key->role, key->name);
    case TOCSIN_MEMBERS_REPLICA:
        return key->role != TOCSIN_ROLE_NONE && is_callable(key->role, 0) && key->name != 0 &&
               key->variable >= TOCSIN_VARIABLE_PARAMETER &&
               key->variable <= TOCSIN_VARIABLE_OPTIMIZER_STATE &&
               (key->moment == TOCSIN_MOMENT_ENTER || key->moment == TOCSIN_MOMENT_EXIT);
    case TOCSIN_MEMBERS_VARIABLE:
        return key->variable >= TOCSIN_VARIABLE_PARAMETER &&
               key->variable <= TOCSIN_VARIABLE_OPTIMIZER_STATE;
    case TOCSIN_MEMBERS_USER:
    case TOCSIN_MEMBERS_ARGUMENT:
        return key->name != 0;
    default:
        return true;
    }
}

bool tocsin_fact_key_exists(uint8_t kind, const tocsin_fact_key *key)
{
    if (key->predicate == 0 || key->predicate >= TOCSIN_PREDICATE_COUNT || key->zero != 0 ||
        !tocsin_statement_exists(kind, key->predicate))
        return false;
    switch (tocsin_predicate_members(key->predicate)) {
    case TOCSIN_FACT_MEMBERS_CALLEE:
        return is_callable(key->role, key->name);
    case TOCSIN_FACT_MEMBERS_ARGUMENT:
        return is_callable(key->role, key->name) && key->other != 0 && key->value != 0;
    case TOCSIN_FACT_MEMBERS_FIELD:
    case TOCSIN_FACT_MEMBERS_CLAIM:
        return key->name != 0;
    case TOCSIN_FACT_MEMBERS_VALUE:
        return key->name != 0 && key->value != 0;
    case TOCSIN_FACT_MEMBERS_OTHER:
        return key->name != 0 && key->other != 0;
    default:
        return true;
    }
}

uint64_t tocsin_keys_fingerprint(void)
{
    uint64_t hash = TOCSIN_POPULATION_KIND_COUNT;
    for (uint8_t kind = 1; kind < TOCSIN_POPULATION_KIND_COUNT; ++kind) {
        const tocsin_population_trait *trait = tocsin_population_get_trait(kind);
        if (trait->slug == NULL) /* a number that is not in use */
            continue;
        hash = tocsin_hash64(trait->slug, strlen(trait->slug), hash + trait->relation + kind);
    }
    for (uint8_t predicate = 1; predicate < TOCSIN_PREDICATE_COUNT; ++predicate) {
        const char *slug = tocsin_predicate_slug(predicate);
        if (slug != NULL)
            hash = tocsin_hash64(slug, strlen(slug), hash + predicate);
    }
    return hash;
}
