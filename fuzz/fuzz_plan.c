/* Any bytes as a plan, a pickle or text, packed or not: an error, or a plan whose text reads back
 * as the same text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tocsin/plan.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *write_text(const tocsin_plan *plan, size_t *bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    if (!stream || tocsin_plan_write(plan, stream, NULL) != TOCSIN_OK || fclose(stream) != 0)
        abort();
    return text;
}

static void check_roundtrip(const tocsin_plan *plan)
{
    tocsin_plan *again = NULL;
    tocsin_error error;
    size_t bytes = 0, bytes_again = 0;
    char *text = write_text(plan, &bytes);
    if (tocsin_plan_read_memory(text, bytes, "written", NULL, &again, &error) != TOCSIN_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    char *text_again = write_text(again, &bytes_again);
    if (bytes != bytes_again || memcmp(text, text_again, bytes) != 0)
        abort();
    free(text);
    free(text_again);
    tocsin_plan_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tocsin_plan *plan = NULL;
    tocsin_error error;
    /* The name gives a pickle's world. */
    if (tocsin_plan_read_memory(data, size, "fuzz_dp2_pp2_tp2_nm2_.pkl", NULL, &plan, &error) ==
        TOCSIN_OK) {
        check_roundtrip(plan);
        tocsin_plan_free(plan);
    } else if (error.message[0] == 0) {
        abort();
    }
    return 0;
}
