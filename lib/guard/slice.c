/* slice.c - where a reduction is computed again in a step.
 *
 * Its elements are cut into at most PLACES slices, and step by step the slices are taken in an
 * order that the key draws: slope * step + shift modulo PLACES. PLACES is prime, so that each slope
 * is a permutation, and a call that is made only every n-th step meets all slices, too.
 */
#include <tocsin/communication.h>

#define PLACES       61
#define ELEMENTS_MIN 1024

void tocsin_guard_reduction_slice(uint64_t key, uint64_t step, uint64_t position, uint64_t span,
                                  uint64_t *first, uint64_t *length)
{
    uint64_t each = span / PLACES + (span % PLACES != 0);
    if (each < ELEMENTS_MIN)
        each = ELEMENTS_MIN;
    if (each > span)
        each = span;
    uint64_t slope = 1 + key % (PLACES - 1), shift = (key >> 32) % PLACES;
    uint64_t place = ((step % PLACES + position % PLACES) * slope + shift) % PLACES;
    uint64_t slices = each ? span / each + (span % each != 0) : 1;
    uint64_t at = place % slices * each;
    *first = at < span - each ? at : span - each;
    *length = each;
}
