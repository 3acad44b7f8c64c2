/* A buffer that grows, for data that is made anew each time: unlike an array, its contents
 * are not kept when it grows.
 */
#ifndef TP_PACK_BUFFER_H
#define TP_PACK_BUFFER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* 64-byte aligned; {0} is empty. Freed by tp_buffer_free(), which is legal on {0} and
 * twice. */
struct tp_buffer {
    void *data;
    size_t capacity;
};
enum tp_code tp_buffer_reserve(struct tp_buffer *buffer, uint64_t size, struct tp_err *err);
void tp_buffer_free(struct tp_buffer *buffer);

#endif
