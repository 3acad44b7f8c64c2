/* e4m3 codes column-major to values. */
#ifndef TP_KERNELS_CPU_DECODE_COLUMNS_H
#define TP_KERNELS_CPU_DECODE_COLUMNS_H

#include "kernels/cpu/cpu_decode_run.h"
#include "kernels/op/plane.h"

/* e4m3 codes column-major, scales for 32 rows of one column: tiles of up to 64 rows x
 * 64 columns, whose codes are transposed first. */
enum { DECODE_TILE = 64 };
struct decode_tile {
    uint64_t n, k, rows, columns;
    float scale[2][DECODE_TILE];
    bool usual; /* scales: at most DECODE_MOST */
    uint8_t columnwise[16 * DECODE_TILE]; /* 16 columns */
    uint8_t codes[DECODE_TILE * DECODE_TILE];
};

static void decode_transpose(struct decode_tile *t, const uint8_t *codes, uint64_t n_stride)
{
    for (uint64_t c = 0; c < t->columns; c += 16) {
        uint64_t count = tp_min_u64(16, t->columns - c);
        for (uint64_t i = 0; i < count; i++) {
            const uint8_t *column = codes + (c + i) * n_stride;
            v_prefetch(column + DECODE_TILE * n_stride);
            memcpy(t->columnwise + i * DECODE_TILE, column, 32);
            if (t->rows > 32)
                memcpy(t->columnwise + i * DECODE_TILE + 32, column + 32, 32);
        }
        transpose16(t->columnwise, DECODE_TILE, t->codes + c, DECODE_TILE);
    }
}

static void decode_tile_scales(struct decode_tile *t, const struct tp_plane *plane)
{
    uint8_t max = 0;
    for (uint64_t b = 0; b < t->rows / 32; b++)
        for (uint64_t c = 0; c < t->columns; c++) {
            uint8_t s = plane->data[tp_plane_at(plane, t->n + 32 * b, t->k + c)];
            t->scale[b][c] = tp_e8m0_value(s);
            max = s > max ? s : max;
        }
    t->usual = max <= DECODE_MOST >> 23;
}

V void decode_tile_rows(enum tp_dtype dtype, const struct decode_tile *t, void *out,
                        uint64_t first, uint64_t k)
{
    for (uint64_t r = 0; r < t->rows; r++) {
        const uint8_t *codes = t->codes + r * DECODE_TILE;
        const float *scale = t->scale[r / 32];
        uint64_t i = 0, at = first + r * k;
        /* Codes were stored 16 at a time; a longer load of them would have to wait. */
        if (dtype == TP_BF16 && t->usual && VBYTES / 2 <= 16)
            for (; i + VBYTES / 2 <= t->columns; i += VBYTES / 2)
                bf16_of_e4m3(HOW_USUAL, codes + i, (uint16_t *)out + at + i,
                             f_mul(f_load_f32(scale + i), f_set(256.0f)),
                             f_mul(f_load_f32(scale + i + VL), f_set(256.0f)));
        for (; i + VL <= t->columns; i += VL)
            store_values(dtype, out, at + i,
                         v_canonical(f_mul(f_of_e4m3(v_load_u8(codes + i)),
                                           f_load_f32(scale + i))));
        for (; i < t->columns; i++)
            store_one(dtype, out, at + i, tp_e4m3_value(codes[i]) * scale[i]);
    }
}

V void decode_columns(const struct tp_op *op, struct tp_args *args, enum tp_dtype dtype)
{
    const struct tp_box3 box = args->box;
    const uint8_t *codes = args->in[tp_op_find(op, TP_ROLE_CODES)];
    void *scratch = args->scratch;
    struct tp_plane plane =
        tp_plane_open(op, TP_ROLE_SCALE, args, (void *const *)args->in, &scratch);
    struct decode_tile t;
    if (args->flags & TP_FAILED)
        return;
    if (box.n % 32 != 0) {
        tp_decode_ref(op, args);
        return;
    }
    memset(&t, 0, sizeof t);
    for (uint64_t e = 0; e < box.e; e++) {
        tp_plane_enter(&plane, e);
        for (t.n = 0; t.n < box.n; t.n += DECODE_TILE)
            for (t.k = 0; t.k < box.k; t.k += DECODE_TILE) {
                t.rows = tp_min_u64(DECODE_TILE, box.n - t.n);
                t.columns = tp_min_u64(DECODE_TILE, box.k - t.k);
                decode_tile_scales(&t, &plane);
                decode_transpose(&t, codes + (e * box.k + t.k) * box.n + t.n, box.n);
                decode_tile_rows(dtype, &t, args->out[0], (e * box.n + t.n) * box.k + t.k,
                                 box.k);
            }
    }
}

#endif
