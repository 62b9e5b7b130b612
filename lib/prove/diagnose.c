/* diagnose.c - from a failed proof to its causes, by trying what would mend it.
 *
 * The localiser's first candidates are suspects. A suspect explains everything when the plan is
 * proved once it is put right; factors, which pass through all linear steps, are tried first. If no
 * single one does, all suspects are reported, taken as right, and the plan is run again for what
 * they hid. Runs are cheap (the memo knows most executions), and there is a budget.
 */
#include "prove/diagnose.h"

#include "prove/rebase.h"

enum { ROUNDS_MAX = 8, HYPOTHESES_MAX = 200, EXECUTIONS_MAX = 20000000 };

bool tocsin_is_missing_rule(const char *text)
{
    return strncmp(text, "no rule for ", 12) == 0;
}

/* Run the parallel plan again with the rebases. */
static tocsin_status rerun(tocsin_attempt *one, const tocsin_rebases *rebases, tocsin_run *run,
                           tocsin_comparison *comparison, tocsin_error *error)
{
    *comparison = (tocsin_comparison){0};
    tocsin_status status =
        tocsin_run_init(run, &one->prover, TOCSIN_PARALLEL, one->parallel.enumerate_replicas,
                        one->parallel.enumerate_microbatches, error);
    run->rebases = rebases;
    if (status == TOCSIN_OK)
        status = tocsin_run_all(run, error);
    if (status == TOCSIN_OK)
        status = tocsin_compare(run, &one->logical, comparison, error);
    return status;
}

/* Is the plan proved with these? */
static tocsin_status proves_with(tocsin_attempt *one, const tocsin_rebases *rebases, bool *proves,
                                 tocsin_error *error)
{
    tocsin_run run = {0};
    tocsin_comparison comparison = {0};
    const tocsin_status status = rerun(one, rebases, &run, &comparison, error);
    *proves = status == TOCSIN_OK && tocsin_comparison_equal(&comparison);
    tocsin_comparison_free(&comparison);
    tocsin_run_free(&run);
    return status;
}

/* ---- a single wrong factor --------------------------------------------------------------------
 */

static tocsin_status test_hypothesis(tocsin_attempt *one, const tocsin_hypothesis *hypothesis,
                                     bool *proves, tocsin_error *error)
{
    tocsin_rebases rebases = {0};
    tocsin_status status = TOCSIN_OK;

    *proves = false;
    for (uint32_t k = 0; k < hypothesis->count && status == TOCSIN_OK; k++)
        if (!TOCSIN_VEC_PUSH(&rebases.items, (tocsin_rebase){.factor = hypothesis->factor}) ||
            !tocsin_map_put(&rebases.by_op, hypothesis->ops[k], rebases.items.count))
            status = tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = proves_with(one, &rebases, proves, error);
    tocsin_rebases_free(&rebases);
    return status;
}

/* Does the role list the op? */
static bool lists_op(const tocsin_plan *plan, const tocsin_plan_role *role, uint32_t op)
{
    if (role->segment_count == 0)
        return false;
    const tocsin_plan_segment *first = &plan->segments.items[role->first_segment];
    const tocsin_plan_segment *last = first + role->segment_count - 1;
    return op >= first->first_op && op < last->first_op + last->op_count;
}

static tocsin_status report_hypothesis(const tocsin_attempt *one,
                                       const tocsin_hypothesis *hypothesis, tocsin_report *report,
                                       tocsin_error *error)
{
    const tocsin_plan *plan = one->parallel.plan;
    for (uint32_t u = 0; u < one->parallel.units.count; u++) {
        const tocsin_plan_role *role = &plan->roles.items[one->parallel.units.items[u].role];
        for (uint32_t k = 0; k < hypothesis->count; k++) {
            if (!lists_op(plan, role, hypothesis->ops[k]))
                continue;
            const tocsin_root root = {.cause = hypothesis->cause,
                                      .unit = u,
                                      .op = hypothesis->ops[k],
                                      .pair = TOCSIN_PLAN_NONE,
                                      .output = TOCSIN_PLAN_NONE,
                                      .relation = hypothesis->relation,
                                      .expected = hypothesis->expected,
                                      .fix = ""};
            TOCSIN_TRY(tocsin_report_root(report, &one->parallel, &root, error));
        }
    }
    return TOCSIN_OK;
}

