/* lib/align/mapping.c - a step's boundaries by a map of names.
 *
 * What a name is by the map is looked up once. A boundary of one part takes the name of the whole.
 * Boundaries of several parts, read at one point, are put together: the digest of a tensor that
 * consists of others along axis 0 is the sum of theirs, each shifted by the words before it. Of b,
 * boundaries of one point are then put in the order of a: they have none of their own, and two
 * frameworks define their parameters in different order.
 *
 * Invariant: an item made here stands for boundaries whose words are exactly the words of the
 * tensor that bears the name; where that is not sure it has no value.
 * Cost: linear in the boundaries of the step, but for a sort of each point.
 */
#include "align/mapping.h"

#include <assert.h>
#include <stdlib.h>

typedef struct resolved_name {
    uint32_t whole; /* text */
    tocsin_map_place place;
} resolved_name;

typedef struct joined_boundary { /* one that is being put together */
    uint32_t whole;              /* its name */
    uint32_t at;                 /* in the mapped stream */
    uint32_t point_of;           /* the first part's boundary */
    uint32_t pieces;             /* recorded as pieces of the whole: */
    uint32_t cuts[TOCSIN_MAP_PARTS_MAX];
    uint32_t seen;                        /* parts, as bits */
    uint32_t parts[TOCSIN_MAP_PARTS_MAX]; /* boundaries of the stream that is mapped */
    const tocsin_map_rule *rule;
} joined_boundary;

typedef struct placed_item { /* for putting b in order */
    uint32_t key, at;
} placed_item;

