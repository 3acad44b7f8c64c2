/* Runs of codes to values: codes of eight bits, and of four by tables. See cpu_decode.inc. */
#ifndef TP_KERNELS_CPU_DECODE_RUN_H
#define TP_KERNELS_CPU_DECODE_RUN_H

#include "kernels/cpu/cpu_run.h"

/* The high halves of floats that are no NaN, rounded to nearest even; in bits 16 to 31. */
V vu v_bf16_high(vf x)
{
    vu u = v_bits(x), odd = v_and(v_srl(u, 16), v_set(1));
    return v_add(v_add(u, v_set(0x7FFF)), odd);
}

/* VL values to place i of the output. */
V void store_values(enum tp_dtype dtype, void *out, uint64_t i, vu x)
{
    if (dtype == TP_F32)
        v_store((float *)out + i, x);
    else
        v_store_u16((uint16_t *)out + i, v_srl(v_bf16_high(v_floats(x)), 16));
}

/* The values of even and of odd places, as bits of floats, to bf16. */
V void store_turns(uint16_t *out, vu even, vu odd)
{
    v_store(out, w_high(v_bf16_high(v_floats(even)), v_bf16_high(v_floats(odd))));
}

static void store_one(enum tp_dtype dtype, void *out, uint64_t i, float x)
{
    if (dtype == TP_F32)
        ((float *)out)[i] = tp_canonical(x);
    else
        ((uint16_t *)out)[i] = tp_f32_to_bf16(x);
}

/* What the scales of a run are, at the most: powers of two far from both ends, so that nothing is
 * rounded; finite ones, so that no value is NaN; any. HOW_ZERO and HOW_SUM: any, and a value is
 * (code - zero) * scale, or that and the sum. */
enum decode_how { HOW_EXACT, HOW_USUAL, HOW_ANY, HOW_ZERO, HOW_SUM };

/* Bits of the scales that are in the middle: 256 times more or less is usual too. */
#define DECODE_LEAST (27u << 23)
#define DECODE_MOST (227u << 23)

/* VBYTES / 2 codes; s0 and s1 are 256 times their scales, which are in the middle. As bits of an
 * f16, a code without its sign stands for a 256th of its value, subnormals too: only the
 * exponents' biases differ. */
V void bf16_of_e4m3(enum decode_how how, const uint8_t *codes, uint16_t *out, vf s0, vf s1)
{
    vu w = w_load_u8(codes), number = v_and(w, w_set(0x7F)), x;
    vu half = v_or_and(w_sll(number, 7), w_sll(w, 8), w_set(0x8000));
    vf a = f_mul(f_of_lower_f16(half), s0), b = f_mul(f_of_upper_f16(half), s1);
    x = how == HOW_EXACT ? w_of_high(v_bits(a), v_bits(b))
                         : w_of_high(v_bf16_high(a), v_bf16_high(b));
    v_store(out, w_pick(number, w_set(0x7E), w_set(TP_BF16_NAN), x));
}

/* What is left of a run is less than a register. */
NOINLINE void e4m3_rest(enum tp_dtype dtype, const uint8_t *codes, uint64_t count, float scale,
                        void *out, uint64_t first)
{
    for (uint64_t i = 0; i < count; i++)
        store_one(dtype, out, first + i, tp_e4m3_value(codes[i]) * scale);
}

/* A run of e4m3 codes with one scale to place `first`; in the middle, where it is usual. */
V void decode_run(enum tp_dtype dtype, enum decode_how how, const uint8_t *codes, uint64_t count,
                  float scale, void *out, uint64_t first)
{
    vf s = f_set(scale), more = f_set(256.0f * scale);
    uint64_t i = 0;
    if (dtype == TP_BF16 && how <= HOW_USUAL)
        for (; i + VBYTES / 2 <= count; i += VBYTES / 2)
            bf16_of_e4m3(how, codes + i, (uint16_t *)out + first + i, more, more);
    for (; i + VL <= count; i += VL)
        store_values(dtype, out, first + i,
                     v_canonical(f_mul(f_of_e4m3(v_load_u8(codes + i)), s)));
    if (i < count)
        e4m3_rest(dtype, codes + i, count - i, scale, out, first + i);
}

/* ---- four-bit codes ----------------------------------------------------- */

/* What a run of codes shares. */
struct decode_group {
    float scale, zero, sum;
};
struct group_lanes {
    vf scale, zero, sum;
};

V struct group_lanes group_lanes(const struct decode_group *g)
{
    return (struct group_lanes){f_set(g->scale), f_set(g->zero), f_set(g->sum)};
}

V vu group_values(const struct group_lanes *g, enum decode_how how, vf x)
{
    x = f_mul(how >= HOW_ZERO ? f_sub(x, g->zero) : x, g->scale);
    x = how == HOW_SUM ? f_add(x, g->sum) : x;
    return how <= HOW_USUAL ? v_bits(x) : v_canonical(x);
}

static float group_value(const struct decode_group *g, enum decode_how how, float x)
{
    x = (how >= HOW_ZERO ? x - g->zero : x) * g->scale;
    return how == HOW_SUM ? x + g->sum : x;
}

