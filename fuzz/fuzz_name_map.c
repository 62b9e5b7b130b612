/* Any bytes as a map of names: an error, or rules that name what their own patterns say.
 */
#include <align/name_map.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A pattern is a name that fits itself. */
static void look_up(const tocsin_name_map *map, const char *name)
{
    tocsin_string whole = {0};
    tocsin_map_place place;
    if (!tocsin_name_map_find(map, name, &whole, &place) ||
        (place.part >= place.rule->parts && place.part != TOCSIN_MAP_PARTS_MAX))
        abort();
    if (place.part == TOCSIN_MAP_PARTS_MAX && strcmp(tocsin_string_text(&whole), name) != 0)
        abort();
    tocsin_string_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tocsin_error error;
    tocsin_name_map *map;
    int fd = memfd_create("map", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tocsin_name_map_load(path, &map, &error) == TOCSIN_OK) {
        for (size_t r = 0; r < tocsin_name_map_rule_count(map) && r < 64; ++r) {
            const tocsin_map_rule *rule = tocsin_name_map_rule(map, r);
            look_up(map, rule->a);
            for (uint32_t part = 0; part < rule->parts; ++part)
                look_up(map, rule->b[part]);
        }
        tocsin_name_map_free(map);
    }
    close(fd);
    return 0;
}
