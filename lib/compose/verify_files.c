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

#include "compose/composer.h"

enum { STORE_BYTES_MAX = 1 << 30 };

static void forget_roles(tocsin_composer *one)
{
    for (size_t r = 0; one->parts != NULL && r < one->role_count; r++)
        tocsin_role_parts_free(&one->parts[r]);
    tocsin_free(one->parts);
    tocsin_free(one->each);
    one->parts = NULL;
    one->each = NULL;
}

static void composer_free(tocsin_composer *one)
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
static tocsin_status read_roles(tocsin_composer *one, const uint8_t *wanted, tocsin_error *error)
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
static tocsin_status digest_all(tocsin_composer *one, tocsin_error *error)
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

static tocsin_status survey_parts(tocsin_composer *one, uint32_t role, const uint8_t *has,
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
static tocsin_status survey_role(tocsin_composer *one, uint32_t role,
                                 tocsin_part_interface *interfaces, bool *fits, tocsin_error *error)
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
static tocsin_status survey(tocsin_composer *one, tocsin_part_interface *interfaces, bool *fits,
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
static tocsin_status digest_logical(tocsin_composer *one, uint32_t part, bool *fits,
                                    tocsin_error *error)
{
    tocsin_part_selection selection = {0};
    tocsin_known_part *known = &one->now.parts[part];
    if (!one->changed[part] && tocsin_same_digest(one->now.logical, one->before.logical))
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
static tocsin_status find_keys(tocsin_composer *one, bool *fits, tocsin_error *error)
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

/* ---- the result ------------------------------------------------------------------------------ */

/* Is every output of the logical plan one of some part? */
static tocsin_status covers_outputs(const tocsin_composer *one, bool *covered, tocsin_error *error)
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

static tocsin_status make_result(tocsin_composer *one, uint64_t start_ns,
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

/* What rank 0 finds in the cache is what all start from. */
static tocsin_status start_from_store(tocsin_composer *one, bool *found, tocsin_error *error)
{
    const tocsin_hash128 logical = one->now.logical;
    tocsin_string file = {.limit_bytes = STORE_BYTES_MAX};
    char *text = NULL;
    size_t bytes = 0;

    if (tocsin_scale_rank(one->scale) == 0 &&
        tocsin_file_load(tocsin_string_text(&one->store_path), STORE_BYTES_MAX, &file, NULL) !=
            TOCSIN_OK)
        tocsin_string_clear(&file); /* as if there were none */
    tocsin_status status = tocsin_scale_broadcast(one->scale, tocsin_string_text(&file), file.bytes,
                                                  &text, &bytes, error);
    tocsin_string_free(&file);
    if (status == TOCSIN_OK)
        status = tocsin_known_parse(&one->before, &one->now, text, bytes, one->header,
                                    one->role_count, found, error);
    one->now.logical = logical;
    tocsin_scale_free(text);
    return status;
}

static tocsin_status keep_known(tocsin_composer *one, tocsin_error *error)
{
    const char *path = tocsin_string_text(&one->store_path);
    tocsin_string file = {.limit_bytes = STORE_BYTES_MAX};
    if (tocsin_scale_rank(one->scale) != 0)
        return TOCSIN_OK;
    tocsin_status status = tocsin_known_write(&one->now, &file, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, tocsin_string_text(&file), file.bytes, true, error);
    tocsin_string_free(&file);
    return status;
}

/* Mark the parts to which a role contributes something else than before. */
static void mark_changed(tocsin_composer *one, uint32_t role)
{
    const tocsin_known_role *old = &one->before.roles[role], *now = &one->now.roles[role];
    size_t a = 0, b = 0;
    while (a < old->contributions.count || b < now->contributions.count) {
        const tocsin_contribution *x = &old->contributions.items[a];
        const tocsin_contribution *y = &now->contributions.items[b];
        const bool has_x = a < old->contributions.count, has_y = b < now->contributions.count;
        const uint32_t part = has_x && (!has_y || x->part <= y->part) ? x->part : y->part;
        if (!has_x || !has_y || x->part != y->part || !tocsin_same_digest(x->digest, y->digest))
            one->changed[part] = 1;
        a += has_x && x->part == part;
        b += has_y && y->part == part;
    }
}

/* Want the roles of the changed parts. *more: some were not wanted before. */
static void want_roles(tocsin_composer *one, bool *more)
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
static tocsin_status find_changed(tocsin_composer *one, bool *fits, tocsin_error *error)
{
    const uint32_t count = one->now.cuts.part_count;
    tocsin_part_interface *fresh = tocsin_zalloc((size_t)count + 1, sizeof *fresh);
    if (fresh == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = survey(one, fresh, fits, error);
    for (uint32_t r = 0; r < one->role_count && status == TOCSIN_OK && *fits; r++) {
        if (!one->wanted[r])
            continue;
        *fits =
            tocsin_same_digest(one->now.roles[r].communication, one->before.roles[r].communication);
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
        one->changed[p] |= !tocsin_same_digest(one->now.parts[p].key, one->before.parts[p].key);
    return status;
}

/* *fits: the plan is proved from the store and the parts proved now. */
static tocsin_status verify_again(tocsin_composer *one, bool *fits, tocsin_error *error)
{
    bool more = true, covered = true;

    one->changed = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, one->now.cuts.part_count + 1);
    if (one->changed == NULL)
        return tocsin_error_memory(error);
    memset(one->changed, 0, one->now.cuts.part_count);
    for (size_t r = 0; r < one->role_count; r++)
        one->wanted[r] =
            !one->blocks.is_text ||
            !tocsin_same_digest(one->blocks.items.items[r].digest, one->before.roles[r].text);
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
        TOCSIN_TRY(tocsin_prove_changed(one, fits, error));
    for (uint32_t p = 0; p < one->now.cuts.part_count && *fits; p++)
        *fits = one->now.parts[p].dead == one->before.parts[p].dead;
    if (*fits)
        TOCSIN_TRY(covers_outputs(one, &covered, error));
    *fits &= covered;
    return TOCSIN_OK;
}

/* ---- as a whole ------------------------------------------------------------------------------ */

typedef struct whole_proof {
    tocsin_composer *one;
    bool cut;
    const char *why;
} whole_proof;

static tocsin_status cut_proof(void *context, tocsin_proof *proof, tocsin_error *error)
{
    whole_proof *whole = context;
    tocsin_composer *one = whole->one;
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
    return tocsin_note_assumptions(known, result->assumptions, result->assumption_count);
}

/* Room for what is known of roles and parts, where there is none. */
static tocsin_status make_room(tocsin_composer *one, tocsin_error *error)
{
    tocsin_known *known = &one->now;
    if (known->roles == NULL)
        known->roles = tocsin_zalloc(one->role_count + 1, sizeof *known->roles);
    if (known->parts == NULL)
        known->parts = tocsin_zalloc((size_t)known->cuts.part_count + 1, sizeof *known->parts);
    return known->roles != NULL && known->parts != NULL ? TOCSIN_OK : tocsin_error_memory(error);
}

/* Prove the parts of a plan that is proved (with this result, on rank 0) and cut. *fits: all are.
 */
static tocsin_status prove_parts(tocsin_composer *one, const tocsin_verify_result *result,
                                 bool *fits, tocsin_error *error)
{
    const uint32_t count = one->now.cuts.part_count;
    TOCSIN_TRY(make_room(one, error));
    one->changed = TOCSIN_ARENA_ARRAY(&one->arena, uint8_t, count + 1);
    tocsin_part_interface *interfaces = tocsin_zalloc((size_t)count + 1, sizeof *interfaces);
    if (one->changed == NULL || interfaces == NULL ||
        (result != NULL && !copy_lines(&one->now, result))) {
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
        status = tocsin_prove_changed(one, fits, error);
    return status;
}

/* Rank 0's cuts, for all. */
static tocsin_status share_cuts(tocsin_composer *one, bool cut, tocsin_error *error)
{
    const tocsin_hash128 logical = one->now.logical;
    tocsin_string file = {0};
    tocsin_known shared;
    char *text = NULL;
    size_t bytes = 0;
    bool found = false;
    tocsin_status status = TOCSIN_OK;

    if (tocsin_scale_rank(one->scale) == 0 && cut) {
        one->now.header = one->header;
        status = make_room(one, error);
        if (status == TOCSIN_OK)
            status = tocsin_known_write(&one->now, &file, error);
    }
    status = tocsin_scale_agree(one->scale, status, error);
    if (status == TOCSIN_OK)
        status = tocsin_scale_broadcast(one->scale, tocsin_string_text(&file), file.bytes, &text,
                                        &bytes, error);
    tocsin_string_free(&file);
    if (status == TOCSIN_OK && tocsin_scale_rank(one->scale) != 0) {
        status = tocsin_known_parse(&shared, NULL, text, bytes, one->header, one->role_count,
                                    &found, error);
        tocsin_known_free(&one->now);
        one->now = shared;
        one->now.logical = logical;
    }
    tocsin_scale_free(text);
    return status;
}

/* The proof by rank 0; the parts by all. */
static tocsin_status verify_whole(tocsin_composer *one, tocsin_verify_files_answer *answer,
                                  tocsin_error *error)
{
    whole_proof whole = {.one = one, .why = "it is not proved"};
    const bool cached = one->store_path.bytes > 0;
    tocsin_status status = TOCSIN_OK;
    bool fits = true;

    if (tocsin_scale_rank(one->scale) == 0)
        status = tocsin_verify_visit(one->logical, one->parallel, &one->options->proving,
                                     cached ? cut_proof : NULL, &whole, &answer->result, error);
    TOCSIN_TRY(tocsin_scale_agree(one->scale, status, error));
    if (one->parallel != NULL)
        answer->size = tocsin_plan_get_size(one->parallel);
    if (!cached)
        return TOCSIN_OK;
    if (!whole.cut)
        tocsin_known_free(&one->now); /* it is still that of an earlier proof */
    TOCSIN_TRY(share_cuts(one, whole.cut, error));
    if (one->now.cuts.part_count > 0) {
        TOCSIN_TRY(prove_parts(one, answer->result, &fits, error));
        if (fits) {
            answer->parts = one->now.cuts.part_count;
            answer->parts_proved = one->proved;
            return keep_known(one, error);
        }
        whole.why = "a part of it is not proved by itself";
    }
    answer->uncached = whole.why;
    return TOCSIN_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

static tocsin_status prepare_cache(tocsin_composer *one, tocsin_error *error)
{
    const char *folder = one->options->cache;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tocsin_error_system(error, "make the folder", folder);
    TOCSIN_TRY(digest_all(one, error));
    tocsin_string_printf(&one->store_path, "%s/%016llx%016llx.proof", folder,
                         (unsigned long long)one->header.high, (unsigned long long)one->header.low);
    return tocsin_string_check(&one->store_path, error);
}

/* Is there nothing new to keep: no role was read again, and the model's file is the same? */
static bool is_as_stored(const tocsin_composer *one)
{
    return memchr(one->wanted, 1, one->role_count) == NULL &&
           tocsin_same_digest(one->now.logical, one->before.logical);
}

/* With a cache: *fits when the answer is there. */
static tocsin_status try_cache(tocsin_composer *one, uint64_t start_ns,
                               tocsin_verify_files_answer *answer, bool *fits, tocsin_error *error)
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
    return is_as_stored(one) ? TOCSIN_OK : keep_known(one, error);
}

typedef struct loading {
    tocsin_composer *one;
    const char *paths[2]; /* by side */
} loading;

static tocsin_status load_logical(tocsin_composer *one, const char *path, tocsin_error *error)
{
    tocsin_string content = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX};
    tocsin_status status = tocsin_file_load(path, TOCSIN_PLAN_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK) {
        one->now.logical = tocsin_hash128_of(tocsin_string_text(&content), content.bytes, 0);
        status = tocsin_plan_read_memory(tocsin_string_text(&content), content.bytes, path,
                                         &one->options->logical, &one->logical, error);
    }
    tocsin_string_free(&content);
    if (status == TOCSIN_OK && one->options->cache != NULL)
        status = tocsin_logical_index_init(&one->index, one->logical, error);
    return status;
}

/* One side of the pair: the logical plan, or (with a cache) the blocks of the parallel one. */
static tocsin_status load_side(void *context, size_t side, tocsin_error *error)
{
    const loading *both = context;
    tocsin_composer *one = both->one;
    if (one->options->cache == NULL && tocsin_scale_rank(one->scale) != 0)
        return TOCSIN_OK; /* there is nothing to be shared */
    if (side == 0)
        return load_logical(one, both->paths[0], error);
    if (one->options->cache != NULL)
        return tocsin_plan_blocks_load(&one->blocks, both->paths[1], error);
    return tocsin_plan_read(both->paths[1], &one->options->parallel, &one->parallel, error);
}

/* Both at once. */
static tocsin_status load(tocsin_composer *one, const char *logical_path, const char *parallel_path,
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

static tocsin_status verify(tocsin_composer *one, const char *logical_path,
                            const char *parallel_path, tocsin_verify_files_answer *answer,
                            tocsin_error *error)
{
    const uint64_t start = tocsin_clock_ns();
    bool fits = false;

    TOCSIN_TRY(
        tocsin_scale_agree(one->scale, load(one, logical_path, parallel_path, error), error));
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
    tocsin_composer one = {.options = options, .scale = options->scale};
    *answer = (tocsin_verify_files_answer){.uncached = ""};
    tocsin_scale *alone = NULL;
    if (one.scale == NULL) {
        TOCSIN_TRY(tocsin_scale_alone(&alone, error));
        one.scale = alone;
    }
    const tocsin_status status = verify(&one, logical_path, parallel_path, answer, error);
    composer_free(&one);
    (void)tocsin_scale_end(alone, 0);
    if (status != TOCSIN_OK || (options->scale != NULL && tocsin_scale_rank(options->scale) != 0)) {
        tocsin_verify_result_free(answer->result);
        answer->result = NULL;
    }
    return status;
}
