/* States of variables: what was known before each, kept per variable, handed to the relations.
 *
 * Data: one record a variable and process, with its last digest and whether its gradient was seen
 * to be cleared; optimizer.step gathers the states of parameters and buffers in its frame, where
 * they are judged together when it returns. Cost: O(1) map look-ups a state.
 */
#include <assert.h>
#include <invariant/relation.h>

#define SAMPLES_MAX (1u << 22)

static tocsin_variable *variable_at(tocsin_observer *observer, tocsin_process *process,
                                    tocsin_id id)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    uint64_t *known = tocsin_map_find(&process->variables, id);
    if (known != NULL)
        return (tocsin_variable *)(uintptr_t)*known;
    tocsin_variable *variable = tocsin_zalloc(1, sizeof *variable);
    if (variable == NULL ||
        !tocsin_map_put(&process->variables, id, (uint64_t)(uintptr_t)variable)) {
        tocsin_free(variable);
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    variable->name = dictionary->variable_name(dictionary->producer, id);
    variable->kind = (uint8_t)dictionary->variable_kind(dictionary->producer, id);
    variable->symbol =
        tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, variable->name));
    tocsin_literal name = {.kind = TOCSIN_VALUE_STRING, .text = variable->name};
    variable->name_scalar =
        tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &name));
    tocsin_literal type = {.kind = TOCSIN_VALUE_STRING,
                           .text = dictionary->variable_type(dictionary->producer, id)};
    variable->type = tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &type));
    return variable;
}

tocsin_attribute tocsin_attribute_of(const char *name)
{
    static const char *const words[TOCSIN_ATTRIBUTE_COUNT] = {"",
#define X(name, word) word,
                                                              TOCSIN_ATTRIBUTE_TABLE(X)
#undef X
    };
    for (uint8_t i = 1; i < TOCSIN_ATTRIBUTE_COUNT; ++i)
        if (strcmp(words[i], name) == 0)
            return (tocsin_attribute)i;
    return TOCSIN_ATTRIBUTE_OTHER;
}

/* A parameter is compared with what it was when the previous optimizer.step returned, and only when
 * that is unknown with an earlier reading: a recorder that reads less often (tocsin run) must not
 * lead to other facts than one that reads always. After a step without a digest (recorded with
 * sampling) nothing is known: what moved since the last digest did not move in one step. */
static void sample_data(tocsin_variable *variable, tocsin_sample *sample, uint8_t role)
{
    bool after_step = role == TOCSIN_ROLE_OPTIMIZER_STEP && sample->moment == TOCSIN_MOMENT_EXIT;
    bool digested = (sample->flags & TOCSIN_STATE_DIGESTED) != 0;
    if (!digested && after_step)
        variable->has_data = false;
    if (!digested || (variable->has_data && !after_step))
        return;
    sample->has_before = variable->has_data;
    sample->absmax_before = variable->absmax;
    sample->changed = variable->has_data &&
                      memcmp(&variable->digest, &sample->digest, sizeof sample->digest) != 0;
    variable->has_data = true;
    variable->digest = sample->digest;
    variable->absmax = sample->absmax;
}

/* Outside optimizer.step: was the gradient seen, and seen to be none or zero? */
static void sample_gradient(tocsin_variable *variable, const tocsin_sample *sample)
{
    bool digested = (sample->flags & TOCSIN_STATE_DIGESTED) != 0 &&
                    (sample->flags & TOCSIN_STATE_HASHED) == 0; /* a hash is no number */
    bool present = (sample->flags & TOCSIN_STATE_PRESENT) != 0;
    if (present && !digested)
        return;
    variable->observed = true;
    variable->cleared |= !present || (sample->absmax == 0 && sample->bad_count == 0);
}

/* Did the last backward pass leave the gradient as it had found it? Where a gradient that was there
 * was not digested, the better is assumed. */
static bool is_left_over(const tocsin_variable *variable, const tocsin_sample *sample)
{
    if (!variable->was_there)
        return false;
    return (sample->flags & TOCSIN_STATE_DIGESTED) == 0 || !variable->was_digested ||
           memcmp(&variable->gradient_before, &sample->digest, sizeof sample->digest) == 0;
}

