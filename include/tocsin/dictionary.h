/* tocsin/dictionary.h - what the ids in events mean.
 *
 * Events carry ids that only their process's dictionary can explain. Whoever produces events (a
 * trace file, a test) offers the dictionary as this table of look-ups; whoever consumes them
 * (invariants, inference, checking) needs nothing else from the producer.
 *
 * Look-ups never fail: "?" for an unknown id, "" for 0. Texts live as long as the producer, and an
 * id never changes its meaning.
 */
#ifndef TOCSIN_DICTIONARY_H
#define TOCSIN_DICTIONARY_H

#include <stdint.h>
#include <tocsin/event.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_dictionary {
    const void *producer; /* first argument of every look-up */
    int64_t pid;
    const char *(*string)(const void *producer, tocsin_id id);
    const char *(*function_name)(const void *producer, tocsin_id id);
    tocsin_role (*function_role)(const void *producer, tocsin_id id);
    const char *(*variable_name)(const void *producer, tocsin_id id);
    tocsin_variable_kind (*variable_kind)(const void *producer, tocsin_id id);
    const char *(*variable_type)(const void *producer, tocsin_id id);
    uint32_t (*shape)(const void *producer, tocsin_id id, const int64_t **sizes);
    const char *(*site)(const void *producer, tocsin_id id, uint32_t *line, const char **function);
} tocsin_dictionary;

#ifdef __cplusplus
}
#endif
#endif
