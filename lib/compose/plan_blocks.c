/* plan_blocks.c - a plan's text as header and roles, so that only some roles need be parsed.
 *
 * A line whose first word is `role` begins a role: no other statement begins so, and no statement
 * goes over several lines. Roles that are not wanted are replaced by empty ones. Cost: one pass of
 * memchr and one of the hash.
 */
#include <assert.h>

#include "compose/compose.h"

static bool begins_role(const char *line, size_t bytes)
{
    static const char word[] = "role";
    size_t at = 0;
    while (at < bytes && (line[at] == ' ' || line[at] == '\t'))
        at++;
    if (bytes - at <= strlen(word) || memcmp(line + at, word, strlen(word)) != 0)
        return false;
    const char next = line[at + strlen(word)];
    return next == ' ' || next == '\t';
}

/* The block begun last ends at `end`. */
static void close_block(tocsin_plan_blocks *blocks, size_t end)
{
    const char *text = tocsin_string_text(&blocks->content);
    if (blocks->items.count == 0) {
        blocks->header_bytes = end;
        return;
    }
    tocsin_plan_block *last = &blocks->items.items[blocks->items.count - 1];
    last->bytes = end - last->offset;
    last->digest = tocsin_hash128_of(text + last->offset, last->bytes, 0);
}

static tocsin_status find_blocks(tocsin_plan_blocks *blocks, tocsin_error *error)
{
    const char *text = tocsin_string_text(&blocks->content);
    const size_t bytes = blocks->content.bytes;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t line = end == NULL ? bytes - at : (size_t)(end - text) - at;
        const size_t next = at + line + (end != NULL);
        if (begins_role(text + at, line)) {
            close_block(blocks, at);
            if (!TOCSIN_VEC_PUSH(&blocks->items,
                                 (tocsin_plan_block){.offset = at, .first_line_bytes = next - at}))
                return tocsin_error_memory(error);
        }
        at = next;
    }
    close_block(blocks, bytes);
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_blocks_load(tocsin_plan_blocks *blocks, const char *path,
                                      tocsin_error *error)
{
    static const char version[] = "tocsin-plan";
    *blocks = (tocsin_plan_blocks){.name = path, .content = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX}};
    TOCSIN_TRY(tocsin_file_load(path, TOCSIN_PLAN_BYTES_MAX, &blocks->content, error));
    blocks->is_text = blocks->content.bytes > strlen(version) &&
                      memcmp(blocks->content.text, version, strlen(version)) == 0;
    return blocks->is_text ? find_blocks(blocks, error) : TOCSIN_OK;
}

tocsin_status tocsin_plan_blocks_read(const tocsin_plan_blocks *blocks, const uint8_t *wanted,
                                      const tocsin_plan_options *options, tocsin_plan **plan,
                                      tocsin_error *error)
{
    const char *text = tocsin_string_text(&blocks->content);
    if (wanted == NULL)
        return tocsin_plan_read_memory(text, blocks->content.bytes, blocks->name, options, plan,
                                       error);
    assert(blocks->is_text);
    tocsin_string reduced = {.limit_bytes = TOCSIN_PLAN_BYTES_MAX};
    tocsin_string_append(&reduced, text, blocks->header_bytes);
    for (size_t r = 0; r < blocks->items.count; r++) {
        const tocsin_plan_block *block = &blocks->items.items[r];
        tocsin_string_append(&reduced, text + block->offset,
                             wanted[r] ? block->bytes : block->first_line_bytes);
        if (!wanted[r])
            tocsin_string_append_text(&reduced, "\nend\n");
    }
    tocsin_status status = tocsin_string_check(&reduced, error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_read_memory(tocsin_string_text(&reduced), reduced.bytes, blocks->name,
                                         options, plan, error);
    tocsin_string_free(&reduced);
    return status;
}

void tocsin_plan_blocks_free(tocsin_plan_blocks *blocks)
{
    tocsin_string_free(&blocks->content);
    TOCSIN_VEC_FREE(&blocks->items);
}
