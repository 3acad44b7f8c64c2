/* What an operation says about its outputs: layouts, sizes, patterns, and when
 * one packed form can be taken over into another. Pure functions of the
 * description; touches no tensor data.
 */
#include "base/num.h"
#include "kernels/op/kernel.h"
#include "kernels/op/traits.h"
#include "kernels/op/word_bits.h"

#include <stdio.h>
#include <string.h>

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_bits(const uint8_t *a, const uint8_t *b)
{
    return a == b || (a && b && memcmp(a, b, TP_WORD_BITS) == 0);
}

static bool same_out(const struct tp_op_out *a, const struct tp_op_out *b)
{
    return a->role == b->role && a->element == b->element && a->per_n == b->per_n &&
           a->per_k == b->per_k && a->place == b->place && a->fill == b->fill &&
           !(a->least < b->least || a->least > b->least) && a->factor == b->factor &&
           same_bits(a->word_bits, b->word_bits) && same_text(a->layout, b->layout);
}

bool tp_op_same(const struct tp_op *a, const struct tp_op *b)
{
    bool same = a->codec == b->codec && a->rule == b->rule && a->scale_rule == b->scale_rule &&
                a->channel_rule == b->channel_rule &&
                a->skip_zero_groups == b->skip_zero_groups &&
                a->unit_global == b->unit_global && a->zero_add == b->zero_add &&
                a->lifts == b->lifts &&
                a->stretches == b->stretches &&
                a->block_n == b->block_n && a->block_k == b->block_k && a->outs == b->outs &&
                memcmp(a->table, b->table, sizeof a->table) == 0;
    for (uint32_t i = 0; same && i < a->outs; i++)
        same = same_out(&a->out[i], &b->out[i]);
    return same;
}

int tp_op_find(const struct tp_op *op, enum tp_role role)
{
    for (uint32_t i = 0; i < op->outs; i++)
        if (op->out[i].role == role)
            return (int)i;
    return -1;
}

static enum tp_code layout_of(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                              uint64_t stretches, struct tp_layout *layout, struct tp_err *err)
{
    if (i >= op->outs || op->out[i].layout == NULL)
        return tp_fail(err, TP_E_INPUT, "output %u has no layout", i);
    return tp_layout_parse_of(op->out[i].layout, box, stretches, layout, err);
}

static uint64_t stretches_of(const struct tp_op *op)
{
    return op->stretches > 1 ? op->stretches : 1;
}

enum tp_code tp_op_layout(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                          struct tp_layout *layout, struct tp_err *err)
{
    return layout_of(op, i, box, 1, layout, err);
}

enum tp_code tp_op_whole_layout(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                                struct tp_layout *layout, struct tp_err *err)
{
    if (box.n % stretches_of(op))
        return tp_fail(err, TP_E_INPUT, "%llu rows do not divide into gate and up",
                       (unsigned long long)box.n);
    return layout_of(op, i, box, stretches_of(op), layout, err);
}

static enum tp_code bytes_of(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                             uint64_t stretches, uint64_t *bytes, struct tp_err *err)
{
    struct tp_layout layout;
    uint64_t bits;
    enum tp_code code;
    if (i < op->outs && op->out[i].layout == NULL) {
        *bytes = op->out[i].role == TP_ROLE_GLOBAL ? tp_element_bits(op->out[i].element) / 8 : 0;
        return TP_OK;
    }
    code = layout_of(op, i, box, stretches, &layout, err);
    if (code != TP_OK)
        return code;
    if (!tp_mul_u64(&bits, tp_layout_size(&layout), tp_element_bits(op->out[i].element)))
        return tp_fail(err, TP_E_INPUT, "output %u of %llu x %llu x %llu is too large", i,
                       (unsigned long long)box.e, (unsigned long long)box.n,
                       (unsigned long long)box.k);
    *bytes = tp_ceil_div(bits, 8);
    return TP_OK;
}

enum tp_code tp_op_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box, uint64_t *bytes,
                         struct tp_err *err)
{
    return bytes_of(op, i, box, 1, bytes, err);
}

