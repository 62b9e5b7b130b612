/* tocsin/name_map.h - what the tensors of one framework are called in another, and how they lie.
 *
 * A map is a list of rules: a pattern of side `a`, which may be a fused tensor, and one or more of
 * side `b`, its parts. Names of either run that fit a pattern of b are taken as those of a. Format:
 * docs/formats/map.md; it comes from a file, or is one of those that are shipped.
 *
 * Threads: a map does not change after it was loaded.
 */
#ifndef TOCSIN_NAME_MAP_H
#define TOCSIN_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_name_map tocsin_name_map;

/* `source`: the name of a shipped map, else a file. Errors: E_FORMAT, E_LIMIT, E_NOT_FOUND, E_IO,
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_name_map_load(const char *source,
                                                                tocsin_name_map **map,
                                                                tocsin_error *error);
TOCSIN_API void tocsin_name_map_free(tocsin_name_map *map);

TOCSIN_API size_t tocsin_name_map_rule_count(const tocsin_name_map *map);

#define TOCSIN_MAP_NAME_BYTES 1024

/* A part of a tensor of side a. */
typedef struct tocsin_mapped_name {
    char whole[TOCSIN_MAP_NAME_BYTES]; /* that tensor's name */
    unsigned part, parts;
    const char *layout; /* "joined", "interleaved", "transposed" */
} tocsin_mapped_name;

/* What a name is by the map. false: it fits no pattern of side b first, or `whole` is too long. */
TOCSIN_API bool tocsin_name_map_look_up(const tocsin_name_map *map, const char *name,
                                        tocsin_mapped_name *found);

/* The names of the shipped maps; NULL ends. */
TOCSIN_API const char *tocsin_name_map_shipped(size_t index);

#ifdef __cplusplus
}
#endif
#endif
