/* tests/prop/random_text.h - random plans as `.plan` text (docs/formats/plan.md), and mutations. */
#ifndef TOCSIN_TESTS_RANDOM_TEXT_H
#define TOCSIN_TESTS_RANDOM_TEXT_H

#include "prop/random_operators.h"

/* ---- text ------------------------------------------------------------------------------------ */

static inline void random_shape_text(const random_plan *p, const random_value *value,
                                     const random_copy *copy, tocsin_string *text)
{
    for (int d = 0; d < value->ndim; ++d)
        tocsin_string_printf(text, "%s%" PRId64, d ? "," : "",
                             value->shape[d] / (copy ? random_parts(p, copy, d) : 1));
}

/* "dp*8+mb*4+2 : 4, 0 : 16": the slice of the logical value on this device. */
static inline void random_slice_text(const random_plan *p, const random_copy *copy, int device,
                                     tocsin_string *text)
{
    const random_value *value = &p->values[copy->value];
    for (int d = 0; d < value->ndim; ++d) {
        int64_t size = value->shape[d], weight[AXES] = {0, 0, 0};
        const int order[AXES] = {DP, MB, TP};
        for (int k = 0; k < AXES; ++k)
            if (copy->state[order[k]] == d)
                weight[order[k]] = size /= p->size[order[k]];
        if (copy->mutation == RANDOM_REVERSED)
            device = p->size[TP] - 1 - device;
        if (copy->mutation == RANDOM_SAME_REPLICA)
            weight[DP] = 0;
        tocsin_string_printf(text, "%s", d ? ", " : "");
        if (weight[DP] && p->size[DP] > 1)
            tocsin_string_printf(text, "dp*%" PRId64 "+", weight[DP]);
        if (weight[MB] && p->size[MB] > 1)
            tocsin_string_printf(text, "mb*%" PRId64 "+", weight[MB]);
        tocsin_string_printf(text, "%" PRId64 " : %" PRId64, weight[TP] * device, size);
        if (copy->mutation == RANDOM_REVERSED)
            device = p->size[TP] - 1 - device;
    }
}

static inline void random_group_text(const random_plan *p, int kind, bool reversed, int device,
                                     tocsin_string *text)
{
    tocsin_string_printf(text, "group g%d.%d.%d =", kind, reversed, device);
    int members = kind == GROUP_DP ? p->size[DP] : p->size[TP];
    for (int m = 0; m < members; ++m) {
        int at = reversed ? members - 1 - m : m;
        if (kind == GROUP_TP)
            tocsin_string_printf(text, " (tp=%d)", at);
        else if (kind == GROUP_WORLD)
            tocsin_string_printf(text, " (tp=%d dp=all)", at);
        else if (reversed)
            tocsin_string_printf(text, " (tp=%d dp=%d)", device, at);
        else if (m == 0)
            tocsin_string_printf(text, " (tp=%d dp=all)", device);
    }
    tocsin_string_append_text(text, "\n");
}

static inline void random_op_text(const random_plan *p, const random_op *op, int device,
                                  tocsin_string *text)
{
    const random_copy *copy = &p->copies[op->output];
    const random_value *value = &p->values[copy->value];
    tocsin_string_printf(text, "%%c%d:%s[", op->output, value->dtype ? value->dtype : "float32");
    random_shape_text(p, value, copy, text);
    tocsin_string_printf(text, "]%s = %s(", copy->keep ? " keep" : "", op->name);
    for (int i = 0; i < op->input_count; ++i)
        tocsin_string_printf(text, "%s%%c%d", i ? ", " : "", op->inputs[i]);
    tocsin_string_append_text(text, ")");
    const char *separator = " {";
    if (op->attributes[0]) {
        tocsin_string_printf(text, "%s%s", separator, op->attributes);
        separator = ", ";
    }
    if (op->shape_attribute) {
        tocsin_string_printf(text, "%sshape=[", separator);
        random_shape_text(p, value, copy, text);
        tocsin_string_append_text(text, "]");
        separator = ", ";
    }
    if (op->role_key) {
        int64_t at = op->role_base + device * op->role_step;
        tocsin_string_printf(text, "%s%s=%" PRId64, separator, op->role_key, at);
        separator = ", ";
        if (op->role_width)
            tocsin_string_printf(text, ", end=%" PRId64, at + op->role_width);
    }
    tocsin_string_append_text(text, separator[0] == ',' ? "}" : "");
    if (op->group)
        tocsin_string_printf(text, " group=g%d.%d.%d", op->group, op->reversed,
                             op->group == GROUP_DP ? device : 0);
    tocsin_string_append_text(text, "\n");
}

