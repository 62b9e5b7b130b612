/* checkpoint_compare.c - how a checkpoint differs from what was saved.
 *
 * Invariant: differences are by name: of what was saved and is there, of what is missing, of what
 * is extra. A tensor with the content of a missing one and a name that was not saved is that one
 * renamed, if only one such pair can be made. Cost: a look-up an entry; for each missing one a look
 * at each extra one, at most RENAMES_MAX.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "guard/checkpoint_digests.h"

#define RENAMES_MAX 4096 /* missing, and extra ones, among which renamed ones are looked for */

static const char *const difference_names[] = {
#define X(number, name, text) [number] = text,
    TOCSIN_CHECKPOINT_DIFFERENCE_TABLE(X)
#undef X
};

const char *tocsin_checkpoint_difference_name(tocsin_checkpoint_difference_kind kind)
{
    return (size_t)kind < TOCSIN_COUNT_OF(difference_names) ? difference_names[kind] : "unknown";
}

typedef struct comparison {
    tocsin_checkpoint_differences result; /* first: what the caller holds */
    const tocsin_checkpoint_digests *saved, *found;
    tocsin_arena arena;
    TOCSIN_VEC(tocsin_checkpoint_difference) items;
    TOCSIN_VEC(size_t) missing, extra; /* indices in saved, in found */
    tocsin_string text;
} comparison;

/* Note one; its sentence is in `text`. */
static bool note(comparison *all, tocsin_checkpoint_difference difference, const char *name)
{
    difference.name = tocsin_arena_copy(&all->arena, name, strlen(name));
    difference.text =
        tocsin_arena_copy(&all->arena, tocsin_string_text(&all->text), all->text.bytes);
    bool good = all->text.status == TOCSIN_OK && difference.name && difference.text &&
                TOCSIN_VEC_PUSH(&all->items, difference);
    tocsin_string_clear(&all->text);
    return good;
}

static void print_form(tocsin_string *text, const tocsin_checkpoint_entry *entry)
{
    if (entry->dtype == TOCSIN_DTYPE_NONE) {
        tocsin_string_append_text(text, "a value");
        return;
    }
    tocsin_string_printf(text, "%s[", tocsin_dtype_name(entry->dtype));
    for (uint32_t axis = 0; axis < entry->ndim; ++axis)
        tocsin_string_printf(text, axis > 0 ? ",%" PRId64 : "%" PRId64, entry->shape[axis]);
    tocsin_string_append_char(text, ']');
}

static bool same_content(const tocsin_checkpoint_entry *a, const tocsin_checkpoint_entry *b)
{
    return a->elements == b->elements && a->digest.sum == b->digest.sum &&
           a->digest.exclusive == b->digest.exclusive &&
           a->digest.polynomial == b->digest.polynomial && a->hash.low == b->hash.low &&
           a->hash.high == b->hash.high;
}

/* If one word tells the difference, where it is. */
static void locate(const tocsin_checkpoint_entry *saved, const tocsin_checkpoint_entry *found,
                   tocsin_checkpoint_difference *difference)
{
    uint64_t words = (tocsin_dtype_bytes(saved->dtype) + 3) / 4;
    tocsin_word_change change;
    if (saved->elements != found->elements ||
        !tocsin_digest_locate(saved->digest, found->digest, saved->whole * words, &change))
        return;
    uint64_t element = change.word / words;
    difference->one_word = true;
    difference->ndim = saved->ndim;
    difference->set = change.set;
    difference->cleared = change.cleared;
    for (uint32_t axis = saved->ndim; axis-- > 0;) {
        uint64_t size = (uint64_t)saved->shape[axis];
        difference->index[axis] = (int64_t)(element % size);
        element /= size;
    }
}

static bool note_content(comparison *all, const char *name, const tocsin_checkpoint_entry *saved,
                         const tocsin_checkpoint_entry *found)
{
    tocsin_checkpoint_difference difference = {.kind = TOCSIN_CHECKPOINT_CONTENT};
    if (saved->dtype == TOCSIN_DTYPE_NONE) {
        tocsin_string_printf(&all->text, "%s is not the value that was saved", name);
        return note(all, difference, name);
    }
    locate(saved, found, &difference);
    tocsin_string_printf(&all->text, "%s is not what was saved", name);
    if (difference.one_word) {
        tocsin_string_append_text(&all->text, ": one element differs, [");
        for (uint32_t axis = 0; axis < difference.ndim; ++axis)
            tocsin_string_printf(&all->text, axis > 0 ? ",%" PRId64 : "%" PRId64,
                                 difference.index[axis]);
        tocsin_string_printf(&all->text, "], %d of its bits",
                             __builtin_popcount(difference.set) +
                                 __builtin_popcount(difference.cleared));
    }
    return note(all, difference, name);
}

