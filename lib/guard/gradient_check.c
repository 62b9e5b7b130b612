/* gradient_check.c - check 1: NaN and Inf in gradients, before and after they are reduced.
 *
 * Data: one row a rank. Where only the sum over ranks is not finite, one of three things happened:
 * values so large that the sum overflows (then some rank counted large ones: |x| <= max / R for all
 * R summands excludes an overflow), another result on a few ranks, or the same wrong one on all.
 * Invariant: ranks that merely hold NaN or Inf are located, never named. Cost: O(ranks).
 */
#include "guard/guard.h"

#include <math.h>

typedef TOCSIN_VEC(uint32_t) rank_list;

typedef struct gradient_summary {
    rank_list bad;     /* NaN or Inf before the reduction */
    rank_list unlike;  /* another norm than a strict majority has */
    bool norm_bad;     /* some norm is NaN or Inf */
    bool norms_differ; /* though they are replicated */
    bool majority;     /* of norms */
    bool scaled;
    bool large;
    double scale;
} gradient_summary;

static uint64_t norm_bits(const tocsin_guard_gradient_row *row)
{
    uint64_t bits;
    double norm = isnan(row->norm) ? (double)NAN : row->norm; /* payloads mean nothing */
    memcpy(&bits, &norm, sizeof bits);
    return bits;
}

/* The bits of the norm that most ranks may have (Boyer and Moore); is it a strict majority? */
static uint64_t majority_bits(const tocsin_guard_gradients *gradients, bool *majority)
{
    uint64_t candidate = 0;
    size_t lead = 0, count = 0;
    for (size_t r = 0; r < gradients->rank_count; ++r) {
        uint64_t bits = norm_bits(&gradients->rows[r]);
        if (lead == 0)
            candidate = bits;
        lead = bits == candidate ? lead + 1 : lead - 1;
    }
    for (size_t r = 0; r < gradients->rank_count; ++r)
        count += norm_bits(&gradients->rows[r]) == candidate;
    *majority = 2 * count > gradients->rank_count; /* and of two that differ, none */
    return candidate;
}

static bool compare_norms(const tocsin_guard_gradients *gradients, gradient_summary *summary)
{
    uint64_t most = majority_bits(gradients, &summary->majority);
    for (size_t r = 0; r < gradients->rank_count; ++r) {
        if (norm_bits(&gradients->rows[r]) == most)
            continue;
        summary->norms_differ = true;
        if (summary->majority && !TOCSIN_VEC_PUSH(&summary->unlike, (uint32_t)r))
            return false;
    }
    return true;
}

static bool summarize(const tocsin_guard_gradients *gradients, gradient_summary *summary)
{
    bool replicated = true;
    for (size_t r = 0; r < gradients->rank_count; ++r) {
        const tocsin_guard_gradient_row *row = &gradients->rows[r];
        bool normed = row->flags & TOCSIN_GUARD_NORM;
        if ((row->nan || row->inf) && !TOCSIN_VEC_PUSH(&summary->bad, (uint32_t)r))
            return false;
        replicated &= normed && row->flags & TOCSIN_GUARD_NORM_REPLICATED;
        summary->norm_bad |= normed && !isfinite(row->norm);
        summary->large |= row->large > 0;
        if (row->scale != 0.0) {
            summary->scale = summary->scaled ? fmin(summary->scale, row->scale) : row->scale;
            summary->scaled = true;
        }
    }
    return !replicated || compare_norms(gradients, summary);
}

/* ---- the finding --------------------------------------------------------------------------- */

