/* The arguments of the kernels for every layout: tables of bits for the kernels' tiles, and how
 * many blocks of threads a device takes. Host code alone. See cuda_place.cuh.
 */
#include "kernels/cuda/cuda_place.cuh"

extern "C" {
#include "kernels/op/place_bits.h"
}

static bool is_power_of_two(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

static unsigned log2_of(uint64_t x)
{
    unsigned bits = 0;
    while (x >> bits > 1)
        bits++;
    return bits;
}

/* Strides in items of `per` elements. */
static bool dim_of(const struct tp_layout_dim &from, uint64_t per, place_dim *d)
{
    if (from.modes > PLACE_MODES)
        return false;
    d->modes = from.modes;
    for (uint32_t m = 0; m < from.modes; m++) {
        if (from.size[m] > 0xFFFFFFFFu || from.stride[m] % per != 0)
            return false;
        d->size[m] = (uint32_t)from.size[m];
        d->stride[m] = from.stride[m] / per;
    }
    return true;
}

/* Bit b of an item's number: of the thread's, or of the turn's. */
static bool add_bit(const struct tp_tile_bit &bit, uint32_t b, uint64_t per, place_plane *p)
{
    const uint64_t at = bit.at / per;
    const uint32_t rc = (uint32_t)bit.row << 16 | bit.column;
    if (bit.at % per != 0 || at >> 28 != 0) /* so that the sum of all fits 32 bits */
        return false;
    if (b < PLACE_THREAD_BITS) {
        p->low_at[b] = (uint32_t)at;
        p->low_rc[b] = rc;
        return true;
    }
    for (uint32_t turn = 0; turn < PLACE_TURNS; turn++)
        if (turn >> (b - PLACE_THREAD_BITS) & 1) {
            p->high_at[turn] += (uint32_t)at;
            p->high_rc[turn] += rc;
        }
    return true;
}

/* Tables for tiles of so many stored elements, `per` to an item. */
static bool plane_of(const struct any_plane &from, unsigned n, unsigned k, uint64_t per,
                     struct tp_tile_bits *bits, place_plane *p)
{
    const struct tp_layout_dim &e = from.layout.dim[TP_DIM_E];
    const unsigned inner = log2_of(per);
    memset(p, 0, sizeof *p);
    if (e.modes != 1 || e.stride[0] % per != 0 || !tp_tile_bits_of(&from.layout, n, k, bits) ||
        bits->bits < inner || bits->bits - inner > PLACE_THREAD_BITS + log2_of(PLACE_TURNS))
        return false;
    p->data = from.data;
    p->width = tp_element_bits((enum tp_element)from.element);
    p->count = 1u << (bits->bits - inner);
    p->log2_rows = n;
    p->log2_columns = k;
    p->expert = e.stride[0] / per;
    for (uint32_t b = inner; b < bits->bits; b++)
        if (!add_bit(bits->bit[b], b - inner, per, p))
            return false;
    return dim_of(bits->rows, per, &p->n) && dim_of(bits->columns, per, &p->k);
}

/* The codes of an item are neighbours in a row. */
static bool is_run(const struct tp_tile_bits &bits, unsigned inner)
{
    bool run = true;
    for (uint32_t b = 0; b < inner; b++)
        run = run && bits.bit[b].at == (uint64_t)1 << b && bits.bit[b].column == 1u << b;
    return run;
}

/* The codes of a word, which hold no code beyond the weight. */
static bool word_of(const struct tp_tile_bits &bits, unsigned inner, struct tp_box3 box,
                    place_plane *p)
{
    for (uint32_t b = 0; b < inner; b++) {
        const struct tp_tile_bit &bit = bits.bit[b];
        if (bit.at != (uint64_t)1 << b || box.n % (2 * bit.row + (bit.row == 0)) != 0 ||
            box.k % (2 * bit.column + (bit.column == 0)) != 0)
            return false;
        for (uint32_t i = 0; i < 8; i++)
            if (i >> b & 1)
                p->in[i] += bit.row * PLACE_PITCH + bit.column;
    }
    return true;
}

/* Items of four words, which are neighbours in a row. */
static bool wide_of(const struct any_plane &from, uint64_t per, struct tp_box3 box,
                    place_plane *p)
{
    struct tp_tile_bits bits;
    p->wide = box.k % (4 * per) == 0 &&
              plane_of(from, PLACE_SIDE_LOG2, PLACE_SIDE_LOG2, 4 * per, &bits, p) &&
              is_run(bits, log2_of(4 * per));
    return p->wide;
}

/* Where the items of a turn lie in the stage. */
static void stage_of(bool run, bool packed, place_plane *p)
{
    p->stage = !run ? PLACE_BYTES : p->width == 4 && packed ? PLACE_PACKED : PLACE_RUN;
    p->pitch = p->stage == PLACE_PACKED ? PLACE_PACKED_PITCH : PLACE_PITCH;
    for (uint32_t turn = 0; turn < PLACE_TURNS; turn++)
        p->high_in[turn] = (p->high_rc[turn] >> 16) * p->pitch +
                           (p->high_rc[turn] & 0xFFFFu) / (p->stage == PLACE_PACKED ? 2 : 1);
}

bool tp_cuda_place_codes(const struct any_plane &from, struct tp_box3 box, bool packed,
                         place_plane *plane)
{
    const unsigned width = tp_element_bits((enum tp_element)from.element);
    struct tp_tile_bits bits;
    bool run = true;
    if (from.data == NULL || (width != 4 && width != 8) || box.n > 0x3FFFFFFFu ||
        box.k > 0x3FFFFFFFu)
        return false;
    if (!wide_of(from, 32 / width, box, plane)) {
        if (!plane_of(from, PLACE_SIDE_LOG2, PLACE_SIDE_LOG2, 32 / width, &bits, plane) ||
            !word_of(bits, log2_of(32 / width), box, plane))
            return false;
        run = is_run(bits, log2_of(32 / width));
    }
    stage_of(run, packed, plane);
    plane->rows = (uint32_t)box.n;
    plane->columns = (uint32_t)box.k;
    return true;
}

/* Scales of whole rows: every tile along K has the same ones. */
static bool whole_rows(const struct any_plane &from, struct tp_box3 box, place_plane *p)
{
    struct tp_tile_bits bits;
    if (!plane_of(from, PLACE_SIDE_LOG2, 0, 1, &bits, p))
        return false;
    p->k.modes = 1;
    p->k.stride[0] = 0;
    p->rows = (uint32_t)box.n;
    p->columns = 0x7FFFFFFFu;
    return true;
}

bool tp_cuda_place_scales(const struct any_plane &from, struct tp_box3 box, place_plane *plane)
{
    struct tp_tile_bits bits;
    const uint64_t per_n = from.per_n, per_k = from.per_k;
    if (from.data != NULL && per_n == 1 && per_k > PLACE_SIDE && per_k >= box.k)
        return whole_rows(from, box, plane);
    if (from.data == NULL || !is_power_of_two(per_n) || !is_power_of_two(per_k) ||
        per_n > PLACE_SIDE || per_k > PLACE_SIDE || per_n * per_k < 16 ||
        !plane_of(from, PLACE_SIDE_LOG2 - log2_of(per_n), PLACE_SIDE_LOG2 - log2_of(per_k), 1,
                  &bits, plane))
        return false;
    plane->rows = (uint32_t)dev_ceil(box.n, per_n);
    plane->columns = (uint32_t)dev_ceil(box.k, per_k);
    return true;
}

struct place_grid tp_cuda_place_grid(struct tp_box3 box, const place_plane &plane)
{
    const uint64_t n = dev_ceil(box.n, PLACE_SIDE), k = dev_ceil(box.k, PLACE_SIDE);
    struct place_grid g = {0, 0, 0, (uint32_t)n, (uint32_t)k,
                           plane.n.stride[0] <= plane.k.stride[0]};
    if (n * k != 0 && box.e <= 0x7FFFFFFFu / (n * k)) {
        g.rows = (uint32_t)(box.e * n);
        g.count = (uint32_t)(box.e * n * k);
    }
    return g;
}

uint32_t tp_cuda_place_blocks(const void *kernel, const place_grid &grid)
{
    int device = 0, processors = 1, blocks = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, PLACE_THREADS, 0);
    const uint32_t most = (uint32_t)(processors * (blocks > 0 ? blocks : 1));
    return grid.count < most ? grid.count : most;
}
