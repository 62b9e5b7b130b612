/* plan_text.c - the `.plan` reader: statements and lines (docs/formats/plan.md).
 *
 * One pass over the text in memory, line by line, straight into the builder; a line's words are
 * never copied but into the plan's strings. Invariant: r->at is inside the line at hand.
 * Cost: about one hash look-up a word.
 */
#include "plan/plan_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define FAIL(r, ...)   tocsin_token_fail(r, TOCSIN_E_FORMAT, __VA_ARGS__)
#define BUILD(r, call) TOCSIN_TRY(tocsin_token_located(r, call))

/* ---- header -----------------------------------------------------------------------------------
 */

static tocsin_status read_version(tocsin_plan_reader *r)
{
    static const char magic[] = "tocsin-plan";
    size_t left = (size_t)(r->line_end - r->at);
    if (left < sizeof magic - 1 || memcmp(r->at, magic, sizeof magic - 1) != 0)
        return FAIL(r, "a plan begins with the line `tocsin-plan 1`");
    r->at += sizeof magic - 1;
    int64_t version = 0;
    TOCSIN_TRY(tocsin_token_integer(r, 0, INT64_MAX, &version));
    if (version != 1)
        return tocsin_token_fail(r, TOCSIN_E_VERSION,
                                 "version %lld of the format, and this program reads version 1",
                                 (long long)version);
    r->has_version = true;
    return tocsin_token_expect_end(r);
}

static tocsin_status read_axis(tocsin_plan_reader *r)
{
    const char *word = NULL;
    char name[64] = {0};
    int64_t size = 0;
    size_t bytes = tocsin_token_keyword(r, &word);
    if (bytes == 0 || bytes >= sizeof name || (*word >= '0' && *word <= '9') ||
        tocsin_token_is(word, bytes, "mb"))
        return FAIL(r, "an axis is called by a letter and up to 62 letters, digits or _, not mb");
    memcpy(name, word, bytes);
    TOCSIN_TRY(tocsin_token_expect(r, '='));
    TOCSIN_TRY(tocsin_token_integer(r, 1, TOCSIN_PLAN_RANKS_MAX, &size));
    bool replica = tocsin_token_accept(r, '*');
    return tocsin_token_located(
        r, tocsin_plan_add_axis(r->plan, name, (uint32_t)size, replica, &r->inner));
}

static tocsin_status read_mesh(tocsin_plan_reader *r)
{
    if (r->has_mesh)
        return FAIL(r, "a second mesh");
    r->has_mesh = true;
    while (!tocsin_token_at_end(r))
        TOCSIN_TRY(read_axis(r));
    return TOCSIN_OK;
}

static tocsin_status read_microbatches(tocsin_plan_reader *r)
{
    int64_t count = 0;
    if (r->has_microbatches || r->plan->roles.count > 0)
        return FAIL(r, "microbatches stands once, before the roles");
    r->has_microbatches = true;
    TOCSIN_TRY(tocsin_token_integer(r, 1, TOCSIN_PLAN_MICROBATCHES_MAX, &count));
    BUILD(r, tocsin_plan_set_microbatches(r->plan, (uint64_t)count, &r->inner));
    return tocsin_token_expect_end(r);
}

static tocsin_status read_assume(tocsin_plan_reader *r)
{
    const char *word = NULL;
    size_t bytes = 0;
    tocsin_token_skip_blanks(r);
    TOCSIN_TRY(tocsin_token_word(r, TOCSIN_TOKEN_WORD, "a text in quotes", &word, &bytes));
    char *text = tocsin_copy_text(word, bytes);
    tocsin_status status =
        text ? tocsin_plan_assume(r->plan, text, &r->inner) : tocsin_error_memory(&r->inner);
    tocsin_free(text);
    BUILD(r, status);
    return tocsin_token_expect_end(r);
}

/* ---- coordinates ------------------------------------------------------------------------------
 */

/* AXIS=N ...: a tuple of coordinates. */
typedef struct tuple {
    uint32_t device;
    bool has_replica;
    bool all;                      /* group members: =all */
    uint32_t first_replica, count; /* roles: =FIRST or =FIRST:COUNT */
} tuple;

static tocsin_status read_replica(tocsin_plan_reader *r, bool is_role, uint32_t size, tuple *t)
{
    int64_t first = 0, count = 1;
    t->has_replica = true;
    if (!is_role && r->line_end - r->at >= 3 && memcmp(r->at, "all", 3) == 0) {
        r->at += 3;
        t->all = true;
        return TOCSIN_OK;
    }
    TOCSIN_TRY(tocsin_token_integer(r, 0, (int64_t)size - 1, &first));
    if (is_role && tocsin_token_accept(r, ':'))
        TOCSIN_TRY(tocsin_token_integer(r, 1, (int64_t)size - first, &count));
    t->first_replica = (uint32_t)first;
    t->count = (uint32_t)count;
    return TOCSIN_OK;
}

