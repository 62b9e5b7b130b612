/* part_proof.c - proving the parts that changed.
 *
 * Each part is a job, done on whichever rank of the scale is free; what became of it is a record
 * (part_outcome) and the lines that its proof rests on, which all ranks then read in order of the
 * parts. A rank does one job at a time, so that jobs may use the composer's scratch.
 */
#include <assert.h>

#include "compose/composer.h"

typedef struct part_pair {
    tocsin_part_selection *selections; /* of the roles that have something of the part */
    size_t count;
    tocsin_part_selection logical_selection;
    tocsin_plan *logical, *parallel;
    tocsin_verify_result *result;
} part_pair;

typedef struct part_outcome {
    uint64_t proved, outputs, gradients, dead;
} part_outcome;

typedef struct part_jobs {
    tocsin_composer *one;
    TOCSIN_VEC(uint32_t) parts; /* to be proved */
} part_jobs;

static void pair_free(part_pair *pair)
{
    for (size_t k = 0; k < pair->count; k++)
        tocsin_part_selection_free(&pair->selections[k]);
    tocsin_free(pair->selections);
    tocsin_part_selection_free(&pair->logical_selection);
    tocsin_plan_free(pair->logical);
    tocsin_plan_free(pair->parallel);
    tocsin_verify_result_free(pair->result);
}

/* ---- one part -------------------------------------------------------------------------------- */

static tocsin_status select_part(tocsin_composer *one, uint32_t part, part_pair *pair,
                                 tocsin_error *error)
{
    bool fits = true;
    pair->selections = tocsin_zalloc(one->role_count + 1, sizeof *pair->selections);
    if (pair->selections == NULL)
        return tocsin_error_memory(error);
    for (uint32_t r = 0; r < one->role_count; r++) {
        const tocsin_known_role *role = &one->now.roles[r];
        for (size_t k = 0; k < role->contributions.count; k++) {
            if (role->contributions.items[k].part != part)
                continue;
            assert(one->wanted[r]);
            TOCSIN_TRY(tocsin_select_role(&one->parts[r], &one->now.cuts, part,
                                          &pair->selections[pair->count++], &fits, error));
            assert(fits);
        }
    }
    return tocsin_select_logical(&one->index, &one->now.cuts, &one->now.parts[part].interface,
                                 &pair->logical_selection, &fits, error);
}

static void count_outputs(const tocsin_composer *one, const part_pair *pair, part_outcome *outcome)
{
    const tocsin_plan *plan = one->parallel;
    for (size_t s = 0; s < pair->count; s++) {
        const tocsin_part_selection *selection = &pair->selections[s];
        const uint64_t ranks = plan->roles.items[selection->role].replica_count;
        for (size_t k = 0; k < selection->outputs.count; k++) {
            const uint8_t kind = plan->outputs.items[selection->outputs.items[k]].kind;
            outcome->outputs += ranks;
            outcome->gradients += kind == TOCSIN_OUTPUT_GRADIENT ? ranks : 0;
        }
        outcome->dead += selection->ops.count; /* unless a proof says otherwise */
    }
}

static tocsin_status prove_pair(tocsin_composer *one, part_pair *pair, part_outcome *outcome,
                                tocsin_error *error)
{
    const tocsin_verify_options options = {.enumerate = one->options->proving.enumerate,
                                           .causes_max = 1};
    TOCSIN_TRY(tocsin_part_plan(&one->now.cuts, one->parts, pair->selections, pair->count,
                                one->parallel, &pair->parallel, error));
    TOCSIN_TRY(tocsin_part_logical(&one->now.cuts, one->logical, &pair->logical_selection,
                                   &pair->logical, error));
    TOCSIN_TRY(tocsin_verify(pair->logical, pair->parallel, &options, &pair->result, error));
    outcome->proved = pair->result->verdict == TOCSIN_VERDICT_PROVED;
    outcome->dead = pair->result->nodes_dead;
    return TOCSIN_OK;
}

/* An error that only says that the part cannot stand alone is a part that is not proved. */
static tocsin_status prove_part(tocsin_composer *one, uint32_t part, part_pair *pair,
                                part_outcome *outcome, tocsin_error *error)
{
    const tocsin_part_interface *interface = &one->now.parts[part].interface;
    TOCSIN_TRY(select_part(one, part, pair, error));
    count_outputs(one, pair, outcome);
    if (interface->outputs.count + interface->exports.count == 0) {
        outcome->proved = 1; /* nothing needs it */
        return TOCSIN_OK;
    }
    const tocsin_status status = prove_pair(one, pair, outcome, error);
    return status == TOCSIN_E_MEMORY ? status : TOCSIN_OK;
}

