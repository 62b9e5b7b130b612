/* certificate_read.c - the text of a certificate into flat tables.
 *
 * One pass. Ids count from 1 in order of appearance and refer back only, so atoms and relations are
 * well-founded. Whatever later files rely on is checked here: digits make up their dims, indices
 * stay within their atom's axes for every replica and micro-batch, and nothing that an atom is made
 * of depends on them. Limits: the sizes of a plan, 2^24 atoms and relations, 2^28 of anything.
 */
#include <inttypes.h>

#include "certify/certify.h"

enum { TABLE_MAX = 1 << 24, TOTAL_MAX = 1 << 28, JOIN_DEPTH_MAX = 32 };

typedef struct reading {
    const char *text, *at, *end;
    const char *name;
    const tocsin_plan *plan[2];
    certificate *into;
    TOCSIN_VEC(uint8_t) joins; /* depth of each relation */
    tocsin_error *error;
} reading;

/* ---- words --------------------------------------------------------------------------------------
 */

static tocsin_status malformed(const reading *from, const char *what)
{
    return tocsin_error_at(from->error, TOCSIN_E_FORMAT, from->name,
                           (int64_t)(from->at - from->text), "malformed certificate: %s", what);
}

static bool take(reading *from, const char *literal)
{
    const size_t bytes = strlen(literal);
    if ((size_t)(from->end - from->at) < bytes || memcmp(from->at, literal, bytes) != 0)
        return false;
    from->at += bytes;
    return true;
}

static tocsin_status need(reading *from, const char *literal)
{
    char text[64];
    if (take(from, literal))
        return TOCSIN_OK;
    snprintf(text, sizeof text, "'%s' is missing", literal[0] == '\n' ? "end of line" : literal);
    return malformed(from, text);
}

/* An integer of 64 bits, written as printf writes it. */
static tocsin_status integer(reading *from, int64_t *value)
{
    const bool minus = take(from, "-");
    const char *first = from->at;
    uint64_t number = 0;

    while (from->at < from->end && *from->at >= '0' && *from->at <= '9') {
        const unsigned digit = (unsigned)(*from->at - '0');
        if (number > ((uint64_t)INT64_MAX - digit) / 10)
            return malformed(from, "an integer is too large");
        number = number * 10 + digit;
        from->at++;
    }
    if (from->at == first || (*first == '0' && (from->at > first + 1 || minus)))
        return malformed(from, "an integer is missing or not in its shortest form");
    *value = minus ? -(int64_t)number : (int64_t)number;
    return TOCSIN_OK;
}

static tocsin_status within(reading *from, int64_t least, int64_t most, int64_t *value)
{
    TOCSIN_TRY(integer(from, value));
    return *value >= least && *value <= most ? TOCSIN_OK : malformed(from, "a number is too large");
}

static tocsin_status identity(reading *from, const char *letter, size_t count, uint32_t *id)
{
    int64_t value;
    TOCSIN_TRY(need(from, letter));
    TOCSIN_TRY(integer(from, &value));
    if (value < 1 || (uint64_t)value > count)
        return malformed(from, "an id refers to nothing before it");
    *id = (uint32_t)value;
    return TOCSIN_OK;
}

/* `bytes` lower-case hexadecimal digits. */
static tocsin_status hexadecimal(reading *from, uint64_t *value)
{
    *value = 0;
    for (int k = 0; k < 16; k++) {
        const char letter = from->at < from->end ? *from->at : '\n';
        const bool number = letter >= '0' && letter <= '9';
        if (!number && (letter < 'a' || letter > 'f'))
            return malformed(from, "16 hexadecimal digits are missing");
        *value = *value << 4 | (uint64_t)(number ? letter - '0' : letter - 'a' + 10);
        from->at++;
    }
    return TOCSIN_OK;
}

