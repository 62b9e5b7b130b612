/* plan/pickle.c - the stack machine of Python's pickle, without its power to call anything.
 *
 * Data: a stack of values, a stack of marks (positions in the first), a memo (values by number).
 * An opcode is one entry of a table: the function that does it and one small number for it.
 * Invariant: marks ascend and none stands above the stack's top; what lies below the last mark is
 * out of reach until an opcode takes the mark away.
 * Cost: a few steps for each opcode, each of which makes at most one value, in one arena.
 * Source: CPython's Lib/pickletools.py, which documents every opcode.
 */
#include <assert.h>

#include "plan/pickle.h"

typedef struct machine {
    const uint8_t *bytes;
    size_t size;
    size_t offset;   /* of the next unread byte */
    size_t op_start; /* of the opcode being done, for errors */
    const char *where;
    tocsin_pickle *pickle;
    tocsin_pickle_value *none, *no, *yes; /* shared */
    TOCSIN_VEC(tocsin_pickle_value *) stack;
    TOCSIN_VEC(size_t) marks;
    TOCSIN_VEC(tocsin_pickle_value *) memo; /* NULL: nothing has this number */
    size_t memo_used;
    bool stopped;
    tocsin_error *error;
} machine;

/* `number` means what the table says: bytes of a length, items of a tuple, a kind. */
typedef tocsin_status operation(machine *m, unsigned number);

enum { FROM_MARK = 255 };

static tocsin_status fail(machine *m, tocsin_status code, const char *what)
{
    (void)tocsin_error_at(m->error, code, m->where, (int64_t)m->op_start, "pickle: %s", what);
    return code; /* the compiler sees that it is no success */
}

/* ---- input ----------------------------------------------------------------------------------- */

static tocsin_status take(machine *m, uint64_t count, const uint8_t **bytes)
{
    assert(m->offset <= m->size);
    if (count > m->size - m->offset)
        return fail(m, TOCSIN_E_FORMAT, "the file ends within an opcode");
    *bytes = m->bytes + m->offset;
    m->offset += (size_t)count;
    return TOCSIN_OK;
}

/* A little-endian number of 1 to 8 bytes. */
static tocsin_status take_number(machine *m, unsigned width, uint64_t *number)
{
    assert(width <= 8);
    const uint8_t *bytes;
    TOCSIN_TRY(take(m, width, &bytes));
    *number = 0;
    for (unsigned i = 0; i < width; ++i)
        *number |= (uint64_t)bytes[i] << (8 * i);
    return TOCSIN_OK;
}

/* Bytes after a length of `width` bytes; the length is checked against what is left. */
static tocsin_status take_counted(machine *m, unsigned width, const uint8_t **bytes,
                                  uint64_t *count)
{
    TOCSIN_TRY(take_number(m, width, count));
    return take(m, *count, bytes);
}

/* Up to the next line feed, which is passed. */
static tocsin_status take_line(machine *m, const uint8_t **line, uint64_t *count)
{
    const uint8_t *begin = m->bytes + m->offset;
    const uint8_t *end = memchr(begin, '\n', m->size - m->offset);
    if (!end)
        return fail(m, TOCSIN_E_FORMAT, "the file ends within an opcode");
    *line = begin;
    *count = (uint64_t)(end - begin);
    m->offset += (size_t)*count + 1;
    return TOCSIN_OK;
}

/* ---- values and the stack -------------------------------------------------------------------- */

static tocsin_status make(machine *m, tocsin_pickle_kind kind, tocsin_pickle_value **value)
{
    if (m->pickle->value_count >= TOCSIN_PICKLE_VALUES_MAX)
        return fail(m, TOCSIN_E_LIMIT, "too many values");
    *value = TOCSIN_ARENA_NEW(&m->pickle->arena, tocsin_pickle_value);
    if (!*value)
        return tocsin_error_memory(m->error);
    ++m->pickle->value_count;
    memset(*value, 0, sizeof **value);
    (*value)->kind = (uint8_t)kind;
    return TOCSIN_OK;
}

static tocsin_status push(machine *m, tocsin_pickle_value *value)
{
    assert(value);
    if (m->stack.count >= TOCSIN_PICKLE_STACK_MAX)
        return fail(m, TOCSIN_E_LIMIT, "the stack is too deep");
    if (!TOCSIN_VEC_PUSH(&m->stack, value))
        return tocsin_error_memory(m->error);
    return TOCSIN_OK;
}