enum tp_code tp_op_whole_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                               uint64_t *bytes, struct tp_err *err)
{
    return bytes_of(op, i, box, stretches_of(op), bytes, err);
}

uint64_t tp_op_stretch_rows(const struct tp_op *op, uint64_t rows)
{
    return rows / stretches_of(op);
}

static bool is_folded(const struct tp_op *op, uint32_t i)
{
    return op->stretches > 1 && op->out[i].per_n != 0;
}

void tp_op_fold(const struct tp_op *op, uint32_t i, uint64_t rows, uint64_t *e, uint64_t *n)
{
    uint64_t stretch = tp_op_stretch_rows(op, rows);
    if (!is_folded(op, i) || stretch == 0)
        return;
    *e = *e * op->stretches + *n / stretch;
    *n %= stretch;
}

void tp_op_unfold(const struct tp_op *op, uint32_t i, uint64_t rows, uint64_t *e, uint64_t *n)
{
    if (!is_folded(op, i))
        return;
    *n += *e % op->stretches * tp_op_stretch_rows(op, rows);
    *e /= op->stretches;
}

enum tp_code tp_args_check(const struct tp_args *args, struct tp_err *err)
{
    if (!(args->flags & TP_FAILED))
        return TP_OK;
    tp_err_hint(err, "this is a defect of tilepack: please report it with the command line");
    return tp_fail(err, TP_E_UNSUPPORTED, "a layout of the format has no meaning for a weight of "
                   "%llu x %llu x %llu", (unsigned long long)args->box.e,
                   (unsigned long long)args->box.n, (unsigned long long)args->box.k);
}

/* ---- patterns ----------------------------------------------------------- */

/* Sizes at which two layout texts are compared; a text may be undefined at some
 * of them (an inexact division), but not at all. */
static const struct tp_box3 probes[] = {
    {2, 768, 2560}, {5, 48, 256}, {3, 130, 1280}, {2, 141, 200}, {3, 52, 71},
};
enum { PROBES = sizeof probes / sizeof probes[0] };

static bool evaluate(const char *text, struct tp_box3 box, struct tp_layout *layout)
{
    struct tp_err err = {0};
    return tp_layout_parse(text, box, layout, &err) == TP_OK;
}

/* The stride of a mode of one coordinate means nothing. */
static bool same_numbers(const struct tp_layout *a, const struct tp_layout *b)
{
    for (int d = 0; d < TP_DIMS; d++) {
        const struct tp_layout_dim *x = &a->dim[d], *y = &b->dim[d];
        if (x->modes != y->modes)
            return false;
        for (uint32_t m = 0; m < x->modes; m++)
            if (x->size[m] != y->size[m] || (x->size[m] > 1 && x->stride[m] != y->stride[m]))
                return false;
    }
    return true;
}

static bool equivalent(const char *a, const char *b)
{
    int defined = 0;
    for (int i = 0; i < PROBES; i++) {
        struct tp_layout x, y;
        if (!evaluate(a, probes[i], &x))
            continue;
        if (!evaluate(b, probes[i], &y) || !same_numbers(&x, &y))
            return false;
        defined++;
    }
    return defined > 0;
}

/* The rounded-up quotients by a power of two, or the single stored element
 * (quotient 0), that `size` may be of `whole`, as a set of bits. */
static uint32_t quotients(uint64_t whole, uint64_t size)
{
    uint32_t set = size == 1 ? 1u << 31 : 0;
    for (uint32_t i = 0; i < 16; i++)
        if (tp_ceil_div(whole, UINT64_C(1) << i) == size)
            set |= 1u << i;
    return set;
}

