/* plan_digest.c - the digest of a plan: that of its canonical text, whatever file it came from. */
#include <stdlib.h>

#include "plan/plan.h"

tocsin_status tocsin_plan_digest(const tocsin_plan *plan, tocsin_hash128 *digest,
                                 tocsin_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_plan_write(plan, stream, error);
    if (fclose(stream) != 0 && status == TOCSIN_OK)
        status = tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        *digest = tocsin_hash128_of(text, bytes, 0);
    free(text); /* the C library's own memory */
    return status;
}
