/* Stored outputs seen through their layouts; see plane.h. Slow and obvious; callers have
 * evaluated the layouts before (tp_op_bytes), so that a failure here is theirs: it is
 * flagged, and nothing is done by halves.
 */
#include "kernels/op/plane.h"

#include "kernels/op/codec.h"
#include "kernels/op/op_at.h"
#include "kernels/op/scalar.h"
#include "kernels/op/traits.h"
#include "kernels/op/word_bits.h"

#include <math.h>

static bool is_power_of_two(uint64_t x) { return x && (x & (x - 1)) == 0; }

/* How many bits of a coordinate need not be told apart, when `per` elements share a
 * stored one and only multiples of `every` are asked for. */
static unsigned table_shift(uint64_t count, uint64_t per, uint64_t every)
{
    uint64_t step = per > every ? per : every;
    if (per >= count)
        return 63;
    return is_power_of_two(per) && is_power_of_two(every) ? (unsigned)__builtin_ctzll(step) : 0;
}

/* Offsets of the first coordinates of a dimension: each size of a mode repeats those before it. */
static void fill_table(const struct tp_layout_dim *dim, uint64_t *table, uint64_t count)
{
    uint64_t filled = 1;
    table[0] = 0;
    for (uint32_t m = 0; m < dim->modes && filled < count; m++) {
        const uint64_t period = filled, left = (count - 1) / period;
        const bool last = m + 1 == dim->modes || dim->size[m] > left;
        const uint64_t end = last ? count : period * dim->size[m];
        for (; filled < end; filled++)
            table[filled] = table[filled - period] + dim->stride[m];
    }
}

/* Offsets of every 2^shift-th element. */
static uint64_t *take_table(void **scratch, const struct tp_layout_dim *dim, uint64_t count,
                            uint64_t per, unsigned shift)
{
    uint64_t *table = *scratch, entries = ((count - 1) >> shift) + 1;
    uint64_t step = shift == 63 ? 0 : (UINT64_C(1) << shift) / per;
    if (step == 1) {
        fill_table(dim, table, entries);
    } else if (shift) {
        for (uint64_t i = 0; i < entries; i++)
            table[i] = tp_layout_dim_at(dim, i * step);
    } else {
        for (uint64_t i = 0, block = 0; i < entries; block++) {
            uint64_t at = tp_layout_dim_at(dim, block);
            for (uint64_t rest = per; rest && i < entries; rest--)
                table[i++] = at;
        }
    }
    *scratch = table + entries;
    return table;
}

struct tp_plane tp_plane_open(const struct tp_op *op, enum tp_role role, struct tp_args *args,
                              void *const data[], void **scratch)
{
    return tp_plane_open_every(op, role, args, 1, data, scratch);
}

struct tp_plane tp_plane_open_every(const struct tp_op *op, enum tp_role role,
                                    struct tp_args *args, uint64_t n_every, void *const data[],
                                    void **scratch)
{
    const struct tp_box3 box = args->box;
    struct tp_plane p = {0};
    struct tp_layout own;
    int i = tp_op_find(op, role);
    if (i < 0 || data[i] == NULL)
        return p;
    p.element = op->out[i].element;
    p.zero_point = (uint8_t)tp_op_zero_point(op);
    p.is_f16 = tp_op_has_f16_scales(op);
    p.is_f32 = tp_op_has_f32_scales(op);
    p.fill = op->out[i].fill;
    p.min = op->out[i].min;
    p.factor = op->out[i].factor;
    p.word_bits = op->out[i].word_bits;
    if (op->out[i].layout != NULL) {
        const struct tp_layout *layout = tp_args_layout(args, op, (uint32_t)i, &own);
        if (!layout) {
            args->flags |= TP_FAILED;
            return p;
        }
        p.bytes = (tp_layout_size(layout) * tp_element_bits(p.element) + 7) / 8;
        p.per_n = op->out[i].per_n ? op->out[i].per_n : box.n;
        p.per_k = op->out[i].per_k ? op->out[i].per_k : box.k;
        p.e = layout->dim[TP_DIM_E];
        p.shift_n = table_shift(box.n, p.per_n, n_every);
        p.shift_k = table_shift(box.k, p.per_k, 1);
        p.at_n = take_table(scratch, &layout->dim[TP_DIM_N], box.n, p.per_n, p.shift_n);
        p.at_k = take_table(scratch, &layout->dim[TP_DIM_K], box.k, p.per_k, p.shift_k);
    }
    for (uint8_t c = 0; c < 16; c++) {
        p.to_stored[c] = tp_elements[p.element].has_table ? op->table[c] : c;
        p.to_code[p.to_stored[c] & 15] = c;
    }
    p.data = data[i];
    return p;
}

