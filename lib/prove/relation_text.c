/* relation_text.c - relations as people read them.
 *
 *   1/2 * linear47[0:128, 0:4096] partial k in [0,5504) of 11008
 *
 * Per dim of the tensor, in brackets: the range of the atom's index, START:END, or START:+LENGTH
 * when the start depends on the replica (dp) or micro-batch (mb). A range of another axis than the
 * dim's own number says so (axis1 0:64); one of a part of the index, (index / 64) mod 8, too
 * (axis1/64%8 0:4); several make one dim within parentheses; `*4` repeats. Indices that are fixed
 * follow after `;`. Cost: linear in the text, which is cut at its limit.
 */
#include <assert.h>
#include <inttypes.h>

#include "prove/universe.h"

enum { DEPTH_MAX = 2, OPERANDS_SHOWN_MAX = 4 };

struct printer {
    const tocsin_universe *universe;
    const tocsin_plan *plan; /* may be NULL */
    tocsin_string *text;
    size_t end_bytes; /* text that is longer is cut */
};

static bool is_full(const struct printer *printer)
{
    return printer->text->bytes > printer->end_bytes || printer->text->status != TOCSIN_OK;
}

static void write_text(const struct printer *printer, const char *text)
{
    tocsin_string_append_text(printer->text, text);
}

static void write_affine(const struct printer *printer, const tocsin_affine *affine)
{
    static const char *const names[TOCSIN_SYMBOL_COUNT] = {"dp", "mb"};
    bool begun = false;
    for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; ++symbol) {
        int64_t weight = affine->weight[symbol];
        if (weight == 0)
            continue;
        write_text(printer, begun && weight > 0 ? "+" : "");
        if (weight == 1)
            write_text(printer, names[symbol]);
        else
            tocsin_string_printf(printer->text, "%s*%" PRId64, names[symbol], weight);
        begun = true;
    }
    if (!begun || affine->base != 0)
        tocsin_string_printf(printer->text, begun ? "%+" PRId64 : "%" PRId64, affine->base);
}

/* ---- atoms ----------------------------------------------------------------------------------- */

static const tocsin_plan_op *op_of(const struct printer *printer, const tocsin_atom *atom)
{
    if (!printer->plan || atom->op >= printer->plan->ops.count)
        return NULL;
    return &printer->plan->ops.items[atom->op];
}

static void write_atom(const struct printer *printer, tocsin_atom_id id, int depth);

/* An operand by its atoms alone. */
static void write_operand(const struct printer *printer, tocsin_relation_id id, int depth)
{
    const tocsin_relation *relation = tocsin_relation_get(printer->universe, id);
    while (relation->segmented)
        relation = tocsin_relation_get(printer->universe, relation->segments[0]);
    if (relation->count == 0)
        write_text(printer, "0");
    for (uint32_t k = 0; k < relation->count && k < OPERANDS_SHOWN_MAX; ++k) {
        write_text(printer, k ? " + " : "");
        write_atom(printer, relation->terms[k].atom, depth);
    }
    if (relation->count > OPERANDS_SHOWN_MAX)
        write_text(printer, " + ...");
}

static void write_call(const struct printer *printer, const tocsin_atom *atom, int depth)
{
    const tocsin_plan_op *op = op_of(printer, atom);
    const char *label = op ? tocsin_plan_text(printer->plan, op->label) : "";
    write_text(printer, *label ? label : tocsin_universe_text(printer->universe, atom->name));
    if (!*label && atom->kind == TOCSIN_ATOM_CALL) {
        write_text(printer, "(");
        if (depth >= DEPTH_MAX && atom->operand_count > 0)
            write_text(printer, "...");
        for (uint32_t i = 0; depth < DEPTH_MAX && i < atom->operand_count; ++i) {
            write_text(printer, i ? ", " : "");
            if (i == OPERANDS_SHOWN_MAX) {
                write_text(printer, "...");
                break;
            }
            write_operand(printer, atom->operands[i], depth + 1);
        }
        write_text(printer, ")");
    }
    if (atom->output > 0)
        tocsin_string_printf(printer->text, ".%u", atom->output);
}

static void write_atom(const struct printer *printer, tocsin_atom_id id, int depth)
{
    const tocsin_atom *atom = tocsin_atom_get(printer->universe, id);
    switch ((tocsin_atom_kind)atom->kind) {
    case TOCSIN_ATOM_INPUT:
        write_text(printer, tocsin_universe_text(printer->universe, atom->name));
        return;
    case TOCSIN_ATOM_ONE:
        write_text(printer, "1");
        return;
    case TOCSIN_ATOM_IOTA:
        write_text(printer, "arange");
        return;
    case TOCSIN_ATOM_CALL:
    case TOCSIN_ATOM_DEFINED:
        write_call(printer, atom, depth);
        return;
    }
}