static tocsin_status push_new(machine *m, tocsin_pickle_kind kind, tocsin_pickle_value **value)
{
    TOCSIN_TRY(make(m, kind, value));
    return push(m, *value);
}

/* Positions below this one are behind a mark. */
static size_t stack_floor(const machine *m)
{
    size_t floor = m->marks.count ? m->marks.items[m->marks.count - 1] : 0;
    assert(floor <= m->stack.count);
    return floor;
}

/* Take `count` values off the stack; they stay readable at *values until the next push. */
static tocsin_status pop(machine *m, size_t count, tocsin_pickle_value ***values)
{
    if (count > m->stack.count - stack_floor(m))
        return fail(m, TOCSIN_E_FORMAT, "an opcode finds too few values on the stack");
    m->stack.count -= count;
    *values = count ? m->stack.items + m->stack.count : NULL; /* there may be no items yet */
    return TOCSIN_OK;
}

/* The same with all values above the last mark, and the mark; or with `number` values. */
static tocsin_status pop_some(machine *m, unsigned number, tocsin_pickle_value ***values,
                              size_t *count)
{
    *count = number;
    if (number == FROM_MARK) {
        if (m->marks.count == 0)
            return fail(m, TOCSIN_E_FORMAT, "an opcode finds no mark on the stack");
        *count = m->stack.count - stack_floor(m);
        TOCSIN_TRY(pop(m, *count, values));
        --m->marks.count;
        return TOCSIN_OK;
    }
    return pop(m, number, values);
}

static tocsin_status top(machine *m, tocsin_pickle_value **value)
{
    tocsin_pickle_value **values;
    TOCSIN_TRY(pop(m, 1, &values));
    ++m->stack.count;
    *value = values[0];
    return TOCSIN_OK;
}

/* Append to a container. Its array doubles; the first one fits exactly. */
static tocsin_status extend(machine *m, tocsin_pickle_value *container,
                            tocsin_pickle_value *const *values, size_t count)
{
    assert(container->kind >= TOCSIN_PICKLE_TUPLE && container->kind <= TOCSIN_PICKLE_DICT);
    if (count == 0)
        return TOCSIN_OK;
    size_t needed = container->count + count;
    if (needed > UINT32_MAX / 2)
        return fail(m, TOCSIN_E_LIMIT, "a container is too large");
    if (needed > container->capacity) {
        size_t capacity = (size_t)container->capacity * 2;
        if (capacity < needed)
            capacity = needed;
        tocsin_pickle_value **items =
            TOCSIN_ARENA_ARRAY(&m->pickle->arena, tocsin_pickle_value *, capacity);
        if (!items)
            return tocsin_error_memory(m->error);
        if (container->count)
            memcpy(items, container->items, container->count * sizeof(tocsin_pickle_value *));
        container->items = items;
        container->capacity = (uint32_t)capacity;
    }
    memcpy(container->items + container->count, values, count * sizeof(tocsin_pickle_value *));
    container->count = (uint32_t)needed;
    return TOCSIN_OK;
}

/* ---- opcodes: scalars ------------------------------------------------------------------------ */

static tocsin_status op_none(machine *m, unsigned number)
{
    (void)number;
    return push(m, m->none);
}

static tocsin_status op_bool(machine *m, unsigned number)
{
    return push(m, number ? m->yes : m->no);
}

/* BININT is signed, the shorter ones are not. */
static tocsin_status op_integer(machine *m, unsigned width)
{
    uint64_t number;
    tocsin_pickle_value *value;
    TOCSIN_TRY(take_number(m, width, &number));
    TOCSIN_TRY(push_new(m, TOCSIN_PICKLE_INTEGER, &value));
    value->integer = width == 4 ? (int64_t)(int32_t)(uint32_t)number : (int64_t)number;
    return TOCSIN_OK;
}

static tocsin_status push_text(machine *m, tocsin_pickle_kind kind, const uint8_t *bytes,
                               uint64_t count)
{
    tocsin_pickle_value *value;
    TOCSIN_TRY(push_new(m, kind, &value));
    char *text = tocsin_arena_copy(&m->pickle->arena, bytes, (size_t)count);
    if (!text)
        return tocsin_error_memory(m->error);
    value->text = text;
    value->count = (uint32_t)count; /* the whole input is shorter than 4 GiB */
    return TOCSIN_OK;
}

