/* Windows: processes compared at the same point of training.
 *
 * A window holds what processes reported for one step: under each key the first report, with which
 * every later one is compared: W - 1 pairs for W ranks, no quadratic enumeration, no clock. A
 * report is final when it arrives, so a process that stalls holds up nobody. Data: WINDOWS_MAX
 * windows, step modulo WINDOWS_MAX; a newer step takes its slot from an older one, a report older
 * than its slot's step is too late and not compared. Memory is bounded by WINDOWS_MAX * what is
 * compared in a step.
 */
#include <assert.h>
#include <invariant/pair_window.h>

#define WINDOWS_MAX 64

typedef struct windows {
    tocsin_window slots[WINDOWS_MAX];
} windows;

void *tocsin_windows_open(tocsin_observer *observer)
{
    windows *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return made;
}

void tocsin_windows_close(void *own)
{
    windows *all = own;
    for (size_t i = 0; i < WINDOWS_MAX; ++i) {
        tocsin_map_free(&all->slots[i].index);
        TOCSIN_VEC_FREE(&all->slots[i].reports);
        tocsin_arena_free(&all->slots[i].arena);
    }
    tocsin_free(all);
}

tocsin_window *tocsin_window_of(void *own, int64_t step)
{
    windows *all = own;
    assert(step > 0);
    tocsin_window *slot = &all->slots[step % WINDOWS_MAX];
    if (slot->step > step)
        return NULL;
    if (slot->step < step) {
        tocsin_map_clear(&slot->index);
        slot->reports.count = 0;
        slot->contrasts = 0;
        tocsin_arena_reset(&slot->arena);
        slot->step = step;
    }
    return slot;
}

/* Copy the scratch fields into the report. */
static bool keep_fields(tocsin_observer *observer, tocsin_window *slot, tocsin_report *made)
{
    size_t count = tocsin_fields_sort(observer->fields.items, observer->fields.count);
    tocsin_field *fields = TOCSIN_ARENA_ARRAY(&slot->arena, tocsin_field, count);
    if (fields == NULL)
        return false;
    memcpy(fields, observer->fields.items, count * sizeof *fields);
    made->fields = fields;
    made->field_count = (uint32_t)count;
    return true;
}

const tocsin_report *tocsin_window_find(const tocsin_window *window, uint64_t key)
{
    const uint64_t *known = tocsin_map_find(&window->index, key);
    return known != NULL ? &window->reports.items[*known - 1] : NULL;
}

void tocsin_window_keep(tocsin_observer *observer, tocsin_window *slot, uint64_t key,
                        tocsin_report *made)
{
    if (!keep_fields(observer, slot, made) || !TOCSIN_VEC_PUSH(&slot->reports, *made) ||
        !tocsin_map_put(&slot->index, key, slot->reports.count))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

void tocsin_pair_fields(tocsin_observer *observer, const tocsin_report *first)
{
    size_t count = tocsin_fields_sort(observer->fields.items, observer->fields.count);
    observer->fields.count = count;
    size_t a = 0;
    for (size_t b = 0; b < count; ++b) {
        tocsin_field *field = &observer->fields.items[b];
        while (a < first->field_count && first->fields[a].name < field->name)
            ++a;
        bool both = a < first->field_count && first->fields[a].name == field->name;
        field->b = field->a;
        field->a = both ? first->fields[a].a : 0;
    }
    for (a = 0; a < first->field_count; ++a) {
        size_t b = 0;
        while (b < count && observer->fields.items[b].name != first->fields[a].name)
            ++b;
        if (b == count)
            tocsin_observer_add_field(observer, first->fields[a].name, first->fields[a].a, 0);
    }
}

void tocsin_add_rank(tocsin_observer *observer, const tocsin_process *process)
{
    tocsin_scalar rank = tocsin_scalar_of_int(observer, process->rank);
    tocsin_observer_add_field(observer, observer->meta_rank, rank, rank);
}

bool tocsin_process_is_distributed(const tocsin_process *process)
{
    return process->rank >= 0 && process->world_size > 1;
}

bool tocsin_process_is_data_parallel(const tocsin_observer *observer, const tocsin_process *process)
{
    for (size_t i = 0; i < process->metas.count; ++i) {
        const tocsin_meta *meta = &process->metas.items[i];
        if (meta->name != observer->meta_data_parallel)
            continue;
        tocsin_literal literal = tocsin_scalar_literal(observer->vocabulary, meta->value);
        return literal.kind == TOCSIN_VALUE_STRING && strcmp(literal.text, "world") == 0;
    }
    return false;
}
