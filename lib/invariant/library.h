/* lib/invariant/library.h - the shipped invariants as the build embeds them: the bytes of
 * library.jsonl, made by CMakeLists.txt. Inside the module only. */
#ifndef TOCSIN_INVARIANT_LIBRARY_H
#define TOCSIN_INVARIANT_LIBRARY_H

#include <stddef.h>

extern const char tocsin_library_bytes[];
extern const size_t tocsin_library_byte_count;

#endif