static tocsin_status op_long(machine *m, unsigned width)
{
    const uint8_t *bytes;
    uint64_t count;
    TOCSIN_TRY(take_counted(m, width, &bytes, &count));
    if (count > 8)
        return push_text(m, TOCSIN_PICKLE_LONG, bytes, count);
    uint64_t number = count && (bytes[count - 1] & 0x80) ? UINT64_MAX : 0; /* the sign */
    for (uint64_t i = count; i-- > 0;)
        number = number << 8 | bytes[i];
    tocsin_pickle_value *value;
    TOCSIN_TRY(push_new(m, TOCSIN_PICKLE_INTEGER, &value));
    value->integer = (int64_t)number;
    return TOCSIN_OK;
}

static tocsin_status op_real(machine *m, unsigned width)
{
    const uint8_t *bytes;
    tocsin_pickle_value *value;
    TOCSIN_TRY(take(m, width, &bytes));
    uint64_t bits = 0;
    for (unsigned i = 0; i < width; ++i)
        bits = bits << 8 | bytes[i]; /* the one big-endian number */
    TOCSIN_TRY(push_new(m, TOCSIN_PICKLE_REAL, &value));
    memcpy(&value->real, &bits, sizeof bits);
    return TOCSIN_OK;
}

static tocsin_status op_text(machine *m, unsigned width)
{
    const uint8_t *bytes;
    uint64_t count;
    TOCSIN_TRY(take_counted(m, width, &bytes, &count));
    return push_text(m, TOCSIN_PICKLE_TEXT, bytes, count);
}

static tocsin_status op_bytes(machine *m, unsigned width)
{
    const uint8_t *bytes;
    uint64_t count;
    TOCSIN_TRY(take_counted(m, width, &bytes, &count));
    return push_text(m, TOCSIN_PICKLE_BYTES, bytes, count);
}

/* ---- opcodes: containers --------------------------------------------------------------------- */

static tocsin_status op_empty(machine *m, unsigned kind)
{
    tocsin_pickle_value *value;
    return push_new(m, (tocsin_pickle_kind)kind, &value);
}

static tocsin_status push_container(machine *m, tocsin_pickle_kind kind, unsigned number)
{
    tocsin_pickle_value **values;
    tocsin_pickle_value *container;
    size_t count;
    TOCSIN_TRY(pop_some(m, number, &values, &count));
    if (kind == TOCSIN_PICKLE_DICT && count % 2)
        return fail(m, TOCSIN_E_FORMAT, "a key without a value");
    TOCSIN_TRY(make(m, kind, &container));
    TOCSIN_TRY(extend(m, container, values, count));
    return push(m, container);
}

static tocsin_status op_tuple(machine *m, unsigned number)
{
    return push_container(m, TOCSIN_PICKLE_TUPLE, number);
}

static tocsin_status op_from_mark(machine *m, unsigned kind)
{
    return push_container(m, (tocsin_pickle_kind)kind, FROM_MARK);
}

/* The container of `kind` into which an opcode puts things: the stack's top itself, or the part of
 * an object that keeps what a class of its own would have done with them. */
static tocsin_status open_container(machine *m, tocsin_pickle_kind kind,
                                    tocsin_pickle_value **container)
{
    tocsin_pickle_value *value;
    TOCSIN_TRY(top(m, &value));
    if (value->kind == kind) {
        *container = value;
        return TOCSIN_OK;
    }
    if (value->kind != TOCSIN_PICKLE_OBJECT)
        return fail(m, TOCSIN_E_FORMAT, "items for a value that cannot hold any");
    bool pairs = kind == TOCSIN_PICKLE_DICT;
    tocsin_pickle_value **part = pairs ? &value->object->pairs : &value->object->items;
    if (!*part)
        TOCSIN_TRY(make(m, pairs ? TOCSIN_PICKLE_DICT : TOCSIN_PICKLE_LIST, part));
    *container = *part;
    return TOCSIN_OK;
}

