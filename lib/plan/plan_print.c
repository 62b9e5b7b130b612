/* plan_print.c - the `.plan` text of a plan, in a canonical form.
 *
 * Reading what is written gives an equal plan, and writing that gives the same bytes. Lines are put
 * together in one string and written in pieces of about a MiB. Cost: linear in the text.
 */
#include "plan/plan_text.h"

#include <assert.h>
#include <inttypes.h>
#include <tocsin/tensor.h>

enum { PIECE_BYTES = 1 << 20 };

typedef struct printer {
    const tocsin_plan *plan;
    const tocsin_plan_role *role;
    FILE *stream;
    tocsin_error *error;
    tocsin_string text;
    uint8_t *written; /* by value of the role: an operator or input writes it */
} printer;

static void put(printer *p, const char *text)
{
    tocsin_string_append_text(&p->text, text);
}

static void put_char(printer *p, char c)
{
    tocsin_string_append_char(&p->text, c);
}

static void put_integer(printer *p, int64_t value)
{
    char digits[20]; /* 19 and a sign */
    char *at = digits + sizeof digits;
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        *--at = (char)('0' + magnitude % 10);
    while (magnitude /= 10);
    if (value < 0)
        *--at = '-';
    tocsin_string_append(&p->text, at, (size_t)(digits + sizeof digits - at));
}

static tocsin_status flush(printer *p, size_t least)
{
    TOCSIN_TRY(tocsin_string_check(&p->text, p->error));
    if (p->text.bytes < least)
        return TOCSIN_OK;
    if (p->text.bytes > 0 && fwrite(p->text.text, 1, p->text.bytes, p->stream) != p->text.bytes)
        return tocsin_error_system(p->error, "write", "the plan");
    tocsin_string_clear(&p->text);
    return TOCSIN_OK;
}

/* ---- words ------------------------------------------------------------------------------------
 */

static bool is_bare(const char *text, size_t bytes, unsigned class)
{
    for (size_t i = 0; i < bytes; ++i) {
        if (!(tocsin_token_class[(unsigned char)text[i]] & class))
            return false;
    }
    return bytes > 0;
}

static void put_quoted(printer *p, const char *text, size_t bytes)
{
    put_char(p, '"');
    for (size_t i = 0; i < bytes; ++i) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) {
            tocsin_string_printf(&p->text, "\\x%02x", c);
            continue;
        }
        if (c == '"' || c == '\\')
            put_char(p, '\\');
        put_char(p, text[i]);
    }
    put_char(p, '"');
}

static void put_word(printer *p, uint32_t string, unsigned class)
{
    size_t bytes = 0;
    const char *text = tocsin_intern_text(&p->plan->strings, string, &bytes);
    assert(text);
    if (is_bare(text, bytes, class))
        tocsin_string_append(&p->text, text, bytes);
    else
        put_quoted(p, text, bytes);
}

static void put_name(printer *p, uint32_t string)
{
    put_word(p, string, TOCSIN_TOKEN_NAME);
}

static const tocsin_plan_value *value_of(const printer *p, uint32_t id)
{
    assert(id < p->role->value_count);
    return &p->plan->values.items[p->role->first_value + id];
}

static void put_value(printer *p, uint32_t id)
{
    put_char(p, '%');
    put_name(p, value_of(p, id)->name);
}

static void put_typed(printer *p, uint32_t id)
{
    const tocsin_plan_value *value = value_of(p, id);
    const int64_t *shape = tocsin_plan_shape(p->plan, value);
    put_value(p, id);
    put_char(p, ':');
    put(p, tocsin_dtype_name((tocsin_dtype)value->dtype));
    put_char(p, '[');
    for (uint32_t d = 0; d < value->ndim; ++d) {
        if (d > 0)
            put_char(p, ',');
        put_integer(p, shape[d]);
    }
    put_char(p, ']');
}

/* ---- header -----------------------------------------------------------------------------------
 */

/* AXIS=N of all axes but the replica axis. */
static void put_coordinates(printer *p, uint32_t device)
{
    tocsin_plan_device_text(p->plan, device, &p->text);
}

static const char *replica_axis_name(const printer *p)
{
    assert(p->plan->replica_axis < p->plan->axis_count);
    return tocsin_plan_text(p->plan, p->plan->axes[p->plan->replica_axis].name);
}

