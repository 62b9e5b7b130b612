/* plan/pickle.h - a Python pickle (protocols 2 to 5) read as inert data.
 *
 * A pickle is a program for a stack machine that can call any function of any module. Here nothing
 * is imported, called or executed: a class or function is its name, and what a pickle would make
 * by calling it is an OBJECT that remembers the call. The result is a graph, not a tree: values may
 * be shared and may form cycles, as they do in Python. Internal to the module plan.
 *
 * Threads: a pickle belongs to one thread while it is read; afterwards it is read-only.
 */
#ifndef TOCSIN_PLAN_PICKLE_H
#define TOCSIN_PLAN_PICKLE_H

#include "base/base.h"

/* Limits on a pickle. Memory is linear in the input: every opcode makes at most one value. */
#define TOCSIN_PICKLE_BYTES_MAX  (UINT64_C(1) << 30)
#define TOCSIN_PICKLE_VALUES_MAX (UINT32_C(1) << 26)
#define TOCSIN_PICKLE_STACK_MAX  (UINT32_C(1) << 24)
#define TOCSIN_PICKLE_DEPTH_MAX  10000 /* open marks: what is nested is built from inside out */

typedef enum tocsin_pickle_kind {
    TOCSIN_PICKLE_NONE,
    TOCSIN_PICKLE_BOOL,    /* integer: 0 or 1 */
    TOCSIN_PICKLE_INTEGER, /* 64 bits signed */
    TOCSIN_PICKLE_LONG,    /* a larger one: bytes, little-endian two's complement */
    TOCSIN_PICKLE_REAL,
    TOCSIN_PICKLE_TEXT,  /* as in the file: UTF-8, but unchecked, and may contain 0 bytes */
    TOCSIN_PICKLE_BYTES, /* and bytearray */
    TOCSIN_PICKLE_TUPLE,
    TOCSIN_PICKLE_LIST,
    TOCSIN_PICKLE_SET, /* and frozenset; in the file's order */
    TOCSIN_PICKLE_DICT,
    TOCSIN_PICKLE_CLASS, /* the name of a class or function: "module.name" */
    TOCSIN_PICKLE_OBJECT
} tocsin_pickle_kind;

typedef struct tocsin_pickle_value tocsin_pickle_value;

typedef struct tocsin_pickle_object {
    const tocsin_pickle_value *class; /* what was called; usually a CLASS */
    const tocsin_pickle_value *arguments;
    const tocsin_pickle_value *state; /* of BUILD, the last one; NULL: none */
    tocsin_pickle_value *items;       /* what was appended to it: a LIST; NULL: nothing */
    tocsin_pickle_value *pairs;       /* what was set in it: a DICT; NULL: nothing */
} tocsin_pickle_object;

struct tocsin_pickle_value {
    uint8_t kind;
    uint32_t count;    /* bytes of a text, items of a container, 2 x pairs of a DICT */
    uint32_t capacity; /* of a container that may grow; CLASS: bytes of the module's name */
    union {
        int64_t integer;
        double real;
        const char *text;            /* TEXT, BYTES, LONG, CLASS; a 0 follows */
        tocsin_pickle_value **items; /* a DICT has key, value, key, value, ... */
        tocsin_pickle_object *object;
    };
};

/* Zero is empty. */
typedef struct tocsin_pickle {
    tocsin_arena arena; /* all values */
    const tocsin_pickle_value *root;
    uint32_t value_count;
} tocsin_pickle;

/* Read one pickle that fills `memory`; `where` stands in errors. Texts are copied. Free the pickle
 * whether or not this succeeds.
 * Errors, with the byte offset: E_FORMAT (cut off, not a pickle, wrong use of the stack),
 * E_UNSUPPORTED (an opcode of protocol 0 or 1, of persistent ids, extensions or out-of-band
 * buffers), E_LIMIT, E_MEMORY. */
tocsin_status tocsin_pickle_read(const void *memory, size_t bytes, const char *where,
                                 tocsin_pickle *pickle, tocsin_error *error);
void tocsin_pickle_free(tocsin_pickle *pickle);

/* All accept NULL and wrong kinds and then answer NULL, 0, "" or false, so that a path of look-ups
 * needs one check at its end. */

/* Attribute `key` of an OBJECT, from its state (a dict, or a pair of dicts), or entry `key` of a
 * DICT or of what was set in an OBJECT. The last one wins. Linear in the entries. */
const tocsin_pickle_value *tocsin_pickle_member(const tocsin_pickle_value *value, const char *key);
/* Item `index` of a TUPLE, LIST or SET, or of what was appended to an OBJECT. */
const tocsin_pickle_value *tocsin_pickle_item(const tocsin_pickle_value *value, uint32_t index);
uint32_t tocsin_pickle_count(const tocsin_pickle_value *value);
/* An INTEGER or BOOL. */
bool tocsin_pickle_integer(const tocsin_pickle_value *value, int64_t *integer);
/* A TEXT without 0 bytes, else "". */
const char *tocsin_pickle_text(const tocsin_pickle_value *value);
/* The name without its module: of a CLASS, or of an OBJECT's class. */
const char *tocsin_pickle_class(const tocsin_pickle_value *value);
bool tocsin_pickle_is(const tocsin_pickle_value *value, const char *class_name);

#endif
