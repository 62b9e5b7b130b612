/* lib/invariant/callee_arguments.h - with which arguments functions are called inside a call:
 * facts "calls G with arg.K = V" of EventContain. */
#ifndef TOCSIN_CALLEE_ARGUMENTS_H
#define TOCSIN_CALLEE_ARGUMENTS_H

#include <invariant/relation.h>

/* Of one observer. */
typedef struct tocsin_callee_arguments tocsin_callee_arguments;

/* NULL when no such fact is of interest (learning is not wide, and nobody asks), or after
 * tocsin_observer_fail. */
tocsin_callee_arguments *tocsin_callee_arguments_new(tocsin_observer *observer);
void tocsin_callee_arguments_free(tocsin_callee_arguments *callees); /* accepts NULL */

/* A new function or role: is it asked about? */
void tocsin_callee_arguments_callable(const tocsin_callee_arguments *callees,
                                      tocsin_callable *made);
/* A call begins. */
void tocsin_callee_arguments_enter(const tocsin_callee_arguments *callees,
                                   const tocsin_process *process, tocsin_frame *frame,
                                   const tocsin_event *event);
/* The thread's innermost call was left: tell the enclosing call what it contains. */
void tocsin_callee_arguments_leave(tocsin_callee_arguments *callees, tocsin_thread *thread,
                                   const tocsin_frame *frame, bool completed);
/* Add the facts of a call to the instance. */
void tocsin_callee_arguments_add(const tocsin_callee_arguments *callees, const tocsin_frame *frame);

#endif