static tocsin_status put_into(machine *m, tocsin_pickle_kind kind, unsigned number)
{
    tocsin_pickle_value **values;
    tocsin_pickle_value *container;
    size_t count;
    TOCSIN_TRY(pop_some(m, number, &values, &count));
    if (kind == TOCSIN_PICKLE_DICT && count % 2)
        return fail(m, TOCSIN_E_FORMAT, "a key without a value");
    TOCSIN_TRY(open_container(m, kind, &container));
    return extend(m, container, values, count); /* nothing was pushed since: `values` still stand */
}

static tocsin_status op_append(machine *m, unsigned number)
{
    return put_into(m, TOCSIN_PICKLE_LIST, number);
}

static tocsin_status op_set_items(machine *m, unsigned number)
{
    return put_into(m, TOCSIN_PICKLE_DICT, number);
}

static tocsin_status op_add_items(machine *m, unsigned number)
{
    return put_into(m, TOCSIN_PICKLE_SET, number);
}

/* ---- opcodes: classes and objects ------------------------------------------------------------ */

static tocsin_status push_class(machine *m, const void *module, size_t module_bytes,
                                const void *name, size_t name_bytes)
{
    tocsin_pickle_value *value;
    TOCSIN_TRY(make(m, TOCSIN_PICKLE_CLASS, &value));
    char *text = tocsin_arena_alloc(&m->pickle->arena, module_bytes + name_bytes + 2, 1);
    if (!text)
        return tocsin_error_memory(m->error);
    memcpy(text, module, module_bytes);
    text[module_bytes] = '.';
    memcpy(text + module_bytes + 1, name, name_bytes);
    text[module_bytes + 1 + name_bytes] = 0;
    value->text = text;
    value->count = (uint32_t)(module_bytes + 1 + name_bytes);
    value->capacity = (uint32_t)module_bytes;
    return push(m, value);
}

static tocsin_status op_class_lines(machine *m, unsigned number)
{
    const uint8_t *module, *name;
    uint64_t module_bytes, name_bytes;
    (void)number;
    TOCSIN_TRY(take_line(m, &module, &module_bytes));
    TOCSIN_TRY(take_line(m, &name, &name_bytes));
    return push_class(m, module, (size_t)module_bytes, name, (size_t)name_bytes);
}

static tocsin_status op_class_stack(machine *m, unsigned number)
{
    tocsin_pickle_value **names;
    TOCSIN_TRY(pop(m, number, &names));
    if (names[0]->kind != TOCSIN_PICKLE_TEXT || names[1]->kind != TOCSIN_PICKLE_TEXT)
        return fail(m, TOCSIN_E_FORMAT, "the name of a class is no text");
    return push_class(m, names[0]->text, names[0]->count, names[1]->text, names[1]->count);
}

/* REDUCE, NEWOBJ: (callable, arguments). NEWOBJ_EX: (class, arguments, keyword arguments); what
 * the latter two would have done is one call with a pair. */
static tocsin_status op_object(machine *m, unsigned number)
{
    tocsin_pickle_value **parts;
    tocsin_pickle_value *value;
    TOCSIN_TRY(pop(m, number, &parts));
    tocsin_pickle_value *class = parts[0];
    tocsin_pickle_value *arguments = parts[1];
    if (arguments->kind != TOCSIN_PICKLE_TUPLE)
        return fail(m, TOCSIN_E_FORMAT, "the arguments of a call are no tuple");
    TOCSIN_TRY(make(m, TOCSIN_PICKLE_OBJECT, &value));
    if (number == 3) {
        tocsin_pickle_value *pair[] = {arguments, parts[2]};
        TOCSIN_TRY(make(m, TOCSIN_PICKLE_TUPLE, &arguments));
        TOCSIN_TRY(extend(m, arguments, pair, 2));
    }
    value->object = TOCSIN_ARENA_NEW(&m->pickle->arena, tocsin_pickle_object);
    if (!value->object)
        return tocsin_error_memory(m->error);
    *value->object = (tocsin_pickle_object){.class = class, .arguments = arguments};
    return push(m, value);
}

static tocsin_status op_build(machine *m, unsigned number)
{
    tocsin_pickle_value **state;
    tocsin_pickle_value *value;
    TOCSIN_TRY(pop(m, number, &state));
    tocsin_pickle_value *taken = state[0];
    TOCSIN_TRY(top(m, &value));
    if (value->kind != TOCSIN_PICKLE_OBJECT)
        return fail(m, TOCSIN_E_FORMAT, "a state for a value that is no object");
    value->object->state = taken;
    return TOCSIN_OK;
}