/* Dense and unpadded, k fastest (or n fastest), over any grid of blocks. */
static bool is_dense(const char *text, bool k_fastest)
{
    uint32_t n_set = UINT32_MAX, k_set = UINT32_MAX;
    int defined = 0;
    for (int i = 0; i < PROBES; i++) {
        struct tp_layout x, want = {0};
        uint64_t n, k;
        if (!evaluate(text, probes[i], &x))
            continue;
        n = tp_layout_extent(&x, TP_DIM_N);
        k = tp_layout_extent(&x, TP_DIM_K);
        want.dim[TP_DIM_E] = (struct tp_layout_dim){1, {probes[i].e}, {n * k}};
        want.dim[TP_DIM_N] = (struct tp_layout_dim){1, {n}, {k_fastest ? k : 1}};
        want.dim[TP_DIM_K] = (struct tp_layout_dim){1, {k}, {k_fastest ? 1 : n}};
        if (!same_numbers(&x, &want))
            return false;
        n_set &= quotients(probes[i].n, n);
        k_set &= quotients(probes[i].k, k);
        defined++;
    }
    return defined > 0 && n_set != 0 && k_set != 0;
}

enum tp_place tp_place_of(const char *layout_text)
{
    static const struct {
        enum tp_place place;
        const char *text;
    } known[] = {
        {TP_PLACE_W4A8,
         "(E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))"},
        {TP_PLACE_TILE_N,
         "(E,(32,4,align(N,128)/128),(4,align(ceil(K,32),4)/4)):"
         "(align(N,128)*align(ceil(K,32),4),(16,4,128*align(ceil(K,32),4)),(1,512))"},
        {TP_PLACE_TILE_N,
         "(E,(32,4,align(N,128)/128),(4,align(ceil(K,16),4)/4)):"
         "(align(N,128)*align(ceil(K,16),4),(16,4,128*align(ceil(K,16),4)),(1,512))"},
        {TP_PLACE_TILE_K,
         "(E,(4,align(ceil(N,32),4)/4),(32,4,align(K,128)/128)):"
         "(align(K,128)*align(ceil(N,32),4),(1,512),(16,4,128*align(ceil(N,32),4)))"},
        {TP_PLACE_MN_ALIGNED,
         "(E,align(N,4),ceil(K,128)):(align(N,4)*ceil(K,128),1,align(N,4))"},
        {TP_PLACE_MN_PACKED4,
         "(E,align(N,4),(4,ceil(ceil(K,128),4))):"
         "(4*align(N,4)*ceil(ceil(K,128),4),4,(1,4*align(N,4)))"},
    };
    if (layout_text == NULL)
        return TP_PLACE_ANY;
    if (is_dense(layout_text, true))
        return TP_PLACE_ROW;
    if (is_dense(layout_text, false))
        return TP_PLACE_COL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (equivalent(layout_text, known[i].text))
            return known[i].place;
    return TP_PLACE_ANY;
}

/* ---- encoding ----------------------------------------------------------- */

static bool has_half_scales(const struct tp_op *op)
{
    return tp_op_is_int(op) && op->scale_rule == TP_INT_SCALE_F16;
}

enum tp_search tp_op_search(const struct tp_op *op)
{
    const struct tp_codec_traits *codec = &tp_codecs[op->codec];
    if (op->search == TP_SEARCH_NONE || !codec->searches)
        return TP_SEARCH_NONE;
    if (!codec->searches_rows ||
        (op->search == TP_SEARCH_MSE && tp_op_find(op, TP_ROLE_GROUP8) < 0))
        return TP_SEARCH_MSE;
    return has_half_scales(op) ? TP_SEARCH_NONE : TP_SEARCH_W4A8;
}

/* ---- repacking ---------------------------------------------------------- */

/* Every block of `to` lies inside one block of `from`; 0 is the whole extent. */
static bool divides(uint32_t from, uint32_t to)
{
    return from == 0 || (to != 0 && from % to == 0);
}

static bool has_scales(const struct tp_op *op)
{
    return tp_op_find(op, TP_ROLE_SCALE) >= 0 || tp_op_per_tensor(op) ||
           (tp_op_find(op, TP_ROLE_GROUP8) >= 0 && tp_op_find(op, TP_ROLE_CHANNEL) >= 0);
}

