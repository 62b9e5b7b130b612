/* operators.c - the operator table and axis signatures.
 *
 * A signature is read by one pass over its text, without allocation. Axes are numbered in order of
 * first appearance; that numbering makes the canonical text independent of the axes' names.
 * Invariant of a parsed signature: every axis number is below axis_count, no operand names an axis
 * twice, no output has a contracted axis. Cost: O(bytes + axes * axes).
 */
#include "plan/operators.h"

#include <assert.h>
#include <ctype.h>
#include <tocsin/tensor.h>

const tocsin_operator tocsin_operators[TOCSIN_OPERATOR_COUNT] = {
#define X(code, name, rule, inputs, outputs, signature)                                            \
    [TOCSIN_OPERATOR_##code] = {name, inputs, outputs, signature},
    TOCSIN_OPERATOR_TABLE(X)
#undef X
};

static const uint8_t name_bytes[TOCSIN_OPERATOR_COUNT] = {
#define X(code, name, rule, inputs, outputs, signature) [TOCSIN_OPERATOR_##code] = sizeof(name) - 1,
    TOCSIN_OPERATOR_TABLE(X)
#undef X
};

tocsin_operator_code tocsin_operator_from_name(const char *name, size_t bytes)
{
    for (unsigned code = 0; code < TOCSIN_OPERATOR_COUNT; ++code) {
        if (name_bytes[code] == bytes && memcmp(tocsin_operators[code].name, name, bytes) == 0)
            return (tocsin_operator_code)code;
    }
    return TOCSIN_OPERATOR_COUNT;
}

bool tocsin_operator_is_alias(tocsin_operator_code code)
{
    switch (code) {
    case TOCSIN_OPERATOR_IDENTITY:
    case TOCSIN_OPERATOR_COPIES:
    case TOCSIN_OPERATOR_VIEW:
    case TOCSIN_OPERATOR_PERMUTE:
    case TOCSIN_OPERATOR_EXPAND:
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_SELECT:
    case TOCSIN_OPERATOR_SPLIT:
    case TOCSIN_OPERATOR_UNBIND:
        return true;
    default:
        return false;
    }
}

/* A truth value, an integer, a real, a complex number; 0: unknown. */
static int width_of(uint8_t dtype)
{
    switch ((tocsin_dtype)dtype) {
    case TOCSIN_DTYPE_NONE:
        return 0;
    case TOCSIN_DTYPE_BOOL:
        return TOCSIN_CAST_TRUTH;
    case TOCSIN_DTYPE_COMPLEX32:
    case TOCSIN_DTYPE_COMPLEX64:
    case TOCSIN_DTYPE_COMPLEX128:
        return TOCSIN_CAST_REAL + 1;
    default:
        return dtype >= TOCSIN_DTYPE_UINT8 && dtype <= TOCSIN_DTYPE_UINT64 ? TOCSIN_CAST_INTEGER
                                                                           : TOCSIN_CAST_REAL;
    }
}

tocsin_cast_kind tocsin_cast_kind_of(uint8_t from, uint8_t to)
{
    const int before = width_of(from), after = width_of(to);
    return before == 0 || after == 0 || before <= after ? TOCSIN_CAST_ALL : (tocsin_cast_kind)after;
}

/* ---- parsing a signature --------------------------------------------------------------------- */

typedef struct parser {
    const char *text, *at, *end;
    tocsin_signature *signature;
    tocsin_error *error;
} parser;

#define FAIL(p, code, ...)                                                                         \
    tocsin_error_at((p)->error, code, "signature", (p)->at - (p)->text, __VA_ARGS__)

static void skip_blanks(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        ++p->at;
}

static bool is_letter(char c)
{
    return isalpha((unsigned char)c) && (unsigned char)c < 0x80;
}

static bool is_name_char(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
}

/* The bytes of the name that begins here; 0 when none does. */
static size_t name_length(const parser *p)
{
    const char *at = p->at;
    if (at == p->end || !(is_letter(*at) || *at == '_'))
        return 0;
    while (at < p->end && is_name_char(*at))
        ++at;
    return (size_t)(at - p->at);
}

/* `+` and `^` after the name of an axis. */
static tocsin_status parse_marks(parser *p, int axis)
{
    tocsin_signature *s = p->signature;
    for (; p->at < p->end && (*p->at == '+' || *p->at == '^'); ++p->at) {
        if (*p->at == '+')
            s->contracted[axis] = true;
        else
            s->whole[axis] = true;
    }
    if (s->contracted[axis] && s->whole[axis])
        return FAIL(p, TOCSIN_E_FORMAT, "axis %s is marked both + and ^", s->axis_name[axis]);
    return TOCSIN_OK;
}

static tocsin_status parse_axis(parser *p, tocsin_signature_operand *operand)
{
    tocsin_signature *s = p->signature;
    size_t length = name_length(p);
    if (operand->ndim == TOCSIN_COUNT_OF(operand->axis))
        return FAIL(p, TOCSIN_E_LIMIT, "an operand has more than %zu axes",
                    TOCSIN_COUNT_OF(operand->axis));
    if (length == 1 && *p->at == '_') {
        ++p->at;
        operand->axis[operand->ndim++] = TOCSIN_AXIS_ANY;
        return TOCSIN_OK;
    }
    if (length == 0 && *p->at == '1' && (p->end - p->at < 2 || !is_name_char(p->at[1]))) {
        ++p->at;
        operand->axis[operand->ndim++] = TOCSIN_AXIS_ONE;
        return TOCSIN_OK;
    }
    if (length == 0 || length >= sizeof s->axis_name[0])
        return FAIL(p, TOCSIN_E_FORMAT, "an axis is a name of 1 to %zu characters, 1 or _",
                    sizeof s->axis_name[0] - 1);
    int axis = 0;
    while (axis < s->axis_count &&
           (strncmp(s->axis_name[axis], p->at, length) != 0 || s->axis_name[axis][length] != 0))
        ++axis;
    if (axis == TOCSIN_SIGNATURE_AXES_MAX)
        return FAIL(p, TOCSIN_E_LIMIT, "more than %d axes", TOCSIN_SIGNATURE_AXES_MAX);
    for (unsigned i = 0; i < operand->ndim; ++i) {
        if (operand->axis[i] == axis)
            return FAIL(p, TOCSIN_E_FORMAT, "axis %s stands twice in one operand",
                        s->axis_name[axis]);
    }
    if (axis == s->axis_count) {
        memcpy(s->axis_name[axis], p->at, length);
        ++s->axis_count;
    }
    operand->axis[operand->ndim++] = (int8_t)axis;
    p->at += length;
    return parse_marks(p, axis);
}

/* [NAME] "[" ["..."] AXIS ... "]", after the opening bracket. */
static tocsin_status parse_axes(parser *p, tocsin_signature_operand *operand)
{
    skip_blanks(p);
    if (p->end - p->at >= 3 && memcmp(p->at, "...", 3) == 0) {
        operand->ellipsis = true;
        p->at += 3;
    }
    for (skip_blanks(p); p->at < p->end && *p->at != ']'; skip_blanks(p))
        TOCSIN_TRY(parse_axis(p, operand));
    if (p->at == p->end)
        return FAIL(p, TOCSIN_E_FORMAT, "a bracket is not closed");
    ++p->at;
    return TOCSIN_OK;
}

/* Operands until something else stands here. */
static tocsin_status parse_operands(parser *p, uint8_t *count)
{
    tocsin_signature *s = p->signature;
    for (;;) {
        skip_blanks(p);
        size_t length = name_length(p);
        if (p->at + length == p->end || p->at[length] != '[')
            return TOCSIN_OK;
        unsigned total = (unsigned)s->input_count + s->output_count;
        if (total == TOCSIN_SIGNATURE_OPERANDS_MAX)
            return FAIL(p, TOCSIN_E_LIMIT, "more than %d operands", TOCSIN_SIGNATURE_OPERANDS_MAX);
        p->at += length + 1;
        TOCSIN_TRY(parse_axes(p, &s->operands[total]));
        ++*count;
    }
}

/* The list of inputs after `linear=`. */
static tocsin_status parse_linear(parser *p)
{
    tocsin_signature *s = p->signature;
    for (;; ++p->at) {
        unsigned input = 0, digits = 0;
        for (; p->at < p->end && *p->at >= '0' && *p->at <= '9' && digits < 3; ++p->at, ++digits)
            input = input * 10 + (unsigned)(*p->at - '0');
        if (digits == 0 || input >= s->input_count)
            return FAIL(p, TOCSIN_E_FORMAT, "linear= names inputs from 0 to %d",
                        s->input_count - 1);
        s->linear = (uint16_t)(s->linear | 1u << input);
        if (p->at == p->end || *p->at != ',')
            return TOCSIN_OK;
    }
}

static tocsin_status parse_properties(parser *p)
{
    static const char linear[] = "linear=", commutative[] = "commutative";
    for (skip_blanks(p); p->at < p->end; skip_blanks(p)) {
        size_t left = (size_t)(p->end - p->at);
        if (left >= sizeof linear - 1 && memcmp(p->at, linear, sizeof linear - 1) == 0) {
            p->at += sizeof linear - 1;
            TOCSIN_TRY(parse_linear(p));
        } else if (left >= sizeof commutative - 1 &&
                   memcmp(p->at, commutative, sizeof commutative - 1) == 0) {
            p->at += sizeof commutative - 1;
            p->signature->commutative = true;
        } else {
            return FAIL(p, TOCSIN_E_FORMAT, "expected linear=, commutative or the end");
        }
        if (p->at < p->end && *p->at != ' ' && *p->at != '\t')
            return FAIL(p, TOCSIN_E_FORMAT, "expected a blank");
    }
    if (p->signature->commutative && p->signature->input_count != 2)
        return FAIL(p, TOCSIN_E_FORMAT, "commutative needs two inputs");
    return TOCSIN_OK;
}

static tocsin_status check_outputs(parser *p)
{
    const tocsin_signature *s = p->signature;
    for (unsigned i = s->input_count; i < (unsigned)s->input_count + s->output_count; ++i) {
        for (unsigned d = 0; d < s->operands[i].ndim; ++d) {
            int axis = s->operands[i].axis[d];
            assert(axis < s->axis_count);
            if (axis >= 0 && s->contracted[axis])
                return FAIL(p, TOCSIN_E_FORMAT, "axis %s is summed over, yet an output has it",
                            s->axis_name[axis]);
        }
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_signature_parse(const char *text, size_t bytes, tocsin_signature *signature,
                                     tocsin_error *error)
{
    assert(text && signature);
    memset(signature, 0, sizeof *signature);
    parser p = {text, text, text + bytes, signature, error};
    TOCSIN_TRY(parse_operands(&p, &signature->input_count));
    if (p.end - p.at < 2 || p.at[0] != '-' || p.at[1] != '>')
        return FAIL(&p, TOCSIN_E_FORMAT, "expected an operand, as in x[a b], or ->");
    p.at += 2;
    TOCSIN_TRY(parse_operands(&p, &signature->output_count));
    if (signature->output_count == 0)
        return FAIL(&p, TOCSIN_E_FORMAT, "expected an output, as in [a b]");
    TOCSIN_TRY(parse_properties(&p));
    return check_outputs(&p);
}

/* ---- writing ----------------------------------------------------------------------------------
 */

static void write_operand(const tocsin_signature *s, const tocsin_signature_operand *operand,
                          bool canonical, tocsin_string *text)
{
    tocsin_string_append_text(text, operand->ellipsis ? "[..." : "[");
    for (unsigned d = 0; d < operand->ndim; ++d) {
        int axis = operand->axis[d];
        if (d > 0 || operand->ellipsis)
            tocsin_string_append_char(text, ' ');
        if (axis < 0) {
            tocsin_string_append_char(text, axis == TOCSIN_AXIS_ONE ? '1' : '_');
            continue;
        }
        if (canonical)
            tocsin_string_append_char(text, (char)('a' + axis));
        else
            tocsin_string_append_text(text, s->axis_name[axis]);
        if (s->contracted[axis])
            tocsin_string_append_char(text, '+');
        if (s->whole[axis])
            tocsin_string_append_char(text, '^');
    }
    tocsin_string_append_char(text, ']');
}

void tocsin_signature_write(const tocsin_signature *signature, bool canonical, tocsin_string *text)
{
    static_assert(TOCSIN_SIGNATURE_AXES_MAX <= 26, "canonical axes are called a to z");
    unsigned total = (unsigned)signature->input_count + signature->output_count;
    assert(total <= TOCSIN_SIGNATURE_OPERANDS_MAX);
    for (unsigned i = 0; i < total; ++i) {
        if (i == signature->input_count)
            tocsin_string_append_text(text, i ? " -> " : "-> ");
        else if (i > 0)
            tocsin_string_append_char(text, ' ');
        write_operand(signature, &signature->operands[i], canonical, text);
    }
    const char *separator = " linear=";
    for (unsigned i = 0; i < signature->input_count; ++i) {
        if (signature->linear & 1u << i) {
            tocsin_string_printf(text, "%s%u", separator, i);
            separator = ",";
        }
    }
    if (signature->commutative)
        tocsin_string_append_text(text, " commutative");
}
