/* part_key.c - which part each operator of a role belongs to.
 *
 * The key of an operator is read off its module. What has none takes that of the operator which
 * makes its operand, else of one that reads its result; messages take it always, for their modules
 * name the pipeline. Cost: linear in operands.
 */
#include "compose/compose.h"

#include <assert.h>

#define ANY_KEY "*" /* of what is connected to nothing that has a module */

size_t tocsin_part_key_bytes(const char *name)
{
    size_t first = strcspn(name, ".");
    for (size_t begin = 0; name[begin] != '\0';) {
        const size_t bytes = strcspn(name + begin, ".");
        if (bytes > 0 && strspn(name + begin, "0123456789") >= bytes)
            return begin + bytes;
        begin += bytes + (name[begin + bytes] == '.');
    }
    return first;
}

bool tocsin_is_message(const tocsin_plan_op *op)
{
    return op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV;
}

bool tocsin_makes_constant(const tocsin_plan_op *op)
{
    return op->input_count == 0 && !tocsin_operator_communicates(op->code);
}

bool tocsin_is_asynchronous(const tocsin_plan *plan, const tocsin_plan_op *op)
{
    const tocsin_attribute *attribute = tocsin_operator_communicates(op->code)
                                            ? tocsin_plan_attribute(plan, op->attributes, "async")
                                            : NULL;
    return attribute != NULL && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS &&
           attribute->count == 1 && attribute->integers[0] != 0;
}

static const uint32_t *inputs_of(const tocsin_plan *plan, const tocsin_plan_op *op)
{
    return plan->operands.items + op->first_operand;
}

static const uint32_t *outputs_of(const tocsin_plan *plan, const tocsin_plan_op *op)
{
    return plan->operands.items + op->first_operand + op->input_count;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Keys of the modules, and of what is made from values that have one. 0: none yet. */
static bool keys_forward(tocsin_role_parts *parts, tocsin_cuts *cuts)
{
    for (uint32_t k = 0; k < parts->op_count; k++) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        const char *fqn = tocsin_plan_text(parts->plan, op->fqn);
        if (fqn[0] != '\0' && !tocsin_is_message(op)) {
            parts->key[k] = tocsin_intern_put(&cuts->keys, fqn, tocsin_part_key_bytes(fqn));
            if (parts->key[k] == 0)
                return false;
            continue;
        }
        for (uint32_t i = 0; i < op->input_count && parts->key[k] == 0; i++) {
            const uint32_t made = parts->producer[inputs_of(parts->plan, op)[i]];
            if (made != TOCSIN_PLAN_NONE && made < k)
                parts->key[k] = parts->key[made];
        }
    }
    return true;
}

/* Keys from those who read: reader[v] is the key of the first operator that reads v. */
static bool keys_backward(tocsin_role_parts *parts, tocsin_cuts *cuts, uint32_t *reader)
{
    for (uint32_t k = parts->op_count; k-- > 0;) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        for (uint32_t j = 0; j < op->output_count && parts->key[k] == 0; j++)
            parts->key[k] = reader[outputs_of(parts->plan, op)[j]];
        for (uint32_t i = 0; i < op->input_count && parts->key[k] != 0; i++)
            reader[inputs_of(parts->plan, op)[i]] = parts->key[k];
    }
    for (uint32_t k = 0; k < parts->op_count; k++) {
        if (parts->key[k] == 0)
            parts->key[k] = tocsin_intern_put(&cuts->keys, ANY_KEY, strlen(ANY_KEY));
        if (parts->key[k] == 0)
            return false;
    }
    return true;
}

static void find_producers(tocsin_role_parts *parts, uint32_t value_count)
{
    for (uint32_t v = 0; v < value_count; v++)
        parts->producer[v] = TOCSIN_PLAN_NONE;
    for (uint32_t k = parts->op_count; k-- > 0;) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        for (uint32_t j = 0; j < op->output_count; j++)
            parts->producer[outputs_of(parts->plan, op)[j]] = k;
    }
}