/* The signature that the operator of the table was transferred with: the contractions are one. */
static const char *own_signature(tocsin_operator_code code)
{
    switch (code) {
    case TOCSIN_OPERATOR_LINEAR:
    case TOCSIN_OPERATOR_MM:
    case TOCSIN_OPERATOR_BMM:
        return tocsin_operators[TOCSIN_OPERATOR_MATMUL].signature;
    default:
        return code < TOCSIN_OPERATOR_COUNT ? tocsin_operators[code].signature : "";
    }
}

/* The axis of that index in the operator's signature, by name. */
static const char *signature_axis(const struct printer *printer, const tocsin_atom *atom,
                                  uint32_t axis, tocsin_signature *parsed)
{
    const tocsin_plan_op *op = op_of(printer, atom);
    if (!op)
        return NULL;
    const tocsin_signature *signature = parsed;
    if (op->signature < printer->plan->signatures.count) {
        signature = &printer->plan->signatures.items[op->signature];
    } else {
        const char *text = own_signature((tocsin_operator_code)op->code);
        if (!*text || tocsin_signature_parse(text, strlen(text), parsed, NULL) != TOCSIN_OK)
            return NULL;
    }
    return axis < signature->axis_count && signature->axis_name[axis][0]
               ? signature->axis_name[axis]
               : NULL;
}

static void write_axis(const struct printer *printer, const tocsin_box_entry *entry)
{
    tocsin_signature parsed;
    const tocsin_atom *atom = tocsin_atom_get(printer->universe, entry->atom);
    const char *name = signature_axis(printer, atom, entry->axis, &parsed);
    if (name)
        write_text(printer, name);
    else
        tocsin_string_printf(printer->text, "axis %u", entry->axis);
}

/* ---- terms ----------------------------------------------------------------------------------- */

static void write_range(const struct printer *printer, const tocsin_affine *start, int64_t count)
{
    write_affine(printer, start);
    if (tocsin_affine_is_constant(start))
        tocsin_string_printf(printer->text, ":%" PRId64, start->base + count);
    else
        tocsin_string_printf(printer->text, ":+%" PRId64, count);
}

/* "axis1/64%8 ", or nothing when it goes without saying. */
static void write_position(const struct printer *printer, const tocsin_atom *atom,
                           const tocsin_digit *digit, uint32_t dim)
{
    int64_t size = digit->axis < atom->ndim ? atom->shape[digit->axis] : 0;
    bool divided = digit->stride != 1, cut = digit->extent < size / digit->stride;
    if (digit->axis == dim && !divided && !cut)
        return;
    tocsin_string_printf(printer->text, "axis%u", digit->axis);
    if (divided)
        tocsin_string_printf(printer->text, "/%" PRId64, digit->stride);
    if (cut)
        tocsin_string_printf(printer->text, "%%%" PRId64, digit->extent);
    write_text(printer, " ");
}

static void write_dim(const struct printer *printer, const tocsin_term *term,
                      const tocsin_digit *digits, uint32_t dim)
{
    const tocsin_atom *atom = tocsin_atom_get(printer->universe, term->atom);
    uint32_t count = term->digit_count[dim];
    write_text(printer, count == 0 ? "0:1" : count > 1 ? "(" : "");
    for (uint32_t i = 0; i < count && !is_full(printer); ++i) {
        write_text(printer, i ? ", " : "");
        if (digits[i].axis == TOCSIN_DIGIT_BROADCAST) {
            tocsin_string_printf(printer->text, "*%" PRId64, digits[i].count);
            continue;
        }
        write_position(printer, atom, &digits[i], dim);
        write_range(printer, &digits[i].start, digits[i].count);
    }
    write_text(printer, count > 1 ? ")" : "");
}

static void write_map(const struct printer *printer, const tocsin_term *term, uint8_t ndim)
{
    const tocsin_atom *atom = tocsin_atom_get(printer->universe, term->atom);
    const tocsin_digit *digits = term->digits;
    write_text(printer, "[");
    for (uint32_t dim = 0; dim < ndim && !is_full(printer); ++dim) {
        write_text(printer, dim ? ", " : "");
        write_dim(printer, term, digits, dim);
        digits += term->digit_count[dim];
    }
    const tocsin_digit *pinned = term->digits + term->digit_total;
    for (uint32_t i = 0; i < term->pinned_count && !is_full(printer); ++i) {
        write_text(printer, i ? ", " : "; ");
        write_position(printer, atom, &pinned[i], UINT32_MAX);
        write_affine(printer, &pinned[i].start);
    }
    write_text(printer, "]");
}

