/* The shipped library: lib/invariant/library.jsonl, a file of invariants like any other, that lies
 * in the program. It is read by the reader of files, so what is in it can also be written by hand.
 */
#include <invariant/invariant_set.h>
#include <invariant/library.h>
#include <tocsin/library.h>

tocsin_status tocsin_library_append(tocsin_invariant_set *set, tocsin_error *error)
{
    return tocsin_invariants_append_text(set, "the shipped library", tocsin_library_bytes,
                                         tocsin_library_byte_count, error);
}

tocsin_status tocsin_library_load(tocsin_invariant_set **set, tocsin_error *error)
{
    TOCSIN_TRY(tocsin_invariants_new(set, error));
    tocsin_status status = tocsin_library_append(*set, error);
    if (status != TOCSIN_OK) {
        tocsin_invariants_free(*set);
        *set = NULL;
    }
    return status;
}
