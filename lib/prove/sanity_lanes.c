/* sanity_lanes.c - which calls meet: the k-th calls of all members of a lane.
 *
 * Lanes are made when a step first needs them: a group of one replica (or over all replicas), or a
 * channel (source, destination, tag). Each step of each actor is bound to its slot once; following
 * the schedule is then an array look-up per call. The member that reaches call k first leaves it as
 * the reference; the others are compared with it by interned signature. A lane whose sequences
 * differ is *broken* and left to the diagnosis.
 *
 * Cost: one hash look-up per step and actor, a comparison of two integers per call. Memory: 8 bytes
 * per round.
 */
#include <assert.h>
#include <tocsin/tensor.h>

#include "prove/sanity_model.h"

/* ---- signatures ------------------------------------------------------------------------------ */

/* Words of a signature; then the input's and the output's ndim and dims. A value that nothing
 * writes has the dtype UNTYPED. */
enum { UNTYPED = -1 };
enum { WORD_CODE, WORD_DTYPE, WORD_FIRST, WORD_SECOND, WORD_SHAPES };
enum { WORDS_MAX = WORD_SHAPES + 2 * (1 + TOCSIN_PLAN_NDIM_MAX) };

static int64_t integer_attribute(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key)
{
    const tocsin_attribute *attribute = tocsin_plan_attribute(plan, op->attributes, key);
    bool has = attribute && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS && attribute->count == 1;
    return has ? attribute->integers[0] : 0;
}

/* The string of the reduction; 0: sum, which may go unsaid. */
static int64_t reduction(const tocsin_plan *plan, const tocsin_plan_op *op)
{
    const tocsin_attribute *attribute = tocsin_plan_attribute(plan, op->attributes, "op");
    if (!attribute || attribute->kind != TOCSIN_ATTRIBUTE_TEXT ||
        strcmp(tocsin_plan_text(plan, attribute->text), "sum") == 0)
        return 0;
    return attribute->text;
}

static size_t put_shape(const tocsin_plan *plan, const tocsin_plan_value *value, int64_t *words)
{
    words[0] = value && value->ndim != TOCSIN_PLAN_NDIM_UNKNOWN ? value->ndim : 0;
    for (int64_t d = 0; d < words[0]; ++d)
        words[1 + d] = tocsin_plan_shape(plan, value)[d];
    return 1 + (size_t)words[0];
}

static int64_t dtype_of(const tocsin_plan_value *value)
{
    if (!value)
        return 0;
    return value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN ? UNTYPED : value->dtype;
}

static int64_t normal_dim(int64_t dim, const tocsin_plan_value *value)
{
    return dim < 0 && value ? dim + value->ndim : dim;
}

static void blank_dim(int64_t *shape, int64_t dim)
{
    if (dim >= 0 && dim < shape[0])
        shape[1 + dim] = -1;
}

static size_t put_signature(const tocsin_plan *plan, const tocsin_plan_op *op,
                            const tocsin_plan_value *input, const tocsin_plan_value *output,
                            int64_t words[WORDS_MAX])
{
    const tocsin_plan_value *value = input ? input : output;
    words[WORD_CODE] = op->code;
    words[WORD_DTYPE] = dtype_of(value);
    words[WORD_FIRST] = words[WORD_SECOND] = 0;
    switch (op->code) {
    case TOCSIN_OPERATOR_SEND:
    case TOCSIN_OPERATOR_RECV: /* a send meets a receive */
        words[WORD_CODE] = TOCSIN_OPERATOR_SEND;
        input = value;
        output = NULL;
        break;
    case TOCSIN_OPERATOR_BROADCAST: /* the root alone needs an input */
        words[WORD_FIRST] = integer_attribute(plan, op, "root");
        words[WORD_DTYPE] = dtype_of(output);
        input = output;
        output = NULL;
        break;
    case TOCSIN_OPERATOR_ALL_TO_ALL:
        words[WORD_FIRST] = normal_dim(integer_attribute(plan, op, "split_dim"), value);
        words[WORD_SECOND] = normal_dim(integer_attribute(plan, op, "join_dim"), value);
        break;
    case TOCSIN_OPERATOR_ALL_GATHER:
    case TOCSIN_OPERATOR_REDUCE_SCATTER:
        words[WORD_FIRST] = normal_dim(integer_attribute(plan, op, "dim"), value);
        words[WORD_SECOND] = reduction(plan, op);
        break;
    default:
        words[WORD_SECOND] = reduction(plan, op);
        output = NULL;
        break;
    }
    size_t count = WORD_SHAPES + put_shape(plan, input, &words[WORD_SHAPES]);
    if (op->code == TOCSIN_OPERATOR_ALL_TO_ALL) { /* parts may differ: shapes do along two dims */
        blank_dim(&words[WORD_SHAPES], words[WORD_FIRST]);
        blank_dim(&words[WORD_SHAPES], words[WORD_SECOND]);
        output = NULL;
    }
    return count + put_shape(plan, output, &words[count]);
}