struct tocsin_mapping {
    const tocsin_name_map *map;
    tocsin_intern *names;
    const tocsin_align_options *options;
    tocsin_map known; /* text of a name -> index in `resolved` + 1; 0: no rule names it */
    TOCSIN_VEC(resolved_name) resolved;
    TOCSIN_VEC(tocsin_map_use) uses; /* by rule */
    TOCSIN_VEC(joined_boundary) joined;
    tocsin_boundary_stream a, b;
    TOCSIN_VEC(uint32_t) origins; /* of a */
    TOCSIN_VEC(placed_item) order;
    tocsin_boundary_stream ordered;
    tocsin_arena arena; /* of the window */
    tocsin_string text;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* By the map; of "weight#exp_avg", what an optimizer keeps of a parameter, the part before #. The
 * name of the whole is left in mapping->text. */
static bool find_name(tocsin_mapping *mapping, const char *text, tocsin_map_place *place)
{
    const char *mark = strchr(text, '#');
    char name[1024];
    size_t bytes = mark ? (size_t)(mark - text) : strlen(text);
    if (bytes >= sizeof name)
        return false;
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    if (!tocsin_name_map_find(mapping->map, name, &mapping->text, place))
        return false;
    if (mark)
        tocsin_string_append_text(&mapping->text, mark);
    return true;
}

/* What a name is; *found NULL: no rule names it. false: out of memory. */
static bool resolve(tocsin_mapping *mapping, uint32_t name, const resolved_name **found)
{
    enum { UNNAMED = 1 };
    uint64_t *known = tocsin_map_at(&mapping->known, name);
    *found = NULL;
    if (!known)
        return false;
    if (*known == 0) {
        resolved_name one = {0};
        const char *text = tocsin_intern_text(mapping->names, name, NULL);
        *known = UNNAMED;
        if (text && find_name(mapping, text, &one.place)) {
            one.whole = mapping->text.status == TOCSIN_OK
                            ? tocsin_intern_put(mapping->names, tocsin_string_text(&mapping->text),
                                                mapping->text.bytes)
                            : 0;
            if (one.whole == 0 || !TOCSIN_VEC_PUSH(&mapping->resolved, one)) {
                *known = 0;
                return false;
            }
            *known = UNNAMED + mapping->resolved.count;
        }
        tocsin_string_clear(&mapping->text);
    }
    if (*known > UNNAMED)
        *found = &mapping->resolved.items[*known - UNNAMED - 1];
    return true;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool sizes_of(const tocsin_mapping *mapping, const tocsin_boundary *boundary,
                     int64_t sizes[TOCSIN_NDIM_MAX])
{
    size_t bytes = 0;
    const char *text =
        boundary->shape ? tocsin_intern_text(mapping->names, boundary->shape, &bytes) : NULL;
    if (!text || boundary->ndim > TOCSIN_NDIM_MAX || bytes != boundary->ndim * sizeof *sizes)
        return false;
    memcpy(sizes, text, bytes);
    return true;
}

/* Words of one row. */
static uint64_t row_words(const int64_t *sizes, uint32_t ndim, uint8_t dtype)
{
    size_t bytes = tocsin_dtype_bytes((tocsin_dtype)dtype);
    uint64_t words = bytes > 4 ? bytes / 4 : 1;
    for (uint32_t axis = 1; axis < ndim; ++axis)
        words *= (uint64_t)sizes[axis];
    return words;
}

/* ---- putting parts together ------------------------------------------------------------------ */

static bool push(tocsin_boundary_stream *stream, const tocsin_boundary *boundary,
                 tocsin_align_item item)
{
    return TOCSIN_VEC_PUSH(&stream->items, item) && TOCSIN_VEC_PUSH(&stream->boundaries, *boundary);
}

/* Give the boundary at `at` its item again. `alone`: nothing of another name may be its partner. */
static bool make_item(tocsin_mapping *mapping, tocsin_boundary_stream *stream, uint32_t at,
                      bool alone)
{
    const tocsin_boundary *boundary = &stream->boundaries.items[at];
    tocsin_align_item *item = &stream->items.items[at];
    uint32_t symbol = tocsin_boundary_symbol(boundary, mapping->names);
    if (!tocsin_boundary_make_item(boundary, mapping->options, mapping->names, symbol, item))
        return false;
    if (alone)
        item->form = item->symbol;
    return true;
}

/* The one to which a boundary belongs, NULL: none yet. */
static joined_boundary *find_joined(tocsin_mapping *mapping, const tocsin_boundary_stream *of,
                                    const tocsin_boundary *boundary, const resolved_name *name)
{
    for (size_t k = mapping->joined.count; k-- > 0;) {
        joined_boundary *joined = &mapping->joined.items[k];
        const tocsin_boundary *first = &of->boundaries.items[joined->point_of];
        if (first->point != boundary->point)
            return NULL; /* points do not come again */
        bool taken = boundary->cut ? joined->pieces == joined->rule->parts
                                   : joined->seen >> name->place.part & 1;
        if (joined->whole == name->whole && first->attribute == boundary->attribute && !taken)
            return joined;
    }
    return NULL;
}

/* A part of a whole, or a piece. */
static bool add_part(tocsin_mapping *mapping, const tocsin_boundary_stream *from, uint32_t at,
                     tocsin_boundary_stream *to, const resolved_name *name)
{
    const tocsin_boundary *boundary = &from->boundaries.items[at];
    joined_boundary *joined = find_joined(mapping, from, boundary, name);
    if (!joined) {
        tocsin_boundary whole = *boundary;
        whole.name = name->whole;
        whole.digested = whole.cut = false;
        whole.shards = NULL; /* of one part, as the tiles are */
        whole.shard_count = 0;
        whole.tiles = whole.last_tile = NULL;
        whole.tile_count = 0;
        joined_boundary fresh = {.whole = name->whole,
                                 .at = (uint32_t)to->items.count,
                                 .point_of = at,
                                 .rule = name->place.rule};
        if (!push(to, &whole, (tocsin_align_item){0}) || !TOCSIN_VEC_PUSH(&mapping->joined, fresh))
            return false;
        joined = &mapping->joined.items[mapping->joined.count - 1];
    }
    if (boundary->cut) {
        joined->cuts[joined->pieces++] = at;
        return true;
    }
    joined->seen |= UINT32_C(1) << name->place.part;
    joined->parts[name->place.part] = at;
    return true;
}

static bool complete(const joined_boundary *joined)
{
    return joined->seen == (UINT32_C(1) << joined->rule->parts) - 1;
}

/* How many parts are there and, of these, digested? */
static uint32_t count_parts(const tocsin_boundary_stream *from, const joined_boundary *joined,
                            uint32_t *digested)
{
    uint32_t present = 0;
    *digested = 0;
    for (uint32_t part = 0; part < joined->rule->parts; ++part) {
        const tocsin_boundary *boundary = &from->boundaries.items[joined->parts[part]];
        bool seen = joined->seen >> part & 1;
        present += seen && boundary->present;
        *digested += seen && boundary->present && boundary->digested;
    }
    return present;
}

static bool same_text(const tocsin_boundary *a, const tocsin_boundary *b)
{
    return a->text && b->text ? strcmp(a->text, b->text) == 0 : a->text == b->text;
}

/* Have all parts a digest, and do they fit together? *rows is their sum. */
static bool fit_together(const tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                         const joined_boundary *joined, int64_t *rows)
{
    int64_t sizes[TOCSIN_NDIM_MAX], first_sizes[TOCSIN_NDIM_MAX];
    const tocsin_boundary *first = &from->boundaries.items[joined->parts[0]];
    *rows = 0;
    if (!complete(joined) || first->ndim == 0 || !sizes_of(mapping, first, first_sizes))
        return false;
    for (uint32_t part = 0; part < joined->rule->parts; ++part) {
        const tocsin_boundary *boundary = &from->boundaries.items[joined->parts[part]];
        if (!boundary->digested || boundary->whole || !same_text(boundary, first) ||
            boundary->dtype != first->dtype || boundary->ndim != first->ndim ||
            !sizes_of(mapping, boundary, sizes) ||
            memcmp(sizes + 1, first_sizes + 1, (first->ndim - 1) * sizeof *sizes) != 0 ||
            sizes[0] > INT64_MAX / 2 - *rows)
            return false;
        *rows += sizes[0];
    }
    return true;
}

/* What has no axis, as the number of steps, cannot be joined: it is that of every part. */
static bool all_same(const tocsin_boundary_stream *from, const joined_boundary *joined)
{
    const tocsin_align_item *first = &from->items.items[joined->parts[0]];
    bool same = complete(joined) && first->value != 0;
    for (uint32_t part = 0; same && part < joined->rule->parts; ++part)
        same = from->boundaries.items[joined->parts[part]].ndim == 0 &&
               from->items.items[joined->parts[part]].value == first->value;
    return same;
}

static tocsin_map_use *use_of(tocsin_mapping *mapping, const tocsin_map_rule *rule)
{
    return &mapping->uses.items[rule - tocsin_name_map_rule(mapping->map, 0)];
}

/* The digest of the whole, and what its parts are. false: out of memory. */
static bool join(tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                 const joined_boundary *joined, int64_t rows, tocsin_boundary *whole)
{
    int64_t sizes[TOCSIN_NDIM_MAX];
    uint32_t count = joined->rule->parts;
    tocsin_boundary_part *parts = TOCSIN_ARENA_ARRAY(&mapping->arena, tocsin_boundary_part, count);
    if (!parts)
        return false;
    whole->digest = (tocsin_digest){0};
    whole->statistics = (tocsin_statistics){0};
    int64_t begin = 0;
    for (uint32_t part = 0; part < count; ++part) {
        const tocsin_boundary *boundary = &from->boundaries.items[joined->parts[part]];
        sizes_of(mapping, boundary, sizes);
        uint64_t words = row_words(sizes, boundary->ndim, boundary->dtype) * (uint64_t)begin;
        parts[part] =
            (tocsin_boundary_part){.name = boundary->name, .begin = begin, .rows = sizes[0]};
        whole->digest =
            tocsin_digest_merge(whole->digest, tocsin_digest_shift(boundary->digest, words));
        whole->statistics = tocsin_statistics_merge(whole->statistics, boundary->statistics);
        begin += sizes[0];
    }
    sizes[0] = rows;
    whole->shape = tocsin_intern_put(mapping->names, sizes, whole->ndim * sizeof *sizes);
    whole->digested = true;
    whole->parts = parts;
    whole->part_count = count;
    return whole->shape != 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

typedef struct piece { /* [groups, rows of a group, ...] */
    const tocsin_boundary *boundary;
    int64_t shape[TOCSIN_NDIM_MAX], whole[TOCSIN_NDIM_MAX], offset[TOCSIN_NDIM_MAX];
} piece;

static bool read_sizes(const tocsin_mapping *mapping, uint32_t text, uint32_t ndim, int64_t *sizes)
{
    size_t bytes = 0;
    const char *found = text ? tocsin_intern_text(mapping->names, text, &bytes) : NULL;
    if (!found || bytes != ndim * sizeof *sizes)
        return false;
    memcpy(sizes, found, bytes);
    return true;
}

static bool read_piece(const tocsin_mapping *mapping, const tocsin_boundary *boundary, piece *out)
{
    out->boundary = boundary;
    return boundary->digested && boundary->ndim >= 2 && boundary->ndim <= TOCSIN_NDIM_MAX &&
           read_sizes(mapping, boundary->shape, boundary->ndim, out->shape) &&
           read_sizes(mapping, boundary->whole, boundary->ndim, out->whole) &&
           read_sizes(mapping, boundary->offset, boundary->ndim, out->offset);
}

/* Is it some rows of each group, and all of the other axes? */
static bool is_rows(const piece *one)
{
    bool rows = one->offset[0] == 0 && one->shape[0] == one->whole[0] && one->whole[0] > 0 &&
                one->shape[1] > 0;
    for (uint32_t axis = 2; rows && axis < one->boundary->ndim; ++axis)
        rows = one->offset[axis] == 0 && one->shape[axis] == one->whole[axis];
    return rows;
}

/* The piece that begins at this row of each group. */
static bool find_piece(const tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                       const joined_boundary *joined, int64_t row, piece *found)
{
    for (uint32_t k = 0; k < joined->pieces; ++k) {
        if (read_piece(mapping, &from->boundaries.items[joined->cuts[k]], found) &&
            is_rows(found) && found->offset[1] == row)
            return true;
    }
    return false;
}

/* Find all pieces in order. false: they are not the whole. */
static bool order_pieces(const tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                         const joined_boundary *joined, tocsin_boundary *whole,
                         tocsin_boundary_part *parts, piece *last)
{
    int64_t row = 0;
    const tocsin_boundary *first = NULL;
    if (!complete(joined) || joined->pieces != joined->rule->parts)
        return false;
    for (uint32_t part = 0; part < joined->rule->parts; ++part) {
        if (!find_piece(mapping, from, joined, row, last))
            return false;
        first = first ? first : last->boundary;
        if (last->boundary->whole != first->whole || last->boundary->dtype != first->dtype)
            return false;
        parts[part] =
            (tocsin_boundary_part){.name = from->boundaries.items[joined->parts[part]].name,
                                   .begin = row,
                                   .rows = last->shape[1]};
        whole->digest = tocsin_digest_merge(whole->digest, last->boundary->digest);
        whole->statistics = tocsin_statistics_merge(whole->statistics, last->boundary->statistics);
        row += last->shape[1];
    }
    return row == last->whole[1] && last->whole[0] <= INT64_MAX / row;
}

/* Pieces that alternate by group and are all of the whole. *joins false: they are not. */
static bool join_pieces(tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                        const joined_boundary *joined, tocsin_boundary *whole, bool *joins)
{
    piece last;
    tocsin_boundary joint = *whole;
    tocsin_boundary_part *parts =
        TOCSIN_ARENA_ARRAY(&mapping->arena, tocsin_boundary_part, joined->rule->parts);
    if (!parts)
        return false;
    joint.digest = (tocsin_digest){0};
    joint.statistics = (tocsin_statistics){0};
    *joins = order_pieces(mapping, from, joined, &joint, parts, &last);
    if (!*joins)
        return true;
    joint.group_rows = last.whole[1];
    last.whole[1] *= last.whole[0];
    joint.ndim = (uint8_t)(last.boundary->ndim - 1);
    joint.shape =
        tocsin_intern_put(mapping->names, last.whole + 1, joint.ndim * sizeof *last.whole);
    joint.digested = true;
    joint.parts = parts;
    joint.part_count = joined->rule->parts;
    *whole = joint;
    return joint.shape != 0;
}

/* The one part as it was recorded with its axes exchanged. */
static bool exchange(tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                     const joined_boundary *joined, tocsin_boundary *whole, bool *joins)
{
    *joins =
        complete(joined) && joined->pieces == 1 && from->boundaries.items[joined->cuts[0]].digested;
    if (!*joins)
        return true;
    const tocsin_boundary *cut = &from->boundaries.items[joined->cuts[0]];
    tocsin_boundary_part *part = TOCSIN_ARENA_NEW(&mapping->arena, tocsin_boundary_part);
    if (!part)
        return false;
    *part = (tocsin_boundary_part){.name = from->boundaries.items[joined->parts[0]].name};
    whole->ndim = cut->ndim;
    whole->shape = cut->shape;
    whole->digest = cut->digest;
    whole->statistics = cut->statistics;
    whole->digested = whole->exchanged = true;
    whole->parts = part;
    whole->part_count = 1;
    return true;
}

/* Make the whole what its parts are, if they are all of it. false: out of memory. */
static bool put_together(tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                         const joined_boundary *joined, tocsin_boundary *whole, bool *joins)
{
    int64_t rows;
    switch (joined->rule->layout) {
    case TOCSIN_MAP_JOINED:
        *joins = fit_together(mapping, from, joined, &rows);
        return !*joins || join(mapping, from, joined, rows, whole);
    case TOCSIN_MAP_INTERLEAVED:
        return join_pieces(mapping, from, joined, whole, joins);
    case TOCSIN_MAP_TRANSPOSED:
        return exchange(mapping, from, joined, whole, joins);
    }
    return true;
}

static bool finish_joined(tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                          tocsin_boundary_stream *to)
{
    for (size_t k = 0; k < mapping->joined.count; ++k) {
        const joined_boundary *joined = &mapping->joined.items[k];
        tocsin_boundary *whole = &to->boundaries.items[joined->at];
        uint32_t digested, present = count_parts(from, joined, &digested);
        bool joins = all_same(from, joined);
        if (joins)
            whole->digested = digested > 0;
        else if (digested > 0 && !put_together(mapping, from, joined, whole, &joins))
            return false;
        if (!joins) {
            tocsin_map_use *use = use_of(mapping, joined->rule);
            *(joined->rule->layout == TOCSIN_MAP_JOINED ? &use->incomplete : &use->layout) +=
                digested > 0;
            whole->present = present > 0 || !complete(joined);
            whole->text = NULL;
        }
        if (!make_item(mapping, to, joined->at, true))
            return false;
    }
    return true;
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* A boundary that one rule names alone, on either side. */
static bool add_renamed(tocsin_mapping *mapping, const tocsin_boundary *boundary,
                        tocsin_boundary_stream *to, const resolved_name *name)
{
    tocsin_boundary renamed = *boundary;
    bool whole = name->place.part == TOCSIN_MAP_PARTS_MAX;
    renamed.name = name->whole;
    renamed.own = whole ? 0 : boundary->name;
    return push(to, &renamed, (tocsin_align_item){0}) &&
           make_item(mapping, to, (uint32_t)to->items.count - 1, true);
}

/* Can it be compared only together with others, or in another order of its words? */
static bool is_part(const tocsin_boundary *boundary, const resolved_name *name)
{
    const tocsin_map_rule *rule = name->place.rule;
    if (name->place.part == TOCSIN_MAP_PARTS_MAX)
        return false;
    return rule->parts > 1 || rule->layout == TOCSIN_MAP_INTERLEAVED ||
           (rule->layout == TOCSIN_MAP_TRANSPOSED && boundary->ndim != 1);
}

static bool map_stream(tocsin_mapping *mapping, const tocsin_boundary_stream *from,
                       tocsin_boundary_stream *to)
{
    to->items.count = to->boundaries.count = 0;
    mapping->joined.count = 0;
    for (uint32_t at = 0; at < from->items.count; ++at) {
        const tocsin_boundary *boundary = &from->boundaries.items[at];
        const resolved_name *name;
        size_t count = to->items.count;
        if (!resolve(mapping, boundary->name, &name))
            return false;
        bool ok;
        if (!name || boundary->setting || boundary->generator) {
            tocsin_align_item item = from->items.items[at];
            item.form = item.symbol;
            ok = push(to, boundary, item);
        } else if (boundary->cut ? name->place.rule->layout != TOCSIN_MAP_JOINED
                                 : is_part(boundary, name)) {
            ok = add_part(mapping, from, at, to, name);
        } else {
            ok = add_renamed(mapping, boundary, to, name);
        }
        if (!ok || (to == &mapping->a && to->items.count > count &&
                    !TOCSIN_VEC_PUSH(&mapping->origins, at)))
            return false;
    }
    return finish_joined(mapping, from, to);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int order_placed(const void *left, const void *right)
{
    const placed_item *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

/* Put what b read at one point in the order of a. What a does not have stays behind its
 * predecessor. */
static bool order_points(tocsin_mapping *mapping)
{
    tocsin_map first = {0};
    const tocsin_boundary_stream *b = &mapping->b;
    bool ok = true;
    for (uint32_t i = (uint32_t)mapping->a.items.count; ok && i-- > 0;)
        ok = tocsin_map_put(&first, mapping->a.items.items[i].symbol, i + 1);
    mapping->order.count = 0;
    mapping->ordered.items.count = mapping->ordered.boundaries.count = 0;
    uint32_t key = 0;
    size_t begin = 0;
    for (uint32_t j = 0; ok && j < b->items.count; ++j) {
        const uint64_t *at = tocsin_map_find(&first, b->items.items[j].symbol);
        if (j > 0 && b->boundaries.items[j].point != b->boundaries.items[j - 1].point) {
            qsort(mapping->order.items + begin, mapping->order.count - begin, sizeof(placed_item),
                  order_placed);
            begin = mapping->order.count;
            key = 0;
        }
        key = at ? (uint32_t)*at : key;
        ok = TOCSIN_VEC_PUSH(&mapping->order, (placed_item){key, j});
    }
    if (ok && mapping->order.count > begin)
        qsort(mapping->order.items + begin, mapping->order.count - begin, sizeof(placed_item),
              order_placed);
    for (size_t k = 0; ok && k < mapping->order.count; ++k) {
        uint32_t j = mapping->order.items[k].at;
        ok = push(&mapping->ordered, &b->boundaries.items[j], b->items.items[j]);
    }
    tocsin_map_free(&first);
    return ok;
}

/* ---- life ------------------------------------------------------------------------------------ */

tocsin_status tocsin_mapping_apply(tocsin_mapping *mapping, const tocsin_boundary_stream *a,
                                   const tocsin_boundary_stream *b,
                                   const tocsin_boundary_stream **mapped_a,
                                   const tocsin_boundary_stream **mapped_b, tocsin_error *error)
{
    tocsin_arena_reset(&mapping->arena);
    mapping->origins.count = 0;
    if (!map_stream(mapping, a, &mapping->a) || !map_stream(mapping, b, &mapping->b) ||
        !order_points(mapping))
        return tocsin_error_memory(error);
    *mapped_a = &mapping->a;
    *mapped_b = &mapping->ordered;
    return TOCSIN_OK;
}

uint32_t tocsin_mapping_origin(const tocsin_mapping *mapping, uint32_t mapped)
{
    assert(mapped < mapping->origins.count);
    return mapping->origins.items[mapped];
}

tocsin_map_use tocsin_mapping_use(const tocsin_mapping *mapping, size_t index)
{
    assert(index < mapping->uses.count);
    return mapping->uses.items[index];
}

tocsin_status tocsin_mapping_new(const tocsin_name_map *map, tocsin_intern *names,
                                 const tocsin_align_options *options, tocsin_mapping **mapping,
                                 tocsin_error *error)
{
    *mapping = tocsin_zalloc(1, sizeof **mapping);
    if (!*mapping)
        return tocsin_error_memory(error);
    (*mapping)->map = map;
    (*mapping)->names = names;
    (*mapping)->options = options;
    for (size_t r = 0; r < tocsin_name_map_rule_count(map); ++r) {
        if (!TOCSIN_VEC_PUSH(&(*mapping)->uses, (tocsin_map_use){0})) {
            tocsin_mapping_free(*mapping);
            *mapping = NULL;
            return tocsin_error_memory(error);
        }
    }
    return TOCSIN_OK;
}

static void free_stream(tocsin_boundary_stream *stream)
{
    TOCSIN_VEC_FREE(&stream->items);
    TOCSIN_VEC_FREE(&stream->boundaries);
}

void tocsin_mapping_free(tocsin_mapping *mapping)
{
    if (!mapping)
        return;
    tocsin_map_free(&mapping->known);
    TOCSIN_VEC_FREE(&mapping->resolved);
    TOCSIN_VEC_FREE(&mapping->uses);
    TOCSIN_VEC_FREE(&mapping->joined);
    TOCSIN_VEC_FREE(&mapping->origins);
    TOCSIN_VEC_FREE(&mapping->order);
    free_stream(&mapping->a);
    free_stream(&mapping->b);
    free_stream(&mapping->ordered);
    tocsin_arena_free(&mapping->arena);
    tocsin_string_free(&mapping->text);
    tocsin_free(mapping);
}