/* Parameters and buffers at optimizer.step are judged together when it returns. */
static void gather_sample(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                          const tocsin_sample *sample)
{
    uint8_t kind = sample->variable->kind;
    if ((kind != TOCSIN_VARIABLE_PARAMETER && kind != TOCSIN_VARIABLE_BUFFER) ||
        (sample->attribute != TOCSIN_ATTRIBUTE_DATA && sample->attribute != TOCSIN_ATTRIBUTE_GRAD))
        return;
    process->unordered |=
        (sample->flags & (TOCSIN_STATE_IN_OPTIMIZER | TOCSIN_STATE_IN_THIS_OPTIMIZER)) ==
        TOCSIN_STATE_IN_OPTIMIZER;
    if (frame->samples.count >= SAMPLES_MAX)
        tocsin_observer_fail(observer, TOCSIN_E_LIMIT, "more than 2^22 states in one call");
    else if (!TOCSIN_VEC_PUSH(&frame->samples, *sample))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* What relations see of a piece of a tensor: that it is there. Its digest is one of the whole's
 * coordinates, its shape and statistics are a rank's own: they compare with nothing else. */
static tocsin_event without_piece(const tocsin_event *event)
{
    tocsin_event seen = *event;
    seen.state.flags &= ~(uint32_t)(TOCSIN_STATE_DIGESTED | TOCSIN_STATE_PIECE);
    seen.state.dtype = TOCSIN_DTYPE_NONE;
    seen.state.ndim = 0;
    seen.state.shape = 0;
    seen.state.digest = (tocsin_digest){0};
    seen.state.statistics = (tocsin_statistics){0};
    return seen;
}

static void observe_state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                          const tocsin_event *event)
{
    const tocsin_state *read = &event->state;
    const tocsin_dictionary *dictionary = &process->dictionary;
    if (dictionary->variable_kind(dictionary->producer, read->variable) == TOCSIN_VARIABLE_BOUNDARY)
        return; /* for comparing runs; no relation speaks of it */
    tocsin_variable *variable = variable_at(observer, process, read->variable);
    if (variable == NULL || observer->status != TOCSIN_OK)
        return;
    tocsin_sample sample = {.variable = variable,
                            .flags = read->flags,
                            .attribute = (uint8_t)tocsin_attribute_of(
                                dictionary->string(dictionary->producer, read->attribute)),
                            .moment = read->moment,
                            .dtype = read->dtype,
                            .ndim = read->ndim,
                            .attribute_name = read->attribute,
                            .shape = read->shape,
                            .observed = variable->observed,
                            .cleared = variable->cleared,
                            .lr = read->lr,
                            .absmax = read->statistics.absmax,
                            .bad_count = read->statistics.nan_count + read->statistics.inf_count,
                            .digest = read->digest};
    tocsin_state_take_attributes(observer, process, variable, event);
    uint8_t role = frame != NULL ? frame->role : TOCSIN_ROLE_NONE;
    if (sample.attribute == TOCSIN_ATTRIBUTE_GRAD && role == TOCSIN_ROLE_BACKWARD &&
        read->moment == TOCSIN_MOMENT_ENTER) {
        variable->was_there = (read->flags & TOCSIN_STATE_PRESENT) != 0;
        variable->was_digested = (read->flags & TOCSIN_STATE_DIGESTED) != 0;
        variable->gradient_before = read->digest;
    }
    if (sample.attribute == TOCSIN_ATTRIBUTE_DATA)
        sample_data(variable, &sample, role);
    else if (sample.attribute == TOCSIN_ATTRIBUTE_GRAD && role == TOCSIN_ROLE_OPTIMIZER_STEP)
        sample.left_over = is_left_over(variable, &sample);
    else if (sample.attribute == TOCSIN_ATTRIBUTE_GRAD &&
             ((role == TOCSIN_ROLE_BACKWARD && read->moment == TOCSIN_MOMENT_ENTER) ||
              (role == TOCSIN_ROLE_ZERO_GRAD && read->moment == TOCSIN_MOMENT_EXIT)))
        sample_gradient(variable, &sample);
    if (role == TOCSIN_ROLE_OPTIMIZER_STEP)
        gather_sample(observer, process, frame, &sample);
    for (size_t i = 0; i < observer->active_count; ++i)
        if (observer->active[i]->state != NULL)
            observer->active[i]->state(observer, process, frame, &sample, event);
}

void tocsin_observer_state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                           const tocsin_event *event)
{
    if (event->state.flags & TOCSIN_STATE_PIECE) {
        tocsin_event seen = without_piece(event);
        observe_state(observer, process, frame, &seen);
    } else {
        observe_state(observer, process, frame, event);
    }
}
