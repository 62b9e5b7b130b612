/* plan/plan_text.h - the parts of the `.plan` reader and printer, for the files of this module.
 *
 *   plan_token.c       words, numbers, slices; errors with line and offset
 *   plan_operator.c    operator lines
 *   plan_text.c        all other statements, and the loop over lines
 *   plan_print.c       the printer
 */
#ifndef TOCSIN_PLAN_PLAN_TEXT_H
#define TOCSIN_PLAN_PLAN_TEXT_H

#include "plan/plan.h"

enum { TOCSIN_PLAN_LINE_BYTES_MAX = 1 << 20 };

/* What a byte may be part of. */
enum {
    TOCSIN_TOKEN_NAME = 1,      /* A-Z a-z 0-9 _ . - / : values, operators, segments, ... */
    TOCSIN_TOKEN_WORD = 2,      /* also : < > [ ] ( ) + * : modules, sources, labels */
    TOCSIN_TOKEN_DIGIT = 4,     /* 0-9 */
    TOCSIN_TOKEN_IDENTIFIER = 8 /* A-Z a-z 0-9 _ : axes, keywords */
};
extern const uint8_t tocsin_token_class[256];

/* The value that a name stands for in the role of this stamp. */
typedef struct tocsin_plan_binding {
    uint32_t stamp, value;
} tocsin_plan_binding;

/* A value's type. */
typedef struct tocsin_plan_type {
    uint8_t ndim, dtype;
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
} tocsin_plan_type;

typedef struct tocsin_plan_reader {
    const char *begin, *end; /* the text */
    const char *line;        /* where the line at hand begins */
    const char *at;          /* the next byte */
    const char *line_end;
    uint64_t line_number;
    const char *name; /* of the file */
    tocsin_error *error;
    tocsin_error inner; /* of a callee, which does not know the line */
    tocsin_plan *plan;
    tocsin_declarations declarations;
    bool has_version, has_mesh, has_microbatches, in_role, in_segment;
    uint32_t stamp;                           /* of the role, from 1 */
    TOCSIN_VEC(tocsin_plan_binding) bindings; /* by string */
    tocsin_map groups;                        /* string -> group + 1 */
    tocsin_map segments;                      /* string -> segment of the role + 1 */
    tocsin_intern attribute_texts;            /* {...} as it stands; id - 1 into: */
    TOCSIN_VEC(uint32_t) attribute_set_of_text;
    tocsin_string word;                     /* of a quoted word with escapes */
    TOCSIN_VEC(int64_t) integers;           /* of one attribute set */
    TOCSIN_VEC(uint32_t) inputs, outputs;   /* of one operator */
    TOCSIN_VEC(tocsin_plan_member) members; /* of one group */
} tocsin_plan_reader;

/* ---- tokens ------------------------------------------------------------------------------------
 */

static inline void tocsin_token_skip_blanks(tocsin_plan_reader *r)
{
    while (r->at < r->line_end && (*r->at == ' ' || *r->at == '\t'))
        ++r->at;
}

/* Is `c` the next byte after blanks? Then it is taken. */
static inline bool tocsin_token_accept(tocsin_plan_reader *r, char c)
{
    tocsin_token_skip_blanks(r);
    if (r->at == r->line_end || *r->at != c)
        return false;
    ++r->at;
    return true;
}

/* Nothing but blanks and a comment is left. */
static inline bool tocsin_token_at_end(tocsin_plan_reader *r)
{
    tocsin_token_skip_blanks(r);
    return r->at == r->line_end || *r->at == '#';
}

/* The error "line N: ...", at the next byte. Returns `status`. */
tocsin_status tocsin_token_fail(tocsin_plan_reader *r, tocsin_status status, const char *format,
                                ...) TOCSIN_PRINTF(3, 4);
/* The error of a callee that was given &r->inner, with the place. OK stays OK. */
tocsin_status tocsin_token_located(tocsin_plan_reader *r, tocsin_status status);
tocsin_status tocsin_token_expect(tocsin_plan_reader *r, char c);
tocsin_status tocsin_token_expect_end(tocsin_plan_reader *r);
/* A bare word of bytes of `class`, or a quoted one; never empty when bare. It stands until the next
 * quoted word. `what` names it in errors. */
tocsin_status tocsin_token_word(tocsin_plan_reader *r, unsigned class, const char *what,
                                const char **word, size_t *bytes);
/* The same as a string of the plan. */
tocsin_status tocsin_token_string(tocsin_plan_reader *r, unsigned class, const char *what,
                                  uint32_t *string);
/* A keyword: letters, digits and _, perhaps none. */
size_t tocsin_token_keyword(tocsin_plan_reader *r, const char **word);
static inline bool tocsin_token_is(const char *word, size_t bytes, const char *text)
{
    return strlen(text) == bytes && memcmp(word, text, bytes) == 0;
}
/* An integer in [least, most], with a sign or without. */
tocsin_status tocsin_token_integer(tocsin_plan_reader *r, int64_t least, int64_t most,
                                   int64_t *value);
/* A real at [text, text + bytes) that has the form of one; false: out of range. */
bool tocsin_token_real(const char *text, size_t bytes, double *value);
/* DTYPE[SIZE,...] */
tocsin_status tocsin_token_type(tocsin_plan_reader *r, tocsin_plan_type *type);
/* Perhaps [START : LENGTH, ...]; without one `*given` is false, starts are 0. */
tocsin_status tocsin_token_slice(tocsin_plan_reader *r, bool *given, tocsin_plan_type *type,
                                 tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX]);

/* ---- values and operators (plan_operator.c) ---------------------------------------------------
 */

/* What the name stands for in this role: a slot that is TOCSIN_PLAN_NONE when nothing yet. */
tocsin_status tocsin_plan_reader_binding(tocsin_plan_reader *r, uint32_t name, uint32_t **value);
/* Add the value `name` of this type and bind it; one of which only the name was known gets it. */
tocsin_status tocsin_plan_reader_define(tocsin_plan_reader *r, const tocsin_plan_value *value,
                                        const tocsin_plan_type *type, uint32_t *id);
/* The line at hand, which begins with % or =. */
tocsin_status tocsin_plan_reader_operator(tocsin_plan_reader *r);

#endif
