/* Boundaries put together by a map: random parts of random shapes, dtypes and groups have the value
 * of the tensor that they make, read at once; parts that do not make it have none. */
#include "cmocka_test.h"
#include "test_seed.h"
#include <align/mapping.h>
#include <base/base.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CASES = 400, AXES = 3, PARTS = 3, WORDS_MAX = 4096 };

static uint64_t state_of_random;

static uint64_t draw(uint64_t below)
{
    state_of_random += UINT64_C(0x9e3779b97f4a7c15);
    return tocsin_mix64(state_of_random) % below;
}

typedef struct fixture {
    tocsin_intern names;
    tocsin_name_map *map;
    tocsin_mapping *mapping;
    tocsin_align_options options;
    tocsin_boundary_stream whole, split;
} fixture;

static tocsin_name_map *load_map(void)
{
    static const char text[] =
        "{\"format\":\"tocsin-map\",\"version\":1}\n"
        "{\"a\":\"w\",\"b\":[\"p0\",\"p1\",\"p2\"]}\n"
        "{\"a\":\"g\",\"b\":[\"q0\",\"q1\",\"q2\"],\"layout\":\"interleaved\"}\n";
    char path[] = "/tmp/tocsin-map-XXXXXX";
    int fd = mkstemp(path);
    tocsin_name_map *map;
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    assert_int_equal(tocsin_name_map_load(path, &map, NULL), TOCSIN_OK);
    close(fd);
    unlink(path);
    return map;
}

static uint32_t put(fixture *f, const void *bytes, size_t count)
{
    uint32_t id = tocsin_intern_put(&f->names, bytes, count);
    assert_true(id > 0);
    return id;
}

/* Digest a view and append its boundary. */
static void add(fixture *f, tocsin_boundary_stream *stream, const char *name,
                const tocsin_tensor_view *view, bool cut)
{
    tocsin_boundary boundary = {.name = put(f, name, strlen(name)),
                                .attribute = put(f, "data", 4),
                                .operation = put(f, "optimizer.step", 14),
                                .point = 5,
                                .dtype = (uint8_t)view->dtype,
                                .ndim = (uint8_t)view->ndim,
                                .present = true,
                                .digested = true,
                                .cut = cut};
    boundary.shape = put(f, view->shape, view->ndim * sizeof *view->shape);
    if (cut) {
        boundary.whole = put(f, view->global_shape, view->ndim * sizeof *view->shape);
        boundary.offset = put(f, view->offset, view->ndim * sizeof *view->shape);
    }
    assert_int_equal(tocsin_tensor_digest(view, &boundary.digest, &boundary.statistics, NULL),
                     TOCSIN_OK);
    tocsin_align_item item;
    uint32_t symbol = tocsin_boundary_symbol(&boundary, &f->names);
    assert_true(tocsin_boundary_make_item(&boundary, &f->options, &f->names, symbol, &item));
    assert_true(TOCSIN_VEC_PUSH(&stream->items, item));
    assert_true(TOCSIN_VEC_PUSH(&stream->boundaries, boundary));
}

static void clear(tocsin_boundary_stream *stream)
{
    stream->items.count = stream->boundaries.count = 0;
}

typedef struct random_tensor { /* [groups * total, ...], its words, and rows of a group by part */
    uint32_t words[WORDS_MAX];
    tocsin_dtype dtype;
    uint32_t ndim;
    int64_t groups, total, rows[PARTS], rest[AXES], shape[AXES];
    int64_t elements; /* of one row */
} random_tensor;

static void make_tensor(random_tensor *t, bool grouped)
{
    static const tocsin_dtype dtypes[] = {TOCSIN_DTYPE_FLOAT32, TOCSIN_DTYPE_INT64,
                                          TOCSIN_DTYPE_BFLOAT16, TOCSIN_DTYPE_UINT8};
    *t = (random_tensor){.dtype = dtypes[draw(4)],
                         .ndim = 1 + (uint32_t)draw(AXES),
                         .groups = grouped ? 1 + (int64_t)draw(4) : 1,
                         .elements = 1};
    for (uint32_t part = 0; part < PARTS; ++part) {
        t->rows[part] = 1 + (int64_t)draw(5);
        t->total += t->rows[part];
    }
    t->shape[0] = t->groups * t->total;
    for (uint32_t axis = 1; axis < t->ndim; ++axis) {
        t->shape[axis] = 1 + (int64_t)draw(5);
        t->elements *= t->shape[axis];
    }
    for (size_t k = 0; k < WORDS_MAX; ++k)
        t->words[k] = (uint32_t)draw(UINT64_C(1) << 32);
}

static const void *row_of(const random_tensor *t, int64_t row)
{
    return (const char *)t->words + (size_t)(row * t->elements) * tocsin_dtype_bytes(t->dtype);
}