static uint64_t group_size(const tocsin_plan *plan, uint32_t index)
{
    const tocsin_plan_group *group = &plan->groups.items[index];
    bool all = group->member_count &&
               plan->members.items[group->first_member].replica == TOCSIN_MEMBER_ALL;
    return (uint64_t)group->member_count * (all ? tocsin_plan_replicas(plan) : 1);
}

uint32_t tocsin_sanity_signature(tocsin_sanity_model *model, const tocsin_plan_role *role,
                                 const tocsin_plan_op *op, bool *uneven)
{
    const tocsin_plan *plan = model->plan;
    const uint32_t *operands = &plan->operands.items[op->first_operand];
    const tocsin_plan_value *values = &plan->values.items[role->first_value];
    int64_t words[WORDS_MAX];
    size_t count =
        put_signature(plan, op, op->input_count ? &values[operands[0]] : NULL,
                      op->output_count ? &values[operands[op->input_count]] : NULL, words);
    assert(count <= WORDS_MAX);
    uint32_t id = tocsin_intern_put(&model->signatures, words, count * sizeof *words);
    int64_t part = 0, whole = 0, size = 0;
    if (id && op->group != TOCSIN_PLAN_NONE) {
        tocsin_sanity_extents(model, id, &part, &whole);
        size = (int64_t)group_size(plan, op->group);
    }
    *uneven = part && (whole % size != 0 || whole / size != part);
    return id;
}

static void get_words(const tocsin_sanity_model *model, uint32_t signature,
                      int64_t words[WORDS_MAX])
{
    size_t bytes = 0;
    const char *text = tocsin_intern_text(&model->signatures, signature, &bytes);
    assert(text && bytes <= WORDS_MAX * sizeof *words);
    memset(words, 0, WORDS_MAX * sizeof *words);
    memcpy(words, text, bytes);
}

void tocsin_sanity_extents(const tocsin_sanity_model *model, uint32_t signature, int64_t *part,
                           int64_t *whole)
{
    int64_t words[WORDS_MAX];
    get_words(model, signature, words);
    bool gather = words[WORD_CODE] == TOCSIN_OPERATOR_ALL_GATHER;
    const int64_t *input = &words[WORD_SHAPES], *output = input + 1 + input[0];
    int64_t dim = words[WORD_FIRST];
    *part = *whole = 0;
    if ((!gather && words[WORD_CODE] != TOCSIN_OPERATOR_REDUCE_SCATTER) || dim < 0 ||
        dim >= input[0] || dim >= output[0])
        return;
    *part = (gather ? input : output)[1 + dim];
    *whole = (gather ? output : input)[1 + dim];
}

