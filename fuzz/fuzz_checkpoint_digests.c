/* Any bytes as the digests of a checkpoint: an error, or digests that have one text and are equal
 * to themselves. */
#include <base/base.h>
#include <stdlib.h>
#include <tocsin/gate.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tocsin_checkpoint_digests *digests, *again, *sum;
    tocsin_checkpoint_differences *differences;
    tocsin_error error;
    char *text, *copy;
    size_t bytes, copy_bytes;
    if (tocsin_checkpoint_digests_parse((const char *)data, size, "digests", &digests, &error) !=
        TOCSIN_OK)
        return 0;
    if (tocsin_checkpoint_digests_write(digests, &text, &bytes, &error) != TOCSIN_OK ||
        tocsin_checkpoint_digests_parse(text, bytes, "text", &again, &error) != TOCSIN_OK ||
        tocsin_checkpoint_digests_write(again, &copy, &copy_bytes, &error) != TOCSIN_OK ||
        bytes != copy_bytes || memcmp(text, copy, bytes) != 0)
        abort();
    if (tocsin_checkpoint_digests_compare(digests, again, &differences, &error) != TOCSIN_OK ||
        differences->count != 0)
        abort();
    tocsin_checkpoint_differences_free(differences);
    if (tocsin_checkpoint_digests_new(&sum, &error) != TOCSIN_OK ||
        tocsin_checkpoint_digests_merge(sum, digests, &error) != TOCSIN_OK ||
        tocsin_checkpoint_digests_merge(sum, again, &error) != TOCSIN_OK ||
        tocsin_checkpoint_digests_compare(digests, sum, &differences, &error) != TOCSIN_OK)
        abort();
    tocsin_checkpoint_differences_free(differences);
    tocsin_checkpoint_digests_free(sum);
    tocsin_checkpoint_digests_free(digests);
    tocsin_checkpoint_digests_free(again);
    tocsin_checkpoint_text_free(text);
    tocsin_checkpoint_text_free(copy);
    return 0;
}
