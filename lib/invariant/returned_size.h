/* lib/invariant/returned_size.h - sizes of what the user's functions return, against limits and
 * lists that they are given. */
#ifndef TOCSIN_RETURNED_SIZE_H
#define TOCSIN_RETURNED_SIZE_H

#include <invariant/relation.h>

/* Add what holds of the returned value to the scratch of the call's instance. */
void tocsin_returned_size_add(tocsin_observer *observer, tocsin_process *process,
                              const tocsin_frame *frame, const tocsin_value *returned);
/* The same for each argument by itself: an instance of USER_CALL each. */
void tocsin_returned_size_emit(tocsin_observer *observer, tocsin_process *process,
                               const tocsin_frame *frame, const tocsin_value *returned);

#endif
