/* lib/align/pivot.c - a difference as the result shows it: texts, element, call stack, holders.
 *
 * All of it lives in the result's arena; when memory runs out, `starved` is set and looked at in
 * the end. Cost: the element is a discrete logarithm, 10 us; the rest is copying.
 */
#include "align/aligner.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- texts of the result --------------------------------------------------------------------- */

const char *tocsin_aligner_keep(tocsin_aligner *aligner, const char *text)
{
    const char *kept = tocsin_arena_copy(&aligner->result->arena, text, strlen(text));
    aligner->starved = aligner->starved || !kept;
    return kept;
}

const char *tocsin_aligner_name(tocsin_aligner *aligner, uint32_t text)
{
    return tocsin_aligner_keep(aligner, tocsin_intern_string(&aligner->names, text));
}

/* ---- pivots ---------------------------------------------------------------------------------- */

static const int64_t *sizes_of(const tocsin_aligner *aligner, const tocsin_boundary *boundary)
{
    size_t bytes = 0;
    uint32_t shape = boundary->whole ? boundary->whole : boundary->shape;
    const char *sizes = shape ? tocsin_intern_text(&aligner->names, shape, &bytes) : NULL;
    return bytes == boundary->ndim * sizeof(int64_t) ? (const int64_t *)(const void *)sizes : NULL;
}

static int64_t size_at(const int64_t *sizes, uint32_t axis)
{
    int64_t size; /* interned bytes need not be aligned */
    memcpy(&size, (const char *)sizes + axis * sizeof size, sizeof size);
    return size;
}

static const char *describe(tocsin_aligner *aligner, const tocsin_boundary *boundary)
{
    if (boundary->text)
        return tocsin_aligner_keep(aligner, boundary->text);
    if (!boundary->present)
        return "None";
    char text[256];
    const int64_t *sizes = sizes_of(aligner, boundary);
    int bytes =
        snprintf(text, sizeof text, "%s[", tocsin_dtype_name((tocsin_dtype)boundary->dtype));
    for (uint32_t axis = 0; sizes && axis < boundary->ndim && bytes < 200; ++axis)
        bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "%s%" PRId64, axis ? "," : "",
                          size_at(sizes, axis));
    snprintf(text + bytes, sizeof text - (size_t)bytes, "]");
    return tocsin_aligner_keep(aligner, text);
}

static uint32_t words_per_element(uint8_t dtype)
{
    size_t bytes = tocsin_dtype_bytes((tocsin_dtype)dtype);
    return bytes > 4 ? (uint32_t)(bytes / 4) : 1;
}

/* The element of a tensor of which one word differs. */
static void locate(tocsin_aligner *aligner, const tocsin_difference_found *found,
                   tocsin_align_pivot *pivot)
{
    const int64_t *sizes = sizes_of(aligner, &found->a); /* of the whole, if it is a piece */
    uint32_t words = words_per_element(found->a.dtype);
    bool flat = found->a.dtype == TOCSIN_DTYPE_NONE; /* a digest of what has no shape here */
    uint64_t count = flat ? UINT64_C(1) << 60 : words;
    if (aligner->options.digest != TOCSIN_ALIGN_DIGEST_ALL || aligner->options.tolerance > 0.0 ||
        found->difference != TOCSIN_DIFFERENCE_CONTENT || (found->a.ndim > 0 && !sizes))
        return;
    for (uint32_t axis = 0; axis < found->a.ndim; ++axis)
        count *= (uint64_t)size_at(sizes, axis);
    if (!tocsin_digest_locate(found->a.digest, found->b.digest, count, &pivot->change))
        return;
    int64_t *index = TOCSIN_ARENA_ARRAY(&aligner->result->arena, int64_t, found->a.ndim + 1);
    if (!index) {
        aligner->starved = true;
        return;
    }
    uint64_t element = pivot->change.word / words;
    for (uint32_t axis = found->a.ndim; axis-- > 0;) {
        uint64_t size = (uint64_t)size_at(sizes, axis);
        index[axis] = (int64_t)(element % size);
        element /= size;
    }
    if (flat)
        index[0] = (int64_t)pivot->change.word;
    pivot->located = true;
    pivot->ndim = flat ? 1 : found->a.ndim;
    pivot->index = index;
    pivot->word = (uint32_t)(pivot->change.word % words);
}

static bool holds(const tocsin_aligner *aligner, const tocsin_shard *shard,
                  const tocsin_align_pivot *pivot)
{
    for (uint32_t axis = 0; shard->shape && axis < pivot->ndim; ++axis) {
        int64_t begin = tocsin_shard_axis(&aligner->names, shard->offset, axis);
        int64_t size = tocsin_shard_axis(&aligner->names, shard->shape, axis);
        if (pivot->index[axis] < begin || pivot->index[axis] - begin >= size)
            return false;
    }
    return true;
}

