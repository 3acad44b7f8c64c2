/* The arguments of the kernels for every layout: tables of bits for the kernels' tiles, and how
 * many blocks of threads a device takes. Host code alone. See cuda_place.cuh.
 */
#include "kernels/cuda/cuda_place_hand.h"

#include "kernels/op/place_bits.h"

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
        d->by[m] = dev_reciprocal_of(d->size[m]);
        d->stride[m] = from.stride[m] / per;
    }
    return true;
}

/* A bit of a thread's number, or (from PLACE_THREAD_BITS on) of a turn's. */
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

/* So many tiles that follow each other begin at the same place. */
static bool repeat(uint32_t times, place_dim *d)
{
    if (times == 1)
        return true;
    if (d->modes == PLACE_MODES)
        return false;
    for (uint32_t m = d->modes++; m > 0; m--) {
        d->size[m] = d->size[m - 1];
        d->by[m] = d->by[m - 1];
        d->stride[m] = d->stride[m - 1];
    }
    d->size[0] = times;
    d->by[0] = dev_reciprocal_of(times);
    d->stride[0] = 0;
    return true;
}

/* A plane without its tables: `per` stored elements to an item, each for per_n rows (which may be
 * those of several tiles) and per_k columns. */
static bool plane_of(const struct any_plane &from, struct place_shape shape, uint64_t per_n,
                     uint64_t per_k, uint64_t per, struct tp_tile_bits *bits, place_plane *p)
{
    const unsigned inner = log2_of(per);
    const unsigned log2_per_n = log2_of(per_n), k = shape.columns - log2_of(per_k);
    const unsigned n = shape.rows > log2_per_n ? shape.rows - log2_per_n : 0;
    memset(p, 0, sizeof *p);
    if (!tp_tile_bits_of(&from.layout, n, k, bits) || bits->bits < inner ||
        bits->bits - inner > PLACE_THREAD_BITS + log2_of(PLACE_TURNS))
        return false;
    p->data = from.data;
    p->width = tp_element_bits((enum tp_element)from.element);
    p->count = 1u << (bits->bits - inner);
    p->log2_rows = n;
    p->log2_columns = k;
    p->log2_per_n = log2_per_n;
    p->log2_per_k = log2_of(per_k);
    return dim_of(from.layout.dim[TP_DIM_E], per, &p->e) && dim_of(bits->rows, per, &p->n) &&
           dim_of(bits->columns, per, &p->k) &&
           repeat(1u << (log2_per_n + n - shape.rows), &p->n);
}

bool tp_cuda_place_plane(const struct any_plane &from, struct place_shape shape,
                         struct tp_tile_bits *bits, place_plane *plane)
{
    return plane_of(from, shape, 1, 1, 1, bits, plane);
}

/* Tables for items that are counted as they are stored. */
static bool add_stored(const struct tp_tile_bits &bits, uint64_t per, place_plane *p)
{
    const unsigned inner = log2_of(per);
    for (uint32_t b = inner; b < bits.bits; b++)
        if (!add_bit(bits.bit[b], b - inner, per, p))
            return false;
    return true;
}

/* ---- codes and values ------------------------------------------------------ */

/* The bit of a tile as cuda_place_hand.cu counts them. */
static uint8_t number_of(const struct tp_tile_bit &bit, struct place_shape shape)
{
    return (uint8_t)(bit.row ? shape.columns + log2_of(bit.row) : log2_of(bit.column));
}

/* One end of the way of the codes of a tile. */
struct end {
    struct tp_tile_bits bits;
    uint8_t order[PLACE_MAX_BITS];
    uint64_t per; /* elements of an item */
    struct place_plane *plane;
    struct place_shape shape;
};

/* Items of so many codes lie side by side, and none holds codes beyond the weight. */
static bool are_items(const struct tp_tile_bits &bits, uint64_t per, struct tp_box3 box)
{
    for (uint32_t b = 0; b < log2_of(per); b++) {
        const struct tp_tile_bit &bit = bits.bit[b];
        if (bit.at != (uint64_t)1 << b || box.n % (2 * bit.row + (bit.row == 0)) != 0 ||
            box.k % (2 * bit.column + (bit.column == 0)) != 0)
            return false;
    }
    return true;
}