/* "text", with \xHH for what is not printable. */
static tocsin_status quoted(reading *from, uint32_t *text)
{
    tocsin_string plain = {.limit_bytes = 1 << 20};
    tocsin_status status = need(from, "\"");

    while (status == TOCSIN_OK && from->at < from->end && *from->at != '"') {
        if (*from->at < 0x20 || *from->at > 0x7e) {
            status = malformed(from, "a text has a byte that must be written \\xHH");
        } else if (take(from, "\\x")) {
            unsigned value = 0;
            int used = 0;
            if (from->end - from->at < 2 || sscanf(from->at, "%2x%n", &value, &used) != 1 ||
                used != 2 || value == 0)
                status = malformed(from, "two hexadecimal digits are missing");
            from->at += 2;
            tocsin_string_append_char(&plain, (char)value);
        } else {
            tocsin_string_append_char(&plain, *from->at++);
        }
    }
    if (status == TOCSIN_OK)
        status = need(from, "\"");
    if (status == TOCSIN_OK)
        status = tocsin_string_check(&plain, from->error);
    if (status == TOCSIN_OK) {
        *text = tocsin_intern_put(&from->into->texts, tocsin_string_text(&plain), plain.bytes);
        if (*text == 0)
            status = tocsin_error_memory(from->error);
    }
    tocsin_string_free(&plain);
    return status;
}

/* base, or base,replica,microbatch with weights that are not both 0. */
static tocsin_status affine(reading *from, tocsin_affine *start)
{
    *start = (tocsin_affine){0};
    TOCSIN_TRY(within(from, -TOCSIN_PLAN_INDEX_MAX, TOCSIN_PLAN_INDEX_MAX, &start->base));
    if (!take(from, ","))
        return TOCSIN_OK;
    TOCSIN_TRY(within(from, -TOCSIN_PLAN_INDEX_MAX, TOCSIN_PLAN_INDEX_MAX, &start->weight[0]));
    TOCSIN_TRY(need(from, ","));
    TOCSIN_TRY(within(from, -TOCSIN_PLAN_INDEX_MAX, TOCSIN_PLAN_INDEX_MAX, &start->weight[1]));
    if (start->weight[0] == 0 && start->weight[1] == 0)
        return malformed(from, "weights that are both 0 are left out");
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
        if (start->weight[s] != 0 && from->into->symbol_size[s] == 1)
            return malformed(from, "a start depends on what has but one value");
    return TOCSIN_OK;
}

static tocsin_status sizes(reading *from, uint32_t *first, uint8_t *ndim)
{
    *first = (uint32_t)from->into->sizes.count;
    *ndim = 0;
    TOCSIN_TRY(need(from, "["));
    while (!take(from, "]")) {
        int64_t size;
        if (*ndim > 0)
            TOCSIN_TRY(need(from, ","));
        if (*ndim == CERTIFY_NDIM_MAX)
            return malformed(from, "too many dims");
        TOCSIN_TRY(within(from, 1, CERTIFY_SIZE_MAX, &size));
        if (from->into->sizes.count >= TOTAL_MAX)
            return malformed(from, "too much of it");
        if (!TOCSIN_VEC_PUSH(&from->into->sizes, size))
            return tocsin_error_memory(from->error);
        ++*ndim;
    }
    return TOCSIN_OK;
}

static tocsin_status push_part(reading *from, uint32_t part)
{
    if (from->into->parts.count >= TOTAL_MAX)
        return malformed(from, "too much of it");
    return TOCSIN_VEC_PUSH(&from->into->parts, part) ? TOCSIN_OK : tocsin_error_memory(from->error);
}

/* ---- relations ------------------------------------------------------------------------------- */

static tocsin_status factor(reading *from, certify_number *number)
{
    certify_number value = {.denominator = 1}, inverse;
    int64_t denominator = 1;

    TOCSIN_TRY(integer(from, &value.numerator));
    if (take(from, "/"))
        TOCSIN_TRY(within(from, 2, INT64_MAX, &denominator));
    if (take(from, "p"))
        TOCSIN_TRY(within(from, -4096, 4096, &value.two));
    while (take(from, "*")) {
        if (value.opaque_count == CERTIFY_OPAQUE_MAX)
            return malformed(from, "a factor has too many constants");
        const uint32_t k = value.opaque_count++;
        TOCSIN_TRY(hexadecimal(from, &value.opaque[k].bits));
        TOCSIN_TRY(need(from, "^"));
        TOCSIN_TRY(within(from, -1000000, 1000000, &value.opaque[k].exponent));
        if (value.opaque[k].exponent == 0 ||
            (k > 0 && value.opaque[k].bits <= value.opaque[k - 1].bits))
            return malformed(from, "the constants of a factor are not in order");
    }
    const certify_number over = certify_integer(denominator);
    if (value.numerator == 0 || value.numerator % 2 == 0 || denominator % 2 == 0 ||
        !certify_inverse(&over, &inverse) || !certify_multiply(&value, &inverse, number) ||
        number->denominator != denominator)
        return malformed(from, "a factor is 0 or not in lowest terms");
    return TOCSIN_OK;
}

