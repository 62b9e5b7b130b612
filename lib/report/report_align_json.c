/* report_align_json.c - an alignment's result as one JSON object: docs/align.md. */
#include "report/report_align.h"

#include <inttypes.h>

void tocsin_report_json_rank(tocsin_json *json, int64_t rank)
{
    tocsin_json_key(json, "rank");
    if (rank < 0)
        tocsin_json_null(json);
    else
        tocsin_json_integer(json, rank);
}

static void write_bits(tocsin_json *json, const char *key, uint32_t bits)
{
    tocsin_json_key(json, key);
    tocsin_json_begin_array(json);
    for (unsigned bit = 0; bit < 32; ++bit) {
        if (bits >> bit & 1)
            tocsin_json_unsigned(json, bit);
    }
    tocsin_json_end_array(json);
}

static void write_elements(tocsin_json *json, const tocsin_align_pivot *pivot)
{
    tocsin_json_key(json, "elements");
    tocsin_json_begin_array(json);
    if (pivot->located) {
        tocsin_json_begin_object(json);
        tocsin_json_key(json, "index");
        tocsin_json_begin_array(json);
        for (uint32_t axis = 0; axis < pivot->ndim; ++axis)
            tocsin_json_integer(json, pivot->index[axis]);
        tocsin_json_end_array(json);
        tocsin_json_put_unsigned(json, "word", pivot->word);
        tocsin_json_key(json, "delta");
        tocsin_json_integer(json, pivot->change.delta);
        write_bits(json, "bits_set", pivot->change.set);
        write_bits(json, "bits_cleared", pivot->change.cleared);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}

static void write_side(tocsin_json *json, const char *key, const tocsin_align_side *side)
{
    char digest[64];
    snprintf(digest, sizeof digest, "%016" PRIx64 ":%016" PRIx64 ":%08" PRIx64, side->digest.sum,
             side->digest.polynomial, side->digest.exclusive);
    tocsin_json_key(json, key);
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "value", side->value);
    tocsin_json_put_text(json, "digest", digest);
    tocsin_json_put_unsigned(json, "nan", side->statistics.nan_count);
    tocsin_json_put_unsigned(json, "inf", side->statistics.inf_count);
    tocsin_json_key(json, "absmax");
    tocsin_json_real(json, side->statistics.absmax);
    tocsin_json_put_text(json, "fqn", side->name[0] ? side->name : NULL);
    tocsin_json_key(json, "index");
    if (side->index)
        tocsin_json_begin_array(json);
    else
        tocsin_json_null(json);
    for (uint32_t axis = 0; side->index && axis < side->ndim; ++axis)
        tocsin_json_integer(json, side->index[axis]);
    if (side->index)
        tocsin_json_end_array(json);
    tocsin_report_json_holders(json, side);
    tocsin_json_end_object(json);
}

/* Empty texts are nothing: null. */
static void write_known(tocsin_json *json, const char *key, const char *text)
{
    tocsin_json_put_text(json, key, text[0] ? text : NULL);
}

/* Which boundary it is, and whether the difference arose there. */
static void write_origin(tocsin_json *json, const tocsin_align_pivot *pivot)
{
    tocsin_json_put_text(json, "id", pivot->id);
    tocsin_json_key(json, "micro_batch");
    if (pivot->micro_batch > 0)
        tocsin_json_unsigned(json, pivot->micro_batch);
    else
        tocsin_json_null(json);
    tocsin_json_put_unsigned(json, "ordinal", pivot->ordinal);
    tocsin_json_put_text(json, "cause", tocsin_align_cause_text(pivot->cause));
    write_known(json, "source", pivot->source);
    write_known(json, "last_equal", pivot->last_equal);
}

static void write_pivot(tocsin_json *json, const tocsin_align_pivot *pivot)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "fqn", pivot->name);
    tocsin_json_put_text(json, "op", pivot->operation);
    tocsin_json_put_text(json, "phase", pivot->phase);
    tocsin_json_key(json, "step");
    tocsin_json_integer(json, pivot->step);
    tocsin_report_json_rank(json, pivot->rank);
    tocsin_json_put_text(json, "role", pivot->attribute);
    tocsin_json_put_text(json, "difference", tocsin_difference_text(pivot->difference));
    write_elements(json, pivot);
    tocsin_report_json_tiles(json, pivot);
    tocsin_json_key(json, "stack");
    tocsin_json_begin_array(json);
    for (size_t c = 0; c < pivot->stack_count; ++c)
        tocsin_json_text(json, pivot->stack[c]);
    tocsin_json_end_array(json);
    write_origin(json, pivot);
    write_side(json, "a", &pivot->a);
    write_side(json, "b", &pivot->b);
    tocsin_json_end_object(json);
}

