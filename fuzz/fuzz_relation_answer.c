/* Any bytes as the answer of a relation that is a command: an error, or instances that are begun,
 * filled and emitted in this order, whatever the text in them. */
#include <invariant/plugin.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct strict_host {
    tocsin_relation_host host; /* first */
    bool begun;
} strict_host;

static void begin(tocsin_relation_host *host, const char *subject)
{
    if (subject == NULL)
        abort();
    ((strict_host *)host)->begun = true;
}

static void within(const tocsin_relation_host *host, const char *text)
{
    if (!((const strict_host *)host)->begun || text == NULL || strlen(text) > SIZE_MAX / 2)
        abort();
}

static void context(tocsin_relation_host *host)
{
    within(host, "");
}

static void field_bool(tocsin_relation_host *host, const char *name, bool value)
{
    (void)value;
    within(host, name);
}

static void field_int(tocsin_relation_host *host, const char *name, int64_t value)
{
    (void)value;
    within(host, name);
}

static void field_real(tocsin_relation_host *host, const char *name, double value)
{
    within(host, name);
    if (value != value)
        abort();
}

static void field_text(tocsin_relation_host *host, const char *name, const char *value)
{
    within(host, name);
    within(host, value);
}

static void fact(tocsin_relation_host *host, const char *text)
{
    within(host, text);
}

static void emit(tocsin_relation_host *host, const char *entity, const char *detail)
{
    within(host, entity != NULL ? entity : "");
    within(host, detail != NULL ? detail : "");
    ((strict_host *)host)->begun = false;
}

static void give_up(tocsin_relation_host *host, const char *message)
{
    (void)host;
    (void)message;
    abort(); /* whoever asked does that */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    strict_host host = {.host = {TOCSIN_RELATION_VERSION, begin, context, field_bool, field_int,
                                 field_real, field_text, fact, emit, give_up}};
    tocsin_error error = {.code = TOCSIN_OK};
    tocsin_status status =
        tocsin_command_answer(&host.host, "fuzzed", (const char *)data, size, &error);
    if (status != TOCSIN_OK && (error.code != status || error.message[0] == 0))
        abort();
    if (status == TOCSIN_OK && host.begun)
        abort();
    return 0;
}
