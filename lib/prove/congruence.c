/* congruence.c - equal operands give equal results; the axis signature says what slices and partial
 * sums of the operands do to the results.
 *
 * An operand of the parallel plan is a slice of a logical operand. The rule
 *   1. brings every operand to one term (defining or folding sums), draws factors and partial sums
 *      out of operands in which the operator is linear,
 *   2. widens the operands to logical ones and looks whether the logical plan applies this operator
 *      to them: its result is the atom,
 *   3. binds each axis of the signature to the index range that the operands cover; two operands
 *      that cover different ranges of one axis are an error,
 *   4. puts the ranges of free axes into the result's map and those of contracted axes into its
 * box. On the logical side the same steps make the atom instead of looking for it. When the logical
 * plan has no such value, the atom is made as a foreign one, which is sound (it is but a name for
 * the operator's result on the widened operands) and is an error only if an output is made of it.
 *
 * Source: nnScaler's einops-like annotations and GSPMD's rules propagate shardings in this way; the
 * relation with partial sums is our own. Cost: a few hundred nanoseconds.
 */
#include "prove/prover.h"

#include <assert.h>

enum {
    INPUTS_MAX = TOCSIN_SIGNATURE_OPERANDS_MAX,
    AXES_MAX = TOCSIN_SIGNATURE_AXES_MAX + TOCSIN_PLAN_NDIM_MAX,
    PROFILE_MAX = 8,
    BOX_MAX = 32, /* entries drawn out of the operands */
    WINDOWS_MAX = 64,
    ATTEMPTS_MAX = 48,
    CHOICES_MAX = 6, /* of one operand */
    FOLDS_MAX = 3,
    FORMS_MAX = 8,
    COMBINATIONS_MAX = 64
};

typedef struct bound_axis {
    bool bound;
    uint32_t count; /* digits of the profile */
    int64_t extent; /* of the logical axis; 0 while only wildcards were seen */
    int64_t local;  /* size of the local axis; 0: not seen */
    tocsin_digit profile[PROFILE_MAX];
} bound_axis;

typedef struct operand {
    tocsin_relation_id relation; /* of one term, or 0: zero */
    const tocsin_relation *view;
    int8_t axis[TOCSIN_PLAN_NDIM_MAX];
    uint64_t keep_counts;
    uint32_t choice, choice_count; /* of its widenings */
    tocsin_relation_id widened;
    tocsin_window windows[WINDOWS_MAX];
} operand;

typedef struct application {
    tocsin_prover *prover;
    const tocsin_signature *signature;
    const tocsin_execution *execution;
    const char *name;
    uint32_t key;
    bool logical;
    uint32_t ellipsis; /* leading axes that `...` stands for */
    uint32_t axis_count;
    operand operands[INPUTS_MAX];
    bound_axis axes[AXES_MAX];
    tocsin_factor_id factor; /* drawn out of the operands */
    tocsin_box_entry box[BOX_MAX];
    uint32_t box_input[BOX_MAX]; /* out of which operand */
    uint32_t box_count;
} application;

static const char *axis_name(const application *call, int axis, char buffer[16])
{
    if (axis < call->signature->axis_count)
        return call->signature->axis_name[axis];
    snprintf(buffer, 16, "dim -%d", axis - call->signature->axis_count + 1);
    return buffer;
}

static bool refuse(application *call, int cause, const char *text)
{
    tocsin_universe_refuse(call->prover->universe, cause, "%s: %s", call->name, text);
    return false;
}