bool tocsin_sanity_agree(const tocsin_sanity_model *model, uint32_t a, uint32_t b)
{
    if (a == b)
        return true;
    int64_t left[WORDS_MAX], right[WORDS_MAX];
    get_words(model, a, left);
    get_words(model, b, right);
    if (left[WORD_DTYPE] == UNTYPED || right[WORD_DTYPE] == UNTYPED)
        return left[WORD_CODE] == right[WORD_CODE];
    if (!left[WORD_DTYPE] || !right[WORD_DTYPE]) /* an unknown dtype fits all */
        left[WORD_DTYPE] = right[WORD_DTYPE] = 0;
    for (int side = 0; side < 2; ++side) { /* parts of a gather or scatter may be uneven */
        int64_t *words = side ? right : left;
        int64_t *input = &words[WORD_SHAPES], *output = input + 1 + input[0];
        if (words[WORD_CODE] == TOCSIN_OPERATOR_ALL_GATHER)
            blank_dim(input, words[WORD_FIRST]);
        else if (words[WORD_CODE] == TOCSIN_OPERATOR_REDUCE_SCATTER)
            blank_dim(output, words[WORD_FIRST]);
    }
    return memcmp(left, right, sizeof left) == 0;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

typedef struct lane_table {
    tocsin_sanity_model *model;
    tocsin_map groups;      /* (group, replica or 0): lane + 1 */
    tocsin_map slots;       /* (lane, actor): slot + 1 */
    tocsin_intern channels; /* (source, destination, tag) as three words */
    TOCSIN_VEC(uint32_t) channel_lanes;
} lane_table;

/* A second slot of the same actor in a lane is none. */
static bool add_slot(lane_table *table, uint32_t lane, uint32_t actor)
{
    tocsin_sanity_model *model = table->model;
    uint64_t *slot = tocsin_map_at(&table->slots, ((uint64_t)lane << 32) | actor);
    if (!slot)
        return false;
    if (*slot)
        return true;
    *slot = model->slots.count + 1;
    ++model->lanes.items[lane].slot_count;
    return TOCSIN_VEC_PUSH(&model->slots, (tocsin_sanity_slot){.lane = lane, .actor = actor});
}

static bool add_lane(lane_table *table, uint32_t group, uint32_t *lane)
{
    tocsin_sanity_model *model = table->model;
    *lane = (uint32_t)model->lanes.count;
    return TOCSIN_VEC_PUSH(
        &model->lanes,
        (tocsin_sanity_lane){.first_slot = (uint32_t)model->slots.count, .group = group});
}

static bool add_members(lane_table *table, uint32_t lane, uint32_t group, uint32_t replica)
{
    tocsin_sanity_model *model = table->model;
    const tocsin_plan_group *declared = &model->plan->groups.items[group];
    const tocsin_plan_member *members = &model->plan->members.items[declared->first_member];
    bool all = declared->member_count && members[0].replica == TOCSIN_MEMBER_ALL;
    for (uint32_t r = 0; r < (all ? model->replicas : 1); ++r) {
        for (uint32_t m = 0; m < declared->member_count; ++m) {
            uint32_t of = all ? r : replica;
            if (members[m].replica >= 0)
                of = (uint32_t)members[m].replica;
            assert(of < model->replicas);
            if (!add_slot(table, lane, members[m].device * model->replicas + of))
                return false;
        }
    }
    return true;
}

static bool is_per_replica(const tocsin_plan *plan, uint32_t group)
{
    const tocsin_plan_group *declared = &plan->groups.items[group];
    for (uint32_t m = 0; m < declared->member_count; ++m)
        if (plan->members.items[declared->first_member + m].replica == TOCSIN_MEMBER_SAME)
            return true;
    return false;
}

static bool group_lane(lane_table *table, uint32_t group, uint32_t replica, uint32_t *lane)
{
    uint64_t key = (uint64_t)group << 32;
    if (replica && is_per_replica(table->model->plan, group))
        key |= replica;
    uint64_t *known = tocsin_map_at(&table->groups, key);
    if (!known)
        return false;
    if (*known) {
        *lane = (uint32_t)(*known - 1);
        return true;
    }
    if (!add_lane(table, group, lane))
        return false;
    *known = (uint64_t)*lane + 1;
    return add_members(table, *lane, group, replica);
}

static bool channel_lane(lane_table *table, uint32_t source, uint32_t destination, int64_t tag,
                         uint32_t *lane)
{
    int64_t key[3] = {source, destination, tag};
    uint32_t id = tocsin_intern_put(&table->channels, key, sizeof key);
    if (!id)
        return false;
    if (id <= table->channel_lanes.count) {
        *lane = table->channel_lanes.items[id - 1];
        return true;
    }
    return add_lane(table, TOCSIN_PLAN_NONE, lane) &&
           TOCSIN_VEC_PUSH(&table->channel_lanes, *lane) && add_slot(table, *lane, source) &&
           add_slot(table, *lane, destination);
}

/* ---- binding steps --------------------------------------------------------------------------- */

static tocsin_status add_stray(lane_table *table, uint32_t actor, uint32_t step,
                               tocsin_cause_class class, const char *relation, const char *expected,
                               tocsin_error *error)
{
    tocsin_sanity_stray stray = {
        .actor = actor, .step = step, .class = class, .relation = relation, .expected = expected};
    return TOCSIN_VEC_PUSH(&table->model->strays, stray) ? TOCSIN_OK : tocsin_error_memory(error);
}

/* The slot of a step, TOCSIN_PLAN_NONE for waits and strays. */
static tocsin_status bind_step(lane_table *table, uint32_t index, uint32_t step, uint32_t *port,
                               tocsin_error *error)
{
    tocsin_sanity_model *model = table->model;
    const tocsin_plan *plan = model->plan;
    const tocsin_sanity_actor *actor = &model->actors.items[index];
    const tocsin_plan_op *op = &plan->ops.items[model->steps.items[step].op];
    uint32_t lane = 0;
    *port = TOCSIN_PLAN_NONE;
    if (!model->steps.items[step].signature)
        return TOCSIN_OK;
    if (op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV) {
        int64_t device = integer_attribute(plan, op, "peer");
        if (device < 0 || device >= tocsin_plan_devices(plan))
            return add_stray(table, index, step, TOCSIN_CAUSE_UNMATCHED,
                             ", a peer that does not exist", "a device of the mesh", error);
        uint32_t peer = (uint32_t)device * model->replicas + actor->replica;
        bool sends = op->code == TOCSIN_OPERATOR_SEND;
        if (peer == index)
            return add_stray(table, index, step, TOCSIN_CAUSE_UNMATCHED, ", itself",
                             "another device", error);
        if (!channel_lane(table, sends ? index : peer, sends ? peer : index,
                          integer_attribute(plan, op, "tag"), &lane))
            return tocsin_error_memory(error);
    } else if (op->group == TOCSIN_PLAN_NONE) {
        return add_stray(table, index, step, TOCSIN_CAUSE_WRONG_GROUP, " without a group",
                         "a group that contains the caller", error);
    } else if (!group_lane(table, op->group, actor->replica, &lane)) {
        return tocsin_error_memory(error);
    }
    const uint64_t *slot = tocsin_map_find(&table->slots, ((uint64_t)lane << 32) | index);
    if (!slot)
        return add_stray(table, index, step, TOCSIN_CAUSE_WRONG_GROUP, ", of which it is no member",
                         "a group of the caller", error);
    *port = (uint32_t)(*slot - 1);
    model->lanes.items[lane].uneven |= model->steps.items[step].uneven;
    return TOCSIN_OK;
}

static tocsin_status add_actors(tocsin_sanity_model *model, tocsin_error *error)
{
    const tocsin_plan *plan = model->plan;
    size_t count = (size_t)tocsin_plan_devices(plan) * model->replicas;
    if (!TOCSIN_VEC_RESERVE(&model->actors, count))
        return tocsin_error_memory(error);
    model->actors.count = count;
    for (size_t a = 0; a < count; ++a)
        model->actors.items[a].role = TOCSIN_PLAN_NONE;
    for (size_t r = 0; r < plan->roles.count; ++r) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t i = 0; i < role->replica_count; ++i) {
            uint32_t replica = role->first_replica + i;
            if (replica >= model->replicas)
                break;
            assert(role->device < tocsin_plan_devices(plan));
            model->actors.items[(size_t)role->device * model->replicas + replica] =
                (tocsin_sanity_actor){
                    .role = (uint32_t)r, .device = role->device, .replica = replica};
        }
    }
    return TOCSIN_OK;
}