static tocsin_status prove_job(void *context, size_t index, tocsin_scale_output *output,
                               tocsin_error *error)
{
    const part_jobs *jobs = context;
    part_pair pair = {0};
    part_outcome outcome = {0};
    const tocsin_status status =
        prove_part(jobs->one, jobs->parts.items[index], &pair, &outcome, error);
    tocsin_scale_write(output, &outcome, sizeof outcome);
    for (size_t k = 0; pair.result != NULL && k < pair.result->assumption_count; k++)
        tocsin_scale_write(output, pair.result->assumptions[k],
                           strlen(pair.result->assumptions[k]) + 1);
    pair_free(&pair);
    return status;
}

/* ---- what became of them --------------------------------------------------------------------- */

bool tocsin_note_assumptions(tocsin_known *known, const char *const *lines, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        bool is_new = true;
        for (size_t j = 0; j < known->assumptions.count && is_new; j++)
            is_new = strcmp(known->assumptions.items[j], lines[k]) != 0;
        if (!is_new)
            continue;
        char *copy = tocsin_copy_text(lines[k], strlen(lines[k]));
        if (copy == NULL || !TOCSIN_VEC_PUSH(&known->assumptions, copy)) {
            tocsin_free(copy);
            return false;
        }
    }
    return true;
}

static tocsin_status read_outcome(tocsin_composer *one, uint32_t number, const char *record,
                                  size_t bytes, bool *fits, tocsin_error *error)
{
    tocsin_known_part *part = &one->now.parts[number];
    part_outcome outcome;
    assert(bytes >= sizeof outcome);
    memcpy(&outcome, record, sizeof outcome);
    part->outputs = outcome.outputs;
    part->gradients = outcome.gradients;
    part->dead = outcome.dead;
    *fits &= outcome.proved != 0;
    for (size_t at = sizeof outcome; at < bytes; at += strlen(record + at) + 1) {
        const char *line = record + at;
        if (!tocsin_note_assumptions(&one->now, &line, 1))
            return tocsin_error_memory(error);
    }
    return TOCSIN_OK;
}

static tocsin_status run_jobs(part_jobs *jobs, bool *fits, tocsin_error *error)
{
    tocsin_scale *scale = jobs->one->scale;
    tocsin_scale_results *results = NULL;
    tocsin_status status =
        tocsin_scale_run(scale, jobs->parts.count, prove_job, jobs, &results, error);
    if (status == TOCSIN_OK)
        status = tocsin_scale_share(scale, &results, error);
    for (size_t k = 0; k < jobs->parts.count && status == TOCSIN_OK; k++) {
        size_t bytes;
        const char *record = tocsin_scale_result(results, k, &bytes);
        status = read_outcome(jobs->one, jobs->parts.items[k], record, bytes, fits, error);
    }
    tocsin_scale_results_free(results);
    return status;
}

/* The changed parts whose key the store has are as they were then; the others are listed. */
static bool list_jobs(tocsin_composer *one, tocsin_map *keys, part_jobs *jobs)
{
    for (uint32_t p = 0; p < one->before.cuts.part_count; p++)
        if (!tocsin_map_put(keys, one->before.parts[p].key.low, p))
            return false;
    for (uint32_t p = 0; p < one->now.cuts.part_count; p++) {
        tocsin_known_part *part = &one->now.parts[p];
        const uint64_t *at = tocsin_map_find(keys, part->key.low);
        const tocsin_known_part *old = at == NULL ? NULL : &one->before.parts[*at];
        if (!one->changed[p])
            continue;
        if (old != NULL && tocsin_same_digest(old->key, part->key)) {
            part->outputs = old->outputs;
            part->gradients = old->gradients;
            part->dead = old->dead;
        } else if (!TOCSIN_VEC_PUSH(&jobs->parts, p)) {
            return false;
        }
    }
    return true;
}

tocsin_status tocsin_prove_changed(tocsin_composer *one, bool *fits, tocsin_error *error)
{
    part_jobs jobs = {.one = one};
    tocsin_map keys = {0};
    tocsin_status status = list_jobs(one, &keys, &jobs) ? TOCSIN_OK : tocsin_error_memory(error);
    tocsin_map_free(&keys);
    status = tocsin_scale_agree(one->scale, status, error);
    if (status == TOCSIN_OK && jobs.parts.count > 0)
        status = run_jobs(&jobs, fits, error);
    one->proved = (uint32_t)jobs.parts.count;
    TOCSIN_VEC_FREE(&jobs.parts);
    return status;
}