/* Axes of each operand's dims: `...` gets numbers behind the named ones, counted from the right. */
static bool lay_out_axes(application *call)
{
    const tocsin_signature *signature = call->signature;
    const uint32_t inputs = call->execution->input_count;

    if (inputs != signature->input_count)
        return refuse(call, TOCSIN_CAUSE_WRONG_OPERATOR, "the signature has another operand count");
    call->ellipsis = 0;
    for (uint32_t i = 0; i < inputs; i++) {
        const tocsin_signature_operand *form = &signature->operands[i];
        const uint32_t ndim = call->operands[i].view->ndim;
        if (ndim < form->ndim || (ndim > form->ndim && !form->ellipsis))
            return refuse(call, TOCSIN_CAUSE_WRONG_LAYOUT,
                          "an operand's number of dims does not fit its signature");
        if (ndim - form->ndim > call->ellipsis)
            call->ellipsis = ndim - form->ndim;
    }
    call->axis_count = signature->axis_count + call->ellipsis;
    if (call->axis_count > AXES_MAX)
        return refuse(call, TOCSIN_CAUSE_WRONG_LAYOUT, "too many axes");
    for (uint32_t i = 0; i < inputs; i++) {
        operand *one = &call->operands[i];
        const tocsin_signature_operand *form = &signature->operands[i];
        const uint32_t lead = one->view->ndim - form->ndim;
        one->keep_counts = 0;
        for (uint32_t d = 0; d < one->view->ndim; d++) {
            one->axis[d] =
                d < lead ? (int8_t)(signature->axis_count + lead - 1 - d) : form->axis[d - lead];
            if (one->axis[d] == TOCSIN_AXIS_ANY ||
                (one->axis[d] >= 0 && one->axis[d] < signature->axis_count &&
                 signature->whole[one->axis[d]]))
                one->keep_counts |= UINT64_C(1) << d;
        }
    }
    return true;
}

/* Every operand as one term; zero stays zero. */
static bool single_terms(application *call)
{
    tocsin_universe *universe = call->prover->universe;

    for (uint32_t i = 0; i < call->execution->input_count; i++) {
        operand *one = &call->operands[i];
        const tocsin_relation *view = one->view;
        if (!view->segmented && view->count <= 1)
            continue;
        one->relation =
            call->logical
                ? tocsin_relation_define(universe, one->relation, call->name, call->execution->op)
                : tocsin_relation_fold(universe, one->relation, call->prover->size);
        if (one->relation == 0)
            return false;
        one->view = tocsin_relation_get(universe, one->relation);
        assert(!one->view->segmented && one->view->count == 1);
    }
    return true;
}

static bool is_linear_in(const tocsin_signature *signature, uint32_t input)
{
    return (signature->linear >> input & 1) != 0;
}

/* Draw factors and the box out of the operands in which the operator is linear. */
static bool draw_out(application *call)
{
    tocsin_universe *universe = call->prover->universe;
    char text[320];

    call->factor = 0;
    call->box_count = 0;
    for (uint32_t i = 0; i < call->execution->input_count; i++) {
        operand *one = &call->operands[i];
        if (one->view->count == 0)
            continue;
        const tocsin_term *term = &one->view->terms[0];
        const bool linear = is_linear_in(call->signature, i);
        const bool second = linear && term->box_count > 0 && call->box_count > 0;
        if (term->box_count > 0 && (!linear || (second && !tocsin_universe_is_lenient(universe)))) {
            tocsin_string string = {.limit_bytes = 200};
            tocsin_relation_text(universe, call->prover->plan[TOCSIN_LOGICAL], one->relation,
                                 &string, 200);
            snprintf(text, sizeof text, "%s %s",
                     linear ? "two partial operands; one is"
                            : "non-linear use of the partial value",
                     tocsin_string_text(&string));
            tocsin_string_free(&string);
            return refuse(call, TOCSIN_CAUSE_MISSING_REDUCTION, text);
        }
        if (!linear)
            continue;
        for (uint32_t b = 0; b < term->box_count; b++) {
            if (term->box[b].kind == TOCSIN_BOX_MAX)
                return refuse(call, TOCSIN_CAUSE_MISSING_REDUCTION,
                              "use of a partial maximum before it is joined over all ranks");
            if (call->box_count == BOX_MAX)
                return refuse(call, TOCSIN_CAUSE_WRONG_SHARD, "too many partial axes");
            call->box_input[call->box_count] = i;
            call->box[call->box_count++] = term->box[b];
        }
        call->factor = tocsin_factor_multiply(universe, call->factor, term->factor);
        if (term->factor == 0 && term->box_count == 0)
            continue;
        tocsin_term bare = *term;
        bare.factor = 0;
        bare.box_count = 0;
        bare.box = NULL;
        one->relation = tocsin_relation_of_term(universe, &bare, one->view->shape, one->view->ndim);
        if (one->relation == 0)
            return false;
        one->view = tocsin_relation_get(universe, one->relation);
    }
    return true;
}