static void put_row(tocsin_json *json, const tocsin_guard_gradients *gradients, uint32_t rank)
{
    const tocsin_guard_gradient_row *row = &gradients->rows[rank];
    tocsin_json_begin_object(json);
    tocsin_json_put_unsigned(json, "rank", rank);
    tocsin_json_put_unsigned(json, "nan", row->nan);
    tocsin_json_put_unsigned(json, "inf", row->inf);
    tocsin_json_put_unsigned(json, "large", row->large);
    const struct {
        const char *key;
        int64_t value;
    } places[] = {
        {"bucket", row->bucket}, {"parameter", row->parameter}, {"element", row->element}};
    for (size_t p = 0; p < TOCSIN_COUNT_OF(places); ++p) {
        if (places[p].value >= 0)
            tocsin_json_put_unsigned(json, places[p].key, (uint64_t)places[p].value);
    }
    if (row->parameter >= 0 && (size_t)row->parameter < gradients->name_count)
        tocsin_json_put_text(json, "tensor", gradients->names[row->parameter]);
    if (row->flags & TOCSIN_GUARD_NORM) {
        char norm[TOCSIN_REAL_TEXT_BYTES];
        tocsin_real_text(row->norm, norm);
        tocsin_json_put_text(json, "norm", norm);
    }
    tocsin_json_end_object(json);
}

#define EVIDENCE_ROWS_MAX 64

static void put_evidence(finding_draft *draft, const tocsin_guard_gradients *gradients,
                         const gradient_summary *summary)
{
    tocsin_json *json = &draft->json;
    const rank_list *told = summary->bad.count ? &summary->bad : &summary->unlike;
    tocsin_draft_put_ranks(json, "located", summary->bad.items, summary->bad.count);
    tocsin_draft_put_ranks(json, "unlike_norm", summary->unlike.items, summary->unlike.count);
    tocsin_json_key(json, "rows");
    tocsin_json_begin_array(json);
    if (told->count == 0)
        put_row(json, gradients, 0);
    for (size_t i = 0; i < told->count && i < EVIDENCE_ROWS_MAX; ++i)
        put_row(json, gradients, told->items[i]);
    tocsin_json_end_array(json);
    if (summary->scaled) {
        tocsin_json_key(json, "scale");
        tocsin_json_real(json, summary->scale);
        tocsin_json_put_unsigned(json, "skips", gradients->skips);
    }
}

/* Where the first rank with NaN or Inf has it. */
static void put_place(finding_draft *draft, const tocsin_guard_gradients *gradients,
                      const gradient_summary *summary)
{
    const tocsin_guard_gradient_row *row = &gradients->rows[summary->bad.items[0]];
    draft->content.bucket = row->bucket;
    if (row->parameter >= 0 && (size_t)row->parameter < gradients->name_count)
        draft->content.tensor = gradients->names[row->parameter];
    if (row->element >= 0) {
        draft->content.index = &row->element;
        draft->content.index_count = 1;
    }
}

static void tell_local(finding_draft *draft, const tocsin_guard_gradients *gradients,
                       const gradient_summary *summary)
{
    const tocsin_guard_gradient_row *row = &gradients->rows[summary->bad.items[0]];
    size_t ranks = gradients->rank_count;
    bool most = ranks > 1 && 2 * summary->bad.count > ranks;
    put_place(draft, gradients, summary);
    draft->content.cause = most ? TOCSIN_GUARD_SOFTWARE : TOCSIN_GUARD_UNATTRIBUTABLE;
    tocsin_string_append_text(&draft->text, "gradients of ");
    tocsin_draft_ranks_text(&draft->text, summary->bad.items, summary->bad.count);
    tocsin_string_printf(&draft->text, " hold %s before they are reduced",
                         row->nan == 0   ? "Inf"
                         : row->inf == 0 ? "NaN"
                                         : "NaN and Inf");
    if (draft->content.tensor[0])
        tocsin_string_printf(&draft->text, ", first in %s", draft->content.tensor);
    if (row->element >= 0)
        tocsin_string_printf(&draft->text, " at element %lld", (long long)row->element);
    tocsin_string_append_text(&draft->text,
                              most ? "; so many ranks at once: the data or the program"
                                   : "; that is where, and not yet who: data, program or device");
}

