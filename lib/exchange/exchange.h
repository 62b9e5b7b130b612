/* lib/exchange/exchange.h - the parts of the importer, and what they say to each other. */
#ifndef TOCSIN_EXCHANGE_INTERNAL_H
#define TOCSIN_EXCHANGE_INTERNAL_H

#include <base/base.h>
#include <tocsin/exchange.h>
#include <tocsin/trace.h>

#define TOCSIN_TRAINCHECK_LINE_MAX  (64u << 20)
#define TOCSIN_TRAINCHECK_FILES_MAX 4096u
#define TOCSIN_TRAINCHECK_TEXT_MAX  256u /* bytes kept of a string argument */
#define TOCSIN_TRAINCHECK_FOLDER    "traincheck"

/* ---- traincheck_record.c: a line --------------------------------------------------------- */

typedef enum tocsin_traincheck_kind {
    TOCSIN_TRAINCHECK_CALL,
    TOCSIN_TRAINCHECK_RETURN,
    TOCSIN_TRAINCHECK_RAISE,
    TOCSIN_TRAINCHECK_STATE
} tocsin_traincheck_kind;

/* One record; everything in it is borrowed from the parsed line. */
typedef struct tocsin_traincheck_record {
    tocsin_traincheck_kind kind;
    int64_t process;
    int64_t thread;
    uint64_t time_ns;
    const tocsin_json_value *meta; /* meta_vars; NULL when there is none */
    const char *call;              /* func_call_id */
    const char *function;
    bool bound;                         /* args["0"] is self */
    const tocsin_json_value *arguments; /* CALL */
    const tocsin_json_value *keywords;
    const tocsin_json_value *returns; /* RETURN */
    const char *exception;            /* RAISE */
    const char *variable;             /* STATE */
    const char *type;
    const char *mode; /* NULL: taken by the sampler */
    const tocsin_json_value *attributes;
} tocsin_traincheck_record;

/* Errors: E_FORMAT (not a record), E_MEMORY. Free *root with tocsin_json_free. */
TOCSIN_MUST_CHECK tocsin_status tocsin_traincheck_record_parse(const char *line, size_t bytes,
                                                               tocsin_json_value **root,
                                                               tocsin_traincheck_record *record,
                                                               tocsin_error *error);
/* As tocsin_json_parse, and besides: NaN, Infinity and -Infinity, which Python writes, become the
 * strings of their names, and integers beyond 64 bits the strings of their digits. */
TOCSIN_MUST_CHECK tocsin_status tocsin_python_json_parse(const char *text, size_t bytes,
                                                         const char *where,
                                                         tocsin_json_value **root,
                                                         tocsin_error *error);

/* What is needed of a record before it is parsed, at the speed of a scan. */
typedef struct tocsin_traincheck_glimpse {
    int64_t process;
    int64_t rank; /* -1: none */
    uint64_t time_ns;
    bool is_state;
} tocsin_traincheck_glimpse;

/* false: not an object with process_id and time. */
bool tocsin_traincheck_record_glimpse(const char *line, size_t bytes,
                                      tocsin_traincheck_glimpse *glimpse);

/* Is it one of the attributes that name an object ("_TRAINCHECK_data_ID", "_ML_DAIKON_grad_ID")? */
bool tocsin_attribute_is_id(const char *name);

/* ---- traincheck_files.c: the lines of a folder -------------------------------------------- */

typedef struct tocsin_traincheck_files tocsin_traincheck_files;

typedef struct tocsin_traincheck_line {
    const char *text; /* valid until the next call */
    size_t bytes;
    size_t file;      /* index */
    const char *name; /* of the file, without its folder */
    uint64_t number;  /* from 1 */
    bool last;        /* of a file that does not end with its end of line */
} tocsin_traincheck_line;

TOCSIN_MUST_CHECK tocsin_status tocsin_traincheck_files_open(const char *directory,
                                                             tocsin_traincheck_files **files,
                                                             tocsin_error *error);
void tocsin_traincheck_files_close(tocsin_traincheck_files *files);
size_t tocsin_traincheck_files_count(const tocsin_traincheck_files *files);
const char *tocsin_traincheck_files_name(const tocsin_traincheck_files *files, size_t index);
/* The earliest line that is left (each file is taken to be in order); line->text is NULL at the
 * end. */
TOCSIN_MUST_CHECK tocsin_status tocsin_traincheck_files_next(tocsin_traincheck_files *files,
                                                             tocsin_traincheck_line *line,
                                                             tocsin_error *error);