static bool same_profile(const bound_axis *axis, const tocsin_digit *profile, uint32_t count,
                         int64_t extent)
{
    if (axis->count != count || axis->extent != extent)
        return false;
    return memcmp(axis->profile, profile, count * sizeof *profile) == 0;
}

static void range_text(const tocsin_digit *profile, uint32_t count, int64_t extent, char *text,
                       size_t bytes)
{
    if (count == 1) {
        const tocsin_affine *start = &profile[0].start;
        char symbols[64] = "";
        if (start->weight[0] != 0 || start->weight[1] != 0)
            snprintf(symbols, sizeof symbols, " + %lld*replica + %lld*microbatch",
                     (long long)start->weight[0], (long long)start->weight[1]);
        snprintf(text, bytes, "[%lld, %lld)%s of %lld", (long long)start->base,
                 (long long)(start->base + profile[0].count), symbols, (long long)extent);
    } else if (count == 0) {
        snprintf(text, bytes, "a repeated element");
    } else {
        snprintf(text, bytes, "a %u-fold range of %lld", count, (long long)extent);
    }
}

static bool bind(application *call, int axis, int64_t local, const tocsin_digit *profile,
                 uint32_t count, int64_t extent)
{
    bound_axis *bound = &call->axes[axis];
    char text[320], one[96], other[96], buffer[16];

    if (local != 1 || bound->local == 0) {
        if (bound->local > 1 && bound->local != local) {
            snprintf(text, sizeof text, "operands have sizes %lld and %lld along axis %s",
                     (long long)bound->local, (long long)local, axis_name(call, axis, buffer));
            return refuse(call, TOCSIN_CAUSE_WRONG_SHARD, text);
        }
        bound->local = local;
    }
    if (count == 0)
        return true; /* a wildcard */
    if (!bound->bound) {
        bound->bound = true;
        bound->count = count;
        bound->extent = extent;
        memcpy(bound->profile, profile, count * sizeof *profile);
        return true;
    }
    if (same_profile(bound, profile, count, extent))
        return true;
    range_text(bound->profile, bound->count, bound->extent, one, sizeof one);
    range_text(profile, count, extent, other, sizeof other);
    snprintf(text, sizeof text, "operands cover different ranges of axis %s: %s vs %s",
             axis_name(call, axis, buffer), one, other);
    return refuse(call, TOCSIN_CAUSE_WRONG_SHARD, text);
}

/* Is it one constant everywhere? */
static bool is_constant(const application *call, const operand *one)
{
    return one->view->count == 0 ||
           tocsin_atom_get(call->prover->universe, one->view->terms[0].atom)->kind ==
               TOCSIN_ATOM_ONE;
}

static bool bind_operand(application *call, operand *one)
{
    const tocsin_relation *view = one->view;
    tocsin_digit profile[PROFILE_MAX];
    char text[160], range[96], buffer[16];

    for (uint32_t d = 0; d < view->ndim; d++) {
        const int axis = one->axis[d];
        int64_t extent = 0;
        uint32_t count = 0;
        if (view->count == 1 && (!is_constant(call, one) || one->keep_counts != 0)) {
            count = tocsin_term_profile(&view->terms[0], one->windows, d, profile, PROFILE_MAX,
                                        &extent);
            if (count > PROFILE_MAX)
                return refuse(call, TOCSIN_CAUSE_WRONG_LAYOUT, "a dim is cut into too many parts");
        }
        const bool whole = one->keep_counts >> d & 1;
        if (whole && count > 0 &&
            (count != 1 || profile[0].count != extent || profile[0].start.base != 0)) {
            range_text(profile, count, extent, range, sizeof range);
            snprintf(text, sizeof text, "axis %s must be whole but is %s",
                     axis < 0 ? "_" : axis_name(call, axis, buffer), range);
            return refuse(call, TOCSIN_CAUSE_WRONG_SHARD, text);
        }
        if (axis < 0)
            continue;
        if (!bind(call, axis, view->shape[d], profile, count, extent))
            return false;
    }
    return true;
}