/* ---- opcodes: stack and memo ----------------------------------------------------------------- */

static tocsin_status op_mark(machine *m, unsigned number)
{
    (void)number;
    if (m->marks.count >= TOCSIN_PICKLE_DEPTH_MAX)
        return fail(m, TOCSIN_E_LIMIT, "nested too deeply");
    if (!TOCSIN_VEC_PUSH(&m->marks, m->stack.count))
        return tocsin_error_memory(m->error);
    return TOCSIN_OK;
}

/* POP takes the mark when that is on top. */
static tocsin_status op_pop(machine *m, unsigned number)
{
    tocsin_pickle_value **values;
    size_t count;
    bool mark_on_top = m->marks.count && m->stack.count == stack_floor(m);
    return pop_some(m, mark_on_top ? FROM_MARK : number, &values, &count);
}

static tocsin_status op_duplicate(machine *m, unsigned number)
{
    tocsin_pickle_value *value;
    (void)number;
    TOCSIN_TRY(top(m, &value));
    return push(m, value);
}

/* Numbers are dense in real pickles: one beyond the file's size is not worth its memory. */
static tocsin_status memo_put(machine *m, uint64_t index)
{
    tocsin_pickle_value *value;
    TOCSIN_TRY(top(m, &value));
    if (index >= m->size)
        return fail(m, TOCSIN_E_LIMIT, "a memo number is out of all proportion");
    if (index >= m->memo.count) {
        size_t more = (size_t)index + 1 - m->memo.count;
        if (!TOCSIN_VEC_RESERVE(&m->memo, more))
            return tocsin_error_memory(m->error);
        memset(m->memo.items + m->memo.count, 0, more * sizeof *m->memo.items);
        m->memo.count += more;
    }
    m->memo_used += m->memo.items[index] == NULL;
    m->memo.items[index] = value;
    return TOCSIN_OK;
}

static tocsin_status op_put(machine *m, unsigned width)
{
    uint64_t index;
    TOCSIN_TRY(take_number(m, width, &index));
    return memo_put(m, index);
}

static tocsin_status op_memoize(machine *m, unsigned number)
{
    (void)number;
    return memo_put(m, m->memo_used);
}

static tocsin_status op_get(machine *m, unsigned width)
{
    uint64_t index;
    TOCSIN_TRY(take_number(m, width, &index));
    if (index >= m->memo.count || !m->memo.items[index])
        return fail(m, TOCSIN_E_FORMAT, "a memo number that was never set");
    return push(m, m->memo.items[index]);
}

/* ---- opcodes: the frame of it all ------------------------------------------------------------ */

static tocsin_status op_protocol(machine *m, unsigned width)
{
    uint64_t protocol;
    TOCSIN_TRY(take_number(m, width, &protocol));
    if (protocol < 2 || protocol > 5)
        return fail(m, TOCSIN_E_UNSUPPORTED, "only protocols 2 to 5 are read");
    return TOCSIN_OK;
}

/* A frame only says how much to read ahead. */
static tocsin_status op_frame(machine *m, unsigned width)
{
    uint64_t bytes;
    TOCSIN_TRY(take_number(m, width, &bytes));
    if (bytes > m->size - m->offset)
        return fail(m, TOCSIN_E_FORMAT, "the file ends within a frame");
    return TOCSIN_OK;
}

static tocsin_status op_stop(machine *m, unsigned number)
{
    tocsin_pickle_value **values;
    TOCSIN_TRY(pop(m, number, &values));
    tocsin_pickle_value *root = values[0];
    if (m->marks.count || m->stack.count)
        return fail(m, TOCSIN_E_FORMAT, "the pickle ends with more than one value");
    if (m->offset != m->size)
        return fail(m, TOCSIN_E_FORMAT, "bytes follow the pickle's end");
    m->pickle->root = root;
    m->stopped = true;
    return TOCSIN_OK;
}