static void put_member(printer *p, tocsin_plan_member member)
{
    bool lone = p->plan->axis_count == (p->plan->replica_axis != TOCSIN_PLAN_NONE);
    put(p, " (");
    put_coordinates(p, member.device);
    if (member.replica != TOCSIN_MEMBER_SAME && p->plan->replica_axis != TOCSIN_PLAN_NONE) {
        if (!lone)
            put_char(p, ' ');
        put(p, replica_axis_name(p));
        put_char(p, '=');
        if (member.replica == TOCSIN_MEMBER_ALL)
            put(p, "all");
        else
            put_integer(p, member.replica);
    }
    put_char(p, ')');
}

static tocsin_status put_header(printer *p)
{
    const tocsin_plan *plan = p->plan;
    put(p, "tocsin-plan 1\nmesh");
    for (uint32_t i = 0; i < plan->axis_count; ++i)
        tocsin_string_printf(&p->text, " %s=%" PRIu32 "%s",
                             tocsin_plan_text(plan, plan->axes[i].name), plan->axes[i].size,
                             i == plan->replica_axis ? "*" : "");
    tocsin_string_printf(&p->text, "\nmicrobatches %" PRIu32 "\n", plan->microbatches);
    for (size_t i = 0; i < plan->groups.count; ++i) {
        const tocsin_plan_group *group = &plan->groups.items[i];
        put(p, "group ");
        put_name(p, group->name);
        put(p, " =");
        for (uint32_t m = 0; m < group->member_count; ++m)
            put_member(p, plan->members.items[group->first_member + m]);
        put_char(p, '\n');
        TOCSIN_TRY(flush(p, PIECE_BYTES));
    }
    for (size_t i = 0; i < plan->assumptions.count; ++i) {
        put(p, "assume ");
        put_word(p, plan->assumptions.items[i], 0);
        put_char(p, '\n');
    }
    return flush(p, PIECE_BYTES);
}

/* ---- inputs and outputs -----------------------------------------------------------------------
 */

/* A term of a sum; `first`: nothing stands before it. Is there something now? */
static bool put_weight(printer *p, bool first, const char *symbol, int64_t weight)
{
    if (weight == 0)
        return !first;
    if (weight < 0 || !first)
        put_char(p, weight < 0 ? '-' : '+');
    put(p, symbol);
    put_char(p, '*');
    put_integer(p, weight < 0 ? -weight : weight);
    return true;
}

static void put_start(printer *p, tocsin_affine start)
{
    bool some = start.base != 0;
    if (some)
        put_integer(p, start.base);
    if (p->plan->replica_axis != TOCSIN_PLAN_NONE)
        some = put_weight(p, !some, replica_axis_name(p), start.weight[TOCSIN_SYMBOL_REPLICA]);
    if (!put_weight(p, !some, "mb", start.weight[TOCSIN_SYMBOL_MICROBATCH]))
        put_char(p, '0');
}

static void put_slice(printer *p, const tocsin_plan_value *value, uint32_t first_start)
{
    const int64_t *shape = tocsin_plan_shape(p->plan, value);
    put_char(p, '[');
    for (uint32_t d = 0; d < value->ndim; ++d) {
        if (d > 0)
            put(p, ", ");
        put_start(p, p->plan->starts.items[first_start + d]);
        put(p, " : ");
        put_integer(p, shape[d]);
    }
    put_char(p, ']');
}

static tocsin_status put_inputs(printer *p)
{
    for (uint32_t i = 0; i < p->role->input_count; ++i) {
        const tocsin_plan_input *input = &p->plan->inputs.items[p->role->first_input + i];
        const tocsin_plan_value *value = value_of(p, input->value);
        p->written[input->value] = 1;
        put(p, "in ");
        put_typed(p, input->value);
        put(p, value->per_microbatch ? " each = " : " = ");
        put_name(p, input->name);
        put_slice(p, value, input->first_start);
        put_char(p, '\n');
        TOCSIN_TRY(flush(p, PIECE_BYTES));
    }
    return TOCSIN_OK;
}

