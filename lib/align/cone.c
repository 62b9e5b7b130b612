/* lib/align/cone.c - how far the first difference spread.
 *
 * From the step in which a process parts, each step is counted: boundaries that were compared, and
 * those of them that differ; and each variable once, where it first differs, in that order.
 *
 * Cost: a look-up for each differing boundary. Memory: bounded, TOCSIN_ALIGN_CONE_*_MAX; beyond
 * that it is counted only.
 */
#include "align/align.h"

bool tocsin_cone_add(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                     uint32_t at)
{
    tocsin_parting *parting = comparison->parting;
    const tocsin_boundary *boundary = &pair->a->boundaries.items[at];
    ++parting->step_differing;
    uint64_t *seen = tocsin_map_at(&parting->reached_names, boundary->name);
    if (!seen)
        return false;
    bool before = (*seen)++ > 0;
    if (before || parting->reached.count == TOCSIN_ALIGN_CONE_REACHED_MAX)
        return true;
    tocsin_string id = {0};
    tocsin_boundary_id(pair->names, boundary, &id);
    tocsin_align_reached reached = {.step = comparison->step, .micro_batch = boundary->micro_batch};
    reached.id = id.status == TOCSIN_OK
                     ? tocsin_arena_copy(comparison->arena, tocsin_string_text(&id), id.bytes)
                     : NULL;
    tocsin_string_free(&id);
    return reached.id && TOCSIN_VEC_PUSH(&parting->reached, reached);
}

bool tocsin_cone_end_step(const tocsin_comparison *comparison, uint64_t compared)
{
    tocsin_parting *parting = comparison->parting;
    if (parting->rank.diverged_step == 0 || compared == 0)
        return true;
    tocsin_align_cone_step step = {
        .step = comparison->step, .compared = compared, .differing = parting->step_differing};
    parting->step_differing = 0;
    return parting->cone_steps.count == TOCSIN_ALIGN_CONE_STEPS_MAX ||
           TOCSIN_VEC_PUSH(&parting->cone_steps, step);
}

bool tocsin_cone_keep(const tocsin_parting *parting, tocsin_arena *arena, tocsin_align_cone *cone)
{
    void *steps =
        tocsin_arena_copy_items(arena, parting->cone_steps.items, parting->cone_steps.count,
                                sizeof *parting->cone_steps.items);
    void *reached = tocsin_arena_copy_items(arena, parting->reached.items, parting->reached.count,
                                            sizeof *parting->reached.items);
    if (!steps || !reached)
        return false;
    *cone = (tocsin_align_cone){.rank = parting->rank.rank,
                                .steps = steps,
                                .step_count = parting->cone_steps.count,
                                .reached = reached,
                                .reached_count = parting->reached.count,
                                .names = parting->reached_names.count};
    return true;
}
