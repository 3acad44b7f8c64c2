/* Scales of MXFP4 as those of NVFP4; see convert_scales.h. */
#include "kernels/op/convert_scales.h"

#include "base/num.h"
#include "kernels/op/plane.h"
#include "kernels/op/scalar.h"

enum { PER_K = 16, BIAS = 127, MIN_GLOBAL = -126 };

int tp_convert_scales_min(const struct tp_op *to)
{
    int scale = tp_op_find(to, TP_ROLE_SCALE);
    return scale >= 0 && to->out[scale].element == TP_ELEM_E5M3 ? -6 : -9;
}

bool tp_convert_scales_possible(const struct tp_op *from, const struct tp_op *to)
{
    if (from->codec != TP_CODEC_MXFP4 || to->codec != TP_CODEC_NVFP4 ||
        tp_op_find(from, TP_ROLE_SCALE) < 0)
        return false;
    struct tp_op as = tp_convert_scales_op(from, to);
    return tp_repack_possible(&as, to);
}

/* Two to the power of `exponent`, which is that of a normal number. */
static float power(int exponent) { return tp_bits_f32((uint32_t)(exponent + BIAS) << 23); }

/* Divisors are 2^-g, multipliers 2^g. */
static int sign_of(const struct tp_op *to) { return to->rule == TP_NVFP4_CT ? -1 : 1; }

float tp_convert_scales_global(const struct tp_op *to, struct tp_exponents exponents)
{
    int g = exponents.max - TP_CONVERT_SCALES_MAX;
    if (exponents.min > exponents.max)
        return 1.0f;
    if (g < MIN_GLOBAL)
        g = MIN_GLOBAL;
    if (to->unit_global)
        g = 0;
    if (exponents.max - g > TP_CONVERT_SCALES_MAX || exponents.min - g < tp_convert_scales_min(to))
        return 0.0f;
    return power(sign_of(to) * g);
}

static const struct tp_layout_expr scale_rows = TP_LAYOUT_ROWS(1, PER_K, 0);

struct tp_op tp_convert_scales_op(const struct tp_op *from, const struct tp_op *to)
{
    struct tp_op as = *from;
    struct tp_op_out *scale = &as.out[tp_op_find(from, TP_ROLE_SCALE)];
    as.codec = TP_CODEC_NVFP4;
    as.rule = to->rule;
    as.block_n = 1;
    as.block_k = PER_K;
    *scale = (struct tp_op_out){.role = TP_ROLE_SCALE, .element = TP_ELEM_E4M3, .per_n = 1,
                                .per_k = PER_K, .place = TP_PLACE_ROW,
                                .layout = &scale_rows};
    return as;
}

uint64_t tp_convert_scales_bytes(struct tp_box3 box)
{
    return box.e * box.n * tp_ceil_div(box.k, PER_K);
}

/* The e4m3 byte of each e8m0 byte. */
static void make_map(const struct tp_op *to, float global, uint8_t map[256])
{
    int g = sign_of(to) * ((int)(tp_f32_bits(global) >> 23) - BIAS),
        min = tp_convert_scales_min(to);
    for (int b = 0; b < TP_E8M0_NAN; b++) {
        int exponent = b - BIAS - g;
        exponent = exponent < min ? min : exponent;
        exponent = exponent > TP_CONVERT_SCALES_MAX ? TP_CONVERT_SCALES_MAX : exponent;
        map[b] = tp_e4m3_of(power(exponent));
    }
    map[TP_E8M0_NAN] = TP_E4M3_NAN;
}

void tp_convert_scales(const struct tp_op *from, const struct tp_op *to, struct tp_args *args,
                       uint8_t *scales)
{
    const struct tp_box3 box = args->box;
    void *scratch = args->scratch;
    struct tp_plane p = tp_plane_open(from, TP_ROLE_SCALE, args, (void *const *)args->in, &scratch);
    uint8_t map[256];
    if (args->flags & TP_FAILED)
        return;
    make_map(to, args->global, map);
    for (uint64_t e = 0; e < box.e; e++) {
        tp_plane_enter(&p, e);
        for (uint64_t n = 0; n < box.n; n++)
            for (uint64_t k = 0; k < box.k; k += PER_K)
                *scales++ = map[p.data[tp_plane_at(&p, n, k)]];
    }
}
