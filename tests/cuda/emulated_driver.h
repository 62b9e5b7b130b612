/* emulated_driver.h - what a test may ask of the emulated CUDA driver (emulated_driver.c). */
#ifndef TOCSIN_EMULATED_DRIVER_H
#define TOCSIN_EMULATED_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef struct emulated_driver_control {
    /* The call with this number (the first is 1) fails with `failure`; 0: none. */
    uint64_t failing_call;
    int failure;
    uint64_t call_count;
    /* Allocations, modules, events and pushed contexts that have not been given back. */
    int64_t held;
    /* Allocations and waits, which are not allowed while a stream is captured. */
    uint64_t blocking_calls;
    int has_no_context;
    uint64_t random_state;
} emulated_driver_control;

/* The one control, under the name "emulated_control". */
extern emulated_driver_control emulated_control;

#endif
