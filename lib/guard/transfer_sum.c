/* transfer_sum.c - where the words of a transfer stand in the imagined tensor of a collective.
 *
 * Invariant: transfers of at most TOCSIN_GUARD_TRANSFER_WORDS words take disjoint ranges of at most
 * 2^60 words together, so what holds for one or two changed words of a tensor (docs/digest.md)
 * holds for the collective. Cost: a power in the field for each transfer that is not empty.
 */
#include "guard/guard.h"

#include <tocsin/communication.h>

tocsin_digest tocsin_guard_transfer_sum(const tocsin_digest *transfers, uint32_t members,
                                        uint32_t member, bool outgoing)
{
    tocsin_digest sum = {0};
    for (uint32_t peer = 0; peer < members; ++peer) {
        uint64_t source = outgoing ? member : peer, target = outgoing ? peer : member;
        uint64_t place = (source * members + target) * TOCSIN_GUARD_TRANSFER_WORDS(members);
        sum = tocsin_digest_merge(sum, tocsin_digest_shift(transfers[peer], place));
    }
    return sum;
}