/* ":stride:extent:start:count" within an axis of the atom. */
static tocsin_status range(reading *from, int64_t *stride, int64_t *extent, tocsin_affine *start,
                           int64_t *count)
{
    int64_t least, most;
    TOCSIN_TRY(need(from, ":"));
    TOCSIN_TRY(within(from, 1, CERTIFY_SIZE_MAX, stride));
    TOCSIN_TRY(need(from, ":"));
    TOCSIN_TRY(within(from, 1, CERTIFY_SIZE_MAX / *stride, extent));
    TOCSIN_TRY(need(from, ":"));
    TOCSIN_TRY(affine(from, start));
    TOCSIN_TRY(need(from, ":"));
    TOCSIN_TRY(within(from, 1, *extent, count));
    least = most = start->base;
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++) {
        int64_t reach;
        if (__builtin_mul_overflow(start->weight[s], (int64_t)from->into->symbol_size[s] - 1,
                                   &reach))
            return malformed(from, "a start is too large");
        *(reach > 0 ? &most : &least) += reach;
    }
    return least >= 0 && most <= *extent - *count ? TOCSIN_OK
                                                  : malformed(from, "a range is beyond its digit");
}

static tocsin_status digit(reading *from, const certify_atom *atom, bool pinned, int64_t *room,
                           int64_t *dim)
{
    certify_digit one = {.axis = CERTIFY_BROADCAST};
    int64_t axis, left = 0;

    if (!pinned && take(from, "*")) {
        TOCSIN_TRY(need(from, ":"));
        TOCSIN_TRY(within(from, 2, CERTIFY_SIZE_MAX, &one.count));
    } else {
        TOCSIN_TRY(within(from, 0, atom->ndim - 1, &axis));
        one.axis = (uint32_t)axis;
        TOCSIN_TRY(range(from, &one.stride, &one.extent, &one.start, &one.count));
        const int64_t whole = from->into->sizes.items[atom->first_size + axis];
        if (one.stride * one.extent > whole || whole % (one.stride * one.extent) != 0)
            return malformed(from, "a digit is none of its axis");
        left = one.stride * (one.extent - 1);
        if (left > room[axis])
            return malformed(from, "digits of one axis overlap");
        room[axis] -= left;
        if (pinned && one.count != 1)
            return malformed(from, "a pinned digit has more than one element");
    }
    if (__builtin_mul_overflow(*dim, one.count, dim))
        return malformed(from, "a dim is too large");
    if (from->into->digits.count >= TOTAL_MAX)
        return malformed(from, "too much of it");
    return TOCSIN_VEC_PUSH(&from->into->digits, one) ? TOCSIN_OK : tocsin_error_memory(from->error);
}

static tocsin_status dims(reading *from, certify_term *term, const certify_relation *view)
{
    const certify_atom *atom = &from->into->atoms.items[term->atom - 1];
    int64_t room[CERTIFY_NDIM_MAX], dim;
    uint32_t total = 0;

    for (uint32_t a = 0; a < atom->ndim; a++)
        room[a] = from->into->sizes.items[atom->first_size + a] - 1;
    for (uint32_t d = 0; d < view->ndim; d++) {
        TOCSIN_TRY(need(from, " ("));
        dim = 1;
        for (term->digits[d] = 0; !take(from, ")"); term->digits[d]++) {
            if (++total > CERTIFY_DIGITS_MAX)
                return malformed(from, "a term has too many digits");
            if (term->digits[d] > 0)
                TOCSIN_TRY(need(from, " "));
            TOCSIN_TRY(digit(from, atom, false, room, &dim));
        }
        if (dim != from->into->sizes.items[view->first_size + d])
            return malformed(from, "the digits of a dim do not make up its size");
    }
    for (; take(from, " pin "); term->pinned++) {
        if (++total > CERTIFY_DIGITS_MAX)
            return malformed(from, "a term has too many digits");
        TOCSIN_TRY(digit(from, atom, true, room, &dim));
    }
    return TOCSIN_OK;
}

