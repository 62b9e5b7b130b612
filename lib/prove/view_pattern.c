/* view_pattern.c - how the logical model's views lay digits out, so that a rank's views do
 * likewise.
 *
 * Local sizes do not say where a digit of count 1 belongs: [1 S H] viewed as [1 S H] may stand for
 * [B S H] viewed as [1 B*S H]. Any place is right; the one that the logical view of the same digits
 * chose is useful, since only then the value is a slice of the logical one.
 *
 * A pattern is kept for each term of each logical view: every digit that it had, and the digits it
 * became with their new dims. It is found by the atom, the positions (axis, stride, extent) and
 * dims of the digits, ranges and repetitions left aside, and is followed when the local digits can
 * be cut up like the logical ones and make up the local shape.
 *
 * Cost: one look-up for a view that is ambiguous; patterns are few.
 */
#include "prove/layout.h"

#include <assert.h>

/* One digit after the view. */
struct view_part {
    uint32_t axis;
    uint32_t dim; /* new */
    int64_t extent;
    uint32_t from; /* index of the digit before */
    uint32_t from_dim;
};

struct tocsin_view_pattern {
    const struct tocsin_view_pattern *next; /* of the same key */
    uint32_t count;
    struct view_part parts[];
};

struct view_key {
    tocsin_atom_id atom;
    uint16_t from_ndim, to_ndim;
    struct {
        uint32_t axis, dim;
        int64_t stride, extent;
    } digits[TOCSIN_DRAFT_DIGITS_MAX];
};
enum { KEY_HEAD_BYTES = offsetof(struct view_key, digits) };

/* The bytes of the key; 0: too many digits. */
static size_t make_key(const tocsin_relation *relation, const tocsin_term *term, uint8_t ndim,
                       struct view_key *key)
{
    const tocsin_digit *digit = term->digits;
    uint32_t count = 0;

    if (term->digit_total > TOCSIN_DRAFT_DIGITS_MAX)
        return 0;
    key->atom = term->atom;
    key->from_ndim = relation->ndim;
    key->to_ndim = ndim;
    for (uint8_t d = 0; d < relation->ndim; d++) {
        for (uint8_t i = 0; i < term->digit_count[d]; i++, digit++) {
            if (digit->axis == TOCSIN_DIGIT_BROADCAST)
                continue;
            key->digits[count].axis = digit->axis;
            key->digits[count].dim = d;
            key->digits[count].stride = digit->stride;
            key->digits[count++].extent = digit->extent;
        }
    }
    return KEY_HEAD_BYTES + count * sizeof key->digits[0];
}

static int64_t extent_of(const tocsin_digit *digit)
{
    return digit->axis == TOCSIN_DIGIT_BROADCAST ? digit->count : digit->extent;
}

static void fill_pattern(struct tocsin_view_pattern *pattern, const tocsin_relation *relation,
                         const tocsin_term *term, const tocsin_draft *draft)
{
    uint32_t part = 0, index = 0, to = 0, to_end = draft->digit_count[0];

    for (uint32_t d = 0; d < relation->ndim; d++) {
        for (uint8_t i = 0; i < term->digit_count[d]; i++, index++) {
            const tocsin_digit *digit = &term->digits[index];
            for (int64_t left = extent_of(digit); left > 1; part++) {
                const tocsin_digit *made = &draft->digits[part];
                assert(part < draft->total && made->axis == digit->axis);
                while (part >= to_end)
                    to_end += draft->digit_count[++to];
                assert(left % extent_of(made) == 0);
                left /= extent_of(made);
                pattern->parts[part] = (struct view_part){.axis = made->axis,
                                                          .dim = to,
                                                          .extent = extent_of(made),
                                                          .from = index,
                                                          .from_dim = d};
            }
        }
    }
    pattern->count = part;
}

