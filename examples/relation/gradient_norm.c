/* gradient_norm.c - a relation in C: how large the whole gradient is, compared with the updates
 * before. Built as a shared library and given to tocsin with --relation; README.md shows how.
 *
 * It asks for the gradients of parameters at the start of optimizer.step, adds up their squares as
 * they come, and when the step is over says of the update what is true of it. Which of these facts
 * hold always, tocsin infer finds out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/relation.h>

#define BEFORE        8  /* updates that an update is compared with */
#define PROCESSES_MAX 64 /* of a run; those beyond are not judged */

typedef struct history { /* of a process */
    double squares;      /* of the gradients seen in the running update */
    bool unknown;        /* one of them was recorded without statistics */
    double norms[BEFORE];
    unsigned long updates;
} history;

static void *begin(const void *context, tocsin_relation_host *host)
{
    history *made = calloc(PROCESSES_MAX, sizeof *made);
    (void)context;
    if (made == NULL)
        host->fail(host, "out of memory");
    return made;
}

static void enter(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    history *all = own;
    (void)host;
    if (view->process >= PROCESSES_MAX)
        return;
    all[view->process].squares = 0;
    all[view->process].unknown = false;
}

static void gradient(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    const tocsin_state *state = &view->event->state;
    history *all = own;
    (void)host;
    if (view->process >= PROCESSES_MAX || (state->flags & TOCSIN_STATE_PRESENT) == 0)
        return;
    if ((state->flags & TOCSIN_STATE_DIGESTED) == 0 || isnan(state->statistics.sum_squares))
        all[view->process].unknown = true;
    else
        all[view->process].squares += state->statistics.sum_squares;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double norms[BEFORE])
{
    double sorted[BEFORE];
    memcpy(sorted, norms, sizeof sorted);
    qsort(sorted, BEFORE, sizeof *sorted, compare);
    return (sorted[BEFORE / 2 - 1] + sorted[BEFORE / 2]) / 2;
}

static void judge(tocsin_relation_host *host, double norm, double before)
{
    char detail[128];
    snprintf(detail, sizeof detail, "the gradient has norm %.3g, the median before was %.3g", norm,
             before);
    host->begin(host, "update");
    host->context(host); /* self.*, meta.*: what a condition may speak of */
    if (norm <= 10 * before)
        host->fact(host, "has at most 10 times the gradient norm of those before");
    if (norm <= 100 * before)
        host->fact(host, "has at most 100 times the gradient norm of those before");
    host->emit(host, NULL, detail);
}

static void leave(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    history *all = own;
    if (view->process >= PROCESSES_MAX || !view->completed)
        return;
    history *mine = &all[view->process];
    double norm = sqrt(mine->squares);
    if (mine->unknown || norm == 0)
        return;
    if (mine->updates >= BEFORE)
        judge(host, norm, median(mine->norms));
    mine->norms[mine->updates++ % BEFORE] = norm;
}

static const tocsin_relation_call calls[] = {{.role = TOCSIN_ROLE_OPTIMIZER_STEP}};
static const tocsin_relation_state states[] = {{.role = TOCSIN_ROLE_OPTIMIZER_STEP,
                                                .moment = TOCSIN_MOMENT_ENTER,
                                                .attribute = "grad",
                                                .variable = TOCSIN_VARIABLE_PARAMETER,
                                                .digest = true}};

TOCSIN_RELATION_EXPORT const tocsin_relation_definition tocsin_relation = {
    .version = TOCSIN_RELATION_VERSION,
    .name = "gradient_norm",
    .calls = calls,
    .call_count = 1,
    .states = states,
    .state_count = 1,
    .open = begin,
    .close = free,
    .enter = enter,
    .leave = leave,
    .state = gradient};
