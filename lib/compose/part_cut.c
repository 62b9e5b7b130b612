/* part_cut.c - cutting a plan that is proved as a whole into parts.
 *
 * At first every key is a part. Parts are joined (union-find) when they share a collective, a value
 * that several operators accumulate into, or a logical output; and when a value goes from one to
 * the other about which there is no claim. So what cannot be cut stays together, and the worst that
 * can happen is one part. Cost: linear in operands, but for the claims (proof.c).
 */
#include <assert.h>

#include "compose/compose.h"

enum { CLAIM_NOT_TRIED, CLAIM_NONE, CLAIM_MADE };

typedef struct cutter {
    tocsin_cuts *cuts;
    tocsin_proof *proof;
    const tocsin_plan *logical, *parallel;
    tocsin_role_parts *roles;
    uint32_t *joined; /* by key - 1: another key - 1 of its part; itself for the first */
    uint8_t *each;    /* by value of the plan */
    uint8_t *state;   /* by value of the plan: CLAIM_... */
    uint32_t *claim;  /* by value of the plan: into claims */
    TOCSIN_VEC(tocsin_claim) claims;
    tocsin_arena arena;
} cutter;

/* ---- cuts ------------------------------------------------------------------------------------ */

bool tocsin_cuts_init(tocsin_cuts *cuts, size_t role_count)
{
    *cuts = (tocsin_cuts){.role_count = role_count};
    cuts->roles = tocsin_zalloc(role_count + 1, sizeof *cuts->roles);
    return cuts->roles != NULL;
}

void tocsin_cuts_free(tocsin_cuts *cuts)
{
    for (size_t r = 0; cuts->roles != NULL && r < cuts->role_count; r++) {
        tocsin_intern_free(&cuts->roles[r].names);
        TOCSIN_VEC_FREE(&cuts->roles[r].claims);
        TOCSIN_VEC_FREE(&cuts->roles[r].messages);
    }
    tocsin_free(cuts->roles);
    tocsin_intern_free(&cuts->keys);
    TOCSIN_VEC_FREE(&cuts->part_of_key);
    tocsin_intern_free(&cuts->strings);
    *cuts = (tocsin_cuts){0};
}

const tocsin_part_claim *tocsin_cuts_find(const tocsin_cuts *cuts, uint32_t role, const char *name)
{
    const tocsin_role_cuts *own = &cuts->roles[role];
    const uint32_t id = tocsin_intern_find(&own->names, name, strlen(name));
    return id == 0 ? NULL : &own->claims.items[id - 1];
}

bool tocsin_cuts_add(tocsin_cuts *cuts, uint32_t role, const char *name,
                     const tocsin_part_claim *claim)
{
    tocsin_role_cuts *own = &cuts->roles[role];
    const uint32_t id = tocsin_intern_put(&own->names, name, strlen(name));
    return id != 0 && (id <= own->claims.count || TOCSIN_VEC_PUSH(&own->claims, *claim));
}

/* ---- joining --------------------------------------------------------------------------------- */

static uint32_t first_of(cutter *one, uint32_t key)
{
    uint32_t at = key - 1;
    while (one->joined[at] != at) {
        one->joined[at] = one->joined[one->joined[at]];
        at = one->joined[at];
    }
    return at;
}

static void join(cutter *one, uint32_t a, uint32_t b)
{
    const uint32_t x = first_of(one, a), y = first_of(one, b);
    one->joined[x > y ? x : y] = x > y ? y : x;
}

/* Join `key` with the one that was first seen at `place`. */
static bool join_at(cutter *one, tocsin_map *seen, uint64_t place, uint32_t key)
{
    uint64_t *first = tocsin_map_at(seen, place);
    if (first == NULL)
        return false;
    if (*first == 0)
        *first = key;
    join(one, (uint32_t)*first, key);
    return true;
}

static uint32_t output_key(const cutter *one, const tocsin_role_parts *parts,
                           const tocsin_plan_output *output)
{
    const uint32_t made = parts->producer[output->value];
    if (made != TOCSIN_PLAN_NONE && !tocsin_makes_constant(tocsin_role_parts_op(parts, made)))
        return parts->key[made];
    const char *name = tocsin_plan_text(one->parallel, output->name);
    const uint32_t key = tocsin_intern_find(&one->cuts->keys, name, tocsin_part_key_bytes(name));
    return key == 0 ? 1 : key;
}