static bool end_of(const struct any_plane &from, uint64_t per, struct tp_box3 box, end *e)
{
    if (!plane_of(from, e->shape, 1, 1, per, &e->bits, e->plane) || !are_items(e->bits, per, box))
        return false;
    const uint32_t bits = e->shape.rows + e->shape.columns;
    for (uint32_t b = 0; b < bits; b++)
        e->order[b] = number_of(e->bits.bit[b], e->shape);
    for (uint32_t b = log2_of(per); b < bits; b++) /* whole items behind each other */
        if (e->bits.bit[b].at % per != 0)
            return false;
    e->per = per;
    return true;
}

/* Codes in items of four words, or else of one. */
static bool codes_of(const struct any_plane &from, struct tp_box3 box, bool wide, end *e)
{
    const uint64_t word = 32 / tp_element_bits((enum tp_element)from.element);
    const bool done = wide && end_of(from, 4 * word, box, e);
    if (!done && !end_of(from, word, box, e))
        return false;
    e->plane->wide = done;
    return true;
}

/* Values lie in rows. */
static bool values_of(uint8_t *data, struct tp_box3 box, end *e)
{
    struct any_plane rows;
    memset(&rows, 0, sizeof rows);
    rows.data = data;
    rows.element = TP_ELEM_F32;
    const uint64_t size[3] = {box.e, box.n, box.k}, stride[3] = {box.n * box.k, box.k, 1};
    for (int d = 0; d < 3; d++) {
        rows.layout.dim[d].modes = 1;
        rows.layout.dim[d].size[0] = size[d];
        rows.layout.dim[d].stride[0] = stride[d];
    }
    return end_of(rows, PLACE_EIGHT, box, e);
}

/* Tables for what is stored: items in their order, and where they wait in the stage. */
static bool add_to(const end &to, uint32_t inner, const uint32_t *bank)
{
    const uint32_t skip = log2_of(to.per) - inner; /* words of an item */
    place_plane *p = to.plane;
    for (uint32_t b = 0; b < PLACE_THREAD_BITS; b++)
        p->low_in[b] = bank[b + skip];
    for (uint32_t turn = 0; turn < PLACE_TURNS; turn++)
        for (uint32_t b = PLACE_THREAD_BITS; b + skip + inner < to.bits.bits; b++)
            if (turn >> (b - PLACE_THREAD_BITS) & 1)
                p->high_in[turn] ^= bank[b + skip];
    return add_stored(to.bits, to.per, p);
}

static const struct tp_tile_bit &bit_of(const end &e, uint8_t number)
{
    uint32_t b = 0;
    while (e.order[b] != number)
        b++;
    return e.bits.bit[b];
}

/* Tables for what comes, as it is spread: items of a register, or of several. */
static bool add_from(const end &from, const struct place_spread &s, bool values)
{
    const uint32_t skip = values ? 3 - s.inner : 0; /* registers of an eight are one item */
    for (uint32_t b = 0; b < PLACE_THREAD_BITS; b++)
        if (!add_bit(bit_of(from, s.thread[b]), b, from.per, from.plane))
            return false;
    for (uint32_t r = skip; r < s.regs; r++) {
        const bool within = !values && from.plane->wide && r < 2;
        if (!within && !add_bit(bit_of(from, s.reg[r]), PLACE_THREAD_BITS + r - skip, from.per,
                                from.plane))
            return false;
    }
    return true;
}

static bool spread_of(const end &from, const end &to, const struct place_ends &ends,
                      uint32_t inner, struct place_spread *s)
{
    const bool values = ends.way == PLACE_ENCODE;
    return tp_cuda_place_spread(from.order, to.order, from.shape, inner, values,
                                !values && from.plane->wide,
                                log2_of(ends.block), s);
}