/* FP8 scales are numbers: they may be widened, never rounded, but where the engine rounds them. */
static bool fp8_scale_fits(const struct tp_op *from, const struct tp_op *to)
{
    int scale = tp_op_find(to, TP_ROLE_SCALE);
    if (scale >= 0 && to->out[scale].factor)
        return true;
    if (to->scale_rule == TP_FP8_SCALE_FP32)
        return true;
    if (to->scale_rule == TP_FP8_SCALE_BF16)
        return from->scale_rule != TP_FP8_SCALE_FP32;
    return from->scale_rule == TP_FP8_SCALE_UE8M0;
}

/* Numbers of the same type, or of one that holds all of the other's. */
static bool floats_fit(const struct tp_op *from, const struct tp_op *to)
{
    enum tp_element element = to->out[tp_op_find(to, TP_ROLE_CODES)].element;
    return element == TP_ELEM_F32 || element == from->out[tp_op_find(from, TP_ROLE_CODES)].element;
}

bool tp_repack_possible(const struct tp_op *from, const struct tp_op *to)
{
    if (tp_op_find(from, TP_ROLE_ORDER) >= 0 ||
        (tp_op_find(from, TP_ROLE_ZERO) >= 0 && tp_op_find(to, TP_ROLE_ZERO) < 0))
        return false;
    if (tp_codecs[from->codec].is_number && tp_codecs[to->codec].is_number)
        return floats_fit(from, to);
    if (from->codec != to->codec || !divides(from->block_n, to->block_n) ||
        !divides(from->block_k, to->block_k) || !has_scales(from) || !has_scales(to) ||
        tp_op_find(from, TP_ROLE_CODES) < 0 || tp_op_find(to, TP_ROLE_CODES) < 0)
        return false;
    return from->codec != TP_CODEC_FP8 || fp8_scale_fits(from, to);
}

bool tp_op_divides(const struct tp_op *op)
{
    return op->codec == TP_CODEC_NVFP4 && op->rule == TP_NVFP4_CT;
}

bool tp_repack_inverts(const struct tp_op *from, const struct tp_op *to)
{
    return from->codec == to->codec && tp_op_divides(from) != tp_op_divides(to);
}

float tp_repack_global(const struct tp_op *from, const struct tp_op *to, float global)
{
    return tp_repack_inverts(from, to) ? 1.0f / global : global;
}

bool tp_op_needs_reference(const struct tp_op *op)
{
    return tp_op_find(op, TP_ROLE_ZERO) >= 0 || tp_op_find(op, TP_ROLE_ORDER) >= 0;
}

bool tp_op_per_tensor(const struct tp_op *op)
{
    return op->codec == TP_CODEC_FP8 && tp_op_find(op, TP_ROLE_SCALE) < 0;
}

bool tp_op_is_odd(const struct tp_op *op)
{
    bool odd = false;
    for (uint32_t i = 0; i < op->outs; i++)
        odd |= op->out[i].word_bits != NULL || op->out[i].factor != 0 ||
               op->out[i].element == TP_ELEM_E5M3;
    return odd || tp_op_zero_is_product(op);
}

bool tp_op_zero_is_product(const struct tp_op *op)
{
    int zero = tp_op_find(op, TP_ROLE_ZERO);
    return zero >= 0 && tp_element_bits(op->out[zero].element) > 8;
}

bool tp_op_only_moves(const struct tp_op *op)
{
    struct tp_op straight = *op;
    int codes = tp_op_find(op, TP_ROLE_CODES);
    if (codes < 0 || op->out[codes].word_bits == NULL || op->out[codes].fill != 0)
        return false;
    straight.out[codes].word_bits = NULL;
    return !tp_op_is_odd(&straight);
}

bool tp_op_only_scales(const struct tp_op *op)
{
    bool moved = false;
    for (uint32_t i = 0; i < op->outs; i++)
        moved |= op->out[i].word_bits != NULL;
    return (op->codec == TP_CODEC_FP8 || op->codec == TP_CODEC_NVFP4) && tp_op_is_odd(op) &&
           !moved && !tp_op_zero_is_product(op);
}

