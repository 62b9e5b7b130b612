/* Any bytes as the ledger of a rank: an error, or a report whose JSON can be read and which names
 * nobody for what cannot be attributed. */
#include <base/base.h>
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/guard_report.h>
#include <unistd.h>

#include "memory_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[64], path[96];

static void leave(void)
{
    unlink(path);
    rmdir(directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tocsin_guard_report *report;
    tocsin_json_value *root;
    tocsin_error error;
    const char *text, *json;
    if (directory[0] == '\0') {
        make_memory_folder(directory, sizeof directory);
        if (atexit(leave) != 0)
            abort();
        snprintf(path, sizeof path, "%s/rank-3.jsonl", directory);
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    if (tocsin_guard_report_read(directory, &report, &error) != TOCSIN_OK)
        return 0;
    if (tocsin_guard_report_text(report, &text, &error) != TOCSIN_OK ||
        tocsin_guard_report_json(report, &json, &error) != TOCSIN_OK ||
        tocsin_json_parse(json, strlen(json), "json", &root, &error) != TOCSIN_OK)
        abort();
    const tocsin_json_value *findings = tocsin_json_get_member(root, "findings");
    bool named = false;
    for (size_t i = 0; i < tocsin_json_get_count(findings); ++i) {
        const tocsin_json_value *finding =
            tocsin_json_get_member(tocsin_json_get_item(findings, i), "finding");
        named = named || tocsin_json_get_count(tocsin_json_get_member(finding, "ranks")) > 0;
    }
    if (named != (tocsin_json_get_count(tocsin_json_get_member(root, "culprits")) > 0))
        abort();
    tocsin_json_free(root);
    tocsin_guard_report_free(report);
    return 0;
}