tocsin_status tocsin_role_parts_init(tocsin_role_parts *parts, const tocsin_plan *plan,
                                     uint32_t role_index, tocsin_cuts *cuts, tocsin_error *error)
{
    const tocsin_plan_role *role = &plan->roles.items[role_index];
    *parts = (tocsin_role_parts){.plan = plan, .role = role_index};
    if (role->segment_count > 0)
        parts->first_op = plan->segments.items[role->first_segment].first_op;
    for (uint32_t s = 0; s < role->segment_count; s++)
        parts->op_count += plan->segments.items[role->first_segment + s].op_count;
    parts->key = TOCSIN_ARENA_ARRAY(&parts->arena, uint32_t, parts->op_count + 1);
    parts->part = TOCSIN_ARENA_ARRAY(&parts->arena, uint32_t, parts->op_count + 1);
    parts->producer = TOCSIN_ARENA_ARRAY(&parts->arena, uint32_t, role->value_count + 1);
    parts->crosses = TOCSIN_ARENA_ARRAY(&parts->arena, uint8_t, role->value_count + 1);
    uint32_t *reader = tocsin_zalloc((size_t)role->value_count + 1, sizeof *reader);
    bool sound = parts->key != NULL && parts->part != NULL && parts->producer != NULL &&
                 parts->crosses != NULL && reader != NULL;
    if (sound) {
        memset(parts->key, 0, parts->op_count * sizeof *parts->key);
        find_producers(parts, role->value_count);
        sound = keys_forward(parts, cuts) && keys_backward(parts, cuts, reader);
    }
    tocsin_free(reader);
    return sound ? TOCSIN_OK : tocsin_error_memory(error);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void assign_ops(tocsin_role_parts *parts, const tocsin_cuts *cuts, bool *known)
{
    const tocsin_role_cuts *own = &cuts->roles[parts->role];
    size_t message = 0;

    for (uint32_t k = 0; k < parts->op_count; k++) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        parts->part[k] = TOCSIN_PLAN_NONE;
        if (parts->key[k] > cuts->part_of_key.count) {
            *known = false;
            continue;
        }
        if (tocsin_is_message(op)) {
            if (message >= own->messages.count)
                *known = false;
            else if (own->messages.items[message++])
                continue;
        }
        if (!tocsin_makes_constant(op))
            parts->part[k] = cuts->part_of_key.items[parts->key[k] - 1];
    }
    *known &= message == own->messages.count;
}

void tocsin_role_parts_assign(tocsin_role_parts *parts, const tocsin_cuts *cuts, bool *known)
{
    const tocsin_plan *plan = parts->plan;
    *known = true;
    assign_ops(parts, cuts, known);
    memset(parts->crosses, 0, plan->roles.items[parts->role].value_count);
    for (uint32_t k = 0; k < parts->op_count; k++) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        for (uint32_t i = 0; i < op->input_count; i++) {
            const uint32_t value = inputs_of(plan, op)[i];
            const uint32_t made = parts->producer[value];
            if (made == TOCSIN_PLAN_NONE) {
                if (tocsin_is_message(op) && parts->part[k] == TOCSIN_PLAN_NONE)
                    *known = false; /* an input of the role that is sent: nobody's to prove */
                continue;
            }
            if (!tocsin_makes_constant(tocsin_role_parts_op(parts, made)) || tocsin_is_message(op))
                parts->crosses[value] |= parts->part[made] != parts->part[k];
        }
        /* several write one value only within a part */
        for (uint32_t j = 0; j < op->output_count; j++)
            if (parts->part[parts->producer[outputs_of(plan, op)[j]]] != parts->part[k])
                *known = false;
    }
}

uint32_t tocsin_part_of_output(const tocsin_role_parts *parts, const tocsin_cuts *cuts,
                               uint32_t output)
{
    const tocsin_plan_output *one = &parts->plan->outputs.items[output];
    const uint32_t made = parts->producer[one->value];
    if (made != TOCSIN_PLAN_NONE && parts->part[made] != TOCSIN_PLAN_NONE)
        return parts->part[made];
    const char *name = tocsin_plan_text(parts->plan, one->name);
    const uint32_t key = tocsin_intern_find(&cuts->keys, name, tocsin_part_key_bytes(name));
    return key != 0 && key <= cuts->part_of_key.count ? cuts->part_of_key.items[key - 1] : 0;
}

void tocsin_role_parts_free(tocsin_role_parts *parts)
{
    tocsin_arena_free(&parts->arena);
    *parts = (tocsin_role_parts){0};
}
