/* structure.c - rules of operators that move elements and compute nothing: views, permutations,
 * slices, concatenation. All are exact on relations (layout.c, view.c, join.c).
 */
#include "prove/transfer.h"

static tocsin_affine constant_start(int64_t start)
{
    return (tocsin_affine){.base = start};
}

bool tocsin_rule_identity(tocsin_prover *prover, const tocsin_kind *kind,
                          const tocsin_execution *run)
{
    (void)prover;
    (void)kind;
    return tocsin_rule_give(run, 0, run->inputs[0]);
}

bool tocsin_rule_copies(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    (void)prover;
    (void)kind;
    for (uint32_t j = 0; j < run->output_count; j++)
        run->outputs[j] = run->inputs[0];
    return true;
}

/* The relation as one term, by definition; 0: refused. */
static tocsin_relation_id as_one_term(tocsin_prover *prover, const tocsin_kind *kind,
                                      const tocsin_execution *run, tocsin_relation_id relation)
{
    if (run->op != TOCSIN_PLAN_NONE)
        return tocsin_relation_define(prover->universe, relation, kind->name, run->op);
    return tocsin_relation_fold(prover->universe, relation, prover->size);
}

/* The value as an atom of its own, "contiguous": a view may cut across the ranges of the atom that
 * it is a part of. On the parallel side only what the logical model has. */
static tocsin_relation_id as_atom(tocsin_prover *prover, const tocsin_execution *run,
                                  tocsin_relation_id relation)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
    tocsin_signature signature = prover->table_signatures[TOCSIN_OPERATOR_EXP]; /* [...] -> [...] */
    const int64_t *shapes[1] = {view->shape};
    const uint8_t ndim = view->ndim;
    tocsin_relation_id made = 0;
    const tocsin_execution step = {.op = run->op,
                                   .inputs = &relation,
                                   .outputs = &made,
                                   .output_shapes = shapes,
                                   .output_ndim = &ndim,
                                   .input_count = 1,
                                   .output_count = 1,
                                   .known_only = true};
    const uint32_t key = tocsin_prover_key(prover, "contiguous");
    signature.linear = 1;
    if (key == 0 || !tocsin_congruence(prover, key, "contiguous", &signature, &step))
        return 0;
    prover->has_contiguous = true;
    return made;
}

static tocsin_relation_id viewed(tocsin_prover *prover, const tocsin_execution *run,
                                 tocsin_relation_id relation)
{
    return relation == 0 ? 0
                         : tocsin_relation_view(prover->universe, relation, run->output_shapes[0],
                                                run->output_ndim[0]);
}

/* A rank's view where some logical ones cut across ranges: perhaps it is a part of one of these. */
static tocsin_relation_id local_view(tocsin_prover *prover, const tocsin_execution *run,
                                     tocsin_relation_id input)
{
    const tocsin_relation_id plain = viewed(prover, run, input);
    if (plain != 0 && tocsin_relation_is_logical_slice(prover->universe, plain, prover->size))
        return plain;
    const tocsin_relation_id one = tocsin_relation_fold(prover->universe, input, prover->size);
    const tocsin_relation_id own = viewed(prover, run, one == 0 ? 0 : as_atom(prover, run, one));
    return own != 0 ? own : viewed(prover, run, input);
}

/* Pieces (the halves of a rotated head, say, whose heads are then joined) become one value by
 * definition before a view, on either side, also where a rank's view would not cut across them: a
 * rank may hold one head of many. What the logical model does not define keeps its pieces. */
bool tocsin_rule_view(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const bool logical = run->op != TOCSIN_PLAN_NONE;
    tocsin_relation_id input = run->inputs[0];
    if (tocsin_relation_get(prover->universe, input)->segmented) {
        const tocsin_relation_id one = as_one_term(prover, kind, run, input);
        input = one == 0 ? input : one;
    }
    if (!logical && prover->has_contiguous)
        return tocsin_rule_give(run, 0, local_view(prover, run, input));
    const tocsin_relation_id made = viewed(prover, run, input);
    if (made != 0 || !logical)
        return tocsin_rule_give(run, 0, made);
    const tocsin_relation_id one = as_one_term(prover, kind, run, input);
    return tocsin_rule_give(run, 0, viewed(prover, run, one == 0 ? 0 : as_atom(prover, run, one)));
}

bool tocsin_rule_permute(tocsin_prover *prover, const tocsin_kind *kind,
                         const tocsin_execution *run)
{
    uint32_t count;
    uint8_t dims[TOCSIN_PLAN_NDIM_MAX];
    const uint32_t ndim = tocsin_rule_ndim(prover, run->inputs[0]);
    const int64_t *list = tocsin_kind_list(kind, "dims", &count);
    if (list == NULL || count != ndim)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                  "dims do not fit the operand");
    for (uint32_t d = 0; d < count; d++) {
        const uint32_t dim = tocsin_rule_dim(list[d], ndim);
        if (dim == UINT32_MAX)
            return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                      "a dim is out of range");
        dims[d] = (uint8_t)dim;
    }
    return tocsin_rule_give(run, 0,
                            tocsin_relation_permute(prover->universe, run->inputs[0], dims));
}

bool tocsin_rule_expand(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    (void)kind;
    return tocsin_rule_give(run, 0, tocsin_rule_expanded(prover, run, 0));
}

