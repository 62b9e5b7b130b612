/* Views, slices, permutations and joins of relations, on the layouts that training plans use. Equal
 * relations have one id, so most checks compare ids. Values are checked in
 * prop/test_layout_random.c.
 */
#include <prove/slice_relation.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <tocsin/verify.h>

#include <cmocka.h>

static const int64_t sizes[TOCSIN_SYMBOL_COUNT] = {4, 2}; /* replicas, micro-batches */

#define SHAPE(...)                                                                                 \
    (const int64_t[]){__VA_ARGS__}, (uint8_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static int make_universe(void **state)
{
    tocsin_universe *universe = tocsin_universe_new();
    tocsin_universe_set_sizes(universe, sizes);
    *state = universe;
    return universe == NULL ? -1 : 0;
}

static int free_universe(void **state)
{
    tocsin_universe_free(*state);
    return 0;
}

static tocsin_atom_id input(tocsin_universe *universe, const char *name, const int64_t *shape,
                            uint8_t ndim)
{
    return tocsin_atom_input(universe, name, strlen(name), shape, ndim);
}

static tocsin_relation_id whole(tocsin_universe *universe, const char *name, const int64_t *shape,
                                uint8_t ndim)
{
    return tocsin_relation_whole(universe, input(universe, name, shape, ndim));
}

static tocsin_affine at(int64_t base, int64_t replica, int64_t microbatch)
{
    return (tocsin_affine){.base = base, .weight = {replica, microbatch}};
}

static tocsin_relation_id slice(tocsin_universe *universe, tocsin_relation_id relation,
                                uint32_t dim, int64_t start, int64_t count)
{
    return tocsin_relation_slice(universe, relation, dim, at(start, 0, 0), count, 1);
}

static const tocsin_term *term_of(tocsin_universe *universe, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    assert_int_not_equal(id, 0);
    assert_false(relation->segmented);
    assert_int_equal(relation->count, 1);
    return &relation->terms[0];
}

static void refused(tocsin_universe *universe, tocsin_relation_id id, int cause)
{
    assert_int_equal(id, 0);
    assert_int_equal(tocsin_universe_refusal(universe)->cause, cause);
    assert_true(tocsin_universe_refusal(universe)->text[0] != '\0');
}

/* ---- views ----------------------------------------------------------------------------------- */

static void heads_are_split_and_merged(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id y = whole(universe, "y", SHAPE(8, 128, 4096));
    const tocsin_relation_id heads = tocsin_relation_view(universe, y, SHAPE(8, 128, 32, 128));
    const uint8_t swap[4] = {0, 2, 1, 3};

    const tocsin_term *term = term_of(universe, heads);
    assert_int_equal(term->digit_total, 4);
    assert_int_equal(term->digits[2].stride, 128);
    assert_int_equal(term->digits[2].extent, 32);
    assert_int_equal(term->digits[3].extent, 128);
    const tocsin_relation_id turned = tocsin_relation_permute(universe, heads, swap);
    assert_int_equal(tocsin_relation_permute(universe, turned, swap), heads);
    assert_int_equal(tocsin_relation_view(universe, heads, SHAPE(8, 128, 4096)), y);
    assert_int_equal(tocsin_relation_view(universe, y, SHAPE(1024, 4096)),
                     tocsin_relation_view(universe, heads, SHAPE(1024, 4096)));
    /* a rank's heads are the same heads, whether it cuts before or after the view */
    const tocsin_relation_id local = slice(universe, y, 2, 1024, 512);
    assert_int_equal(tocsin_relation_view(universe, local, SHAPE(8, 128, 4, 128)),
                     slice(universe, heads, 2, 8, 4));
}

static void a_single_head_finds_its_dim(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id y = whole(universe, "y", SHAPE(8, 16, 512));
    const tocsin_relation_id local = slice(universe, y, 2, 192, 64);

    /* nothing tells yet that 64 is a head */
    const tocsin_relation_id blind = tocsin_relation_view(universe, local, SHAPE(8, 16, 1, 64));
    assert_int_equal(term_of(universe, blind)->digit_count[2], 0);
    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id heads = tocsin_relation_view(universe, y, SHAPE(8, 16, 8, 64));
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id head = tocsin_relation_view(universe, local, SHAPE(8, 16, 1, 64));
    assert_int_equal(head, slice(universe, heads, 2, 3, 1));
    assert_int_equal(tocsin_relation_view(universe, head, SHAPE(8, 16, 64)), local);
}

static void a_single_row_stays_where_it_belongs(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(8, 16, 32));
    const tocsin_relation_id row = slice(universe, x, 0, 3, 1);

    /* [B S H] -> [B S h d]: dim 0 keeps its digit */
    const tocsin_relation_id split = tocsin_relation_view(universe, row, SHAPE(1, 16, 4, 8));
    assert_int_equal(
        split, slice(universe, tocsin_relation_view(universe, x, SHAPE(8, 16, 4, 8)), 0, 3, 1));
    /* [B S H] -> [B*S H]: the digit leads the merged dim */
    const tocsin_relation_id merged = tocsin_relation_view(universe, row, SHAPE(16, 32));
    assert_int_equal(merged,
                     slice(universe, tocsin_relation_view(universe, x, SHAPE(128, 32)), 0, 48, 16));
    /* and back */
    assert_int_equal(tocsin_relation_view(universe, merged, SHAPE(1, 16, 32)), row);
    /* a scalar pins it */
    const tocsin_relation_id one = slice(universe, slice(universe, row, 1, 5, 1), 2, 7, 1);
    const tocsin_term *scalar = term_of(universe, tocsin_relation_view(universe, one, NULL, 0));
    assert_int_equal(scalar->digit_total, 0);
    assert_int_equal(scalar->pinned_count, 3);
}

