/* lib/invariant/pair_window.h - where processes meet: reports of one step, compared in pairs.
 * Inside the module only.
 */
#ifndef TOCSIN_PAIR_WINDOW_H
#define TOCSIN_PAIR_WINDOW_H

#include <invariant/relation.h>

typedef struct tocsin_report { /* the first process's */
    tocsin_population population;
    const tocsin_process *process;
    const char *name; /* variable or function */
    tocsin_symbol symbol;
    int32_t rank;
    bool present;
    tocsin_digest digest;
    tocsin_scalar shape;
    uint8_t dtype;
    tocsin_scalar operation; /* collectives: reduce op or 0 */
    /* replicas, evidence of copies: relation_consistent.c */
    bool hashed, shared, data_parallel, summed;
    uint64_t start, applied;
    uint32_t field_count;
    const tocsin_field *fields; /* in the window's arena */
} tocsin_report;

typedef struct tocsin_window {
    int64_t step; /* 0: unused */
    uint32_t contrasts;
    tocsin_map index; /* what is compared -> report index + 1 */
    TOCSIN_VEC(tocsin_report) reports;
    tocsin_arena arena;
} tocsin_window;

/* A relation's windows: its `open` and `close`. */
void *tocsin_windows_open(tocsin_observer *observer);
void tocsin_windows_close(void *own);
/* The window of a step; NULL when it has passed. */
tocsin_window *tocsin_window_of(void *own, int64_t step);

/* The first report under the key; NULL: none so far. */
const tocsin_report *tocsin_window_find(const tocsin_window *window, uint64_t key);
/* Keep the report with the scratch fields as its own. */
void tocsin_window_keep(tocsin_observer *observer, tocsin_window *window, uint64_t key,
                        tocsin_report *report);
/* Turn the scratch fields (half b) into fields of the pair with `first` (half a). */
void tocsin_pair_fields(tocsin_observer *observer, const tocsin_report *first);

/* Is it one of several ranks? */
bool tocsin_process_is_distributed(const tocsin_process *process);
/* Does a DistributedDataParallel over all ranks live in it now? */
bool tocsin_process_is_data_parallel(const tocsin_observer *observer,
                                     const tocsin_process *process);
/* What a precondition may say about one half of a pair beyond the call: its rank. */
void tocsin_add_rank(tocsin_observer *observer, const tocsin_process *process);

#endif
