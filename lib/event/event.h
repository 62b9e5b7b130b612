/* lib/event/event.h - events in the words of people and programs. The one header of the module;
 * tocsin/event.h says what an event is. */
#ifndef TOCSIN_LIB_EVENT_H
#define TOCSIN_LIB_EVENT_H

#include <base/base.h>
#include <tocsin/dictionary.h>
#include <tocsin/event.h>

/* Append the event as a JSON object: docs/formats/trace.md, 7. */
void tocsin_event_put_json(const tocsin_event *event, const tocsin_dictionary *dictionary,
                           tocsin_json *json);

#endif
