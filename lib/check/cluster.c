/* Clusters: findings that mostly have one cause, so that a report can show the first of each.
 *
 * What begins at the same step is one cluster. What begins later belongs to the first cluster that
 * named one of its offenders before, if it can follow from it: its cause is the same, or both are
 * about variables and its cause is not upstream of that one.
 * Data: a map from the name of an offender to the first finding that named it.
 * Cost: one look-up an offender.
 */
#include <check/check.h>

typedef struct naming { /* who named an offender first */
    tocsin_intern names;
    TOCSIN_VEC(uint32_t) first; /* by name - 1: index of the finding */
} naming;

static bool is_about_variables(const tocsin_violations *violations)
{
    tocsin_relation_kind relation =
        tocsin_population_relation(violations->vocabulary, violations->judged->population);
    return relation == TOCSIN_RELATION_FORALL || relation == TOCSIN_RELATION_CHECKPOINT ||
           tocsin_population_get_key(violations->vocabulary, violations->judged->population).kind ==
               TOCSIN_POPULATION_REPLICAS;
}

static bool can_follow(const tocsin_violations *later, const tocsin_violations *earlier)
{
    if (later->finding.step == earlier->finding.step)
        return false; /* one cluster anyway */
    if (later->finding.cause_order == earlier->finding.cause_order)
        return true;
    return is_about_variables(later) && is_about_variables(earlier) &&
           later->finding.cause_order > earlier->finding.cause_order;
}

/* The cluster of an earlier step that this one follows from; 0: none. */
static uint32_t find_earlier(const naming *named, tocsin_violations *const *violations,
                             const tocsin_violations *later)
{
    uint32_t best = 0;
    for (uint32_t id = 1; id <= tocsin_intern_count(&later->offenders); ++id) {
        size_t bytes;
        const char *name = tocsin_intern_text(&later->offenders, id, &bytes);
        uint32_t known = tocsin_intern_find(&named->names, name, bytes);
        if (known == 0)
            continue;
        const tocsin_violations *earlier = violations[named->first.items[known - 1]];
        if (can_follow(later, earlier) && (best == 0 || earlier->finding.cluster < best))
            best = earlier->finding.cluster;
    }
    return best;
}

static bool remember(naming *named, const tocsin_violations *violations, uint32_t index)
{
    for (uint32_t id = 1; id <= tocsin_intern_count(&violations->offenders); ++id) {
        size_t bytes;
        const char *name = tocsin_intern_text(&violations->offenders, id, &bytes);
        uint32_t known = tocsin_intern_put(&named->names, name, bytes);
        if (known == 0)
            return false;
        if (known > named->first.count && !TOCSIN_VEC_PUSH(&named->first, index))
            return false;
    }
    return true;
}

tocsin_status tocsin_violations_cluster(tocsin_violations *const *violations, size_t count,
                                        tocsin_error *error)
{
    naming named = {.names = {.capacity = 0}};
    uint32_t clusters = 0, of_step = 0;
    bool done = true;
    for (size_t i = 0; i < count && done; ++i) {
        tocsin_finding *finding = &violations[i]->finding;
        if (i == 0 || finding->step != violations[i - 1]->finding.step)
            of_step = 0;
        finding->cluster = find_earlier(&named, violations, violations[i]);
        if (finding->cluster == 0) {
            if (of_step == 0)
                of_step = ++clusters;
            finding->cluster = of_step;
        }
        done = remember(&named, violations[i], (uint32_t)i);
    }
    tocsin_intern_free(&named.names);
    TOCSIN_VEC_FREE(&named.first);
    return done ? TOCSIN_OK : tocsin_error_memory(error);
}
