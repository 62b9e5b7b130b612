/* atom.c - interning of atoms.
 *
 * The key of an atom is its kind and: the name (INPUT), the operator, output number and operands
 * (CALL), or the defining relation (DEFINED). Shape and op are facts about it, set when it is new.
 * Cost: a hash of 2 + operands / 2 words.
 */
#include <assert.h>

#include "prove/universe.h"

static uint64_t head_word(uint8_t kind, uint16_t output, uint32_t operand_count)
{
    return (uint64_t)kind | (uint64_t)output << 8 | (uint64_t)operand_count << 32;
}

/* The view of a new atom; the table has given it the next id. */
static tocsin_atom *add_atom(tocsin_universe *universe, const tocsin_atom *model)
{
    tocsin_atom *atom = TOCSIN_ARENA_NEW(&universe->arena, tocsin_atom);
    int64_t *shape = TOCSIN_ARENA_ARRAY(&universe->arena, int64_t, model->ndim);
    tocsin_relation_id *operands =
        TOCSIN_ARENA_ARRAY(&universe->arena, tocsin_relation_id, model->operand_count);
    if (!atom || !shape || !operands || !TOCSIN_VEC_PUSH(&universe->atoms, atom))
        return NULL;
    *atom = *model;
    if (model->ndim)
        memcpy(shape, model->shape, model->ndim * sizeof *shape);
    if (model->operand_count)
        memcpy(operands, model->operands, model->operand_count * sizeof *operands);
    atom->shape = shape;
    atom->operands = operands;
    atom->logical = universe->logical;
    return atom;
}

static tocsin_atom_id intern(tocsin_universe *universe, const uint64_t *words, uint32_t count,
                             const tocsin_atom *model, bool *made)
{
    assert(model->ndim <= TOCSIN_PLAN_NDIM_MAX);
    *made = false;
    if (universe->status != TOCSIN_OK)
        return 0;
    uint32_t id = tocsin_words_put(&universe->atom_table, &universe->arena, words, count, made);
    if (!id)
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    if (*made) {
        if (!add_atom(universe, model))
            return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
        assert(universe->atoms.count == id);
    } else if (universe->logical && !universe->atoms.items[id - 1]->logical) {
        universe->atoms.items[id - 1]->logical = true;
        universe->atoms.items[id - 1]->op = model->op;
    }
    return id;
}

const tocsin_atom *tocsin_atom_get(const tocsin_universe *universe, tocsin_atom_id id)
{
    assert(id > 0 && id <= universe->atoms.count);
    return universe->atoms.items[id - 1];
}

tocsin_atom_id tocsin_atom_builtin(tocsin_universe *universe, uint8_t kind, const int64_t *shape,
                                   uint8_t ndim)
{
    assert(kind == TOCSIN_ATOM_ONE || kind == TOCSIN_ATOM_IOTA);
    const uint64_t words[1] = {head_word(kind, 0, 0)};
    bool made;
    tocsin_atom model = {.kind = kind, .ndim = ndim, .shape = shape, .op = TOCSIN_PLAN_NONE};
    tocsin_atom_id id = intern(universe, words, 1, &model, &made);
    if (id)
        universe->atoms.items[id - 1]->logical = true;
    return id;
}

tocsin_atom_id tocsin_atom_input(tocsin_universe *universe, const char *name, size_t bytes,
                                 const int64_t *shape, uint8_t ndim)
{
    uint32_t string = tocsin_intern_put(&universe->strings, name, bytes);
    if (!string)
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    const uint64_t words[2] = {head_word(TOCSIN_ATOM_INPUT, 0, 0), string};
    bool made;
    tocsin_atom model = {.kind = TOCSIN_ATOM_INPUT,
                         .name = string,
                         .ndim = ndim,
                         .shape = shape,
                         .op = TOCSIN_PLAN_NONE};
    return intern(universe, words, 2, &model, &made);
}

tocsin_atom_id tocsin_atom_find_input(const tocsin_universe *universe, const char *name,
                                      size_t bytes)
{
    uint32_t string = tocsin_intern_find(&universe->strings, name, bytes);
    const uint64_t words[2] = {head_word(TOCSIN_ATOM_INPUT, 0, 0), string};
    return string ? tocsin_words_find(&universe->atom_table, words, 2) : 0;
}

/* A CALL's key: two words and the operands, two in a word. */
enum { CALL_WORDS_MAX = 2 + TOCSIN_PLAN_OPERANDS_MAX / 2 };

static uint32_t call_key(uint64_t words[CALL_WORDS_MAX], uint32_t operator_key,
                         const tocsin_relation_id *operands, uint32_t operand_count,
                         uint16_t output)
{
    assert(operand_count <= TOCSIN_PLAN_OPERANDS_MAX);
    words[0] = head_word(TOCSIN_ATOM_CALL, output, operand_count);
    words[1] = operator_key;
    for (uint32_t i = 0; i < operand_count; i += 2) {
        uint64_t second = i + 1 < operand_count ? operands[i + 1] : 0;
        words[2 + i / 2] = operands[i] | second << 32;
    }
    return 2 + (operand_count + 1) / 2;
}

tocsin_atom_id tocsin_atom_call(tocsin_universe *universe, uint32_t operator_key, const char *name,
                                const tocsin_relation_id *operands, uint32_t operand_count,
                                uint16_t output, const int64_t *shape, uint8_t ndim, uint32_t op,
                                bool *made)
{
    uint64_t words[CALL_WORDS_MAX];
    uint32_t count = call_key(words, operator_key, operands, operand_count, output);
    uint32_t string = tocsin_intern_put(&universe->strings, name, strlen(name));
    *made = false;
    if (!string)
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    tocsin_atom model = {.kind = TOCSIN_ATOM_CALL,
                         .ndim = ndim,
                         .output = output,
                         .name = string,
                         .operator_key = operator_key,
                         .shape = shape,
                         .operands = operands,
                         .operand_count = operand_count,
                         .op = universe->logical ? op : TOCSIN_PLAN_NONE};
    return intern(universe, words, count, &model, made);
}

tocsin_atom_id tocsin_atom_find_call(const tocsin_universe *universe, uint32_t operator_key,
                                     const tocsin_relation_id *operands, uint32_t operand_count,
                                     uint16_t output)
{
    uint64_t words[CALL_WORDS_MAX];
    uint32_t count = call_key(words, operator_key, operands, operand_count, output);
    return tocsin_words_find(&universe->atom_table, words, count);
}

tocsin_atom_id tocsin_atom_defined(tocsin_universe *universe, tocsin_relation_id definition,
                                   const char *name, uint32_t op, bool *made)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, definition);
    const uint64_t words[2] = {head_word(TOCSIN_ATOM_DEFINED, 0, 1), definition};
    uint32_t string = tocsin_intern_put(&universe->strings, name, strlen(name));
    *made = false;
    if (!string)
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    tocsin_atom model = {.kind = TOCSIN_ATOM_DEFINED,
                         .ndim = relation->ndim,
                         .name = string,
                         .shape = relation->shape,
                         .operands = &definition,
                         .operand_count = 1,
                         .op = universe->logical ? op : TOCSIN_PLAN_NONE};
    return intern(universe, words, 2, &model, made);
}

tocsin_atom_id tocsin_atom_find_defined(const tocsin_universe *universe,
                                        tocsin_relation_id definition)
{
    const uint64_t words[2] = {head_word(TOCSIN_ATOM_DEFINED, 0, 1), definition};
    return tocsin_words_find(&universe->atom_table, words, 2);
}
