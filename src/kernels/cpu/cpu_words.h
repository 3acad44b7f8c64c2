/* Values to e4m3 or e2m1 codes in integer words: sign, 8 bits of exponent, 7 bits of
 * significand, and what lies below only as far as it decides about rounding.
 *
 * One step takes VBYTES values, as two registers of words.
 * Invariant: the same codes as tp_e4m3_of() and tp_e2m1_of(), for finite values.
 */
#ifndef TP_KERNELS_CPU_WORDS_H
#define TP_KERNELS_CPU_WORDS_H

V vu w_set(uint32_t x) { return v_set(x * 0x10001u); }
V vu b_set(uint32_t x) { return v_set(x * 0x01010101u); }

/* `below` are the bits under the words, `up` the places that round up when half way. `bias`,
 * subtracted with saturation so that zeros stay, brings magnitudes to where codes are read.
 * `halves`: a register was put together from two of 32-bit lanes, which take turns in it. */
struct words {
    vu h[2], below[2], bias[2];
    w_ones up[2];
    bool halves;
};

/* The e4m3 subnormals among words: shift out what is missing, ties to even. */
V vu w_subnormal(vu a, vu below, vu r, vu adjust)
{
    const vu one = w_set(1);
    vu part = v_or(v_or_and(w_set(0x80), a, w_set(0x7F)), w_min(below, one));
    vu c = w_add(w_sub(w_srl(adjust, 7), w_srl(a, 7)), w_set(5)), half, odd;
    c = w_min(c, w_set(15));
    half = w_sub(w_power(w_sub(c, one)), one);
    odd = v_and(w_srl_by(part, c), one);
    part = w_srl_by(w_add(w_add(part, half), odd), c);
    return w_pick(w_add(adjust, w_set(128)), a, part, r);
}

enum {
    E4M3_ODD_BIT = 0x00100010, /* the last bit that a code keeps, of both words of a lane */
    E4M3_BIAS_OF_1 = (120 << 7) - 7, /* 7: half way goes to even */
};

/* Stores the codes of finite values; saturates when told. */
V void b_store_e4m3(uint8_t *dst, const struct words *w, bool saturate)
{
    vu a[2], r[2], codes, signs;
    UNROLL
    for (int i = 0; i < 2; i++) {
        a[i] = v_and(w->h[i], w_set(0x7FFF));
        r[i] = w_srl(w_add_ones(w_subs(a[i], w->bias[i]), w->up[i]), 4);
    }
    codes = b_pack_unsigned(r[0], r[1]);
    signs = b_pack_signed(w->h[0], w->h[1]); /* 0 only for +0 */
    if (__builtin_expect(b_any_below8(codes, signs), 0)) {
        UNROLL
        for (int i = 0; i < 2; i++)
            r[i] = w_subnormal(a[i], w->below[i], r[i], w_add(w->bias[i], w_set(7)));
        codes = b_pack_unsigned(r[0], r[1]);
    }
    if (saturate)
        codes = b_min(codes, b_set(0x7E));
    v_store(dst, b_in_order(v_or_and(codes, signs, b_set(0x80)), w->halves));
}

V vu v_scaled(int how, vu x, vf factor)
{
    vu odd;
    if (!how_divides(how)) {
        x = v_bits(f_mul(v_floats(x), factor));
        if (how == HOW_MUL_BF16)
            x = v_add(x, v_set(0x8000)); /* the low half does not count */
        return how == HOW_MUL_SNAP ? v_and(v_add(x, v_set(0x80)), v_set(0xFFFFFF00u)) : x;
    }
    x = v_bits(f_div(v_floats(x), factor));
    if (how == HOW_DIV)
        return x;
    odd = v_and(v_srl(x, 16), v_set(1));
    return v_and(v_add(v_add(x, v_set(0x7FFF)), odd), v_set(0xFFFF0000u));
}

/* VBYTES values times (or by) as many factors, as words. For bf16 the factors are those of
 * the even and of the odd places of each register. `odd_bit`: the last bit that a code
 * keeps, of both words of a lane. Zeros lose their sign with `unsigned_zero`. */
V void w_scaled(struct words *w, enum tp_dtype dtype, int how, bool unsigned_zero,
                const uint8_t *p, const vf f[4], uint32_t odd_bit)
{
    const unsigned bytes = dtype == TP_F32 ? 4 : 2;
    w->halves = dtype != TP_BF16;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8_t *q = p + 2 * i * VL * bytes;
        vu even, odd;
        if (dtype == TP_BF16) {
            vu x = v_load(q);
            even = v_sll(x, 16);
            odd = v_and(x, v_set(0xFFFF0000u));
        } else {
            even = v_bits(dtype == TP_F32 ? f_load_f32(q) : f_load_f16(q));
            odd = v_bits(dtype == TP_F32 ? f_load_f32(q + 4 * VL) : f_load_f16(q + 2 * VL));
        }
        if (unsigned_zero) {
            even = v_bits(f_add(v_floats(even), f_set(0.0f)));
            odd = v_bits(f_add(v_floats(odd), f_set(0.0f)));
        }
        even = v_scaled(how, even, f[2 * i]);
        odd = v_scaled(how, odd, f[2 * i + 1]);
        w->h[i] = w_high(even, odd);
        if (how == HOW_MUL_BF16) {
            w->below[i] = v_set(0);
            w->up[i] = w_any(w->h[i], v_set(odd_bit));
        } else {
            vu any;
            w->below[i] = w_low(even, odd);
            any = v_or_and(w->below[i], w->h[i], v_set(odd_bit));
            w->up[i] = w_any(any, any);
        }
    }
}