static tocsin_status term(reading *from, const certify_relation *view)
{
    certify_term one = {0};

    TOCSIN_TRY(need(from, " "));
    TOCSIN_TRY(factor(from, &one.factor));
    TOCSIN_TRY(need(from, " "));
    TOCSIN_TRY(identity(from, "a", from->into->atoms.count, &one.atom));
    one.first_digit = (uint32_t)from->into->digits.count;
    TOCSIN_TRY(dims(from, &one, view));
    one.first_range = (uint32_t)from->into->ranges.count;
    for (;;) {
        certify_range box = {0};
        int64_t axis;
        const bool sum = take(from, " sum ");
        if (!sum && !take(from, " max "))
            break;
        box.maximum = !sum;
        TOCSIN_TRY(identity(from, "a", from->into->atoms.count, &box.atom));
        TOCSIN_TRY(need(from, "."));
        TOCSIN_TRY(within(from, 0, 255, &axis));
        box.axis = (uint32_t)axis;
        TOCSIN_TRY(range(from, &box.stride, &box.extent, &box.start, &box.count));
        if (box.count == box.extent)
            return malformed(from, "a range of a box that is whole is left out");
        if (++one.range_count > CERTIFY_BOX_MAX || from->into->ranges.count >= TOTAL_MAX)
            return malformed(from, "a box has too many ranges");
        if (!TOCSIN_VEC_PUSH(&from->into->ranges, box))
            return tocsin_error_memory(from->error);
    }
    if (from->into->terms.count >= TOTAL_MAX)
        return malformed(from, "too much of it");
    return TOCSIN_VEC_PUSH(&from->into->terms, one) ? TOCSIN_OK : tocsin_error_memory(from->error);
}

static tocsin_status join(reading *from, certify_relation *view, uint8_t *depth)
{
    certificate *into = from->into;
    int64_t dim, total = 0;

    TOCSIN_TRY(within(from, 0, view->ndim - 1, &dim));
    view->joined = true;
    view->join_dim = (uint8_t)dim;
    view->first_part = (uint32_t)into->parts.count;
    while (take(from, " ")) {
        uint32_t part = 0;
        TOCSIN_TRY(identity(from, "r", into->relations.count, &part));
        const certify_relation *other = &into->relations.items[part - 1];
        for (uint32_t d = 0; d < view->ndim; d++)
            if (other->ndim != view->ndim ||
                (d != view->join_dim && into->sizes.items[other->first_size + d] !=
                                            into->sizes.items[view->first_size + d]))
                return malformed(from, "a part has another shape");
        total += into->sizes.items[other->first_size + dim];
        if (from->joins.items[part - 1] >= *depth)
            *depth = (uint8_t)(from->joins.items[part - 1] + 1);
        TOCSIN_TRY(push_part(from, part));
        view->count++;
        if (total > CERTIFY_SIZE_MAX || *depth > JOIN_DEPTH_MAX)
            return malformed(from, "parts are nested too deep or too large");
    }
    return view->count >= 2 && total == into->sizes.items[view->first_size + dim]
               ? TOCSIN_OK
               : malformed(from, "the parts do not make up the size");
}

static tocsin_status relation(reading *from)
{
    certificate *into = from->into;
    certify_relation view = {0};
    uint8_t depth = 0;
    int64_t id;

    TOCSIN_TRY(within(from, 1, TABLE_MAX, &id));
    if ((uint64_t)id != into->relations.count + 1)
        return malformed(from, "relations do not count 1, 2, 3");
    TOCSIN_TRY(need(from, " "));
    TOCSIN_TRY(sizes(from, &view.first_size, &view.ndim));
    if (take(from, " cat ")) {
        TOCSIN_TRY(join(from, &view, &depth));
    } else {
        view.first_part = (uint32_t)into->terms.count;
        TOCSIN_TRY(need(from, " ="));
        if (!take(from, " 0\n")) {
            do {
                TOCSIN_TRY(term(from, &view));
                view.count++;
            } while (take(from, " +"));
        } else {
            from->at--; /* the end of line is asked for below */
        }
    }
    if (!TOCSIN_VEC_PUSH(&into->relations, view) || !TOCSIN_VEC_PUSH(&from->joins, depth))
        return tocsin_error_memory(from->error);
    return need(from, "\n");
}

/* ---- atoms ----------------------------------------------------------------------------------- */

