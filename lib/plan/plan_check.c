/* plan_check.c */
#include "plan/plan.h"

tocsin_status tocsin_plan_finish(tocsin_plan *plan, tocsin_error *error)
{
    (void)plan;
    (void)error;
    return TOCSIN_OK;
}
