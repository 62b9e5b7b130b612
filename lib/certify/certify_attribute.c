/* certify_attribute.c - attributes of operators, and the text by which atoms name an operator. */
#include "certify/certify.h"

/* ---- attributes ---------------------------------------------------------------------------------
 */

static const tocsin_attribute *attribute(const tocsin_plan *plan, const tocsin_plan_op *op,
                                         const char *key, tocsin_attribute_kind kind)
{
    const tocsin_attribute *found = tocsin_plan_attribute(plan, op->attributes, key);
    return found != NULL && found->kind == (uint8_t)kind ? found : NULL;
}

int64_t certify_integer_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                           int64_t otherwise)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_INTEGERS);
    return found != NULL && found->count == 1 ? found->integers[0] : otherwise;
}

double certify_real_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                       double otherwise)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_REAL);
    if (found != NULL)
        return found->real;
    found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_INTEGERS);
    return found != NULL && found->count == 1 ? (double)found->integers[0] : otherwise;
}

const char *certify_text_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                            const char *otherwise)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_TEXT);
    return found != NULL ? tocsin_plan_text(plan, found->text) : otherwise;
}

const int64_t *certify_list_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                               uint32_t *count)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_INTEGERS);
    *count = found != NULL ? found->count : 0;
    return found != NULL ? found->integers : NULL;
}

int certify_dim(int64_t dim, uint32_t ndim)
{
    const int64_t counted = dim < 0 ? dim + (int64_t)ndim : dim;
    return counted < 0 || counted >= (int64_t)ndim ? -1 : (int)counted;
}

/* What the user named stands behind its length, so that no two kinds have one text. */
static void append_counted(const tocsin_plan *plan, uint32_t string, tocsin_string *text)
{
    size_t bytes;
    const char *counted = tocsin_intern_text(&plan->strings, string, &bytes);
    tocsin_string_printf(text, "%zu:", bytes);
    tocsin_string_append(text, counted, bytes);
}

void certify_kind_text(const tocsin_plan *plan, const tocsin_plan_op *op, tocsin_string *text)
{
    const tocsin_attribute_set set = plan->attribute_sets.items[op->attributes];
    if (op->code == TOCSIN_OPERATOR_CALL)
        append_counted(plan, op->name, text);
    else
        tocsin_string_append_text(text, tocsin_plan_text(plan, op->name));
    for (uint32_t k = 0; k < set.count; k++) {
        const tocsin_attribute *one = &set.items[k];
        tocsin_string_append_char(text, '|');
        append_counted(plan, one->key, text);
        tocsin_string_append_char(text, '=');
        if (one->kind == TOCSIN_ATTRIBUTE_REAL) {
            tocsin_string_printf(text, "%a", one->real);
        } else if (one->kind == TOCSIN_ATTRIBUTE_TEXT) {
            tocsin_string_append_char(text, '"');
            append_counted(plan, one->text, text);
        } else {
            for (uint32_t i = 0; i < one->count; i++)
                tocsin_string_printf(text, "%lld,", (long long)one->integers[i]);
        }
    }
    if (op->code == TOCSIN_OPERATOR_CALL && op->signature != TOCSIN_PLAN_NONE)
        tocsin_string_printf(text, "|%s", plan->signatures.items[op->signature].text);
}
