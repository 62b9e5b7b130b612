/* baseline.c - which part of what was recorded decides that two values are the same.
 *
 * By default all of it. The other ways are those of older tools: a sum, an xor or a norm alone, a
 * tolerance, few places. They exist to be measured against (docs/align.md); each sees less.
 *
 * A tolerance is no equivalence, so it cannot be a hash: values of one form are hashed alike, and
 * pairs are compared when they are known. Cost: constant per boundary.
 */
#include "align/align.h"

#include <math.h>
#include <stdlib.h>

void tocsin_baseline_words(const tocsin_align_options *options, const tocsin_boundary *boundary,
                           uint64_t words[3])
{
    words[0] = words[1] = words[2] = 0;
    if (!boundary->digested || options->tolerance > 0.0)
        return;
    switch (options->digest) {
    case TOCSIN_ALIGN_DIGEST_ALL:
        words[0] = boundary->digest.sum;
        words[1] = boundary->digest.exclusive;
        words[2] = boundary->digest.polynomial;
        break;
    case TOCSIN_ALIGN_DIGEST_XOR:
        words[0] = boundary->digest.exclusive;
        break;
    case TOCSIN_ALIGN_DIGEST_SUM:
        words[0] = boundary->digest.sum;
        break;
    case TOCSIN_ALIGN_DIGEST_NORM:
        memcpy(&words[0], &boundary->statistics.sum_squares, sizeof words[0]);
        break;
    }
}

const char *tocsin_baseline_text(const tocsin_align_options *options,
                                 const tocsin_boundary *boundary)
{
    return boundary->text && !(options->tolerance > 0.0) ? boundary->text : "";
}

bool tocsin_baseline_looks(const tocsin_align_options *options, tocsin_role role, const char *name,
                           const char *attribute)
{
    return !options->few_probes || (role == TOCSIN_ROLE_LOSS && strcmp(attribute, "return") == 0) ||
           (name[0] == '\0' && strcmp(attribute, "output") == 0);
}

static bool near(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static bool texts_near(const char *a, const char *b, double tolerance)
{
    if (strcmp(a, b) == 0)
        return true;
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return end_a != a && end_b != b && *end_a == '\0' && *end_b == '\0' && near(x, y, tolerance);
}

bool tocsin_baseline_near(const tocsin_align_options *options, const tocsin_boundary *a,
                          const tocsin_boundary *b)
{
    double tolerance = options->tolerance;
    if (!(tolerance > 0.0))
        return true;
    if (!texts_near(a->text ? a->text : "", b->text ? b->text : "", tolerance))
        return false;
    return !a->digested || !b->digested ||
           (a->statistics.nan_count == b->statistics.nan_count &&
            a->statistics.inf_count == b->statistics.inf_count &&
            near(sqrt(a->statistics.sum_squares), sqrt(b->statistics.sum_squares), tolerance) &&
            near(a->statistics.absmax, b->statistics.absmax, tolerance));
}
