/* traincheck_scratch.h - small folders of TrainCheck's traces, for the tests of the exchange. */
#ifndef TOCSIN_TRAINCHECK_SCRATCH_H
#define TOCSIN_TRAINCHECK_SCRATCH_H

#include "trace_scratch.h"
#include <base/base.h>
#include <exchange/exchange.h>
#include <ftw.h>
#include <stdarg.h>
#include <tocsin/exchange.h>

#define TRAINCHECK_LINE_BYTES 2000

typedef struct traincheck_folder {
    scratch traces;
    char run[SCRATCH_PATH_BYTES]; /* a name that nobody has */
} traincheck_folder;

static inline traincheck_folder traincheck_new(void)
{
    traincheck_folder folder = {.traces = scratch_new()};
    snprintf(folder.run, sizeof folder.run, "%s/run", folder.traces.directory);
    return folder;
}

static inline int traincheck_remove(const char *path, const struct stat *status, int kind,
                                    struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void traincheck_free(traincheck_folder *folder)
{
    assert_int_equal(nftw(folder->traces.directory, traincheck_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Append to a trace. */
static inline void traincheck_put(const traincheck_folder *folder, const char *name,
                                  const char *text)
{
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder->traces.directory, name);
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The line of a variable as the sampler writes it, in process and thread `pid`. */
static inline void traincheck_put_sample(const traincheck_folder *folder, const char *name, int pid,
                                         int time, const char *meta, const char *variable, int data,
                                         const char *more)
{
    char line[TRAINCHECK_LINE_BYTES];
    snprintf(line, sizeof line,
             "{\"var_name\":\"%s\",\"var_type\":\"torch.nn.Parameter\",\"process_id\":%d,"
             "\"thread_id\":%d,\"meta_vars\":{%s},\"type\":\"state_change\",\"attributes\":{"
             "\"_ML_DAIKON_data_ID\":77,\"data\":%d,\"dtype\":\"torch.float32\",\"grad\":null,"
             "\"is_leaf\":true,\"name\":null,\"nbytes\":24,\"ndim\":2,\"requires_grad\":true,"
             "\"shape\":[2,3]%s},\"time\":%d}\n",
             variable, pid, pid, meta, data, more, time);
    traincheck_put(folder, name, line);
}

static inline void traincheck_put_call(const traincheck_folder *folder, const char *name, int time,
                                       const char *id, const char *function, const char *arguments)
{
    char line[TRAINCHECK_LINE_BYTES];
    snprintf(line, sizeof line,
             "{\"func_call_id\": \"%s\", \"thread_id\": 5, \"process_id\": 9, \"meta_vars\": "
             "{\"step\": 0}, \"type\": \"function_call (pre)\", \"function\": \"%s\", "
             "\"is_bound_method\": true, \"obj_id\": null, \"args\": {%s}, \"kwargs\": "
             "{\"inplace\": {\"bool\": false}}, \"time\": %d}\n",
             id, function, arguments, time);
    traincheck_put(folder, name, line);
}

static inline void traincheck_put_return(const traincheck_folder *folder, const char *name,
                                         int time, const char *id, const char *function,
                                         const char *returns)
{
    char line[TRAINCHECK_LINE_BYTES];
    snprintf(line, sizeof line,
             "{\"func_call_id\":\"%s\",\"thread_id\":5,\"process_id\":9,\"meta_vars\":{\"step\":0},"
             "\"type\":\"function_call (post)\",\"function\":\"%s\",\"is_bound_method\":true,"
             "\"obj_id\":null,\"return_values\":%s,\"time\":%d}\n",
             id, function, returns, time);
    traincheck_put(folder, name, line);
}

static inline tocsin_import_summary traincheck_import(const traincheck_folder *folder)
{
    tocsin_error error = {0};
    tocsin_import_summary summary;
    tocsin_status status =
        tocsin_traincheck_import(folder->traces.directory, folder->run, NULL, &summary, &error);
    if (status != TOCSIN_OK)
        fail_msg("import: %s (%s)", error.message, error.where);
    return summary;
}

/* All events of a process of the run as lines of JSON; to free. */
static inline char *traincheck_events(const traincheck_folder *folder, const char *process)
{
    char path[SCRATCH_PATH_BYTES * 2];
    snprintf(path, sizeof path, "%s/process-traincheck-%s.trace", folder->run, process);
    tocsin_trace *trace = scratch_open(path, false);
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    const tocsin_event *event;
    while ((event = scratch_next(trace)) != NULL) {
        const char *line;
        size_t bytes;
        assert_int_equal(tocsin_trace_event_json(trace, event, &line, &bytes, NULL), TOCSIN_OK);
        fprintf(out, "%.*s\n", (int)bytes, line);
    }
    assert_true(tocsin_trace_is_complete(trace));
    assert_false(tocsin_trace_is_alive(trace));
    assert_int_equal(fclose(out), 0);
    tocsin_trace_close(trace);
    return text;
}

#endif