bool tp_cuda_place_codes(const struct place_ends &ends, place_job *job, uint32_t *join,
                         uint32_t *lanes)
{
    const struct any_plane &codes = ends.from != NULL ? *ends.from : *ends.to;
    const unsigned width = tp_element_bits((enum tp_element)codes.element);
    const uint32_t inner = width == 4 ? 3 : 2;
    const struct tp_box3 box = ends.box;
    struct end from, to;
    struct place_spread s;
    uint32_t bank[PLACE_MAX_BITS];
    from.shape = to.shape = job->shape;
    from.plane = &job->plane[PLACE_FROM];
    to.plane = &job->plane[PLACE_TO];
    if ((width != 4 && width != 8) || box.n > 0x3FFFFFFFu || box.k > 0x3FFFFFFFu ||
        !(ends.from != NULL ? codes_of(*ends.from, box, true, &from)
                            : values_of(ends.values, box, &from)) ||
        !(ends.to != NULL ? codes_of(*ends.to, box, true, &to) : values_of(ends.values, box, &to)))
        return false;
    if (!spread_of(from, to, ends, inner, &s) &&
        (ends.way == PLACE_ENCODE || !codes_of(*ends.from, box, false, &from) ||
         !spread_of(from, to, ends, inner, &s)))
        return false;
    job->n = (uint32_t)box.n;
    job->k = (uint32_t)box.k;
    *join = s.join;
    *lanes = s.lanes;
    return tp_cuda_place_hand(s, to.order, &job->hand, bank) && add_to(to, inner, bank) &&
           add_from(from, s, ends.way == PLACE_ENCODE);
}

/* ---- scales ----------------------------------------------------------------- */

/* Scales of whole rows: every tile along K has the same ones. */
static bool whole_rows(const struct any_plane &from, struct tp_box3 box,
                       struct place_shape shape, place_plane *p)
{
    struct tp_tile_bits bits;
    if (!plane_of(from, shape, 1, (uint64_t)1 << shape.columns, 1, &bits, p) ||
        !add_stored(bits, 1, p))
        return false;
    p->k.modes = 1;
    p->k.stride[0] = 0;
    p->rows = (uint32_t)box.n;
    p->columns = 0x7FFFFFFFu;
    return true;
}

/* So many neighbours of a row lie side by side, and none of them beyond the weight. */
static bool are_words(const struct tp_tile_bits &bits, uint64_t per, uint64_t columns)
{
    for (uint32_t b = 0; b < log2_of(per); b++)
        if (bits.bit[b].column != 1u << b || bits.bit[b].at != (uint64_t)1 << b)
            return false;
    for (uint32_t b = log2_of(per); b < bits.bits; b++)
        if (bits.bit[b].at % per != 0)
            return false;
    return columns % per == 0;
}

bool tp_cuda_place_scales(const struct any_plane &from, uint32_t code_bits, bool in_words,
                          struct tp_box3 box, struct place_shape shape, place_plane *plane)
{
    const uint64_t columns = (uint64_t)1 << shape.columns;
    struct tp_tile_bits bits;
    const uint64_t per_n = from.per_n, per_k = from.per_k;
    const uint64_t per = in_words ? 32 / tp_element_bits((enum tp_element)from.element) : 1;
    if (from.data != NULL && per_n == 1 && per_k > columns && per_k >= box.k)
        return per == 1 && whole_rows(from, box, shape, plane);
    if (from.data == NULL || !is_power_of_two(per_n) || !is_power_of_two(per_k) ||
        per_n > (uint64_t)1 << 16 || per_k > columns || per_n * per_k < 4 * code_bits ||
        !plane_of(from, shape, per_n, per_k, per, &bits, plane) ||
        plane->count > 4u * PLACE_SCALES / code_bits ||
        !are_words(bits, per, dev_ceil(box.k, per_k)) || !add_stored(bits, per, plane))
        return false;
    plane->width *= (uint32_t)per;
    plane->rows = (uint32_t)dev_ceil(box.n, per_n);
    plane->columns = (uint32_t)dev_ceil(box.k, per_k);
    return true;
}

/* ---- items that stay as they are ------------------------------------------- */

static const struct tp_tile_bit *same_bit(const struct tp_tile_bits &bits,
                                          const struct tp_tile_bit &like)
{
    for (uint32_t b = 0; b < bits.bits; b++)
        if (bits.bit[b].row == like.row && bits.bit[b].column == like.column)
            return &bits.bit[b];
    return NULL;
}

/* Both planes' tables, in the order of `to`; items hold the same elements in the same order. */
static bool add_pair(const struct tp_tile_bits &from_bits, const struct tp_tile_bits &to_bits,
                     uint64_t per, place_plane *from, place_plane *to)
{
    const uint32_t inner = log2_of(per);
    for (uint32_t b = 0; b < to_bits.bits; b++) {
        const struct tp_tile_bit &bit = to_bits.bit[b], *same = same_bit(from_bits, bit);
        if (same == NULL || (b < inner && same != &from_bits.bit[b]) ||
            (b >= inner &&
             (!add_bit(*same, b - inner, per, from) || !add_bit(bit, b - inner, per, to))))
            return false;
    }
    return true;
}