static tocsin_status bind_steps(lane_table *table, tocsin_error *error)
{
    tocsin_sanity_model *model = table->model;
    for (uint32_t a = 0; a < model->actors.count; ++a) {
        tocsin_sanity_actor *actor = &model->actors.items[a];
        actor->first_port = (uint32_t)model->ports.count;
        if (actor->role == TOCSIN_PLAN_NONE)
            continue;
        const tocsin_plan_role *role = &model->plan->roles.items[actor->role];
        uint32_t end = model->segment_step[role->first_segment + role->segment_count];
        for (uint32_t s = model->segment_step[role->first_segment]; s < end; ++s) {
            uint32_t port = TOCSIN_PLAN_NONE;
            TOCSIN_TRY(bind_step(table, a, s, &port, error));
            if (!TOCSIN_VEC_PUSH(&model->ports, port))
                return tocsin_error_memory(error);
        }
        if (model->ports.count > UINT32_MAX / 2)
            return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than 2^31 communication calls");
    }
    return TOCSIN_OK;
}

/* ---- following the schedule ------------------------------------------------------------------ */

tocsin_status tocsin_sanity_follow(tocsin_sanity_model *model, uint32_t index,
                                   tocsin_sanity_visitor *visitor, tocsin_error *error)
{
    const tocsin_sanity_actor *actor = &model->actors.items[index];
    if (actor->role == TOCSIN_PLAN_NONE)
        return TOCSIN_OK;
    const tocsin_plan_role *role = &model->plan->roles.items[actor->role];
    const uint32_t *segment_step = &model->segment_step[role->first_segment];
    uint32_t turns = tocsin_sanity_turns(role), base = segment_step[0];
    if (segment_step[role->segment_count] == base)
        return TOCSIN_OK;
    const uint32_t *ports = &model->ports.items[actor->first_port];
    for (uint32_t t = 0; t < turns; ++t) {
        tocsin_plan_turn turn = tocsin_sanity_turn(model->plan, role, t);
        for (uint32_t s = segment_step[turn.segment]; s < segment_step[turn.segment + 1]; ++s) {
            tocsin_sanity_visit visit = {.step = s, .microbatch = turn.microbatch};
            if (ports[s - base] != TOCSIN_PLAN_NONE)
                TOCSIN_TRY(visitor(model, index, ports[s - base], visit, error));
        }
    }
    return TOCSIN_OK;
}