/* Part `part` as its framework has it: its rows of all groups, one after the other. */
static tocsin_tensor_view part_of(const random_tensor *t, uint32_t part, char *copy, int64_t *shape)
{
    size_t bytes = (size_t)t->elements * tocsin_dtype_bytes(t->dtype), at = 0;
    int64_t before = 0;
    for (uint32_t k = 0; k < part; ++k)
        before += t->rows[k];
    for (int64_t group = 0; group < t->groups; ++group) {
        for (int64_t row = 0; row < t->rows[part]; ++row, at += bytes)
            memcpy(copy + at, row_of(t, group * t->total + before + row), bytes);
    }
    memcpy(shape, t->shape, sizeof t->shape);
    shape[0] = t->groups * t->rows[part];
    return (tocsin_tensor_view){.data = copy, .dtype = t->dtype, .ndim = t->ndim, .shape = shape};
}

/* The same as a box of [groups, total, ...]. */
static void add_cut(fixture *f, const random_tensor *t, uint32_t part, const void *copy)
{
    int64_t shape[AXES + 1] = {t->groups, t->rows[part]}, whole[AXES + 1] = {t->groups, t->total};
    int64_t offset[AXES + 1] = {0};
    for (uint32_t k = 0; k < part; ++k)
        offset[1] += t->rows[k];
    for (uint32_t axis = 1; axis < t->ndim; ++axis)
        shape[axis + 1] = whole[axis + 1] = t->shape[axis];
    tocsin_tensor_view view = {.data = copy,
                               .dtype = t->dtype,
                               .ndim = t->ndim + 1,
                               .shape = shape,
                               .global_shape = whole,
                               .offset = offset};
    add(f, &f->split, "g", &view, true);
}

/* Parts in a random order; the `lost` one is not there. */
static void add_parts(fixture *f, const random_tensor *t, bool grouped, uint32_t lost)
{
    static const char *const names[2][PARTS] = {{"p0", "p1", "p2"}, {"q0", "q1", "q2"}};
    static char copies[PARTS][WORDS_MAX * 4];
    uint32_t first = (uint32_t)draw(PARTS);
    for (uint32_t k = 0; k < PARTS; ++k) {
        uint32_t part = (first + k) % PARTS;
        int64_t shape[AXES];
        tocsin_tensor_view view = part_of(t, part, copies[part], shape);
        if (part == lost)
            continue;
        add(f, &f->split, names[grouped][part], &view, false);
        if (grouped)
            add_cut(f, t, part, copies[part]);
    }
}

static void check(fixture *f, bool equal)
{
    const tocsin_boundary_stream *a, *b;
    assert_int_equal(tocsin_mapping_apply(f->mapping, &f->whole, &f->split, &a, &b, NULL),
                     TOCSIN_OK);
    assert_int_equal(a->items.count, 1);
    assert_int_equal(b->items.count, 1);
    assert_int_equal(a->items.items[0].symbol, b->items.items[0].symbol);
    if (equal)
        assert_int_equal(a->items.items[0].value, b->items.items[0].value);
    else
        assert_int_equal(b->items.items[0].value, 0);
}

static void test_parts(void **unused)
{
    (void)unused;
    fixture f = {.map = load_map(), .options = {.struct_bytes = sizeof f.options}};
    random_tensor t;
    assert_int_equal(tocsin_mapping_new(f.map, &f.names, &f.options, &f.mapping, NULL), TOCSIN_OK);
    const uint64_t first = test_seed(0);
    for (int k = 0; k < CASES; ++k) {
        bool grouped = k % 2;
        state_of_random = first + (uint64_t)k;
        make_tensor(&t, grouped);
        tocsin_tensor_view view = {
            .data = t.words, .dtype = t.dtype, .ndim = t.ndim, .shape = t.shape};
        uint32_t lost = draw(4) == 0 ? (uint32_t)draw(PARTS) : PARTS;
        clear(&f.whole);
        clear(&f.split);
        add(&f, &f.whole, grouped ? "g" : "w", &view, false);
        add_parts(&f, &t, grouped, lost);
        check(&f, lost == PARTS);
        if (lost < PARTS)
            continue;
        /* one bit of one part */
        size_t at = (size_t)draw(f.split.boundaries.count);
        tocsin_boundary *changed = &f.split.boundaries.items[at];
        changed->digest.sum += 1;
        const tocsin_boundary_stream *a, *b;
        assert_int_equal(tocsin_mapping_apply(f.mapping, &f.whole, &f.split, &a, &b, NULL),
                         TOCSIN_OK);
        if (!grouped || changed->cut)
            assert_int_not_equal(a->items.items[0].value, b->items.items[0].value);
        /* another dtype does not join */
        changed->dtype = TOCSIN_DTYPE_INT8;
        if (!grouped || changed->cut)
            check(&f, false);
    }
    tocsin_mapping_free(f.mapping);
    tocsin_name_map_free(f.map);
    TOCSIN_VEC_FREE(&f.whole.items);
    TOCSIN_VEC_FREE(&f.whole.boundaries);
    TOCSIN_VEC_FREE(&f.split.items);
    TOCSIN_VEC_FREE(&f.split.boundaries);
    tocsin_intern_free(&f.names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
