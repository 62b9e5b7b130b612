/* certify/local_rule.h - what the files about local operators share. */
#ifndef TOCSIN_CERTIFY_LOCAL_RULE_H
#define TOCSIN_CERTIFY_LOCAL_RULE_H

#include "certify/certify.h"

/* One output of one execution, and what its rule needs to know. */
typedef struct certify_judgement certify_judgement;
/* Append - actual at the index. */
typedef certify_outcome certify_subtract_rule(certify_checker *checker,
                                              const certify_judgement *now,
                                              const certify_form *index);

struct certify_judgement {
    const certify_step *step;
    uint32_t output;
    certify_subtract_rule *rule;
    int dim;           /* of input 0, or of the output for a join */
    int64_t start, by; /* along it */
    uint32_t bits;     /* reduced dims */
    const int64_t *list;
    certify_number factor;
};

static inline uint32_t certify_input(const certify_judgement *now, uint32_t input)
{
    return now->step->inputs[input];
}

static inline uint32_t certify_output(const certify_judgement *now)
{
    return now->step->outputs[now->output];
}

/* Is the output, everywhere, what `now->rule` makes of the inputs? */
certify_outcome certify_judge(certify_checker *checker, const certify_judgement *now);
/* The same for an output of input 0's shape; without a rule: input 0 times the factor. */
certify_outcome certify_judge_multiple(certify_checker *checker, certify_judgement *now);
/* Append - factor * relation at the index. */
certify_outcome certify_subtract(certify_checker *checker, uint32_t relation,
                                 const certify_form *index, const certify_number *factor);
certify_outcome certify_subtract_constant(certify_checker *checker, double value);
/* The same of a relation that is broadcast to the output: aligned at the right. */
certify_outcome certify_take_expanded(certify_checker *checker, const certify_judgement *now,
                                      uint32_t relation, const certify_form *index,
                                      const certify_number *factor);
bool certify_has_shape(const certify_checker *checker, uint32_t relation, const int64_t *shape,
                       uint32_t ndim);
certify_outcome certify_wrong_shape(certify_checker *checker);
/* The dims that the attribute `dims` names, as bits; all without it. false: one is out of range. */
bool certify_reduced_dims(const certify_judgement *now, uint32_t ndim, uint32_t *bits);

certify_outcome certify_judge_structure(certify_checker *checker, certify_judgement *now);
certify_outcome certify_judge_reduction(certify_checker *checker, certify_judgement *now);
certify_outcome certify_judge_named(certify_checker *checker, certify_judgement *now);

#endif
