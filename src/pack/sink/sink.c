/* How a constant gets to a sink, and sinks that keep nothing: discard, and compare with
 * stored files. */
#include "pack/sink/sink.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/plan/unit/constant.h"

#include <stdlib.h>
#include <string.h>

enum tp_code tp_sink_constant(struct tp_sink *sink, uint32_t file, uint32_t output,
                              const struct tp_output *planned, struct tp_err *err)
{
    uint8_t chunk[TP_CONSTANT_CHUNK];
    enum tp_code code = TP_OK;
    for (uint64_t at = 0, size; at < planned->bytes && code == TP_OK; at += size) {
        size = tp_min_u64(sizeof chunk, planned->bytes - at);
        code = tp_constant_bytes(planned->constant, at, chunk, size, err);
        if (code == TP_OK)
            code = sink->write(sink, file, output, at, chunk, size, err);
    }
    return code;
}

static enum tp_code discard(struct tp_sink *sink, uint32_t file, uint32_t output, uint64_t offset,
                            const void *data, uint64_t size, struct tp_err *err)
{
    (void)sink, (void)file, (void)output, (void)offset, (void)data, (void)size, (void)err;
    return TP_OK;
}

static enum tp_code discard_many(struct tp_sink *sink, uint32_t file, uint32_t output,
                                 const struct tp_chunk *chunks, size_t count, struct tp_err *err)
{
    (void)sink, (void)file, (void)output, (void)chunks, (void)count, (void)err;
    return TP_OK;
}

struct tp_sink tp_discard_sink = {.write = discard, .write_many = discard_many,
                                  .assembles = UINT64_MAX};

static void record(struct tp_compare_sink *sink, uint32_t output, uint64_t offset,
                   const uint8_t *ours, const uint8_t *theirs, uint64_t size)
{
    struct tp_difference *difference = &sink->differences[output];
    uint64_t count = 0, first = 0;
    for (uint64_t i = size; i-- > 0;)
        if (ours[i] != theirs[i]) {
            count++;
            first = offset + i;
        }
    pthread_mutex_lock(&sink->lock);
    if (difference->bytes == 0 || first < difference->first_offset) {
        difference->first_offset = first;
        difference->ours = ours[first - offset];
        difference->theirs = theirs[first - offset];
    }
    difference->bytes += count;
    pthread_mutex_unlock(&sink->lock);
}

static enum tp_code compare(struct tp_sink *base, uint32_t file, uint32_t output, uint64_t offset,
                            const void *data, uint64_t size, struct tp_err *err)
{
    struct tp_compare_sink *sink = (struct tp_compare_sink *)base;
    uint8_t stored[65536];
    (void)file;
    if (output == TP_SINK_HEADER || !sink->tensors[output])
        return TP_OK; /* headers may differ in shard layout; a missing tensor is known */
    const struct tp_tensor *tensor = sink->tensors[output];
    for (uint64_t at = 0; at < size; at += sizeof stored) {
        uint64_t part = tp_min_u64(size - at, sizeof stored);
        const uint8_t *ours = (const uint8_t *)data + at;
        enum tp_code code = tp_checkpoint_read(sink->stored, tensor->file, stored, part,
                                               tensor->offset + offset + at, err);
        if (code)
            return code;
        if (memcmp(ours, stored, part) != 0)
            record(sink, output, offset + at, ours, stored, part);
    }
    return TP_OK;
}

enum tp_code tp_compare_sink_open(struct tp_compare_sink *sink, const struct tp_plan *plan,
                                  const struct tp_checkpoint *stored, struct tp_err *err)
{
    *sink = (struct tp_compare_sink){.sink = {.write = compare}, .plan = plan, .stored = stored};
    pthread_mutex_init(&sink->lock, NULL);
    sink->tensors = tp_os_zalloc(plan->output_count + 1, sizeof *sink->tensors, err);
    sink->differences = tp_os_zalloc(plan->output_count + 1, sizeof *sink->differences, err);
    if (!sink->tensors || !sink->differences)
        return TP_E_MEMORY;
    for (size_t o = 0; o < plan->output_count; o++) {
        const struct tp_output *output = &plan->outputs[o];
        const struct tp_tensor *tensor = tp_checkpoint_find(stored, output->name);
        if (tensor && tensor->bytes == output->bytes && tensor->dtype == output->dtype &&
            tensor->rank == output->rank &&
            memcmp(tensor->shape, output->shape, tensor->rank * sizeof *tensor->shape) == 0)
            sink->tensors[o] = tensor;
    }
    return TP_OK;
}

void tp_compare_sink_close(struct tp_compare_sink *sink)
{
    if (sink->plan)
        pthread_mutex_destroy(&sink->lock);
    free(sink->tensors);
    free(sink->differences);
    memset(sink, 0, sizeof *sink);
}
