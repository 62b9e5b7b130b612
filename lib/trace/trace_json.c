/* trace_json.c - recorded events as lines of JSON: docs/formats/trace.md, 7. */
#include "trace/trace_reader.h"

#include <assert.h>
#include <event/event.h>

tocsin_status tocsin_trace_event_json(tocsin_trace *trace, const tocsin_event *event,
                                      const char **line, size_t *bytes, tocsin_error *error)
{
    assert(trace && event && line && bytes);
    tocsin_dictionary dictionary = tocsin_trace_dictionary(trace);
    tocsin_string_clear(&trace->line);
    tocsin_json json = {.out = &trace->line};
    tocsin_event_put_json(event, &dictionary, &json);
    TOCSIN_TRY(tocsin_string_check(&trace->line, error));
    *line = tocsin_string_text(&trace->line);
    *bytes = trace->line.bytes;
    return TOCSIN_OK;
}
