/* cuts.h - a parameter as a part of another framework's tensor, digested as such. */
#ifndef TOCSIN_CORE_CUTS_H
#define TOCSIN_CORE_CUTS_H

#include "observe.h"

/* Where its words lie in the other tensor. */
typedef struct tensor_cut {
    tocsin_id variable; /* the other tensor; 0: there is none */
    int64_t groups;     /* axis 0 is cut into so many; 0: its two axes are exchanged */
    int64_t total;      /* rows of a group of the other tensor */
    int64_t before;     /* of these before this part's */
} tensor_cut;

/* From None or (name, groups, total, before). */
bool cut_read(PyObject *object, tocsin_trace_writer *writer, tensor_cut *cut);
/* A state of the other tensor: this piece of it. Nothing where the tensor does not have the form.
 */
void cut_emit(const tensor_cut *cut, tocsin_trace_writer *writer, tocsin_attribute attribute,
              tocsin_moment moment, const tensor_meta *meta);

/* name_map_load(source) and name_map_find(name) -> (whole, part, parts, layout) or None */
PyObject *cuts_load_map(PyObject *module, PyObject *source);
PyObject *cuts_find_name(PyObject *module, PyObject *name);

#endif