void tp_plane_fill(const struct tp_plane *p)
{
    if (p->data != NULL)
        memset(p->data, p->fill, p->bytes);
}

void tp_plane_enter(struct tp_plane *plane, uint64_t e)
{
    if (plane->data != NULL)
        plane->base = tp_layout_dim_at(&plane->e, e);
}

void tp_store_code(const struct tp_plane *p, uint64_t at, uint8_t code)
{
    uint8_t stored = p->to_stored[code & 15];
    if (p->word_bits) {
        bool nibble = tp_element_bits(p->element) == 4;
        tp_bits_store(p->word_bits, p->data, at, nibble ? 4 : 8, nibble ? stored : code);
        return;
    }
    switch (p->element) {
    case TP_ELEM_INT4:
    case TP_ELEM_E2M1:
        if (at & 1)
            p->data[at / 2] = (uint8_t)((p->data[at / 2] & 0x0F) | stored << 4);
        else
            p->data[at / 2] = (uint8_t)((p->data[at / 2] & 0xF0) | stored);
        break;
    case TP_ELEM_INT8:
        p->data[at] = (uint8_t)(code - p->zero_point);
        break;
    default:
        p->data[at] = code;
        break;
    }
}

uint8_t tp_load_code(const struct tp_plane *p, uint64_t at)
{
    if (p->word_bits) {
        bool nibble = tp_element_bits(p->element) == 4;
        uint8_t stored = tp_bits_load(p->word_bits, p->data, at, nibble ? 4 : 8);
        return nibble ? p->to_code[stored] : stored;
    }
    switch (p->element) {
    case TP_ELEM_INT4:
    case TP_ELEM_E2M1:
        return p->to_code[p->data[at / 2] >> (at & 1 ? 4 : 0) & 15];
    case TP_ELEM_INT8:
        return (uint8_t)((p->data[at] + p->zero_point) & (2 * p->zero_point - 1));
    default:
        return p->data[at];
    }
}

static bool is_int(enum tp_codec codec) { return tp_codecs[codec].is_int; }

static float scale_value(const struct tp_plane *p, enum tp_codec codec, uint32_t bits)
{
    struct tp_op op = {.codec = codec,
                       .scale_rule = p->is_f32   ? TP_INT_SCALE_F32
                                     : p->is_f16 ? TP_INT_SCALE_F16
                                                 : TP_INT_SCALE_BF16};
    return tp_codec_scale_value(&op, bits);
}

static bool is_f16(const struct tp_plane *p) { return p->element == TP_ELEM_F16; }

/* Whether the scales of the codec are such numbers, whose bits are stored then. */
static bool is_own(const struct tp_plane *p, enum tp_codec codec)
{
    return is_int(codec) && p->element == (p->is_f16 ? TP_ELEM_F16 : TP_ELEM_BF16);
}

/* The number is rounded before it is multiplied: that is what engines do, and the product is
 * exact then, or infinite. */
static uint16_t times(const struct tp_plane *p, float value)
{
    float number = tp_half_round(is_f16(p), value);
    return tp_half_of(is_f16(p), p->factor ? ldexpf(number, p->factor) : value);
}

bool tp_factor_fits(const struct tp_op_out *out, float value)
{
    if (!out->factor || !isfinite(value))
        return true;
    const bool f16 = out->element == TP_ELEM_F16;
    if (tp_element_bits(out->element) == 16)
        value = tp_half_round(f16, value);
    value = ldexpf(value, out->factor);
    return isfinite(f16 ? tp_half_round(f16, value) : value);
}

