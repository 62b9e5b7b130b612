/* prove/proof_state.h - inside of a tocsin_proof. */
#ifndef TOCSIN_PROVE_PROOF_STATE_H
#define TOCSIN_PROVE_PROOF_STATE_H

#include "prove/diagnose.h"
#include "prove/proof.h"

/* Zero but for the first two; free with _free. */
struct tocsin_proof {
    tocsin_attempt *attempt;
    const tocsin_sanity *sanity;
    bool indexed;
    tocsin_map first; /* hash of the atoms of a logical value -> value + 1 */
    uint32_t *next;   /* by logical value: the next one with these atoms + 1, 0: none */
};

void tocsin_proof_free(tocsin_proof *proof);

#endif
