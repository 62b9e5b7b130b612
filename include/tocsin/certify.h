/* tocsin/certify.h - a second opinion on a proof: is this certificate one of these two plans?
 *
 * tocsin_verify writes a certificate of what it proved (docs/formats/certificate.md); the checker
 * here judges every fact of it on its own and shares no reasoning with the prover.
 *
 * Threads: a call uses the calling thread alone and shares nothing but the read-only plans.
 */
#ifndef TOCSIN_CERTIFY_H
#define TOCSIN_CERTIFY_H

#include <tocsin/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_certify_result {
    bool accepted;
    uint64_t facts;   /* values whose relation was checked, on both sides */
    uint64_t outputs; /* outputs of the parallel plan that were checked equal to the logical ones */
    char text[512];   /* rejected: the first wrong fact and why; accepted: "" */
} tocsin_certify_result;

/* Check the certificate at `path`. One that is readable but wrong is a result, not an error.
 * Errors: E_NOT_FOUND, E_IO, E_FORMAT (malformed; with the line's offset), E_VERSION, E_LIMIT,
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_certify(const char *path,
                                                          const tocsin_plan *logical,
                                                          const tocsin_plan *parallel,
                                                          tocsin_certify_result *result,
                                                          tocsin_error *error);

/* The same from memory; `name` stands in errors. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_certify_memory(
    const void *memory, size_t bytes, const char *name, const tocsin_plan *logical,
    const tocsin_plan *parallel, tocsin_certify_result *result, tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
