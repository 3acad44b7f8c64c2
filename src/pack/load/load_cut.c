/* Parts of tensors as runs of bytes. The last dimensions that a part takes whole, and the one
 * before them, are one run; the others say where the runs begin.
 */
#include "pack/load/load_cut.h"

#include "base/num.h"

/* What a box is of: the tensor's elements, or its bytes in the part's shape. */
struct whole {
    uint32_t rank;
    const uint64_t *shape;
    uint64_t bits; /* of an element */
};

static enum tp_code find_whole(const struct tp_tensor *tensor, const struct tp_load_part *part,
                               struct whole *whole, struct tp_err *err)
{
    uint64_t bytes = part->rank <= TP_ST_MAX_RANK;
    *whole = (struct whole){tensor->rank, tensor->shape, tp_dtype_bits(tensor->dtype)};
    if (part->rank == 0)
        return TP_OK;
    for (uint32_t d = 0; d < part->rank && bytes > 0; d++)
        if (!tp_mul_u64(&bytes, bytes, part->shape[d]))
            bytes = 0;
    if (bytes == tensor->bytes) {
        *whole = (struct whole){part->rank, part->shape, 8};
        return TP_OK;
    }
    tp_err_tensor(err, tensor->name);
    return tp_fail(err, TP_E_USAGE, "a shape that is not that of its %llu bytes",
                   (unsigned long long)tensor->bytes);
}

static enum tp_code check_box(const struct tp_tensor *tensor, const struct whole *whole,
                              const struct tp_load_part *part, struct tp_err *err)
{
    for (uint32_t d = 0; d < whole->rank; d++)
        if (part->begin[d] > part->end[d] || part->end[d] > whole->shape[d]) {
            tp_err_tensor(err, tensor->name);
            return tp_fail(err, TP_E_USAGE, "elements %llu to %llu of dimension %u, which has %llu",
                           (unsigned long long)part->begin[d], (unsigned long long)part->end[d], d,
                           (unsigned long long)whole->shape[d]);
        }
    return TP_OK;
}

/* Dimensions from *d on are one run; returns its elements. */
static uint64_t find_run(const struct whole *whole, const struct tp_load_part *part, uint32_t *d)
{
    uint64_t run = 1;
    bool all = true;
    for (*d = whole->rank; *d > 0 && all;) {
        --*d;
        run *= part->end[*d] - part->begin[*d];
        all = part->begin[*d] == 0 && part->end[*d] == whole->shape[*d];
    }
    return run;
}

enum tp_code tp_load_cut(const struct tp_checkpoint *ckpt, const struct tp_load_part *part,
                         struct tp_load_cut *cut, struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[part->tensor];
    struct whole whole;
    if (find_whole(tensor, part, &whole, err) || check_box(tensor, &whole, part, err))
        return TP_E_USAGE;
    if (tensor->bytes > UINT64_MAX / 8)
        return tp_fail(err, TP_E_UNSUPPORTED, "tensor '%s' is too large", tensor->name);
    *cut = (struct tp_load_cut){.tensor = tensor, .to = part->to};
    cut->run = find_run(&whole, part, &cut->rank) * whole.bits;
    uint64_t step = whole.bits, first = 0, uneven = cut->run;
    for (uint32_t d = whole.rank; d-- > 0;) { /* `step` bits between elements of d */
        first += part->begin[d] * step;
        if (d < cut->rank) {
            cut->count[d] = part->end[d] - part->begin[d];
            cut->step[d] = step / 8;
            uneven |= step;
        }
        step *= whole.shape[d];
    }
    if ((uneven | first) % 8) {
        tp_err_tensor(err, tensor->name);
        return tp_fail(err, TP_E_UNSUPPORTED, "a part of it does not begin and end with a byte");
    }
    cut->runs = cut->run > 0;
    for (uint32_t d = 0; d < cut->rank; d++)
        cut->runs *= cut->count[d];
    cut->run /= 8;
    cut->first = tensor->offset + first / 8;
    if (cut->runs && !cut->to)
        return tp_fail(err, TP_E_USAGE, "no memory for tensor '%s' is given", tensor->name);
    return TP_OK;
}

uint64_t tp_load_cut_at(const struct tp_load_cut *cut, uint64_t i)
{
    uint64_t at = cut->first;
    for (uint32_t d = cut->rank; d-- > 0; i /= cut->count[d])
        at += i % cut->count[d] * cut->step[d];
    return at;
}

/* The first run that does not end before `at`; `runs` when all do. */
static uint64_t first_behind(const struct tp_load_cut *cut, uint64_t at)
{
    uint64_t low = 0, high = cut->runs;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (tp_load_cut_at(cut, middle) + cut->run > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint64_t tp_load_cut_runs(const struct tp_load_cut *cut, uint64_t begin, uint64_t end,
                          uint64_t *i)
{
    *i = first_behind(cut, begin);
    if (*i == cut->runs || tp_load_cut_at(cut, *i) >= end)
        return 0;
    /* The run with the window's last byte, or the last one before it. */
    uint64_t last = first_behind(cut, end - 1);
    return last - *i + (last < cut->runs && tp_load_cut_at(cut, last) < end);
}

struct tp_load_run tp_load_cut_run(const struct tp_load_cut *cut, uint64_t i, uint64_t begin,
                                   uint64_t end)
{
    uint64_t at = tp_load_cut_at(cut, i), from = tp_max_u64(at, begin);
    return (struct tp_load_run){.at = from,
                                .bytes = tp_min_u64(at + cut->run, end) - from,
                                .to = i * cut->run + (from - at)};
}
