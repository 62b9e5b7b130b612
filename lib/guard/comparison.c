/* comparison.c - ranks that differ from themselves: what was kept, moved or computed again.
 *
 * Data: a row a rank. That a rank's own two digests differ says where; the other ranks, which run
 * the same program and whose digests are equal, say that the program does not do it. Invariant: a
 * rank is named only if a strict majority of at least 3 are such witnesses. Cost: O(ranks).
 */
#include "guard/guard.h"

#define EVIDENCE_ROWS_MAX 64

static uint32_t rank_of(const tocsin_guard_comparison *comparison, size_t row)
{
    return comparison->ranks ? comparison->ranks[row] : (uint32_t)row;
}

static const char *item_name(const tocsin_guard_comparison *comparison, int64_t item)
{
    return item >= 0 && (size_t)item < comparison->name_count ? comparison->names[item] : "";
}

static void put_row(tocsin_json *json, const tocsin_guard_comparison *comparison, size_t index)
{
    const tocsin_guard_comparison_row *row = &comparison->rows[index];
    tocsin_json_begin_object(json);
    tocsin_json_put_unsigned(json, "rank", rank_of(comparison, index));
    tocsin_json_put_unsigned(json, "compared", row->compared);
    tocsin_json_put_unsigned(json, "differ", row->differ);
    tocsin_json_put_text(json, "item", item_name(comparison, row->item));
    if (row->word >= 0)
        tocsin_json_put_unsigned(json, "word", (uint64_t)row->word);
    tocsin_draft_put_digest(json, "expected", row->expected);
    tocsin_draft_put_digest(json, "seen", row->seen);
    tocsin_json_end_object(json);
}

static void put_evidence(finding_draft *draft, const tocsin_guard_comparison *comparison)
{
    tocsin_json *json = &draft->json;
    size_t told = 0;
    tocsin_draft_put_ranks(json, "located", draft->ranks.items, draft->ranks.count);
    tocsin_json_key(json, "deterministic");
    tocsin_json_bool(json, comparison->deterministic);
    tocsin_json_key(json, "rows");
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < comparison->row_count && told < EVIDENCE_ROWS_MAX; ++r) {
        if (comparison->rows[r].differ) {
            put_row(json, comparison, r);
            ++told;
        }
    }
    tocsin_json_end_array(json);
}

static const char *what_differs(tocsin_guard_check check)
{
    switch (check) {
    case TOCSIN_GUARD_RECOMPUTE:
        return "recomputed activations differ from those of the forward";
    case TOCSIN_GUARD_SAVED:
        return "saved activations changed before the backward used them";
    case TOCSIN_GUARD_MEMORY:
        return "tensors changed between two steps";
    case TOCSIN_GUARD_COLLECTIVE:
        return "a collective delivered something else than was sent";
    default:
        return "two digests of the same tensors differ";
    }
}

/* Who differs is in draft->ranks; leave them there only if they are the culprits. */
static void decide(finding_draft *draft, const tocsin_guard_comparison *comparison)
{
    size_t located = draft->ranks.count, ranks = comparison->row_count;
    bool repeats = comparison->check != TOCSIN_GUARD_RECOMPUTE || comparison->deterministic;
    if (repeats && 2 * located < ranks) { /* of at least 3, then */
        draft->content.cause =
            tocsin_draft_cause(draft, comparison->named, comparison->named_count);
        return;
    }
    draft->ranks.count = 0;
    if (!repeats) {
        draft->content.cause = TOCSIN_GUARD_NONDETERMINISTIC;
        tocsin_string_append_text(&draft->text, "; without deterministic algorithms this may be "
                                                "no fault");
    } else if (2 * located > ranks && ranks > 1) {
        draft->content.cause = TOCSIN_GUARD_SOFTWARE;
        tocsin_string_append_text(&draft->text, "; on most ranks at once: the program does it");
    } else {
        tocsin_string_append_text(&draft->text, "; too few ranks are witnesses to blame a device");
    }
}

static tocsin_status make_finding(const tocsin_guard_comparison *comparison, size_t first,
                                  finding_draft *draft, tocsin_guard_finding **finding,
                                  tocsin_error *error)
{
    const tocsin_guard_comparison_row *row = &comparison->rows[first];
    draft->content.tensor = item_name(comparison, row->item);
    draft->content.index = &row->word;
    draft->content.index_count = row->word >= 0;
    put_evidence(draft, comparison);
    tocsin_string_printf(&draft->text, "%s on ", what_differs(comparison->check));
    tocsin_draft_ranks_text(&draft->text, draft->ranks.items, draft->ranks.count);
    if (draft->content.tensor[0])
        tocsin_string_printf(&draft->text, ", first %s", draft->content.tensor);
    decide(draft, comparison);
    return tocsin_draft_finish(draft, finding, error);
}

static tocsin_status check_comparison(const tocsin_guard_comparison *comparison,
                                      tocsin_error *error)
{
    if (comparison->row_count == 0)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a comparison by no rank");
    if (comparison->row_count > TOCSIN_GUARD_RANKS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u ranks",
                                TOCSIN_GUARD_RANKS_MAX);
    for (size_t r = 1; comparison->ranks && r < comparison->row_count; ++r) {
        if (comparison->ranks[r - 1] >= comparison->ranks[r])
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "ranks are ascending");
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_guard_judge_comparison(const tocsin_guard_comparison *comparison,
                                            tocsin_guard_finding **finding, tocsin_error *error)
{
    finding_draft draft;
    size_t first = SIZE_MAX;
    *finding = NULL;
    TOCSIN_TRY(check_comparison(comparison, error));
    tocsin_draft_begin(&draft, comparison->check, comparison->moment, comparison->row_count);
    for (size_t r = 0; r < comparison->row_count; ++r) {
        if (comparison->rows[r].differ == 0)
            continue;
        if (first == SIZE_MAX)
            first = r;
        if (!TOCSIN_VEC_PUSH(&draft.ranks, rank_of(comparison, r)))
            draft.text.status = TOCSIN_E_MEMORY;
    }
    if (first != SIZE_MAX)
        return make_finding(comparison, first, &draft, finding, error);
    tocsin_draft_free(&draft);
    return TOCSIN_OK;
}