/* The ranks that hold the element of the pivot; all that have the boundary, if it is not known. */
static void note_holders(tocsin_aligner *aligner, const tocsin_boundary *boundary,
                         const tocsin_align_pivot *pivot, tocsin_align_side *shown)
{
    int64_t *ranks =
        TOCSIN_ARENA_ARRAY(&aligner->result->arena, int64_t, boundary->shard_count + 1);
    aligner->starved = aligner->starved || !ranks;
    shown->holders = ranks;
    for (uint32_t s = 0; ranks && s < boundary->shard_count; ++s) {
        if (!pivot->located || holds(aligner, &boundary->shards[s], pivot))
            ranks[shown->holder_count++] = boundary->shards[s].rank;
    }
}

static tocsin_align_side side_of(tocsin_aligner *aligner, const tocsin_boundary *boundary)
{
    return (tocsin_align_side){.value = describe(aligner, boundary),
                               .site = tocsin_aligner_name(aligner, boundary->site),
                               .digest = boundary->digest,
                               .statistics = boundary->statistics};
}

static const char *id_of(tocsin_aligner *aligner, const tocsin_boundary *boundary)
{
    tocsin_string id = {0};
    tocsin_boundary_id(&aligner->names, boundary, &id);
    aligner->starved = aligner->starved || id.status != TOCSIN_OK;
    const char *kept = tocsin_aligner_keep(aligner, tocsin_string_text(&id));
    tocsin_string_free(&id);
    return kept;
}

/* "torch.nn.Module.__call__ of layers.0, train.py:26 (forward)". */
static const char *describe_call(tocsin_aligner *aligner, const tocsin_call_chain *call)
{
    char text[1024];
    const char *operation = tocsin_aligner_name(aligner, call->operation);
    const char *module = tocsin_aligner_name(aligner, call->module);
    const char *site = tocsin_aligner_name(aligner, call->site);
    if (aligner->starved)
        return NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s", operation, module[0] ? " of " : "", module,
             site[0] ? ", " : "", site);
    return tocsin_aligner_keep(aligner, text);
}

static void stack_of(tocsin_aligner *aligner, const tocsin_boundary *boundary,
                     tocsin_align_pivot *pivot)
{
    size_t calls = 0;
    for (const tocsin_call_chain *call = boundary->chain; call; call = call->around)
        ++calls;
    const char **stack = TOCSIN_ARENA_ARRAY(&aligner->result->arena, const char *, calls + 1);
    aligner->starved = aligner->starved || !stack;
    if (aligner->starved)
        return;
    if (pivot->a.site[0])
        stack[pivot->stack_count++] = pivot->a.site;
    for (const tocsin_call_chain *call = boundary->chain; call; call = call->around)
        stack[pivot->stack_count++] = describe_call(aligner, call);
    pivot->stack = stack;
}

tocsin_align_pivot tocsin_aligner_pivot(tocsin_aligner *aligner, int64_t rank, int64_t step,
                                        const tocsin_difference_found *found)
{
    tocsin_align_pivot pivot = {.rank = rank,
                                .step = step,
                                .name = tocsin_aligner_name(aligner, found->a.name),
                                .attribute = tocsin_aligner_name(aligner, found->a.attribute),
                                .operation = tocsin_aligner_name(aligner, found->a.operation),
                                .phase = tocsin_aligner_name(aligner, found->a.phase),
                                .difference = found->difference,
                                .id = id_of(aligner, &found->a),
                                .micro_batch = found->a.micro_batch,
                                .ordinal = found->ordinal,
                                .cause = found->cause,
                                .source = found->source,
                                .last_equal = found->last_equal,
                                .a = side_of(aligner, &found->a),
                                .b = side_of(aligner, &found->b)};
    locate(aligner, found, &pivot);
    if (!tocsin_tiles_show(found, &aligner->names, words_per_element(found->a.dtype),
                           &aligner->result->arena, &pivot))
        aligner->starved = true;
    tocsin_arena *arena = &aligner->result->arena;
    if (!tocsin_align_own_place(arena, &aligner->names, &found->a, &pivot, &pivot.a) ||
        !tocsin_align_own_place(arena, &aligner->names, &found->b, &pivot, &pivot.b))
        aligner->starved = true;
    stack_of(aligner, &found->a, &pivot);
    note_holders(aligner, &found->a, &pivot, &pivot.a);
    note_holders(aligner, &found->b, &pivot, &pivot.b);
    return pivot;
}
