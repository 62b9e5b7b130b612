/* suggest.c - "did you mean": the nearest known word by edit distance.
 *
 * Optimal string alignment distance (insert, delete, replace, swap of neighbours) by three rolling
 * rows. Words longer than WORD_MAX are never suggested, so the rows live on the stack.
 * Cost: O(length of a * length of b) per candidate.
 */
#include "options.h"

#include <assert.h>
#include <string.h>

#define WORD_MAX 64

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *row = rows[2];

    assert(a_length <= WORD_MAX);
    assert(b_length <= WORD_MAX);
    for (size_t j = 0; j <= b_length; j++) {
        last[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replace = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min3(last[j] + 1, row[j - 1] + 1, replace);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j]) {
                row[j] = before[j - 2] + 1;
            }
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[b_length];
}

const char *cli_suggest(const char *word, const char *(*next)(const void *context, size_t index),
                        const void *context)
{
    assert(word);
    assert(next);
    size_t length = strlen(word);
    size_t nearest = 3;
    const char *suggestion = NULL;

    if (length > WORD_MAX) {
        return NULL;
    }
    for (size_t index = 0;; index++) {
        const char *candidate = next(context, index);
        if (!candidate) {
            return suggestion;
        }
        if (strlen(candidate) > WORD_MAX) {
            continue;
        }
        size_t distance = edit_distance(word, candidate);
        if (distance < nearest && distance * 3 <= strlen(candidate) + 1) {
            nearest = distance;
            suggestion = candidate;
        }
    }
}