static const struct {
    operation *run; /* NULL: not an opcode, or one that is not supported */
    uint8_t number;
} operations[256] = {
    ['N'] = {op_none, 0},
    [0x88] = {op_bool, 1},
    [0x89] = {op_bool, 0},
    ['K'] = {op_integer, 1}, /* BININT1 */
    ['M'] = {op_integer, 2}, /* BININT2 */
    ['J'] = {op_integer, 4}, /* BININT */
    [0x8a] = {op_long, 1},
    [0x8b] = {op_long, 4},
    ['G'] = {op_real, 8},   /* BINFLOAT */
    [0x8c] = {op_text, 1},  /* SHORT_BINUNICODE */
    ['X'] = {op_text, 4},   /* BINUNICODE */
    [0x8d] = {op_text, 8},  /* BINUNICODE8 */
    ['U'] = {op_bytes, 1},  /* SHORT_BINSTRING */
    ['T'] = {op_bytes, 4},  /* BINSTRING */
    ['C'] = {op_bytes, 1},  /* SHORT_BINBYTES */
    ['B'] = {op_bytes, 4},  /* BINBYTES */
    [0x8e] = {op_bytes, 8}, /* BINBYTES8 */
    [0x96] = {op_bytes, 8}, /* BYTEARRAY8 */
    [')'] = {op_tuple, 0},  /* EMPTY_TUPLE */
    [0x85] = {op_tuple, 1}, /* TUPLE1 */
    [0x86] = {op_tuple, 2}, /* TUPLE2 */
    [0x87] = {op_tuple, 3}, /* TUPLE3 */
    ['t'] = {op_tuple, FROM_MARK},
    [']'] = {op_empty, TOCSIN_PICKLE_LIST},
    ['}'] = {op_empty, TOCSIN_PICKLE_DICT},
    [0x8f] = {op_empty, TOCSIN_PICKLE_SET},
    ['l'] = {op_from_mark, TOCSIN_PICKLE_LIST},
    ['d'] = {op_from_mark, TOCSIN_PICKLE_DICT},
    [0x91] = {op_from_mark, TOCSIN_PICKLE_SET}, /* FROZENSET */
    ['a'] = {op_append, 1},
    ['e'] = {op_append, FROM_MARK},
    ['s'] = {op_set_items, 2},
    ['u'] = {op_set_items, FROM_MARK},
    [0x90] = {op_add_items, FROM_MARK},
    ['c'] = {op_class_lines, 0},  /* GLOBAL */
    [0x93] = {op_class_stack, 2}, /* STACK_GLOBAL */
    ['R'] = {op_object, 2},       /* REDUCE */
    [0x81] = {op_object, 2},      /* NEWOBJ */
    [0x92] = {op_object, 3},      /* NEWOBJ_EX */
    ['b'] = {op_build, 1},
    ['('] = {op_mark, 0},
    ['0'] = {op_pop, 1},
    ['1'] = {op_pop, FROM_MARK}, /* POP_MARK */
    ['2'] = {op_duplicate, 0},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    [0x94] = {op_memoize, 0},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
    [0x80] = {op_protocol, 1},
    [0x95] = {op_frame, 8},
    ['.'] = {op_stop, 1},
};

static tocsin_status fail_opcode(machine *m, uint8_t opcode)
{
    /* Of protocols 0 and 1, persistent ids, extensions, out-of-band buffers. */
    static const uint8_t others[] = {'I', 'L', 'F', 'S',  'V',  'g',  'p',  'P',
                                     'Q', 'i', 'o', 0x82, 0x83, 0x84, 0x97, 0x98};
    bool exists = memchr(others, opcode, sizeof others) != NULL;
    return tocsin_error_at(m->error, exists ? TOCSIN_E_UNSUPPORTED : TOCSIN_E_FORMAT, m->where,
                           (int64_t)m->op_start, "pickle: %s opcode 0x%02x",
                           exists ? "unsupported" : "unknown", opcode);
}

