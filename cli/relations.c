/* relations.c - the user's own relations, as --relation gives them. */
#include "relations.h"

#include <string.h>

static bool is_library(const char *text)
{
    size_t bytes = strlen(text);
    return bytes > 3 && strcmp(text + bytes - 3, ".so") == 0;
}

tocsin_status cli_relations_open(const cli_texts *given, tocsin_relations **relations,
                                 tocsin_error *error)
{
    *relations = NULL;
    tocsin_status status = given->count > 0 ? tocsin_relations_new(relations, error) : TOCSIN_OK;
    for (size_t i = 0; i < given->count && status == TOCSIN_OK; i++) {
        const char *text = given->items[i];
        status = is_library(text) ? tocsin_relations_load(*relations, text, error)
                                  : tocsin_relations_start(*relations, text, 0, error);
    }
    if (status != TOCSIN_OK) {
        tocsin_relations_free(*relations);
        *relations = NULL;
    }
    return status;
}