/* Register i of VBYTES bf16 values times a power of two that is in its bias. */
V void w_moved(struct words *w, int i, const uint16_t *p, vu bias, uint32_t odd_bit)
{
    w->h[i] = v_load(p);
    w->below[i] = v_set(0);
    w->up[i] = w_any(w->h[i], v_set(odd_bit));
    w->bias[i] = bias;
    w->halves = false;
}

/* 64 values times (or by) as many factors, see w_scaled(), to e4m3. */
V void e4m3_64(enum tp_dtype dtype, int how, const void *p, uint8_t *dst,
               const vf f[64 / VL], bool saturate)
{
    const unsigned bytes = dtype == TP_F32 ? 4 : 2;
    UNROLL
    for (unsigned i = 0; i < 64; i += VBYTES) {
        struct words w;
        w_scaled(&w, dtype, how, false, (const uint8_t *)p + i * bytes, f + i / VL, E4M3_ODD_BIT);
        w.bias[0] = w.bias[1] = w_set(E4M3_BIAS_OF_1);
        b_store_e4m3(dst + i, &w, saturate);
    }
}

/* 64 bf16 values as two blocks times 2^(127-s), 12 <= s: only exponents move. */
V void e4m3_64_pow2(const void *p, uint8_t *dst, const uint8_t scale[2], bool saturate)
{
    UNROLL
    for (unsigned i = 0; i < 64; i += VBYTES) {
        struct words w;
        UNROLL
        for (unsigned j = 0; j < 2; j++) {
            const unsigned at = i + j * (VBYTES / 2);
            w_moved(&w, (int)j, (const uint16_t *)p + at,
                    w_set(((scale[at / 32] - 7u) << 7) - 7), E4M3_ODD_BIT);
        }
        b_store_e4m3(dst + i, &w, saturate);
    }
}

/* ---- e2m1 ---------------------------------------------------------------
 * Counted in quarters of a binade from 1/4 on, every bound between two codes is a whole
 * number, so that what a quotient or product rounds to is one look at a table. */

enum {
    QUARTER_WORD = 0x3E80, /* bf16 1/4 */
    E2M1_ODD_BIT = 0x00400040, /* of both words: a quarter of a binade is 2^5, a half 2^6 */
    E2M1_BIAS = QUARTER_WORD - 0x1F, /* half way goes to even, */
    E2M1_BIAS_CLEAR = E2M1_BIAS - 1, /* or nothing is half way and all that is above goes up */
};

/* Codes of 0, of more than 1/4 and up to 6/16, ...: bounds 1/4, 3/4, 5/4, 7/4, 5/2, 7/2, 5. */
static const uint8_t e2m1_of_quarters[32] = {
    0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

V void b_store_e2m1(uint8_t *dst, const struct words *w, bool clear)
{
    vu r[2], codes, signs;
    UNROLL
    for (int i = 0; i < 2; i++) {
        r[i] = w_subs(v_and(w->h[i], w_set(0x7FFF)), w->bias[i]);
        r[i] = w_srl(clear ? r[i] : w_add_ones(r[i], w->up[i]), 5);
    }
    codes = b_lookup32(e2m1_of_quarters, b_min(b_pack_unsigned(r[0], r[1]), b_set(31)));
    signs = w_srl(b_pack_signed(w->h[0], w->h[1]), 4);
    b_store_pairs(dst, b_in_order(v_or_and(codes, signs, b_set(8)), w->halves));
}

/* 64 values times (or by) as many factors, see w_scaled(). */
V void e2m1_64(enum tp_dtype dtype, int how, bool unsigned_zero, const void *p, uint8_t *dst,
               const vf f[64 / VL])
{
    const unsigned bytes = dtype == TP_F32 ? 4 : 2;
    const bool clear = how == HOW_MUL_CLEAR;
    UNROLL
    for (unsigned i = 0; i < 64; i += VBYTES) {
        struct words w;
        w_scaled(&w, dtype, how, unsigned_zero, (const uint8_t *)p + i * bytes, f + i / VL,
                 E2M1_ODD_BIT);
        w.bias[0] = w.bias[1] = w_set(clear ? E2M1_BIAS_CLEAR : E2M1_BIAS);
        b_store_e2m1(dst + i / 2, &w, clear);
    }
}

/* 64 bf16 values as two blocks times 2^(127-s), 12 <= s: only exponents move. */
V void e2m1_64_pow2(const void *p, uint8_t *dst, const uint8_t scale[2])
{
    UNROLL
    for (unsigned i = 0; i < 64; i += VBYTES) {
        struct words w;
        UNROLL
        for (unsigned j = 0; j < 2; j++) {
            const unsigned at = i + j * (VBYTES / 2);
            w_moved(&w, (int)j, (const uint16_t *)p + at,
                    w_set(E2M1_BIAS + ((uint32_t)scale[at / 32] << 7) - (127u << 7)),
                    E2M1_ODD_BIT);
        }
        b_store_e2m1(dst + i / 2, &w, false);
    }
}

/* Factors of 64 values in blocks of 16 or 32, in the order of w_scaled(). */
V void e2m1_factors(enum tp_dtype dtype, unsigned size, const float *factor, vf f[64 / VL])
{
    UNROLL
    for (unsigned i = 0; i < 64 / VL; i++)
        f[i] = f_set(factor[i * VL / size]);
    if (dtype == TP_BF16 && size < 2 * VL) /* two blocks to a register */
        UNROLL
        for (unsigned i = 0; i < 64 / VL; i += 2)
            f[i] = f[i + 1] = f_lower_upper(f[i], f[i + 1]);
}

#endif
