/* tocsin/trace.h - writing and reading runs.
 *
 * A run is a directory: run.json (what was run, where, with which versions) and, per process, one
 * binary file `process-<host>-<pid>.trace` (+ `.ring` while the process lives or if it was
 * killed: the last events, in shared memory that survives SIGKILL). Format: docs/formats/trace.md.
 * A file cut off anywhere is readable up to its last whole block, plus the ring.
 *
 * Threads: a writer may be used from any number of threads; each thread has its own ring. A reader
 * belongs to one thread.
 */
#ifndef TOCSIN_TRACE_H
#define TOCSIN_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/dictionary.h>
#include <tocsin/event.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. Writing ---------------------------------------------------------------------------- */

typedef struct tocsin_trace_writer tocsin_trace_writer;

/* Whose file it is, when a process writes in another's name: an importer. Such a process counts as
 * ended, and time is that of its events. */
typedef struct tocsin_trace_identity {
    int64_t pid;
    const char *host;      /* at most 64 bytes are kept */
    uint64_t wall_ns;      /* when it began, ns since 1970, and */
    uint64_t monotonic_ns; /* the same moment in the clock of its events */
} tocsin_trace_identity;

typedef struct tocsin_trace_writer_options {
    size_t struct_bytes;   /* sizeof this struct */
    const char *directory; /* the run; must exist */
    uint32_t ring_bytes;   /* per thread, rounded up to a power of two >= 16 KiB; 0: 1 MiB */
    uint32_t block_bytes;  /* raw bytes per block at most, 192 KiB .. 4 MiB; 0: 256 KiB */
    uint32_t flush_ms;     /* a block is written at least this often; 0: 50 */
    int compression_level; /* zstd; 0: 1 */
    const tocsin_trace_identity *identity; /* NULL: the calling process, now. Copied. */
} tocsin_trace_writer_options;

/* Create this process's file in the run and start the writer thread (which never touches Python).
 * Errors: E_IO, E_MEMORY, E_NOT_FOUND (no such directory). Free with _close. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_trace_writer_open(
    const tocsin_trace_writer_options *options, tocsin_trace_writer **writer, tocsin_error *error);

/* Dictionary: each returns the id of an equal entry if there is one. Functions, variables, strings,
 * shapes and sites have ids of their own. 0 on failure (out of memory, more than 2^24 entries, or a
 * file that takes no more): callers pass 0 on, readers show "". Text is copied, cut at 32 KiB, and
 * need not end in 0. One lock: keep the ids. */
TOCSIN_API tocsin_id tocsin_trace_define_string(tocsin_trace_writer *writer, const char *text,
                                                size_t bytes);
TOCSIN_API tocsin_id tocsin_trace_define_function(tocsin_trace_writer *writer, const char *name,
                                                  tocsin_role role);
TOCSIN_API tocsin_id tocsin_trace_define_variable(tocsin_trace_writer *writer, const char *name,
                                                  tocsin_variable_kind kind, const char *type);
/* Has this variable, which was defined, that name? */
TOCSIN_API bool tocsin_trace_variable_is(tocsin_trace_writer *writer, tocsin_id variable,
                                         const char *name);
TOCSIN_API tocsin_id tocsin_trace_define_shape(tocsin_trace_writer *writer, uint32_t ndim,
                                               const int64_t *sizes);
TOCSIN_API tocsin_id tocsin_trace_define_site(tocsin_trace_writer *writer, const char *file,
                                              uint32_t line, const char *function);

/* Append an event to the calling thread's ring. `thread`, `depth` are ignored; time_ns 0 means now,
 * and a time before that of the thread's previous event becomes equal to it. ENTER's `call` is
 * assigned and returned; EXIT and RAISE must pass it back: they close that call and those in it
 * whose end was never seen. Waits, without bound on a live writer thread, when the ring is full:
 * memory is bounded and nothing is dropped. Values beyond TOCSIN_EVENT_VALUES_MAX are cut. Never
 * fails visibly: after an I/O error, or for a thread that cannot have a ring (out of memory; more
 * than 4096 threads at once), events are counted as lost (see _statistics) and the job goes on.
 * Not async-signal-safe. */
TOCSIN_API uint64_t tocsin_trace_emit(tocsin_trace_writer *writer, const tocsin_event *event);

/* The same for a writer with an identity, which takes events only in this way and from one thread:
 * the event goes to the given stream, from 1, streams in the order of their numbers (the next new
 * one is the last plus 1). Times never decrease: an event earlier than the last of any stream
 * becomes equal to it. More than 4096 streams: lost. */
TOCSIN_API uint64_t tocsin_trace_emit_on(tocsin_trace_writer *writer, uint32_t stream,
                                         const tocsin_event *event);

typedef struct tocsin_trace_statistics {
    uint64_t events;
    uint64_t lost;
    uint64_t raw_bytes;
    uint64_t file_bytes;
    uint64_t wait_ns; /* time that emitters waited for a full ring */
} tocsin_trace_statistics;

TOCSIN_API void tocsin_trace_writer_statistics(const tocsin_trace_writer *writer,
                                               tocsin_trace_statistics *statistics);

/* Write everything emitted so far to the file; returns when it is there. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_trace_writer_flush(tocsin_trace_writer *writer,
                                                                     tocsin_error *error);

/* Flush, write the footer, stop the thread, remove the ring file, free. Accepts NULL. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_trace_writer_close(tocsin_trace_writer *writer,
                                                                     tocsin_error *error);

/* In a forked child: forget the parent's writer without touching its files (its rings are not
 * mapped here, its thread does not exist here). The child opens a writer of its own. */
TOCSIN_API void tocsin_trace_writer_abandon(tocsin_trace_writer *writer);

