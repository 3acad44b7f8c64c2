/* Buffers that grow. Invariant: data holds capacity bytes, a multiple of 64; what was in
 * it is not kept when it grows. */
#include "pack/os/buffer.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <stdlib.h>

enum tp_code tp_buffer_reserve(struct tp_buffer *buffer, uint64_t size, struct tp_err *err)
{
    if (size <= buffer->capacity)
        return TP_OK;
    tp_buffer_free(buffer);
    size = tp_round_up(size, 64);
    if (!(buffer->data = tp_os.aligned_alloc(64, size)))
        return tp_fail(err, TP_E_MEMORY, "out of memory for a buffer of %llu bytes",
                       (unsigned long long)size);
    buffer->capacity = size;
    return TP_OK;
}

void tp_buffer_free(struct tp_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct tp_buffer){0};
}
