/* verify_files.c - verify plans by parts, and keep what is proved.
 *
 * With a store of an earlier proof, only the roles whose text changed are parsed (all, if the plan
 * is no text). What tier 0 looks at must be as it was; then the parts whose content changed, on any
 * role or in the logical model, are proved again. Whenever anything does not fit - a new key, a
 * value that crosses without a claim, other communication, a part that is not proved - the plan is
 * verified as a whole, and cut and stored anew if it is proved.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "compose/compose.h"

typedef struct composer {
    const tocsin_verify_files_options *options;
    tocsin_plan *logical, *parallel;
    tocsin_plan_blocks blocks;
    tocsin_logical_index index;
    tocsin_hash128 header;
    tocsin_string store_path;
    tocsin_known before, now; /* of the store; what is proved in this call */
    size_t role_count;
    uint8_t *wanted;          /* by role: it is parsed */
    tocsin_role_parts *parts; /* by role: for those parsed */
    uint8_t *each;            /* by value of the parallel plan */
    uint8_t *changed;         /* by part: it is to be proved */
    tocsin_arena arena;
    uint64_t read_ns;
    uint32_t proved;
} composer;

static bool same(tocsin_hash128 a, tocsin_hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

static void forget_roles(composer *one)
{
    for (size_t r = 0; one->parts != NULL && r < one->role_count; r++)
        tocsin_role_parts_free(&one->parts[r]);
    tocsin_free(one->parts);
    tocsin_free(one->each);
    one->parts = NULL;
    one->each = NULL;
}

static void composer_free(composer *one)
{
    forget_roles(one);
    tocsin_known_free(&one->before);
    tocsin_known_free(&one->now);
    tocsin_logical_index_free(&one->index);
    tocsin_plan_blocks_free(&one->blocks);
    tocsin_string_free(&one->store_path);
    tocsin_plan_free(one->parallel);
    tocsin_plan_free(one->logical);
    tocsin_arena_free(&one->arena);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Parse the wanted roles; NULL: all. */
static tocsin_status read_roles(composer *one, const uint8_t *wanted, tocsin_error *error)
{
    const uint64_t start = tocsin_clock_ns();
    forget_roles(one);
    tocsin_plan_free(one->parallel);
    one->parallel = NULL;
    const tocsin_status status = tocsin_plan_blocks_read(
        &one->blocks, wanted, &one->options->parallel, &one->parallel, error);
    one->read_ns += tocsin_clock_ns() - start;
    return status;
}

/* Declarations of operators give them their meaning: their file is a part of the header. */
static tocsin_status digest_all(composer *one, tocsin_error *error)
{
    const char *path = one->options->parallel.operators_path;
    tocsin_string file = {0};
    const tocsin_plan_options *reading = &one->options->parallel;
    tocsin_hash128 digests[3] = {{0}};
    TOCSIN_TRY(tocsin_digest_header(one->parallel, &one->options->proving, &digests[0], error));
    if (path != NULL) {
        TOCSIN_TRY(tocsin_file_load(path, 1 << 26, &file, error));
        digests[1] = tocsin_hash128_of(tocsin_string_text(&file), file.bytes, 1);
        tocsin_string_free(&file);
    }
    digests[2].low = reading->order;
    digests[2].high = (uint64_t)reading->world.pp << 32 | reading->world.tp;
    one->header = tocsin_hash128_of(digests, sizeof digests, 0);
    return TOCSIN_OK;
}

/* ---- what a role says ------------------------------------------------------------------------ */

static uint64_t count_nodes(const tocsin_plan *plan, const tocsin_plan_role *role,
                            uint64_t *executions)
{
    uint64_t nodes = 0;
    *executions = 0;
    for (uint32_t s = 0; s < role->segment_count; s++) {
        const uint64_t ops = plan->segments.items[role->first_segment + s].op_count;
        uint64_t runs = 0;
        for (uint32_t t = 0; t < role->turn_count; t++)
            runs += plan->turns.items[role->first_turn + t].segment == s;
        nodes += runs > 0 ? ops : 0;
        *executions += ops * runs * role->replica_count;
    }
    return nodes;
}

static tocsin_status survey_parts(composer *one, uint32_t role, const uint8_t *has,
                                  tocsin_part_interface *interfaces, bool *fits,
                                  tocsin_error *error)
{
    tocsin_known_role *known = &one->now.roles[role];
    for (uint32_t p = 0; p < one->now.cuts.part_count && *fits; p++) {
        tocsin_part_selection selection;
        tocsin_contribution made = {.part = p};
        if (!has[p])
            continue;
        tocsin_status status =
            tocsin_select_role(&one->parts[role], &one->now.cuts, p, &selection, fits, error);
        if (status == TOCSIN_OK && *fits)
            status = tocsin_digest_selection(one->parallel, &one->now.cuts, &one->parts[role],
                                             &selection, &made.digest, error);
        if (status == TOCSIN_OK && *fits)
            status = tocsin_part_interface_add(&interfaces[p], &one->now.cuts, &one->parts[role],
                                               &selection, error);
        tocsin_part_selection_free(&selection);
        if (status == TOCSIN_OK && !TOCSIN_VEC_PUSH(&known->contributions, made))
            status = tocsin_error_memory(error);
        TOCSIN_TRY(status);
    }
    return TOCSIN_OK;
}

/* Fill now.roles[role] from the plan. */
static tocsin_status survey_role(composer *one, uint32_t role, tocsin_part_interface *interfaces,
                                 bool *fits, tocsin_error *error)
{
    tocsin_known_role *known = &one->now.roles[role];
    tocsin_role_parts *parts = &one->parts[role];
    const tocsin_plan_role *listed = &one->parallel->roles.items[role];

    known->contributions.count = 0;
    known->text = one->blocks.is_text ? one->blocks.items.items[role].digest : (tocsin_hash128){0};
    TOCSIN_TRY(tocsin_role_parts_init(parts, one->parallel, role, &one->now.cuts, error));
    parts->each = one->each;
    tocsin_role_parts_assign(parts, &one->now.cuts, fits);
    if (!*fits)
        return TOCSIN_OK;
    TOCSIN_TRY(tocsin_digest_communication(parts, &known->communication, error));
    known->operators = parts->op_count;
    known->nodes = count_nodes(one->parallel, listed, &known->executions);
    uint8_t *has = tocsin_zalloc((size_t)one->now.cuts.part_count + 1, 1);
    if (has == NULL)
        return tocsin_error_memory(error);
    for (uint32_t k = 0; k < parts->op_count; k++)
        if (parts->part[k] != TOCSIN_PLAN_NONE)
            has[parts->part[k]] = 1;
    for (uint32_t k = 0; k < listed->output_count; k++)
        has[tocsin_part_of_output(parts, &one->now.cuts, listed->first_output + k)] = 1;
    const tocsin_status status = survey_parts(one, role, has, interfaces, fits, error);
    tocsin_free(has);
    return status;
}

/* Survey the wanted roles. `interfaces` by part, empty. */
static tocsin_status survey(composer *one, tocsin_part_interface *interfaces, bool *fits,
                            tocsin_error *error)
{
    forget_roles(one);
    one->parts = tocsin_zalloc(one->role_count + 1, sizeof *one->parts);
    one->each = tocsin_zalloc(one->parallel->values.count + 1, 1);
    if (one->parts == NULL || one->each == NULL)
        return tocsin_error_memory(error);
    tocsin_plan_mark_microbatches(one->parallel, one->each);
    *fits = one->parallel->flaws.count == 0;
    for (uint32_t r = 0; r < one->role_count && *fits; r++)
        if (one->wanted[r])
            TOCSIN_TRY(survey_role(one, r, interfaces, fits, error));
    return TOCSIN_OK;
}

/* ---- keys of parts --------------------------------------------------------------------------- */

/* What the part needs of the logical model. It is as it was when neither the part's interface nor
 * the model has changed. */
static tocsin_status digest_logical(composer *one, uint32_t part, bool *fits, tocsin_error *error)
{
    tocsin_part_selection selection = {0};
    tocsin_known_part *known = &one->now.parts[part];
    if (!one->changed[part] && same(one->now.logical, one->before.logical))
        return TOCSIN_OK;
    tocsin_status status = tocsin_select_logical(&one->index, &one->now.cuts, &known->interface,
                                                 &selection, fits, error);
    if (status == TOCSIN_OK)
        status = tocsin_digest_selection(one->logical, &one->now.cuts, NULL, &selection,
                                         &known->logical, error);
    tocsin_part_selection_free(&selection);
    return status;
}

/* The key of each part with its contributions of all roles. */
static tocsin_status find_keys(composer *one, bool *fits, tocsin_error *error)
{
    const uint32_t count = one->now.cuts.part_count;
    tocsin_string *bytes = tocsin_zalloc((size_t)count + 1, sizeof *bytes);
    tocsin_status status = bytes == NULL ? tocsin_error_memory(error) : TOCSIN_OK;

    for (uint32_t r = 0; r < one->role_count && status == TOCSIN_OK; r++) {
        const tocsin_known_role *role = &one->now.roles[r];
        for (size_t k = 0; k < role->contributions.count; k++) {
            const tocsin_contribution *part = &role->contributions.items[k];
            tocsin_string_append(&bytes[part->part], &r, sizeof r);
            tocsin_string_append(&bytes[part->part], &part->digest, sizeof part->digest);
        }
    }
    for (uint32_t p = 0; p < count && status == TOCSIN_OK && *fits; p++) {
        status = digest_logical(one, p, fits, error);
        if (status != TOCSIN_OK)
            break;
        tocsin_string_append(&bytes[p], &one->now.parts[p].logical, sizeof(tocsin_hash128));
        tocsin_string_append(&bytes[p], &one->header, sizeof one->header);
        status = tocsin_string_check(&bytes[p], error);
        one->now.parts[p].key = tocsin_hash128_of(tocsin_string_text(&bytes[p]), bytes[p].bytes, 0);
    }
    for (uint32_t p = 0; bytes != NULL && p < count; p++)
        tocsin_string_free(&bytes[p]);
    tocsin_free(bytes);
    return status;
}

/* ---- proving a part -------------------------------------------------------------------------- */

typedef struct part_pair {
    tocsin_part_selection *selections; /* of the roles that have something of the part */
    size_t count;
    tocsin_part_selection logical_selection;
    tocsin_plan *logical, *parallel;
    tocsin_verify_result *result;
} part_pair;

static tocsin_status select_part(composer *one, uint32_t part, part_pair *pair, tocsin_error *error)
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

static void count_outputs(const composer *one, const part_pair *pair, tocsin_known_part *part)
{
    const tocsin_plan *plan = one->parallel;
    part->outputs = part->gradients = part->dead = 0;
    for (size_t s = 0; s < pair->count; s++) {
        const tocsin_part_selection *selection = &pair->selections[s];
        const uint64_t ranks = plan->roles.items[selection->role].replica_count;
        for (size_t k = 0; k < selection->outputs.count; k++) {
            part->outputs += ranks;
            part->gradients +=
                plan->outputs.items[selection->outputs.items[k]].kind == TOCSIN_OUTPUT_GRADIENT
                    ? ranks
                    : 0;
        }
        part->dead += selection->ops.count; /* unless a proof says otherwise */
    }
}

static tocsin_status prove_pair(composer *one, part_pair *pair, bool *proved, tocsin_error *error)
{
    tocsin_verify_options options = {.enumerate = one->options->proving.enumerate, .causes_max = 1};
    TOCSIN_TRY(tocsin_part_plan(&one->now.cuts, one->parts, pair->selections, pair->count,
                                one->parallel, &pair->parallel, error));
    TOCSIN_TRY(tocsin_part_logical(&one->now.cuts, one->logical, &pair->logical_selection,
                                   &pair->logical, error));
    TOCSIN_TRY(tocsin_verify(pair->logical, pair->parallel, &options, &pair->result, error));
    *proved = pair->result->verdict == TOCSIN_VERDICT_PROVED;
    return TOCSIN_OK;
}

/* Add what the proof rests on to the store's lines. */
static bool note_assumptions(tocsin_known *known, const tocsin_verify_result *result)
{
    for (size_t k = 0; k < result->assumption_count; k++) {
        bool is_new = true;
        for (size_t j = 0; j < known->assumptions.count && is_new; j++)
            is_new = strcmp(known->assumptions.items[j], result->assumptions[k]) != 0;
        if (!is_new)
            continue;
        char *copy = tocsin_copy_text(result->assumptions[k], strlen(result->assumptions[k]));
        if (copy == NULL || !TOCSIN_VEC_PUSH(&known->assumptions, copy)) {
            tocsin_free(copy);
            return false;
        }
    }
    return true;
}

/* An error that only says that the part cannot stand alone is a part that is not proved. */
static tocsin_status prove_part(composer *one, uint32_t part, bool *proved, tocsin_error *error)
{
    tocsin_known_part *known = &one->now.parts[part];
    part_pair pair = {0};
    *proved = false;
    tocsin_status status = select_part(one, part, &pair, error);
    if (status == TOCSIN_OK) {
        count_outputs(one, &pair, known);
        if (known->interface.outputs.count + known->interface.exports.count == 0)
            *proved = true; /* nothing needs it */
        else
            status = prove_pair(one, &pair, proved, error);
    }
    if (status == TOCSIN_OK && pair.result != NULL) {
        known->dead = pair.result->nodes_dead;
        if (!note_assumptions(&one->now, pair.result))
            status = tocsin_error_memory(error);
    }
    if (status != TOCSIN_OK && status != TOCSIN_E_MEMORY)
        status = TOCSIN_OK;
    for (size_t k = 0; k < pair.count; k++)
        tocsin_part_selection_free(&pair.selections[k]);
    tocsin_free(pair.selections);
    tocsin_part_selection_free(&pair.logical_selection);
    tocsin_plan_free(pair.logical);
    tocsin_plan_free(pair.parallel);
    tocsin_verify_result_free(pair.result);
    return status;
}

/* Prove the parts that changed, unless the store has one of the same key. */
static tocsin_status prove_changed(composer *one, bool *fits, tocsin_error *error)
{
    tocsin_map keys = {0};
    tocsin_status status = TOCSIN_OK;
    for (uint32_t p = 0; p < one->before.cuts.part_count && status == TOCSIN_OK; p++)
        if (!tocsin_map_put(&keys, one->before.parts[p].key.low, p))
            status = tocsin_error_memory(error);
    for (uint32_t p = 0; p < one->now.cuts.part_count && status == TOCSIN_OK && *fits; p++) {
        if (!one->changed[p])
            continue;
        tocsin_known_part *part = &one->now.parts[p];
        const uint64_t *at = tocsin_map_find(&keys, part->key.low);
        if (at != NULL && same(one->before.parts[*at].key, part->key)) {
            part->outputs = one->before.parts[*at].outputs;
            part->gradients = one->before.parts[*at].gradients;
            part->dead = one->before.parts[*at].dead;
            continue;
        }
        status = prove_part(one, p, fits, error);
        one->proved++;
    }
    tocsin_map_free(&keys);
    return status;
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Is every output of the logical plan one of some part? */
static tocsin_status covers_outputs(const composer *one, bool *covered, tocsin_error *error)
{
    const tocsin_known *known = &one->now;
    tocsin_map seen = {0};
    bool sound = true;
    for (uint32_t p = 0; p < known->cuts.part_count && sound; p++) {
        const tocsin_part_interface *part = &known->parts[p].interface;
        for (size_t k = 0; k < part->outputs.count && sound; k++)
            sound = tocsin_map_put(&seen, part->outputs.items[k], 1);
    }
    *covered = true;
    for (size_t k = 0; k < one->logical->outputs.count; k++) {
        const tocsin_plan_output *output = &one->logical->outputs.items[k];
        size_t bytes;
        const char *text = tocsin_intern_text(&one->logical->strings, output->name, &bytes);
        const uint32_t name = tocsin_intern_find(&known->cuts.strings, text, bytes);
        *covered &= name != 0 && tocsin_map_find(&seen, (uint64_t)output->kind << 32 | name);
    }
    tocsin_map_free(&seen);
    return sound ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status make_result(composer *one, uint64_t start_ns,
                                 tocsin_verify_files_answer *answer, tocsin_error *error)
{
    const tocsin_known *known = &one->now;
    struct rusage usage;
    tocsin_verify_result made = {.verdict = TOCSIN_VERDICT_PROVED,
                                 .nodes_pct = 100,
                                 .outputs_pct = 100,
                                 .nodes_dead = known->dead,
                                 .collapsed = true,
                                 .assumptions = (const char *const *)known->assumptions.items,
                                 .assumption_count = known->assumptions.count,
                                 .dead = (const char *const *)known->dead_lines.items,
                                 .dead_count = known->dead_lines.count};
    answer->size = tocsin_plan_get_size(one->parallel);
    answer->size.operators = answer->size.executions = 0;
    for (size_t r = 0; r < one->role_count; r++) {
        made.nodes += known->roles[r].nodes;
        answer->size.operators += known->roles[r].operators;
        answer->size.executions += known->roles[r].executions;
    }
    for (uint32_t p = 0; p < known->cuts.part_count; p++) {
        made.outputs += known->parts[p].outputs;
        made.gradients += known->parts[p].gradients;
    }
    made.outputs_proved = made.outputs;
    made.gradients_proved = made.gradients;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        made.peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    made.seconds = (double)(tocsin_clock_ns() - start_ns - one->read_ns) * 1e-9;
    return tocsin_verify_result_copy(&made, &answer->result, error);
}

/* ---- again ----------------------------------------------------------------------------------- */

static tocsin_status start_from_store(composer *one, bool *found, tocsin_error *error)
{
    const tocsin_hash128 logical = one->now.logical;
    TOCSIN_TRY(tocsin_known_load(&one->before, &one->now, tocsin_string_text(&one->store_path),
                                 one->header, one->role_count, found, error));
    one->now.logical = logical;
    return TOCSIN_OK;
}

/* Mark the parts to which a role contributes something else than before. */
static void mark_changed(composer *one, uint32_t role)
{
    const tocsin_known_role *old = &one->before.roles[role], *now = &one->now.roles[role];
    size_t a = 0, b = 0;
    while (a < old->contributions.count || b < now->contributions.count) {
        const tocsin_contribution *x = &old->contributions.items[a];
        const tocsin_contribution *y = &now->contributions.items[b];
        const bool has_x = a < old->contributions.count, has_y = b < now->contributions.count;
        const uint32_t part = has_x && (!has_y || x->part <= y->part) ? x->part : y->part;
        if (!has_x || !has_y || x->part != y->part || !same(x->digest, y->digest))
            one->changed[part] = 1;
        a += has_x && x->part == part;
        b += has_y && y->part == part;
    }
}

/* Want the roles of the changed parts. *more: some were not wanted before. */
static void want_roles(composer *one, bool *more)
{
    *more = false;
    for (size_t r = 0; r < one->role_count; r++) {
        const tocsin_known_role *role = &one->now.roles[r];
        const bool was = one->wanted[r];
        for (size_t k = 0; k < role->contributions.count && !one->wanted[r]; k++)
            one->wanted[r] = one->changed[role->contributions.items[k].part];
        *more |= one->wanted[r] && !was;
    }
}

/* Which parts changed, with the wanted roles parsed. */
static tocsin_status find_changed(composer *one, bool *fits, tocsin_error *error)
{
    const uint32_t count = one->now.cuts.part_count;
    tocsin_part_interface *fresh = tocsin_zalloc((size_t)count + 1, sizeof *fresh);
    if (fresh == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = survey(one, fresh, fits, error);
    for (uint32_t r = 0; r < one->role_count && status == TOCSIN_OK && *fits; r++) {
        if (!one->wanted[r])
            continue;
        *fits = same(one->now.roles[r].communication, one->before.roles[r].communication);
        mark_changed(one, r);
    }
    for (uint32_t p = 0; p < count; p++) {
        if (status == TOCSIN_OK && one->changed[p]) { /* as its roles, all parsed at last, say */
            tocsin_part_interface_finish(&fresh[p]);
            const tocsin_part_interface old = one->now.parts[p].interface;
            one->now.parts[p].interface = fresh[p];
            fresh[p] = old;
        }
        tocsin_part_interface_free(&fresh[p]);
    }
    tocsin_free(fresh);
    if (status == TOCSIN_OK && *fits)
        status = find_keys(one, fits, error);
    for (uint32_t p = 0; p < count && status == TOCSIN_OK && *fits; p++)
        one->changed[p] |= !same(one->now.parts[p].key, one->before.parts[p].key);
    return status;
}

/* *fits: the plan is proved from the store and the parts proved now. */
static tocsin_status verify_again(composer *one, bool *fits, tocsin_error *error)
{
    bool more = true, covered = true;

    one->changed = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, one->now.cuts.part_count + 1);
    if (one->changed == NULL)
        return tocsin_error_memory(error);
    memset(one->changed, 0, one->now.cuts.part_count);
    for (size_t r = 0; r < one->role_count; r++)
        one->wanted[r] = !one->blocks.is_text ||
                         !same(one->blocks.items.items[r].digest, one->before.roles[r].text);
    for (bool first = true; more && *fits; first = false) {
        if (one->blocks.is_text || !first) {
            const tocsin_status status =
                read_roles(one, one->blocks.is_text ? one->wanted : NULL, error);
            if (status == TOCSIN_E_MEMORY)
                return status;
            *fits = status == TOCSIN_OK; /* else the whole says what is wrong, and where */
        }
        if (*fits)
            TOCSIN_TRY(find_changed(one, fits, error));
        want_roles(one, &more);
    }
    if (*fits)
        TOCSIN_TRY(prove_changed(one, fits, error));
    for (uint32_t p = 0; p < one->now.cuts.part_count && *fits; p++)
        *fits = one->now.parts[p].dead == one->before.parts[p].dead;
    if (*fits)
        TOCSIN_TRY(covers_outputs(one, &covered, error));
    *fits &= covered;
    return TOCSIN_OK;
}

/* ---- as a whole ------------------------------------------------------------------------------ */

typedef struct whole_proof {
    composer *one;
    bool cut;
    const char *why;
} whole_proof;

static tocsin_status cut_proof(void *context, tocsin_proof *proof, tocsin_error *error)
{
    whole_proof *whole = context;
    composer *one = whole->one;
    const tocsin_hash128 logical_digest = one->now.logical;
    tocsin_known_free(&one->now);
    one->now.logical = logical_digest;
    if (!tocsin_cuts_init(&one->now.cuts, one->role_count))
        return tocsin_error_memory(error);
    return tocsin_cuts_make(&one->now.cuts, proof, one->logical, one->parallel, &whole->cut,
                            &whole->why, error);
}

static bool copy_lines(tocsin_known *known, const tocsin_verify_result *result)
{
    known->dead = result->nodes_dead;
    for (size_t k = 0; k < result->dead_count; k++) {
        char *copy = tocsin_copy_text(result->dead[k], strlen(result->dead[k]));
        if (copy == NULL || !TOCSIN_VEC_PUSH(&known->dead_lines, copy)) {
            tocsin_free(copy);
            return false;
        }
    }
    return note_assumptions(known, result);
}

/* Prove the parts of a plan that is proved and cut. *fits: all are. */
static tocsin_status prove_parts(composer *one, const tocsin_verify_result *result, bool *fits,
                                 tocsin_error *error)
{
    const uint32_t count = one->now.cuts.part_count;
    one->now.header = one->header;
    one->now.roles = tocsin_zalloc(one->role_count + 1, sizeof *one->now.roles);
    one->now.parts = tocsin_zalloc((size_t)count + 1, sizeof *one->now.parts);
    one->changed = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, count + 1);
    tocsin_part_interface *interfaces = tocsin_zalloc((size_t)count + 1, sizeof *interfaces);
    if (one->now.roles == NULL || one->now.parts == NULL || one->changed == NULL ||
        interfaces == NULL || !copy_lines(&one->now, result)) {
        tocsin_free(interfaces);
        return tocsin_error_memory(error);
    }
    memset(one->changed, 1, count);
    memset(one->wanted, 1, one->role_count);
    tocsin_status status = survey(one, interfaces, fits, error);
    for (uint32_t p = 0; p < count; p++) {
        tocsin_part_interface_finish(&interfaces[p]);
        one->now.parts[p].interface = interfaces[p];
    }
    tocsin_free(interfaces);
    if (status == TOCSIN_OK && *fits)
        status = find_keys(one, fits, error);
    if (status == TOCSIN_OK && *fits)
        status = prove_changed(one, fits, error);
    return status;
}

static tocsin_status verify_whole(composer *one, tocsin_verify_files_answer *answer,
                                  tocsin_error *error)
{
    whole_proof whole = {.one = one, .why = "it is not proved"};
    const bool cached = one->store_path.bytes > 0;
    bool fits = true;

    TOCSIN_TRY(tocsin_verify_visit(one->logical, one->parallel, &one->options->proving,
                                   cached ? cut_proof : NULL, &whole, &answer->result, error));
    answer->size = tocsin_plan_get_size(one->parallel);
    if (!cached)
        return TOCSIN_OK;
    one->proved = 0;
    if (whole.cut) {
        TOCSIN_TRY(prove_parts(one, answer->result, &fits, error));
        if (fits) {
            answer->parts = one->now.cuts.part_count;
            answer->parts_proved = one->proved;
            return tocsin_known_store(&one->now, tocsin_string_text(&one->store_path), error);
        }
        whole.why = "a part of it is not proved by itself";
    }
    answer->uncached = whole.why;
    return TOCSIN_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

static tocsin_status prepare_cache(composer *one, tocsin_error *error)
{
    const char *folder = one->options->cache;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tocsin_error_system(error, "make the folder", folder);
    TOCSIN_TRY(digest_all(one, error));
    tocsin_string_printf(&one->store_path, "%s/%016llx%016llx.proof", folder,
                         (unsigned long long)one->header.high, (unsigned long long)one->header.low);
    return tocsin_string_check(&one->store_path, error);
}

/* With a cache: *fits when the answer is there. */
static tocsin_status try_cache(composer *one, uint64_t start_ns, tocsin_verify_files_answer *answer,
                               bool *fits, tocsin_error *error)
{
    one->role_count = one->blocks.is_text ? one->blocks.items.count : one->parallel->roles.count;
    one->wanted = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, one->role_count + 1);
    if (one->wanted == NULL)
        return tocsin_error_memory(error);
    memset(one->wanted, 0, one->role_count);
    if (one->blocks.is_text) {
        const tocsin_status status = read_roles(one, one->wanted, error);
        if (status != TOCSIN_OK)
            return status == TOCSIN_E_MEMORY ? status : TOCSIN_OK;
    }
    if (one->role_count != one->parallel->roles.count || one->logical->roles.count != 1)
        return TOCSIN_OK; /* the whole says what is wrong */
    TOCSIN_TRY(prepare_cache(one, error));
    TOCSIN_TRY(tocsin_logical_index_init(&one->index, one->logical, error));
    if (one->options->proving.certificate_path == NULL)
        TOCSIN_TRY(start_from_store(one, fits, error));
    if (*fits)
        TOCSIN_TRY(verify_again(one, fits, error));
    if (!*fits)
        return TOCSIN_OK;
    TOCSIN_TRY(make_result(one, start_ns, answer, error));
    answer->reused = true;
    answer->parts = one->now.cuts.part_count;
    answer->parts_proved = one->proved;
    return tocsin_known_store(&one->now, tocsin_string_text(&one->store_path), error);
}

typedef struct loading {
    composer *one;
    const char *paths[2]; /* by side */
} loading;

static tocsin_status load_logical(composer *one, const char *path, tocsin_error *error)
{
    tocsin_string content = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX};
    tocsin_status status = tocsin_file_load(path, TOCSIN_PLAN_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK) {
        one->now.logical = tocsin_hash128_of(tocsin_string_text(&content), content.bytes, 0);
        status = tocsin_plan_read_memory(tocsin_string_text(&content), content.bytes, path,
                                         &one->options->logical, &one->logical, error);
    }
    tocsin_string_free(&content);
    return status;
}

/* One side of the pair: the logical plan, or (with a cache) the blocks of the parallel one. */
static tocsin_status load_side(void *context, size_t side, tocsin_error *error)
{
    const loading *both = context;
    composer *one = both->one;
    if (side == 0)
        return load_logical(one, both->paths[0], error);
    if (one->options->cache != NULL)
        return tocsin_plan_blocks_load(&one->blocks, both->paths[1], error);
    return tocsin_plan_read(both->paths[1], &one->options->parallel, &one->parallel, error);
}

/* Both at once. */
static tocsin_status load(composer *one, const char *logical_path, const char *parallel_path,
                          tocsin_error *error)
{
    const uint64_t start = tocsin_clock_ns();
    loading both = {.one = one, .paths = {logical_path, parallel_path}};
    tocsin_pool *pool;
    TOCSIN_TRY(tocsin_pool_new(2, &pool, error));
    const tocsin_status status = tocsin_pool_run(pool, 2, load_side, &both, error);
    tocsin_pool_free(pool);
    one->read_ns = tocsin_clock_ns() - start;
    return status;
}

static tocsin_status verify(composer *one, const char *logical_path, const char *parallel_path,
                            tocsin_verify_files_answer *answer, tocsin_error *error)
{
    const uint64_t start = tocsin_clock_ns();
    bool fits = false;

    TOCSIN_TRY(load(one, logical_path, parallel_path, error));
    if (one->options->cache != NULL) {
        if (!one->blocks.is_text)
            TOCSIN_TRY(read_roles(one, NULL, error));
        TOCSIN_TRY(try_cache(one, start, answer, &fits, error));
        if (!fits && one->blocks.is_text)
            TOCSIN_TRY(read_roles(one, NULL, error));
    }
    if (!fits)
        TOCSIN_TRY(verify_whole(one, answer, error));
    answer->read_seconds = (double)one->read_ns * 1e-9;
    return TOCSIN_OK;
}

tocsin_status tocsin_verify_files(const char *logical_path, const char *parallel_path,
                                  const tocsin_verify_files_options *options,
                                  tocsin_verify_files_answer *answer, tocsin_error *error)
{
    composer one = {.options = options};
    *answer = (tocsin_verify_files_answer){.uncached = ""};
    const tocsin_status status = verify(&one, logical_path, parallel_path, answer, error);
    composer_free(&one);
    if (status != TOCSIN_OK) {
        tocsin_verify_result_free(answer->result);
        answer->result = NULL;
    }
    return status;
}