/* Sizes alone do not tell where the one batch of a rank goes; the logical view does. */
static void logical_views_are_followed(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(8, 16, 32));
    const tocsin_relation_id k = whole(universe, "k", SHAPE(8, 16, 4, 8));
    const tocsin_relation_id row = slice(universe, x, 0, 3, 1);

    assert_int_equal(tocsin_relation_view(universe, row, SHAPE(1, 16, 32)), row);
    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id flat = tocsin_relation_view(universe, x, SHAPE(1, 128, 32));
    tocsin_relation_id heads = tocsin_relation_view(universe, k, SHAPE(8, 16, 4, 1, 8));
    heads = tocsin_relation_expand(universe, heads, SHAPE(8, 16, 4, 3, 8));
    heads = tocsin_relation_view(universe, heads, SHAPE(8, 16, 12, 8));
    tocsin_universe_set_logical(universe, false);
    assert_int_equal(tocsin_relation_view(universe, row, SHAPE(1, 16, 32)),
                     slice(universe, flat, 1, 48, 16));
    assert_int_not_equal(slice(universe, flat, 1, 48, 16), row);
    /* one batch, one token, one key head of a rank, repeated for its query heads */
    tocsin_relation_id one = slice(universe, k, 0, 5, 1);
    one = slice(universe, slice(universe, one, 1, 7, 1), 2, 2, 1);
    one = tocsin_relation_view(universe, one, SHAPE(1, 1, 1, 1, 8));
    one = tocsin_relation_expand(universe, one, SHAPE(1, 1, 1, 3, 8));
    one = tocsin_relation_view(universe, one, SHAPE(1, 1, 3, 8));
    const tocsin_relation_id same = slice(universe, slice(universe, heads, 0, 5, 1), 1, 7, 1);
    assert_int_equal(one, slice(universe, same, 2, 6, 3));
}