static tocsin_status find_factor(tocsin_attempt *one, const tocsin_sanity *sanity,
                                 tocsin_report *report, bool *found, tocsin_error *error)
{
    tocsin_hypotheses guesses;
    const uint64_t limit = EXECUTIONS_MAX / (one->parallel.executions + 1);
    *found = false;
    if (limit == 0)
        return TOCSIN_OK;
    tocsin_status status = tocsin_hypothesise(
        &one->parallel, &one->logical, &one->comparison, sanity->match,
        limit < HYPOTHESES_MAX ? (uint32_t)limit : HYPOTHESES_MAX, &guesses, error);
    for (size_t k = 0; k < guesses.items.count && status == TOCSIN_OK && !*found; k++) {
        status = test_hypothesis(one, &guesses.items.items[k], found, error);
        if (status == TOCSIN_OK && *found)
            status = report_hypothesis(one, &guesses.items.items[k], report, error);
    }
    tocsin_hypotheses_free(&guesses);
    return status;
}

/* ---- a single suspect -------------------------------------------------------------------------
 */

static bool same_cause(const tocsin_plan *plan, const tocsin_root *a, const tocsin_root *b)
{
    if (a->cause != b->cause || a->op == TOCSIN_PLAN_NONE || b->op == TOCSIN_PLAN_NONE)
        return false;
    return plan->ops.items[a->op].label == plan->ops.items[b->op].label;
}

/* Is the plan proved when the suspects like `first` alone are put right? */
static tocsin_status test_suspect(tocsin_attempt *one, const tocsin_roots *roots,
                                  const tocsin_root *first, bool *proves, tocsin_error *error)
{
    tocsin_rebases rebases = {0};
    tocsin_status status = TOCSIN_OK;
    bool added = false;

    *proves = false;
    for (size_t k = 0; k < roots->items.count && status == TOCSIN_OK; k++)
        if (same_cause(one->parallel.plan, &roots->items.items[k], first))
            status =
                tocsin_rebases_add(&rebases, &one->logical, &roots->items.items[k], &added, error);
    if (status == TOCSIN_OK && added)
        status = proves_with(one, &rebases, proves, error);
    tocsin_rebases_free(&rebases);
    return status;
}

static tocsin_status find_suspect(tocsin_attempt *one, const tocsin_sanity *sanity,
                                  tocsin_report *report, bool *found, tocsin_error *error)
{
    tocsin_roots roots;
    const tocsin_plan *plan = one->parallel.plan;
    uint64_t budget = EXECUTIONS_MAX;
    *found = false;
    tocsin_status status = tocsin_localise(&one->parallel, &one->logical, &one->comparison,
                                           sanity->match, &roots, error);
    for (size_t k = 0; k < roots.items.count && status == TOCSIN_OK && !*found; k++) {
        const tocsin_root *root = &roots.items.items[k];
        bool tested = root->op == TOCSIN_PLAN_NONE || budget < one->parallel.executions ||
                      (!report->confirmed && root->pair == TOCSIN_PLAN_NONE &&
                       root->cause == TOCSIN_CAUSE_WRONG_OPERATOR);
        for (size_t j = 0; j < k && !tested; j++)
            tested = same_cause(plan, &roots.items.items[j], root);
        if (tested)
            continue;
        budget -= one->parallel.executions;
        status = test_suspect(one, &roots, root, found, error);
        for (size_t j = 0; j < roots.items.count && status == TOCSIN_OK && *found; j++)
            if (same_cause(plan, &roots.items.items[j], root))
                status = tocsin_report_root(report, &one->parallel, &roots.items.items[j], error);
    }
    tocsin_roots_free(&roots);
    return status;
}

/* ---- all suspects -----------------------------------------------------------------------------
 */

