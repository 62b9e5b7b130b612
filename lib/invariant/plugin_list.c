/* The user's relations: a list of definitions, and what keeps them alive.
 *
 * A definition stays where it is: in the program, in its shared library or in its command. It is
 * checked once, here, so that nobody behind has to doubt it. Cost: a look-up compares names, 32 at
 * most.
 */
#include <assert.h>
#include <dlfcn.h>
#include <invariant/plugin.h>
#include <invariant/relation.h>

bool tocsin_plugin_is_name(const char *text)
{
    size_t bytes = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return bytes > 0 && bytes <= TOCSIN_PLUGIN_NAME_BYTES_MAX && text[bytes] == 0;
}

bool tocsin_plugin_is_text(const char *text)
{
    size_t bytes = 0;
    while (text[bytes] >= 0x20 && text[bytes] < 0x7f && bytes <= TOCSIN_PLUGIN_TEXT_BYTES_MAX)
        ++bytes;
    return bytes > 0 && bytes <= TOCSIN_PLUGIN_TEXT_BYTES_MAX && text[bytes] == 0;
}

bool tocsin_plugin_owns(const tocsin_relation_definition *definition, const char *population)
{
    size_t bytes = strlen(definition->name);
    return strncmp(population, definition->name, bytes) == 0 && population[bytes] == '/';
}

const tocsin_relation_definition *tocsin_relations_of(const tocsin_relations *relations,
                                                      const char *population)
{
    for (size_t i = 0; relations != NULL && i < relations->items.count; ++i)
        if (tocsin_plugin_owns(relations->items.items[i].definition, population))
            return relations->items.items[i].definition;
    return NULL;
}

/* ---- checking ------------------------------------------------------------------------------ */

static bool is_call(const tocsin_relation_call *call)
{
    bool by_role = call->role != TOCSIN_ROLE_NONE;
    if (by_role == (call->function != NULL))
        return false;
    return by_role ? (unsigned)call->role < TOCSIN_ROLES_MAX && tocsin_role_name(call->role)[0] != 0
                   : call->function[0] != 0;
}

static bool is_state(const tocsin_relation_state *state)
{
    return (unsigned)state->role < TOCSIN_ROLES_MAX && tocsin_role_name(state->role)[0] != 0 &&
           (state->moment == TOCSIN_MOMENT_ENTER || state->moment == TOCSIN_MOMENT_EXIT) &&
           state->attribute != NULL &&
           tocsin_attribute_of(state->attribute) != TOCSIN_ATTRIBUTE_OTHER &&
           tocsin_variable_kind_name(state->variable)[0] != 0;
}

static tocsin_status check(const tocsin_relation_definition *definition, const char *where,
                           tocsin_error *error)
{
    if (definition->version != TOCSIN_RELATION_VERSION)
        return tocsin_error_at(error, TOCSIN_E_VERSION, where, -1,
                               "a relation of version %u of the interface, this is version %u",
                               (unsigned)definition->version, TOCSIN_RELATION_VERSION);
    if (definition->name == NULL || !tocsin_plugin_is_name(definition->name))
        return tocsin_error_at(error, TOCSIN_E_ARGUMENT, where, -1,
                               "the name of a relation is of a-z, 0-9 and _, at most %d of them",
                               TOCSIN_PLUGIN_NAME_BYTES_MAX);
    if (definition->call_count > TOCSIN_PLUGIN_WANTS_MAX ||
        definition->state_count > TOCSIN_PLUGIN_WANTS_MAX)
        return tocsin_error_at(error, TOCSIN_E_LIMIT, where, -1,
                               "relation %s asks for more than %d kinds of calls or states",
                               definition->name, TOCSIN_PLUGIN_WANTS_MAX);
    for (size_t i = 0; i < definition->call_count; ++i)
        if (!is_call(&definition->calls[i]))
            return tocsin_error_at(error, TOCSIN_E_ARGUMENT, where, -1,
                                   "relation %s asks for a call by neither a role nor a function",
                                   definition->name);
    for (size_t i = 0; i < definition->state_count; ++i)
        if (!is_state(&definition->states[i]))
            return tocsin_error_at(error, TOCSIN_E_ARGUMENT, where, -1,
                                   "relation %s asks for states that there are not",
                                   definition->name);
    return TOCSIN_OK;
}

