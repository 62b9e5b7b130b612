/* name_map.h - a map between the names of two frameworks, from the inside. */
#ifndef TOCSIN_ALIGN_NAME_MAP_H
#define TOCSIN_ALIGN_NAME_MAP_H

#include <tocsin/name_map.h>

#include "base/base.h"

#define TOCSIN_MAP_PARTS_MAX 16

/* How the parts of b lie in the tensor of a. X(NAME, "text") */
#define TOCSIN_MAP_LAYOUT_TABLE(X)                                                                 \
    X(JOINED, "joined")           /* one after the other along axis 0 */                           \
    X(INTERLEAVED, "interleaved") /* in groups: some rows of each, again and again */              \
    X(TRANSPOSED, "transposed")   /* one part, its two axes exchanged */

typedef enum tocsin_map_layout {
#define X(name, text) TOCSIN_MAP_##name,
    TOCSIN_MAP_LAYOUT_TABLE(X)
#undef X
} tocsin_map_layout;

typedef struct tocsin_map_rule {
    const char *a; /* patterns; they live as long as the map */
    const char *b[TOCSIN_MAP_PARTS_MAX];
    uint32_t parts;
    tocsin_map_layout layout;
} tocsin_map_rule;

typedef struct tocsin_map_place { /* what a name is */
    const tocsin_map_rule *rule;
    uint32_t part; /* of b; TOCSIN_MAP_PARTS_MAX: it is the tensor of a */
} tocsin_map_place;

/* The first rule of which a pattern fits the name; those of b are tried first. `whole` gets the
 * name of a. false: none does. */
bool tocsin_name_map_find(const tocsin_name_map *map, const char *name, tocsin_string *whole,
                          tocsin_map_place *place);
const tocsin_map_rule *tocsin_name_map_rule(const tocsin_name_map *map, size_t index);
const char *tocsin_map_layout_text(tocsin_map_layout layout);

/* The shipped maps as the build embeds them, made by CMakeLists.txt from maps/NAME.jsonl. */
typedef struct tocsin_shipped_map {
    const char *name;
    const char *bytes;
    size_t byte_count;
} tocsin_shipped_map;
extern const tocsin_shipped_map tocsin_shipped_maps[]; /* a NULL name ends */

#endif