static inline void random_role_text(const random_plan *p, int device, tocsin_string *text)
{
    static const char *const folds[] = {"equal", "sum", "mean"};
    tocsin_string_printf(text, "role tp=%d\n", device);
    for (int c = 0; c < p->copy_count; ++c) {
        const random_copy *copy = &p->copies[c];
        const random_value *value = &p->values[copy->value];
        if (!copy->input)
            continue;
        tocsin_string_printf(text, "in %%c%d:%s[", c, value->dtype ? value->dtype : "float32");
        random_shape_text(p, value, copy, text);
        tocsin_string_printf(text, "]%s = i%d[", copy->state[MB] >= 0 ? " each" : "", copy->value);
        random_slice_text(p, copy, device, text);
        tocsin_string_append_text(text, "]\n");
    }
    for (int phase = FW; phase <= STEP; ++phase) {
        tocsin_string_append_text(text, phase == FW ? "segment fw\n" : "segment step\n");
        for (int o = 0; o < p->op_count; ++o) {
            bool original =
                o == p->mutated_op && p->mutated_device >= 0 && p->mutated_device != device;
            if (p->ops[o].phase == phase)
                random_op_text(p, original ? &p->original : &p->ops[o], device, text);
        }
    }
    tocsin_string_append_text(text, "schedule");
    for (int m = 0; m < p->size[MB]; ++m)
        tocsin_string_printf(text, " fw.%d", m);
    tocsin_string_append_text(text, " step\n");
    for (int o = 0; o < p->output_count; ++o) {
        const random_output *output = &p->outputs[o];
        tocsin_string_printf(text, "out other v%d[", p->copies[output->copy].value);
        random_slice_text(p, &p->copies[output->copy], device, text);
        tocsin_string_printf(text, "] = %%c%d fold=%s,%s\n", output->copy, folds[output->fold[DP]],
                             folds[output->fold[MB]]);
    }
    tocsin_string_append_text(text, "end\n");
}

static inline void random_parallel_text(const random_plan *p, tocsin_string *text)
{
    tocsin_string_printf(text, "tocsin-plan 1\nmesh dp=%d* tp=%d\nmicrobatches %d\n", p->size[DP],
                         p->size[TP], p->size[MB]);
    for (int kind = GROUP_TP; kind < GROUP_KINDS; ++kind)
        for (int reversed = 0; reversed < 2; ++reversed)
            for (int device = 0; device < (kind == GROUP_DP ? p->size[TP] : 1); ++device)
                random_group_text(p, kind, reversed, device, text);
    for (int device = 0; device < p->size[TP]; ++device)
        random_role_text(p, device, text);
}

static inline void random_logical_text(const random_plan *p, tocsin_string *text)
{
    tocsin_string_append_text(text, "tocsin-plan 1\nmesh one=1\nrole one=0\n");
    for (int c = 0; c < p->copy_count; ++c) {
        int v = p->copies[c].value;
        const random_value *value = &p->values[v];
        if (!p->copies[c].input)
            continue;
        tocsin_string_printf(text, "in %%v%d:%s[", v, value->dtype ? value->dtype : "float32");
        random_shape_text(p, value, NULL, text);
        tocsin_string_printf(text, "] = i%d\n", v);
    }
    tocsin_string_append_text(text, "segment all\n");
    for (int o = 0; o < p->logical_op_count; ++o) {
        const random_op *op = &p->logical_ops[o];
        const random_value *value = &p->values[op->output];
        tocsin_string_printf(text, "%%v%d:float32[", op->output);
        random_shape_text(p, value, NULL, text);
        tocsin_string_printf(text, "] = %s(", op->name);
        for (int i = 0; i < op->input_count; ++i)
            tocsin_string_printf(text, "%s%%v%d", i ? ", " : "", op->inputs[i]);
        tocsin_string_printf(text, ")%s%s", op->attributes[0] || op->shape_attribute ? " {" : "",
                             op->attributes);
        if (op->shape_attribute) {
            tocsin_string_append_text(text, "shape=[");
            random_shape_text(p, value, NULL, text);
            tocsin_string_append_text(text, "]");
        }
        tocsin_string_append_text(text, op->attributes[0] || op->shape_attribute ? "}\n" : "\n");
    }
    for (int o = 0; o < p->output_count; ++o) {
        int v = p->copies[p->outputs[o].copy].value;
        tocsin_string_printf(text, "out other v%d = %%v%d\n", v, v);
    }
    tocsin_string_append_text(text, "end\n");
}

/* ---- mutations: each changes one record; false: it does not apply ---------------------------- */

static inline bool random_is(const random_op *op, const char *name)
{
    return strcmp(op->name, name) == 0;
}

