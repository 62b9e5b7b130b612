/* Any bytes as the text of a plan: its communication is matched and followed without an accident,
 * and every rank's calls can be listed. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/plan.h"
#include "prove/conform.h"
#include "prove/sanity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS_MAX = 64, EXECUTIONS_MAX = 1 << 16 };

static void check_findings(const tocsin_plan *plan, const tocsin_sanity *sanity)
{
    for (size_t f = 0; f < sanity->findings.count; ++f) {
        const tocsin_sanity_finding *finding = &sanity->findings.items[f];
        if (finding->call.op >= plan->ops.count || finding->place_count == 0 ||
            finding->occurrences == 0 || finding->relation[0] == 0)
            abort();
    }
}

static void list_calls(const tocsin_plan *plan, uint64_t ranks)
{
    tocsin_intern groups = {0};
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        tocsin_calls calls = {0};
        if (tocsin_conform_planned(plan, rank, &groups, &calls, NULL) != TOCSIN_OK)
            abort();
        TOCSIN_VEC_FREE(&calls);
    }
    tocsin_intern_free(&groups);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tocsin_plan *plan = NULL;
    if (tocsin_plan_read_text((const char *)data, size, "fuzz", NULL, &plan, NULL) != TOCSIN_OK)
        return 0;
    tocsin_plan_size of = tocsin_plan_get_size(plan);
    if (of.ranks <= RANKS_MAX && of.executions <= EXECUTIONS_MAX) {
        tocsin_sanity sanity;
        if (tocsin_sanity_check(plan, &sanity, NULL) != TOCSIN_OK)
            abort();
        check_findings(plan, &sanity);
        tocsin_sanity_free(&sanity);
        list_calls(plan, of.ranks);
    }
    tocsin_plan_free(plan);
    return 0;
}
