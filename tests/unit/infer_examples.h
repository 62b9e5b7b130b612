/* tests/infer_examples.h - instances written as text, for tests of inference.
 *
 * "meta.stage=training var.dtype=float32 meta.tp=0|1": fields; "a|b" are the halves of a pair.
 * Words are strings, True and False bools, digits ints, None is None. */
#ifndef TOCSIN_TESTS_INFER_EXAMPLES_H
#define TOCSIN_TESTS_INFER_EXAMPLES_H

#include <infer/hypothesis.h>
#include <stdlib.h>

typedef struct examples_writer {
    tocsin_examples examples;
    tocsin_population population;
} examples_writer;

static inline tocsin_status parse_scalar(tocsin_vocabulary *vocabulary, const char *text,
                                         tocsin_scalar *scalar)
{
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = text};
    if (strcmp(text, "None") == 0)
        literal = (tocsin_literal){.kind = TOCSIN_VALUE_NONE};
    else if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0)
        literal = (tocsin_literal){.kind = TOCSIN_VALUE_BOOL, .integer = text[0] == 'T'};
    else if (strspn(text, "0123456789") == strlen(text))
        literal = (tocsin_literal){.kind = TOCSIN_VALUE_INT, .integer = atoi(text)};
    *scalar = tocsin_scalar_of(vocabulary, &literal);
    return *scalar == 0 ? TOCSIN_E_MEMORY : TOCSIN_OK;
}

static inline int compare_fields(const void *a, const void *b)
{
    const tocsin_field *x = a, *y = b;
    return (x->name > y->name) - (x->name < y->name);
}

/* One instance of the population in run `run`, with these facts (ascending). */
static inline tocsin_status write_instance(examples_writer *writer, uint32_t run, const char *text,
                                           const tocsin_fact *facts, uint32_t fact_count)
{
    tocsin_vocabulary *vocabulary = writer->examples.vocabulary;
    char copy[512];
    snprintf(copy, sizeof copy, "%s", text);
    tocsin_field fields[16];
    uint32_t count = 0;
    char *rest = copy;
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL; ++count) {
        char *value = strchr(word, '=');
        *value++ = 0;
        char *other = strchr(value, '|');
        if (other != NULL)
            *other++ = 0;
        fields[count].name = tocsin_symbol_of(vocabulary, word);
        if (fields[count].name == 0)
            return TOCSIN_E_MEMORY;
        TOCSIN_TRY(parse_scalar(vocabulary, value, &fields[count].a));
        TOCSIN_TRY(parse_scalar(vocabulary, other != NULL ? other : value, &fields[count].b));
    }
    qsort(fields, count, sizeof *fields, compare_fields);
    tocsin_instance instance = {.population = writer->population,
                                .field_count = count,
                                .fields = fields,
                                .fact_count = fact_count,
                                .facts = facts};
    writer->examples.run = run;
    return tocsin_examples_add(&writer->examples, &instance, NULL);
}

/* The same with one fact, or none (0). */
static inline tocsin_status write_example(examples_writer *writer, uint32_t run, const char *text,
                                          tocsin_fact fact)
{
    return write_instance(writer, run, text, &fact, fact != 0);
}

#endif