bool tp_op_has_least(const struct tp_op *op)
{
    bool has = false;
    for (uint32_t i = 0; i < op->outs; i++)
        has |= op->out[i].least > 0;
    return has;
}

bool tp_op_host_only(const struct tp_op *op)
{
    return tp_codecs[op->codec].is_number || tp_op_is_odd(op) || tp_op_needs_reference(op);
}

size_t tp_search_scratch(const struct tp_op *op, struct tp_box3 box)
{
    uint64_t block_k = op->block_k && op->block_k < box.k ? op->block_k : box.k;
    if (tp_op_search(op) == TP_SEARCH_NONE)
        return 0;
    /* Integers and roots of a block; for rows values, codes and what is known of groups. */
    return (size_t)(8 * block_k + 8 * box.k + 64 * tp_ceil_div(box.k, block_k) + 256);
}

/* Nibbles are read and written by the byte: the dimension along which two of them
 * share one advances in pairs. */
static enum tp_code whole_bytes(const struct tp_op_out *out, uint64_t *n, uint64_t *k,
                                struct tp_err *err)
{
    static const struct tp_box3 probe = {1, 1u << 20, 1u << 20};
    uint64_t *granule[TP_DIMS] = {NULL, n, k};
    struct tp_layout layout;
    enum tp_code code;
    if (tp_element_bits(out->element) >= 8)
        return TP_OK;
    if ((code = tp_layout_parse(out->layout, probe, &layout, err)))
        return code;
    for (int d = TP_DIM_N; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout.dim[d].modes; m++)
            if (layout.dim[d].stride[m] == 1 && layout.dim[d].size[m] > 1 && *granule[d] % 2)
                *granule[d] *= 2;
    return TP_OK;
}

enum tp_code tp_op_tile(const struct tp_op *op, uint64_t *n, uint64_t *k, struct tp_err *err)
{
    enum tp_code code;
    *n = tp_max_u64(op->block_n, 1); /* 0: a scale that is known before */
    *k = tp_max_u64(op->block_k, 1); /* 0: a row is one block, of any length */
    for (uint32_t i = 0; i < op->outs; i++) {
        const struct tp_op_out *out = &op->out[i];
        uint64_t gn, gk;
        if (!out->layout || out->role == TP_ROLE_GLOBAL)
            continue;
        if ((code = tp_layout_granule(out->layout, TP_DIM_N, &gn, err)) ||
            (code = tp_layout_granule(out->layout, TP_DIM_K, &gk, err)))
            return code;
        if ((code = whole_bytes(out, &gn, &gk, err)))
            return code;
        if (!tp_mul_u64(&gn, gn, out->per_n ? out->per_n : 1) || !tp_lcm_u64(n, *n, gn) ||
            !tp_mul_u64(&gk, gk, out->per_k ? out->per_k : 1) || !tp_lcm_u64(k, *k, gk))
            return tp_fail(err, TP_E_INPUT, "granule does not fit 64 bits");
    }
    return TP_OK;
}

enum tp_code tp_op_granule(const struct tp_op *op, uint64_t *n, uint64_t *k, struct tp_err *err)
{
    enum tp_code code = tp_op_tile(op, n, k, err);
    bool whole_rows = tp_op_search(op) == TP_SEARCH_W4A8;
    for (uint32_t i = 0; i < op->outs; i++) {
        const struct tp_op_out *out = &op->out[i];
        if (out->layout && out->role != TP_ROLE_GLOBAL)
            whole_rows |= out->per_k == 0 || out->role == TP_ROLE_ORDER;
    }
    if (whole_rows)
        *k = 0;
    return code;
}

enum tp_code tp_op_stored_granule(const struct tp_op *op, uint64_t *n, uint64_t *k,
                                  struct tp_err *err)
{
    enum tp_code code = tp_op_tile(op, n, k, err);
    if (tp_op_find(op, TP_ROLE_ORDER) >= 0)
        *k = 0;
    return code;
}
