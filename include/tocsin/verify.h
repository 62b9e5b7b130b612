/* tocsin/verify.h - is a parallel plan the same maths as its logical model?
 *
 * The claim is equality over the real numbers of every output (loss, gradient, updated parameter,
 * optimizer state) of the parallel plan with the slice of the logical output that it stands for,
 * for all inputs. Rounding is outside the claim. Method and its limits: docs/verify.md.
 *
 * Threads: a call uses the calling thread alone and shares nothing but the read-only plans.
 */
#ifndef TOCSIN_VERIFY_H
#define TOCSIN_VERIFY_H

#include <tocsin/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, "text", exit code). Never collapsed into fewer. */
#define TOCSIN_VERDICT_TABLE(X)                                                                    \
    X(PROVED, "PROVED", 0)        /* every output is equal, by rules that are always valid */      \
    X(PROBABLE, "PROVED-PROB", 0) /* some step by random evaluation over a finite field */         \
    X(REFUTED, "REFUTED", 1)      /* an output differs, or the plan cannot run; with causes */     \
    X(UNKNOWN, "UNKNOWN", 3)      /* neither: the missing rules are named */

typedef enum tocsin_verdict {
#define X(name, text, code) TOCSIN_VERDICT_##name,
    TOCSIN_VERDICT_TABLE(X)
#undef X
} tocsin_verdict;

/* X(NAME, "text", "what it means and how to mend it"). Stable names: they stand in JSON. */
#define TOCSIN_CAUSE_TABLE(X)                                                                      \
    X(MISSING_REDUCTION, "missing-reduction",                                                      \
      "a partial sum is used as if it were whole: reduce it over the axis named first")            \
    X(DOUBLE_REDUCTION, "double-reduction",                                                        \
      "contributions are counted more than once: remove one of the reductions")                    \
    X(WRONG_SCALE, "wrong-scale",                                                                  \
      "the value is right up to a factor: correct the averaging or scaling")                       \
    X(WRONG_GROUP, "wrong-group", "the collective runs over the wrong ranks: use the group named") \
    X(WRONG_ORDER, "wrong-order",                                                                  \
      "shards are joined or cut in another order than they were made in: order the "               \
      "group's ranks")                                                                             \
    X(WRONG_COLLECTIVE, "wrong-collective",                                                        \
      "this kind of collective does not give what is needed here")                                 \
    X(WRONG_SHARD, "wrong-shard",                                                                  \
      "the operands cover different ranges of one axis, or not the range needed")                  \
    X(WRONG_LAYOUT, "wrong-layout", "the value is right but its axes are permuted or regrouped")   \
    X(WRONG_CONSTANT, "wrong-constant",                                                            \
      "the operator's constant differs from the logical model's")                                  \
    X(WRONG_OPERATOR, "wrong-operator",                                                            \
      "the logical model has no such operator on these operands")                                  \
    X(WRONG_INPUT, "wrong-input", "the operator reads another value than its logical counterpart") \
    X(MISSING_TERM, "missing-term",                                                                \
      "a sum lacks a term, such as one micro-batch or one consumer's gradient")                    \
    X(EXTRA_TERM, "extra-term", "a sum has a term too many")                                       \
    X(UNDEFINED_VALUE, "undefined-value", "a value is read that nothing has written")              \
    X(UNMATCHED, "unmatched-communication", "a send, receive or collective lacks its partners")    \
    X(DEADLOCK, "deadlock", "ranks wait for one another in a circle")                              \
    X(MISSING_WAIT, "missing-wait",                                                                \
      "an asynchronous result is read, or its buffer reused, before the wait")                     \
    X(UNPROVED_OUTPUT, "unproved-output", "the output differs from the logical one")

typedef enum tocsin_cause_class {
#define X(name, text, meaning) TOCSIN_CAUSE_##name,
    TOCSIN_CAUSE_TABLE(X)
#undef X
} tocsin_cause_class;

/* One independent root cause, all ranks and micro-batches that show it folded into one. Texts are
 * owned by the result and never NULL. */
typedef struct tocsin_cause {
    tocsin_cause_class class;
    const char *op;       /* "add48", "layers.3.attn.wo: mm": the first wrong operator */
    const char *fqn;      /* module, or "" */
    const char *source;   /* "model.py:210", or "" */
    const char *ranks;    /* "pp=0 tp=0,1 (ranks 0,1,4,5)" */
    const char *group;    /* the process group's declared ranks, or "" */
    const char *relation; /* what it is: "linear47[0:4, 0:8] partial k in [0,5504) of 11008" */
    const char *expected; /* what it should be */
    const char *fix;      /* one line */
    uint64_t occurrences; /* executions that show it */
} tocsin_cause;

typedef struct tocsin_verify_options {
    bool enumerate;               /* every replica and micro-batch on its own, no collapse */
    uint32_t causes_max;          /* 0: 20 */
    const char *certificate_path; /* write a certificate, or NULL */
} tocsin_verify_options;

typedef struct tocsin_verify_result {
    tocsin_verdict verdict;
    double epsilon;     /* PROVED-PROB: bound on the probability of error */
    bool confirmed;     /* REFUTED: both plans were run over a finite field, and differ there too */
    double nodes_pct;   /* executed operators whose value is known, of those an output needs */
    double outputs_pct; /* outputs proved */
    uint64_t nodes;     /* operator executions looked at (a collapsed one counts once) */
    uint64_t nodes_dead; /* of them, no output needs them */
    uint64_t outputs;
    uint64_t outputs_proved;
    uint64_t gradients; /* of the outputs */
    uint64_t gradients_proved;
    bool collapsed; /* replicas and micro-batches were treated symbolically */
    double seconds; /* of the proof alone, reading excluded */
    uint64_t peak_rss_bytes;
    const tocsin_cause *causes;
    size_t cause_count;
    uint64_t causes_hidden;     /* beyond causes_max */
    const char *const *unknown; /* "no rule for operator foo (layers.3.moe)" */
    size_t unknown_count;
    const char *const *assumptions; /* what the verdict rests on */
    size_t assumption_count;
    const char *const *dead; /* operators that no output needs, folded by name */
    size_t dead_count;
} tocsin_verify_result;

TOCSIN_API const char *tocsin_verdict_text(tocsin_verdict verdict);
TOCSIN_API int tocsin_verdict_exit_code(tocsin_verdict verdict);
TOCSIN_API const char *tocsin_cause_text(tocsin_cause_class class);
TOCSIN_API const char *tocsin_cause_meaning(tocsin_cause_class class);

/* Compare `parallel` with `logical`. `options` may be NULL. The result is the caller's; it does not
 * refer to the plans. A wrong plan is a result, not an error.
 * Errors: E_ARGUMENT (the logical plan is itself parallel, or the two do not share inputs),
 * E_LIMIT, E_MEMORY, E_IO (certificate). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_verify(const tocsin_plan *logical,
                                                         const tocsin_plan *parallel,
                                                         const tocsin_verify_options *options,
                                                         tocsin_verify_result **result,
                                                         tocsin_error *error);
TOCSIN_API void tocsin_verify_result_free(tocsin_verify_result *result);

/* An equation that the prover's rules rest on, beyond "equal operands give equal results": a
 * logical model and an equal plan, as `.plan` texts. Each is cross-checked by the tests over a
 * finite field. */
typedef struct tocsin_lemma {
    const char *name;      /* "partial-contraction" */
    const char *statement; /* in words */
    const char *left, *right;
} tocsin_lemma;

/* All of them; static. */
TOCSIN_API const tocsin_lemma *tocsin_verify_lemmas(size_t *count);

#ifdef __cplusplus
}
#endif
#endif
