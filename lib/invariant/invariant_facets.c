/* What an invariant is about, for those who sort, filter and compare sets of them. */
#include <assert.h>
#include <invariant/invariant_set.h>

const char *tocsin_invariant_code(const tocsin_invariant_set *set, size_t index)
{
    return tocsin_relation_code(
        tocsin_population_relation(set->vocabulary, tocsin_invariants_get(set, index)->population));
}

const char *tocsin_invariant_call(const tocsin_invariant_set *set, size_t index)
{
    tocsin_population_key key =
        tocsin_population_get_key(set->vocabulary, tocsin_invariants_get(set, index)->population);
    if (key.kind == TOCSIN_POPULATION_COLLECTIVES)
        return tocsin_role_name(TOCSIN_ROLE_COLLECTIVE);
    if (key.kind == TOCSIN_POPULATION_USER_CALL)
        return tocsin_role_name(TOCSIN_ROLE_USER);
    if (key.role != TOCSIN_ROLE_NONE)
        return tocsin_role_name((tocsin_role)key.role);
    bool function = key.name != 0 && key.kind != TOCSIN_POPULATION_USER;
    return function ? tocsin_symbol_text(set->vocabulary, key.name) : "";
}

static const char *callee_of(const tocsin_invariant_set *set, size_t index,
                             tocsin_predicate predicate)
{
    tocsin_fact_key fact =
        tocsin_fact_get_key(set->vocabulary, tocsin_invariants_get(set, index)->fact);
    if (fact.predicate != predicate)
        return "";
    return fact.role != TOCSIN_ROLE_NONE ? tocsin_role_name((tocsin_role)fact.role)
                                         : tocsin_symbol_text(set->vocabulary, fact.name);
}

const char *tocsin_invariant_between(const tocsin_invariant_set *set, size_t index)
{
    return callee_of(set, index, TOCSIN_PREDICATE_FOLLOWS);
}

const char *tocsin_invariant_after(const tocsin_invariant_set *set, size_t index)
{
    return callee_of(set, index, TOCSIN_PREDICATE_LEADS);
}

const char *tocsin_invariant_cause(const tocsin_invariant_set *set, size_t index)
{
    return tocsin_cause_of(set->vocabulary, tocsin_invariants_get(set, index), NULL);
}

const char *tocsin_invariant_severity(const tocsin_invariant_set *set, size_t index)
{
    return tocsin_severity_of(set->vocabulary, tocsin_invariants_get(set, index));
}

size_t tocsin_invariant_claim_bytes(const tocsin_invariant_set *set, size_t index)
{
    tocsin_invariant claim = *tocsin_invariants_get(set, index);
    tocsin_string text = {0};
    claim.when = (tocsin_precondition){.count = 0};
    tocsin_invariant_say(set->vocabulary, &claim, &text);
    size_t bytes = text.status == TOCSIN_OK ? text.bytes - 1 : 0; /* without the full stop */
    tocsin_string_free(&text);
    return bytes;
}

bool tocsin_invariants_has(const tocsin_invariant_set *set, const char *id)
{
    return tocsin_intern_find(&set->ids, id, strlen(id)) != 0;
}

tocsin_status tocsin_invariants_keep(tocsin_invariant_set *set,
                                     bool (*keep)(const void *context,
                                                  const tocsin_invariant_set *set, size_t index),
                                     const void *context, tocsin_error *error)
{
    tocsin_intern ids = {.limit_count = set->ids.limit_count};
    size_t kept = 0;
    for (size_t i = 0; i < set->entries.count; ++i) {
        if (!keep(context, set, i))
            continue;
        set->entries.items[kept] = set->entries.items[i]; /* kept <= i: that one was asked about */
        const char *id = set->entries.items[kept++].id;
        if (tocsin_intern_put(&ids, id, strlen(id)) == 0) {
            tocsin_intern_free(&ids);
            return tocsin_error_memory(error);
        }
    }
    set->entries.count = kept;
    tocsin_intern_free(&set->ids);
    set->ids = ids;
    return TOCSIN_OK;
}
