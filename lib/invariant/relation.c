/* The relations: which there are, by name, and the codes of their findings. */
#include <assert.h>
#include <invariant/relation.h>

const tocsin_relation_part *const tocsin_relation_parts[TOCSIN_PART_COUNT] = {
#define X(NAME, name) &tocsin_relation_##name,
    TOCSIN_RELATION_PARTS(X)
#undef X
};

static uint32_t cost_of(size_t index)
{
    uint8_t cost = tocsin_relation_parts[index]->cost;
    return cost != 0 ? cost : 1;
}

/* The most expensive first, each to the shard that has least so far. What a call is given inside
 * another is counted where arguments are. */
bool tocsin_relation_part_is_in(size_t index, uint32_t shard, uint32_t shards)
{
    uint32_t loads[TOCSIN_PART_COUNT] = {0}, least = 0;
    index = index == TOCSIN_PART_CONTAIN ? TOCSIN_PART_ARGUMENT : index;
    uint32_t used = shards < TOCSIN_PART_COUNT ? shards : TOCSIN_PART_COUNT;
    for (uint32_t cost = UINT8_MAX; cost > 0; --cost)
        for (size_t i = 0; i < TOCSIN_PART_COUNT; ++i) {
            if (cost_of(i) != cost || i == TOCSIN_PART_CONTAIN)
                continue;
            least = 0;
            for (uint32_t s = 1; s < used; ++s)
                least = loads[s] < loads[least] ? s : least;
            loads[least] += cost;
            if (i == index)
                return least == shard;
        }
    return false;
}

const tocsin_relation_part *tocsin_relation_part_of(uint8_t kind)
{
    for (size_t i = 0; i < TOCSIN_PART_COUNT; ++i)
        if (strchr((const char *)tocsin_relation_parts[i]->kinds, kind) != NULL)
            return tocsin_relation_parts[i];
    return NULL;
}

static const tocsin_code codes[] = {
    {"TOC001", "Consistent", "replicas of a variable differ between ranks",
     "The same parameter, gradient or buffer was read on two ranks at the same point of the same\n"
     "step, and its bits differ although they were always equal in the healthy runs. From here on\n"
     "the ranks train different models. Common causes: clipping or editing gradients on one rank\n"
     "only, calling the bare module instead of its DistributedDataParallel wrapper, moving the\n"
     "model after wrapping it, different seeds for replicated layers, faulty communication.\n"
     "Look at what touches the named variables between the gradient all-reduce and the step."},
    {"TOC002", "EventContain", "a call did not do what it always does inside",
     "A call returned without making a call, or without having the effect, that it had every time\n"
     "in the healthy runs: an optimizer.step that found no gradient or changed no parameter, a\n"
     "function that skipped a part. Look at the call site named in the finding."},
    {"TOC003", "EventContainEach", "a variable was not treated as each one always is",
     "One or more parameters, gradients or buffers, named in the finding, were not treated as "
     "every\n"
     "such variable was in the healthy runs: trainable but held by no optimizer, held by the\n"
     "optimizer but without gradient, with a gradient but not updated, updated although frozen,\n"
     "gradient not cleared between two steps, NaN or Inf. Common causes: an optimizer built "
     "before\n"
     "a layer was replaced, detach() or no_grad() in the forward pass, a forgotten zero_grad()."},
    {"TOC004", "APISequence", "a call is missing between two others",
     "Between two calls of one function another was always called in the healthy runs, and was\n"
     "not this time: a zero_grad() before the next backward, a train() after an eval()."},
    {"TOC005", "APIArg", "an argument is not what it always is",
     "A function was called with another argument than in all healthy runs, repeated the "
     "arguments\n"
     "of an earlier call of the step, or two ranks entered different collectives (the run may "
     "hang\n"
     "right after). Look at the call site and at what computes the argument."},
    {"TOC006", "APIOutput", "a call returned something else than it always does",
     "The dtype, shape, requires_grad or value that a function returned does not stand in the\n"
     "relation to its arguments that it always had. Common causes: autocast not applied, a batch\n"
     "flattened or cut, a detached output."},
    {"TOC007", "Checkpoint", "a checkpoint is not the model that was trained, or trains on",
     "Of the parameters that were saved together some hold what the model holds and others do "
     "not,\n"
     "or are missing. Common causes: a dictionary put together by the wrong key (shape, storage),\n"
     "a part taken from before the step, tied tensors or frozen parts left out by mistake.\n"
     "Or what was loaded is not what is trained on: weights were initialised after loading, the\n"
     "optimizer's state was matched by position to other parameters, cast to a narrower dtype, or\n"
     "not loaded at all, so that the schedule starts over."},
    {"TOC008", "Data", "samples are not read as they should be",
     "Two ranks trained on the same batch, batches of different samples held the same data, or a\n"
     "shuffled epoch had the order of the one before. Common causes: no DistributedSampler,\n"
     "set_epoch() forgotten, workers with equal random states."},
    {"TOC009", "Plan", "the run is not what was planned",
     "The number of steps is not what was declared by tocsin.expect() or the trainer's arguments.\n"
     "Common causes: rounding by gradient accumulation or by the number of ranks, the last batch\n"
     "dropped."},
    {"TOC010", "User", "a relation of your own does not hold",
     "A relation that was given with --relation saw something that it had not seen in the healthy\n"
     "runs, or that is not what you wrote down. What it means stands with that relation."},
};

_Static_assert(TOCSIN_COUNT_OF(codes) + 1 == TOCSIN_RELATION_COUNT, "one code a relation");

const tocsin_code *tocsin_code_at(size_t index)
{
    return index < TOCSIN_COUNT_OF(codes) ? &codes[index] : NULL;
}

const tocsin_code *tocsin_code_find(const char *code)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(codes); ++i)
        if (strcmp(codes[i].code, code) == 0)
            return &codes[i];
    return NULL;
}

const char *tocsin_relation_name(tocsin_relation_kind relation)
{
    assert(relation > 0 && relation < TOCSIN_RELATION_COUNT);
    return codes[relation - 1].relation;
}

const char *tocsin_relation_code(tocsin_relation_kind relation)
{
    assert(relation > 0 && relation < TOCSIN_RELATION_COUNT);
    return codes[relation - 1].code;
}