/* Coordinates while words stand here. All axes but the replica axis must be named. */
static tocsin_status read_tuple(tocsin_plan_reader *r, bool is_role, tuple *t)
{
    const tocsin_plan *plan = r->plan;
    uint32_t coordinate[TOCSIN_PLAN_AXES_MAX] = {0};
    unsigned given = 0;
    *t = (tuple){.count = tocsin_plan_replicas(plan)};
    for (;;) {
        const char *word = NULL;
        uint32_t axis = 0;
        size_t bytes = tocsin_token_keyword(r, &word);
        if (bytes == 0)
            break;
        while (axis < plan->axis_count &&
               !tocsin_token_is(word, bytes, tocsin_plan_text(plan, plan->axes[axis].name)))
            ++axis;
        if (axis == plan->axis_count || (given & 1u << axis))
            return FAIL(r, "%.*s is no axis of the mesh, or stands twice",
                        (int)(bytes > 40 ? 40 : bytes), word);
        given |= 1u << axis;
        TOCSIN_TRY(tocsin_token_expect(r, '='));
        uint32_t size = plan->axes[axis].size;
        int64_t value = 0;
        if (axis == plan->replica_axis)
            TOCSIN_TRY(read_replica(r, is_role, size, t));
        else
            TOCSIN_TRY(tocsin_token_integer(r, 0, (int64_t)size - 1, &value));
        coordinate[axis] = (uint32_t)value;
    }
    for (uint32_t i = 0; i < plan->axis_count; ++i) {
        if (i == plan->replica_axis)
            continue;
        if (!(given & 1u << i))
            return FAIL(r, "the coordinate on axis %s is missing",
                        tocsin_plan_text(plan, plan->axes[i].name));
        t->device = t->device * plan->axes[i].size + coordinate[i];
    }
    return TOCSIN_OK;
}

static tocsin_status read_group(tocsin_plan_reader *r)
{
    uint32_t name = 0, group = 0;
    tocsin_token_skip_blanks(r);
    TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of the group", &name));
    TOCSIN_TRY(tocsin_token_expect(r, '='));
    r->members.count = 0;
    while (!tocsin_token_at_end(r)) {
        tuple t;
        TOCSIN_TRY(tocsin_token_expect(r, '('));
        TOCSIN_TRY(read_tuple(r, false, &t));
        TOCSIN_TRY(tocsin_token_expect(r, ')'));
        tocsin_plan_member member = {.device = t.device, .replica = TOCSIN_MEMBER_SAME};
        if (t.all)
            member.replica = TOCSIN_MEMBER_ALL;
        else if (t.has_replica)
            member.replica = (int32_t)t.first_replica;
        if (!TOCSIN_VEC_PUSH(&r->members, member))
            return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    }
    BUILD(r, tocsin_plan_add_group(r->plan, tocsin_plan_text(r->plan, name), r->members.items,
                                   (uint32_t)r->members.count, &group, &r->inner));
    uint64_t *known = tocsin_map_at(&r->groups, name);
    if (!known)
        return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    if (*known)
        return FAIL(r, "a second group %s", tocsin_plan_text(r->plan, name));
    *known = (uint64_t)group + 1;
    return TOCSIN_OK;
}

/* ---- roles ------------------------------------------------------------------------------------
 */

static tocsin_status read_role(tocsin_plan_reader *r)
{
    tuple t;
    if (r->in_role)
        return FAIL(r, "a role begins before the last one's `end`");
    TOCSIN_TRY(read_tuple(r, true, &t));
    TOCSIN_TRY(tocsin_token_expect_end(r));
    BUILD(r, tocsin_plan_begin_role(r->plan, t.device, t.first_replica, t.count, &r->inner));
    r->in_role = true;
    r->in_segment = false;
    ++r->stamp;
    tocsin_map_clear(&r->segments);
    return TOCSIN_OK;
}

static tocsin_status read_end(tocsin_plan_reader *r)
{
    r->in_role = false;
    return tocsin_token_expect_end(r);
}

/* NAME: a logical input or output. */
static tocsin_status read_logical(tocsin_plan_reader *r, uint32_t *name)
{
    tocsin_token_skip_blanks(r);
    return tocsin_token_string(r, TOCSIN_TOKEN_NAME, "a logical name", name);
}

