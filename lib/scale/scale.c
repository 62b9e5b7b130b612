/* scale.c - join and leave the other ranks, agree with them, give them bytes.
 *
 * Data structure: the transport's table and this rank's place. Invariant: every exchange between
 * ranks begins with a meeting, in which each says what it has come for and how it fared; a rank
 * that fails or leaves is thereby known to all before anybody waits for its part. Cost: one
 * reduction of six numbers a meeting; nothing at all when there is one rank.
 */
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/version.h>

#include "scale.h"

#define TEXT_OF(name)       #name
#define TEXT_OF_VALUE(name) TEXT_OF(name)
#define ALONE_HINT          "; TOCSIN_MPI=off: work as the only process"

/* ---- join ---------------------------------------------------------------------------------- */

static tocsin_status load(const char *launcher, const tocsin_scale_transport **transport,
                          tocsin_error *error)
{
    /* Open MPI's own plugins look its symbols up globally. */
    void *library = dlopen(TOCSIN_SCALE_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        const char *reason = dlerror();
        return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED,
                                "%s started this process, but MPI cannot be used: %s" ALONE_HINT,
                                launcher, reason ? reason : TOCSIN_SCALE_LIBRARY);
    }
    *transport = dlsym(library, TEXT_OF_VALUE(TOCSIN_SCALE_TRANSPORT));
    if (*transport && strcmp((*transport)->version, TOCSIN_VERSION) == 0)
        return TOCSIN_OK;
    return tocsin_error_at(error, TOCSIN_E_UNSUPPORTED, TOCSIN_SCALE_LIBRARY, -1,
                           "this library belongs to another version of tocsin");
}

static tocsin_status join(tocsin_scale *scale, const char *launcher, int64_t size,
                          tocsin_error *error)
{
    const tocsin_scale_transport *transport = NULL;
    TOCSIN_TRY(load(launcher, &transport, error));
    const char *lacking = transport->open(&scale->rank, &scale->size);
    if (lacking)
        return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED, "%s", lacking);
    scale->transport = transport;
    if (size == 0 || scale->size == size)
        return TOCSIN_OK;
    return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED,
                            "%s started %lld processes, but the MPI of this build sees %d: it is "
                            "not the launcher's" ALONE_HINT,
                            launcher, (long long)size, scale->size);
}

tocsin_status tocsin_scale_alone(tocsin_scale **scale, tocsin_error *error)
{
    assert(scale);
    *scale = tocsin_zalloc(1, sizeof **scale);
    if (!*scale)
        return tocsin_error_memory(error);
    (*scale)->size = 1;
    return TOCSIN_OK;
}

/* May the launcher be listened to? */
static tocsin_status read_wish(bool *alone, tocsin_error *error)
{
    const char *wish = getenv("TOCSIN_MPI");
    *alone = wish && strcmp(wish, "off") == 0;
    if (!wish || !wish[0] || *alone || strcmp(wish, "auto") == 0)
        return TOCSIN_OK;
    return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "TOCSIN_MPI is '%s': off or auto", wish);
}

tocsin_status tocsin_scale_begin(tocsin_scale **result, tocsin_error *error)
{
    assert(result);
    *result = NULL;
    bool alone;
    TOCSIN_TRY(read_wish(&alone, error));
    tocsin_scale *scale;
    TOCSIN_TRY(tocsin_scale_alone(&scale, error));
    int64_t size;
    const char *launcher = tocsin_scale_launcher(&size);
    tocsin_status status = TOCSIN_OK;
    if (launcher && size != 1 && !alone)
        status = join(scale, launcher, size, error);
    if (status == TOCSIN_OK) {
        *result = scale;
        return TOCSIN_OK;
    }
    if (scale->transport)
        scale->transport->close();
    tocsin_free(scale);
    return status;
}

int tocsin_scale_rank(const tocsin_scale *scale)
{
    return scale->rank;
}

int tocsin_scale_size(const tocsin_scale *scale)
{
    return scale->size;
}

/* ---- meet ---------------------------------------------------------------------------------- */

/* The error of the rank `failed` becomes everybody's. */
static tocsin_status spread(tocsin_scale *scale, int failed, tocsin_status status,
                            tocsin_error *error)
{
    tocsin_error known = {.code = status, .offset = -1};
    if (scale->rank == failed && error) {
        known = *error;
        known.code = status;
    } else if (scale->rank == failed) {
        tocsin_error_set(&known, status, "%s", tocsin_status_text(status));
    }
    scale->transport->broadcast(failed, &known, sizeof known);
    if (!error)
        return known.code;
    *error = known;
    if (failed > 0)
        snprintf(error->message, sizeof error->message, "rank %d: %.*s", failed,
                 (int)(sizeof known.message - 32), known.message);
    return known.code;
}