/* ---- the list ------------------------------------------------------------------------------ */

tocsin_status tocsin_relations_new(tocsin_relations **relations, tocsin_error *error)
{
    *relations = tocsin_zalloc(1, sizeof **relations);
    return *relations != NULL ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status add(tocsin_relations *relations, tocsin_plugin plugin, const char *where,
                         tocsin_error *error)
{
    TOCSIN_TRY(check(plugin.definition, where, error));
    for (size_t i = 0; i < relations->items.count; ++i)
        if (strcmp(relations->items.items[i].definition->name, plugin.definition->name) == 0)
            return tocsin_error_at(error, TOCSIN_E_EXISTS, where, -1,
                                   "there is a relation %s already", plugin.definition->name);
    if (relations->items.count == TOCSIN_PLUGINS_MAX)
        return tocsin_error_at(error, TOCSIN_E_LIMIT, where, -1, "more than %d relations",
                               TOCSIN_PLUGINS_MAX);
    return TOCSIN_VEC_PUSH(&relations->items, plugin) ? TOCSIN_OK : tocsin_error_memory(error);
}

tocsin_status tocsin_relations_add(tocsin_relations *relations,
                                   const tocsin_relation_definition *definition,
                                   tocsin_error *error)
{
    return add(relations, (tocsin_plugin){.definition = definition}, "", error);
}

/* A name without a folder is a file here, and not one of where the loader looks. */
static void *open_library(const char *path, tocsin_error *error)
{
    tocsin_string full = {0};
    tocsin_string_printf(&full, "%s%s", strchr(path, '/') == NULL ? "./" : "", path);
    void *library = NULL;
    if (tocsin_string_check(&full, error) == TOCSIN_OK) {
        library = dlopen(full.text, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            const char *reason = dlerror();
            tocsin_error_at(error, TOCSIN_E_NOT_FOUND, path, -1, "cannot load: %s",
                            reason != NULL ? reason : "no reason is given");
        }
    }
    tocsin_status failed = full.status;
    tocsin_string_free(&full);
    return failed == TOCSIN_OK ? library : NULL;
}

tocsin_status tocsin_relations_load(tocsin_relations *relations, const char *path,
                                    tocsin_error *error)
{
    tocsin_error own = {.code = TOCSIN_OK};
    void *library = open_library(path, &own);
    if (library == NULL) {
        if (error != NULL)
            *error = own;
        return own.code;
    }
    const tocsin_relation_definition *definition = dlsym(library, TOCSIN_RELATION_SYMBOL);
    tocsin_status status =
        definition == NULL
            ? tocsin_error_at(error, TOCSIN_E_NOT_FOUND, path, -1,
                              "no relation: it exports no \"" TOCSIN_RELATION_SYMBOL "\"")
            : add(relations, (tocsin_plugin){.definition = definition, .library = library}, path,
                  error);
    if (status != TOCSIN_OK)
        dlclose(library);
    return status;
}

tocsin_status tocsin_relations_start(tocsin_relations *relations, const char *command,
                                     uint32_t timeout_ms, tocsin_error *error)
{
    tocsin_command *made;
    TOCSIN_TRY(tocsin_command_new(command, timeout_ms, &made, error));
    tocsin_status status = add(
        relations, (tocsin_plugin){.definition = tocsin_command_definition(made), .command = made},
        command, error);
    if (status != TOCSIN_OK)
        tocsin_command_free(made);
    return status;
}

size_t tocsin_relations_count(const tocsin_relations *relations)
{
    return relations->items.count;
}

const char *tocsin_relations_name(const tocsin_relations *relations, size_t index)
{
    assert(index < relations->items.count);
    return relations->items.items[index].definition->name;
}

void tocsin_relations_free(tocsin_relations *relations)
{
    if (relations == NULL)
        return;
    for (size_t i = 0; i < relations->items.count; ++i) {
        tocsin_plugin *plugin = &relations->items.items[i];
        tocsin_command_free(plugin->command);
        if (plugin->library != NULL)
            dlclose(plugin->library);
    }
    TOCSIN_VEC_FREE(&relations->items);
    tocsin_free(relations);
}