static tocsin_status read_in(tocsin_plan_reader *r)
{
    tocsin_plan_value value = {0};
    tocsin_plan_type type, slice;
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    uint32_t id = 0, name = 0, *bound = NULL;
    bool given = false;
    const char *word = NULL;
    TOCSIN_TRY(tocsin_token_expect(r, '%'));
    TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of a value", &value.name));
    TOCSIN_TRY(tocsin_token_expect(r, ':'));
    TOCSIN_TRY(tocsin_token_type(r, &type));
    size_t bytes = tocsin_token_keyword(r, &word);
    value.per_microbatch = tocsin_token_is(word, bytes, "each");
    if (bytes > 0 && !value.per_microbatch)
        return FAIL(r, "expected each or =");
    TOCSIN_TRY(tocsin_token_expect(r, '='));
    TOCSIN_TRY(read_logical(r, &name));
    TOCSIN_TRY(tocsin_token_slice(r, &given, &slice, starts));
    if (given && (slice.ndim != type.ndim ||
                  memcmp(slice.shape, type.shape, type.ndim * sizeof *type.shape) != 0))
        return FAIL(r, "the lengths of the slice differ from the value's shape");
    TOCSIN_TRY(tocsin_plan_reader_binding(r, value.name, &bound));
    if (*bound != TOCSIN_PLAN_NONE)
        return FAIL(r, "%%%s stands before its `in`", tocsin_plan_text(r->plan, value.name));
    TOCSIN_TRY(tocsin_plan_reader_define(r, &value, &type, &id));
    BUILD(r, tocsin_plan_add_input(r->plan, id, name, starts, &r->inner));
    return tocsin_token_expect_end(r);
}

static tocsin_status read_segment(tocsin_plan_reader *r)
{
    uint32_t name = 0;
    tocsin_token_skip_blanks(r);
    TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of the segment", &name));
    BUILD(r, tocsin_plan_begin_segment(r->plan, name, &r->inner));
    uint64_t *known = tocsin_map_at(&r->segments, name);
    if (!known)
        return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    if (*known)
        return FAIL(r, "a second segment %s", tocsin_plan_text(r->plan, name));
    *known = r->plan->roles.items[r->plan->roles.count - 1].segment_count;
    r->in_segment = true;
    return tocsin_token_expect_end(r);
}

/* In a bare word the last point followed by nothing but digits divides segment and micro-batch. */
static size_t segment_bytes(const char *word, size_t bytes)
{
    size_t at = bytes;
    while (at > 0 && tocsin_token_class[(unsigned char)word[at - 1]] & TOCSIN_TOKEN_DIGIT)
        --at;
    return at > 1 && at < bytes && word[at - 1] == '.' ? at - 1 : bytes;
}

/* SEGMENT[.MICROBATCH] */
static tocsin_status read_turn(tocsin_plan_reader *r)
{
    const char *begin = r->at, *word = NULL;
    size_t bytes = 0;
    int64_t microbatch = -1;
    TOCSIN_TRY(tocsin_token_word(r, TOCSIN_TOKEN_NAME, "the name of a segment", &word, &bytes));
    if (*begin != '"') {
        bytes = segment_bytes(word, bytes);
        r->at = begin + bytes;
    }
    uint32_t name = tocsin_intern_find(&r->plan->strings, word, bytes);
    const uint64_t *segment = name ? tocsin_map_find(&r->segments, name) : NULL;
    if (!segment)
        return FAIL(r, "the role has no segment %.*s", (int)(bytes > 100 ? 100 : bytes), word);
    if (r->at < r->line_end && *r->at == '.') {
        ++r->at;
        TOCSIN_TRY(tocsin_token_integer(r, 0, (int64_t)r->plan->microbatches - 1, &microbatch));
    }
    return tocsin_token_located(
        r, tocsin_plan_add_turn(r->plan, (uint32_t)*segment - 1, (int32_t)microbatch, &r->inner));
}

static tocsin_status read_schedule(tocsin_plan_reader *r)
{
    while (!tocsin_token_at_end(r))
        TOCSIN_TRY(read_turn(r));
    return TOCSIN_OK;
}

static tocsin_status read_output_kind(tocsin_plan_reader *r, tocsin_plan_output *output)
{
    static const char *const kinds[] = {"loss", "grad", "param", "state", "other"};
    const char *word = NULL;
    size_t bytes = tocsin_token_keyword(r, &word);
    for (uint8_t kind = 0; kind < TOCSIN_COUNT_OF(kinds); ++kind) {
        if (tocsin_token_is(word, bytes, kinds[kind])) {
            output->kind = kind;
            return TOCSIN_OK;
        }
    }
    return FAIL(r, "expected loss, grad, param, state or other");
}

