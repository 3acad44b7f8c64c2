/* Numbers that are put in another order, one by one; see floats.h. Invariant: bits are kept where
 * the type is, so that NaNs of any payload go there and back. */
#include "kernels/op/floats.h"

#include "kernels/op/plane.h"
#include "kernels/op/scalar.h"
#include "kernels/op/traits.h"

#include <string.h>

bool tp_floats_any_nonfinite(enum tp_dtype type, const void *values, uint64_t count)
{
    const uint64_t every16 = UINT64_C(0x0001000100010001), every32 = UINT64_C(0x0000000100000001);
    const uint64_t exponents = type == TP_F32 ? 0x7F800000 * every32
                               : (type == TP_BF16 ? 0x7F80 : 0x7C00) * every16;
    const uint64_t one = type == TP_F32 ? 0x00800000 * every32
                         : (type == TP_BF16 ? 0x0080 : 0x0400) * every16;
    const uint64_t signs = type == TP_F32 ? 0x80000000 * every32 : 0x8000 * every16;
    const uint8_t *at = values, *end = at + count * (tp_dtype_bits(type) / 8);
    uint64_t numbers, any = 0; /* an exponent of all ones carries into the sign */
    for (; end - at >= 8; at += 8) {
        memcpy(&numbers, at, 8);
        any |= (numbers & exponents) + one;
    }
    numbers = 0;
    memcpy(&numbers, at, (size_t)(end - at));
    any |= (numbers & exponents) + one;
    return any & signs;
}

/* Element `from` of values of one type becomes element `to` of values of another. */
static void convert(enum tp_dtype type, const void *values, uint64_t from, enum tp_dtype target,
                    void *out, uint64_t to)
{
    size_t width = tp_dtype_bits(target) / 8;
    uint8_t *at = (uint8_t *)out + to * width;
    if (type == target) {
        memcpy(at, (const uint8_t *)values + from * width, width);
        return;
    }
    float value = tp_load_value(values, type, from);
    uint32_t word = tp_f32_bits(value);
    uint16_t half = tp_half_of(target == TP_F16, value);
    memcpy(at, target == TP_F32 ? (void *)&word : (void *)&half, width);
}

/* What becomes of it is looked at. */
static void store(struct tp_args *args, enum tp_dtype type, const void *values, uint64_t from,
                  enum tp_dtype target, void *out, uint64_t to)
{
    size_t width = tp_dtype_bits(target) / 8;
    convert(type, values, from, target, out, to);
    if (tp_floats_any_nonfinite(target, (uint8_t *)out + to * width, 1))
        args->flags |= TP_SAW_NONFINITE;
}

void tp_floats_encode(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    void *scratch = args->scratch;
    struct tp_plane p = tp_plane_open(op, TP_ROLE_CODES, args, args->out, &scratch);
    uint64_t i = 0;
    if (args->flags & TP_FAILED)
        return;
    tp_plane_fill(&p);
    for (uint64_t e = 0; e < box.e; e++) {
        tp_plane_enter(&p, e);
        for (uint64_t n = 0; n < box.n; n++)
            for (uint64_t k = 0; k < box.k; k++)
                store(args, args->dtype, args->in[0], i++, tp_elements[p.element].dtype, p.data,
                      tp_plane_at(&p, n, k));
    }
}

void tp_floats_repack(const struct tp_op *from, const struct tp_op *to, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    void *scratch = args->scratch;
    struct tp_plane p =
        tp_plane_open(from, TP_ROLE_CODES, args, (void *const *)args->in, &scratch);
    struct tp_plane q = tp_plane_open(to, TP_ROLE_CODES, args, args->out, &scratch);
    if (args->flags & TP_FAILED)
        return;
    tp_plane_fill(&q);
    for (uint64_t e = 0; e < box.e; e++) {
        tp_plane_enter(&p, e);
        tp_plane_enter(&q, e);
        for (uint64_t n = 0; n < box.n && q.data; n++)
            for (uint64_t k = 0; k < box.k; k++)
                store(args, tp_elements[p.element].dtype, p.data, tp_plane_at(&p, n, k),
                      tp_elements[q.element].dtype, q.data, tp_plane_at(&q, n, k));
    }
}

void tp_floats_decode(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    void *scratch = args->scratch;
    struct tp_plane p = tp_plane_open(op, TP_ROLE_CODES, args, (void *const *)args->in, &scratch);
    uint64_t i = 0;
    if (args->flags & TP_FAILED)
        return;
    for (uint64_t e = 0; e < box.e; e++) {
        tp_plane_enter(&p, e);
        for (uint64_t n = 0; n < box.n; n++)
            for (uint64_t k = 0; k < box.k; k++)
                convert(tp_elements[p.element].dtype, p.data, tp_plane_at(&p, n, k), args->dtype,
                        args->out[0], i++);
    }
}