bool tp_cuda_place_pair(const struct place_pair &pair, struct tp_box3 box,
                        struct place_shape shape, place_plane *from, place_plane *to)
{
    struct tp_tile_bits from_bits, to_bits;
    if (box.n > 0x3FFFFFFFu || box.k > 0x3FFFFFFFu || !is_power_of_two(pair.per_n) ||
        !is_power_of_two(pair.per_k) || pair.per_n > (uint64_t)1 << 16 ||
        pair.per_k > (uint64_t)1 << shape.columns)
        return false;
    const struct tp_box3 items = {box.e, dev_ceil(box.n, pair.per_n), dev_ceil(box.k, pair.per_k)};
    if (!plane_of(*pair.from, shape, pair.per_n, pair.per_k, pair.per, &from_bits, from) ||
        !plane_of(*pair.to, shape, pair.per_n, pair.per_k, pair.per, &to_bits, to) ||
        !are_items(from_bits, pair.per, items) || !are_items(to_bits, pair.per, items) ||
        !add_pair(from_bits, to_bits, pair.per, from, to))
        return false;
    from->width = to->width = to->width * (uint32_t)pair.per;
    from->rows = to->rows = (uint32_t)items.n;
    from->columns = to->columns = (uint32_t)items.k;
    return true;
}

/* ---- where scales wait ------------------------------------------------------- */

/* Bytes of a tile's scales in shared memory: each bit of a scale's row or column moves it by a
 * number of its own, and all are joined by exclusive ors. The bits of a scale's number (columns
 * first) count bytes of a word, words of a row of 32 banks, and such rows; those beyond the banks
 * are mixed into them, so that lanes whose scales lie far apart meet in no bank. */
enum { WAIT_USERS = 3 }; /* both planes of scales, and the values */

struct waiting {
    uint32_t columns, bits;            /* log2 of them; of a number */
    uint32_t at[PLACE_MAX_BITS - 4];
    uint32_t lanes[WAIT_USERS];         /* which bits of a number the lanes of a warp differ in */
    uint32_t users;
};

/* The scale's number of coordinates that are counted in scales. */
static uint32_t number_at(const waiting &w, uint32_t rc)
{
    return (rc >> 16) << w.columns | (rc & 0xFFFFu);
}

static uint32_t byte_at(const waiting &w, uint32_t number)
{
    uint32_t byte = 0;
    for (uint32_t b = 0; b < w.bits; b++)
        if (number >> b & 1)
            byte ^= w.at[b];
    return byte;
}

/* How many of the banks that lanes differ in are independent. */
static uint32_t rank_of(const waiting &w, uint32_t lanes)
{
    uint32_t base[5] = {0}, rank = 0;
    for (uint32_t b = 0; b < w.bits; b++) {
        uint32_t bank = lanes >> b & 1 ? w.at[b] / 4 % 32 : 0;
        for (uint32_t i = 5; i-- > 0 && bank != 0;)
            if (bank >> i & 1 && base[i] == 0) {
                base[i] = bank;
                rank++;
                bank = 0;
            } else if (bank >> i & 1) {
                bank ^= base[i];
            }
    }
    return rank;
}

static void mix_banks(waiting *w)
{
    for (uint32_t b = 0; b < w->bits; b++) {
        const uint32_t own = w->at[b];
        uint32_t max = 0, best = own;
        for (uint32_t bank = 0; own >= 4 * 32 && bank < 32; bank++) {
            uint32_t sum = 0;
            w->at[b] = own | bank * 4;
            for (uint32_t i = 0; i < w->users; i++)
                sum += rank_of(*w, w->lanes[i]);
            if (sum > max) {
                max = sum;
                best = w->at[b];
            }
        }
        w->at[b] = best;
    }
}

/* The number of the scale of an eight of values. */
static uint32_t number_of_eight(const waiting &w, const place_plane &scale, uint32_t rc)
{
    const uint32_t row = rc >> 16 >> scale.log2_per_n;
    return row << w.columns | (rc & 0xFFFFu) >> scale.log2_per_k;
}

static void add_user(waiting *w, const uint32_t *numbers)
{
    for (uint32_t b = 0; b < 5; b++)
        w->lanes[w->users] |= numbers[b];
    w->users++;
}