static tocsin_status read_fold(tocsin_plan_reader *r, uint8_t *fold)
{
    static const char *const folds[] = {"equal", "sum", "mean"};
    const char *word = NULL;
    size_t bytes = tocsin_token_keyword(r, &word);
    for (uint8_t i = 0; i < TOCSIN_COUNT_OF(folds); ++i) {
        if (tocsin_token_is(word, bytes, folds[i])) {
            *fold = i;
            return TOCSIN_OK;
        }
    }
    return FAIL(r, "expected equal, sum or mean");
}

/* The value that an output names. One that nothing wrote gets its shape from the slice, so that the
 * verifier can say what is missing. */
static tocsin_status read_out_value(tocsin_plan_reader *r, bool given,
                                    const tocsin_plan_type *slice, uint32_t *id)
{
    tocsin_plan_value value = {0};
    uint32_t *bound = NULL;
    TOCSIN_TRY(tocsin_token_expect(r, '%'));
    TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of a value", &value.name));
    TOCSIN_TRY(tocsin_plan_reader_binding(r, value.name, &bound));
    const tocsin_plan_role *role = &r->plan->roles.items[r->plan->roles.count - 1];
    const tocsin_plan_value *known = NULL;
    if (*bound != TOCSIN_PLAN_NONE)
        known = &r->plan->values.items[role->first_value + *bound];
    if (!known || known->ndim == TOCSIN_PLAN_NDIM_UNKNOWN) {
        if (!given)
            return FAIL(r, "nothing writes %%%s, and without a slice its shape is unknown",
                        tocsin_plan_text(r->plan, value.name));
        return tocsin_plan_reader_define(r, &value, slice, id);
    }
    *id = *bound;
    if (given &&
        (slice->ndim != known->ndim || memcmp(slice->shape, tocsin_plan_shape(r->plan, known),
                                              slice->ndim * sizeof *slice->shape) != 0))
        return FAIL(r, "the lengths of the slice differ from the value's shape");
    return TOCSIN_OK;
}

static tocsin_status read_out(tocsin_plan_reader *r)
{
    tocsin_plan_output output = {0};
    tocsin_plan_type slice;
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    bool given = false;
    TOCSIN_TRY(read_output_kind(r, &output));
    TOCSIN_TRY(read_logical(r, &output.name));
    TOCSIN_TRY(tocsin_token_slice(r, &given, &slice, starts));
    TOCSIN_TRY(tocsin_token_expect(r, '='));
    TOCSIN_TRY(read_out_value(r, given, &slice, &output.value));
    if (!tocsin_token_at_end(r)) {
        const char *word = NULL;
        size_t bytes = tocsin_token_keyword(r, &word);
        if (!tocsin_token_is(word, bytes, "fold"))
            return FAIL(r, "expected fold= or the end of the line");
        TOCSIN_TRY(tocsin_token_expect(r, '='));
        TOCSIN_TRY(read_fold(r, &output.fold[TOCSIN_SYMBOL_REPLICA]));
        TOCSIN_TRY(tocsin_token_expect(r, ','));
        TOCSIN_TRY(read_fold(r, &output.fold[TOCSIN_SYMBOL_MICROBATCH]));
    }
    BUILD(r, tocsin_plan_add_output(r->plan, &output, starts, &r->inner));
    return tocsin_token_expect_end(r);
}

/* ---- lines ------------------------------------------------------------------------------------
 */

typedef tocsin_status read_statement(tocsin_plan_reader *r);

enum { ANYWHERE, OUTSIDE_ROLES, INSIDE_ROLES };
static const struct statement {
    const char *keyword;
    read_statement *read;
    uint8_t place;
} statements[] = {
    {"in", read_in, INSIDE_ROLES},
    {"segment", read_segment, INSIDE_ROLES},
    {"schedule", read_schedule, INSIDE_ROLES},
    {"out", read_out, INSIDE_ROLES},
    {"end", read_end, INSIDE_ROLES},
    {"role", read_role, ANYWHERE},
    {"group", read_group, OUTSIDE_ROLES},
    {"mesh", read_mesh, OUTSIDE_ROLES},
    {"microbatches", read_microbatches, OUTSIDE_ROLES},
    {"assume", read_assume, ANYWHERE},
};

