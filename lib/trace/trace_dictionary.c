/* A trace's dictionary as a table of look-ups, for consumers that know events but no files. */
#include <tocsin/dictionary.h>
#include <tocsin/trace.h>

static const char *string(const void *trace, tocsin_id id)
{
    return tocsin_trace_string(trace, id);
}

static const char *function_name(const void *trace, tocsin_id id)
{
    return tocsin_trace_function_name(trace, id);
}

static tocsin_role function_role(const void *trace, tocsin_id id)
{
    return tocsin_trace_function_role(trace, id);
}

static const char *variable_name(const void *trace, tocsin_id id)
{
    return tocsin_trace_variable_name(trace, id);
}

static tocsin_variable_kind variable_kind(const void *trace, tocsin_id id)
{
    return tocsin_trace_variable_kind(trace, id);
}

static const char *variable_type(const void *trace, tocsin_id id)
{
    return tocsin_trace_variable_type(trace, id);
}

static uint32_t shape(const void *trace, tocsin_id id, const int64_t **sizes)
{
    return tocsin_trace_shape(trace, id, sizes);
}

static const char *site(const void *trace, tocsin_id id, uint32_t *line, const char **function)
{
    return tocsin_trace_site(trace, id, line, function);
}

tocsin_dictionary tocsin_trace_dictionary(const tocsin_trace *trace)
{
    return (tocsin_dictionary){.producer = trace,
                               .pid = tocsin_trace_pid(trace),
                               .string = string,
                               .function_name = function_name,
                               .function_role = function_role,
                               .variable_name = variable_name,
                               .variable_kind = variable_kind,
                               .variable_type = variable_type,
                               .shape = shape,
                               .site = site};
}
