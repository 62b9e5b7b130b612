/* Violations of one invariant as one finding: the first occurrence's evidence, the offenders of its
 * step by name, and counts. Memory: the offenders of one step, at most TOCSIN_OFFENDERS_MAX.
 */
#include <assert.h>
#include <check/check.h>

/* Copy what is seen at the first occurrence. */
static tocsin_status keep_seen(tocsin_violations *violations, const tocsin_instance *instance,
                               tocsin_error *error)
{
    const tocsin_evidence *evidence = &instance->evidence;
    tocsin_string seen = {0}, site = {0};
    tocsin_instance_describe(violations->vocabulary, instance, violations->judged->fact, &seen);
    if (evidence->file[0] != 0)
        tocsin_string_printf(&site, "%s:%u", evidence->file, evidence->line);
    if (evidence->file[0] != 0 && evidence->function[0] != 0)
        tocsin_string_printf(&site, " in %s", evidence->function);
    tocsin_status status = tocsin_string_check(&seen, error);
    if (status == TOCSIN_OK)
        status = tocsin_string_check(&site, error);
    if (status == TOCSIN_OK) {
        tocsin_free(violations->seen);
        tocsin_free(violations->site);
        violations->seen = tocsin_copy_text(tocsin_string_text(&seen), seen.bytes);
        violations->site = tocsin_copy_text(tocsin_string_text(&site), site.bytes);
        if (violations->seen == NULL || violations->site == NULL)
            status = tocsin_error_memory(error);
    }
    tocsin_string_free(&seen);
    tocsin_string_free(&site);
    return status;
}

/* This is the first occurrence. */
static tocsin_status begin(tocsin_violations *violations, const tocsin_instance *instance,
                           tocsin_error *error)
{
    const tocsin_evidence *evidence = &instance->evidence;
    TOCSIN_TRY(keep_seen(violations, instance, error));
    tocsin_intern_free(&violations->offenders);
    violations->finding.entity = "";
    violations->finding.site = violations->site;
    violations->finding.step = evidence->step;
    violations->finding.rank = evidence->rank;
    violations->finding.pid = evidence->pid;
    return TOCSIN_OK;
}

tocsin_status tocsin_violations_new(const tocsin_invariant_set *set,
                                    const tocsin_vocabulary *vocabulary, size_t index,
                                    const tocsin_instance *instance, tocsin_violations **violations,
                                    tocsin_error *error)
{
    const tocsin_invariant *invariant = tocsin_invariants_get(set, index);
    tocsin_violations *made = tocsin_zalloc(1, sizeof *made);
    *violations = NULL;
    if (made == NULL)
        return tocsin_error_memory(error);
    made->vocabulary = vocabulary;
    made->judged = invariant;
    made->offenders.limit_count = TOCSIN_OFFENDERS_MAX;
    made->finding = (tocsin_finding){
        .code = tocsin_relation_code(tocsin_population_relation(vocabulary, invariant->population)),
        .invariant = tocsin_invariant_id(set, index),
        .relation = tocsin_invariant_relation(set, index),
        .sentence = tocsin_invariant_sentence(set, index),
        .rendered = "",
        .entity = "",
        .last_step = -1,
        .severity = tocsin_severity_of(vocabulary, invariant),
        .specificity = tocsin_invariant_specificity(vocabulary, invariant)};
    made->finding.cause = tocsin_cause_of(vocabulary, invariant, &made->finding.cause_order);
    tocsin_status status = tocsin_violations_add(made, instance, error);
    if (status == TOCSIN_OK)
        *violations = made;
    else
        tocsin_violations_free(made);
    return status;
}

tocsin_status tocsin_violations_add(tocsin_violations *violations, const tocsin_instance *instance,
                                    tocsin_error *error)
{
    const tocsin_evidence *evidence = &instance->evidence;
    tocsin_finding *finding = &violations->finding;
    if (finding->occurrences == 0 || evidence->step < finding->step)
        TOCSIN_TRY(begin(violations, instance, error));
    ++finding->occurrences;
    if (evidence->step > finding->last_step)
        finding->last_step = evidence->step;
    if (evidence->step != finding->step ||
        tocsin_intern_count(&violations->offenders) >= TOCSIN_OFFENDERS_MAX)
        return TOCSIN_OK;
    size_t bytes = strlen(evidence->entity);
    if (tocsin_intern_find(&violations->offenders, evidence->entity, bytes) != 0)
        return TOCSIN_OK;
    if (tocsin_intern_put(&violations->offenders, evidence->entity, bytes) == 0)
        return tocsin_error_memory(error);
    violations->stale = true;
    finding->entity = tocsin_intern_text(&violations->offenders, 1, NULL);
    return TOCSIN_OK;
}

tocsin_status tocsin_violations_render(tocsin_violations *violations, tocsin_error *error)
{
    if (!violations->stale)
        return TOCSIN_OK;
    uint32_t count = tocsin_intern_count(&violations->offenders);
    uint32_t named = count <= TOCSIN_OFFENDERS_NAMED + 1 ? count : TOCSIN_OFFENDERS_NAMED;
    tocsin_string text = {0};
    assert(count > 0);
    for (uint32_t id = 1; id <= named; ++id) {
        const char *before = id == 1 ? "" : id == count ? " and " : ", ";
        tocsin_string_append_text(&text, before);
        tocsin_string_append_text(&text, tocsin_intern_text(&violations->offenders, id, NULL));
    }
    if (count > named)
        tocsin_string_printf(&text, " and %u more", count - named);
    tocsin_string_printf(&text, ": %s", violations->seen);
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK) {
        char *rendered = tocsin_copy_text(text.text, text.bytes);
        if (rendered == NULL) {
            status = tocsin_error_memory(error);
        } else {
            tocsin_free(violations->rendered);
            violations->rendered = rendered;
            violations->finding.rendered = rendered;
            violations->stale = false;
        }
    }
    tocsin_string_free(&text);
    return status;
}

void tocsin_violations_free(tocsin_violations *violations)
{
    if (violations == NULL)
        return;
    tocsin_intern_free(&violations->offenders);
    tocsin_free(violations->seen);
    tocsin_free(violations->site);
    tocsin_free(violations->rendered);
    tocsin_free(violations);
}

int tocsin_violations_compare(const tocsin_violations *a, const tocsin_violations *b)
{
    const tocsin_finding *x = &a->finding, *y = &b->finding;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->cause_order != y->cause_order)
        return x->cause_order < y->cause_order ? -1 : 1;
    if (x->specificity != y->specificity)
        return x->specificity > y->specificity ? -1 : 1;
    return strcmp(x->invariant, y->invariant);
}
