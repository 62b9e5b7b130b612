/* plan_blocks.c - a plan's text as header and roles, so that only some roles need be parsed.
 *
 * A line whose first word is `role` begins a role: no other statement begins so, and no statement
 * goes over several lines. The file is read once through a window that holds one role at a time,
 * and hashed role by role; the wanted roles are read again and must hash as before. Roles that are
 * not wanted are replaced by empty ones.
 */
#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

#include "compose/compose.h"

enum { WINDOW_STEP_BYTES = 1 << 18 };

static bool begins_role(const char *line, size_t bytes)
{
    static const char word[] = "role";
    size_t at = 0;
    while (at < bytes && (line[at] == ' ' || line[at] == '\t'))
        at++;
    if (bytes - at < strlen(word) || memcmp(line + at, word, strlen(word)) != 0)
        return false;
    at += strlen(word);
    return at == bytes || line[at] == ' ' || line[at] == '\t' || line[at] == '#';
}

/* What of the file is in memory: the statements since the last role's beginning. */
typedef struct window {
    uint8_t *bytes;
    size_t capacity, used, line; /* line: where the line that is looked at begins */
    uint64_t offset;             /* in the file */
} window;

static tocsin_status window_grow(window *text, tocsin_error *error)
{
    if (text->capacity - text->used >= WINDOW_STEP_BYTES)
        return TOCSIN_OK;
    const size_t wanted = 2 * text->capacity + WINDOW_STEP_BYTES;
    uint8_t *grown = tocsin_realloc(text->bytes, wanted, 1);
    if (grown == NULL)
        return tocsin_error_memory(error);
    text->bytes = grown;
    text->capacity = wanted;
    return TOCSIN_OK;
}

/* What stands before `end` in the window is complete; it is forgotten. */
static void close_block(tocsin_plan_blocks *blocks, window *text, size_t end)
{
    if (blocks->items.count == 0) {
        tocsin_string_append(&blocks->header, text->bytes, end);
    } else {
        tocsin_plan_block *last = &blocks->items.items[blocks->items.count - 1];
        last->bytes = end;
        last->digest = tocsin_hash128_of(text->bytes, end, 0);
    }
    memmove(text->bytes, text->bytes + end, text->used - end);
    text->used -= end;
    text->offset += end;
    text->line = 0;
}

/* Look at the complete lines of the window; at the end of the file, at all. */
static bool scan_lines(tocsin_plan_blocks *blocks, window *text, bool at_end)
{
    while (text->line < text->used) {
        const char *line = (const char *)text->bytes + text->line;
        const char *newline = memchr(line, '\n', text->used - text->line);
        if (newline == NULL && !at_end)
            return true;
        const size_t bytes = newline == NULL ? text->used - text->line : (size_t)(newline - line);
        const size_t whole = bytes + (newline != NULL);
        if (begins_role(line, bytes)) {
            close_block(blocks, text, text->line);
            if (!TOCSIN_VEC_PUSH(&blocks->items, (tocsin_plan_block){.offset = text->offset,
                                                                     .first_line_bytes = whole}))
                return false;
        }
        text->line += whole;
    }
    if (at_end)
        close_block(blocks, text, text->used);
    return true;
}

static tocsin_status scan(tocsin_plan_blocks *blocks, window *text, tocsin_error *error)
{
    static const char version[] = "tocsin-plan";
    for (bool at_end = false; !at_end;) {
        size_t count;
        TOCSIN_TRY(window_grow(text, error));
        const size_t room = text->capacity - text->used;
        TOCSIN_TRY(tocsin_file_read(blocks->fd, text->bytes + text->used, room, -1, &count,
                                    blocks->path, error));
        at_end = count < room;
        text->used += count;
        if (text->offset + text->used > TOCSIN_PLAN_BYTES_MAX)
            return tocsin_error_at(error, TOCSIN_E_LIMIT, blocks->path, 0,
                                   "a plan of more than 4 GiB");
        if (text->offset == 0 && blocks->items.count == 0)
            blocks->is_text =
                text->used > strlen(version) && memcmp(text->bytes, version, strlen(version)) == 0;
        if (!blocks->is_text)
            return TOCSIN_OK;
        if (!scan_lines(blocks, text, at_end))
            return tocsin_error_memory(error);
    }
    return tocsin_string_check(&blocks->header, error);
}

tocsin_status tocsin_plan_blocks_load(tocsin_plan_blocks *blocks, const char *path,
                                      tocsin_error *error)
{
    window text = {0};
    *blocks = (tocsin_plan_blocks){.path = path, .fd = -1};
    TOCSIN_TRY(tocsin_file_open(path, O_RDONLY, 0, &blocks->fd, error));
    const tocsin_status status = scan(blocks, &text, error);
    tocsin_free(text.bytes);
    return status;
}

/* Append a block's text as it was when the file was scanned. */
static tocsin_status append_block(const tocsin_plan_blocks *blocks, const tocsin_plan_block *block,
                                  bool whole, tocsin_string *text, tocsin_error *error)
{
    const size_t bytes = whole ? block->bytes : block->first_line_bytes;
    size_t count;
    char *memory = tocsin_alloc(bytes);
    if (memory == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_file_read(blocks->fd, memory, bytes, (int64_t)block->offset,
                                            &count, blocks->path, error);
    if (status == TOCSIN_OK) {
        const tocsin_hash128 digest = tocsin_hash128_of(memory, count, 0);
        if (count < bytes ||
            (whole && (digest.low != block->digest.low || digest.high != block->digest.high)))
            status = tocsin_error_at(error, TOCSIN_E_IO, blocks->path, (int64_t)block->offset,
                                     "the file changed while it was read");
        tocsin_string_append(text, memory, count);
    }
    tocsin_free(memory);
    return status;
}

tocsin_status tocsin_plan_blocks_read(const tocsin_plan_blocks *blocks, const uint8_t *wanted,
                                      const tocsin_plan_options *options, tocsin_plan **plan,
                                      tocsin_error *error)
{
    if (wanted == NULL)
        return tocsin_plan_read(blocks->path, options, plan, error);
    assert(blocks->is_text);
    tocsin_string text = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX};
    tocsin_status status = TOCSIN_OK;
    tocsin_string_append(&text, tocsin_string_text(&blocks->header), blocks->header.bytes);
    for (size_t r = 0; r < blocks->items.count && status == TOCSIN_OK; r++) {
        status = append_block(blocks, &blocks->items.items[r], wanted[r], &text, error);
        if (!wanted[r])
            tocsin_string_append_text(&text, "\nend\n");
    }
    if (status == TOCSIN_OK)
        status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_read_memory(tocsin_string_text(&text), text.bytes, blocks->path,
                                         options, plan, error);
    tocsin_string_free(&text);
    return status;
}

void tocsin_plan_blocks_free(tocsin_plan_blocks *blocks)
{
    if (blocks->path != NULL && blocks->fd >= 0)
        close(blocks->fd); /* read only: nothing can be lost */
    tocsin_string_free(&blocks->header);
    TOCSIN_VEC_FREE(&blocks->items);
}
