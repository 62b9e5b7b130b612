/* lib/align/align_names.c - the texts of what a result says by number: the tables' columns. */
#include <tocsin/align.h>

#define TEXT(name, text, meaning)    text,
#define MEANING(name, text, meaning) meaning,
#define RATING(name, text)           text,

/* A function that looks a number up in one column of its table. */
#define LOOK_UP(function, number, table, column)                                                   \
    const char *function(number value)                                                             \
    {                                                                                              \
        static const char *const texts[] = {table(column)};                                        \
        return texts[value];                                                                       \
    }

const char *tocsin_align_verdict_name(tocsin_align_verdict verdict)
{
    static const char *const names[] = {"IDENTICAL", "DIVERGED", "INCOMPARABLE", "UNSTABLE",
                                        "ACCEPTED"};
    return names[verdict];
}

LOOK_UP(tocsin_difference_text, tocsin_difference, TOCSIN_DIFFERENCE_TABLE, TEXT)
LOOK_UP(tocsin_difference_meaning, tocsin_difference, TOCSIN_DIFFERENCE_TABLE, MEANING)
LOOK_UP(tocsin_align_cause_text, tocsin_align_cause, TOCSIN_ALIGN_CAUSE_TABLE, TEXT)
LOOK_UP(tocsin_align_cause_meaning, tocsin_align_cause, TOCSIN_ALIGN_CAUSE_TABLE, MEANING)
LOOK_UP(tocsin_gap_text, tocsin_gap, TOCSIN_GAP_TABLE, TEXT)
LOOK_UP(tocsin_incomparable_text, tocsin_incomparable, TOCSIN_INCOMPARABLE_TABLE, TEXT)
LOOK_UP(tocsin_incomparable_meaning, tocsin_incomparable, TOCSIN_INCOMPARABLE_TABLE, MEANING)
LOOK_UP(tocsin_rating_text, tocsin_rating, TOCSIN_RATING_TABLE, RATING)