static bool depends_on_symbols(const certificate *in, uint32_t relation_id)
{
    const certify_relation *view = &in->relations.items[relation_id - 1];
    bool found = false;
    for (uint32_t k = 0; k < view->count && !found; k++) {
        if (view->joined) {
            found = depends_on_symbols(in, in->parts.items[view->first_part + k]);
            continue;
        }
        const certify_term *one = &in->terms.items[view->first_part + k];
        uint32_t digits = one->pinned;
        for (uint32_t d = 0; d < view->ndim; d++)
            digits += one->digits[d];
        for (uint32_t i = 0; i < digits; i++)
            for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
                found |= in->digits.items[one->first_digit + i].start.weight[s] != 0;
        for (uint32_t i = 0; i < one->range_count; i++)
            for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
                found |= in->ranges.items[one->first_range + i].start.weight[s] != 0;
    }
    return found;
}

static tocsin_status operands(reading *from, certify_atom *atom)
{
    atom->first_operand = (uint32_t)from->into->parts.count;
    while (take(from, " ")) {
        uint32_t operand = 0;
        TOCSIN_TRY(identity(from, "r", from->into->relations.count, &operand));
        if (depends_on_symbols(from->into, operand))
            return malformed(from, "an atom depends on the replica or micro-batch");
        TOCSIN_TRY(push_part(from, operand));
        atom->operand_count++;
    }
    return TOCSIN_OK;
}

