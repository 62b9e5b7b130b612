/* All populations, in parallel, into one set.
 *
 * Tables are independent; each is judged by one job, into an arena of its own. What a function is
 * claimed of its name and of its role alike is kept for the role, which carries over to other
 * optimizers and models. Invariant: order and content of the result depend on the examples only,
 * neither on ids nor on threads. */
#include <assert.h>
#include <infer/hypothesis.h>
#include <infer/infer.h>
#include <stdlib.h>

enum { VERDICT_ARENA_BYTES = 2048 }; /* most tables have few facts */

struct verdict { /* of one table */
    const tocsin_table *table;
    tocsin_arena arena;
    tocsin_hypothesis *hypotheses;
    size_t count;
};

struct lesson {
    const tocsin_examples *examples;
    uint32_t run_count;
    struct verdict *verdicts; /* by population */
    size_t count;
};

static tocsin_status judge_table(void *context, size_t index, tocsin_error *error)
{
    struct lesson *lesson = context;
    struct verdict *verdict = &lesson->verdicts[index];
    return tocsin_hypotheses_judge(lesson->examples->vocabulary, verdict->table, lesson->run_count,
                                   &verdict->arena, &verdict->hypotheses, &verdict->count, error);
}

static int compare_verdicts(const void *a, const void *b, void *vocabulary)
{
    const struct verdict *x = a, *y = b;
    return tocsin_population_compare(vocabulary, x->table->population, y->table->population);
}

/* The same fact, true and false in the same circumstances, of the same kind of population. */
static uint64_t claim_of(const tocsin_vocabulary *vocabulary, const tocsin_hypothesis *hypothesis)
{
    tocsin_population_key key =
        tocsin_population_get_key(vocabulary, hypothesis->invariant.population);
    return tocsin_mix64(hypothesis->fingerprint + key.kind) + hypothesis->invariant.fact;
}

static tocsin_status prefer_roles(struct lesson *lesson, tocsin_error *error)
{
    const tocsin_vocabulary *vocabulary = lesson->examples->vocabulary;
    tocsin_map of_roles = {0};
    tocsin_status status = TOCSIN_OK;
    for (int pass = 0; pass < 2; ++pass) {
        for (size_t v = 0; v < lesson->count && status == TOCSIN_OK; ++v) {
            struct verdict *verdict = &lesson->verdicts[v];
            tocsin_population_key key =
                tocsin_population_get_key(vocabulary, verdict->table->population);
            if ((pass == 0) != (key.role != TOCSIN_ROLE_NONE))
                continue;
            for (size_t i = 0; i < verdict->count; ++i) {
                tocsin_hypothesis *hypothesis = &verdict->hypotheses[i];
                uint64_t claim = claim_of(vocabulary, hypothesis);
                if (hypothesis->drop != TOCSIN_DROP_KEPT)
                    continue;
                if (pass == 0 && !tocsin_map_put(&of_roles, claim, 1))
                    status = tocsin_error_memory(error);
                else if (pass == 1 && key.name != 0 && tocsin_map_find(&of_roles, claim) != NULL)
                    hypothesis->drop = TOCSIN_DROP_SAID_OF_ROLE;
            }
        }
    }
    tocsin_map_free(&of_roles);
    return status;
}

static tocsin_status tell_dropped(const tocsin_vocabulary *vocabulary,
                                  const tocsin_hypothesis *hypothesis,
                                  const tocsin_infer_options *options, tocsin_string *sentence,
                                  tocsin_error *error)
{
    tocsin_string_clear(sentence);
    tocsin_invariant_say(vocabulary, &hypothesis->invariant, sentence);
    TOCSIN_TRY(tocsin_string_check(sentence, error));
    tocsin_relation_kind relation =
        tocsin_population_relation(vocabulary, hypothesis->invariant.population);
    options->dropped(options->context, tocsin_relation_name(relation), tocsin_string_text(sentence),
                     tocsin_drop_reason(hypothesis->drop));
    return TOCSIN_OK;
}

static tocsin_status deliver(struct lesson *lesson, const tocsin_infer_options *options,
                             tocsin_invariant_set *set, tocsin_infer_summary *summary,
                             tocsin_error *error)
{
    tocsin_string sentence = {0};
    tocsin_status status = TOCSIN_OK;
    for (size_t v = 0; v < lesson->count && status == TOCSIN_OK; ++v) {
        for (size_t i = 0; i < lesson->verdicts[v].count && status == TOCSIN_OK; ++i) {
            const tocsin_hypothesis *hypothesis = &lesson->verdicts[v].hypotheses[i];
            ++summary->hypotheses;
            if (hypothesis->drop == TOCSIN_DROP_KEPT) {
                ++summary->kept;
                status = tocsin_invariants_add(set, &hypothesis->invariant, error);
                continue;
            }
            ++summary->dropped;
            if (options != NULL && options->dropped != NULL)
                status = tell_dropped(lesson->examples->vocabulary, hypothesis, options, &sentence,
                                      error);
        }
    }
    tocsin_string_free(&sentence);
    return status;
}

tocsin_status tocsin_learn(tocsin_examples *examples, uint32_t run_count,
                           const tocsin_infer_options *options, tocsin_invariant_set *set,
                           tocsin_infer_summary *summary, tocsin_error *error)
{
    assert(examples->vocabulary == tocsin_invariants_vocabulary(set));
    TOCSIN_TRY(tocsin_examples_mark_internal(examples, error));
    struct lesson lesson = {
        .examples = examples, .run_count = run_count, .count = examples->tables.count};
    lesson.verdicts = tocsin_zalloc(lesson.count, sizeof *lesson.verdicts);
    if (lesson.verdicts == NULL)
        return tocsin_error_memory(error);
    for (size_t i = 0; i < lesson.count; ++i) {
        lesson.verdicts[i].table = examples->tables.items[i];
        lesson.verdicts[i].arena.chunk_bytes = VERDICT_ARENA_BYTES;
    }
    if (lesson.count > 1)
        qsort_r(lesson.verdicts, lesson.count, sizeof *lesson.verdicts, compare_verdicts,
                examples->vocabulary);
    tocsin_pool *pool = NULL;
    tocsin_status status = tocsin_pool_new(options != NULL ? options->threads : 0, &pool, error);
    if (status == TOCSIN_OK)
        status = tocsin_pool_run(pool, lesson.count, judge_table, &lesson, error);
    tocsin_pool_free(pool);
    if (status == TOCSIN_OK && !examples->wide)
        status = prefer_roles(&lesson, error);
    if (status == TOCSIN_OK)
        status = deliver(&lesson, options, set, summary, error);
    if (status == TOCSIN_OK)
        status = tocsin_invariants_sort(set, error);
    for (size_t i = 0; i < lesson.count; ++i)
        tocsin_arena_free(&lesson.verdicts[i].arena);
    tocsin_free(lesson.verdicts);
    return status;
}
