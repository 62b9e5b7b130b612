/* plan/plan_check.h - the parts of tocsin_plan_finish, for the files of this module. */
#ifndef TOCSIN_PLAN_PLAN_CHECK_H
#define TOCSIN_PLAN_PLAN_CHECK_H

#include "plan/plan.h"

/* Has the operator the attributes that its rule needs, of the right kinds, and no unknown ones?
 * E_FORMAT with a sentence. */
tocsin_status tocsin_operator_check_attributes(const tocsin_plan *plan, const tocsin_plan_op *op,
                                               tocsin_error *error);

/* Do shapes, attributes and operands fit one another? Else a clause in `why`. `signature`: its own
 * or the table's, or NULL. Attributes and the number of operands have been checked; operands of
 * unknown shape fit everything. */
#define TOCSIN_FLAW_TEXT_BYTES 256
bool tocsin_operator_fits(const tocsin_plan *plan, const tocsin_plan_role *role,
                          const tocsin_plan_op *op, const tocsin_signature *signature,
                          char why[TOCSIN_FLAW_TEXT_BYTES]);

#endif