/* A constant is the same operand however it is broadcast, unless an axis of it must be whole: one
 * element, with as many dims as the operand's form may have here. */
static tocsin_relation_id plain_constant(const application *call, uint32_t input)
{
    static const int64_t ones[TOCSIN_PLAN_NDIM_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const operand *one = &call->operands[input];
    const tocsin_signature_operand *form = &call->signature->operands[input];
    const uint32_t ndim = form->ellipsis ? call->ellipsis + form->ndim : one->view->ndim;
    const bool zero = one->view->count == 0;
    return tocsin_relation_constant(call->prover->universe, zero ? 0 : one->view->terms[0].factor,
                                    zero, ones, (uint8_t)ndim);
}

/* Is it the same operand however it is repeated? */
static bool is_plain_constant(const application *call, const operand *one)
{
    return one->view->count == 0 || (is_constant(call, one) && one->keep_counts == 0);
}

static bool widen_one(application *call, uint32_t input, uint32_t choice)
{
    operand *one = &call->operands[input];
    one->widened =
        is_plain_constant(call, one)
            ? plain_constant(call, input)
            : tocsin_relation_widen(call->prover->universe, one->relation, choice, one->keep_counts,
                                    call->prover->size, one->windows, WINDOWS_MAX);
    return one->widened != 0;
}

/* Widen every operand by its choice; false: there is no such choice. */
static bool widen_all(application *call)
{
    for (uint32_t i = 0; i < call->execution->input_count; i++)
        if (!widen_one(call, i, call->operands[i].choice))
            return false;
    return true;
}

static void count_choices(application *call)
{
    for (uint32_t i = 0; i < call->execution->input_count; i++) {
        operand *one = &call->operands[i];
        one->choice_count = 1;
        while (!is_plain_constant(call, one) && one->choice_count < CHOICES_MAX &&
               widen_one(call, i, one->choice_count))
            one->choice_count++;
    }
}

/* Attempt 0: all the smallest; 1: all whole; then all combinations. false: there are no more. */
static bool choose(application *call, uint32_t attempt)
{
    uint32_t rest = attempt - 1; /* 0 is attempt 0 */

    if (attempt == 2)
        count_choices(call);
    for (uint32_t i = 0; i < call->execution->input_count; i++) {
        operand *one = &call->operands[i];
        one->choice = attempt < 2 ? attempt : rest % one->choice_count;
        if (attempt >= 2)
            rest /= one->choice_count;
    }
    return attempt < 2 || rest == 0;
}

static bool bind_all(application *call)
{
    memset(call->axes, 0, sizeof call->axes[0] * call->axis_count);
    for (uint32_t i = 0; i < call->execution->input_count; i++)
        if (!bind_operand(call, &call->operands[i]))
            return false;
    return true;
}

static uint32_t key_operands(const application *call, tocsin_relation_id keys[INPUTS_MAX])
{
    const uint32_t inputs = call->execution->input_count;
    for (uint32_t i = 0; i < inputs; i++)
        keys[i] = call->operands[i].widened;
    if (call->signature->commutative && inputs == 2 && keys[0] > keys[1]) {
        const tocsin_relation_id swap = keys[0];
        keys[0] = keys[1];
        keys[1] = swap;
    }
    return inputs;
}

/* The axis of each dim of output `output`, and how many dims it has. */
static uint32_t output_axes(const application *call, uint32_t output,
                            int8_t axes[TOCSIN_PLAN_NDIM_MAX])
{
    const tocsin_signature *signature = call->signature;
    const tocsin_signature_operand *form = &signature->operands[signature->input_count + output];
    const uint32_t lead = form->ellipsis ? call->ellipsis : 0;
    if (lead + form->ndim > TOCSIN_PLAN_NDIM_MAX)
        return UINT32_MAX;
    for (uint32_t d = 0; d < lead; d++)
        axes[d] = (int8_t)(signature->axis_count + lead - 1 - d);
    for (uint32_t d = 0; d < form->ndim; d++)
        axes[lead + d] = form->axis[d];
    return lead + form->ndim;
}

/* Is every element along the axis of the result equal, as those of all operands are? Not along an
 * axis whose elements the operator couples: a triangle of ones is no ones. */
static bool is_repeated(const application *call, int axis)
{
    return axis >= 0 && !call->axes[axis].bound && call->axes[axis].local > 0 &&
           (axis >= call->signature->axis_count || !call->signature->whole[axis]);
}

/* The logical shape of an output: bound extents; axes that no operand binds have their local size.
 */
static void logical_shape(const application *call, uint32_t output, const int8_t *axes,
                          uint32_t ndim, int64_t shape[TOCSIN_PLAN_NDIM_MAX])
{
    for (uint32_t d = 0; d < ndim; d++) {
        const bound_axis *axis = axes[d] < 0 ? NULL : &call->axes[axes[d]];
        if (axis != NULL && axis->bound)
            shape[d] = axis->extent;
        else if (is_repeated(call, axes[d]))
            shape[d] = 1; /* only repeated elements were seen: so is the result */
        else
            shape[d] = call->execution->output_shapes[output][d];
    }
}

static bool add_box_of(application *call, tocsin_atom_id atom, const int8_t *axes, uint32_t ndim,
                       tocsin_box_entry *box, uint32_t *count, uint32_t limit,
                       tocsin_factor_id *factor)
{
    for (uint32_t a = 0; a < call->axis_count; a++) {
        const bound_axis *axis = &call->axes[a];
        bool in_output = false;
        for (uint32_t d = 0; d < ndim; d++)
            in_output |= axes[d] == (int)a;
        if (in_output || a >= call->signature->axis_count || !call->signature->contracted[a])
            continue;
        if (!axis->bound && call->execution->maximum)
            continue;       /* the maximum of equal elements is one of them */
        if (!axis->bound) { /* a sum of equal elements */
            *factor = tocsin_factor_multiply(
                call->prover->universe, *factor,
                tocsin_factor_rational(call->prover->universe, axis->local > 0 ? axis->local : 1,
                                       1));
            continue;
        }
        for (uint32_t k = 0; k < axis->count; k++) {
            const tocsin_digit *digit = &axis->profile[k];
            if (digit->start.base == 0 && digit->count == digit->extent)
                continue;
            if (*count == limit)
                return refuse(call, TOCSIN_CAUSE_WRONG_SHARD, "too many partial axes");
            box[(*count)++] = (tocsin_box_entry){.atom = atom,
                                                 .axis = (uint16_t)a,
                                                 .kind = call->execution->maximum ? TOCSIN_BOX_MAX
                                                                                  : TOCSIN_BOX_SUM,
                                                 .stride = digit->stride,
                                                 .extent = digit->extent,
                                                 .start = digit->start,
                                                 .count = digit->count};
        }
    }
    return true;
}

/* Is `atom` among what the relation is made of? Operands are older than what is made of them. */
static bool occurs(const tocsin_universe *universe, tocsin_atom_id atom, tocsin_relation_id id)
{
    TOCSIN_VEC(tocsin_relation_id) open = {0};
    tocsin_map seen = {0};
    bool found = !TOCSIN_VEC_PUSH(&open, id); /* out of memory: it may be */

    while (!found && open.count > 0) {
        const tocsin_relation *relation = tocsin_relation_get(universe, open.items[--open.count]);
        for (uint32_t k = 0; !found && k < relation->count; k++) {
            if (relation->segmented) {
                found = !TOCSIN_VEC_PUSH(&open, relation->segments[k]);
                continue;
            }
            const tocsin_atom_id own = relation->terms[k].atom;
            found = own == atom;
            if (own <= atom || tocsin_map_find(&seen, own) != NULL)
                continue;
            found |= !tocsin_map_put(&seen, own, 1);
            const tocsin_atom *made = tocsin_atom_get(universe, own);
            for (uint32_t i = 0; !found && i < made->operand_count; i++)
                found = !TOCSIN_VEC_PUSH(&open, made->operands[i]);
        }
    }
    TOCSIN_VEC_FREE(&open);
    tocsin_map_free(&seen);
    return found;
}

/* Entry `index` of the box that was drawn out, for the result. When what it restricts occurs in
 * another operand, too, the entry would not say which of the two is partial, and gets an axis of
 * the result that does: "this contraction in that operand". */
static bool pass_on(application *call, uint32_t index, tocsin_atom_id result,
                    tocsin_box_entry *entry)
{
    const uint32_t input = call->box_input[index], inputs = call->execution->input_count;
    const operand *operands = call->operands;
    uint32_t place = input;
    bool unclear = false;

    *entry = call->box[index];
    for (uint32_t i = 0; i < inputs && !unclear; i++)
        unclear = i != input && occurs(call->prover->universe, entry->atom, operands[i].widened);
    if (!unclear)
        return true;
    if (call->signature->commutative && inputs == 2) /* by the order of the keys, if they differ */
        place = operands[input].widened > operands[1 - input].widened;
    const uint32_t key[] = {result, place, entry->atom, entry->axis};
    entry->axis = tocsin_universe_axis(call->prover->universe, key, sizeof key);
    entry->atom = result;
    return entry->axis != 0 || refuse(call, TOCSIN_CAUSE_WRONG_SHARD, "too many partial operands");
}

static bool make_output(application *call, uint32_t output, tocsin_atom_id atom, const int8_t *axes,
                        uint32_t ndim)
{
    const tocsin_execution *execution = call->execution;
    tocsin_digit digits[TOCSIN_PLAN_NDIM_MAX * PROFILE_MAX];
    uint8_t digit_count[TOCSIN_PLAN_NDIM_MAX];
    tocsin_box_entry box[64];
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    uint32_t total = 0, box_count = 0;
    tocsin_factor_id factor = call->factor;
    const tocsin_atom *known = tocsin_atom_get(call->prover->universe, atom);

    assert(known->ndim == ndim);
    for (; box_count < call->box_count; box_count++)
        if (!pass_on(call, box_count, atom, &box[box_count]))
            return false;
    for (uint32_t d = 0; d < ndim; d++) {
        const bound_axis *axis = axes[d] < 0 ? NULL : &call->axes[axes[d]];
        const uint32_t first = total;
        if (axis != NULL && axis->bound) {
            for (uint32_t k = 0; k < axis->count; k++) {
                digits[total] = axis->profile[k];
                digits[total++].axis = d;
            }
            shape[d] = axis->local;
        } else if (is_repeated(call, axes[d])) {
            shape[d] = axis->local;
            if (axis->local > 1)
                digits[total++] = (tocsin_digit){.axis = TOCSIN_DIGIT_BROADCAST,
                                                 .stride = 1,
                                                 .extent = axis->local,
                                                 .count = axis->local};
        } else {
            shape[d] = axes[d] == TOCSIN_AXIS_ONE ? 1 : execution->output_shapes[output][d];
            if (shape[d] != known->shape[d])
                return refuse(call, TOCSIN_CAUSE_WRONG_SHARD,
                              "an output has another size than in the logical model");
            if (shape[d] > 1)
                digits[total++] =
                    (tocsin_digit){.axis = d, .stride = 1, .extent = shape[d], .count = shape[d]};
        }
        digit_count[d] = (uint8_t)(total - first);
    }
    if (!add_box_of(call, atom, axes, ndim, box, &box_count, TOCSIN_COUNT_OF(box), &factor))
        return false;
    const tocsin_term term = {.atom = atom,
                              .factor = factor,
                              .digit_count = digit_count,
                              .digits = digits,
                              .digit_total = total,
                              .box = box,
                              .box_count = box_count};
    execution->outputs[output] =
        tocsin_relation_of_term(call->prover->universe, &term, shape, (uint8_t)ndim);
    return execution->outputs[output] != 0;
}

static bool make_outputs(application *call)
{
    const tocsin_execution *execution = call->execution;
    tocsin_relation_id keys[INPUTS_MAX];
    const uint32_t inputs = key_operands(call, keys);

    for (uint32_t j = 0; j < execution->output_count; j++) {
        int8_t axes[TOCSIN_PLAN_NDIM_MAX];
        int64_t shape[TOCSIN_PLAN_NDIM_MAX];
        bool made = false;
        const uint32_t ndim = output_axes(call, j, axes);
        if (ndim == UINT32_MAX || ndim != execution->output_ndim[j])
            return refuse(call, TOCSIN_CAUSE_WRONG_LAYOUT,
                          "an output's number of dims does not fit the signature");
        logical_shape(call, j, axes, ndim, shape);
        const tocsin_atom_id atom =
            tocsin_atom_call(call->prover->universe, call->key, call->name, keys, inputs,
                             (uint16_t)j, shape, (uint8_t)ndim, execution->op, &made);
        if (atom == 0 || !make_output(call, j, atom, axes, ndim))
            return false;
    }
    return true;
}

/* Is the result zero because a linear operand is? */
static bool zero_result(application *call)
{
    const tocsin_execution *execution = call->execution;

    for (uint32_t i = 0; i < execution->input_count; i++) {
        const tocsin_relation *view =
            tocsin_relation_get(call->prover->universe, execution->inputs[i]);
        if (view->count != 0 || view->segmented || !is_linear_in(call->signature, i))
            continue;
        for (uint32_t j = 0; j < execution->output_count; j++) {
            execution->outputs[j] =
                tocsin_relation_constant(call->prover->universe, 0, true,
                                         execution->output_shapes[j], execution->output_ndim[j]);
            if (execution->outputs[j] == 0)
                return false;
        }
        return true;
    }
    return false;
}

/* Take the operands, as one term each, and draw out of them what can be. */
static bool prepare(application *call, const tocsin_relation_id *relations)
{
    for (uint32_t i = 0; i < call->execution->input_count; i++) {
        call->operands[i].relation = relations[i];
        call->operands[i].view = tocsin_relation_get(call->prover->universe, relations[i]);
    }
    return lay_out_axes(call) && single_terms(call) && draw_out(call);
}

typedef struct finding {
    bool known;
    bool binds;                   /* some operands fit together, */
    uint32_t choices[INPUTS_MAX]; /* first these; */
    tocsin_refusal why;           /* others do not, of the known ones if there are any */
} finding;

/* Widen the operands until they are those of an operator of the logical plan. */
static finding find_known(application *call)
{
    tocsin_universe *universe = call->prover->universe;
    tocsin_relation_id keys[INPUTS_MAX];
    finding found = {.why = {.text = ""}};

    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX && choose(call, attempt); attempt++) {
        if (!widen_all(call))
            continue;
        const uint32_t inputs = key_operands(call, keys);
        const bool known = tocsin_atom_find_call(universe, call->key, keys, inputs, 0) != 0;
        const bool binds = bind_all(call);
        if (!binds && (known || found.why.text[0] == '\0'))
            found.why = *tocsin_universe_refusal(universe);
        if (known && binds) {
            found.known = true;
            return found;
        }
        if (binds && !found.binds) {
            found.binds = true;
            for (uint32_t i = 0; i < inputs; i++)
                found.choices[i] = call->operands[i].choice;
        }
    }
    return found;
}

