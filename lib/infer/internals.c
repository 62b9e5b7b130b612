/* Which functions are machinery: called inside an update, clipping, clearing or a schedule.
 *
 * Adam's square roots, the norms of clip_grad_norm_ and a schedule's tensors belong to that
 * optimizer or utility in that version and on that device; another healthy run may use others. What
 * runs inside is known from the tables of calls ("calls G", direct callees): the machinery is what
 * can be reached from those verbs. A step that runs backward itself (a closure, as in LBFGS) would
 * reach the model and is left out. Cost: O(facts of call tables), each table once. */
#include <assert.h>
#include <infer/infer.h>

typedef TOCSIN_VEC(const tocsin_table *) table_list;

static tocsin_table *find_table(const tocsin_examples *examples, tocsin_population population)
{
    const uint64_t *slot = tocsin_map_find(&examples->table_index, population);
    return slot != NULL ? examples->tables.items[*slot - 1] : NULL;
}

static bool runs_backward(const tocsin_vocabulary *vocabulary, const tocsin_table *table)
{
    for (size_t i = 0; i < table->facts.count; ++i)
        if (tocsin_fact_get_key(vocabulary, table->facts.items[i]).role == TOCSIN_ROLE_BACKWARD)
            return true;
    return false;
}

/* Tables of calls of the verbs, from which the search starts. */
static bool push_verbs(const tocsin_examples *examples, table_list *open)
{
    static const uint8_t verbs[] = {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_ROLE_CLIP_GRAD,
                                    TOCSIN_ROLE_ZERO_GRAD, TOCSIN_ROLE_SCHEDULER_STEP};
    for (size_t i = 0; i < examples->tables.count; ++i) {
        const tocsin_table *table = examples->tables.items[i];
        tocsin_population_key key =
            tocsin_population_get_key(examples->vocabulary, table->population);
        if (key.kind == TOCSIN_POPULATION_CALL && key.role != TOCSIN_ROLE_NONE &&
            memchr(verbs, key.role, sizeof verbs) != NULL &&
            !runs_backward(examples->vocabulary, table) && !TOCSIN_VEC_PUSH(open, table))
            return false;
    }
    return true;
}

/* All populations of the functions that `table` calls become internal; new ones are searched. */
static bool enter_callees(tocsin_examples *examples, const tocsin_table *table, table_list *open)
{
    static const uint8_t kinds[] = {TOCSIN_POPULATION_CALL, TOCSIN_POPULATION_CALL_ARGUMENTS,
                                    TOCSIN_POPULATION_CALL_OUTPUT, TOCSIN_POPULATION_FURTHER_CALL};
    for (size_t i = 0; i < table->facts.count; ++i) {
        tocsin_fact_key fact = tocsin_fact_get_key(examples->vocabulary, table->facts.items[i]);
        for (size_t k = 0; fact.name != 0 && k < sizeof kinds; ++k) {
            tocsin_population_key key = {.kind = kinds[k], .name = fact.name};
            tocsin_population population = tocsin_population_of(examples->vocabulary, &key);
            if (population == 0)
                return false;
            tocsin_table *callee = find_table(examples, population);
            if (callee == NULL || callee->internal)
                continue;
            callee->internal = true;
            if (kinds[k] == TOCSIN_POPULATION_CALL && !TOCSIN_VEC_PUSH(open, callee))
                return false;
        }
    }
    return true;
}

tocsin_status tocsin_examples_mark_internal(tocsin_examples *examples, tocsin_error *error)
{
    table_list open = {0};
    bool complete = push_verbs(examples, &open);
    for (size_t i = 0; complete && i < open.count; ++i) {
        assert(open.count <= examples->tables.count * 2);
        complete = enter_callees(examples, open.items[i], &open);
    }
    TOCSIN_VEC_FREE(&open);
    return complete ? TOCSIN_OK : tocsin_error_memory(error);
}