static void write_box(const struct printer *printer, const tocsin_term *term)
{
    for (uint32_t i = 0; i < term->box_count && !is_full(printer); ++i) {
        const tocsin_box_entry *entry = &term->box[i];
        write_text(printer, i ? ", " : entry->kind == TOCSIN_BOX_SUM ? " partial " : " ");
        write_text(printer, entry->kind == TOCSIN_BOX_MAX ? "maximum over " : "");
        if (entry->atom != term->atom) {
            write_atom(printer, entry->atom, DEPTH_MAX);
            write_text(printer, "'s ");
        }
        write_axis(printer, entry);
        if (entry->stride != 1)
            tocsin_string_printf(printer->text, "/%" PRId64, entry->stride);
        write_text(printer, " in [");
        write_affine(printer, &entry->start);
        if (tocsin_affine_is_constant(&entry->start))
            tocsin_string_printf(printer->text, ",%" PRId64, entry->start.base + entry->count);
        else
            tocsin_string_printf(printer->text, ",+%" PRId64, entry->count);
        tocsin_string_printf(printer->text, ") of %" PRId64, entry->extent);
    }
}

static void write_term(const struct printer *printer, const tocsin_term *term, uint8_t ndim)
{
    bool constant = term->atom == TOCSIN_ATOM_ID_ONE;
    if (term->factor != 0 || constant)
        tocsin_factor_text(printer->universe, term->factor, printer->text);
    if (!constant) {
        write_text(printer, term->factor != 0 ? " * " : "");
        write_atom(printer, term->atom, 0);
    }
    write_map(printer, term, ndim);
    write_box(printer, term);
}

static void write_relation(const struct printer *printer, tocsin_relation_id id, int depth)
{
    const tocsin_relation *relation = tocsin_relation_get(printer->universe, id);
    if (relation->segmented && depth > DEPTH_MAX) {
        write_text(printer, "...");
        return;
    }
    if (relation->segmented)
        tocsin_string_printf(printer->text, "cat along dim %" PRIu32 " of (",
                             relation->segment_dim);
    else if (relation->count == 0)
        write_text(printer, "0");
    for (uint32_t k = 0; k < relation->count && !is_full(printer); ++k) {
        write_text(printer, k == 0 ? "" : relation->segmented ? " | " : " + ");
        if (relation->segmented)
            write_relation(printer, relation->segments[k], depth + 1);
        else
            write_term(printer, &relation->terms[k], relation->ndim);
    }
    write_text(printer, relation->segmented ? ")" : "");
}

void tocsin_relation_text(const tocsin_universe *universe, const tocsin_plan *logical,
                          tocsin_relation_id relation, tocsin_string *text, size_t limit_bytes)
{
    static const char ellipsis[] = "...";
    assert(limit_bytes >= sizeof ellipsis);
    const struct printer printer = {universe, logical, text, text->bytes + limit_bytes};
    write_relation(&printer, relation, 0);
    if (text->status == TOCSIN_OK && text->bytes > printer.end_bytes) {
        text->bytes = printer.end_bytes - strlen(ellipsis);
        while (text->bytes > 0 && ((unsigned char)text->text[text->bytes] & 0xC0) == 0x80)
            --text->bytes; /* not within a character */
        tocsin_string_append_text(text, ellipsis);
    }
}

void tocsin_atom_text(const tocsin_universe *universe, const tocsin_plan *logical,
                      tocsin_atom_id atom, tocsin_string *text)
{
    const struct printer printer = {universe, logical, text, SIZE_MAX};
    write_atom(&printer, atom, 0);
}

/* What was written into `text`, cut, into `name`; names are for people, so out of memory is "". */
static const char *cut_name(tocsin_string *text, char name[TOCSIN_NAME_BYTES])
{
    size_t bytes = text->bytes < TOCSIN_NAME_BYTES - 1 ? text->bytes : TOCSIN_NAME_BYTES - 1;
    memcpy(name, tocsin_string_text(text), bytes);
    name[bytes] = 0;
    tocsin_string_free(text);
    return name;
}

const char *tocsin_atom_name(const tocsin_universe *universe, tocsin_atom_id atom,
                             char name[TOCSIN_NAME_BYTES])
{
    tocsin_string text = {0};
    tocsin_atom_text(universe, universe->plan, atom, &text);
    return cut_name(&text, name);
}

const char *tocsin_axis_name(const tocsin_universe *universe, const tocsin_box_entry *entry,
                             char name[TOCSIN_NAME_BYTES])
{
    tocsin_string text = {0};
    const struct printer printer = {universe, universe->plan, &text, SIZE_MAX};
    write_axis(&printer, entry);
    return cut_name(&text, name);
}
