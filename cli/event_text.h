/* event_text.h - one recorded event as a line of text. */
#ifndef TOCSIN_CLI_EVENT_TEXT_H
#define TOCSIN_CLI_EVENT_TEXT_H

#include <stdio.h>
#include <tocsin/trace.h>

/* "1234.1  0.000123 | > torch.nn.functional.linear(input=float32[8,3])  train.py:31 in train".
 * `start_ns` is the time that counts as zero. */
void event_text_print(const tocsin_trace *trace, const tocsin_event *event, uint64_t start_ns,
                      FILE *stream);

#endif