static tocsin_status run(machine *m)
{
    TOCSIN_TRY(make(m, TOCSIN_PICKLE_NONE, &m->none));
    TOCSIN_TRY(make(m, TOCSIN_PICKLE_BOOL, &m->no));
    TOCSIN_TRY(make(m, TOCSIN_PICKLE_BOOL, &m->yes));
    m->yes->integer = 1;
    if (m->size < 2 || m->bytes[0] != 0x80)
        return fail(m, TOCSIN_E_FORMAT, "no protocol number at the beginning");
    while (!m->stopped) {
        m->op_start = m->offset;
        if (m->offset == m->size)
            return fail(m, TOCSIN_E_FORMAT, "the file ends before the pickle does");
        uint8_t opcode = m->bytes[m->offset++];
        if (!operations[opcode].run)
            return fail_opcode(m, opcode);
        TOCSIN_TRY(operations[opcode].run(m, operations[opcode].number));
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_pickle_read(const void *memory, size_t bytes, const char *where,
                                 tocsin_pickle *pickle, tocsin_error *error)
{
    assert(memory || bytes == 0);
    assert(pickle);
    machine m = {.bytes = memory, .size = bytes, .where = where, .pickle = pickle, .error = error};
    size_t chunk_bytes = bytes < 1 << 17 ? 8 * bytes + 4096 : 1 << 20;
    *pickle = (tocsin_pickle){.arena.chunk_bytes = chunk_bytes};
    if (bytes > TOCSIN_PICKLE_BYTES_MAX)
        return fail(&m, TOCSIN_E_LIMIT, "the file is too large");
    tocsin_status status = run(&m);
    TOCSIN_VEC_FREE(&m.stack);
    TOCSIN_VEC_FREE(&m.marks);
    TOCSIN_VEC_FREE(&m.memo);
    return status;
}

void tocsin_pickle_free(tocsin_pickle *pickle)
{
    if (pickle) {
        tocsin_arena_free(&pickle->arena);
        *pickle = (tocsin_pickle){0};
    }
}

/* ---- looking at values ----------------------------------------------------------------------- */

static const tocsin_pickle_value *find_key(const tocsin_pickle_value *dict, const char *key,
                                           size_t bytes)
{
    if (!dict || dict->kind != TOCSIN_PICKLE_DICT)
        return NULL;
    for (uint32_t i = dict->count; i >= 2; i -= 2) {
        const tocsin_pickle_value *k = dict->items[i - 2];
        if (k->kind == TOCSIN_PICKLE_TEXT && k->count == bytes && !memcmp(k->text, key, bytes))
            return dict->items[i - 1];
    }
    return NULL;
}

const tocsin_pickle_value *tocsin_pickle_member(const tocsin_pickle_value *value, const char *key)
{
    assert(key);
    size_t bytes = strlen(key);
    if (!value || value->kind != TOCSIN_PICKLE_OBJECT)
        return find_key(value, key, bytes);
    const tocsin_pickle_value *state = value->object->state;
    const tocsin_pickle_value *found = NULL;
    if (state && state->kind == TOCSIN_PICKLE_TUPLE && state->count == 2) {
        found = find_key(state->items[1], key, bytes);
        state = state->items[0];
    }
    if (!found)
        found = find_key(state, key, bytes);
    return found ? found : find_key(value->object->pairs, key, bytes);
}

static const tocsin_pickle_value *sequence(const tocsin_pickle_value *value)
{
    if (value && value->kind == TOCSIN_PICKLE_OBJECT)
        value = value->object->items;
    bool is_sequence =
        value && value->kind >= TOCSIN_PICKLE_TUPLE && value->kind <= TOCSIN_PICKLE_SET;
    return is_sequence ? value : NULL;
}

const tocsin_pickle_value *tocsin_pickle_item(const tocsin_pickle_value *value, uint32_t index)
{
    value = sequence(value);
    return value && index < value->count ? value->items[index] : NULL;
}

uint32_t tocsin_pickle_count(const tocsin_pickle_value *value)
{
    value = sequence(value);
    return value ? value->count : 0;
}

bool tocsin_pickle_integer(const tocsin_pickle_value *value, int64_t *integer)
{
    if (!value || (value->kind != TOCSIN_PICKLE_INTEGER && value->kind != TOCSIN_PICKLE_BOOL))
        return false;
    *integer = value->integer;
    return true;
}

const char *tocsin_pickle_text(const tocsin_pickle_value *value)
{
    bool is_text =
        value && value->kind == TOCSIN_PICKLE_TEXT && strlen(value->text) == value->count;
    return is_text ? value->text : "";
}

const char *tocsin_pickle_class(const tocsin_pickle_value *value)
{
    if (value && value->kind == TOCSIN_PICKLE_OBJECT)
        value = value->object->class;
    return value && value->kind == TOCSIN_PICKLE_CLASS ? value->text + value->capacity + 1 : "";
}

bool tocsin_pickle_is(const tocsin_pickle_value *value, const char *class_name)
{
    return value && value->kind == TOCSIN_PICKLE_OBJECT &&
           strcmp(tocsin_pickle_class(value), class_name) == 0;
}