bool tocsin_rule_slice(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0), input->ndim);
    const int64_t step = tocsin_kind_integer(kind, "step", 1);
    if (dim == UINT32_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    const int64_t size = input->shape[dim];
    int64_t start = tocsin_kind_integer(kind, "start", 0);
    int64_t end = tocsin_kind_integer(kind, "end", size);
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end > size ? size : end;
    if (start < 0 || end <= start || step < 1)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                  "the range is out of the operand");
    return tocsin_rule_give(run, 0,
                            tocsin_relation_slice(prover->universe, run->inputs[0], dim,
                                                  constant_start(start),
                                                  (end - start + step - 1) / step, step));
}

bool tocsin_rule_select(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0), input->ndim);
    if (dim == UINT32_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    int64_t index = tocsin_kind_integer(kind, "index", 0);
    index = index < 0 ? index + input->shape[dim] : index;
    if (index < 0 || index >= input->shape[dim])
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "index is out of range");
    return tocsin_rule_give(run, 0,
                            tocsin_relation_select(prover->universe, run->inputs[0], dim, index));
}

bool tocsin_rule_split(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const uint32_t ndim = tocsin_rule_ndim(prover, run->inputs[0]);
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0), ndim);
    int64_t start = 0;
    if (dim == UINT32_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    for (uint32_t j = 0; j < run->output_count; j++) {
        if (run->output_ndim[j] != ndim)
            return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                      "a part has another ndim");
        const int64_t count = run->output_shapes[j][dim];
        if (!tocsin_rule_give(run, j,
                              tocsin_relation_slice(prover->universe, run->inputs[0], dim,
                                                    constant_start(start), count, 1)))
            return false;
        start += count;
    }
    return true;
}

bool tocsin_rule_unbind(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0),
                                         tocsin_rule_ndim(prover, run->inputs[0]));
    if (dim == UINT32_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    for (uint32_t j = 0; j < run->output_count; j++)
        if (!tocsin_rule_give(run, j,
                              tocsin_relation_select(prover->universe, run->inputs[0], dim, j)))
            return false;
    return true;
}

/* Concatenation. A piece that itself consists of pieces along another dim becomes one value by
 * definition when the pieces do not meet in a grid. */
static tocsin_relation_id joined(tocsin_prover *prover, const tocsin_kind *kind,
                                 const tocsin_execution *run, const tocsin_relation_id *parts,
                                 uint32_t count, uint32_t dim)
{
    const tocsin_relation_id made = tocsin_relation_cat(prover->universe, parts, count, dim);
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_relation_id result = 0;
    bool defined = false;

    if (made != 0)
        return run->op != TOCSIN_PLAN_NONE
                   ? made
                   : tocsin_relation_realign_pieces(prover->universe, made, prover->size);
    tocsin_relation_id *own = TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_relation_id, count);
    for (uint32_t i = 0; own != NULL && i < count; i++) {
        const tocsin_relation *part = tocsin_relation_get(prover->universe, parts[i]);
        const bool across = part->segmented && part->segment_dim != dim;
        own[i] = across ? as_one_term(prover, kind, run, parts[i]) : parts[i];
        if (own[i] == 0)
            goto out;
        defined |= across;
    }
    if (own != NULL && defined)
        result = tocsin_relation_cat(prover->universe, own, count, dim);
out:
    tocsin_arena_reset_to(&prover->arena, mark);
    return result;
}

bool tocsin_rule_cat(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0),
                                         tocsin_rule_ndim(prover, run->inputs[0]));
    if (dim == UINT32_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    return tocsin_rule_give(run, 0, joined(prover, kind, run, run->inputs, run->input_count, dim));
}

bool tocsin_rule_stack(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *first = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t ndim = first->ndim;
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0), ndim + 1);
    int64_t shape[TOCSIN_PLAN_NDIM_MAX + 1];
    if (dim == UINT32_MAX || ndim >= TOCSIN_PLAN_NDIM_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    for (uint32_t d = 0; d <= ndim; d++)
        shape[d] = d == dim ? 1 : first->shape[d - (d > dim)];
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_relation_id *parts =
        TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_relation_id, run->input_count);
    bool done = parts != NULL;
    for (uint32_t i = 0; done && i < run->input_count; i++) {
        parts[i] =
            tocsin_relation_view(prover->universe, run->inputs[i], shape, (uint8_t)(ndim + 1));
        done = parts[i] != 0;
    }
    if (done)
        run->outputs[0] = joined(prover, kind, run, parts, run->input_count, dim);
    tocsin_arena_reset_to(&prover->arena, mark);
    return done && run->outputs[0] != 0;
}

bool tocsin_rule_pad(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", 0), input->ndim);
    const int64_t margin[2] = {tocsin_kind_integer(kind, "before", 0),
                               tocsin_kind_integer(kind, "after", 0)};
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    tocsin_relation_id parts[3];
    uint32_t count = 0;
    if (dim == UINT32_MAX || margin[0] < 0 || margin[1] < 0)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                  "padding is out of range");
    const uint8_t ndim = input->ndim;
    memcpy(shape, input->shape, ndim * sizeof shape[0]);
    for (uint32_t side = 0; side < 2; side++) {
        if (side == 1)
            parts[count++] = run->inputs[0];
        if (margin[side] == 0)
            continue;
        shape[dim] = margin[side];
        parts[count] = tocsin_relation_constant(prover->universe, 0, true, shape, ndim);
        if (parts[count++] == 0)
            return false;
    }
    return tocsin_rule_give(run, 0, joined(prover, kind, run, parts, count, dim));
}