/* The collective is left out; what stands there has the same shape. */
static inline bool random_drop_collective(random_plan *p, random_op *op)
{
    if (op->group == GROUP_NONE)
        return false;
    int members = op->group == GROUP_DP ? p->size[DP] : p->size[TP];
    if (random_is(op, "all_gather")) {
        snprintf(op->name, sizeof op->name, "cat");
        for (op->input_count = 1; op->input_count < members; ++op->input_count)
            op->inputs[op->input_count] = op->inputs[0];
    } else if (random_is(op, "reduce_scatter")) {
        int dim = 0;
        (void)sscanf(op->attributes, "dim=%d", &dim);
        const random_copy *copy = &p->copies[op->output];
        op->role_width = p->values[copy->value].shape[dim] / random_parts(p, copy, dim);
        op->role_key = "start";
        op->role_step = op->group == GROUP_TP ? op->role_width : 0;
        snprintf(op->name, sizeof op->name, "slice");
        snprintf(op->attributes, sizeof op->attributes, "dim=%d", dim);
    } else {
        op->shape_attribute = random_is(op, "all_to_all");
        snprintf(op->name, sizeof op->name, op->shape_attribute ? "view" : "identity");
        op->attributes[0] = 0;
    }
    op->group = GROUP_NONE;
    return true;
}

static inline bool random_reverse_group(random_plan *p, random_op *op)
{
    (void)p;
    op->reversed = true;
    return op->group != GROUP_NONE && !random_is(op, "all_reduce");
}

static inline bool random_change_reduction(random_plan *p, random_op *op)
{
    char *how = strstr(op->attributes, "op=");
    if (!how)
        return false;
    const char *other = strcmp(how, "op=sum") == 0 && random_chance(p, 60)    ? "avg"
                        : strcmp(how, "op=max") == 0                          ? "sum"
                        : random_is(op, "all_reduce") && random_chance(p, 50) ? "max"
                                                                              : "avg";
    bool same = strcmp(how + 3, other) == 0;
    memcpy(how + 3, other, 3);
    return !same;
}

static inline bool random_change_group(random_plan *p, random_op *op)
{
    if ((op->group != GROUP_TP && op->group != GROUP_DP) ||
        (p->size[TP] != p->size[DP] && !random_is(op, "all_reduce")))
        return false;
    op->group = op->group == GROUP_TP ? GROUP_DP : GROUP_TP;
    return true;
}

static inline bool random_change_constant(random_plan *p, random_op *op)
{
    if (random_is(op, "scale") || random_is(op, "pow")) {
        char *at = strchr(op->attributes, '=');
        assert(at);
        snprintf(at + 1, sizeof op->attributes - (size_t)(at + 1 - op->attributes), "%s",
                 random_chance(p, 50) ? "3.0" : "0.25");
        return true;
    }
    int dim, start, end;
    if (random_is(op, "slice") && !op->role_key &&
        sscanf(op->attributes, "dim=%d, start=%d, end=%d", &dim, &start, &end) == 3 && start > 0) {
        snprintf(op->attributes, sizeof op->attributes, "dim=%d, start=%d, end=%d", dim, start - 1,
                 end - 1);
        return true;
    }
    if (op->role_key && op->role_width == 0) { /* the bounds of a table's rows */
        op->role_base += 1;
        return true;
    }
    if (op->role_key && op->role_step) { /* every device takes the first part */
        op->role_step = 0;
        return true;
    }
    return false;
}

/* Two dims of equal local size change places. */
static inline bool random_change_dims(random_plan *p, random_op *op)
{
    if (!random_is(op, "permute"))
        return false;
    const random_copy *in = &p->copies[op->inputs[0]];
    const random_value *value = &p->values[in->value];
    for (int a = 0; a < value->ndim; ++a) {
        for (int b = a + 1; b < value->ndim; ++b) {
            if (value->shape[a] / random_parts(p, in, a) !=
                value->shape[b] / random_parts(p, in, b))
                continue;
            for (char *c = op->attributes; *c; ++c)
                *c = *c == '0' + a ? (char)('0' + b) : *c == '0' + b ? (char)('0' + a) : *c;
            return true;
        }
    }
    return false;
}

static inline bool random_change_operator(random_plan *p, random_op *op)
{
    static const char *const pairs[][2] = {
        {"add", "sub"},   {"sub", "add"},  {"silu", "sigmoid"}, {"sigmoid", "silu"},
        {"gelu", "silu"}, {"sin", "cos"},  {"mul", "add"},      {"exp", "tanh"},
        {"sum", "mean"},  {"mean", "sum"}, {"neg", "identity"}, {"accumulate", "identity"},
        {"lt", "le"}};
    (void)p;
    for (size_t k = 0; k < TOCSIN_COUNT_OF(pairs); ++k) {
        if (!random_is(op, pairs[k][0]))
            continue;
        snprintf(op->name, sizeof op->name, "%s", pairs[k][1]);
        return true;
    }
    return false;
}