static void views_that_mix_parts_are_refused(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(3, 4));

    refused(universe, tocsin_relation_view(universe, x, SHAPE(2, 6)), TOCSIN_CAUSE_WRONG_LAYOUT);
    refused(universe, tocsin_relation_view(universe, x, SHAPE(5, 2)), TOCSIN_CAUSE_WRONG_LAYOUT);
    assert_int_not_equal(tocsin_relation_view(universe, x, SHAPE(12)), 0);
    const tocsin_relation_id w = whole(universe, "w", SHAPE(12));
    assert_int_not_equal(tocsin_relation_view(universe, w, SHAPE(2, 6)), 0);
    /* 6 of 13 elements are no rows of 3 */
    const tocsin_relation_id odd = slice(universe, whole(universe, "odd", SHAPE(13)), 0, 0, 6);
    refused(universe, tocsin_relation_view(universe, odd, SHAPE(2, 3)), TOCSIN_CAUSE_WRONG_LAYOUT);
    const tocsin_relation_id zero = tocsin_relation_constant(universe, 0, true, SHAPE(3, 4));
    assert_int_equal(tocsin_relation_view(universe, zero, SHAPE(2, 6)),
                     tocsin_relation_constant(universe, 0, true, SHAPE(2, 6)));
}

static void segments_survive_views_along_them(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id parts[3] = {whole(universe, "q", SHAPE(2, 8, 16)),
                                         whole(universe, "k", SHAPE(2, 8, 4)),
                                         whole(universe, "v", SHAPE(2, 8, 4))};
    const tocsin_relation_id fused = tocsin_relation_cat(universe, parts, 3, 2);

    assert_true(tocsin_relation_get(universe, fused)->segmented);
    const tocsin_relation_id heads = tocsin_relation_view(universe, fused, SHAPE(16, 6, 4));
    const tocsin_relation *split = tocsin_relation_get(universe, heads);
    assert_true(split->segmented);
    assert_int_equal(split->segment_dim, 1);
    assert_int_equal(slice(universe, heads, 1, 4, 1),
                     tocsin_relation_view(universe, parts[1], SHAPE(16, 1, 4)));
    assert_int_equal(tocsin_relation_view(universe, heads, SHAPE(2, 8, 24)), fused);
    refused(universe, tocsin_relation_view(universe, fused, SHAPE(16, 3, 8)),
            TOCSIN_CAUSE_WRONG_LAYOUT);
}

