/* suppressing.c - files of suppressions, as of today. */
#include "suppressing.h"

#include <assert.h>
#include <time.h>

int cli_suppressions_load(const cli_texts *files, tocsin_suppressions **suppressions)
{
    char today[] = "1970-01-01";
    time_t now = time(NULL);
    struct tm parts;
    tocsin_error error;

    *suppressions = NULL;
    if (gmtime_r(&now, &parts)) {
        strftime(today, sizeof today, "%Y-%m-%d", &parts);
    }
    tocsin_status status = tocsin_suppressions_new(today, suppressions, &error);
    for (size_t i = 0; i < files->count && status == TOCSIN_OK; i++) {
        status = tocsin_suppressions_read(*suppressions, files->items[i], &error);
    }
    if (status == TOCSIN_OK) {
        return CLI_HOLDS;
    }
    tocsin_suppressions_free(*suppressions);
    *suppressions = NULL;
    return cli_fail(&error);
}

int cli_checking_suppress(cli_checking *checking, const cli_texts *files)
{
    assert(checking && checking->checker);
    tocsin_suppressions *suppressions;
    if (files->count == 0) {
        return CLI_HOLDS;
    }
    int exit_code = cli_suppressions_load(files, &suppressions);
    if (exit_code == CLI_HOLDS) {
        tocsin_checker_suppress(checking->checker, suppressions);
    }
    return exit_code;
}