tocsin_status tocsin_scale_meet(tocsin_scale *scale, tocsin_scale_step step, int64_t detail,
                                tocsin_status status, tocsin_error *error)
{
    if (!scale->transport)
        return status;
    enum { STEP, STEP_MAX, DETAIL, DETAIL_MAX, LEFT, FAILED, VALUES };
    /* The highest of all is the least of the negated ones. */
    int64_t values[VALUES] = {
        [STEP] = step,
        [STEP_MAX] = -(int64_t)step,
        [DETAIL] = detail,
        [DETAIL_MAX] = -detail,
        [LEFT] = step == TOCSIN_SCALE_END ? scale->rank : INT64_MAX,
        [FAILED] = status != TOCSIN_OK ? scale->rank : INT64_MAX,
    };
    scale->transport->minimum(values, VALUES);
    if (values[STEP] != -values[STEP_MAX] && values[LEFT] != INT64_MAX)
        return tocsin_error_set(error, TOCSIN_E_STATE, "rank %d ended before the work was done",
                                (int)values[LEFT]);
    if (values[STEP] != -values[STEP_MAX])
        return tocsin_error_set(error, TOCSIN_E_INTERNAL, "the ranks do different things");
    if (values[DETAIL] != -values[DETAIL_MAX])
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "the ranks count %lld to %lld jobs: they must see the same input",
                                (long long)values[DETAIL], -(long long)values[DETAIL_MAX]);
    if (values[FAILED] == INT64_MAX)
        return TOCSIN_OK;
    return spread(scale, (int)values[FAILED], status, error);
}

tocsin_status tocsin_scale_agree(tocsin_scale *scale, tocsin_status status, tocsin_error *error)
{
    return tocsin_scale_meet(scale, TOCSIN_SCALE_AGREE, 0, status, error);
}

int tocsin_scale_end(tocsin_scale *scale, int exit_code)
{
    if (!scale)
        return exit_code;
    if (scale->transport) {
        /* Who is still at work learns here that this rank has left, fails, and comes too. */
        while (tocsin_scale_meet(scale, TOCSIN_SCALE_END, 0, TOCSIN_OK, NULL) != TOCSIN_OK)
            continue;
        int64_t codes[2] = {scale->rank == 0 ? -exit_code : 0, -exit_code};
        scale->transport->minimum(codes, 2);
        exit_code = (int)-(codes[0] ? codes[0] : codes[1]);
        scale->transport->close();
    }
    tocsin_free(scale);
    return exit_code;
}

/* ---- broadcast ----------------------------------------------------------------------------- */

tocsin_status tocsin_scale_broadcast(tocsin_scale *scale, const void *bytes, size_t count,
                                     char **copy, size_t *copy_bytes, tocsin_error *error)
{
    assert(copy && copy_bytes);
    *copy = NULL;
    *copy_bytes = 0;
    tocsin_status status = TOCSIN_OK;
    if (scale->rank == 0 && count > TOCSIN_SCALE_TOTAL_BYTES_MAX)
        status = tocsin_error_set(error, TOCSIN_E_LIMIT, "%zu bytes for all ranks, %zu at most",
                                  count, TOCSIN_SCALE_TOTAL_BYTES_MAX);
    TOCSIN_TRY(tocsin_scale_meet(scale, TOCSIN_SCALE_BROADCAST, 0, status, error));
    uint64_t total = count;
    if (scale->transport)
        scale->transport->broadcast(0, &total, sizeof total);
    char *memory = tocsin_alloc((size_t)total + 1);
    status = memory ? TOCSIN_OK : tocsin_error_memory(error);
    status = tocsin_scale_meet(scale, TOCSIN_SCALE_BROADCAST, 0, status, error);
    if (status != TOCSIN_OK) {
        tocsin_free(memory);
        return status;
    }
    if (scale->rank == 0 && count > 0)
        memcpy(memory, bytes, count);
    if (scale->transport)
        scale->transport->broadcast(0, memory, (size_t)total);
    memory[total] = 0;
    *copy = memory;
    *copy_bytes = (size_t)total;
    return TOCSIN_OK;
}

void tocsin_scale_free(char *copy)
{
    tocsin_free(copy);
}