/* A value may be a part of several definitions, and a slice of several logical values: all that
 * are found of one operand, the first being the one that it is taken for at first. */
typedef struct forms {
    tocsin_relation_id relations[FORMS_MAX];
    uint32_t count;
} forms;

static forms forms_of(const application *call, tocsin_relation_id input)
{
    tocsin_universe *universe = call->prover->universe;
    forms found = {.count = 0};
    tocsin_relation_id fold;

    for (uint32_t choice = 0; choice < FOLDS_MAX; choice++) {
        fold = tocsin_relation_fold_again(universe, input, choice, call->prover->size);
        bool is_new = fold != 0;
        for (uint32_t i = 0; is_new && i < found.count; i++)
            is_new = found.relations[i] != fold;
        if (is_new)
            found.relations[found.count++] = fold;
    }
    for (uint32_t i = found.count; i-- > 0;)
        found.count +=
            tocsin_relation_realign(universe, found.relations[i], call->prover->size,
                                    found.relations + found.count, FORMS_MAX - found.count);
    return found;
}

/* Try the operands in their other forms, in a fixed order. */
static bool find_in_other_forms(application *call)
{
    const uint32_t inputs = call->execution->input_count;
    tocsin_relation_id relations[INPUTS_MAX];
    forms choices[INPUTS_MAX];
    uint32_t combinations = 1;

    for (uint32_t i = 0; i < inputs; i++) {
        choices[i] = forms_of(call, call->execution->inputs[i]);
        relations[i] = call->execution->inputs[i];
        if (choices[i].count == 0)
            choices[i] = (forms){.relations = {relations[i]}, .count = 1};
        if (combinations <= COMBINATIONS_MAX)
            combinations *= choices[i].count;
    }
    for (uint32_t k = 1; k < combinations && k < COMBINATIONS_MAX; k++) {
        uint32_t rest = k;
        for (uint32_t i = 0; i < inputs; i++) {
            relations[i] = choices[i].relations[rest % choices[i].count];
            rest /= choices[i].count;
        }
        if (prepare(call, relations) && find_known(call).known)
            return true;
    }
    return false;
}