/* [rows, segments] -> [rows * segments] has the segments of every row in order. */
static void segments_are_flattened_row_by_row(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id parts[2] = {whole(universe, "x", SHAPE(4, 3, 5)),
                                         whole(universe, "y", SHAPE(4, 3, 2))};
    const tocsin_relation_id both = tocsin_relation_cat(universe, parts, 2, 2);
    const tocsin_relation_id flat = tocsin_relation_view(universe, both, SHAPE(4, 21));
    const tocsin_relation_id one = tocsin_relation_view(universe, both, SHAPE(84));

    assert_int_equal(tocsin_relation_get(universe, flat)->count, 6);
    assert_int_equal(tocsin_relation_get(universe, one)->count, 24);
    assert_int_equal(
        slice(universe, flat, 1, 12, 2),
        tocsin_relation_view(universe, slice(universe, parts[1], 1, 1, 1), SHAPE(4, 2)));
    assert_int_equal(tocsin_relation_view(universe, flat, SHAPE(4, 3, 7)), both);
    assert_int_equal(tocsin_relation_view(universe, one, SHAPE(4, 3, 7)), both);
    assert_int_equal(tocsin_relation_view(universe, one, SHAPE(12, 7)),
                     tocsin_relation_view(universe, both, SHAPE(12, 7)));
    assert_int_equal(tocsin_relation_view(universe, flat, SHAPE(84)), one);
    refused(universe, tocsin_relation_view(universe, one, SHAPE(7, 12)), TOCSIN_CAUSE_WRONG_LAYOUT);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static void slices_compose(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_atom_id x = input(universe, "x", SHAPE(16, 6));
    const tocsin_affine starts[2] = {at(0, 4, 2), at(0, 0, 0)};
    const int64_t shape[2] = {2, 6};

    const tocsin_relation_id all = tocsin_relation_whole(universe, x);
    const tocsin_relation_id own = tocsin_relation_slice(universe, all, 0, at(0, 4, 0), 4, 1);
    const tocsin_relation_id part = tocsin_relation_slice(universe, own, 0, at(0, 0, 2), 2, 1);
    assert_int_equal(part, tocsin_relation_slice_of(universe, x, starts, shape));
    refused(universe, slice(universe, all, 0, 13, 4), TOCSIN_CAUSE_WRONG_SHARD);
    refused(universe, tocsin_relation_slice(universe, all, 0, at(4, 4, 0), 4, 1),
            TOCSIN_CAUSE_WRONG_SHARD); /* replica 3 reads beyond the end */
    refused(universe, slice(universe, all, 2, 0, 1), TOCSIN_CAUSE_WRONG_LAYOUT);
}

/* A flat buffer cut where no row begins, as sharded optimizers do. */
static void flat_buffers_are_cut_anywhere(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id parts[2] = {
        tocsin_relation_view(universe, whole(universe, "w", SHAPE(6, 8)), SHAPE(48)),
        whole(universe, "b", SHAPE(6))};
    const tocsin_relation_id flat = tocsin_relation_cat(universe, parts, 2, 0);
    tocsin_relation_id shards[3];

    for (int r = 0; r < 3; r++)
        shards[r] = slice(universe, flat, 0, 18 * r, 18);
    const tocsin_relation *middle = tocsin_relation_get(universe, shards[1]);
    assert_true(middle->segmented);
    assert_int_equal(middle->count, 3); /* rest of row 2, row 3, beginning of row 4 */
    assert_int_equal(tocsin_relation_cat(universe, shards, 3, 0), flat);
    refused(universe, tocsin_relation_slice(universe, flat, 0, at(0, 12, 0), 12, 1),
            TOCSIN_CAUSE_WRONG_SHARD);
}

/* x[..., ::2] and x[..., 1::2], stacked again: rotary embeddings of the interleaved kind. */
static void even_and_odd_make_the_whole(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(4, 64));
    tocsin_relation_id pair[2], column[2];

    for (int odd = 0; odd < 2; odd++) {
        pair[odd] = tocsin_relation_slice(universe, x, 1, at(odd, 0, 0), 32, 2);
        column[odd] = tocsin_relation_view(universe, pair[odd], SHAPE(4, 32, 1));
    }
    const tocsin_relation_id stacked = tocsin_relation_cat(universe, column, 2, 2);
    assert_int_equal(stacked, tocsin_relation_view(universe, x, SHAPE(4, 32, 2)));
    assert_int_equal(tocsin_relation_view(universe, stacked, SHAPE(4, 64)), x);
    const tocsin_relation_id back[2] = {column[1], column[0]};
    assert_int_not_equal(tocsin_relation_cat(universe, back, 2, 2), stacked);
    refused(universe, tocsin_relation_slice(universe, x, 1, at(0, 0, 0), 22, 3),
            TOCSIN_CAUSE_WRONG_LAYOUT);
}

static void select_is_a_slice_without_its_dim(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(4, 6, 5));
    const tocsin_relation_id merged = tocsin_relation_view(universe, x, SHAPE(24, 5));
    const tocsin_relation_id parts[2] = {slice(universe, x, 1, 3, 2), slice(universe, x, 1, 0, 2)};

    assert_int_equal(
        tocsin_relation_select(universe, merged, 0, 15),
        tocsin_relation_select(universe, tocsin_relation_select(universe, x, 0, 2), 0, 3));
    const tocsin_relation_id joined = tocsin_relation_cat(universe, parts, 2, 1);
    assert_int_equal(tocsin_relation_select(universe, joined, 1, 2),
                     tocsin_relation_select(universe, x, 1, 0));
    const tocsin_relation_id row = tocsin_relation_select(universe, joined, 0, 1);
    assert_true(tocsin_relation_get(universe, row)->segmented);
    assert_int_equal(tocsin_relation_get(universe, row)->segment_dim, 0);
    refused(universe, tocsin_relation_select(universe, x, 0, 4), TOCSIN_CAUSE_WRONG_SHARD);
}

static void expanded_elements_are_equal(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id b = whole(universe, "b", SHAPE(1, 6));
    const tocsin_relation_id wide = tocsin_relation_expand(universe, b, SHAPE(3, 8, 6));

    assert_int_equal(slice(universe, wide, 1, 5, 2), slice(universe, wide, 1, 0, 2));
    assert_int_equal(
        tocsin_relation_select(universe, tocsin_relation_select(universe, wide, 0, 2), 0, 7),
        tocsin_relation_select(universe, b, 0, 0));
    refused(universe, tocsin_relation_expand(universe, b, SHAPE(2, 3)), TOCSIN_CAUSE_WRONG_LAYOUT);
}

