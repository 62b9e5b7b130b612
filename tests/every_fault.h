/* every_fault.h - run an operation once for each call in it that can fail, letting that call fail.
 */
#ifndef TOCSIN_EVERY_FAULT_H
#define TOCSIN_EVERY_FAULT_H

#include "cmocka_test.h"
#include <base/base.h>

typedef tocsin_status every_fault_operation(void *context, tocsin_error *error);

/* The operation must report each fault as `expected` with a message, and succeed once there are no
 * more calls. It frees what it makes; the sanitizer build finds what it forgets. Returns how many
 * calls were made to fail. */
static inline uint64_t every_fault(tocsin_fault kind, tocsin_status expected,
                                   every_fault_operation *operation, void *context)
{
    for (uint64_t nth = 1;; ++nth) {
        tocsin_error error = {0};
        tocsin_fault_arm(kind, nth);
        tocsin_status status = operation(context, &error);
        if (!tocsin_fault_disarm(kind)) {
            assert_int_equal(status, TOCSIN_OK);
            return nth - 1;
        }
        assert_int_equal(status, expected);
        assert_int_equal(error.code, expected);
        assert_true(error.message[0] != 0);
    }
}

#endif