static bool tell_reduced(finding_draft *draft, const gradient_summary *summary)
{
    tocsin_string_printf(&draft->text, "gradients %s, and their norm after the reduction is %s",
                         summary->bad.count ? "hold NaN or Inf" : "are finite on each rank",
                         summary->norm_bad ? "not finite" : "another one");
    if (summary->unlike.count) {
        for (size_t i = 0; i < summary->unlike.count; ++i) {
            if (!TOCSIN_VEC_PUSH(&draft->ranks, summary->unlike.items[i]))
                return false;
        }
        draft->content.cause = TOCSIN_GUARD_TRANSIENT;
        tocsin_string_append_text(&draft->text, " on ");
        tocsin_draft_ranks_text(&draft->text, summary->unlike.items, summary->unlike.count);
        tocsin_string_append_text(&draft->text, ", unlike on the majority");
    } else if (summary->norms_differ) {
        tocsin_string_append_text(&draft->text, " on some ranks, without a majority");
    } else if (summary->large) {
        draft->content.cause = TOCSIN_GUARD_SOFTWARE;
        tocsin_string_append_text(&draft->text,
                                  " on all: values so large that their sum may overflow");
    } else {
        tocsin_string_append_text(&draft->text,
                                  ": a fault inside the reduction, or a norm that overflows");
    }
    return true;
}

static void tell_scaler(finding_draft *draft, const tocsin_guard_gradients *gradients,
                        const gradient_summary *summary)
{
    char scale[TOCSIN_REAL_TEXT_BYTES];
    tocsin_real_text(summary->scale, scale);
    draft->content.cause = TOCSIN_GUARD_SOFTWARE;
    tocsin_string_printf(&draft->text,
                         "the gradient scaler skipped %llu steps in a row and is down to a scale "
                         "of %s: what makes gradients overflow is not the scale",
                         (unsigned long long)gradients->skips + 1, scale);
    if (summary->bad.count) {
        put_place(draft, gradients, summary);
        tocsin_string_append_text(&draft->text, "; NaN or Inf is on ");
        tocsin_draft_ranks_text(&draft->text, summary->bad.items, summary->bad.count);
    }
}

static tocsin_status make_finding(const tocsin_guard_gradients *gradients,
                                  const gradient_summary *summary, tocsin_guard_finding **finding,
                                  tocsin_error *error)
{
    finding_draft draft;
    bool told = true;
    tocsin_draft_begin(&draft, TOCSIN_GUARD_GRADIENT, gradients->moment, gradients->rank_count);
    put_evidence(&draft, gradients, summary);
    if (summary->norms_differ || (!summary->bad.count && !summary->scaled))
        told = tell_reduced(&draft, summary);
    else if (summary->scaled)
        tell_scaler(&draft, gradients, summary);
    else
        tell_local(&draft, gradients, summary);
    if (!told)
        draft.text.status = TOCSIN_E_MEMORY;
    return tocsin_draft_finish(&draft, finding, error);
}

static tocsin_guard_gradient_verdict decide(const tocsin_guard_gradients *gradients,
                                            const gradient_summary *summary)
{
    bool bad = summary->bad.count || summary->norm_bad;
    if (summary->norms_differ) /* a scaler would skip on some ranks only */
        return TOCSIN_GUARD_GRADIENT_FINDING;
    if (!bad)
        return TOCSIN_GUARD_GRADIENT_PASS;
    if (summary->scaled && gradients->skips < TOCSIN_GUARD_SKIPS_MAX && summary->scale >= 1)
        return TOCSIN_GUARD_GRADIENT_SCALER_SKIP;
    return TOCSIN_GUARD_GRADIENT_FINDING;
}

tocsin_status tocsin_guard_judge_gradients(const tocsin_guard_gradients *gradients,
                                           tocsin_guard_gradient_verdict *verdict,
                                           tocsin_guard_finding **finding, tocsin_error *error)
{
    *finding = NULL;
    if (gradients->rank_count == 0)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "gradients of no rank");
    if (gradients->rank_count > TOCSIN_GUARD_RANKS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u ranks",
                                TOCSIN_GUARD_RANKS_MAX);
    gradient_summary summary = {.scaled = false};
    tocsin_status status = TOCSIN_OK;
    if (!summarize(gradients, &summary))
        status = tocsin_error_memory(error);
    if (status == TOCSIN_OK) {
        *verdict = decide(gradients, &summary);
        if (*verdict == TOCSIN_GUARD_GRADIENT_FINDING)
            status = make_finding(gradients, &summary, finding, error);
    }
    TOCSIN_VEC_FREE(&summary.bad);
    TOCSIN_VEC_FREE(&summary.unlike);
    return status;
}
