/* Preconditions on an instance's fields. Fields are ascending by name: one binary search a clause.
 */
#include <assert.h>
#include <invariant/instance.h>

static const tocsin_field *find_field(const tocsin_field *fields, uint32_t count,
                                      tocsin_symbol name)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fields[middle].name < name)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && fields[low].name == name ? &fields[low] : NULL;
}

bool tocsin_clause_holds(const tocsin_clause *clause, const tocsin_field *fields, uint32_t count)
{
    const tocsin_field *field = find_field(fields, count, clause->field);
    if (field == NULL || field->a == 0 || field->b == 0)
        return false;
    switch (clause->kind) {
    case TOCSIN_CLAUSE_CONSTANT:
        assert(clause->value != 0);
        return field->a == clause->value && field->b == clause->value;
    case TOCSIN_CLAUSE_CONSISTENT:
        return field->a == field->b;
    case TOCSIN_CLAUSE_UNEQUAL:
        return clause->value == 0 ? field->a != field->b
                                  : field->a != clause->value && field->b != clause->value;
    default:
        assert(clause->kind == TOCSIN_CLAUSE_EXIST);
        return true;
    }
}

static bool any_holds(const tocsin_precondition *when, const tocsin_instance *instance)
{
    for (uint32_t i = 0; i < when->count; ++i) {
        const tocsin_conjunction *all = &when->any[i];
        uint32_t held = 0;
        while (held < all->count &&
               tocsin_clause_holds(&all->clauses[held], instance->fields, instance->field_count))
            ++held;
        if (held == all->count)
            return true;
    }
    return false;
}

bool tocsin_precondition_holds(const tocsin_precondition *when, const tocsin_instance *instance)
{
    if (when->count == 0)
        return true;
    return any_holds(when, instance) != when->inverted;
}
