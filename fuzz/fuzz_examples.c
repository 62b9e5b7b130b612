/* Any bytes as the counted examples of two runs: an error, or tables that can be learned from. The
 * first byte says where the second run's bytes begin. The checksum of files would keep a fuzzer
 * out, so it is not asked. */
#include <infer/infer.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(void *context, const char *relation, const char *sentence, const char *reason)
{
    (void)context;
    if (relation[0] == 0 || sentence[0] == 0 || reason[0] == 0)
        abort();
}

static void learn(tocsin_examples *examples, tocsin_invariant_set *set)
{
    tocsin_error error;
    tocsin_infer_summary summary = {0};
    tocsin_infer_options options = {.struct_bytes = sizeof options, .threads = 1, .dropped = note};
    tocsin_string bytes = {0};
    if (tocsin_examples_encode(examples, &bytes, &error) != TOCSIN_OK ||
        tocsin_learn(examples, 2, &options, set, &summary, &error) != TOCSIN_OK)
        abort();
    tocsin_string_free(&bytes);
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i)
        if (tocsin_invariant_sentence(set, i)[0] == 0)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tocsin_invariant_set *set;
    tocsin_error error;
    if (size == 0)
        return 0;
    if (tocsin_invariants_new(&set, &error) != TOCSIN_OK)
        abort();
    size_t cut = (size - 1) * data[0] / 256;
    const char *bytes = (const char *)data + 1;
    tocsin_examples examples = {.vocabulary = tocsin_invariants_vocabulary(set)};
    tocsin_status status = tocsin_examples_decode(&examples, bytes, cut, "first", &error);
    if (status == TOCSIN_OK) {
        examples.run = 1;
        status = tocsin_examples_decode(&examples, bytes + cut, size - 1 - cut, "second", &error);
    }
    if (status == TOCSIN_OK)
        learn(&examples, set);
    else if (status != TOCSIN_E_FORMAT || error.message[0] == 0)
        abort();
    tocsin_examples_free(&examples);
    tocsin_invariants_free(set);
    return 0;
}
