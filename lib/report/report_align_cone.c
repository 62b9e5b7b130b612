/* report_align_cone.c - of an alignment's result how far the difference spread, and what of it
 * rules accept.
 */
#include "report/report_align.h"

#include <inttypes.h>

#define STEPS_SHOWN   4
#define REACHED_SHOWN 12
#define REACHED_JSON  32

static void append_steps(tocsin_string *out, const tocsin_align_cone *cone)
{
    for (size_t s = 0; s < cone->step_count && s < STEPS_SHOWN; ++s) {
        const tocsin_align_cone_step *step = &cone->steps[s];
        tocsin_string_append_text(out, s == 0 ? "" : ", ");
        if (step->differing == step->compared)
            tocsin_string_printf(out, "all %" PRIu64, step->compared);
        else
            tocsin_string_printf(out, "%" PRIu64 " of %" PRIu64, step->differing, step->compared);
        tocsin_string_printf(out, "%s %" PRId64, s == 0 ? " boundaries of step" : " of step",
                             step->step);
    }
    if (cone->step_count > STEPS_SHOWN)
        tocsin_string_printf(out, ", and on to step %" PRId64,
                             cone->steps[cone->step_count - 1].step);
    tocsin_string_append_text(out, " differ\n");
}

void tocsin_report_text_cone(tocsin_string *out, const tocsin_alignment_view *view)
{
    for (size_t c = 0; c < view->result->cone_count; ++c) {
        const tocsin_align_cone *cone = &view->result->cones[c];
        tocsin_string_append_text(out, c == 0 ? "\nfrom there" : "from there");
        if (cone->rank >= 0)
            tocsin_string_printf(out, " on rank %" PRId64, cone->rank);
        tocsin_string_append_text(out, ": ");
        append_steps(out, cone);
        for (size_t r = 0; r < cone->reached_count; ++r) {
            if (r == REACHED_SHOWN && !view->all) {
                tocsin_string_printf(out, "  and %" PRIu64 " more (--all)\n",
                                     cone->names - REACHED_SHOWN);
                break;
            }
            tocsin_string_printf(out, "  step %" PRId64 "  ", cone->reached[r].step);
            tocsin_report_append_visible(out, cone->reached[r].id);
            tocsin_string_append_char(out, '\n');
        }
    }
}

static void write_cone(tocsin_json *json, const tocsin_align_cone *cone)
{
    tocsin_json_begin_object(json);
    tocsin_report_json_rank(json, cone->rank);
    tocsin_json_key(json, "steps");
    tocsin_json_begin_array(json);
    for (size_t s = 0; s < cone->step_count; ++s) {
        tocsin_json_begin_object(json);
        tocsin_json_put_unsigned(json, "step", (uint64_t)cone->steps[s].step);
        tocsin_json_put_unsigned(json, "compared", cone->steps[s].compared);
        tocsin_json_put_unsigned(json, "differing", cone->steps[s].differing);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
    tocsin_json_put_unsigned(json, "names", cone->names);
    tocsin_json_key(json, "reached");
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < cone->reached_count && r < REACHED_JSON; ++r) {
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "id", cone->reached[r].id);
        tocsin_json_put_unsigned(json, "step", (uint64_t)cone->reached[r].step);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
    tocsin_json_end_object(json);
}

void tocsin_report_json_cone(tocsin_json *json, const tocsin_align_result *result)
{
    tocsin_json_key(json, "cone");
    tocsin_json_begin_array(json);
    for (size_t c = 0; c < result->cone_count; ++c)
        write_cone(json, &result->cones[c]);
    tocsin_json_end_array(json);
}

/* ---- rules ----------------------------------------------------------------------------------- */

void tocsin_report_text_accepted(tocsin_string *out, const tocsin_align_result *result)
{
    if (result->accepted_count > 0)
        tocsin_string_append_text(out, "\nrules:\n");
    for (size_t r = 0; r < result->accepted_count; ++r) {
        const tocsin_align_accepted *accepted = &result->accepted[r];
        const tocsin_align_rule *rule = &accepted->rule;
        tocsin_string_append_text(out, "  ");
        tocsin_report_append_visible(out, rule->id);
        if (rule->expired)
            tocsin_string_printf(out, ": ended on %s, accepts nothing", rule->until);
        else
            tocsin_string_printf(out, ": %" PRIu64 " difference%s accepted until %s",
                                 accepted->count, accepted->count == 1 ? "" : "s", rule->until);
        tocsin_string_append_text(out, "; ");
        tocsin_report_append_visible(out, rule->because);
        if (rule->by[0]) {
            tocsin_string_append_text(out, " (");
            tocsin_report_append_visible(out, rule->by);
            tocsin_string_printf(out, ", %s)", rule->on);
        }
        tocsin_string_append_char(out, '\n');
    }
}

void tocsin_report_json_accepted(tocsin_json *json, const tocsin_align_result *result)
{
    tocsin_json_key(json, "accepted");
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < result->accepted_count; ++r) {
        const tocsin_align_accepted *accepted = &result->accepted[r];
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "id", accepted->rule.id);
        tocsin_json_put_text(json, "because", accepted->rule.because);
        tocsin_json_put_text(json, "by", accepted->rule.by);
        tocsin_json_put_text(json, "on", accepted->rule.on);
        tocsin_json_put_text(json, "until", accepted->rule.until);
        tocsin_json_key(json, "expired");
        tocsin_json_bool(json, accepted->rule.expired);
        tocsin_json_put_unsigned(json, "count", accepted->count);
        tocsin_json_key(json, "step");
        if (accepted->count > 0)
            tocsin_json_integer(json, accepted->step);
        else
            tocsin_json_null(json);
        tocsin_report_json_rank(json, accepted->rank);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}
