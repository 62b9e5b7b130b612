/* event_names.c - numbers of the event schema as words, for people and for JSON. */
#include <string.h>
#include <tocsin/event.h>

static const char *const role_names[] = {
#define X(number, name, text) [number] = (text),
    TOCSIN_ROLE_TABLE(X)
#undef X
};

enum { ROLE_COUNT = sizeof role_names / sizeof *role_names };

const char *tocsin_role_name(tocsin_role role)
{
    return (unsigned)role < ROLE_COUNT ? role_names[role] : "";
}

tocsin_role tocsin_role_from_name(const char *name)
{
    for (unsigned role = 1; role < ROLE_COUNT; ++role)
        if (strcmp(role_names[role], name) == 0)
            return (tocsin_role)role;
    return TOCSIN_ROLE_NONE;
}

const char *tocsin_event_kind_name(tocsin_event_kind kind)
{
    static const char *const names[] = {"", "enter", "exit", "raise", "state", "meta"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "";
}

const char *tocsin_value_kind_name(tocsin_value_kind kind)
{
    static const char *const names[] = {"none",   "bool",     "int",    "float",  "string",
                                        "tensor", "sequence", "object", "module", "big"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "";
}

const char *tocsin_variable_kind_name(tocsin_variable_kind kind)
{
    static const char *const names[] = {"",    "parameter", "buffer",    "optimizer_state",
                                        "rng", "ledger",    "attribute", "boundary"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "";
}