/* The 16 values that codes may have with one scale, as bits; bf16 ones in the high
 * half, where store_values() finds them. */
V void value_table(enum tp_dtype dtype, const float value[16], const struct decode_group *g,
                   enum decode_how how, uint32_t table[16])
{
    const struct group_lanes lanes = group_lanes(g);
    for (unsigned i = 0; i < 16; i += VL) {
        vu x = group_values(&lanes, how, f_load_f32(value + i));
        v_store(table + i, dtype == TP_F32 ? x : round_bf16(x));
    }
}

/* The same as tables of the low and of the high bytes of bf16 values. */
V void bf16_tables(const float value[16], const struct decode_group *g, enum decode_how how,
                   vu tables[2])
{
    const struct group_lanes lanes = group_lanes(g);
    vu x[16 / VL];
    UNROLL
    for (unsigned i = 0; i < 16 / VL; i++)
        x[i] = v_srl(round_bf16(group_values(&lanes, how, f_load_f32(value + i * VL))), 16);
    b_split_lanes(x, &tables[0], &tables[1]);
}

/* VBYTES nibbles through tables of the low and of the high bytes of bf16 values; each lane has
 * its own. */
V void bf16_of_tables(const uint8_t *nibbles, vu low, vu high, uint16_t *out)
{
    vu w = w_load_u8(nibbles), code = v_and(v_or(w, w_sll(w, 4)), b_set(0x0F));
    b_store_turns((uint8_t *)out, b_lookup(low, code), b_lookup(high, code));
}

/* As many nibbles of a run as make whole registers of bytes, through a table. Returns how
 * many. */
V uint64_t bf16_of_nibbles(const uint8_t *nibbles, uint64_t count, const uint32_t entry[16],
                           uint16_t *out)
{
    vu x[16 / VL], low, high;
    uint64_t i = 0;
    for (unsigned j = 0; j < 16 / VL; j++)
        x[j] = v_srl(v_load(entry + j * VL), 16);
    b_split_lanes(x, &low, &high);
    for (; i + VBYTES <= count; i += VBYTES)
        bf16_of_tables(nibbles + i / 2, low, high, out + i);
    return i;
}

NOINLINE void table_rest(enum tp_dtype dtype, const uint8_t *nibbles, uint64_t count,
                         const uint32_t entry[16], void *out, uint64_t first)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t x = entry[nibbles[i / 2] >> i % 2 * 4 & 15];
        if (dtype == TP_F32)
            ((uint32_t *)out)[first + i] = x;
        else
            ((uint16_t *)out)[first + i] = (uint16_t)(x >> 16);
    }
}

/* A run of nibbles through a table. */
V void decode_nibbles(enum tp_dtype dtype, const uint8_t *nibbles, uint64_t count,
                      const uint32_t entry[16], void *out, uint64_t first)
{
    struct table16 table = v_table16(entry);
    uint64_t i = 0;
    if (dtype == TP_BF16 && count >= VBYTES)
        i = bf16_of_nibbles(nibbles, count, entry, (uint16_t *)out + first);
    for (; i + VL <= count; i += VL) {
        vu x = v_lookup16(&table, v_load_nibbles(nibbles + i / 2));
        if (dtype == TP_F32)
            v_store((float *)out + first + i, x);
        else
            v_store_u16((uint16_t *)out + first + i, v_srl(x, 16));
    }
    if (i < count)
        table_rest(dtype, nibbles + i / 2, count - i, entry, out, first + i);
}

/* 2 VL nibbles to bf16; a lane has two neighbours. */
V void bf16_of_turns(const struct table16 *table, const uint8_t *nibbles,
                     const struct group_lanes *g, enum decode_how how, uint16_t *out)
{
    const vu x = v_load_u8(nibbles);
    store_turns(out, group_values(g, how, v_floats(v_lookup16(table, v_and(x, v_set(15))))),
                group_values(g, how, v_floats(v_lookup16(table, v_srl(x, 4)))));
}

NOINLINE void nibbles_rest(enum tp_dtype dtype, const uint8_t *nibbles, uint64_t count,
                           const float value[16], const struct decode_group *g,
                           enum decode_how how, void *out, uint64_t first)
{
    for (uint64_t i = 0; i < count; i++)
        store_one(dtype, out, first + i,
                  group_value(g, how, value[nibbles[i / 2] >> i % 2 * 4 & 15]));
}

/* A short run of nibbles by the values of their codes. */
V void nibbles_short(enum tp_dtype dtype, const uint8_t *nibbles, uint64_t count,
                     const float value[16], const struct decode_group *g, enum decode_how how,
                     void *out, uint64_t first)
{
    const struct table16 table = v_table16((const uint32_t *)value);
    const struct group_lanes lanes = group_lanes(g);
    uint64_t i = 0;
    for (; dtype == TP_BF16 && i + 2 * VL <= count; i += 2 * VL)
        bf16_of_turns(&table, nibbles + i / 2, &lanes, how, (uint16_t *)out + first + i);
    for (; i + VL <= count; i += VL) {
        vf x = v_floats(v_lookup16(&table, v_load_nibbles(nibbles + i / 2)));
        store_values(dtype, out, first + i, group_values(&lanes, how, x));
    }
    if (i < count)
        nibbles_rest(dtype, nibbles + i / 2, count - i, value, g, how, out, first + i);
}