static tocsin_status read_line(tocsin_plan_reader *r)
{
    if (tocsin_token_at_end(r))
        return TOCSIN_OK;
    if (!r->has_version)
        return read_version(r);
    if (*r->at == '%' || *r->at == '=')
        return tocsin_plan_reader_operator(r);
    const char *begin = r->at, *word = NULL;
    size_t bytes = tocsin_token_keyword(r, &word);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(statements); ++i) {
        if (!tocsin_token_is(word, bytes, statements[i].keyword))
            continue;
        if (statements[i].place == INSIDE_ROLES && !r->in_role)
            return FAIL(r, "%s outside of a role", statements[i].keyword);
        if (statements[i].place == OUTSIDE_ROLES && r->in_role)
            return FAIL(r, "%s inside of a role", statements[i].keyword);
        return statements[i].read(r);
    }
    r->at = begin;
    return FAIL(r, "expected a statement, such as role, in, segment, out, end or %%VALUE");
}

/* Set the cursor on the next line; false at the end. */
static bool next_line(tocsin_plan_reader *r)
{
    const char *begin = r->line_number == 0 ? r->begin : r->line_end + 1;
    if (begin >= r->end)
        return false;
    const char *newline = memchr(begin, '\n', (size_t)(r->end - begin));
    r->line = r->at = begin;
    r->line_end = newline ? newline : r->end;
    ++r->line_number;
    return true;
}

static tocsin_status read_lines(tocsin_plan_reader *r)
{
    while (next_line(r)) {
        if (r->line_end - r->line > TOCSIN_PLAN_LINE_BYTES_MAX)
            return tocsin_token_fail(r, TOCSIN_E_LIMIT, "a line of more than 1 MiB");
        TOCSIN_TRY(read_line(r));
    }
    if (r->in_role)
        return FAIL(r, "the last role has no `end`: the file is cut off");
    if (!r->has_version)
        return FAIL(r, "a plan begins with the line `tocsin-plan 1`");
    return TOCSIN_OK;
}

/* Put the cursor where the check of the whole plan stopped: on the line of the operator, or of the
 * role. Reads the text a second time, to tell an error only. */
static void find_checked(tocsin_plan_reader *r)
{
    uint64_t roles = r->plan->checked_role, ops = r->plan->checked_op;
    bool is_op = ops != TOCSIN_PLAN_NONE;
    if (roles == TOCSIN_PLAN_NONE)
        return;
    r->line_number = 0;
    while (next_line(r)) {
        const char *word = NULL;
        tocsin_token_skip_blanks(r);
        const char *begin = r->at;
        bool is_operator = begin < r->line_end && (*begin == '%' || *begin == '=');
        size_t bytes = tocsin_token_keyword(r, &word);
        bool role = tocsin_token_is(word, bytes, "role");
        r->at = begin;
        if (is_op ? is_operator && ops-- == 0 : role && roles-- == 0)
            return;
    }
}

static void close_reader(tocsin_plan_reader *r)
{
    tocsin_declarations_free(&r->declarations);
    TOCSIN_VEC_FREE(&r->bindings);
    tocsin_map_free(&r->groups);
    tocsin_map_free(&r->segments);
    tocsin_intern_free(&r->attribute_texts);
    TOCSIN_VEC_FREE(&r->attribute_set_of_text);
    tocsin_string_free(&r->word);
    TOCSIN_VEC_FREE(&r->integers);
    TOCSIN_VEC_FREE(&r->inputs);
    TOCSIN_VEC_FREE(&r->outputs);
    TOCSIN_VEC_FREE(&r->members);
}

static tocsin_status read_plan(tocsin_plan_reader *r, const char *operators_path)
{
    if (!r->plan)
        return tocsin_error_memory(r->error);
    TOCSIN_TRY(tocsin_declarations_load(operators_path, &r->declarations, r->error));
    TOCSIN_TRY(read_lines(r));
    tocsin_status status = tocsin_plan_finish(r->plan, &r->inner);
    if (status != TOCSIN_OK)
        find_checked(r);
    return tocsin_token_located(r, status);
}

tocsin_status tocsin_plan_read_text(const char *text, size_t bytes, const char *name,
                                    const tocsin_plan_options *options, tocsin_plan **plan,
                                    tocsin_error *error)
{
    if (bytes > TOCSIN_PLAN_BYTES_MAX)
        return tocsin_error_at(error, TOCSIN_E_LIMIT, name, -1, "a plan of more than 4 GiB");
    tocsin_plan_reader r = {
        .begin = text,
        .end = text + bytes,
        .line = text,
        .at = text,
        .line_end = text,
        .name = name,
        .error = error,
        .plan = tocsin_plan_new(),
    };
    tocsin_status status = read_plan(&r, options ? options->operators_path : NULL);
    close_reader(&r);
    if (status == TOCSIN_OK)
        *plan = r.plan;
    else
        tocsin_plan_free(r.plan);
    return status;
}
