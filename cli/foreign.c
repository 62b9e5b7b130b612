/* foreign.c - files of invariants, whoever wrote them: told apart by their first line. */
#include "foreign.h"

#include <inttypes.h>
#include <tocsin/exchange.h>

#include "cli.h"

#define SHOWN_MAX 5

static void tell_skipped(void *context, const char *file, uint64_t line, const char *text,
                         const char *why)
{
    uint64_t *count = context;
    if (++*count <= SHOWN_MAX) {
        cli_note("not judged: %s:%" PRIu64 ": %s: %s", file, line, text, why);
    }
}

tocsin_status cli_invariants_load(const char *path, tocsin_invariant_set **set, tocsin_error *error)
{
    if (!tocsin_traincheck_is_invariant_file(path)) {
        return *set ? tocsin_invariants_append(*set, path, error)
                    : tocsin_invariants_load(path, set, error);
    }
    uint64_t skipped = 0;
    tocsin_foreign_options options = {
        .struct_bytes = sizeof options, .skipped = tell_skipped, .context = &skipped};
    tocsin_status status = tocsin_traincheck_invariants_load(path, &options, set, error);
    if (skipped > SHOWN_MAX) {
        cli_note("not judged: %" PRIu64 " invariants of TrainCheck in all", skipped);
    }
    return status;
}
