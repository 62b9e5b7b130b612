/* tocsin/compose.h - verify plans by parts, and keep what is proved.
 *
 * A plan is cut into parts (a layer on all ranks: forward, backward, optimizer); each is proved by
 * itself, and the proof is kept by the content of the part. When a plan is verified again after a
 * change, only the roles whose text changed are read and only the parts that changed are proved.
 * Method and limits: docs/verify.md.
 *
 * The cache is trusted like the program itself: whoever can write to it can make a wrong plan look
 * proved (a certificate, tocsin/certify.h, is for those who do not trust the prover's machine). A
 * damaged file is noticed by its checksum and made anew.
 */
#ifndef TOCSIN_COMPOSE_H
#define TOCSIN_COMPOSE_H

#include <tocsin/scale.h>
#include <tocsin/verify.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_verify_files_options {
    tocsin_plan_options logical, parallel; /* of reading */
    tocsin_verify_options proving;
    const char *cache;   /* a directory, made when missing; NULL: none is used */
    tocsin_scale *scale; /* whose ranks share the proofs of parts; NULL: this process alone */
} tocsin_verify_files_options;

typedef struct tocsin_verify_files_answer {
    tocsin_verify_result *result; /* the caller's, to be freed; NULL on ranks other than 0 */
    tocsin_plan_size size;        /* of the parallel plan */
    double read_seconds;
    uint32_t parts;        /* of the plan, when it was cut, else 0 */
    uint32_t parts_proved; /* of them, proved in this call; the others were known */
    bool reused;           /* the plan as a whole was not proved in this call */
    const char *uncached;  /* why nothing was kept, or "" (static) */
} tocsin_verify_files_answer;

/* Read two plans and verify them. With a cache: if the plan's parts are all known or are proved by
 * themselves, that is the proof; else the plan is verified as a whole, so that verdict and causes
 * are always those of tocsin_verify. With a scale, all its ranks make this call with the same
 * arguments and files; rank 0 verifies the whole, reads and writes the cache, and has the answer,
 * which does not depend on how many they are. Errors: those of tocsin_plan_read and tocsin_verify;
 * E_IO (the cache cannot be written). Threads: reading uses two; else as tocsin_verify. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_verify_files(
    const char *logical_path, const char *parallel_path, const tocsin_verify_files_options *options,
    tocsin_verify_files_answer *answer, tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