/* ---- joins ----------------------------------------------------------------------------------- */

static void shards_in_order_make_the_whole(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(4, 12));
    const tocsin_relation_id a = slice(universe, x, 1, 0, 4), b = slice(universe, x, 1, 4, 4),
                             c = slice(universe, x, 1, 8, 4);

    assert_int_equal(tocsin_relation_cat(universe, (tocsin_relation_id[]){a, b, c}, 3, 1), x);
    const tocsin_relation_id wrong =
        tocsin_relation_cat(universe, (tocsin_relation_id[]){b, a, c}, 3, 1);
    assert_true(tocsin_relation_get(universe, wrong)->segmented);
    assert_int_equal(slice(universe, wrong, 1, 0, 4), b);
    /* a join along another dim than the segments' goes through when the rows fit */
    const tocsin_relation_id rows[2] = {slice(universe, wrong, 0, 0, 1),
                                        slice(universe, wrong, 0, 1, 3)};
    assert_int_equal(tocsin_relation_cat(universe, rows, 2, 0), wrong);
    refused(universe, tocsin_relation_cat(universe, (tocsin_relation_id[]){a, x}, 2, 0),
            TOCSIN_CAUSE_WRONG_LAYOUT);
}

/* The second is complete only after the third has begun. */
static void repeated_values_join_in_any_grouping(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x =
        tocsin_relation_view(universe, whole(universe, "x", SHAPE(4, 4)), SHAPE(16));
    const tocsin_relation_id parts[4] = {slice(universe, x, 0, 0, 12), slice(universe, x, 0, 12, 2),
                                         slice(universe, x, 0, 14, 2), x};
    const tocsin_relation_id twice[2] = {x, x};

    assert_int_equal(tocsin_relation_cat(universe, parts, 4, 0),
                     tocsin_relation_cat(universe, twice, 2, 0));
}

static void chunks_of_all_replicas_make_the_whole(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id terms[2] = {whole(universe, "x", SHAPE(8, 6)),
                                         whole(universe, "y", SHAPE(8, 6))};
    const tocsin_relation_id sum = tocsin_relation_add(universe, terms, NULL, 2);
    const tocsin_relation_id own = tocsin_relation_chunk_at(universe, sum, 0, 4, at(0, 1, 0));

    assert_int_equal(own, tocsin_relation_slice(universe, sum, 0, at(0, 2, 0), 2, 1));
    assert_int_equal(tocsin_relation_cat_over(universe, own, 0, TOCSIN_SYMBOL_REPLICA, 4), sum);
    refused(universe, tocsin_relation_cat_over(universe, own, 1, TOCSIN_SYMBOL_REPLICA, 4),
            TOCSIN_CAUSE_WRONG_SHARD);
    refused(universe, tocsin_relation_chunk_at(universe, sum, 1, 4, at(0, 1, 0)),
            TOCSIN_CAUSE_WRONG_SHARD);
    /* what does not depend on the symbol repeats */
    const tocsin_relation_id twice =
        tocsin_relation_cat_over(universe, own, 0, TOCSIN_SYMBOL_MICROBATCH, 2);
    assert_int_equal(slice(universe, twice, 0, 2, 2), own);
    /* in descending order, or with gaps, it is no join of shards in order */
    const tocsin_relation_id descending =
        tocsin_relation_slice(universe, sum, 0, at(6, -2, 0), 2, 1);
    refused(universe, tocsin_relation_cat_over(universe, descending, 0, TOCSIN_SYMBOL_REPLICA, 4),
            TOCSIN_CAUSE_WRONG_ORDER);
    const tocsin_relation_id gaps = tocsin_relation_slice(universe, sum, 0, at(0, 2, 0), 1, 1);
    refused(universe, tocsin_relation_cat_over(universe, gaps, 0, TOCSIN_SYMBOL_REPLICA, 4),
            TOCSIN_CAUSE_WRONG_ORDER);
}

