/* prove/evaluate_kernel.h - operators on arrays of field elements: the inside of evaluate.h.
 *
 * An *array* is a value of one rank and micro-batch: immutable once written, so that structure
 * without movement (identity, view) shares the elements. Whatever cannot be computed (an input that
 * was never written, shapes that do not fit, division by zero) makes undefined elements and leaves
 * the reason; only memory and limits are errors.
 */
#ifndef TOCSIN_PROVE_EVALUATE_KERNEL_H
#define TOCSIN_PROVE_EVALUATE_KERNEL_H

#include "base/base.h"
#include "plan/plan.h"
#include "prove/field.h"

typedef struct tocsin_array {
    const tocsin_element *data; /* NULL: never written */
    const int64_t *shape;
    int64_t count;
    uint8_t ndim;
    bool opaque;        /* an opaque function took part */
    bool chosen;        /* a random choice took part */
    bool weak;          /* residues mod q are oracles: an exp of this is opaque */
    bool rational;      /* has denominators: sums multiply the degree */
    double degree;      /* of numerator and denominator, in the inputs */
    const char *reason; /* why elements may be undefined, or NULL */
} tocsin_array;

typedef struct tocsin_kernel {
    const tocsin_plan *plan; /* whose operators run */
    tocsin_field field;
    tocsin_arena arena;
    uint64_t elements, elements_limit;
    uint64_t operations, operations_limit;
    uint8_t cast;     /* tocsin_cast_kind of the operator that runs, if it is one */
    double collision; /* probability that two different arguments of an oracle met */
    const tocsin_signature
        *signatures[TOCSIN_OPERATOR_COUNT]; /* of the table, parsed when needed */
    tocsin_error *error;
} tocsin_kernel;

/* Run an operator that does not communicate. `outputs` have their shapes, and get the rest. */
tocsin_status tocsin_kernel_run(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                const tocsin_array *inputs, tocsin_array *outputs);

/* ---- parts ------------------------------------------------------------------------------------
 */

/* New elements for the array (E_LIMIT, E_MEMORY); its flags are those of the inputs together. */
tocsin_status tocsin_array_new(tocsin_kernel *kernel, tocsin_array *array,
                               const tocsin_array *inputs, uint32_t input_count,
                               tocsin_element **data);
/* All elements undefined, because of `format`. */
tocsin_status tocsin_array_undefine(tocsin_kernel *kernel, tocsin_array *array, const char *format,
                                    ...) TOCSIN_PRINTF(3, 4);
/* Count work; E_LIMIT. */
tocsin_status tocsin_kernel_spend(tocsin_kernel *kernel, double operations);
/* An oracle was asked `count` times about arguments of this degree. */
void tocsin_kernel_ask(tocsin_kernel *kernel, double count, double degree);

bool tocsin_array_same_shape(const tocsin_array *a, const tocsin_array *b);
void tocsin_array_strides(const tocsin_array *array, int64_t *strides); /* row-major */
/* out[i] = in[offset + sum of i_d * strides[d]]; strides >= 0. Undefined when that leaves `in`. */
tocsin_status tocsin_array_gather(tocsin_kernel *kernel, const tocsin_array *in, int64_t offset,
                                  const int64_t *strides, tocsin_array *out);
/* out = in[.., start + step * i, ..] on dim. */
tocsin_status tocsin_array_slice(tocsin_kernel *kernel, const tocsin_array *in, uint32_t dim,
                                 int64_t start, int64_t step, tocsin_array *out);
tocsin_status tocsin_array_cat(tocsin_kernel *kernel, const tocsin_array *inputs, uint32_t count,
                               uint32_t dim, tocsin_array *out);
/* Element by element over arrays of one shape: "sum", "avg", "max" or "min". */
tocsin_status tocsin_array_combine(tocsin_kernel *kernel, const tocsin_array *inputs,
                                   uint32_t count, const char *how, tocsin_array *out);

/* Attributes, with what they are when absent. */
int64_t tocsin_kernel_integer(const tocsin_kernel *kernel, const tocsin_plan_op *op,
                              const char *key, int64_t absent);
double tocsin_kernel_real(const tocsin_kernel *kernel, const tocsin_plan_op *op, const char *key,
                          double absent);
const char *tocsin_kernel_text(const tocsin_kernel *kernel, const tocsin_plan_op *op,
                               const char *key, const char *absent);
/* A dim counted from either end; false: there is none such. */
bool tocsin_kernel_dim(const tocsin_kernel *kernel, const tocsin_plan_op *op, const char *key,
                       int64_t absent, uint8_t ndim, uint32_t *dim);
/* The function that the operator is: its name and attributes, hashed. */
uint64_t tocsin_kernel_function(const tocsin_kernel *kernel, const tocsin_plan_op *op);

/* Families of operators, chosen by tocsin_kernel_run. */
tocsin_status tocsin_kernel_layout(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                   const tocsin_array *inputs, tocsin_array *outputs);
bool tocsin_kernel_is_pointwise(tocsin_operator_code code);
tocsin_status tocsin_kernel_pointwise(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                      const tocsin_array *inputs, tocsin_array *output);
/* By signature: the operator's own, or the table's. */
tocsin_status tocsin_kernel_call(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                 const tocsin_array *inputs, tocsin_array *outputs);

#endif
