/* Bytes as what ranks tell of collectives: refused, or judged alike whoever asks.
 *
 * Input: the number of ranks, then their messages, equally long.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tocsin/communication.h>

#define RANKS_MAX  4
#define STATES_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* The state of the calls of rank `own`, if it has `count` records. Is there a finding? */
static bool judge(tocsin_guard_calls *calls, size_t own, size_t count, tocsin_status *status)
{
    uint8_t states[STATES_MAX];
    tocsin_guard_undone undone;
    tocsin_guard_finding *finding = NULL;
    tocsin_error error;
    calls->own = own;
    *status = tocsin_guard_judge_calls(calls, states, count, &undone, &finding, &error);
    require(*status == TOCSIN_OK || finding == NULL);
    bool found = finding != NULL;
    tocsin_guard_finding_free(finding);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 9)
        return 0;
    size_t ranks = 1 + data[0] % RANKS_MAX, each = (size - 1) / ranks / 8 * 8;
    uint64_t *memory = malloc(ranks * each + 8);
    require(memory != NULL);
    memcpy(memory, data + 1, ranks * each);
    tocsin_guard_message messages[RANKS_MAX];
    for (size_t r = 0; r < ranks; ++r)
        messages[r] =
            (tocsin_guard_message){.bytes = (const char *)memory + r * each, .size = each};
    tocsin_guard_calls calls = {
        .moment = {.step = 2, .passed = 1}, .messages = messages, .rank_count = ranks};
    int known = -1;
    for (size_t own = 0; own < ranks; ++own) {
        for (size_t count = 0; count <= STATES_MAX; ++count) {
            tocsin_status status;
            bool found = judge(&calls, own, count, &status);
            require(status != TOCSIN_OK || known < 0 || found == (known == 1));
            known = status == TOCSIN_OK ? found : known;
        }
    }
    free(memory);
    return 0;
}
