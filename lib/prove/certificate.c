/* certificate.c - writes the facts of a finished proof: docs/formats/certificate.md.
 *
 * Only relations and atoms that some fact reaches are written, each once and before its use: an
 * atom is older than the relations that name it, and its operands are older than the atom. So a
 * walk over the atoms by age, each after its operands, needs no order of its own. Cost: linear in
 * what is written. Ids in the file are dense and count from 1; 0 is a value of which nothing is
 * known.
 */
#include "prove/certificate.h"

#include <assert.h>
#include <inttypes.h>

#include "prove/universe.h"

enum { FLUSH_BYTES = 1 << 16, NESTING_MAX = 64 };

typedef struct listing {
    const tocsin_prover *prover;
    const tocsin_universe *universe;
    uint32_t *relation; /* id -> id in the file; 0 not written; WANTED: it will be */
    uint32_t *atom;
    uint32_t relations, atoms; /* written */
    uint64_t unknown;
    tocsin_writer writer;
    tocsin_string text;
    tocsin_error *error;
} listing;

#define WANTED UINT32_MAX

/* ---- what is needed ---------------------------------------------------------------------------
 */

/* Mark a relation, its segments and atoms; the atoms' own operands are marked in want_operands. */
static void want_relation(listing *to, tocsin_relation_id id, int depth)
{
    const tocsin_relation *view = tocsin_relation_get(to->universe, id);
    assert(depth < NESTING_MAX); /* a segment has one dim fewer to be cut along */
    if (to->relation[id] == WANTED)
        return;
    to->relation[id] = WANTED;
    for (uint32_t k = 0; k < view->count; k++) {
        if (view->segmented) {
            want_relation(to, view->segments[k], depth + 1);
            continue;
        }
        to->atom[view->terms[k].atom] = WANTED;
        for (uint32_t b = 0; b < view->terms[k].box_count; b++)
            to->atom[view->terms[k].box[b].atom] = WANTED;
    }
}

/* From the youngest atom to the oldest: operands are older. */
static void want_operands(listing *to)
{
    for (uint32_t id = (uint32_t)to->universe->atoms.count; id > 0; id--) {
        const tocsin_atom *atom = tocsin_atom_get(to->universe, id);
        for (uint32_t k = 0; to->atom[id] == WANTED && k < atom->operand_count; k++)
            want_relation(to, atom->operands[k], 0);
    }
}

static uint32_t slot_count(const tocsin_run *run, const tocsin_unit *unit)
{
    return run->enumerate_microbatches ? unit->slots : 1;
}

static void want_facts(listing *to, const tocsin_run *run)
{
    for (uint32_t u = 0; u < run->units.count; u++) {
        const tocsin_unit *unit = &run->units.items[u];
        const size_t cells =
            (size_t)slot_count(run, unit) * run->plan->roles.items[unit->role].value_count;
        for (size_t k = 0; k < cells; k++)
            if (unit->values[k] != 0 && unit->values[k] != TOCSIN_POISON)
                want_relation(to, unit->values[k], 0);
    }
}

/* ---- pieces of a line ------------------------------------------------------------------------ */

static tocsin_status end_line(listing *to)
{
    tocsin_string_append_char(&to->text, '\n');
    if (to->text.bytes < FLUSH_BYTES)
        return TOCSIN_OK;
    TOCSIN_TRY(tocsin_string_check(&to->text, to->error));
    const tocsin_status status =
        tocsin_writer_write(&to->writer, to->text.text, to->text.bytes, to->error);
    tocsin_string_clear(&to->text);
    return status;
}

static void put_sizes(listing *to, const int64_t *sizes, uint32_t count)
{
    tocsin_string_append_char(&to->text, '[');
    for (uint32_t d = 0; d < count; d++)
        tocsin_string_printf(&to->text, d == 0 ? "%" PRId64 : ",%" PRId64, sizes[d]);
    tocsin_string_append_char(&to->text, ']');
}

/* A text in quotes; other bytes than printable ASCII as \xHH. */
static void put_quoted(listing *to, const char *text)
{
    tocsin_string_append_char(&to->text, '"');
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\')
            tocsin_string_printf(&to->text, "\\x%02x", byte);
        else
            tocsin_string_append_char(&to->text, *text);
    }
    tocsin_string_append_char(&to->text, '"');
}

static void put_range(listing *to, int64_t stride, int64_t extent, const tocsin_affine *start,
                      int64_t count)
{
    tocsin_string_printf(&to->text, ":%" PRId64 ":%" PRId64 ":%" PRId64, stride, extent,
                         start->base);
    if (start->weight[0] != 0 || start->weight[1] != 0)
        tocsin_string_printf(&to->text, ",%" PRId64 ",%" PRId64, start->weight[0],
                             start->weight[1]);
    tocsin_string_printf(&to->text, ":%" PRId64, count);
}

