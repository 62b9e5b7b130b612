/* certify.c - the public call: digests, both replays, and the outputs. */
#include <assert.h>
#include <inttypes.h>

#include "certify/certify.h"

enum { CERTIFICATE_BYTES_MAX = 1 << 30 };

/* ---- outputs ------------------------------------------------------------------------------------
 */

/* Units count by role, and each of its replicas when these are told apart. */
typedef struct place {
    const tocsin_plan_role *role;
    uint32_t unit, replica;
} place;

typedef struct outputs_check {
    certify_checker *checker;
    const certificate *from;
    const tocsin_plan *logical, *parallel;
    TOCSIN_VEC(place) places;
    uint8_t *each;    /* by value of the parallel plan: it differs between micro-batches */
    uint8_t *covered; /* by logical output */
    size_t next;      /* claim */
} outputs_check;

static bool find_places(outputs_check *check)
{
    const tocsin_plan *plan = check->parallel;
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        const uint32_t count = check->from->each_replica ? role->replica_count : 1;
        for (uint32_t k = 0; k < count; k++) {
            const place at = {.role = role,
                              .unit = (uint32_t)check->places.count,
                              .replica = role->first_replica + k};
            if (!TOCSIN_VEC_PUSH(&check->places, at))
                return false;
        }
    }
    return true;
}

static void find_each(outputs_check *check)
{
    const tocsin_plan *plan = check->parallel;
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t v = 0; v < role->value_count; v++)
            check->each[role->first_value + v] =
                plan->values.items[role->first_value + v].per_microbatch;
        for (uint32_t t = 0; t < role->turn_count; t++) {
            const tocsin_plan_turn *turn = &plan->turns.items[role->first_turn + t];
            const tocsin_plan_segment *segment =
                &plan->segments.items[role->first_segment + turn->segment];
            for (uint32_t k = 0; k < segment->op_count && turn->microbatch >= 0; k++) {
                const tocsin_plan_op *op = &plan->ops.items[segment->first_op + k];
                for (uint32_t j = 0; j < op->output_count; j++) {
                    const uint32_t value =
                        role->first_value +
                        plan->operands.items[op->first_operand + op->input_count + j];
                    check->each[value] = !plan->values.items[value].persistent;
                }
            }
        }
    }
}

static bool same_name(const tocsin_plan *a, uint32_t one, const tocsin_plan *b, uint32_t other)
{
    return strcmp(tocsin_plan_text(a, one), tocsin_plan_text(b, other)) == 0;
}

/* The logical output of the same kind and name, or TOCSIN_PLAN_NONE. */
static uint32_t counterpart(const outputs_check *check, const tocsin_plan_output *output)
{
    for (uint32_t k = 0; k < check->logical->outputs.count; k++) {
        const tocsin_plan_output *other = &check->logical->outputs.items[k];
        if (other->kind == output->kind &&
            same_name(check->logical, other->name, check->parallel, output->name))
            return k;
    }
    return TOCSIN_PLAN_NONE;
}

typedef TOCSIN_VEC(certify_addend) addend_list;

/* The values of one unit that the output folds: of one micro-batch, or of all. */
static certify_outcome add_unit(outputs_check *check, const place *at, uint32_t slot,
                                const tocsin_plan_output *output, bool all_microbatches,
                                int64_t replica, addend_list *addends)
{
    const certificate *from = check->from;
    const uint32_t count = all_microbatches ? check->parallel->microbatches : 1;
    for (uint32_t m = 0; m < count; m++) {
        const uint32_t where = !from->each_microbatch ? 0 : all_microbatches ? m : slot;
        const bool persistent =
            check->parallel->values.items[at->role->first_value + output->value].persistent;
        const certify_addend addend = {
            .relation = certify_value(from, check->parallel, 1, at->unit, persistent ? 0 : where,
                                      output->value),
            .fixed = {replica, all_microbatches && !from->each_microbatch ? (int64_t)m : -1}};
        if (addend.relation == 0)
            return certify_different(check->checker, "its value is not known");
        if (!TOCSIN_VEC_PUSH(addends, addend))
            return CERTIFY_FAILED;
    }
    return CERTIFY_DONE;
}

/* All that the output folds, over replicas and micro-batches. */
static certify_outcome list_values(outputs_check *check, const place *at, uint32_t slot,
                                   const tocsin_plan_output *output, bool folds_microbatches,
                                   bool folds_replicas, addend_list *addends)
{
    const uint32_t replicas = tocsin_plan_replicas(check->parallel);
    certify_outcome outcome = CERTIFY_DONE;

    if (!folds_replicas)
        return add_unit(check, at, slot, output, folds_microbatches, -1, addends);
    if (!check->from->each_replica) {
        for (uint32_t r = 0; r < replicas && outcome == CERTIFY_DONE; r++)
            outcome = add_unit(check, at, slot, output, folds_microbatches, r, addends);
        return outcome;
    }
    uint32_t found = 0;
    for (size_t k = 0; k < check->places.count && outcome == CERTIFY_DONE; k++) {
        const place *other = &check->places.items[k];
        for (uint32_t n = 0; other->role->device == at->role->device &&
                             n < other->role->output_count && outcome == CERTIFY_DONE;
             n++) {
            const tocsin_plan_output *same =
                &check->parallel->outputs.items[other->role->first_output + n];
            if (same->kind != output->kind || same->name != output->name)
                continue;
            found++;
            outcome = add_unit(check, other, slot, same, folds_microbatches, -1, addends);
        }
    }
    if (outcome == CERTIFY_DONE && found != replicas)
        return certify_different(check->checker, "not every replica declares it once");
    return outcome;
}