/* ---- 2. Reading one process ---------------------------------------------------------------- */

typedef struct tocsin_trace tocsin_trace;

/* Open a process file. With `follow`, a file that is still written is read as far as it is.
 * Errors: E_NOT_FOUND, E_IO, E_FORMAT (not a trace), E_VERSION, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_trace_open(const char *path, bool follow,
                                                             tocsin_trace **trace,
                                                             tocsin_error *error);
TOCSIN_API void tocsin_trace_close(tocsin_trace *trace);

/* The next event, threads merged by time. *event is NULL at the end of what is there (a later call
 * may find more when following). The event and its values live until the next call.
 * Errors: E_CORRUPT (a block's checksum; the reader has skipped it and may be called again), E_IO,
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_trace_next(tocsin_trace *trace,
                                                             const tocsin_event **event,
                                                             tocsin_error *error);

/* Has the writer closed this file (footer seen)? False: it lives, or was killed. */
TOCSIN_API bool tocsin_trace_is_complete(const tocsin_trace *trace);
/* Is the process that writes it still alive on this host? */
TOCSIN_API bool tocsin_trace_is_alive(const tocsin_trace *trace);
/* Blocks skipped so far because of a bad checksum, and bytes after the last whole block. From the
 * first skipped block on it is not known what was called, what was not, and what names mean. */
TOCSIN_API uint64_t tocsin_trace_corrupt_blocks(const tocsin_trace *trace);
TOCSIN_API uint64_t tocsin_trace_trailing_bytes(const tocsin_trace *trace);
TOCSIN_API const char *tocsin_trace_path(const tocsin_trace *trace);
TOCSIN_API int64_t tocsin_trace_pid(const tocsin_trace *trace);

/* Dictionary look-ups; never NULL: "?" for an unknown id, "" for 0. They live as long as the trace.
 */
TOCSIN_API const char *tocsin_trace_string(const tocsin_trace *trace, tocsin_id id);
TOCSIN_API const char *tocsin_trace_function_name(const tocsin_trace *trace, tocsin_id id);
TOCSIN_API tocsin_role tocsin_trace_function_role(const tocsin_trace *trace, tocsin_id id);
TOCSIN_API const char *tocsin_trace_variable_name(const tocsin_trace *trace, tocsin_id id);
TOCSIN_API tocsin_variable_kind tocsin_trace_variable_kind(const tocsin_trace *trace, tocsin_id id);
TOCSIN_API const char *tocsin_trace_variable_type(const tocsin_trace *trace, tocsin_id id);
/* Returns ndim and sets *sizes (NULL when the id is unknown or 0). */
TOCSIN_API uint32_t tocsin_trace_shape(const tocsin_trace *trace, tocsin_id id,
                                       const int64_t **sizes);
/* file ("" when unknown), line and function of a call site. */
TOCSIN_API const char *tocsin_trace_site(const tocsin_trace *trace, tocsin_id id, uint32_t *line,
                                         const char **function);

/* The event as one line of JSON, without "\n": docs/formats/trace.md, 7. *line lives until the next
 * call for this trace. Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_trace_event_json(tocsin_trace *trace,
                                                                   const tocsin_event *event,
                                                                   const char **line, size_t *bytes,
                                                                   tocsin_error *error);

/* What is known of a process so far; all of it after the last event was read. */
typedef struct tocsin_trace_facts {
    int64_t pid;
    const char *host;      /* lives as long as the trace */
    uint64_t wall_ns;      /* when the file was opened, ns since 1970 */
    uint64_t monotonic_ns; /* the same moment in the events' clock */
    uint64_t events;
    uint64_t enters, exits, raises, states, metas; /* of them */
    uint64_t steps;                                /* calls of functions with role step.end */
    uint64_t first_ns; /* of the first and last event; 0 when there is none */
    uint64_t last_ns;
    uint64_t threads;                                      /* with events */
    uint64_t strings, functions, variables, shapes, sites; /* in the dictionary */
    uint64_t file_bytes;
    uint64_t blocks;
    uint64_t corrupt_blocks;
    uint64_t trailing_bytes;
    uint64_t recovered_bytes; /* from rings, because the process was killed */
    uint64_t lost;            /* events that its writer had to give up; known when complete */
    bool complete;            /* closed; else alive, or killed */
    bool alive;
} tocsin_trace_facts;

TOCSIN_API void tocsin_trace_get_facts(const tocsin_trace *trace, tocsin_trace_facts *facts);

/* All of these look-ups as one table, for consumers of events. Valid as long as the trace. */
TOCSIN_API tocsin_dictionary tocsin_trace_dictionary(const tocsin_trace *trace);

/* ---- 3. Reading a run ---------------------------------------------------------------------- */

typedef struct tocsin_run tocsin_run;

/* Open a run directory. With `follow`, processes that appear later are found by _refresh.
 * Errors: E_NOT_FOUND, E_FORMAT (no run.json, or not one), E_VERSION, E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_run_open(const char *directory, bool follow,
                                                           tocsin_run **run, tocsin_error *error);
TOCSIN_API void tocsin_run_close(tocsin_run *run);
/* Look for new process files. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_run_refresh(tocsin_run *run, tocsin_error *error);
TOCSIN_API size_t tocsin_run_process_count(const tocsin_run *run);
TOCSIN_API tocsin_trace *tocsin_run_process(const tocsin_run *run, size_t index); /* borrowed */
TOCSIN_API const char *tocsin_run_directory(const tocsin_run *run);
/* run.json as text, for `tocsin info`. */
TOCSIN_API const char *tocsin_run_json(const tocsin_run *run);

#ifdef __cplusplus
}
#endif
#endif