static tocsin_status put_outputs(printer *p)
{
    static const char *const kinds[] = {"loss", "grad", "param", "state", "other"};
    static const char *const folds[] = {"equal", "sum", "mean"};
    for (uint32_t i = 0; i < p->role->output_count; ++i) {
        const tocsin_plan_output *output = &p->plan->outputs.items[p->role->first_output + i];
        assert(output->kind < TOCSIN_COUNT_OF(kinds));
        put(p, "out ");
        put(p, kinds[output->kind]);
        put_char(p, ' ');
        put_name(p, output->name);
        put_slice(p, value_of(p, output->value), output->first_start);
        put(p, " = ");
        put_value(p, output->value);
        if (output->fold[0] != TOCSIN_FOLD_EQUAL || output->fold[1] != TOCSIN_FOLD_EQUAL) {
            put(p, " fold=");
            put(p, folds[output->fold[0]]);
            put_char(p, ',');
            put(p, folds[output->fold[1]]);
        }
        put_char(p, '\n');
        TOCSIN_TRY(flush(p, PIECE_BYTES));
    }
    return TOCSIN_OK;
}

/* ---- operators --------------------------------------------------------------------------------
 */

/* Would this bare word be read as a number? */
static bool looks_numeric(const char *text)
{
    const char *at = text + (*text == '-' || *text == '+');
    at += *at == '.';
    return (*at >= '0' && *at <= '9') || strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0 ||
           strcmp(text, "nan") == 0;
}

static void put_attribute(printer *p, const tocsin_attribute *attribute)
{
    put_name(p, attribute->key);
    put_char(p, '=');
    if (attribute->kind == TOCSIN_ATTRIBUTE_TEXT) {
        const char *text = tocsin_plan_text(p->plan, attribute->text);
        bool bare = *text != '[' && !looks_numeric(text);
        put_word(p, attribute->text, bare ? TOCSIN_TOKEN_WORD : 0);
    } else if (attribute->kind == TOCSIN_ATTRIBUTE_REAL) {
        char text[TOCSIN_REAL_TEXT_BYTES];
        (void)tocsin_real_text(attribute->real, text);
        put(p, text);
    } else if (attribute->count == 1) {
        put_integer(p, attribute->integers[0]);
    } else {
        for (uint32_t i = 0; i < attribute->count; ++i) {
            put_char(p, i == 0 ? '[' : ',');
            put_integer(p, attribute->integers[i]);
        }
        put(p, attribute->count == 0 ? "[]" : "]");
    }
}

static void put_keywords(printer *p, const tocsin_plan_op *op)
{
    static const char *const phases[] = {"", " fw", " bw", " opt", " re"};
    if (op->group != TOCSIN_PLAN_NONE) {
        put(p, " group=");
        put_name(p, p->plan->groups.items[op->group].name);
    }
    if (op->signature != TOCSIN_PLAN_NONE) {
        put(p, " sig=\"");
        tocsin_signature_write(&p->plan->signatures.items[op->signature], false, &p->text);
        put_char(p, '"');
    }
    put(p, phases[op->phase]);
    const struct {
        const char *keyword;
        uint32_t string;
    } words[] = {{" @", op->fqn}, {" src=", op->source}, {" label=", op->label}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(words); ++i) {
        if (words[i].string == 1)
            continue;
        put(p, words[i].keyword);
        put_word(p, words[i].string, TOCSIN_TOKEN_WORD);
    }
}

static void put_op(printer *p, const tocsin_plan_op *op)
{
    const uint32_t *operands = p->plan->operands.items + op->first_operand;
    for (uint32_t i = 0; i < op->output_count; ++i) {
        if (i > 0)
            put(p, ", ");
        put_typed(p, operands[op->input_count + i]);
        if (value_of(p, operands[op->input_count + i])->persistent)
            put(p, " keep");
    }
    put(p, op->output_count ? " = " : "= ");
    put_name(p, op->name);
    put_char(p, '(');
    for (uint32_t i = 0; i < op->input_count; ++i) {
        uint32_t id = operands[i];
        bool typed = !p->written[id] && value_of(p, id)->ndim != TOCSIN_PLAN_NDIM_UNKNOWN;
        if (i > 0)
            put(p, ", ");
        if (typed)
            put_typed(p, id);
        else
            put_value(p, id);
    }
    put_char(p, ')');
    tocsin_attribute_set set = p->plan->attribute_sets.items[op->attributes];
    for (uint32_t i = 0; i < set.count; ++i) {
        put(p, i == 0 ? " {" : ", ");
        put_attribute(p, &set.items[i]);
    }
    if (set.count > 0)
        put_char(p, '}');
    put_keywords(p, op);
    put_char(p, '\n');
}