static bool compare_entry(comparison *all, size_t index)
{
    const char *name = tocsin_checkpoint_name(all->saved, index);
    const tocsin_checkpoint_entry *saved = &all->saved->entries.items[index];
    uint32_t id = tocsin_intern_find(&all->found->names, name, strlen(name));
    if (id == 0)
        return TOCSIN_VEC_PUSH(&all->missing, index);
    const tocsin_checkpoint_entry *found = &all->found->entries.items[id - 1];
    if (!tocsin_checkpoint_same_form(saved, found)) {
        tocsin_string_printf(&all->text, "%s was saved as ", name);
        print_form(&all->text, saved);
        tocsin_string_append_text(&all->text, " and is ");
        print_form(&all->text, found);
        return note(all, (tocsin_checkpoint_difference){.kind = TOCSIN_CHECKPOINT_FORM}, name);
    }
    if (found->elements != saved->elements) {
        tocsin_string_printf(&all->text, "of %s there are %" PRIu64 " of %" PRIu64 " elements",
                             name, found->elements, saved->elements);
        return note(all, (tocsin_checkpoint_difference){.kind = TOCSIN_CHECKPOINT_INCOMPLETE},
                    name);
    }
    return same_content(saved, found) || note_content(all, name, saved, found);
}

/* The one extra tensor that has the content of saved entry `index`: its place in `extra`, or
 * SIZE_MAX. */
static size_t find_renamed(const comparison *all, size_t index)
{
    const tocsin_checkpoint_entry *saved = &all->saved->entries.items[index];
    size_t place = SIZE_MAX;
    if (saved->dtype == TOCSIN_DTYPE_NONE || saved->whole == 0 ||
        all->missing.count > RENAMES_MAX || all->extra.count > RENAMES_MAX)
        return SIZE_MAX;
    for (size_t e = 0; e < all->extra.count; ++e) {
        if (all->extra.items[e] == SIZE_MAX)
            continue;
        const tocsin_checkpoint_entry *found = &all->found->entries.items[all->extra.items[e]];
        if (!tocsin_checkpoint_same_form(saved, found) || !same_content(saved, found))
            continue;
        if (place != SIZE_MAX)
            return SIZE_MAX;
        place = e;
    }
    return place;
}

static bool note_missing(comparison *all)
{
    for (size_t m = 0; m < all->missing.count; ++m) {
        const char *name = tocsin_checkpoint_name(all->saved, all->missing.items[m]);
        size_t place = find_renamed(all, all->missing.items[m]);
        tocsin_checkpoint_difference difference = {.kind = TOCSIN_CHECKPOINT_MISSING};
        if (place == SIZE_MAX) {
            tocsin_string_printf(&all->text, "%s is missing", name);
        } else {
            difference.kind = TOCSIN_CHECKPOINT_RENAMED;
            tocsin_string_printf(&all->text, "%s is called %s here", name,
                                 tocsin_checkpoint_name(all->found, all->extra.items[place]));
            all->extra.items[place] = SIZE_MAX;
        }
        if (!note(all, difference, name))
            return false;
    }
    return true;
}

static bool note_extra(comparison *all)
{
    for (size_t e = 0; e < all->extra.count; ++e) {
        if (all->extra.items[e] == SIZE_MAX)
            continue;
        const char *name = tocsin_checkpoint_name(all->found, all->extra.items[e]);
        tocsin_string_printf(&all->text, "%s was not saved", name);
        if (!note(all, (tocsin_checkpoint_difference){.kind = TOCSIN_CHECKPOINT_EXTRA}, name))
            return false;
    }
    return true;
}

static bool compare_all(comparison *all, const size_t *saved_order, const size_t *found_order)
{
    for (size_t i = 0; i < all->saved->entries.count; ++i)
        if (!compare_entry(all, saved_order[i]))
            return false;
    for (size_t i = 0; i < all->found->entries.count; ++i) {
        const char *name = tocsin_checkpoint_name(all->found, found_order[i]);
        if (tocsin_intern_find(&all->saved->names, name, strlen(name)) == 0 &&
            !TOCSIN_VEC_PUSH(&all->extra, found_order[i]))
            return false;
    }
    return note_missing(all) && note_extra(all);
}

tocsin_status tocsin_checkpoint_digests_compare(const tocsin_checkpoint_digests *saved,
                                                const tocsin_checkpoint_digests *found,
                                                tocsin_checkpoint_differences **differences,
                                                tocsin_error *error)
{
    *differences = NULL;
    comparison *all = tocsin_zalloc(1, sizeof *all);
    size_t *saved_order = tocsin_checkpoint_order(saved);
    size_t *found_order = tocsin_checkpoint_order(found);
    bool good = all && saved_order && found_order;
    if (good) {
        all->saved = saved;
        all->found = found;
        good = compare_all(all, saved_order, found_order);
    }
    tocsin_free(saved_order);
    tocsin_free(found_order);
    if (!good) {
        tocsin_checkpoint_differences_free(all ? &all->result : NULL);
        return tocsin_error_memory(error);
    }
    all->result.items = all->items.items;
    all->result.count = all->items.count;
    *differences = &all->result;
    return TOCSIN_OK;
}

void tocsin_checkpoint_differences_free(tocsin_checkpoint_differences *differences)
{
    comparison *all = (comparison *)(void *)differences;
    if (!all)
        return;
    TOCSIN_VEC_FREE(&all->items);
    TOCSIN_VEC_FREE(&all->missing);
    TOCSIN_VEC_FREE(&all->extra);
    tocsin_string_free(&all->text);
    tocsin_arena_free(&all->arena);
    tocsin_free(all);
}