/* `bits` in the codec's own form, see tp_codec_encode(). */
void tp_store_scale(const struct tp_plane *p, enum tp_codec codec, uint64_t at, uint32_t bits)
{
    float value = scale_value(p, codec, bits);
    float max = p->min > 0 && value < p->min ? p->min : value;
    uint32_t word = tp_f32_bits(p->factor ? tp_canonical(ldexpf(max, p->factor)) : max);
    uint16_t half;
    switch (p->element) {
    case TP_ELEM_BF16:
    case TP_ELEM_F16:
        half = is_own(p, codec) ? (uint16_t)bits : times(p, value);
        memcpy(p->data + 2 * at, &half, 2);
        break;
    case TP_ELEM_E5M3:
        p->data[at] = tp_e5m3_of((uint8_t)bits, p->scale_shift);
        break;
    case TP_ELEM_F32:
        memcpy(p->data + 4 * at, &word, 4);
        break;
    case TP_ELEM_E8M0:
        p->data[at] = (uint8_t)(codec == TP_CODEC_FP8 ? bits >> 23 : bits);
        break;
    default:
        p->data[at] = (uint8_t)bits;
        break;
    }
}

float tp_load_f32(const struct tp_plane *p, uint64_t at)
{
    float value;
    memcpy(&value, p->data + 4 * at, 4);
    return value;
}

static uint16_t load_u16(const struct tp_plane *p, uint64_t at)
{
    uint16_t half;
    memcpy(&half, p->data + 2 * at, 2);
    return half;
}

static float divided(const struct tp_plane *p, float value)
{
    return p->factor ? ldexpf(value, -p->factor) : value;
}

static bool is_product(const struct tp_plane *zero)
{
    return tp_elements[zero->element].is_float;
}

/* Minus the product of a zero point and its scale, as its type has it. */
static uint16_t product_of(const struct tp_plane *p, int zero, float scale)
{
    return tp_half_of(is_f16(p), -scale * (float)zero);
}

void tp_store_zero(const struct tp_plane *p, uint64_t at, int zero, float scale)
{
    if (!is_product(p)) {
        tp_store_code(p, at, (uint8_t)zero);
        return;
    }
    uint16_t half = product_of(p, zero, scale);
    memcpy(p->data + 2 * at, &half, 2);
}

int tp_load_zero(const struct tp_plane *p, uint64_t at, float scale)
{
    if (!is_product(p))
        return tp_load_code(p, at);
    float stored = tp_half_value(is_f16(p), load_u16(p, at));
    float zero = rintf(-stored / scale), max = (float)(2 * p->zero_point - 1);
    if (!(zero >= 0.0f)) /* below, or no number: 0 / 0 */
        return zero < 0.0f ? 0 : p->zero_point;
    return (int)(zero < max ? zero : max);
}

bool tp_zero_is_whole(const struct tp_plane *p, uint64_t at, float scale)
{
    float nearest = tp_half_value(is_f16(p), product_of(p, tp_load_zero(p, at, scale), scale));
    return !is_product(p) || tp_half_value(is_f16(p), load_u16(p, at)) == nearest;
}

/* The inverse of tp_store_scale(); for integers a float is rounded to their scale's type. */
uint32_t tp_load_scale(const struct tp_plane *p, enum tp_codec codec, uint64_t at)
{
    float value;
    switch (p->element) {
    case TP_ELEM_BF16:
    case TP_ELEM_F16:
        if (is_own(p, codec))
            return load_u16(p, at);
        value = divided(p, tp_half_value(is_f16(p), load_u16(p, at)));
        break;
    case TP_ELEM_F32:
        value = divided(p, tp_load_f32(p, at));
        break;
    case TP_ELEM_E5M3:
        return tp_e5m3_to_e4m3(p->data[at]);
    case TP_ELEM_E8M0:
        value = tp_e8m0_value(p->data[at]);
        break;
    default:
        return p->data[at];
    }
    if (is_int(codec))
        return p->is_f32 ? tp_f32_bits(value) : tp_half_of(p->is_f16, value);
    return codec == TP_CODEC_FP8 ? tp_f32_bits(value) : p->data[at];
}

float tp_load_value(const void *values, enum tp_dtype dtype, uint64_t i)
{
    uint32_t word;
    uint16_t half;
    if (dtype == TP_F32) {
        memcpy(&word, (const uint8_t *)values + 4 * i, 4);
        return tp_bits_f32(word);
    }
    memcpy(&half, (const uint8_t *)values + 2 * i, 2);
    return tp_half_value(dtype == TP_F16, half);
}

