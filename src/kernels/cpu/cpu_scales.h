/* Scales and zero points of a repack: numbers of another type are made of those of the source in
 * the order in which they are stored, then tiles are moved (cpu_tiles.h).
 *
 * Invariant: bytes equal tp_repack_ref.
 */
#ifndef TP_KERNELS_CPU_SCALES_H
#define TP_KERNELS_CPU_SCALES_H

#include "kernels/cpu/cpu_tiles.h"

#include <stdlib.h>

/* One dimension of stored elements that stand for `from_per` elements of W each, as counted by
 * those that stand for `to_per`. False: the counts do not divide each other. */
static bool scales_dim(struct tp_layout_dim *dim, uint64_t from_per, uint64_t to_per,
                       uint64_t extent)
{
    uint64_t ratio = to_per / from_per;
    if (from_per >= extent) {
        *dim = (struct tp_layout_dim){1, {tp_ceil_div(extent, to_per)}, {0}};
        return true;
    }
    if (from_per > to_per) {
        if (from_per % to_per != 0 || dim->modes == TP_LAYOUT_MODES)
            return false;
        for (uint32_t m = dim->modes++; m > 0; m--) {
            dim->size[m] = dim->size[m - 1];
            dim->stride[m] = dim->stride[m - 1];
        }
        dim->size[0] = from_per / to_per;
        dim->stride[0] = 0;
        return true;
    }
    if (to_per % from_per != 0)
        return false;
    for (uint32_t m = 0; m < dim->modes && ratio > 1; m++) {
        const uint64_t part = m + 1 == dim->modes || dim->size[m] % ratio == 0 ? ratio
                                                                             : dim->size[m];
        if (ratio % part != 0)
            return false;
        dim->size[m] = tp_ceil_div(dim->size[m], part);
        dim->stride[m] *= part;
        ratio /= part;
    }
    return true;
}

/* The same bits mean the same. */
static bool same_scales(const struct tp_plane *from, const struct tp_plane *to, bool ints)
{
    if (from->element != to->element || from->element == TP_ELEM_E5M3)
        return false;
    if (ints)
        return to->element == (to->is_f16 ? TP_ELEM_F16 : TP_ELEM_BF16);
    return tp_element_bits(to->element) == 8 ||
           (to->element == TP_ELEM_F32 && from->factor == 0 && to->factor == 0 &&
            !(to->min > 0));
}

/* Whole vectors of numbers as bf16, each rounded as tp_store_scale() does; returns how many. */
static uint64_t scales_bf16(const struct tp_plane *from, const struct tp_plane *to, bool ints,
                            uint64_t count, uint16_t *out)
{
    const enum tp_dtype dtype = tp_elements[from->element].dtype;
    const vf back = f_set(ldexpf(1.0f, -from->factor)), on = f_set(ldexpf(1.0f, to->factor));
    uint64_t i = 0;
    for (; i + VL <= count; i += VL) {
        vu x = round_bf16(v_canonical(f_mul(load_values(dtype, from->data, i), back)));
        if (to->factor != 0 && !ints)
            x = round_bf16(v_canonical(f_mul(v_floats(x), on)));
        v_store_u16(out + i, v_srl(x, 16));
    }
    return i;
}

/* What tp_store_scale() makes of each byte. */
static void scales_of_bytes(const struct tp_plane *from, const struct tp_plane *to,
                            enum tp_codec codec, uint64_t count, uint8_t *out)
{
    const unsigned bytes = tp_element_bits(to->element) / 8;
    const uint8_t *in = from->data;
    uint32_t table[256] = {0};
    for (unsigned i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;
        struct tp_plane p = *from, q = *to;
        p.data = &byte;
        q.data = (uint8_t *)&table[i];
        tp_store_scale(&q, codec, 0, tp_load_scale(&p, codec, 0));
    }
    if (bytes == 1) {
        UNROLL
        for (uint64_t i = 0; i < count; i++)
            out[i] = (uint8_t)table[in[i]];
    }
    for (uint64_t i = 0; i < count && bytes > 1; i++)
        memcpy(out + bytes * i, &table[in[i]], bytes == 2 ? 2 : 4);
}

/* `count` stored scales as the target stores them. */
static void scales_convert(const struct tp_plane *from, const struct tp_plane *to,
                           enum tp_codec codec, uint64_t count, uint8_t *out)
{
    const bool ints = tp_codecs[codec].is_int;
    struct tp_plane made = *to;
    uint64_t i = 0;
    if (tp_element_bits(from->element) == 8) {
        scales_of_bytes(from, to, codec, count, out);
        return;
    }
    if (to->element == TP_ELEM_BF16 && !to->is_f16 && abs(from->factor) < 127 &&
        abs(to->factor) < 127)
        i = scales_bf16(from, to, ints, count, (uint16_t *)out);
    made.data = out;
    for (; i < count; i++)
        tp_store_scale(&made, codec, i, tp_load_scale(from, codec, i));
}

/* From plane to plane: tiles, whose source is where the scales are, or in scratch once they were
 * converted. */
struct scales {
    struct tp_plane from, to;
    struct tiles tiles;
    struct tp_box3 count; /* elements that the target stores */
};

/* The layouts of an output on both sides, as the target counts. False: they do not divide. */
static bool scales_open(struct scales *s, const struct tp_layout *from,
                        const struct tp_layout *to, struct tp_box3 box)
{
    s->count = (struct tp_box3){box.e, tp_ceil_div(box.n, s->to.per_n),
                                tp_ceil_div(box.k, s->to.per_k)};
    s->tiles.from = *from;
    s->tiles.to = *to;
    if (!scales_dim(&s->tiles.from.dim[TP_DIM_N], s->from.per_n, s->to.per_n, box.n) ||
        !scales_dim(&s->tiles.from.dim[TP_DIM_K], s->from.per_k, s->to.per_k, box.k))
        return false;
    tiles_open(&s->tiles, tp_element_bits(s->to.element));
    s->tiles.in = s->from.data;
    s->tiles.out = s->to.data;
    return true;
}

static void scales_fill(const struct scales *s)
{
    const uint64_t bits = s->count.e * s->count.n * s->count.k * tp_element_bits(s->to.element);
    if (8 * s->to.bytes != bits)
        tp_plane_fill(&s->to);
}

static void scales_move(struct scales *s)
{
    scales_fill(s);
    for (uint64_t e = 0; e < s->count.e; e++) {
        tiles_enter(&s->tiles, e);
        tiles_move(&s->tiles, 0, s->count.n, 0, s->count.k);
    }
}

/* Makes the source of the tiles scales of the target. False: they are more than there is room
 * for. */
static bool scales_source(struct scales *s, enum tp_codec codec, void *scratch, uint64_t capacity)
{
    const uint64_t count = 8 * s->from.bytes / tp_element_bits(s->from.element);
    uint8_t *made = (uint8_t *)(((uintptr_t)scratch + 63) / 64 * 64);
    if (same_scales(&s->from, &s->to, tp_codecs[codec].is_int))
        return true;
    if (count * tp_element_bits(s->to.element) > 8 * capacity)
        return false;
    scales_convert(&s->from, &s->to, codec, count, made);
    s->tiles.in = made;
    return true;
}

/* Nibbles that are counted from another number, or are stored as others. */
static void zeros_map(struct scales *s, unsigned from_add, unsigned to_add)
{
    s->tiles.mapped = true;
    for (uint8_t i = 0; i < 16; i++)
        s->tiles.map[i] = s->to.to_stored[(s->from.to_code[i] + from_add - to_add) & 15];
}

#endif
