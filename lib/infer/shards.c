/* The shards of a run, each counted elsewhere, as the reference of the run.
 *
 * What a shard counted is populations that no other shard has, in the order of the run's events,
 * and encoding puts populations in an order of their own: what is made here is, byte for byte, what
 * one count of the whole run makes. Cost: decoding and encoding what was counted.
 */
#include <infer/reference.h>

typedef struct shard_bytes {
    const char *const *bytes;
    const size_t *counts;
    uint32_t shards;
} shard_bytes;

static bool belongs(const tocsin_reference_head *head, const tocsin_reference_head *first,
                    uint32_t shard, uint32_t shards)
{
    return head->shard == shard && head->shards == shards && head->wide == first->wide &&
           head->events == first->events && head->processes == first->processes &&
           head->identity.high == first->identity.high && head->identity.low == first->identity.low;
}

/* Read the heads, add up the examples. */
static tocsin_status add_up(const shard_bytes *from, tocsin_reference_head *sum,
                            tocsin_examples *examples, tocsin_error *error)
{
    for (uint32_t i = 0; i < from->shards; ++i) {
        tocsin_reference_head head;
        TOCSIN_TRY(tocsin_reference_read(from->bytes[i], from->counts[i], "a shard", &head, error));
        if (i == 0) {
            *sum = head;
            sum->instances = 0;
            examples->wide = head.wide;
        }
        if (!belongs(&head, sum, i, from->shards))
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                    "these are not the %u shards of one run", from->shards);
        sum->instances += head.instances;
        TOCSIN_TRY(tocsin_examples_decode(examples, head.body, head.body_bytes, "a shard", error));
    }
    return TOCSIN_OK;
}

static tocsin_status join(const shard_bytes *from, tocsin_string *out, tocsin_error *error)
{
    tocsin_reference_head sum = {.run = NULL};
    tocsin_examples examples = {.run = 0};
    TOCSIN_TRY(tocsin_vocabulary_new(&examples.vocabulary, error));
    tocsin_status status = add_up(from, &sum, &examples, error);
    char *run = NULL;
    if (status == TOCSIN_OK) {
        run = tocsin_copy_text(sum.run, sum.run_bytes);
        sum.run = run;
        sum.shard = sum.shards = 0;
        status = run != NULL ? tocsin_reference_write(&sum, &examples, out, error)
                             : tocsin_error_memory(error);
    }
    tocsin_free(run);
    tocsin_examples_free(&examples);
    tocsin_vocabulary_free(examples.vocabulary);
    return status;
}

tocsin_status tocsin_references_add_shards(tocsin_references *references, const char *const *bytes,
                                           const size_t *counts, uint32_t shards,
                                           tocsin_error *error)
{
    const shard_bytes from = {bytes, counts, shards};
    tocsin_string joined = {0};
    if (shards == 0)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no shards");
    tocsin_status status = join(&from, &joined, error);
    if (status == TOCSIN_OK)
        status = tocsin_references_add(references, joined.text, joined.bytes, error);
    tocsin_string_free(&joined);
    return status;
}