static void wait_for(const waiting &w, place_plane *p)
{
    for (uint32_t b = 0; b < PLACE_THREAD_BITS; b++)
        p->low_in[b] = byte_at(w, number_at(w, p->low_rc[b]));
    for (uint32_t turn = 0; turn < PLACE_TURNS; turn++)
        p->high_in[turn] = byte_at(w, number_at(w, p->high_rc[turn]));
}

void tp_cuda_place_wait(const place_plane *values, place_job *job)
{
    place_plane *planes[2] = {&job->plane[PLACE_FROM_SCALE], &job->plane[PLACE_TO_SCALE]};
    const place_plane &scale = *planes[planes[0]->data == NULL];
    uint32_t numbers[PLACE_THREAD_BITS];
    waiting w = {};
    w.columns = scale.log2_columns;
    w.bits = scale.log2_rows + scale.log2_columns;
    const uint32_t log2_per = w.bits - log2_of(scale.count > 0 ? scale.count : 1);
    job->scale_bytes = 4u >> log2_per;
    for (uint32_t b = 0; b < w.bits; b++)
        w.at[b] = job->scale_bytes << b;
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t b = 0; b < PLACE_THREAD_BITS; b++)
            numbers[b] = number_at(w, planes[i]->low_rc[b]);
        add_user(&w, numbers);
    }
    for (uint32_t b = 0; values != NULL && b < PLACE_THREAD_BITS; b++)
        numbers[b] = number_of_eight(w, scale, values->low_rc[b]);
    if (values != NULL)
        add_user(&w, numbers);
    mix_banks(&w);
    wait_for(w, planes[0]);
    wait_for(w, planes[1]);
    for (uint32_t b = 0; values != NULL && b < PLACE_THREAD_BITS; b++)
        job->low_scale[b] = byte_at(w, numbers[b]);
    for (uint32_t turn = 0; values != NULL && turn < PLACE_TURNS; turn++)
        job->high_scale[turn] = byte_at(w, number_of_eight(w, scale, values->high_rc[turn]));
}

void tp_cuda_place_sums(place_job *job)
{
    const place_plane *p = job->plane;
    const uint32_t *const low[] = {
        p[PLACE_FROM].low_at,          p[PLACE_FROM].low_rc,
        p[PLACE_TO].low_at,            p[PLACE_TO].low_rc,
        p[PLACE_FROM_SCALE].low_at,    p[PLACE_FROM_SCALE].low_rc,
        p[PLACE_TO_SCALE].low_at,      p[PLACE_TO_SCALE].low_rc,
        job->hand.low_in,              p[PLACE_TO].low_in,
        p[PLACE_FROM_SCALE].low_in,    p[PLACE_TO_SCALE].low_in,
        job->low_scale};
    for (size_t sum = 0; sum < sizeof low / sizeof low[0]; sum++)
        for (uint32_t b = 0; b < PLACE_THREAD_BITS; b += 2)
            job->low[sum][b / 2] = make_uint2(low[sum][b], low[sum][b + 1]);
}

struct place_grid tp_cuda_place_grid(struct tp_box3 box, struct place_shape shape, bool n_first)
{
    const uint64_t n = dev_ceil(box.n, 1u << shape.rows);
    const uint64_t k = dev_ceil(box.k, 1u << shape.columns);
    struct place_grid g = {0, 0, (uint32_t)n, (uint32_t)k, n_first, {0, 0}, {0, 0}};
    if (n * k != 0 && box.e <= 0x7FFFFFFFu / (n * k)) {
        g.rows = (uint32_t)(box.e * n);
        g.count = g.rows * g.k;
        g.by_n = dev_reciprocal_of(g.n);
        g.by_inner = dev_reciprocal_of(n_first ? g.rows : g.k);
    }
    return g;
}

uint32_t tp_cuda_place_blocks(const void *kernel, const place_grid &grid, uint32_t run)
{
    int device = 0, processors = 1, blocks = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, PLACE_THREADS, 0);
    const uint32_t resident = (uint32_t)(processors * (blocks > 0 ? blocks : 1));
    const uint32_t runs = run > 0 ? (uint32_t)dev_ceil(grid.count, run) : 0;
    const uint32_t max = runs > resident ? runs : resident;
    return grid.count < max ? grid.count : max;
}