/* numerator/denominator, p and the exponent of two, then *BITS^EXPONENT of opaque constants. */
static void put_factor(listing *to, tocsin_factor_id factor)
{
    assert(factor < to->universe->factors.entries.count);
    const struct tocsin_word_entry *entry = &to->universe->factors.entries.items[factor];
    tocsin_string_printf(&to->text, "%" PRId64, (int64_t)entry->words[0]);
    if (entry->words[1] != 1)
        tocsin_string_printf(&to->text, "/%" PRId64, (int64_t)entry->words[1]);
    if (entry->words[2] != 0)
        tocsin_string_printf(&to->text, "p%" PRId64, (int64_t)entry->words[2]);
    for (uint32_t k = 3; k + 1 < entry->count; k += 2)
        tocsin_string_printf(&to->text, "*%016" PRIx64 "^%" PRId64, entry->words[k],
                             (int64_t)entry->words[k + 1]);
}

static void put_digit(listing *to, const tocsin_digit *digit)
{
    if (digit->axis == TOCSIN_DIGIT_BROADCAST) {
        tocsin_string_printf(&to->text, "*:%" PRId64, digit->count);
        return;
    }
    tocsin_string_printf(&to->text, "%" PRIu32, digit->axis);
    put_range(to, digit->stride, digit->extent, &digit->start, digit->count);
}