static certify_outcome judge_claim(outputs_check *check, const place *at, uint32_t slot,
                                   const tocsin_plan_output *output, uint32_t logical_relation,
                                   const certify_claim *claim)
{
    const tocsin_plan *plan = check->parallel;
    const uint32_t value = at->role->first_value + output->value;
    const bool folds[TOCSIN_SYMBOL_COUNT] = {
        output->fold[TOCSIN_SYMBOL_REPLICA] != TOCSIN_FOLD_EQUAL && tocsin_plan_replicas(plan) > 1,
        output->fold[TOCSIN_SYMBOL_MICROBATCH] != TOCSIN_FOLD_EQUAL && plan->microbatches > 1 &&
            check->each[value]};
    const int64_t counts[TOCSIN_SYMBOL_COUNT] = {tocsin_plan_replicas(plan), plan->microbatches};
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    certify_number factor = certify_integer(1);
    addend_list addends = {0};

    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++) {
        certify_number inverse = certify_integer(counts[s]);
        if (folds[s] && output->fold[s] == TOCSIN_FOLD_MEAN &&
            (!certify_inverse(&inverse, &inverse) || !certify_multiply(&factor, &inverse, &factor)))
            return certify_unclear(check->checker, "a factor is too large");
    }
    certify_outcome outcome = list_values(check, at, slot, output, folds[TOCSIN_SYMBOL_MICROBATCH],
                                          folds[TOCSIN_SYMBOL_REPLICA], &addends);
    if (outcome == CERTIFY_DONE)
        outcome =
            certify_total(check->checker, claim->relation, addends.items, addends.count, &factor);
    TOCSIN_VEC_FREE(&addends);
    if (outcome != CERTIFY_DONE)
        return outcome;
    for (uint32_t d = 0; d < certify_ndim(check->checker, claim->relation); d++) {
        const int64_t own[TOCSIN_SYMBOL_COUNT] = {at->replica, slot};
        const bool fixed[TOCSIN_SYMBOL_COUNT] = {check->from->each_replica,
                                                 check->from->each_microbatch};
        starts[d] = plan->starts.items[output->first_start + d];
        for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
            if (fixed[s] && !certify_fix(&starts[d], s, own[s]))
                return certify_unclear(check->checker, "a start is too large");
    }
    return certify_slice(check->checker, claim->relation, logical_relation, 0, starts);
}

/* All claims of one output of one unit, in order. */
static certify_outcome judge_output(outputs_check *check, const place *at, uint32_t index)
{
    const tocsin_plan_output *output = &check->parallel->outputs.items[index];
    const uint32_t other = counterpart(check, output);
    const bool apart = check->from->each_microbatch && check->parallel->microbatches > 1 &&
                       check->each[at->role->first_value + output->value] &&
                       output->fold[TOCSIN_SYMBOL_MICROBATCH] == TOCSIN_FOLD_EQUAL;
    const uint32_t slots = apart ? check->parallel->microbatches : 1;

    if (other == TOCSIN_PLAN_NONE)
        return certify_different(check->checker, "the logical model has no such output");
    const uint32_t relation = certify_value(check->from, check->logical, 0, 0, 0,
                                            check->logical->outputs.items[other].value);
    if (relation == 0)
        return certify_different(check->checker, "the logical value is not known");
    check->covered[other] = 1;
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (check->next == check->from->claims.count)
            return certify_different(check->checker, "its claim is missing");
        const certify_claim *claim = &check->from->claims.items[check->next++];
        if (claim->unit != at->unit || claim->slot != slot || claim->output != index)
            return certify_different(check->checker, "its claim is missing or out of order");
        const certify_outcome outcome = judge_claim(check, at, slot, output, relation, claim);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    return CERTIFY_DONE;
}

