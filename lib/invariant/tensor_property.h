/* lib/invariant/tensor_property.h - what a tensor in a call is, property by property. */
#ifndef TOCSIN_TENSOR_PROPERTY_H
#define TOCSIN_TENSOR_PROPERTY_H

#include <invariant/relation.h>

#define TOCSIN_PROPERTIES_MAX 80u

typedef struct tocsin_property {
    tocsin_symbol name; /* "dtype", "shape[0]", "is_cuda" */
    uint8_t kind;       /* tocsin_value_kind: NONE, BOOL, INT or STRING */
    int64_t integer;    /* BOOL, INT; STRING: its scalar */
} tocsin_property;

typedef struct tocsin_properties {
    uint32_t count;
    tocsin_property items[TOCSIN_PROPERTIES_MAX];
} tocsin_properties;

/* Names and descriptions that were met: of one observer. */
typedef struct tocsin_property_reader tocsin_property_reader;

/* NULL after tocsin_observer_fail. */
tocsin_property_reader *tocsin_property_reader_new(tocsin_observer *observer);
void tocsin_property_reader_free(tocsin_property_reader *reader); /* accepts NULL */

/* The properties of a tensor: what its value says of it, the sizes of its first 8 dimensions, and
 * what its description says, if another tool left one: "torch.FloatTensor;is_cuda=False;grad=None".
 */
void tocsin_properties_read(tocsin_property_reader *reader, tocsin_process *process,
                            const tocsin_value *tensor, tocsin_properties *properties);
/* "output.dtype"; index >= 0: "output[0].dtype", "input[1].shape[0]". 0 after a failure. */
tocsin_symbol tocsin_property_field(tocsin_property_reader *reader, bool output, int index,
                                    tocsin_symbol property);
/* Its value as a scalar; large whole numbers exactly only if `exact`. */
tocsin_scalar tocsin_property_scalar(tocsin_observer *observer, const tocsin_property *property,
                                     bool exact);

#endif
