/* invariants.c - files of invariants: reading several as one, writing, finding one by its id. */
#include "invariants.h"

#include <string.h>
#include <tocsin/library.h>

#include "foreign.h"

int cli_invariants_read(const char *path, tocsin_invariant_set **set)
{
    tocsin_error error;
    tocsin_status status =
        path ? cli_invariants_load(path, set, &error) : tocsin_library_load(set, &error);
    if (status == TOCSIN_OK) {
        return CLI_HOLDS;
    }
    tocsin_invariants_free(*set);
    *set = NULL;
    return cli_fail(&error);
}

int cli_invariants_read_all(const cli_operands *files, tocsin_invariant_set **set)
{
    int exit_code = CLI_HOLDS;
    for (size_t i = 0; i < files->count && exit_code == CLI_HOLDS; i++) {
        exit_code = cli_invariants_read(files->items[i], set);
    }
    return exit_code;
}

int cli_invariants_store(tocsin_invariant_set *set, const char *path, bool force)
{
    tocsin_error error;
    size_t count = tocsin_invariants_count(set);
    tocsin_status status = tocsin_invariants_save(set, path, force, &error);
    tocsin_invariants_free(set);
    if (status != TOCSIN_OK) {
        int exit_code = cli_fail(&error);
        if (error.code == TOCSIN_E_EXISTS) {
            cli_hint("--force replaces it");
        }
        return exit_code;
    }
    if (strcmp(path, "-") != 0) {
        cli_note("%zu invariant%s in %s", count, count == 1 ? "" : "s", path);
    }
    return CLI_HOLDS;
}

static const char *next_id(const void *context, size_t index)
{
    return index < tocsin_invariants_count(context) ? tocsin_invariant_id(context, index) : NULL;
}

size_t cli_invariants_find(const tocsin_invariant_set *set, const char *id)
{
    for (size_t i = 0; i < tocsin_invariants_count(set); i++) {
        if (strcmp(tocsin_invariant_id(set, i), id) == 0) {
            return i;
        }
    }
    cli_error("there is no invariant %s here", id);
    const char *suggestion = cli_suggest(id, next_id, set);
    if (suggestion) {
        cli_hint("did you mean %s?", suggestion);
    }
    return SIZE_MAX;
}