static const tocsin_plan_segment *segment_of(const printer *p, uint32_t segment)
{
    return &p->plan->segments.items[p->role->first_segment + segment];
}

/* Which values have a writer that stands in the text? */
static void mark_written(printer *p)
{
    for (uint32_t s = 0; s < p->role->segment_count; ++s) {
        const tocsin_plan_segment *segment = segment_of(p, s);
        for (uint32_t i = 0; i < segment->op_count; ++i) {
            const tocsin_plan_op *op = &p->plan->ops.items[segment->first_op + i];
            for (uint32_t o = 0; o < op->output_count; ++o)
                p->written[p->plan->operands.items[op->first_operand + op->input_count + o]] = 1;
        }
    }
}

static tocsin_status put_segments(printer *p)
{
    mark_written(p);
    for (uint32_t s = 0; s < p->role->segment_count; ++s) {
        const tocsin_plan_segment *segment = segment_of(p, s);
        put(p, "segment ");
        put_name(p, segment->name);
        put_char(p, '\n');
        for (uint32_t i = 0; i < segment->op_count; ++i) {
            put_op(p, &p->plan->ops.items[segment->first_op + i]);
            TOCSIN_TRY(flush(p, PIECE_BYTES));
        }
    }
    return TOCSIN_OK;
}

/* A bare name of a segment must not end as a micro-batch does. */
static bool ends_in_number(const char *text)
{
    const char *point = strrchr(text, '.');
    return point && point > text && point[1] &&
           strspn(point + 1, "0123456789") == strlen(point + 1);
}

static tocsin_status put_schedule(printer *p)
{
    enum { TURNS_IN_A_LINE = 64 };
    for (uint32_t i = 0; i < p->role->turn_count; ++i) {
        tocsin_plan_turn turn = p->plan->turns.items[p->role->first_turn + i];
        uint32_t name = segment_of(p, turn.segment)->name;
        put(p, i % TURNS_IN_A_LINE == 0 ? "schedule " : " ");
        put_word(p, name, ends_in_number(tocsin_plan_text(p->plan, name)) ? 0 : TOCSIN_TOKEN_NAME);
        if (turn.microbatch >= 0) {
            put_char(p, '.');
            put_integer(p, turn.microbatch);
        }
        if (i % TURNS_IN_A_LINE == TURNS_IN_A_LINE - 1 || i + 1 == p->role->turn_count)
            put_char(p, '\n');
        TOCSIN_TRY(flush(p, PIECE_BYTES));
    }
    return TOCSIN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static tocsin_status put_role(printer *p)
{
    const tocsin_plan_role *role = p->role;
    put(p, "role");
    if (p->plan->axis_count > (p->plan->replica_axis != TOCSIN_PLAN_NONE)) {
        put_char(p, ' ');
        put_coordinates(p, role->device);
    }
    if (role->replica_count != tocsin_plan_replicas(p->plan)) {
        tocsin_string_printf(&p->text, " %s=%" PRIu32, replica_axis_name(p), role->first_replica);
        if (role->replica_count != 1)
            tocsin_string_printf(&p->text, ":%" PRIu32, role->replica_count);
    }
    put_char(p, '\n');
    p->written = tocsin_zalloc(role->value_count, 1);
    if (!p->written)
        return tocsin_error_memory(p->error);
    tocsin_status status = put_inputs(p);
    if (status == TOCSIN_OK)
        status = put_segments(p);
    if (status == TOCSIN_OK)
        status = put_schedule(p);
    if (status == TOCSIN_OK)
        status = put_outputs(p);
    put(p, "end\n");
    tocsin_free(p->written);
    return status;
}

static tocsin_status put_plan(printer *p)
{
    TOCSIN_TRY(put_header(p));
    for (size_t i = 0; i < p->plan->roles.count; ++i) {
        p->role = &p->plan->roles.items[i];
        TOCSIN_TRY(put_role(p));
    }
    TOCSIN_TRY(flush(p, 0));
    if (fflush(p->stream) != 0)
        return tocsin_error_system(p->error, "write", "the plan");
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_write(const tocsin_plan *plan, FILE *stream, tocsin_error *error)
{
    assert(plan && stream);
    printer p = {.plan = plan, .stream = stream, .error = error};
    tocsin_status status = put_plan(&p);
    tocsin_string_free(&p.text);
    return status;
}
