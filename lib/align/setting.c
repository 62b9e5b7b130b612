/* lib/align/setting.c - how much it means that a setting differs, and what is said first. The
 * rating stands in the recording: python/tocsin/determinism.py knows what each setting is. */
#include "align/align.h"

tocsin_rating tocsin_setting_rating(const tocsin_trace *trace, const tocsin_event *event)
{
    const tocsin_value *value = event->value_count > 1 ? &event->values[1] : NULL;
    const char *text = value && value->kind == TOCSIN_VALUE_STRING
                           ? tocsin_trace_string(trace, value->as.text)
                           : "";
    for (int rating = 0; rating <= TOCSIN_RATING_HARMLESS; ++rating) {
        if (strcmp(text, tocsin_rating_text((tocsin_rating)rating)) == 0)
            return (tocsin_rating)rating;
    }
    return TOCSIN_RATING_MAY; /* an older recording */
}

/* Does another rank differ in this setting in the same way? */
static bool is_known(const tocsin_align_condition *others, size_t count,
                     const tocsin_align_condition *condition)
{
    for (size_t c = 0; c < count; ++c) {
        const tocsin_align_condition *other = &others[c];
        if (!other->generator && strcmp(other->name, condition->name) == 0 &&
            strcmp(other->a, condition->a) == 0 && strcmp(other->b, condition->b) == 0)
            return true;
    }
    return false;
}

size_t tocsin_conditions_order(tocsin_align_condition *conditions, size_t count)
{
    tocsin_align_condition last = conditions[count - 1];
    if (!last.generator && is_known(conditions, count - 1, &last))
        return count - 1;
    size_t at = count - 1;
    for (; at > 0; --at) {
        const tocsin_align_condition *before = &conditions[at - 1];
        if (before->generator < last.generator ||
            (before->generator == last.generator && before->rating <= last.rating))
            break;
        conditions[at] = *before;
    }
    conditions[at] = last;
    return count;
}
