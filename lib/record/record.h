/* lib/record/record.h - what the files of the recorder share. */
#ifndef TOCSIN_RECORD_RECORD_H
#define TOCSIN_RECORD_RECORD_H

#include <tocsin/record.h>

#include "base/base.h"

enum {
    TOCSIN_ROLE_COUNT = 16,
    TOCSIN_MOMENT_COUNT = 2, /* index: moment - 1 */
    TOCSIN_KIND_COUNT = 7    /* index: tocsin_variable_kind - 1 */
};

/* How much is read at each point: [role][moment - 1][attribute][kind - 1], a tocsin_sampling. */
typedef struct tocsin_sampling_plan {
    uint8_t amount[TOCSIN_ROLE_COUNT][TOCSIN_MOMENT_COUNT][TOCSIN_ATTRIBUTE_COUNT]
                  [TOCSIN_KIND_COUNT];
} tocsin_sampling_plan;

/* A selected function, or a selected role (by number). */
typedef struct tocsin_selected {
    tocsin_role role;
    uint32_t function; /* id in `functions` */
    bool arguments;
} tocsin_selected;

#define TOCSIN_SELECTION_BYTES_MAX (4u << 20)
#define TOCSIN_SELECTION_LINES_MAX 65536

/* What a selection file says. Zero is empty. Format: docs/formats/selection.md. */
typedef struct tocsin_selection {
    TOCSIN_VEC(tocsin_selected) roles;
    TOCSIN_VEC(tocsin_selected) calls;
    tocsin_intern functions;
    tocsin_sampling_plan plan;
} tocsin_selection;

tocsin_status tocsin_selection_load(tocsin_selection *selection, const char *path,
                                    tocsin_error *error) TOCSIN_MUST_CHECK;
void tocsin_selection_free(tocsin_selection *selection);

/* What is read when everything is recorded. */
void tocsin_sampling_plan_all(tocsin_sampling_plan *plan);

/* ---- tiles.c ------------------------------------------------------------------------------- */

/* The step that is looked at closely. Zero: none. */
typedef struct tocsin_drill {
    int64_t step;           /* from 1; 0: none */
    char *name, *attribute; /* of the tensor that is cut finely */
    uint64_t budget;        /* tiles that others may still have */
} tocsin_drill;

/* Errors: E_MEMORY; to be ended even so. */
TOCSIN_MUST_CHECK tocsin_status tocsin_drill_begin(tocsin_drill *drill, int64_t step,
                                                   const char *name, const char *attribute,
                                                   tocsin_error *error);
void tocsin_drill_end(tocsin_drill *drill);
/* Emit the tiles of a sample that has a view and was emitted. */
void tocsin_drill_tiles(tocsin_drill *drill, tocsin_trace_writer *writer, tocsin_id attribute,
                        const tocsin_sample *sample);

#endif
