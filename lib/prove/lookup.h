/* prove/lookup.h - rules of table look-ups (lookup.c), named in transfer.c's table of rules. */
#ifndef TOCSIN_PROVE_LOOKUP_H
#define TOCSIN_PROVE_LOOKUP_H

#include "prove/prover.h"

bool tocsin_rule_masked_fill(tocsin_prover *prover, const tocsin_kind *kind,
                             const tocsin_execution *run);
bool tocsin_rule_embedding(tocsin_prover *prover, const tocsin_kind *kind,
                           const tocsin_execution *run);
bool tocsin_rule_embedding_backward(tocsin_prover *prover, const tocsin_kind *kind,
                                    const tocsin_execution *run);

#endif