/* ---- exchange_folder.c --------------------------------------------------------------------- */

/* Make the folder, or take an empty one. E_EXISTS: there is something in it. */
TOCSIN_MUST_CHECK tocsin_status tocsin_folder_make(const char *path, bool *created,
                                                   tocsin_error *error);
/* Remove the files in it, and the folder if `itself`. */
void tocsin_folder_clear(const char *path, bool itself);

/* ---- kept_records.c: the lines themselves, beside the run's events ------------------------- */

typedef struct tocsin_kept_records tocsin_kept_records;

/* A folder in the run; `count` files. */
TOCSIN_MUST_CHECK tocsin_status tocsin_kept_records_new(const char *run, size_t count,
                                                        tocsin_kept_records **kept,
                                                        tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_kept_records_add(tocsin_kept_records *kept, size_t index,
                                                        const char *name, const char *line,
                                                        size_t bytes, tocsin_error *error);
/* Write what is left and free; accepts NULL. */
TOCSIN_MUST_CHECK tocsin_status tocsin_kept_records_close(tocsin_kept_records *kept,
                                                          tocsin_error *error);

/* Write the kept lines of a run into a folder, each file under its old name. E_NOT_FOUND: there are
 * none. */
TOCSIN_MUST_CHECK tocsin_status tocsin_kept_records_restore(const char *run, const char *directory,
                                                            uint64_t *files, tocsin_error *error);

/* ---- traincheck_value.c: {"type": value} -> tocsin_value ----------------------------------- */

/* Definitions in the dictionary of a run; a failure sticks. */
typedef struct tocsin_definer {
    tocsin_trace_writer *writer;
    bool failed;
} tocsin_definer;

typedef struct tocsin_value_list {
    tocsin_definer *definer;
    tocsin_value items[TOCSIN_EVENT_VALUES_MAX];
    uint32_t count; /* further ones are left out */
} tocsin_value_list;

/* Cut at TOCSIN_TRAINCHECK_TEXT_MAX bytes. */
tocsin_id tocsin_define_text(tocsin_definer *definer, const char *text);
tocsin_id tocsin_define_function(tocsin_definer *definer, const char *name, tocsin_role role);
tocsin_id tocsin_define_variable(tocsin_definer *definer, const char *name,
                                 tocsin_variable_kind kind, const char *type);
/* `value` as TrainCheck writes arguments and returns, and its elements, if it is a list. */
void tocsin_value_add_typed(tocsin_value_list *list, const char *name,
                            const tocsin_json_value *value);
/* None, bools, numbers and strings as they are; false for lists and objects. */
bool tocsin_value_add_plain(tocsin_value_list *list, const char *name,
                            const tocsin_json_value *value);
void tocsin_value_add_truth(tocsin_value_list *list, const char *name, bool truth);
void tocsin_value_add_integer(tocsin_value_list *list, const char *name, int64_t integer);
/* Equal JSON (members in the same order), equal hash. */
uint64_t tocsin_json_hash(const tocsin_json_value *value, uint64_t seed);
/* "torch.float32" -> FLOAT32. */
tocsin_dtype tocsin_dtype_of(const tocsin_json_value *value);
/* Shape id of a list of integers; 0 and *ndim 0 when it is none. */
tocsin_id tocsin_define_shape(tocsin_definer *definer, const tocsin_json_value *value,
                              uint8_t *ndim);

/* ---- traincheck_process.c: the events of one process --------------------------------------- */

typedef struct tocsin_import_process tocsin_import_process;

/* `world_size` 0: the process has no rank. */
TOCSIN_MUST_CHECK tocsin_status tocsin_import_process_new(const char *run, int64_t pid,
                                                          int64_t rank, int64_t world_size,
                                                          uint64_t start_ns,
                                                          tocsin_import_process **process,
                                                          tocsin_error *error);
/* Emit the record's events. *why stays NULL, or says why there are none. */
TOCSIN_MUST_CHECK tocsin_status tocsin_import_process_add(tocsin_import_process *process,
                                                          const tocsin_traincheck_record *record,
                                                          const char **why, tocsin_error *error);
/* Close the file and free; *incomplete (may be NULL) grows by the calls still open. Accepts NULL.
 */
TOCSIN_MUST_CHECK tocsin_status tocsin_import_process_close(tocsin_import_process *process,
                                                            uint64_t *incomplete,
                                                            tocsin_error *error);

#endif
