/* NEON (aarch64): the vector operations that cpu_*.inc are written in; see
 * vec_avx512.h for what each means. One register is one lane of 128 bits.
 */
#ifndef TP_KERNELS_VEC_NEON_H
#define TP_KERNELS_VEC_NEON_H

#include "kernels/cpu/vec_common.h"

#include <arm_neon.h>

enum { VL = 4, VBYTES = 16, LANES = 1 };
typedef uint32x4_t vu;
typedef float32x4_t vf;

V vu v_set(uint32_t x) { return vdupq_n_u32(x); }
V vu v_load(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
V void v_store(void *p, vu a) { vst1q_u8(p, vreinterpretq_u8_u32(a)); }
V vf v_floats(vu a) { return vreinterpretq_f32_u32(a); }
V vu v_bits(vf a) { return vreinterpretq_u32_f32(a); }
V int32x4_t v_signed(vu a) { return vreinterpretq_s32_u32(a); }
V vu v_and(vu a, vu b) { return vandq_u32(a, b); }
V vu v_or(vu a, vu b) { return vorrq_u32(a, b); }
V vu v_xor(vu a, vu b) { return veorq_u32(a, b); }
V vu v_or_and(vu a, vu b, vu c) { return v_or(a, v_and(b, c)); }
V vu v_add(vu a, vu b) { return vaddq_u32(a, b); }
V vu v_sub(vu a, vu b) { return vsubq_u32(a, b); }
V vu v_max(vu a, vu b) { return vreinterpretq_u32_s32(vmaxq_s32(v_signed(a), v_signed(b))); }
V vu v_min(vu a, vu b) { return vreinterpretq_u32_s32(vminq_s32(v_signed(a), v_signed(b))); }
V vu v_srl(vu a, unsigned n) { return vshlq_u32(a, vdupq_n_s32(-(int)n)); }
V vu v_sll(vu a, unsigned n) { return vshlq_u32(a, vdupq_n_s32((int)n)); }
V vu v_pick(vu a, vu b, vu x, vu y)
{
    return vbslq_u32(vcgtq_s32(v_signed(a), v_signed(b)), x, y);
}
V bool v_any_gt(vu a, vu b) { return vmaxvq_u32(vcgtq_s32(v_signed(a), v_signed(b))) != 0; }
V uint32_t v_hmax(vu a) { return (uint32_t)vmaxvq_s32(v_signed(a)); }

V vf f_lower_upper(vf a, vf b) { return vcombine_f32(vget_low_f32(a), vget_high_f32(b)); }
V vf f_set(float x) { return vdupq_n_f32(x); }
V vf f_mul(vf a, vf b) { return vmulq_f32(a, b); }
V vf f_div(vf a, vf b) { return vdivq_f32(a, b); }
V vf f_add(vf a, vf b) { return vaddq_f32(a, b); }
V vf f_sub(vf a, vf b) { return vsubq_f32(a, b); }
V vf f_min(vf a, vf b) { return vminq_f32(a, b); }
V vf f_max(vf a, vf b) { return vmaxq_f32(a, b); }
V vf f_sqrt(vf a) { return vsqrtq_f32(a); }
V vf f_of_ints(vu a) { return vcvtq_f32_s32(v_signed(a)); }
V vu v_rint(vf a) { return vreinterpretq_u32_s32(vcvtnq_s32_f32(a)); }

V vf f_load_f32(const void *p) { return v_floats(v_load(p)); }
V vf f_load_bf16(const void *p)
{
    uint16x4_t h = vreinterpret_u16_u8(vld1_u8(p));
    return v_floats(vshll_n_u16(h, 16));
}
V vf f_load_f16(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
V vu v_load_u8(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, 4);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
}
V void v_store_u16(uint16_t *p, vu a) { vst1_u16(p, vmovn_u32(a)); }
V void v_store_u8(uint8_t *p, vu a)
{
    uint16x4_t w = vmovn_u32(a);
    uint32_t word = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(w, w))), 0);
    memcpy(p, &word, 4);
}