static void members_and_replicas_join_in_group_order(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(16, 6));
    tocsin_relation_id inner[2], outer[2];

    for (int t = 0; t < 2; t++) {
        inner[t] = tocsin_relation_slice(universe, x, 0, at(2 * t, 4, 0), 2, 1);
        outer[t] = tocsin_relation_slice(universe, x, 0, at(8 * t, 2, 0), 2, 1);
    }
    assert_int_equal(
        tocsin_relation_cat_members_over(universe, inner, 2, 0, TOCSIN_SYMBOL_REPLICA, 4), x);
    refused(universe,
            tocsin_relation_cat_members_over(universe, outer, 2, 0, TOCSIN_SYMBOL_REPLICA, 4),
            TOCSIN_CAUSE_WRONG_ORDER);
}

static void partial_sums_are_not_joined(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_atom_id y = input(universe, "y", SHAPE(8, 6));
    const tocsin_term *term = term_of(universe, tocsin_relation_whole(universe, y));
    const tocsin_box_entry box = {
        .atom = y, .axis = 2, .stride = 1, .extent = 16, .start = at(0, 4, 0), .count = 4};
    tocsin_term partial = *term;

    partial.box = &box;
    partial.box_count = 1;
    const tocsin_relation_id own = tocsin_relation_of_term(universe, &partial, SHAPE(8, 6));
    refused(universe, tocsin_relation_cat_over(universe, own, 0, TOCSIN_SYMBOL_REPLICA, 4),
            TOCSIN_CAUSE_WRONG_COLLECTIVE);
}

/* ---- flat buckets ---------------------------------------------------------------------------- */

enum { BUCKET = 3 };

/* The shards that one replica has of three parameters, one after another. */
static tocsin_relation_id bucket(tocsin_universe *universe, const tocsin_relation_id *parameters,
                                 tocsin_affine position)
{
    tocsin_relation_id flat[BUCKET];

    for (int i = 0; i < BUCKET; i++) {
        const tocsin_relation_id own =
            tocsin_relation_chunk_at(universe, parameters[i], 0, 4, position);
        const tocsin_relation *shard = tocsin_relation_get(universe, own);
        const int64_t size = shard->shape[0] * (shard->ndim == 2 ? shard->shape[1] : 1);
        flat[i] = tocsin_relation_view(universe, own, &size, 1);
    }
    return tocsin_relation_cat(universe, flat, BUCKET, 0);
}

static void shards_in_a_bucket_are_gathered_as_rows(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id parameters[BUCKET] = {whole(universe, "w", SHAPE(12, 6)),
                                                   whole(universe, "v", SHAPE(4, 5)),
                                                   whole(universe, "b", SHAPE(8))};
    const tocsin_relation_id own = bucket(universe, parameters, at(0, 1, 0));
    const tocsin_relation_id row = tocsin_relation_view(universe, own, SHAPE(1, 25));
    tocsin_relation_id rows[4];

    for (int r = 0; r < 4; r++)
        rows[r] =
            tocsin_relation_view(universe, bucket(universe, parameters, at(r, 0, 0)), SHAPE(1, 25));
    const tocsin_relation_id all =
        tocsin_relation_cat_over(universe, row, 0, TOCSIN_SYMBOL_REPLICA, 4);
    assert_int_not_equal(all, 0);
    assert_int_equal(tocsin_relation_cat(universe, rows, 4, 0), all);
    assert_int_equal(tocsin_relation_view(universe, slice(universe, all, 1, 0, 18), SHAPE(12, 6)),
                     parameters[0]);
    assert_int_equal(tocsin_relation_view(universe, slice(universe, all, 1, 18, 5), SHAPE(4, 5)),
                     parameters[1]);
    assert_int_equal(tocsin_relation_view(universe, slice(universe, all, 1, 23, 2), SHAPE(8)),
                     parameters[2]);
    /* as one flat buffer and back, and scattered again */
    const tocsin_relation_id buffer = tocsin_relation_view(universe, all, SHAPE(100));
    assert_int_equal(tocsin_relation_get(universe, buffer)->count, 12);
    assert_int_equal(tocsin_relation_cat(universe,
                                         (tocsin_relation_id[]){slice(universe, buffer, 0, 0, 50),
                                                                slice(universe, buffer, 0, 50, 50)},
                                         2, 0),
                     buffer);
    assert_int_equal(tocsin_relation_view(universe, buffer, SHAPE(4, 25)), all);
    const tocsin_relation_id back = tocsin_relation_chunk_at(universe, all, 0, 4, at(0, 1, 0));
    assert_int_equal(tocsin_relation_view(universe, back, SHAPE(25)), own);
    /* in another order they are no value that could be told */
    const tocsin_relation_id wrong[4] = {rows[1], rows[0], rows[2], rows[3]};
    refused(universe, tocsin_relation_cat(universe, wrong, 4, 0), TOCSIN_CAUSE_WRONG_LAYOUT);
}