/* Collectives, accumulated values, outputs. */
static bool join_shared(cutter *one)
{
    const uint32_t *match = tocsin_proof_match(one->proof);
    tocsin_map calls = {0}, outputs = {0};
    bool sound = true;

    for (size_t r = 0; r < one->parallel->roles.count && sound; r++) {
        const tocsin_role_parts *parts = &one->roles[r];
        const tocsin_plan_role *role = &one->parallel->roles.items[r];
        for (uint32_t k = 0; k < parts->op_count && sound; k++) {
            const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
            const uint32_t *written =
                one->parallel->operands.items + op->first_operand + op->input_count;
            const uint32_t number = match[parts->first_op + k];
            if (tocsin_operator_communicates(op->code) && !tocsin_is_message(op) &&
                number != TOCSIN_PLAN_NONE)
                sound = join_at(one, &calls, number, parts->key[k]);
            for (uint32_t j = 0; j < op->output_count; j++)
                join(one, parts->key[k], parts->key[parts->producer[written[j]]]);
        }
        for (uint32_t k = 0; k < role->output_count && sound; k++) {
            const tocsin_plan_output *output =
                &one->parallel->outputs.items[role->first_output + k];
            sound = join_at(one, &outputs, (uint64_t)output->kind << 32 | output->name,
                            output_key(one, parts, output));
        }
    }
    tocsin_map_free(&calls);
    tocsin_map_free(&outputs);
    return sound;
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* Can a cut plan say it? What persists is complete only after its last writer. */
static bool is_usable(const cutter *one, uint32_t value, const tocsin_claim *claim)
{
    const tocsin_plan_value *what = &one->parallel->values.items[value];
    if (what->ndim == TOCSIN_PLAN_NDIM_UNKNOWN || what->ndim != claim->ndim ||
        (what->persistent && claim->numerator != claim->denominator))
        return false;
    for (uint32_t d = 0; d < claim->ndim; d++)
        if (!one->each[value] && claim->starts[d].weight[TOCSIN_SYMBOL_MICROBATCH] != 0)
            return false;
    return true;
}

/* *claim: that about the value of the role, NULL: none. */
static tocsin_status claim_about(cutter *one, uint32_t role, uint32_t value,
                                 const tocsin_claim **claim, tocsin_error *error)
{
    const uint32_t at = one->parallel->roles.items[role].first_value + value;
    *claim = NULL;
    if (one->state[at] == CLAIM_NOT_TRIED) {
        tocsin_claim made;
        bool found = false;
        TOCSIN_TRY(tocsin_proof_claim(one->proof, role, value, &made, &found, error));
        one->state[at] = found && is_usable(one, at, &made) ? CLAIM_MADE : CLAIM_NONE;
        one->claim[at] = (uint32_t)one->claims.count;
        if (one->state[at] == CLAIM_MADE && !TOCSIN_VEC_PUSH(&one->claims, made))
            return tocsin_error_memory(error);
    }
    if (one->state[at] == CLAIM_MADE)
        *claim = &one->claims.items[one->claim[at]];
    return TOCSIN_OK;
}

/* Values that one key makes and another reads. A pending result is waited for where it is made. */
static tocsin_status join_unclaimed(cutter *one, uint32_t role, tocsin_error *error)
{
    const tocsin_role_parts *parts = &one->roles[role];
    for (uint32_t k = 0; k < parts->op_count; k++) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        const uint32_t *inputs = one->parallel->operands.items + op->first_operand;
        for (uint32_t i = 0; i < op->input_count; i++) {
            const uint32_t made = parts->producer[inputs[i]];
            const tocsin_claim *claim;
            if (made == TOCSIN_PLAN_NONE ||
                tocsin_makes_constant(tocsin_role_parts_op(parts, made)) ||
                first_of(one, parts->key[made]) == first_of(one, parts->key[k]))
                continue;
            TOCSIN_TRY(claim_about(one, role, inputs[i], &claim, error));
            if (claim == NULL || op->code == TOCSIN_OPERATOR_WAIT ||
                tocsin_is_asynchronous(one->parallel, tocsin_role_parts_op(parts, made)))
                join(one, parts->key[made], parts->key[k]);
        }
    }
    return TOCSIN_OK;
}

static bool same_claim(const tocsin_claim *a, const tocsin_claim *b)
{
    return a->logical == b->logical && a->numerator == b->numerator &&
           a->denominator == b->denominator && a->ndim == b->ndim &&
           memcmp(a->starts, b->starts, a->ndim * sizeof a->starts[0]) == 0;
}

