/* Tensors of 32-bit words, read chunk by chunk; see source_words.h.
 *
 * Invariant: no more memory than a chunk is taken, whatever a header says of a tensor's size.
 */
#include "pack/source/source_words.h"

#include "base/num.h"

#include <limits.h>

/* A tensor of 32-bit words, chunk by chunk: one as long as a row may be takes no memory to speak
 * of. Zeroed but for the first two, next_words() reads the first chunk. */
enum { CHUNK = 4096 };
struct words {
    const struct tp_checkpoint *ckpt;
    const struct tp_tensor *tensor;
    uint64_t first, count; /* of the chunk; 0 words: there are no more */
    uint32_t word[CHUNK];
};

static enum tp_code next_words(struct words *w, struct tp_err *err)
{
    w->first += w->count;
    w->count = tp_min_u64(CHUNK, w->tensor->bytes / 4 - w->first);
    if (!w->count)
        return TP_OK;
    enum tp_code code = tp_checkpoint_read(w->ckpt, w->tensor->file, w->word, 4 * w->count,
                                           w->tensor->offset + 4 * w->first, err);
    if (code)
        tp_err_tensor(err, w->tensor->name);
    return code;
}

static bool all_words(const struct words *w, uint32_t value)
{
    for (uint64_t i = 0; i < w->count; i++)
        if (w->word[i] != value)
            return false;
    return true;
}

enum tp_code tp_source_words_are(const struct tp_checkpoint *ckpt, const struct tp_tensor *tensor,
                                 uint32_t value, uint32_t other, bool *are, struct tp_err *err)
{
    struct words w = {.ckpt = ckpt, .tensor = tensor};
    bool first = true, second = true;
    enum tp_code code;
    do {
        if ((code = next_words(&w, err)))
            return code;
        first = first && all_words(&w, value);
        second = second && all_words(&w, other);
    } while (w.count && (first || second));
    *are = first || second;
    return TP_OK;
}

enum tp_code tp_source_bytes_zero(const struct tp_checkpoint *ckpt, const struct tp_tensor *tensor,
                                  bool *zero, struct tp_err *err)
{
    uint8_t chunk[4 * CHUNK];
    *zero = true;
    for (uint64_t at = 0, size; at < tensor->bytes && *zero; at += size) {
        size = tp_min_u64(sizeof chunk, tensor->bytes - at);
        enum tp_code code = tp_checkpoint_read(ckpt, tensor->file, chunk, size,
                                               tensor->offset + at, err);
        if (code) {
            tp_err_tensor(err, tensor->name);
            return code;
        }
        for (uint64_t i = 0; i < size && *zero; i++)
            *zero = chunk[i] == 0;
    }
    return TP_OK;
}

uint64_t tp_source_group(const struct tp_op *op, struct tp_box3 box, uint64_t *groups)
{
    int s = tp_op_find(op, TP_ROLE_SCALE);
    uint64_t group = s >= 0 && op->out[s].per_k ? op->out[s].per_k : box.k;
    *groups = tp_ceil_div(box.k, group);
    return group;
}

/* `count` groups of columns, the first of them of column `first`, counted over all experts. */
static enum tp_code check_groups(const uint32_t *index, uint64_t first, uint64_t count,
                                 uint64_t columns, uint64_t groups, struct tp_err *err)
{
    for (uint64_t i = 0; i < count; i++)
        if (index[i] > INT32_MAX || index[i] >= groups)
            return tp_fail(err, TP_E_INPUT, "g_idx[%llu] is %d, but there are only %llu groups",
                           (unsigned long long)((first + i) % columns), (int32_t)index[i],
                           (unsigned long long)groups);
    return TP_OK;
}

enum tp_code tp_source_order_check(const struct tp_op *op, struct tp_box3 box,
                                   const void *const data[], struct tp_err *err)
{
    int o = tp_op_find(op, TP_ROLE_ORDER);
    uint64_t groups, bytes;
    if (o < 0 || !data[o])
        return TP_OK;
    enum tp_code code = tp_op_bytes(op, (uint32_t)o, box, &bytes, err);
    tp_source_group(op, box, &groups);
    return code ? code : check_groups(data[o], 0, bytes / 4, box.k, groups, err);
}

enum tp_code tp_source_words_ordered(const struct tp_checkpoint *ckpt,
                                     const struct tp_weight *weight,
                                     const struct tp_tensor *tensor, bool judge, bool *trivial,
                                     struct tp_err *err)
{
    struct words w = {.ckpt = ckpt, .tensor = tensor};
    uint64_t columns = weight->form->box.k, groups;
    uint64_t group = tp_source_group(&weight->form->op, weight->form->box, &groups);
    enum tp_code code;
    *trivial = true;
    do {
        if ((code = next_words(&w, err)))
            return code;
        if (judge && (code = check_groups(w.word, w.first, w.count, columns, groups, err))) {
            tp_err_tensor(err, tensor->name);
            tp_err_path(err, ckpt->files[tensor->file].path);
            tp_err_hint(err, "get the file again: it is damaged");
            return code;
        }
        for (uint64_t at = 0; at < w.count && *trivial; at++)
            *trivial = w.word[at] == (w.first + at) % columns / group;
    } while (w.count);
    return TP_OK;
}