static bool same_microbatch(const tocsin_plan *plan, int32_t a, int32_t b)
{
    return a == b || (plan->microbatches == 1 && a <= 0 && b <= 0);
}

static tocsin_status match_call(tocsin_sanity_model *model, uint32_t actor, uint32_t index,
                                tocsin_sanity_visit visit, tocsin_error *error)
{
    (void)actor;
    tocsin_sanity *result = model->result;
    tocsin_sanity_slot *slot = &model->slots.items[index];
    tocsin_sanity_lane *lane = &model->lanes.items[slot->lane];
    uint32_t round = slot->count++;
    ++result->calls;
    if (round == lane->rounds.count && !TOCSIN_VEC_PUSH(&lane->rounds, visit))
        return tocsin_error_memory(error);
    tocsin_sanity_visit reference = lane->rounds.items[round];
    const tocsin_sanity_step *step = &model->steps.items[visit.step];
    const tocsin_sanity_step *met = &model->steps.items[reference.step];
    if (!tocsin_sanity_agree(model, step->signature, met->signature))
        lane->broken = true;
    uint32_t *match = &result->match[step->op];
    if (!same_microbatch(model->plan, visit.microbatch, reference.microbatch) ||
        (*match != TOCSIN_PLAN_NONE && *match != met->op))
        result->uniform_microbatches = false;
    *match = met->op;
    return TOCSIN_OK;
}

tocsin_status tocsin_sanity_match(tocsin_sanity_model *model, tocsin_error *error)
{
    lane_table table = {.model = model};
    tocsin_status status = add_actors(model, error);
    if (status == TOCSIN_OK)
        status = bind_steps(&table, error);
    for (uint32_t a = 0; a < model->actors.count && status == TOCSIN_OK; ++a)
        status = tocsin_sanity_follow(model, a, match_call, error);
    tocsin_map_free(&table.groups);
    tocsin_map_free(&table.slots);
    tocsin_intern_free(&table.channels);
    TOCSIN_VEC_FREE(&table.channel_lanes);
    for (size_t s = 0; s < model->slots.count && status == TOCSIN_OK; ++s) {
        tocsin_sanity_lane *lane = &model->lanes.items[model->slots.items[s].lane];
        lane->broken |= model->slots.items[s].count != lane->rounds.count;
    }
    return status;
}