/* A send and its receive: *cut: each part can do without the other. */
static tocsin_status can_cut_message(cutter *one, uint32_t sender, uint32_t send, uint32_t receiver,
                                     uint32_t receive, bool *cut, tocsin_error *error)
{
    const tocsin_role_parts *from = &one->roles[sender], *to = &one->roles[receiver];
    const tocsin_plan_op *out = tocsin_role_parts_op(from, send);
    const tocsin_plan_op *in = tocsin_role_parts_op(to, receive);
    const uint32_t sent = one->parallel->operands.items[out->first_operand];
    const uint32_t received = one->parallel->operands.items[in->first_operand + in->input_count];
    const uint32_t made = from->producer[sent];
    const tocsin_claim *claim;

    *cut = false;
    if (made == TOCSIN_PLAN_NONE || tocsin_makes_constant(tocsin_role_parts_op(from, made)))
        return TOCSIN_OK;
    TOCSIN_TRY(claim_about(one, sender, sent, &claim, error));
    if (claim == NULL)
        return TOCSIN_OK;
    const tocsin_claim before = *claim; /* the next may move the claims */
    TOCSIN_TRY(claim_about(one, receiver, received, &claim, error));
    *cut = claim != NULL && same_claim(&before, claim);
    return TOCSIN_OK;
}

typedef struct message_end {
    uint32_t role, op;
} message_end;

/* The sends and receives of the plan by their match number: *ends[0] send, *ends[1] receive. */
static tocsin_status find_messages(cutter *one, message_end *ends[2], tocsin_error *error)
{
    const uint32_t *match = tocsin_proof_match(one->proof);
    const size_t count = one->parallel->ops.count + 1;
    for (int side = 0; side < 2; side++) {
        ends[side] = TOCSIN_ARENA_ARRAY(&one->arena, message_end, count);
        if (ends[side] == NULL)
            return tocsin_error_memory(error);
        memset(ends[side], 0xff, count * sizeof *ends[side]);
    }
    for (uint32_t r = 0; r < one->parallel->roles.count; r++) {
        for (uint32_t k = 0; k < one->roles[r].op_count; k++) {
            const tocsin_plan_op *op = tocsin_role_parts_op(&one->roles[r], k);
            const uint32_t number = match[one->roles[r].first_op + k];
            if (tocsin_is_message(op) && number != TOCSIN_PLAN_NONE)
                ends[op->code == TOCSIN_OPERATOR_RECV][number] = (message_end){r, k};
        }
    }
    return TOCSIN_OK;
}

static tocsin_status join_messages(cutter *one, message_end *ends[2], tocsin_error *error)
{
    for (size_t number = 0; number < one->parallel->ops.count; number++) {
        const message_end from = ends[0][number], to = ends[1][number];
        bool cut;
        if (from.role == TOCSIN_PLAN_NONE || to.role == TOCSIN_PLAN_NONE)
            continue;
        TOCSIN_TRY(can_cut_message(one, from.role, from.op, to.role, to.op, &cut, error));
        if (!cut)
            join(one, one->roles[from.role].key[from.op], one->roles[to.role].key[to.op]);
    }
    return TOCSIN_OK;
}

/* ---- writing it down ------------------------------------------------------------------------- */

static bool number_parts(cutter *one)
{
    tocsin_cuts *cuts = one->cuts;
    const uint32_t keys = tocsin_intern_count(&cuts->keys);
    cuts->part_count = 0;
    for (uint32_t key = 1; key <= keys; key++) {
        const uint32_t first = first_of(one, key); /* never after this one */
        const uint32_t part =
            first + 1 == key ? cuts->part_count++ : cuts->part_of_key.items[first];
        if (!TOCSIN_VEC_PUSH(&cuts->part_of_key, part))
            return false;
    }
    return true;
}