/* ---- e2m1 --------------------------------------------------------------- */

/* The words to which e2m1 codes 0 to 7 times a scale are rounded differ in their exponents alone
 * from those of once the scale, or of 1.5 times: a lane's table is made of these two. */
static const uint8_t e2m1_once_or_more[16] = {0, 1, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
static const uint16_t e2m1_kept[8] = {0x8000, 0xFFFF, 0xFFFF, 0xFFFF,
                                      0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF};
static const uint16_t e2m1_exponents[8] = {0, 0xFF80, 0, 0, 0x80, 0x80, 0x100, 0x100};
static const uint8_t e2m1_low[16] = {0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14};
static const uint8_t e2m1_high[16] = {1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15};
static const uint8_t e2m1_signs[16] = {[8] = 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};

/* Once and 1.5 times as many scales in the middle, a pair of words each; writes whole registers. */
V void e2m1_pairs(const float *scale, uint64_t count, uint32_t *pairs)
{
    for (uint64_t i = 0; i < count; i += VL) {
        const vf s = f_load_f32(scale + i);
        v_store(pairs + i, w_high(v_bf16_high(s), v_bf16_high(f_mul(s, f_set(1.5f)))));
    }
}

/* `count` codes, a multiple of VBYTES, in groups of 16 or 32, whose pairs are there with three
 * more. */
V void bf16_of_e2m1(const uint8_t *nibbles, const uint32_t *pairs, unsigned per, uint64_t count,
                    uint16_t *out)
{
    const vu kept = b_table((const uint8_t *)e2m1_kept), signs = b_table(e2m1_signs);
    const vu exponents = b_table((const uint8_t *)e2m1_exponents);
    const vu lows = b_table(e2m1_low), highs = b_table(e2m1_high);
    uint32_t first[VBYTES / 4];
    for (unsigned j = 0; j < VBYTES / 4; j++) /* by lane, the bytes before its group's pair */
        first[j] = 0x04040404u * (4 * j / per);
    const vu pair = v_add(b_table(e2m1_once_or_more), v_load(first));
    for (uint64_t i = 0; i < count; i += VBYTES) {
        vu table = b_lookup(b_table((const uint8_t *)(pairs + i / per)), pair);
        table = w_add(v_and(table, kept), exponents);
        bf16_of_tables(nibbles + i / 2, b_lookup(table, lows),
                       v_xor(b_lookup(table, highs), signs), out + i);
    }
}

NOINLINE void ints_rest(enum tp_dtype dtype, const uint8_t *bytes, uint64_t count, unsigned add,
                        unsigned middle, const struct decode_group *g, enum decode_how how,
                        void *out, uint64_t first)
{
    for (uint64_t i = 0; i < count; i++)
        store_one(dtype, out, first + i,
                  group_value(g, how, (float)((int)((bytes[i] + add) & (2 * middle - 1)) -
                                              (int)middle)));
}

/* What bytes that are integers mean: byte + add, of the bits below twice the middle, less that. */
struct decode_ints {
    unsigned add, middle;
};

/* VBYTES / 2 of them to bf16. */
V void bf16_of_ints(const uint8_t *bytes, const struct decode_ints *ints,
                    const struct group_lanes *lanes, enum decode_how how, uint16_t *out)
{
    const vf middle = f_set((float)ints->middle);
    vu x = v_and(w_add(w_load_u8(bytes), w_set(ints->add)), w_set(2 * ints->middle - 1));
    store_turns(out, group_values(lanes, how, f_sub(f_of_ints(v_and(x, v_set(0xFFFF))), middle)),
                group_values(lanes, how, f_sub(f_of_ints(v_srl(x, 16)), middle)));
}

/* A run of bytes that are integers. */
V void decode_ints(enum tp_dtype dtype, const uint8_t *bytes, uint64_t count,
                   const struct decode_ints *ints, const struct decode_group *g,
                   enum decode_how how, void *out, uint64_t first)
{
    const struct group_lanes lanes = group_lanes(g);
    uint64_t i = 0;
    for (; dtype == TP_BF16 && i + VBYTES / 2 <= count; i += VBYTES / 2)
        bf16_of_ints(bytes + i, ints, &lanes, how, (uint16_t *)out + first + i);
    for (; i + VL <= count; i += VL) {
        vu code = v_and(v_add(v_load_u8(bytes + i), v_set(ints->add)), v_set(2 * ints->middle - 1));
        store_values(dtype, out, first + i,
                     group_values(&lanes, how, f_of_ints(v_sub(code, v_set(ints->middle)))));
    }
    if (i < count)
        ints_rest(dtype, bytes + i, count - i, ints->add, ints->middle, g, how, out, first + i);
}

#endif
