/* A file of TrainCheck's invariants -> a set of ours.
 *
 * A line is an invariant: a relation, its parameters and a precondition for each part of an
 * example. What has no translation is reported, never dropped in silence.
 */
#include <assert.h>
#include <exchange/traincheck_translation.h>

static tocsin_status add_translated(tocsin_translation *made, tocsin_invariant_set *set,
                                    tocsin_error *error)
{
    int64_t examples = 0;
    (void)tocsin_json_get_integer(tocsin_json_get_member(made->root, "num_positive_examples"),
                                  &examples);
    for (uint32_t i = 0; i <= made->more_count; ++i) {
        const tocsin_fact_key *fact = i == 0 ? &made->fact : &made->more[i - 1];
        tocsin_invariant invariant = {
            .population = tocsin_population_of(made->vocabulary, &made->population),
            .fact = tocsin_fact_of(made->vocabulary, fact),
            .when = {.inverted = made->inverted, .count = made->any_count, .any = made->any},
            .instances = examples > 0 ? (uint64_t)examples : 0};
        if (made->no_memory || invariant.population == 0 || invariant.fact == 0)
            return tocsin_error_memory(error);
        TOCSIN_TRY(tocsin_invariants_add(set, &invariant, error));
    }
    return TOCSIN_OK;
}

/* ---- the file ------------------------------------------------------------------------------ */

static bool is_invariant(const tocsin_json_value *root)
{
    return tocsin_json_member_text(root, "relation") != NULL &&
           tocsin_json_get_kind(tocsin_json_get_member(root, "params")) == TOCSIN_JSON_ARRAY &&
           tocsin_json_get_member(root, "precondition") != NULL;
}

bool tocsin_traincheck_is_invariant_file(const char *path)
{
    tocsin_reader reader;
    tocsin_json_value *root = NULL;
    const char *line = NULL;
    size_t bytes = 0;
    if (tocsin_reader_open(&reader, path, NULL) != TOCSIN_OK)
        return false;
    tocsin_status status;
    do
        status = tocsin_reader_line(&reader, TOCSIN_TRAINCHECK_LINE_MAX, &line, &bytes, NULL);
    while (status == TOCSIN_OK && line != NULL && bytes == 0);
    bool found = status == TOCSIN_OK && line != NULL &&
                 tocsin_python_json_parse(line, bytes, path, &root, NULL) == TOCSIN_OK &&
                 is_invariant(root);
    tocsin_json_free(root);
    tocsin_reader_close(&reader);
    return found;
}

static tocsin_status take_invariant(const tocsin_json_value *root, const char *path, uint64_t line,
                                    const tocsin_foreign_options *options,
                                    tocsin_invariant_set *set, tocsin_error *error)
{
    tocsin_translation made = {.vocabulary = tocsin_invariants_vocabulary(set), .root = root};
    tocsin_translation_take_relation(&made);
    if (made.why == NULL)
        tocsin_translation_take_precondition(&made);
    if (made.pair && made.population.moment == TOCSIN_MOMENT_EXIT)
        tocsin_translation_leave_out_first(&made);
    if (made.why == NULL && !made.no_memory)
        tocsin_translation_add_also(&made);
    tocsin_status status = TOCSIN_OK;
    const char *text = tocsin_json_member_text(root, "text_description");
    if (made.no_memory)
        status = tocsin_error_memory(error);
    else if (made.why == NULL)
        status = add_translated(&made, set, error);
    else if (options != NULL && options->skipped != NULL)
        options->skipped(options->context, path, line, text != NULL ? text : "", made.why);
    tocsin_arena_free(&made.arena);
    return status;
}

static tocsin_status take_line(const char *text, size_t bytes, const char *path, uint64_t line,
                               const tocsin_foreign_options *options, tocsin_invariant_set *set,
                               tocsin_error *error)
{
    tocsin_json_value *root = NULL;
    tocsin_status status = tocsin_python_json_parse(text, bytes, path, &root, error);
    if (status == TOCSIN_OK && !is_invariant(root))
        status = TOCSIN_E_FORMAT;
    if (status == TOCSIN_E_FORMAT)
        status = tocsin_error_at(error, TOCSIN_E_FORMAT, path, -1,
                                 "line %llu is not an invariant of TrainCheck",
                                 (unsigned long long)line);
    if (status == TOCSIN_OK)
        status = take_invariant(root, path, line, options, set, error);
    tocsin_json_free(root);
    return status;
}

static tocsin_status take_file(const char *path, const tocsin_foreign_options *options,
                               tocsin_invariant_set *set, tocsin_error *error)
{
    tocsin_reader reader;
    const char *text = NULL;
    size_t bytes = 0;
    TOCSIN_TRY(tocsin_reader_open(&reader, path, error));
    tocsin_status status = TOCSIN_OK;
    for (uint64_t line = 1; status == TOCSIN_OK; ++line) {
        status = tocsin_reader_line(&reader, TOCSIN_TRAINCHECK_LINE_MAX, &text, &bytes, error);
        if (status != TOCSIN_OK || text == NULL)
            break;
        if (bytes > 0)
            status = take_line(text, bytes, path, line, options, set, error);
    }
    tocsin_reader_close(&reader);
    return status == TOCSIN_OK ? tocsin_invariants_sort(set, error) : status;
}

tocsin_status tocsin_traincheck_invariants_load(const char *path,
                                                const tocsin_foreign_options *options,
                                                tocsin_invariant_set **set, tocsin_error *error)
{
    if (path == NULL || set == NULL ||
        (options != NULL && options->struct_bytes != sizeof *options))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "options for foreign invariants");
    tocsin_invariant_set *made = *set;
    if (made == NULL)
        TOCSIN_TRY(tocsin_invariants_new(&made, error));
    tocsin_status status = take_file(path, options, made, error);
    if (status != TOCSIN_OK && *set == NULL)
        tocsin_invariants_free(made);
    else
        *set = made;
    return status;
}
