/* pieces.h - what one rank holds of a sharded tensor, as a state of its own. */
#ifndef TOCSIN_CORE_PIECES_H
#define TOCSIN_CORE_PIECES_H

#include "observe.h"

/* The part of a DTensor that lies on this rank. `meta` is that of its local tensor. Release. */
typedef struct tensor_piece {
    tensor_meta meta;
    PyObject *local;
    PyObject *gradient; /* a tensor, or NULL: none, or not asked for */
    bool placed;        /* it is a box, and where it lies is known: */
    int64_t whole[TOCSIN_NDIM_MAX], offset[TOCSIN_NDIM_MAX];
    char partial[16]; /* "sum": the reduction that is still to be made; "" */
    bool requires_grad, is_leaf;
    tocsin_tensor_view view; /* filled by piece_fill() */
} tensor_piece;

/* The Python function read() of pieces.py. */
void pieces_set_reader(PyObject *reader);
/* Is the object a DTensor? */
bool piece_is(PyObject *object);
/* Read one. False (no exception set): its local tensor cannot be read. */
bool piece_read(PyObject *tensor, bool with_gradient, tensor_piece *piece);
/* The same of a plain tensor, whose metadata was read, at a place (whole, offset). It owns nothing
 * and needs no release. False: the place does not fit. */
bool piece_place(const tensor_meta *meta, PyObject *place, tensor_piece *piece);
void piece_release(tensor_piece *piece);
/* Record this rank's part of a DTensor that passes a boundary, if it can be read. */
void piece_record(PyObject *tensor, tocsin_id variable, tocsin_attribute attribute,
                  tocsin_moment moment);
/* Let a sample that is about something else say dtype and shape of the whole. */
void piece_describe(const tensor_piece *piece, tocsin_sample *sample);
/* Let a sample speak of the piece: shape, flags, and its place as values, which are appended to
 * `list`; the view, if its memory may be read and `digest`. A piece that is not placed is there, no
 * more. */
void piece_fill(tensor_piece *piece, tocsin_trace_writer *writer, bool digest,
                tocsin_sample *sample, value_list *list);

#endif