/* Members 0 and 1 of every replica: the group is replica-major. */
static void rows_of_members_and_replicas_join(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id x = whole(universe, "x", SHAPE(16, 6));
    tocsin_relation_id rows[2];

    for (int t = 0; t < 2; t++)
        rows[t] = tocsin_relation_view(
            universe, tocsin_relation_slice(universe, x, 0, at(2 * t, 4, 0), 2, 1), SHAPE(1, 12));
    const tocsin_relation_id all =
        tocsin_relation_cat_members_over(universe, rows, 2, 0, TOCSIN_SYMBOL_REPLICA, 4);
    assert_int_equal(all, tocsin_relation_view(universe, x, SHAPE(8, 12)));
    /* what does not begin at a multiple of its size is no row */
    const tocsin_relation_id odd = tocsin_relation_slice(universe, x, 0, at(1, 4, 0), 2, 1);
    refused(universe,
            tocsin_relation_cat_over(universe, tocsin_relation_view(universe, odd, SHAPE(1, 12)), 0,
                                     TOCSIN_SYMBOL_REPLICA, 4),
            TOCSIN_CAUSE_WRONG_SHARD);
}

/* ---- folds through views --------------------------------------------------------------------- */

/* p - h, defined as [batch * tokens, vocabulary]; a rank has some of the tokens of all batches. */
static void part_of_a_viewed_sum_folds(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id operands[2] = {whole(universe, "p", SHAPE(2, 6, 5)),
                                            whole(universe, "h", SHAPE(2, 6, 5))};
    const uint8_t swap[2] = {1, 0};

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id sum = tocsin_relation_add(universe, operands, NULL, 2);
    const tocsin_relation_id flat = tocsin_relation_view(universe, sum, SHAPE(12, 5));
    const tocsin_relation_id named =
        tocsin_relation_define(universe, flat, "sub", TOCSIN_PLAN_NONE);
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id tokens = tocsin_relation_slice(universe, sum, 1, at(0, 0, 3), 3, 1);
    const tocsin_relation_id same = tocsin_relation_slice(
        universe, tocsin_relation_view(universe, named, SHAPE(2, 6, 5)), 1, at(0, 0, 3), 3, 1);
    assert_int_equal(tocsin_relation_fold(universe, tokens, sizes), same);
    const tocsin_relation_id own = tocsin_relation_view(universe, tokens, SHAPE(6, 5));
    assert_int_equal(tocsin_relation_fold(universe, own, sizes),
                     tocsin_relation_view(universe, same, SHAPE(6, 5)));
    const tocsin_relation_id turned = tocsin_relation_permute(universe, own, swap);
    const tocsin_factor_id half = tocsin_factor_rational(universe, 1, 2);
    assert_int_equal(
        tocsin_relation_fold(universe, tocsin_relation_scale(universe, turned, half), sizes),
        tocsin_relation_scale(
            universe,
            tocsin_relation_permute(universe, tocsin_relation_view(universe, same, SHAPE(6, 5)),
                                    swap),
            half));
    /* other tokens of h are another sum */
    const tocsin_relation_id mixed[2] = {
        tocsin_relation_slice(universe, operands[0], 1, at(0, 0, 3), 3, 1),
        tocsin_relation_slice(universe, operands[1], 1, at(0, 0, 0), 3, 1)};
    const tocsin_relation_id wrong = tocsin_relation_add(universe, mixed, NULL, 2);
    refused(
        universe,
        tocsin_relation_fold(universe, tocsin_relation_view(universe, wrong, SHAPE(6, 5)), sizes),
        TOCSIN_CAUSE_MISSING_TERM);
}