/* What rests on an operator without a rule is no flaw of the plan. */
static bool rests_on_missing_rule(const tocsin_root *root)
{
    return tocsin_is_missing_rule(root->relation);
}

/* An operator without a logical counterpart may be another way to the same value, unless evaluation
 * says that the plans differ: *undecided, and listed. */
static tocsin_status is_undecided(const tocsin_run *run, const tocsin_root *root,
                                  tocsin_report *report, bool *undecided, tocsin_error *error)
{
    const tocsin_plan *plan = run->plan;
    *undecided =
        !report->confirmed && root->cause == TOCSIN_CAUSE_WRONG_OPERATOR &&
        root->pair == TOCSIN_PLAN_NONE && root->op != TOCSIN_PLAN_NONE &&
        !tocsin_operator_communicates((tocsin_operator_code)plan->ops.items[root->op].code);
    if (!*undecided)
        return TOCSIN_OK;
    return tocsin_report_line(report, TOCSIN_REPORT_UNKNOWN,
                              "%s (%s): no counterpart in the logical model, no law that leads to "
                              "one, and the plan is too large to be evaluated",
                              tocsin_plan_text(plan, plan->ops.items[root->op].label),
                              tocsin_plan_text(plan, plan->ops.items[root->op].source))
               ? TOCSIN_OK
               : tocsin_error_memory(error);
}

static tocsin_status report_suspects(const tocsin_run *run, const tocsin_run *logical,
                                     const tocsin_comparison *comparison, const uint32_t *match,
                                     tocsin_report *report, tocsin_rebases *rebases, bool *rebased,
                                     tocsin_error *error)
{
    tocsin_roots roots;
    tocsin_status status = tocsin_localise(run, logical, comparison, match, &roots, error);
    for (size_t k = 0; status == TOCSIN_OK && k < roots.items.count; k++) {
        const tocsin_root *root = &roots.items.items[k];
        bool undecided = false;
        if (rests_on_missing_rule(root))
            continue;
        status = is_undecided(run, root, report, &undecided, error);
        if (status != TOCSIN_OK || undecided)
            continue;
        status = tocsin_report_root(report, run, root, error);
        if (status == TOCSIN_OK)
            status = tocsin_rebases_add(rebases, logical, root, rebased, error);
    }
    tocsin_roots_free(&roots);
    return status;
}

static tocsin_status find_all(tocsin_attempt *one, const tocsin_sanity *sanity,
                              tocsin_report *report, tocsin_error *error)
{
    tocsin_rebases rebases = {0};
    bool rebased = false;
    tocsin_status status = report_suspects(&one->parallel, &one->logical, &one->comparison,
                                           sanity->match, report, &rebases, &rebased, error);
    for (int round = 1; status == TOCSIN_OK && rebased && round < ROUNDS_MAX; round++) {
        tocsin_run run = {0};
        tocsin_comparison comparison;
        rebased = false;
        report->round = (uint32_t)round;
        status = rerun(one, &rebases, &run, &comparison, error);
        if (status == TOCSIN_OK)
            status = report_suspects(&run, &one->logical, &comparison, sanity->match, report,
                                     &rebases, &rebased, error);
        tocsin_comparison_free(&comparison);
        tocsin_run_free(&run);
    }
    tocsin_rebases_free(&rebases);
    return status;
}

tocsin_status tocsin_diagnose(tocsin_attempt *attempt, const tocsin_sanity *sanity,
                              tocsin_report *report, tocsin_error *error)
{
    bool explained = false;
    TOCSIN_TRY(tocsin_report_sanity(report, attempt->parallel.plan, sanity, error));
    if (tocsin_comparison_equal(&attempt->comparison))
        return TOCSIN_OK;
    if (sanity->findings.count == 0)
        TOCSIN_TRY(find_factor(attempt, sanity, report, &explained, error));
    if (sanity->findings.count == 0 && !explained)
        TOCSIN_TRY(find_suspect(attempt, sanity, report, &explained, error));
    return explained ? TOCSIN_OK : find_all(attempt, sanity, report, error);
}