static void write_ranks(tocsin_json *json, const tocsin_align_result *result)
{
    tocsin_json_key(json, "identical_prefix");
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < result->rank_count; ++r) {
        const tocsin_align_rank *rank = &result->ranks[r];
        tocsin_json_begin_object(json);
        tocsin_report_json_rank(json, rank->rank);
        tocsin_json_put_unsigned(json, "boundaries", rank->prefix);
        tocsin_json_put_unsigned(json, "compared", rank->compared);
        tocsin_json_put_unsigned(json, "equal", rank->equal);
        tocsin_json_put_unsigned(json, "unknown", rank->unknown);
        tocsin_json_put_unsigned(json, "renamed", rank->renamed);
        tocsin_json_put_unsigned(json, "only_a", rank->only_a);
        tocsin_json_put_unsigned(json, "only_b", rank->only_b);
        tocsin_json_put_unsigned(json, "steps_a", rank->steps_a);
        tocsin_json_put_unsigned(json, "steps_b", rank->steps_b);
        tocsin_json_key(json, "diverged_step");
        if (rank->diverged_step > 0)
            tocsin_json_integer(json, rank->diverged_step);
        else
            tocsin_json_null(json);
        tocsin_json_key(json, "optimal");
        tocsin_json_bool(json, rank->optimal);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}

void tocsin_report_json_conditions(tocsin_json *json, const tocsin_align_result *result,
                                   bool generators)
{
    tocsin_json_key(json, generators ? "generators" : "settings");
    tocsin_json_begin_array(json);
    for (size_t c = 0; c < result->condition_count; ++c) {
        const tocsin_align_condition *condition = &result->conditions[c];
        if (condition->generator != generators)
            continue;
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "name", condition->name);
        if (!generators) {
            tocsin_json_put_text(json, "a", condition->a[0] ? condition->a : NULL);
            tocsin_json_put_text(json, "b", condition->b[0] ? condition->b : NULL);
            tocsin_json_put_text(json, "rating", tocsin_rating_text(condition->rating));
        }
        tocsin_json_key(json, "step");
        tocsin_json_integer(json, condition->step);
        tocsin_report_json_rank(json, condition->rank);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}

static void write_gaps(tocsin_json *json, const tocsin_align_result *result)
{
    tocsin_json_key(json, "gaps");
    tocsin_json_begin_array(json);
    for (size_t g = 0; g < result->gap_count; ++g) {
        const tocsin_align_gap *gap = &result->gaps[g];
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "run", gap->in_a ? "a" : "b");
        tocsin_json_put_text(json, "fqn", gap->name);
        tocsin_json_put_text(json, "role", gap->attribute);
        tocsin_json_put_text(json, "op", gap->operation);
        tocsin_json_put_text(json, "reason", gap->reason);
        tocsin_json_key(json, "step");
        tocsin_json_integer(json, gap->step);
        tocsin_report_json_rank(json, gap->rank);
        tocsin_json_put_unsigned(json, "count", gap->count);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}

void tocsin_report_json_alignment(tocsin_string *out, const tocsin_alignment_view *view)
{
    const tocsin_align_result *result = view->result;
    tocsin_json json = {.out = out};
    tocsin_json_begin_object(&json);
    tocsin_json_put_unsigned(&json, "schema", 1);
    tocsin_json_put_text(&json, "verdict", tocsin_align_verdict_name(result->verdict));
    tocsin_json_put_text(&json, "a", view->a);
    tocsin_json_put_text(&json, "b", view->b);
    write_ranks(&json, result);
    tocsin_json_key(&json, "pivots");
    tocsin_json_begin_array(&json);
    for (size_t p = 0; p < result->pivot_count; ++p)
        write_pivot(&json, &result->pivots[p]);
    tocsin_json_end_array(&json);
    tocsin_json_put_unsigned(&json, "downstream_ranks", result->downstream);
    tocsin_report_json_conditions(&json, result, false);
    tocsin_report_json_conditions(&json, result, true);
    tocsin_report_json_cone(&json, result);
    write_gaps(&json, result);
    tocsin_report_json_accepted(&json, result);
    tocsin_report_json_recompute(&json, result, write_pivot);
    tocsin_report_json_unstable(&json, result);
    tocsin_report_json_whole(&json, result, write_pivot);
    tocsin_json_key(&json, "not_covered");
    tocsin_json_begin_array(&json);
    for (size_t n = 0; n < result->not_covered_count; ++n)
        tocsin_json_text(&json, result->not_covered[n]);
    tocsin_json_end_array(&json);
    tocsin_json_end_object(&json);
    tocsin_string_append_char(out, '\n');
}