/* The logical input of this name has this shape in the plan. */
static tocsin_status input_atom(reading *from, certify_atom *atom)
{
    const tocsin_plan *plan = from->plan[0];
    size_t bytes;
    const char *name = tocsin_intern_text(&from->into->texts, atom->text, &bytes);
    const uint32_t own = tocsin_intern_find(&plan->strings, name, bytes);

    for (size_t k = 0; k < plan->inputs.count && own != 0; k++) {
        if (plan->inputs.items[k].name != own)
            continue;
        const tocsin_plan_value *value =
            &plan->values.items[plan->roles.items[0].first_value + plan->inputs.items[k].value];
        if (value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
            break;
        atom->ndim = value->ndim;
        atom->first_size = (uint32_t)from->into->sizes.count;
        for (uint32_t d = 0; d < value->ndim; d++)
            if (!TOCSIN_VEC_PUSH(&from->into->sizes, tocsin_plan_shape(plan, value)[d]))
                return tocsin_error_memory(from->error);
        return TOCSIN_OK;
    }
    return malformed(from, "the logical plan has no such input");
}

static tocsin_status defined_atom(reading *from, certify_atom *atom)
{
    TOCSIN_TRY(operands(from, atom));
    if (atom->operand_count != 1)
        return malformed(from, "a definition is one relation");
    const certify_relation *view =
        &from->into->relations.items[from->into->parts.items[atom->first_operand] - 1];
    atom->ndim = view->ndim;
    atom->first_size = view->first_size;
    return TOCSIN_OK;
}

static tocsin_status atom(reading *from)
{
    certify_atom one = {0};
    int64_t id, output;

    TOCSIN_TRY(within(from, 1, TABLE_MAX, &id));
    if ((uint64_t)id != from->into->atoms.count + 1)
        return malformed(from, "atoms do not count 1, 2, 3");
    if (take(from, " one")) {
        one.kind = CERTIFY_ONE;
    } else if (take(from, " iota")) {
        one.kind = CERTIFY_IOTA;
        one.ndim = 1;
        one.first_size = (uint32_t)from->into->sizes.count;
        if (!TOCSIN_VEC_PUSH(&from->into->sizes, CERTIFY_SIZE_MAX))
            return tocsin_error_memory(from->error);
    } else if (take(from, " input ")) {
        one.kind = CERTIFY_INPUT;
        TOCSIN_TRY(quoted(from, &one.text));
        TOCSIN_TRY(input_atom(from, &one));
    } else if (take(from, " defined")) {
        one.kind = CERTIFY_DEFINED;
        TOCSIN_TRY(defined_atom(from, &one));
    } else if (take(from, " call ")) {
        one.kind = CERTIFY_CALL;
        TOCSIN_TRY(quoted(from, &one.text));
        TOCSIN_TRY(need(from, " "));
        TOCSIN_TRY(within(from, 0, UINT16_MAX, &output));
        one.output = (uint32_t)output;
        TOCSIN_TRY(need(from, " "));
        TOCSIN_TRY(sizes(from, &one.first_size, &one.ndim));
        TOCSIN_TRY(operands(from, &one));
    } else {
        return malformed(from, "an atom of no known kind");
    }
    if (!TOCSIN_VEC_PUSH(&from->into->atoms, one))
        return tocsin_error_memory(from->error);
    return need(from, "\n");
}

/* ---- facts and claims ------------------------------------------------------------------------ */

/* The role of a unit, as they count: by role, and each of its replicas when these are told apart.
 */
static const tocsin_plan_role *role_of(const reading *from, int side, uint64_t unit)
{
    const tocsin_plan *plan = from->plan[side];
    for (size_t r = 0; r < plan->roles.count; r++) {
        const uint64_t count =
            side == 1 && from->into->each_replica ? plan->roles.items[r].replica_count : 1;
        if (unit < count)
            return &plan->roles.items[r];
        unit -= count;
    }
    return NULL;
}

static tocsin_status one_fact(reading *from, int side, const tocsin_plan_role *role, uint32_t slot,
                              uint32_t index)
{
    certificate *into = from->into;
    const tocsin_plan *plan = from->plan[side];
    const tocsin_plan_value *value = &plan->values.items[role->first_value + index];
    int64_t id = 0;

    if (slot == 0 || !value->persistent) {
        TOCSIN_TRY(need(from, " "));
        TOCSIN_TRY(within(from, 0, (int64_t)into->relations.count, &id));
        into->unknown += id == 0;
    }
    const certify_relation *view = id == 0 ? NULL : &into->relations.items[id - 1];
    if (view != NULL && (view->ndim != value->ndim ||
                         memcmp(into->sizes.items + view->first_size,
                                tocsin_plan_shape(plan, value), view->ndim * sizeof(int64_t)) != 0))
        return malformed(from, "a fact has another shape than its value");
    if (into->cells.count >= TOTAL_MAX)
        return malformed(from, "too much of it");
    return TOCSIN_VEC_PUSH(&into->cells, (uint32_t)id) ? TOCSIN_OK
                                                       : tocsin_error_memory(from->error);
}

static tocsin_status facts(reading *from, int side, uint32_t unit, uint32_t slot,
                           const tocsin_plan_role *role)
{
    int64_t number;
    TOCSIN_TRY(need(from, side == 0 ? "facts logical " : "facts parallel "));
    TOCSIN_TRY(integer(from, &number));
    if (number != (int64_t)unit)
        return malformed(from, "the units do not count 0, 1, 2");
    TOCSIN_TRY(need(from, " "));
    TOCSIN_TRY(integer(from, &number));
    if (number != (int64_t)slot)
        return malformed(from, "the micro-batches do not count 0, 1, 2");
    const certify_facts entry = {.first = (uint32_t)from->into->cells.count};
    if (!TOCSIN_VEC_PUSH(&from->into->facts[side], entry))
        return tocsin_error_memory(from->error);
    for (uint32_t v = 0; v < role->value_count; v++)
        TOCSIN_TRY(one_fact(from, side, role, slot, v));
    return need(from, "\n");
}

static tocsin_status all_facts(reading *from, int side)
{
    const bool each = side == 0 || from->into->each_microbatch;
    const uint32_t slots = each ? from->plan[side]->microbatches : 1;
    for (uint32_t unit = 0;; unit++) {
        const tocsin_plan_role *role = role_of(from, side, unit);
        if (role == NULL)
            return TOCSIN_OK;
        for (uint32_t slot = 0; slot < slots; slot++)
            TOCSIN_TRY(facts(from, side, unit, slot, role));
    }
}

static tocsin_status claims(reading *from)
{
    while (take(from, "output ")) {
        int64_t unit, slot, output;
        certify_claim claim;
        TOCSIN_TRY(within(from, 0, UINT32_MAX, &unit));
        TOCSIN_TRY(need(from, " "));
        TOCSIN_TRY(within(from, 0, UINT32_MAX, &slot));
        TOCSIN_TRY(need(from, " "));
        TOCSIN_TRY(within(from, 0, UINT32_MAX, &output));
        TOCSIN_TRY(need(from, " "));
        TOCSIN_TRY(identity(from, "r", from->into->relations.count, &claim.relation));
        TOCSIN_TRY(need(from, "\n"));
        claim.unit = (uint32_t)unit;
        claim.slot = (uint32_t)slot;
        claim.output = (uint32_t)output;
        if (from->into->claims.count >= TOTAL_MAX)
            return malformed(from, "too much of it");
        if (!TOCSIN_VEC_PUSH(&from->into->claims, claim))
            return tocsin_error_memory(from->error);
    }
    return TOCSIN_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static tocsin_status each_or_all(reading *from, const char *what, bool *each)
{
    TOCSIN_TRY(need(from, what));
    *each = take(from, " each\n");
    return *each ? TOCSIN_OK : need(from, " all\n");
}

static tocsin_status head(reading *from)
{
    certificate *into = from->into;
    if (!take(from, "tocsin-certificate "))
        return malformed(from, "it does not begin with tocsin-certificate");
    if (!take(from, "1\n"))
        return tocsin_error_at(from->error, TOCSIN_E_VERSION, from->name, 0,
                               "a certificate of another version than 1");
    for (int side = 0; side < 2; side++) {
        TOCSIN_TRY(need(from, side == 0 ? "logical " : "parallel "));
        TOCSIN_TRY(hexadecimal(from, &into->digest[side].high));
        TOCSIN_TRY(hexadecimal(from, &into->digest[side].low));
        TOCSIN_TRY(need(from, "\n"));
    }
    TOCSIN_TRY(each_or_all(from, "replicas", &into->each_replica));
    TOCSIN_TRY(each_or_all(from, "microbatches", &into->each_microbatch));
    into->symbol_size[TOCSIN_SYMBOL_REPLICA] =
        into->each_replica ? 1 : tocsin_plan_replicas(from->plan[1]);
    into->symbol_size[TOCSIN_SYMBOL_MICROBATCH] =
        into->each_microbatch ? 1 : from->plan[1]->microbatches;
    return TOCSIN_OK;
}

static tocsin_status body(reading *from)
{
    /* What has no dims points into these arrays, too. */
    if (!TOCSIN_VEC_RESERVE(&from->into->sizes, 1) || !TOCSIN_VEC_RESERVE(&from->into->digits, 1))
        return tocsin_error_memory(from->error);
    TOCSIN_TRY(head(from));
    for (;;) {
        if (take(from, "relation r"))
            TOCSIN_TRY(relation(from));
        else if (take(from, "atom a"))
            TOCSIN_TRY(atom(from));
        else
            break;
    }
    TOCSIN_TRY(all_facts(from, 0));
    TOCSIN_TRY(all_facts(from, 1));
    TOCSIN_TRY(claims(from));
    int64_t unknown;
    TOCSIN_TRY(need(from, "unknown "));
    TOCSIN_TRY(integer(from, &unknown));
    if (unknown < 0 || (uint64_t)unknown != from->into->unknown)
        return malformed(from, "the number of unknown facts is wrong");
    TOCSIN_TRY(need(from, "\nend\n"));
    return from->at == from->end ? TOCSIN_OK : malformed(from, "something stands behind the end");
}

tocsin_status certificate_read(const char *text, size_t bytes, const char *name,
                               const tocsin_plan *logical, const tocsin_plan *parallel,
                               certificate *into, tocsin_error *error)
{
    reading from = {.text = text,
                    .at = text,
                    .end = text + bytes,
                    .name = name,
                    .plan = {logical, parallel},
                    .into = into,
                    .error = error};
    *into = (certificate){0};
    const tocsin_status status = body(&from);
    TOCSIN_VEC_FREE(&from.joins);
    return status;
}

void certificate_free(certificate *one)
{
    TOCSIN_VEC_FREE(&one->atoms);
    TOCSIN_VEC_FREE(&one->relations);
    TOCSIN_VEC_FREE(&one->terms);
    TOCSIN_VEC_FREE(&one->digits);
    TOCSIN_VEC_FREE(&one->ranges);
    TOCSIN_VEC_FREE(&one->sizes);
    TOCSIN_VEC_FREE(&one->parts);
    TOCSIN_VEC_FREE(&one->cells);
    for (int side = 0; side < 2; side++)
        TOCSIN_VEC_FREE(&one->facts[side]);
    TOCSIN_VEC_FREE(&one->claims);
    tocsin_intern_free(&one->texts);
    *one = (certificate){0};
}
