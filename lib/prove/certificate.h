/* prove/certificate.h - a proof written down, for a checker that shares nothing with the prover.
 * Format: docs/formats/certificate.md. */
#ifndef TOCSIN_PROVE_CERTIFICATE_H
#define TOCSIN_PROVE_CERTIFICATE_H

#include "prove/compare.h"

/* Write what both runs found and the outputs that were proved equal. Errors: E_IO, E_MEMORY. */
tocsin_status tocsin_certificate_write(const tocsin_run *logical, const tocsin_run *parallel,
                                       const tocsin_comparison *comparison, const char *path,
                                       tocsin_error *error);

#endif