static tocsin_status keep_claim(cutter *one, uint32_t role, uint32_t value, tocsin_error *error)
{
    const tocsin_plan_role *owner = &one->parallel->roles.items[role];
    const tocsin_plan_role *model = &one->logical->roles.items[0];
    const tocsin_claim *claim;
    TOCSIN_TRY(claim_about(one, role, value, &claim, error));
    assert(claim != NULL);
    const char *name = tocsin_plan_text(
        one->logical, one->logical->values.items[model->first_value + claim->logical].name);
    tocsin_part_claim kept = {
        .ndim = claim->ndim, .numerator = claim->numerator, .denominator = claim->denominator};
    for (uint32_t k = 0; k < model->input_count && !kept.is_input; k++) {
        const tocsin_plan_input *input = &one->logical->inputs.items[model->first_input + k];
        kept.is_input = input->value == claim->logical;
        if (kept.is_input)
            name = tocsin_plan_text(one->logical, input->name);
    }
    memcpy(kept.starts, claim->starts, sizeof kept.starts);
    kept.name = tocsin_intern_put(&one->cuts->strings, name, strlen(name));
    if (kept.name == 0 ||
        !tocsin_cuts_add(
            one->cuts, role,
            tocsin_plan_text(one->parallel,
                             one->parallel->values.items[owner->first_value + value].name),
            &kept))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

static tocsin_status write_role(cutter *one, uint32_t role, message_end *ends[2], bool *known,
                                tocsin_error *error)
{
    tocsin_role_parts *parts = &one->roles[role];
    const uint32_t *match = tocsin_proof_match(one->proof);

    for (uint32_t k = 0; k < parts->op_count; k++) {
        const tocsin_plan_op *op = tocsin_role_parts_op(parts, k);
        if (!tocsin_is_message(op))
            continue;
        const uint32_t number = match[parts->first_op + k];
        bool cut = false;
        if (number != TOCSIN_PLAN_NONE) {
            const message_end from = ends[0][number], to = ends[1][number];
            cut = first_of(one, one->roles[from.role].key[from.op]) !=
                  first_of(one, one->roles[to.role].key[to.op]);
        }
        if (!TOCSIN_VEC_PUSH(&one->cuts->roles[role].messages, cut))
            return tocsin_error_memory(error);
    }
    tocsin_role_parts_assign(parts, one->cuts, known);
    const uint32_t values = one->parallel->roles.items[role].value_count;
    for (uint32_t v = 0; v < values && *known; v++)
        if (parts->crosses[v])
            TOCSIN_TRY(keep_claim(one, role, v, error));
    return TOCSIN_OK;
}

static tocsin_status cut(cutter *one, const char **why, tocsin_error *error)
{
    const tocsin_plan *plan = one->parallel;
    message_end *ends[2];

    one->roles = tocsin_zalloc(plan->roles.count + 1, sizeof *one->roles);
    one->each = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, plan->values.count + 1);
    one->state = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, plan->values.count + 1);
    one->claim = TOCSIN_ARENA_ARRAY(&one->arena, uint32_t, plan->values.count + 1);
    if (one->roles == NULL || one->each == NULL || one->state == NULL || one->claim == NULL)
        return tocsin_error_memory(error);
    tocsin_plan_mark_microbatches(plan, one->each);
    memset(one->state, CLAIM_NOT_TRIED, plan->values.count);
    for (uint32_t r = 0; r < plan->roles.count; r++)
        TOCSIN_TRY(tocsin_role_parts_init(&one->roles[r], plan, r, one->cuts, error));
    const uint32_t keys = tocsin_intern_count(&one->cuts->keys);
    if (keys == 0) {
        *why = "it has no operators";
        return TOCSIN_OK;
    }
    one->joined = TOCSIN_ARENA_ARRAY(&one->arena, uint32_t, keys);
    if (one->joined == NULL)
        return tocsin_error_memory(error);
    for (uint32_t k = 0; k < keys; k++)
        one->joined[k] = k;
    if (!join_shared(one))
        return tocsin_error_memory(error);
    TOCSIN_TRY(find_messages(one, ends, error));
    TOCSIN_TRY(join_messages(one, ends, error));
    for (uint32_t r = 0; r < plan->roles.count; r++)
        TOCSIN_TRY(join_unclaimed(one, r, error));
    if (!number_parts(one))
        return tocsin_error_memory(error);
    for (uint32_t r = 0; r < plan->roles.count && *why == NULL; r++) {
        bool known = true;
        TOCSIN_TRY(write_role(one, r, ends, &known, error));
        if (!known)
            *why = "a message carries an input or a constant";
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_cuts_make(tocsin_cuts *cuts, tocsin_proof *proof, const tocsin_plan *logical,
                               const tocsin_plan *parallel, bool *done, const char **why,
                               tocsin_error *error)
{
    cutter one = {.cuts = cuts, .proof = proof, .logical = logical, .parallel = parallel};
    assert(cuts->role_count == parallel->roles.count);
    *done = false;
    *why = NULL;
    if (!tocsin_proof_is_symbolic(proof)) {
        *why = "replicas or micro-batches differ and were proved one by one";
        return TOCSIN_OK;
    }
    const tocsin_status status = cut(&one, why, error);
    *done = status == TOCSIN_OK && *why == NULL;
    for (size_t r = 0; one.roles != NULL && r < parallel->roles.count; r++)
        tocsin_role_parts_free(&one.roles[r]);
    tocsin_free(one.roles);
    TOCSIN_VEC_FREE(&one.claims);
    tocsin_arena_free(&one.arena);
    return status;
}
