/* lib/align/align_names.c - the texts of what a result says by number. */
#include <tocsin/align.h>

const char *tocsin_align_verdict_name(tocsin_align_verdict verdict)
{
    static const char *const names[] = {"IDENTICAL", "DIVERGED", "INCOMPARABLE", "UNSTABLE",
                                        "ACCEPTED"};
    return names[verdict];
}

const char *tocsin_difference_text(tocsin_difference difference)
{
    static const char *const texts[] = {
#define X(name, text, meaning) text,
        TOCSIN_DIFFERENCE_TABLE(X)
#undef X
    };
    return texts[difference];
}

const char *tocsin_difference_meaning(tocsin_difference difference)
{
    static const char *const meanings[] = {
#define X(name, text, meaning) meaning,
        TOCSIN_DIFFERENCE_TABLE(X)
#undef X
    };
    return meanings[difference];
}

const char *tocsin_align_cause_text(tocsin_align_cause cause)
{
    static const char *const texts[] = {
#define X(name, text, meaning) text,
        TOCSIN_ALIGN_CAUSE_TABLE(X)
#undef X
    };
    return texts[cause];
}

const char *tocsin_align_cause_meaning(tocsin_align_cause cause)
{
    static const char *const meanings[] = {
#define X(name, text, meaning) meaning,
        TOCSIN_ALIGN_CAUSE_TABLE(X)
#undef X
    };
    return meanings[cause];
}

const char *tocsin_gap_text(tocsin_gap gap)
{
    static const char *const texts[] = {
#define X(name, text, meaning) text,
        TOCSIN_GAP_TABLE(X)
#undef X
    };
    return texts[gap];
}

const char *tocsin_rating_text(tocsin_rating rating)
{
    static const char *const texts[] = {
#define X(name, text) text,
        TOCSIN_RATING_TABLE(X)
#undef X
    };
    return texts[rating];
}

const char *tocsin_incomparable_text(tocsin_incomparable reason)
{
    static const char *const texts[] = {
#define X(name, text, meaning) text,
        TOCSIN_INCOMPARABLE_TABLE(X)
#undef X
    };
    return texts[reason];
}

const char *tocsin_incomparable_meaning(tocsin_incomparable reason)
{
    static const char *const meanings[] = {
#define X(name, text, meaning) meaning,
        TOCSIN_INCOMPARABLE_TABLE(X)
#undef X
    };
    return meanings[reason];
}
