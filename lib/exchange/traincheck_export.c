/* `tocsin export traincheck`: an imported run -> the traces that it was made of, line by line. */
#include <exchange/exchange.h>

static tocsin_status check_run(const char *run, tocsin_error *error)
{
    tocsin_run *read;
    TOCSIN_TRY(tocsin_run_open(run, false, &read, error));
    tocsin_run_close(read);
    return TOCSIN_OK;
}

tocsin_status tocsin_traincheck_export(const char *run, const char *directory, uint64_t *files,
                                       tocsin_error *error)
{
    bool created = false;
    uint64_t count = 0;
    if (run == NULL || directory == NULL)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a run and a folder");
    TOCSIN_TRY(check_run(run, error));
    TOCSIN_TRY(tocsin_folder_make(directory, &created, error));
    tocsin_status status = tocsin_kept_records_restore(run, directory, &count, error);
    if (status == TOCSIN_E_NOT_FOUND)
        status = tocsin_error_at(error, TOCSIN_E_NOT_FOUND, run, -1,
                                 "the run was not imported from TrainCheck");
    if (status != TOCSIN_OK)
        tocsin_folder_clear(directory, created);
    if (files != NULL)
        *files = count;
    return status;
}