V uint8x16_t v_bytes(vu a) { return vreinterpretq_u8_u32(a); }
V uint16x8_t v_halves(vu a) { return vreinterpretq_u16_u32(a); }
V vu w_max(vu a, vu b) { return vreinterpretq_u32_u16(vmaxq_u16(v_halves(a), v_halves(b))); }
V uint32_t w_hmax(vu a) { return vmaxvq_u16(v_halves(a)); }

V vu v_of_halves(uint16x8_t a) { return vreinterpretq_u32_u16(a); }
V vu w_add(vu a, vu b) { return v_of_halves(vaddq_u16(v_halves(a), v_halves(b))); }
V vu w_sub(vu a, vu b) { return v_of_halves(vsubq_u16(v_halves(a), v_halves(b))); }
V vu w_subs(vu a, vu b) { return v_of_halves(vqsubq_u16(v_halves(a), v_halves(b))); }
V vu w_min(vu a, vu b) { return v_of_halves(vminq_u16(v_halves(a), v_halves(b))); }
V vu w_shift(vu a, int16x8_t left) { return v_of_halves(vshlq_u16(v_halves(a), left)); }
V vu w_srl(vu a, unsigned n) { return w_shift(a, vdupq_n_s16((int16_t)-(int)n)); }
V vu w_sll(vu a, unsigned n) { return w_shift(a, vdupq_n_s16((int16_t)n)); }
V vu w_power(vu c) { return w_shift(v_set(0x10001u), vreinterpretq_s16_u32(c)); }
V vu w_srl_by(vu a, vu c) { return w_shift(a, vnegq_s16(vreinterpretq_s16_u32(c))); }
V int16x8_t v_words(vu a) { return vreinterpretq_s16_u32(a); }
V vu v_of_words(int16x8_t a) { return vreinterpretq_u32_s16(a); }
/* Lanes to words with saturation, those of a first. */
V vu w_pack_signed(vu a, vu b)
{
    int16x4_t low = vqmovn_s32(vreinterpretq_s32_u32(a));
    return v_of_words(vqmovn_high_s32(low, vreinterpretq_s32_u32(b)));
}
V vu w_abs(vu a) { return v_of_words(vabsq_s16(v_words(a))); }
V vu w_max_signed(vu a, vu b) { return v_of_words(vmaxq_s16(v_words(a), v_words(b))); }
V vu w_mul(vu a, vu b) { return v_of_words(vmulq_s16(v_words(a), v_words(b))); }
V vu w_dot(vu a, vu b)
{
    int32x4_t low = vmull_s16(vget_low_s16(v_words(a)), vget_low_s16(v_words(b)));
    return vreinterpretq_u32_s32(vpaddq_s32(low, vmull_high_s16(v_words(a), v_words(b))));
}
V vu w_dot_more(vu sum, vu a, vu b) { return v_add(sum, w_dot(a, b)); }
V vu w_pick(vu a, vu b, vu x, vu y)
{
    uint16x8_t more = vcgtq_s16(vreinterpretq_s16_u32(a), vreinterpretq_s16_u32(b));
    return v_of_halves(vbslq_u16(more, v_halves(x), v_halves(y)));
}
V vu w_count(vu n, vu a, vu b)
{
    uint16x8_t more = vcgtq_s16(vreinterpretq_s16_u32(a), vreinterpretq_s16_u32(b));
    return v_of_halves(vsubq_u16(v_halves(n), more));
}
typedef uint16x8_t w_ones; /* all bits, so that they are subtracted */
V w_ones w_any(vu a, vu b) { return vtstq_u16(v_halves(a), v_halves(b)); }
V vu w_add_ones(vu a, w_ones ones) { return v_of_halves(vsubq_u16(v_halves(a), ones)); }
V vu w_high(vu even, vu odd) { return v_of_halves(vtrn2q_u16(v_halves(even), v_halves(odd))); }
V vu w_low(vu even, vu odd) { return v_of_halves(vtrn1q_u16(v_halves(even), v_halves(odd))); }
V void v_store_sums(uint32_t sum[4], vu a) { vst1q_u32(sum, a); }
V vu d_pairs(vu a) { return vreinterpretq_u32_u64(vpaddlq_u32(a)); }
V vu d_add(vu a, vu b)
{
    return vreinterpretq_u32_u64(vaddq_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}
V void d_store_sums(uint64_t sum[4], vu a, vu b)
{
    v_store(sum, a);
    v_store(sum + 2, b);
}
V vu w_load_u8(const uint8_t *p) { return v_of_halves(vmovl_u8(vld1_u8(p))); }
V vf f_of_lower_f16(vu a)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(v_halves(a))));
}
V vf f_of_upper_f16(vu a)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(v_halves(a))));
}
V vu w_of_high(vu a, vu b) { return v_of_halves(vuzp2q_u16(v_halves(a), v_halves(b))); }

