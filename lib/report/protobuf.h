/* protobuf.h - appending fields of a protobuf message to a string: varints, 64 bits, and bytes.
 *
 * That is all that is needed to write messages; nobody here reads them. A message in a message is
 * built in a string of its own and then appended as bytes. Failures stick in the string.
 * Wire format: https://protobuf.dev/programming-guides/encoding/
 */
#ifndef TOCSIN_REPORT_PROTOBUF_H
#define TOCSIN_REPORT_PROTOBUF_H

#include "base/base.h"

void tocsin_protobuf_varint(tocsin_string *message, uint32_t field, uint64_t value);
void tocsin_protobuf_fixed64(tocsin_string *message, uint32_t field, uint64_t value);
void tocsin_protobuf_bytes(tocsin_string *message, uint32_t field, const void *bytes, size_t count);
/* As UTF-8: other bytes become '?'. */
void tocsin_protobuf_text(tocsin_string *message, uint32_t field, const char *text);
/* The fields of `inner`, which is emptied. */
void tocsin_protobuf_message(tocsin_string *message, uint32_t field, tocsin_string *inner);

#endif
