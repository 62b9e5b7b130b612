/* lib/trace/trace_reader.h - the parts of reading one process: names, blocks, rings, merge. */
#ifndef TOCSIN_TRACE_READER_H
#define TOCSIN_TRACE_READER_H

#include "trace/trace_format.h"

#include <tocsin/trace.h>

/* ---- names: the dictionary as read ---------------------------------------------------------- */

typedef struct tocsin_names_function {
    tocsin_id name;
    uint32_t role;
} tocsin_names_function;

typedef struct tocsin_names_variable {
    tocsin_id name;
    tocsin_id type;
    uint32_t kind;
} tocsin_names_variable;

typedef struct tocsin_names_shape {
    const int64_t *sizes; /* NULL: not defined */
    uint32_t ndim;
} tocsin_names_shape;

typedef struct tocsin_names_site {
    tocsin_id file;
    tocsin_id function;
    uint32_t line;
} tocsin_names_site;

/* Entry id - 1 of each kind; entries never defined are zero. */
typedef struct tocsin_names {
    tocsin_arena arena;
    TOCSIN_VEC(const char *) strings;
    TOCSIN_VEC(tocsin_names_function) functions;
    TOCSIN_VEC(tocsin_names_variable) variables;
    TOCSIN_VEC(tocsin_names_shape) shapes;
    TOCSIN_VEC(tocsin_names_site) sites;
    uint32_t holes; /* ids that were passed over, at most TOCSIN_TRACE_HOLES_MAX */
} tocsin_names;

/* Take in the records of a piece of stream 0. Malformed ones and those outside the limits set
 * *damaged and are passed over. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_names_read(tocsin_names *names, const uint8_t *bytes,
                                                  size_t count, bool *damaged, tocsin_error *error);
void tocsin_names_free(tocsin_names *names);

/* ---- streams -------------------------------------------------------------------------------- */

/* Bytes of a stream that wait to be read: a block in the file, or a ring's rest in memory. */
typedef struct tocsin_piece {
    tocsin_block_header header;
    uint64_t file_offset; /* of the block; unused when raw */
    uint8_t *raw;         /* owned; NULL: in the file */
} tocsin_piece;

typedef struct tocsin_stream {
    uint32_t number;
    bool active; /* in tocsin_trace.active */
    TOCSIN_VEC(tocsin_piece) pieces;
    size_t next_piece;

    uint8_t *raw; /* the piece being read; NULL: none */
    size_t raw_bytes;
    size_t record_begin;    /* the next record to give out, in raw */
    size_t record_end;      /* 0: not looked at yet */
    tocsin_position before; /* at record_begin */
    tocsin_position after;  /* at record_end: its time is the next event's */
    uint64_t taken;         /* stream position up to which everything was given out */
} tocsin_stream;

struct tocsin_trace {
    char *path;
    int fd;
    bool follow;
    bool identified; /* the header was read and is sound */
    bool complete;   /* footer seen */
    bool final;      /* nothing more can come */
    bool exhausted;  /* and everything was given out: the file is closed */
    tocsin_identity identity;

    uint64_t scanned; /* file offset of the next block; 0: header not read yet */
    bool in_pass;
    uint64_t pass_ns;   /* of the pass being scanned */
    uint64_t watermark; /* events before it are complete; UINT64_MAX: all are */
    uint64_t block_count;
    uint64_t corrupt_blocks;
    uint64_t reported_blocks; /* of them, by E_CORRUPT */
    uint64_t trailing_bytes;
    uint64_t recovered_bytes; /* from rings */
    uint64_t lost;            /* as the footer says */

    uint64_t kind_counts[TOCSIN_EVENT_META + 1]; /* events given out */
    uint64_t step_count;
    uint64_t first_ns;
    uint64_t last_ns;

    tocsin_names names;
    tocsin_map streams; /* number -> tocsin_stream * */
    TOCSIN_VEC(tocsin_stream *) active;
    tocsin_stream *current; /* has the earliest event; NULL: to be chosen again */
    uint64_t rival_ns;      /* current stays as long as its next event is before the rival's */
    uint32_t rival_number;
    uint64_t decoded_bytes; /* held by all streams */

    tocsin_event event;
    tocsin_value values[TOCSIN_EVENT_VALUES_MAX];
    tocsin_string line; /* of tocsin_trace_event_json */
};

/* Close the file, which the next read opens again: a run may have more processes than a process may
 * have files. */
void tocsin_trace_rest(tocsin_trace *trace);

/* Scan on until a pass is complete or the file ends. *progress: there was something new.
 * Errors: E_IO, E_MEMORY. Damage is counted. */
TOCSIN_MUST_CHECK tocsin_status tocsin_trace_scan(tocsin_trace *trace, bool *progress,
                                                  tocsin_error *error);
/* Read a block's payload into new memory, checked; *raw is NULL when it is damaged (counted). */
TOCSIN_MUST_CHECK tocsin_status tocsin_trace_load_block(tocsin_trace *trace, uint64_t file_offset,
                                                        const tocsin_block_header *header,
                                                        uint8_t **raw, tocsin_error *error);
/* Queue a piece of a thread's stream; takes piece->raw in every case. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_trace_queue(tocsin_trace *trace, const tocsin_piece *piece,
                                                   tocsin_error *error);
/* After the writer's death: queue what the ring file has beyond the trace file. A missing ring file
 * is fine. Errors: E_IO, E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_trace_recover_rings(tocsin_trace *trace,
                                                           tocsin_error *error);

#endif