V vu b_table(const uint8_t table[16]) { return v_load(table); }
V void b_split_lanes(const vu x[16 / VL], vu *low, vu *high)
{
    uint8x16_t a = v_bytes(v_of_halves(vuzp1q_u16(v_halves(x[0]), v_halves(x[1]))));
    uint8x16_t b = v_bytes(v_of_halves(vuzp1q_u16(v_halves(x[2]), v_halves(x[3]))));
    *low = vreinterpretq_u32_u8(vuzp1q_u8(a, b));
    *high = vreinterpretq_u32_u8(vuzp2q_u8(a, b));
}
V vu b_sum_lanes(vu a) { return a; }
V vu b_lookup(vu table, vu index)
{
    return vreinterpretq_u32_u8(vqtbl1q_u8(v_bytes(table), v_bytes(index)));
}
V vu b_unpack_lo(vu a, vu b)
{
    return vreinterpretq_u32_u8(vzip1q_u8(v_bytes(a), v_bytes(b)));
}
V vu b_unpack_hi(vu a, vu b)
{
    return vreinterpretq_u32_u8(vzip2q_u8(v_bytes(a), v_bytes(b)));
}
V vu w_unpack_lo(vu a, vu b)
{
    return vreinterpretq_u32_u16(vzip1q_u16(v_halves(a), v_halves(b)));
}
V vu w_unpack_hi(vu a, vu b)
{
    return vreinterpretq_u32_u16(vzip2q_u16(v_halves(a), v_halves(b)));
}
V vu d_unpack_lo(vu a, vu b)
{
    return vreinterpretq_u32_u64(
        vzip1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}
V vu d_unpack_hi(vu a, vu b)
{
    return vreinterpretq_u32_u64(
        vzip2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}
V vu v_unpack_lo(vu a, vu b) { return vzip1q_u32(a, b); }
V vu v_unpack_hi(vu a, vu b) { return vzip2q_u32(a, b); }
V void v_store_lanes(uint8_t *p, uint64_t stride, vu a)
{
    (void)stride;
    v_store(p, a);
}
V void b_store_turns(uint8_t *p, vu a, vu b)
{
    v_store(p, b_unpack_lo(a, b));
    v_store(p + 16, b_unpack_hi(a, b));
}
V vu v_load_lanes(const uint8_t *p, uint64_t stride)
{
    (void)stride;
    return v_load(p);
}
V vu v_load_each(const uint8_t *p, const uint64_t at[LANES]) { return v_load(p + at[0]); }
V void v_store_each(uint8_t *p, const uint64_t at[LANES], vu a) { v_store(p + at[0], a); }

V void v_transpose_lanes(vu x[LANES]) { (void)x; }
V vu v_of_bytes(uint8x16_t a) { return vreinterpretq_u32_u8(a); }
V vu b_add(vu a, vu b) { return v_of_bytes(vaddq_u8(v_bytes(a), v_bytes(b))); }
V bool b_any_gt(vu a, vu b) { return vmaxvq_u8(vcgtq_u8(v_bytes(a), v_bytes(b))) != 0; }
V vu b_sub(vu a, vu b) { return v_of_bytes(vsubq_u8(v_bytes(a), v_bytes(b))); }
V vu b_count(vu n, vu a, vu b)
{
    uint8x16_t more = vcgtq_s8(vreinterpretq_s8_u32(a), vreinterpretq_s8_u32(b));
    return v_of_bytes(vsubq_u8(v_bytes(n), more));
}
V vu b_min(vu a, vu b) { return v_of_bytes(vminq_u8(v_bytes(a), v_bytes(b))); }
V vu b_pack_unsigned(vu a, vu b)
{
    return v_of_bytes(vcombine_u8(vqmovn_u16(v_halves(a)), vqmovn_u16(v_halves(b))));
}
V vu b_pack_signed(vu a, vu b)
{
    return vreinterpretq_u32_s8(vcombine_s8(vqmovn_s16(vreinterpretq_s16_u32(a)),
                                            vqmovn_s16(vreinterpretq_s16_u32(b))));
}
V bool b_any_below8(vu a, vu b)
{
    uint8x16_t small = vcltq_u8(v_bytes(a), vdupq_n_u8(8));
    return vmaxvq_u8(vandq_u8(small, v_bytes(b))) != 0;
}
V bool b_any_without(vu a, vu mask)
{
    return vminvq_u8(vtstq_u8(v_bytes(a), v_bytes(mask))) == 0;
}
V vu b_lookup32(const uint8_t table[32], vu index)
{
    const uint8x16x2_t t = {{vld1q_u8(table), vld1q_u8(table + 16)}};
    return v_of_bytes(vqtbl2q_u8(t, v_bytes(index)));
}
V vu b_in_order(vu a, bool halves)
{
    static const uint8_t apart[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    return halves ? b_lookup(a, v_load(apart)) : a;
}
V void b_store_pairs(uint8_t *p, vu codes)
{
    uint16x8_t w = v_halves(codes);
    vst1_u8(p, vmovn_u16(vorrq_u16(w, vshrq_n_u16(w, 4))));
}

V vu v_load_nibbles(const uint8_t *p)
{
    uint16_t pair;
    uint32_t bits;
    memcpy(&pair, p, 2);
    bits = pair;
    return vandq_u32(vshlq_u32(vdupq_n_u32(bits), (int32x4_t){0, -4, -8, -12}), v_set(15));
}
struct table16 {
    uint8x16x4_t bytes; /* the 16 entries as 64 bytes */
};
V struct table16 v_table16(const uint32_t entry[16])
{
    const uint8_t *p = (const uint8_t *)entry;
    struct table16 table = {{{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}}};
    return table;
}
V vu v_lookup16(const struct table16 *table, vu index)
{
    /* Byte places of the entry: 4 i, 4 i + 1, ... */
    vu at = vmlaq_n_u32(v_set(0x03020100), index, 0x04040404);
    return vreinterpretq_u32_u8(vqtbl4q_u8(table->bytes, v_bytes(at)));
}

V void v_store_nibbles(uint8_t *p, const vu code[32 / VL])
{
    uint8x8_t half[2];
    for (int i = 0; i < 2; i++) {
        uint16x8_t a = vcombine_u16(vmovn_u32(code[4 * i]), vmovn_u32(code[4 * i + 1]));
        uint16x8_t b = vcombine_u16(vmovn_u32(code[4 * i + 2]), vmovn_u32(code[4 * i + 3]));
        /* Even places with the odd ones behind them. */
        uint16x8_t even = vuzp1q_u16(a, b), odd = vuzp2q_u16(a, b);
        half[i] = vmovn_u16(vorrq_u16(even, vshlq_n_u16(odd, 4)));
    }
    vst1_u8(p, half[0]);
    vst1_u8(p + 8, half[1]);
}

#endif