/* Another operand of the same local shape, that is there by then. */
static inline bool random_change_operand(random_plan *p, random_op *op)
{
    if (op->input_count == 0)
        return false;
    int which = random_below(p, op->input_count);
    if (op->input_count == 2 && random_chance(p, 40)) { /* operands exchanged */
        int other = op->inputs[0];
        op->inputs[0] = op->inputs[1];
        op->inputs[1] = other;
        which = -1;
        return op->inputs[0] != op->inputs[1] && !random_is(op, "add") && !random_is(op, "mul");
    }
    const random_copy *old = &p->copies[op->inputs[which]];
    const random_value *shape = &p->values[old->value];
    for (int tries = 0; tries < 40; ++tries) {
        int c = random_below(p, op->output);
        const random_copy *copy = &p->copies[c];
        const random_value *value = &p->values[copy->value];
        bool fits = copy->phase == op->phase || copy->phase == ANY;
        fits = fits && c != op->inputs[which] && value->ndim == shape->ndim &&
               value->dtype == shape->dtype;
        for (int d = 0; fits && d < value->ndim; ++d)
            fits = value->shape[d] / random_parts(p, copy, d) ==
                   shape->shape[d] / random_parts(p, old, d);
        if (!fits)
            continue;
        op->inputs[which] = c;
        return true;
    }
    return false;
}

/* A reduction done twice: a second one after it, which all readers read. */
static inline bool random_reduce_twice(random_plan *p, random_op *op)
{
    if (!random_is(op, "all_reduce") || p->op_count + 1 >= RECORDS || p->copy_count + 1 >= RECORDS)
        return false;
    int first = op->output, at = (int)(op - p->ops);
    random_copy copy = p->copies[first];
    int second = random_add_copy(p, copy);
    for (int o = 0; o < p->op_count; ++o)
        for (int i = 0; i < p->ops[o].input_count; ++i)
            if (p->ops[o].inputs[i] == first)
                p->ops[o].inputs[i] = second;
    for (int o = 0; o < p->output_count; ++o)
        if (p->outputs[o].copy == first)
            p->outputs[o].copy = second;
    memmove(&p->ops[at + 2], &p->ops[at + 1], (size_t)(p->op_count - at - 1) * sizeof *op);
    ++p->op_count;
    p->ops[at + 1] = *op;
    p->ops[at + 1].inputs[0] = first;
    p->ops[at + 1].output = second;
    return true;
}

static inline bool random_mutate_interface(random_plan *p)
{
    if (random_chance(p, 40) && p->output_count > 0) {
        random_output *output = &p->outputs[random_below(p, p->output_count)];
        int axis = random_chance(p, 50) ? DP : MB;
        output->fold[axis] = (output->fold[axis] + 1 + random_below(p, 2)) % 3;
        snprintf(p->mutation, sizeof p->mutation, "fold of c%d", output->copy);
        return p->size[axis] > 1;
    }
    int c = random_below(p, p->copy_count);
    random_copy *copy = &p->copies[c];
    if (!copy->input || (copy->state[TP] < 0 && copy->state[DP] < 0))
        return false;
    copy->mutation = copy->state[TP] >= 0 ? RANDOM_REVERSED : RANDOM_SAME_REPLICA;
    snprintf(p->mutation, sizeof p->mutation, "slice of input c%d", c);
    return copy->state[TP] >= 0 || p->size[DP] > 1;
}

/* Make the plan wrong (most likely), in one place. false: nothing was found. */
static inline bool random_mutate(random_plan *p)
{
    typedef bool mutation(random_plan * p, random_op * op);
    static const struct {
        const char *name;
        mutation *run;
    } all[] = {
        {"drop collective", random_drop_collective},   {"reverse group", random_reverse_group},
        {"change reduction", random_change_reduction}, {"change group", random_change_group},
        {"change constant", random_change_constant},   {"change dims", random_change_dims},
        {"change operator", random_change_operator},   {"change operand", random_change_operand},
        {"reduce twice", random_reduce_twice}};
    for (int tries = 0; tries < 200; ++tries) {
        if (random_chance(p, 8) && random_mutate_interface(p))
            return true;
        int which = random_below(p, (int)TOCSIN_COUNT_OF(all));
        if (p->op_count == 0)
            continue;
        int o = random_below(p, p->op_count);
        random_op original = p->ops[o];
        if (!all[which].run(p, &p->ops[o])) {
            p->ops[o] = original;
            continue;
        }
        p->original = original;
        p->mutated_op = o;
        if (all[which].run != random_reduce_twice && random_chance(p, 40))
            p->mutated_device = random_below(p, p->size[TP]);
        snprintf(p->mutation, sizeof p->mutation, "%s at c%d (%s) on %s %d", all[which].name,
                 original.output, original.name, p->mutated_device < 0 ? "all devices" : "device",
                 p->mutated_device);
        return true;
    }
    return false;
}

#endif