static void put_term(listing *to, const tocsin_term *term, uint32_t ndim)
{
    const tocsin_digit *digit = term->digits;
    put_factor(to, term->factor);
    tocsin_string_printf(&to->text, " a%" PRIu32, to->atom[term->atom]);
    for (uint32_t d = 0; d < ndim; d++) {
        tocsin_string_append_text(&to->text, " (");
        for (uint32_t k = 0; k < term->digit_count[d]; k++) {
            if (k > 0)
                tocsin_string_append_char(&to->text, ' ');
            put_digit(to, digit++);
        }
        tocsin_string_append_char(&to->text, ')');
    }
    for (uint32_t k = 0; k < term->pinned_count; k++) {
        tocsin_string_append_text(&to->text, " pin ");
        put_digit(to, digit++);
    }
    for (uint32_t b = 0; b < term->box_count; b++) {
        const tocsin_box_entry *entry = &term->box[b];
        tocsin_string_printf(&to->text, " %s a%" PRIu32 ".%u",
                             entry->kind == TOCSIN_BOX_MAX ? "max" : "sum", to->atom[entry->atom],
                             entry->axis);
        put_range(to, entry->stride, entry->extent, &entry->start, entry->count);
    }
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* Write a relation, its segments first. Its atoms have been written. */
static tocsin_status put_relation(listing *to, tocsin_relation_id id, int depth)
{
    const tocsin_relation *view = tocsin_relation_get(to->universe, id);
    if (to->relation[id] != WANTED)
        return TOCSIN_OK;
    assert(depth < NESTING_MAX);
    for (uint32_t k = 0; view->segmented && k < view->count; k++)
        TOCSIN_TRY(put_relation(to, view->segments[k], depth + 1));
    to->relation[id] = ++to->relations;
    tocsin_string_printf(&to->text, "relation r%" PRIu32 " ", to->relations);
    put_sizes(to, view->shape, view->ndim);
    if (view->segmented)
        tocsin_string_printf(&to->text, " cat %" PRIu32, view->segment_dim);
    else
        tocsin_string_append_text(&to->text, view->count == 0 ? " = 0" : " =");
    for (uint32_t k = 0; k < view->count; k++) {
        if (view->segmented) {
            tocsin_string_printf(&to->text, " r%" PRIu32, to->relation[view->segments[k]]);
        } else {
            tocsin_string_append_text(&to->text, k > 0 ? " + " : " ");
            put_term(to, &view->terms[k], view->ndim);
        }
    }
    return end_line(to);
}

static tocsin_status put_atom(listing *to, tocsin_atom_id id)
{
    const tocsin_atom *atom = tocsin_atom_get(to->universe, id);
    for (uint32_t k = 0; k < atom->operand_count; k++)
        TOCSIN_TRY(put_relation(to, atom->operands[k], 0));
    to->atom[id] = ++to->atoms;
    tocsin_string_printf(&to->text, "atom a%" PRIu32 " ", to->atoms);
    switch ((tocsin_atom_kind)atom->kind) {
    case TOCSIN_ATOM_ONE:
        tocsin_string_append_text(&to->text, "one");
        break;
    case TOCSIN_ATOM_IOTA:
        tocsin_string_append_text(&to->text, "iota");
        break;
    case TOCSIN_ATOM_INPUT:
        tocsin_string_append_text(&to->text, "input ");
        put_quoted(to, tocsin_universe_text(to->universe, atom->name));
        break;
    case TOCSIN_ATOM_DEFINED:
        tocsin_string_append_text(&to->text, "defined");
        break;
    case TOCSIN_ATOM_CALL:
        tocsin_string_append_text(&to->text, "call ");
        put_quoted(to, tocsin_intern_text(&to->prover->kind_texts, atom->operator_key, NULL));
        tocsin_string_printf(&to->text, " %u ", atom->output);
        put_sizes(to, atom->shape, atom->ndim);
        break;
    }
    for (uint32_t k = 0; k < atom->operand_count; k++)
        tocsin_string_printf(&to->text, " r%" PRIu32, to->relation[atom->operands[k]]);
    return end_line(to);
}

static tocsin_status put_tables(listing *to)
{
    for (uint32_t id = 1; id <= to->universe->atoms.count; id++)
        if (to->atom[id] == WANTED)
            TOCSIN_TRY(put_atom(to, id));
    for (uint32_t id = 1; id <= to->universe->relations.count; id++)
        TOCSIN_TRY(put_relation(to, id, 0));
    return TOCSIN_OK;
}

/* ---- the facts ------------------------------------------------------------------------------- */

static tocsin_status put_facts(listing *to, const tocsin_run *run)
{
    for (uint32_t u = 0; u < run->units.count; u++) {
        const tocsin_unit *unit = &run->units.items[u];
        const tocsin_plan_role *role = &run->plan->roles.items[unit->role];
        for (uint32_t slot = 0; slot < slot_count(run, unit); slot++) {
            tocsin_string_printf(&to->text, "facts %s %" PRIu32 " %" PRIu32,
                                 run->side == TOCSIN_LOGICAL ? "logical" : "parallel", u, slot);
            for (uint32_t v = 0; v < role->value_count; v++) {
                const tocsin_relation_id id = unit->values[(size_t)slot * role->value_count + v];
                if (slot > 0 && run->plan->values.items[role->first_value + v].persistent)
                    continue; /* it stands in slot 0 */
                const bool known = id != 0 && id != TOCSIN_POISON;
                to->unknown += !known;
                tocsin_string_printf(&to->text, " %" PRIu32, known ? to->relation[id] : 0);
            }
            TOCSIN_TRY(end_line(to));
        }
    }
    return TOCSIN_OK;
}

static tocsin_status put_head(listing *to, const tocsin_run *parallel)
{
    static const char *const names[2] = {"logical", "parallel"};
    tocsin_string_append_text(&to->text, "tocsin-certificate 1\n");
    for (int side = 0; side < 2; side++) {
        tocsin_hash128 digest;
        TOCSIN_TRY(tocsin_plan_digest(to->prover->plan[side], &digest, to->error));
        tocsin_string_printf(&to->text, "%s %016" PRIx64 "%016" PRIx64 "\n", names[side],
                             digest.high, digest.low);
    }
    tocsin_string_printf(&to->text, "replicas %s\nmicrobatches %s",
                         parallel->enumerate_replicas ? "each" : "all",
                         parallel->enumerate_microbatches ? "each" : "all");
    return end_line(to);
}

static tocsin_status put_all(listing *to, const tocsin_run *logical, const tocsin_run *parallel,
                             const tocsin_comparison *comparison)
{
    want_facts(to, logical);
    want_facts(to, parallel);
    for (size_t k = 0; k < comparison->checks.count; k++)
        want_relation(to, comparison->checks.items[k].relation, 0);
    want_operands(to);
    TOCSIN_TRY(put_head(to, parallel));
    TOCSIN_TRY(put_tables(to));
    TOCSIN_TRY(put_facts(to, logical));
    TOCSIN_TRY(put_facts(to, parallel));
    for (size_t k = 0; k < comparison->checks.count; k++) {
        const tocsin_check *check = &comparison->checks.items[k];
        assert(check->status == TOCSIN_CHECK_EQUAL);
        tocsin_string_printf(&to->text, "output %" PRIu32 " %" PRIu32 " %" PRIu32 " r%" PRIu32,
                             check->unit, check->slot, check->output,
                             to->relation[check->relation]);
        TOCSIN_TRY(end_line(to));
    }
    tocsin_string_printf(&to->text, "unknown %" PRIu64 "\nend", to->unknown);
    TOCSIN_TRY(end_line(to));
    TOCSIN_TRY(tocsin_string_check(&to->text, to->error));
    return tocsin_writer_write(&to->writer, tocsin_string_text(&to->text), to->text.bytes,
                               to->error);
}

tocsin_status tocsin_certificate_write(const tocsin_run *logical, const tocsin_run *parallel,
                                       const tocsin_comparison *comparison, const char *path,
                                       tocsin_error *error)
{
    const tocsin_universe *universe = parallel->prover->universe;
    listing to = {.prover = parallel->prover, .universe = universe, .error = error};

    assert(logical->side == TOCSIN_LOGICAL && parallel->side == TOCSIN_PARALLEL);
    TOCSIN_TRY(tocsin_writer_open(&to.writer, path, true, error));
    to.relation = tocsin_zalloc(universe->relations.count + 1, sizeof to.relation[0]);
    to.atom = tocsin_zalloc(universe->atoms.count + 1, sizeof to.atom[0]);
    tocsin_status status = to.relation == NULL || to.atom == NULL
                               ? tocsin_error_memory(error)
                               : put_all(&to, logical, parallel, comparison);
    if (status == TOCSIN_OK)
        status = tocsin_writer_commit(&to.writer, error);
    else
        tocsin_writer_abandon(&to.writer);
    tocsin_string_free(&to.text);
    tocsin_free(to.relation);
    tocsin_free(to.atom);
    return status;
}
