/* Slices and their granules. Invariant: the slices of all ranks cover the whole once. */
#include "pack/plan/cut.h"

#include "base/num.h"

uint32_t tp_cut_slices(const struct tp_cut *cut)
{
    return cut->along == TP_CUT_N ? cut->pieces : 1;
}

struct tp_box3 tp_cut_box(const struct tp_cut *cut, struct tp_box3 box)
{
    if (cut->along == TP_CUT_N)
        box.n /= cut->ranks;
    else if (cut->along == TP_CUT_K)
        box.k /= cut->ranks;
    return box;
}

struct tp_slice tp_cut_slice(const struct tp_cut *cut, struct tp_box3 box, unsigned ranks,
                             unsigned r, uint32_t p)
{
    struct tp_slice slice = {.whole = {.size = box}};
    if (cut->along == TP_CUT_K) {
        slice.whole.size.k = box.k / ranks;
        slice.whole.k = r * slice.whole.size.k;
    } else if (cut->along == TP_CUT_N) {
        uint64_t before = 0;
        for (uint32_t i = 0; i < p; i++)
            before += cut->piece_rows[i];
        slice.whole.size.n = cut->piece_rows[p] / ranks;
        slice.whole.n = before + r * slice.whole.size.n;
        slice.n = before / ranks;
    }
    return slice;
}

/* [*at, *at + *size) becomes what it shares with [other, other + length). */
static bool common(uint64_t *at, uint64_t *size, uint64_t other, uint64_t length)
{
    uint64_t first = tp_max_u64(*at, other);
    uint64_t end = tp_min_u64(*at + *size, other + length);
    *at = first;
    *size = first < end ? end - first : 0;
    return first < end;
}

bool tp_slice_common(const struct tp_slice *slice, const struct tp_box *box,
                     struct tp_box *shared, struct tp_box *in_rank)
{
    *shared = *box;
    if (!common(&shared->n, &shared->size.n, slice->whole.n, slice->whole.size.n) ||
        !common(&shared->k, &shared->size.k, slice->whole.k, slice->whole.size.k))
        return false;
    *in_rank = *shared;
    in_rank->n = shared->n - slice->whole.n + slice->n;
    in_rank->k = shared->k - slice->whole.k + slice->k;
    return true;
}

void tp_cut_granules(const struct tp_op *op, uint64_t *n, uint64_t *k)
{
    uint64_t *const granule[2] = {n, k};
    for (int d = 0; d < 2; d++) {
        struct tp_op stored = *op;
        uint64_t g[2];
        stored.outs = 0;
        stored.search = TP_SEARCH_NONE; /* of whole rows, which are cut afterwards */
        for (uint32_t i = 0; i < op->outs; i++)
            if (!op->out[i].layout || (d ? op->out[i].per_k : op->out[i].per_n))
                stored.out[stored.outs++] = op->out[i];
        stored.block_n = stored.block_n ? stored.block_n : 1;
        stored.block_k = stored.block_k ? stored.block_k : 1;
        *granule[d] = tp_op_granule(&stored, &g[0], &g[1], NULL) ? 0 : g[d];
    }
}

bool tp_cut_aligned(const struct tp_op *op, const struct tp_cut *cut, struct tp_box3 box)
{
    uint64_t n, k, rows = 0;
    tp_cut_granules(op, &n, &k);
    if (!cut->ranks || cut->pieces < 1 || cut->pieces > TP_MAX_VIEWS)
        return false;
    if (cut->along == TP_CUT_K)
        return k && box.k % cut->ranks == 0 && box.k / cut->ranks % k == 0;
    for (uint32_t p = 0; p < cut->pieces; p++) {
        uint64_t piece = cut->piece_rows[p];
        if (!n || !piece || piece % cut->ranks || piece / cut->ranks % n ||
            !tp_add_u64(&rows, rows, piece))
            return false;
    }
    return rows == box.n;
}
