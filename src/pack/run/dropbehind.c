/* A tensor is dropped when the last of its units is done. */
#include "pack/run/dropbehind.h"

#include "pack/os/os.h"

#include <stdlib.h>

/* Calls visit for the tensors of a unit, each once for each part that names it first. */
static void each_tensor(const struct tp_plan *plan, const struct tp_unit *unit,
                        void (*visit)(struct tp_dropbehind *, uint32_t), struct tp_dropbehind *d)
{
    uint64_t views = tp_unit_views(unit);
    for (uint64_t p = 0; p < views; p++) {
        uint32_t w = unit->views[p].weight;
        bool seen = false; /* experts of a stack lie in the same tensors */
        for (uint64_t back = 1; back <= unit->form->views_per_expert && back <= p && !seen; back++)
            seen = unit->views[p - back].weight == w;
        for (int i = 0; i < TP_MAX_OUT && !seen; i++)
            if (plan->weights->items[w].tensor[i] != TP_NO_TENSOR)
                visit(d, plan->weights->items[w].tensor[i]);
    }
}

static void add_user(struct tp_dropbehind *d, uint32_t tensor)
{
    if (atomic_fetch_add(&d->users[tensor], 1) == 0)
        atomic_fetch_add(&d->tensors[d->plan->ckpt->tensors[tensor].file], 1);
}

enum tp_code tp_dropbehind_open(struct tp_dropbehind *d, const struct tp_plan *plan,
                                const struct tp_grid *const *grids, struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    *d = (struct tp_dropbehind){.plan = plan};
    d->boxes = tp_os_zalloc(plan->unit_count + 1, sizeof *d->boxes, err);
    d->users = tp_os_zalloc(ckpt->tensor_count + 1, sizeof *d->users, err);
    d->tensors = tp_os_zalloc(ckpt->file_count + 1, sizeof *d->tensors, err);
    if (!d->boxes || !d->users || !d->tensors)
        return TP_E_MEMORY;
    enum tp_code code = tp_page_cache_open(&d->cache, ckpt, err);
    if (code)
        return code;
    for (size_t u = 0; u < plan->unit_count; u++) {
        atomic_init(&d->boxes[u], (unsigned)grids[u]->count);
        each_tensor(plan, &plan->units[u], add_user, d);
    }
    return TP_OK;
}

static void release(struct tp_dropbehind *d, uint32_t t)
{
    const struct tp_tensor *tensor = &d->plan->ckpt->tensors[t];
    if (atomic_fetch_sub(&d->users[t], 1) != 1)
        return;
    bool last = atomic_fetch_sub(&d->tensors[tensor->file], 1) == 1;
    if (last)
        tp_page_cache_drop(&d->cache, tensor->file, 0, d->plan->ckpt->files[tensor->file].size);
    else
        tp_page_cache_drop(&d->cache, tensor->file, tensor->offset, tensor->offset + tensor->bytes);
}

void tp_dropbehind_box(struct tp_dropbehind *d, uint32_t unit)
{
    if (d->plan && atomic_fetch_sub(&d->boxes[unit], 1) == 1)
        each_tensor(d->plan, &d->plan->units[unit], release, d);
}

void tp_dropbehind_copy(struct tp_dropbehind *d, const struct tp_tensor *tensor, uint64_t offset,
                        uint64_t size)
{
    tp_page_cache_drop(&d->cache, tensor->file, tensor->offset + offset,
                       tensor->offset + offset + size);
}

void tp_dropbehind_close(struct tp_dropbehind *d)
{
    tp_page_cache_close(&d->cache);
    free(d->boxes);
    free(d->users);
    free(d->tensors);
    *d = (struct tp_dropbehind){0};
}
