/* part_select.c - what of a role, and of the logical model, belongs to a part.
 *
 * Of a role: its operators of the part, the constants that these read, the inputs, and what crosses
 * the part's border. Of the logical model: what the outputs and exports need, back to the imports.
 * Cost: linear in the role's operands for each of its parts (select_role), in what is selected
 * (select_logical).
 */
#include <assert.h>
#include <stdlib.h>

#include "compose/compose.h"

void tocsin_part_selection_free(tocsin_part_selection *selection)
{
    TOCSIN_VEC_FREE(&selection->ops);
    TOCSIN_VEC_FREE(&selection->inputs);
    TOCSIN_VEC_FREE(&selection->imports);
    TOCSIN_VEC_FREE(&selection->exports);
    TOCSIN_VEC_FREE(&selection->outputs);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int by_word(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ---- roles ----------------------------------------------------------------------------------- */

enum { SEEN_READ = 1, SEEN_MADE = 2 };

typedef struct role_selector {
    const tocsin_role_parts *parts;
    const tocsin_cuts *cuts;
    const tocsin_plan_role *role;
    uint32_t part;
    uint8_t *seen; /* by value: SEEN_... */
    tocsin_part_selection *selection;
    bool claimed;
} role_selector;

static bool has_claim(const role_selector *one, uint32_t value)
{
    const tocsin_plan *plan = one->parts->plan;
    const uint32_t name = plan->values.items[one->role->first_value + value].name;
    return tocsin_cuts_find(one->cuts, one->parts->role, tocsin_plan_text(plan, name)) != NULL;
}

/* A value that the part reads. */
static bool read_value(role_selector *one, uint32_t value)
{
    const tocsin_role_parts *parts = one->parts;
    const uint32_t made = parts->producer[value];

    if (one->seen[value] & SEEN_READ)
        return true;
    one->seen[value] |= SEEN_READ;
    if (made == TOCSIN_PLAN_NONE || parts->part[made] == one->part)
        return true;
    if (tocsin_makes_constant(tocsin_role_parts_op(parts, made)))
        return TOCSIN_VEC_PUSH(&one->selection->ops, parts->first_op + made);
    one->claimed &= has_claim(one, value);
    return TOCSIN_VEC_PUSH(&one->selection->imports, value);
}

static bool select_ops(role_selector *one)
{
    const tocsin_role_parts *parts = one->parts;
    bool sound = true;

    for (uint32_t k = 0; k < parts->op_count && sound; k++) {
        if (parts->part[k] != one->part)
            continue;
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        const uint32_t *operands = parts->plan->operands.items + op->first_operand;
        sound = TOCSIN_VEC_PUSH(&one->selection->ops, parts->first_op + k);
        for (uint32_t i = 0; i < op->input_count && sound; i++)
            sound = read_value(one, operands[i]);
        for (uint32_t j = op->input_count; j < (uint32_t)op->input_count + op->output_count; j++) {
            const bool first = !(one->seen[operands[j]] & SEEN_MADE);
            one->seen[operands[j]] |= SEEN_MADE;
            if (!first || !parts->crosses[operands[j]])
                continue;
            one->claimed &= has_claim(one, operands[j]);
            sound = sound && TOCSIN_VEC_PUSH(&one->selection->exports, operands[j]);
        }
    }
    return sound;
}

static bool select_ends(role_selector *one)
{
    const tocsin_plan *plan = one->parts->plan;
    bool sound = true;
    for (uint32_t k = 0; k < one->role->output_count && sound; k++) {
        const uint32_t output = one->role->first_output + k;
        if (tocsin_part_of_output(one->parts, one->cuts, output) == one->part)
            sound = TOCSIN_VEC_PUSH(&one->selection->outputs, output) &&
                    read_value(one, plan->outputs.items[output].value);
    }
    for (uint32_t k = 0; k < one->role->input_count && sound; k++) {
        const uint32_t input = one->role->first_input + k;
        if (one->seen[plan->inputs.items[input].value] & SEEN_READ)
            sound = TOCSIN_VEC_PUSH(&one->selection->inputs, input);
    }
    return sound;
}

tocsin_status tocsin_select_role(const tocsin_role_parts *parts, const tocsin_cuts *cuts,
                                 uint32_t part, tocsin_part_selection *selection, bool *claimed,
                                 tocsin_error *error)
{
    role_selector one = {.parts = parts,
                         .cuts = cuts,
                         .role = &parts->plan->roles.items[parts->role],
                         .part = part,
                         .selection = selection,
                         .claimed = true};
    *selection = (tocsin_part_selection){.role = parts->role};
    one.seen = tocsin_zalloc((size_t)one.role->value_count + 1, 1);
    const bool sound = one.seen != NULL && select_ops(&one) && select_ends(&one);
    tocsin_free(one.seen);
    if (!sound)
        return tocsin_error_memory(error);
    if (selection->ops.count > 1) /* constants came where they were read first */
        qsort(selection->ops.items, selection->ops.count, sizeof *selection->ops.items, by_number);
    *claimed = one.claimed;
    return TOCSIN_OK;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

void tocsin_part_interface_free(tocsin_part_interface *part)
{
    TOCSIN_VEC_FREE(&part->imports);
    TOCSIN_VEC_FREE(&part->exports);
    TOCSIN_VEC_FREE(&part->outputs);
}

static bool add_claimed(tocsin_part_interface *part, tocsin_cuts *cuts,
                        const tocsin_role_parts *parts, const uint32_t *values, size_t count,
                        bool exports)
{
    const tocsin_plan_role *role = &parts->plan->roles.items[parts->role];
    for (size_t k = 0; k < count; k++) {
        const uint32_t name = parts->plan->values.items[role->first_value + values[k]].name;
        const tocsin_part_claim *claim =
            tocsin_cuts_find(cuts, parts->role, tocsin_plan_text(parts->plan, name));
        assert(claim != NULL);
        const uint64_t word = (claim->is_input ? TOCSIN_INTERFACE_INPUT : 0) | claim->name;
        if (exports ? !TOCSIN_VEC_PUSH(&part->exports, word)
                    : !TOCSIN_VEC_PUSH(&part->imports, word))
            return false;
    }
    return true;
}

tocsin_status tocsin_part_interface_add(tocsin_part_interface *part, tocsin_cuts *cuts,
                                        const tocsin_role_parts *parts,
                                        const tocsin_part_selection *selection, tocsin_error *error)
{
    bool sound =
        add_claimed(part, cuts, parts, selection->imports.items, selection->imports.count, false) &&
        add_claimed(part, cuts, parts, selection->exports.items, selection->exports.count, true);
    for (size_t k = 0; k < selection->outputs.count && sound; k++) {
        const tocsin_plan_output *output = &parts->plan->outputs.items[selection->outputs.items[k]];
        size_t bytes;
        const char *text = tocsin_intern_text(&parts->plan->strings, output->name, &bytes);
        const uint32_t name = tocsin_intern_put(&cuts->strings, text, bytes);
        sound = name != 0 && TOCSIN_VEC_PUSH(&part->outputs, (uint64_t)output->kind << 32 | name);
    }
    return sound ? TOCSIN_OK : tocsin_error_memory(error);
}

static size_t sort_words(uint64_t *words, size_t count)
{
    size_t kept = 0;
    if (count > 1)
        qsort(words, count, sizeof *words, by_word);
    for (size_t k = 0; k < count; k++)
        if (kept == 0 || words[kept - 1] != words[k])
            words[kept++] = words[k];
    return kept;
}

void tocsin_part_interface_finish(tocsin_part_interface *part)
{
    part->imports.count = sort_words(part->imports.items, part->imports.count);
    part->exports.count = sort_words(part->exports.items, part->exports.count);
    part->outputs.count = sort_words(part->outputs.items, part->outputs.count);
}

/* ---- the logical model ----------------------------------------------------------------------- */

static bool index_writers(tocsin_logical_index *index)
{
    const tocsin_plan *plan = index->plan;
    for (uint32_t k = 0; k < plan->ops.count; k++) {
        const tocsin_plan_op *op = &plan->ops.items[k];
        const uint32_t *outputs = plan->operands.items + op->first_operand + op->input_count;
        for (uint32_t j = 0; j < op->output_count; j++)
            if (!TOCSIN_VEC_PUSH(&index->writers, (uint64_t)outputs[j] << 32 | k))
                return false;
    }
    if (index->writers.count > 1)
        qsort(index->writers.items, index->writers.count, sizeof *index->writers.items, by_word);
    return true;
}

static bool index_names(tocsin_logical_index *index)
{
    const tocsin_plan *plan = index->plan;
    const tocsin_plan_role *role = &plan->roles.items[0];
    bool sound = true;
    for (size_t k = 0; k < plan->outputs.count && sound; k++) {
        const tocsin_plan_output *output = &plan->outputs.items[k];
        sound = tocsin_map_put(&index->outputs, (uint64_t)output->kind << 32 | output->name, k);
    }
    for (uint32_t v = 0; v < role->value_count && sound; v++)
        sound = tocsin_map_put(&index->names, plan->values.items[role->first_value + v].name, v);
    for (uint32_t k = 0; k < role->input_count && sound; k++) {
        const tocsin_plan_input *input = &plan->inputs.items[role->first_input + k];
        index->input_of[input->value] = role->first_input + k;
        sound = tocsin_map_put(&index->names, TOCSIN_INTERFACE_INPUT | input->name, input->value);
    }
    return sound;
}

tocsin_status tocsin_logical_index_init(tocsin_logical_index *index, const tocsin_plan *logical,
                                        tocsin_error *error)
{
    const size_t values = (size_t)logical->roles.items[0].value_count + 1;
    const size_t ops = logical->ops.count + 1;

    *index = (tocsin_logical_index){.plan = logical};
    index->input_of = TOCSIN_ARENA_ARRAY(&index->arena, uint32_t, values);
    index->wanted = TOCSIN_ARENA_ARRAY(&index->arena, uint32_t, values);
    index->stopped = TOCSIN_ARENA_ARRAY(&index->arena, uint32_t, values);
    index->taken = TOCSIN_ARENA_ARRAY(&index->arena, uint32_t, ops);
    if (index->input_of == NULL || index->wanted == NULL || index->stopped == NULL ||
        index->taken == NULL)
        return tocsin_error_memory(error);
    memset(index->input_of, 0xff, values * sizeof *index->input_of);
    memset(index->wanted, 0, values * sizeof *index->wanted);
    memset(index->stopped, 0, values * sizeof *index->stopped);
    memset(index->taken, 0, ops * sizeof *index->taken);
    return index_writers(index) && index_names(index) ? TOCSIN_OK : tocsin_error_memory(error);
}

void tocsin_logical_index_free(tocsin_logical_index *index)
{
    TOCSIN_VEC_FREE(&index->writers);
    tocsin_map_free(&index->outputs);
    tocsin_map_free(&index->names);
    tocsin_arena_free(&index->arena);
}

typedef struct logical_selector {
    tocsin_logical_index *index;
    const tocsin_cuts *cuts;
    tocsin_part_selection *selection;
    TOCSIN_VEC(uint32_t) pending; /* values to be explained */
    bool known;
} logical_selector;

/* The logical value of an interface's word; NONE: there is none of that name. */
static uint32_t value_of(const logical_selector *one, uint64_t word)
{
    const tocsin_plan *plan = one->index->plan;
    size_t bytes;
    const char *text = tocsin_intern_text(&one->cuts->strings, (uint32_t)word, &bytes);
    const uint32_t name = tocsin_intern_find(&plan->strings, text, bytes);
    const uint64_t *found =
        name == 0 ? NULL : tocsin_map_find(&one->index->names, word >> 32 << 32 | name);
    return found == NULL ? TOCSIN_PLAN_NONE : (uint32_t)*found;
}

static bool want(logical_selector *one, uint32_t value)
{
    tocsin_logical_index *index = one->index;
    if (index->wanted[value] == index->mark)
        return true;
    index->wanted[value] = index->mark;
    return TOCSIN_VEC_PUSH(&one->pending, value);
}

static bool note_imports(logical_selector *one, const tocsin_part_interface *part)
{
    for (size_t k = 0; k < part->imports.count; k++) {
        const uint32_t value = value_of(one, part->imports.items[k]);
        if (value == TOCSIN_PLAN_NONE)
            one->known = false;
        else if (one->index->input_of[value] == TOCSIN_PLAN_NONE) {
            one->index->stopped[value] = one->index->mark;
            if (!TOCSIN_VEC_PUSH(&one->selection->imports, value))
                return false;
        }
    }
    return true;
}

static bool note_exports(logical_selector *one, const tocsin_part_interface *part)
{
    for (size_t k = 0; k < part->exports.count; k++) {
        const uint32_t value = value_of(one, part->exports.items[k]);
        if (value == TOCSIN_PLAN_NONE)
            one->known = false;
        else if (!TOCSIN_VEC_PUSH(&one->selection->exports, value) || !want(one, value))
            return false;
    }
    return true;
}

static bool note_outputs(logical_selector *one, const tocsin_part_interface *part)
{
    const tocsin_plan *logical = one->index->plan;
    for (size_t k = 0; k < part->outputs.count; k++) {
        size_t bytes;
        const uint64_t word = part->outputs.items[k];
        const char *text = tocsin_intern_text(&one->cuts->strings, (uint32_t)word, &bytes);
        const uint32_t name = tocsin_intern_find(&logical->strings, text, bytes);
        const uint64_t *found =
            name == 0 ? NULL : tocsin_map_find(&one->index->outputs, word >> 32 << 32 | name);
        if (found == NULL)
            one->known = false;
        else if (!TOCSIN_VEC_PUSH(&one->selection->outputs, (uint32_t)*found) ||
                 !want(one, logical->outputs.items[*found].value))
            return false;
    }
    return true;
}

static bool take_writers(logical_selector *one, uint32_t value)
{
    tocsin_logical_index *index = one->index;
    size_t low = 0, high = index->writers.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (index->writers.items[middle] >> 32 < value)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < index->writers.count && index->writers.items[low] >> 32 == value; low++) {
        const uint32_t number = (uint32_t)index->writers.items[low];
        const tocsin_plan_op *op = &index->plan->ops.items[number];
        if (index->taken[number] == index->mark)
            continue;
        index->taken[number] = index->mark;
        if (!TOCSIN_VEC_PUSH(&one->selection->ops, number))
            return false;
        for (uint32_t i = 0; i < op->input_count; i++)
            if (!want(one, index->plan->operands.items[op->first_operand + i]))
                return false;
    }
    return true;
}

static bool follow(logical_selector *one)
{
    tocsin_logical_index *index = one->index;
    while (one->pending.count > 0) {
        const uint32_t value = one->pending.items[--one->pending.count];
        if (index->stopped[value] == index->mark)
            continue;
        const bool sound = index->input_of[value] != TOCSIN_PLAN_NONE
                               ? TOCSIN_VEC_PUSH(&one->selection->inputs, index->input_of[value])
                               : take_writers(one, value);
        if (!sound)
            return false;
    }
    return true;
}

static void sort_selection(tocsin_part_selection *selection)
{
    if (selection->ops.count > 1)
        qsort(selection->ops.items, selection->ops.count, sizeof *selection->ops.items, by_number);
    if (selection->inputs.count > 1)
        qsort(selection->inputs.items, selection->inputs.count, sizeof *selection->inputs.items,
              by_number);
}

tocsin_status tocsin_select_logical(tocsin_logical_index *index, const tocsin_cuts *cuts,
                                    const tocsin_part_interface *part,
                                    tocsin_part_selection *selection, bool *known,
                                    tocsin_error *error)
{
    logical_selector one = {.index = index, .cuts = cuts, .selection = selection, .known = true};

    *selection = (tocsin_part_selection){0};
    index->mark++;
    const bool sound = note_imports(&one, part) && note_exports(&one, part) &&
                       note_outputs(&one, part) && follow(&one);
    TOCSIN_VEC_FREE(&one.pending);
    if (!sound)
        return tocsin_error_memory(error);
    sort_selection(selection);
    *known = one.known;
    return TOCSIN_OK;
}