static certify_outcome judge_outputs(outputs_check *check, tocsin_certify_result *result)
{
    for (size_t k = 0; k < check->places.count; k++) {
        const place *at = &check->places.items[k];
        for (uint32_t n = 0; n < at->role->output_count; n++) {
            const uint32_t index = at->role->first_output + n;
            const certify_outcome outcome = judge_output(check, at, index);
            if (outcome == CERTIFY_DIFFERENT || outcome == CERTIFY_UNCLEAR)
                snprintf(
                    result->text, sizeof result->text, "output %.200s of unit %u: %s",
                    tocsin_plan_text(check->parallel, check->parallel->outputs.items[index].name),
                    at->unit, check->checker->why);
            if (outcome != CERTIFY_DONE)
                return outcome;
            result->outputs++;
        }
    }
    if (check->next < check->from->claims.count) {
        snprintf(result->text, sizeof result->text, "there are claims of outputs too many");
        return CERTIFY_DIFFERENT;
    }
    for (size_t k = 0; k < check->logical->outputs.count; k++)
        if (!check->covered[k]) {
            snprintf(result->text, sizeof result->text, "no rank declares the output %.200s",
                     tocsin_plan_text(check->logical, check->logical->outputs.items[k].name));
            return CERTIFY_DIFFERENT;
        }
    return CERTIFY_DONE;
}

static certify_outcome check_outputs(certify_checker *checker, tocsin_certify_result *result)
{
    outputs_check check = {.checker = checker,
                           .from = checker->certificate,
                           .logical = checker->plan[0],
                           .parallel = checker->plan[1]};
    certify_outcome outcome = CERTIFY_FAILED;

    checker->side = 1;
    check.each = tocsin_zalloc(check.parallel->values.count + 1, 1);
    check.covered = tocsin_zalloc(check.logical->outputs.count + 1, 1);
    if (check.each != NULL && check.covered != NULL && find_places(&check)) {
        find_each(&check);
        outcome = judge_outputs(&check, result);
    }
    TOCSIN_VEC_FREE(&check.places);
    tocsin_free(check.each);
    tocsin_free(check.covered);
    return outcome;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static tocsin_status check_digests(const certify_checker *checker, tocsin_certify_result *result,
                                   bool *same, tocsin_error *error)
{
    *same = true;
    for (int side = 0; side < 2 && *same; side++) {
        tocsin_hash128 digest;
        TOCSIN_TRY(tocsin_plan_digest(checker->plan[side], &digest, error));
        *same = digest.low == checker->certificate->digest[side].low &&
                digest.high == checker->certificate->digest[side].high;
        if (!*same)
            snprintf(result->text, sizeof result->text,
                     "it is a certificate of another %s plan: not of %016" PRIx64 "%016" PRIx64,
                     side == 0 ? "logical" : "parallel", digest.high, digest.low);
    }
    return TOCSIN_OK;
}

static tocsin_status judge(certify_checker *checker, tocsin_certify_result *result,
                           tocsin_error *error)
{
    bool same;
    for (int code = 0; code < TOCSIN_OPERATOR_COUNT; code++) {
        const char *text = tocsin_operators[code].signature;
        if (text[0] != '\0')
            TOCSIN_TRY(tocsin_signature_parse(text, strlen(text), &checker->table_signatures[code],
                                              error));
    }
    TOCSIN_TRY(check_digests(checker, result, &same, error));
    if (!same)
        return TOCSIN_OK;
    certify_outcome outcome = CERTIFY_DONE;
    for (int side = 0; side < 2 && outcome == CERTIFY_DONE; side++)
        outcome = certify_replay(checker, side, result->text, sizeof result->text);
    if (outcome == CERTIFY_DONE)
        outcome = check_outputs(checker, result);
    assert(outcome != CERTIFY_REFINE);
    result->facts = checker->facts;
    result->accepted = outcome == CERTIFY_DONE;
    return outcome == CERTIFY_FAILED ? tocsin_error_memory(error) : TOCSIN_OK;
}

tocsin_status tocsin_certify_memory(const void *memory, size_t bytes, const char *name,
                                    const tocsin_plan *logical, const tocsin_plan *parallel,
                                    tocsin_certify_result *result, tocsin_error *error)
{
    certificate from;
    *result = (tocsin_certify_result){0};
    if (logical->roles.count != 1 || tocsin_plan_get_size(logical).ranks != 1)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "the logical plan is itself parallel: it has %llu ranks",
                                (unsigned long long)tocsin_plan_get_size(logical).ranks);
    certify_checker *checker = tocsin_zalloc(1, sizeof *checker);
    if (checker == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = certificate_read(memory, bytes, name, logical, parallel, &from, error);
    if (status == TOCSIN_OK) {
        checker->certificate = &from;
        checker->plan[0] = logical;
        checker->plan[1] = parallel;
        status = judge(checker, result, error);
    }
    TOCSIN_VEC_FREE(&checker->bag);
    tocsin_arena_free(&checker->arena);
    tocsin_free(checker);
    certificate_free(&from);
    return status;
}

tocsin_status tocsin_certify(const char *path, const tocsin_plan *logical,
                             const tocsin_plan *parallel, tocsin_certify_result *result,
                             tocsin_error *error)
{
    tocsin_string content = {0};
    *result = (tocsin_certify_result){0};
    tocsin_status status = tocsin_file_load(path, CERTIFICATE_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK)
        status = tocsin_certify_memory(tocsin_string_text(&content), content.bytes, path, logical,
                                       parallel, result, error);
    tocsin_string_free(&content);
    return status;
}
