/* Which of the patterns that fast rows know a layout has. */
#include "kernels/op/kernel.h"

#include "base/layout_parse.h"
#include "base/num.h"

#include <pthread.h>

/* Sizes at which two layouts are compared; one may be undefined at some of them (an inexact
 * division), but not at all. */
static const struct tp_box3 probes[] = {
    {2, 768, 2560}, {5, 48, 256}, {3, 130, 1280}, {2, 141, 200}, {3, 52, 71},
};
enum { PROBES = sizeof probes / sizeof probes[0] };

/* A layout at those sizes. */
struct probed {
    bool defined[PROBES], any;
    struct tp_layout at[PROBES];
};

static void probe(const struct tp_layout_expr *expr, struct probed *probed)
{
    probed->any = false;
    for (int i = 0; i < PROBES; i++) {
        struct tp_err err = {0};
        probed->defined[i] = tp_layout_eval(expr, probes[i], 1, &probed->at[i], &err) == TP_OK;
        probed->any |= probed->defined[i];
    }
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

static bool equivalent(const struct probed *a, const struct probed *b)
{
    for (int i = 0; i < PROBES; i++)
        if (a->defined[i] && (!b->defined[i] || !same_numbers(&a->at[i], &b->at[i])))
            return false;
    return a->any;
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
static bool is_dense(const struct probed *layout, bool k_fastest)
{
    uint32_t n_set = UINT32_MAX, k_set = UINT32_MAX;
    for (int i = 0; i < PROBES; i++) {
        const struct tp_layout *x = &layout->at[i];
        struct tp_layout want = {0};
        if (!layout->defined[i])
            continue;
        uint64_t n = tp_layout_extent(x, TP_DIM_N), k = tp_layout_extent(x, TP_DIM_K);
        want.dim[TP_DIM_E] = (struct tp_layout_dim){1, {probes[i].e}, {n * k}};
        want.dim[TP_DIM_N] = (struct tp_layout_dim){1, {n}, {k_fastest ? k : 1}};
        want.dim[TP_DIM_K] = (struct tp_layout_dim){1, {k}, {k_fastest ? 1 : n}};
        if (!same_numbers(x, &want))
            return false;
        n_set &= quotients(probes[i].n, n);
        k_set &= quotients(probes[i].k, k);
    }
    return layout->any && n_set != 0 && k_set != 0;
}

/* The patterns, beside dense rows and columns, as formats write them. */
static struct pattern {
    enum tp_place place;
    const char *text;
    struct probed probed;
} known[] = {
    {.place = TP_PLACE_W4A8,
     .text = "(E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))"},
    {.place = TP_PLACE_TILE_N,
     .text = "(E,(32,4,align(N,128)/128),(4,align(ceil(K,32),4)/4)):"
             "(align(N,128)*align(ceil(K,32),4),(16,4,128*align(ceil(K,32),4)),(1,512))"},
    {.place = TP_PLACE_TILE_N,
     .text = "(E,(32,4,align(N,128)/128),(4,align(ceil(K,16),4)/4)):"
             "(align(N,128)*align(ceil(K,16),4),(16,4,128*align(ceil(K,16),4)),(1,512))"},
    {.place = TP_PLACE_TILE_K,
     .text = "(E,(4,align(ceil(N,32),4)/4),(32,4,align(K,128)/128)):"
             "(align(K,128)*align(ceil(N,32),4),(1,512),(16,4,128*align(ceil(N,32),4)))"},
    {.place = TP_PLACE_MN_ALIGNED,
     .text = "(E,align(N,4),ceil(K,128)):(align(N,4)*ceil(K,128),1,align(N,4))"},
    {.place = TP_PLACE_MN_PACKED4,
     .text = "(E,align(N,4),(4,ceil(ceil(K,128),4))):"
             "(4*align(N,4)*ceil(ceil(K,128),4),4,(1,4*align(N,4)))"},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static void probe_known(void)
{
    for (int i = 0; i < KNOWN; i++) {
        struct tp_layout_expr expr;
        struct tp_err err = {0};
        if (tp_layout_compile(known[i].text, &expr, &err) == TP_OK)
            probe(&expr, &known[i].probed);
    }
}

enum tp_place tp_place_of(const struct tp_layout_expr *layout)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct probed probed;
    if (layout == NULL)
        return TP_PLACE_ANY;
    probe(layout, &probed);
    if (is_dense(&probed, true))
        return TP_PLACE_ROW;
    if (is_dense(&probed, false))
        return TP_PLACE_COL;
    pthread_once(&once, probe_known);
    for (int i = 0; i < KNOWN; i++)
        if (equivalent(&probed, &known[i].probed))
            return known[i].place;
    return TP_PLACE_ANY;
}