/* In whatever shape it is used next, a logical sum keeps its definition. */
static void sum_is_defined_once(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id bias = whole(universe, "b", SHAPE(12));
    const tocsin_relation_id operands[2] = {
        whole(universe, "x", SHAPE(4, 6, 12)),
        tocsin_relation_expand(universe, bias, SHAPE(4, 6, 12))};
    const uint8_t turn[4] = {0, 2, 1, 3};

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id sum = tocsin_relation_add(universe, operands, NULL, 2);
    const tocsin_relation_id named = tocsin_relation_define(universe, sum, "add", TOCSIN_PLAN_NONE);
    const tocsin_relation_id heads = tocsin_relation_permute(
        universe, tocsin_relation_view(universe, sum, SHAPE(4, 6, 3, 4)), turn);
    assert_int_equal(tocsin_relation_define(universe, heads, "heads", TOCSIN_PLAN_NONE),
                     tocsin_relation_permute(
                         universe, tocsin_relation_view(universe, named, SHAPE(4, 6, 3, 4)), turn));
    assert_int_equal(tocsin_relation_define(universe,
                                            tocsin_relation_view(universe, sum, SHAPE(288)), "flat",
                                            TOCSIN_PLAN_NONE),
                     tocsin_relation_view(universe, named, SHAPE(288)));
    assert_int_equal(tocsin_relation_define(universe, sum, "add", TOCSIN_PLAN_NONE), named);
    tocsin_universe_set_logical(universe, false);
}

/* What the first term repeats, the second tells; what both repeat may be at any index. */
static void repeated_elements_are_told_by_other_terms(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id operands[2] = {
        tocsin_relation_expand(universe, whole(universe, "row", SHAPE(1, 6, 1)), SHAPE(4, 6, 5)),
        tocsin_relation_expand(universe, whole(universe, "column", SHAPE(4, 1, 1)),
                               SHAPE(4, 6, 5))};

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id sum = tocsin_relation_add(universe, operands, NULL, 2);
    const tocsin_relation_id named = tocsin_relation_define(universe, sum, "add", TOCSIN_PLAN_NONE);
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id own = slice(universe, slice(universe, sum, 0, 1, 2), 1, 2, 3);
    const tocsin_relation_id part = tocsin_relation_select(universe, own, 2, 4);
    const tocsin_relation_id same = slice(universe, slice(universe, named, 0, 1, 2), 1, 2, 3);
    assert_int_equal(
        tocsin_relation_fold(universe, tocsin_relation_view(universe, part, SHAPE(6)), sizes),
        tocsin_relation_view(universe, tocsin_relation_select(universe, same, 2, 0), SHAPE(6)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_universe, free_universe)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(heads_are_split_and_merged),
        TEST(a_single_head_finds_its_dim),
        TEST(a_single_row_stays_where_it_belongs),
        TEST(logical_views_are_followed),
        TEST(views_that_mix_parts_are_refused),
        TEST(segments_survive_views_along_them),
        TEST(segments_are_flattened_row_by_row),
        TEST(slices_compose),
        TEST(flat_buffers_are_cut_anywhere),
        TEST(even_and_odd_make_the_whole),
        TEST(select_is_a_slice_without_its_dim),
        TEST(expanded_elements_are_equal),
        TEST(shards_in_order_make_the_whole),
        TEST(repeated_values_join_in_any_grouping),
        TEST(chunks_of_all_replicas_make_the_whole),
        TEST(members_and_replicas_join_in_group_order),
        TEST(partial_sums_are_not_joined),
        TEST(shards_in_a_bucket_are_gathered_as_rows),
        TEST(rows_of_members_and_replicas_join),
        TEST(part_of_a_viewed_sum_folds),
        TEST(sum_is_defined_once),
        TEST(repeated_elements_are_told_by_other_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