bool tocsin_view_learn(tocsin_universe *universe, const tocsin_relation *relation,
                       const tocsin_term *term, const tocsin_draft *draft, uint8_t ndim)
{
    struct view_key key;
    const size_t bytes = make_key(relation, term, ndim, &key);

    if (ndim == 0 || bytes == 0 || draft->full)
        return true;
    const uint32_t id = tocsin_intern_put(&universe->view_keys, &key, bytes);
    struct tocsin_view_pattern *pattern = tocsin_arena_alloc(
        &universe->arena, sizeof *pattern + draft->total * sizeof pattern->parts[0],
        _Alignof(struct tocsin_view_pattern));
    if (id == 0 || pattern == NULL ||
        (id > universe->view_patterns.count && !TOCSIN_VEC_PUSH(&universe->view_patterns, NULL)))
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY) != 0;
    fill_pattern(pattern, relation, term, draft);
    for (const struct tocsin_view_pattern *other = universe->view_patterns.items[id - 1];
         other != NULL; other = other->next)
        if (other->count == pattern->count &&
            memcmp(other->parts, pattern->parts, pattern->count * sizeof pattern->parts[0]) == 0)
            return true;
    pattern->next = universe->view_patterns.items[id - 1];
    universe->view_patterns.items[id - 1] = pattern;
    return true;
}

/* Cut `digit` up like the digit that became parts[0 .. count - 1]. */
static bool follow_digit(tocsin_universe *universe, const tocsin_digit *digit,
                         const struct view_part *parts, uint32_t count, tocsin_draft *draft)
{
    tocsin_digit whole[TOCSIN_DIGITS_MAX];
    const uint32_t before = draft->total;
    int64_t stride = digit->stride, where;

    if (count > TOCSIN_DIGITS_MAX)
        return false;
    for (uint32_t i = count; i-- > 0;) {
        whole[i] = (tocsin_digit){.axis = digit->axis,
                                  .stride = stride,
                                  .extent = parts[i].extent,
                                  .count = parts[i].extent};
        stride *= parts[i].extent;
    }
    if (digit->axis == TOCSIN_DIGIT_BROADCAST) {
        if (count > 1)
            return false; /* which repetitions they are is not known */
        whole[0].stride = 1;
        whole[0].extent = whole[0].count = digit->count;
        tocsin_draft_push(draft, &whole[0]);
    } else if (tocsin_digits_cut(whole, count, digit->start, digit->count, universe->symbol_size,
                                 draft, &where) != TOCSIN_CUT_DONE) {
        return false;
    }
    for (uint32_t i = 0; i < count && !draft->full; i++)
        draft->digit_count[parts[i].dim]++;
    return !draft->full && draft->total == before + count;
}

static bool follow(tocsin_universe *universe, const tocsin_relation *relation,
                   const tocsin_term *term, const struct tocsin_view_pattern *pattern,
                   const int64_t *shape, uint8_t ndim, tocsin_draft *draft)
{
    uint32_t part = 0, index = 0;

    draft->total = 0;
    draft->full = false;
    memset(draft->digit_count, 0, sizeof draft->digit_count);
    for (uint8_t d = 0; d < relation->ndim; d++) {
        for (uint8_t i = 0; i < term->digit_count[d]; i++, index++) {
            const bool repeats = term->digits[index].axis == TOCSIN_DIGIT_BROADCAST;
            while (!repeats && part < pattern->count &&
                   pattern->parts[part].axis == TOCSIN_DIGIT_BROADCAST)
                part++; /* repeated in the logical model, one element here */
            if (part == pattern->count || pattern->parts[part].from_dim != d ||
                repeats != (pattern->parts[part].axis == TOCSIN_DIGIT_BROADCAST))
                return false;
            uint32_t end = part;
            while (end < pattern->count && pattern->parts[end].from == pattern->parts[part].from)
                end++;
            if (!follow_digit(universe, &term->digits[index], pattern->parts + part, end - part,
                              draft))
                return false;
            part = end;
        }
    }
    for (uint32_t d = 0, first = 0; d < ndim; first += draft->digit_count[d++]) {
        int64_t size = 1;
        for (uint32_t i = first; i < first + draft->digit_count[d]; i++)
            size *= draft->digits[i].count; /* divides the number of elements */
        if (size != shape[d])
            return false;
    }
    return true;
}

bool tocsin_view_follow(tocsin_universe *universe, const tocsin_relation *relation,
                        const tocsin_term *term, const int64_t *shape, uint8_t ndim,
                        tocsin_draft *draft)
{
    struct view_key key;
    const size_t bytes = make_key(relation, term, ndim, &key);
    const uint32_t id =
        bytes == 0 || ndim == 0 ? 0 : tocsin_intern_find(&universe->view_keys, &key, bytes);

    if (id == 0 || id > universe->view_patterns.count)
        return false;
    for (const struct tocsin_view_pattern *pattern = universe->view_patterns.items[id - 1];
         pattern != NULL; pattern = pattern->next)
        if (follow(universe, relation, term, pattern, shape, ndim, draft))
            return true;
    return false;
}