/* The parallel side: the first way to take and widen the operands that the logical plan knows, else
 * the first that binds, as a foreign value. */
static bool search(application *call)
{
    tocsin_universe *universe = call->prover->universe;

    if (!prepare(call, call->execution->inputs))
        return false;
    const finding first = find_known(call);
    if (first.known || find_in_other_forms(call))
        return make_outputs(call);
    if (call->execution->known_only)
        return refuse(call, TOCSIN_CAUSE_WRONG_OPERATOR, "the logical model does not have this");
    if (!first.binds) {
        tocsin_universe_refuse(universe, first.why.cause, "%s", first.why.text);
        return false;
    }
    if (!prepare(call, call->execution->inputs))
        return false;
    for (uint32_t i = 0; i < call->execution->input_count; i++)
        call->operands[i].choice = first.choices[i];
    return widen_all(call) && bind_all(call) && make_outputs(call);
}

bool tocsin_congruence(tocsin_prover *prover, uint32_t key, const char *name,
                       const tocsin_signature *signature, const tocsin_execution *execution)
{
    application call; /* large: only what is used is set */

    call.prover = prover;
    call.signature = signature;
    call.execution = execution;
    call.name = name;
    call.key = key;
    call.logical = execution->op != TOCSIN_PLAN_NONE;

    assert(execution->output_count >= 1 && execution->input_count <= INPUTS_MAX);
    if (execution->output_count != signature->output_count)
        return refuse(&call, TOCSIN_CAUSE_WRONG_OPERATOR, "the signature has another result count");
    if (zero_result(&call))
        return true;
    if (!call.logical)
        return search(&call);
    return prepare(&call, execution->inputs) && choose(&call, 0) && widen_all(&call) &&
           bind_all(&call) && make_outputs(&call);
}
