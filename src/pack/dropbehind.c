/* A tensor is dropped when the last of its units is done. Invariant: a stretch of
 * 1 MiB of which any page was cached at the start is never touched.
 */
#include "pack/dropbehind.h"

#include "base/num.h"
#include "pack/os.h"

#include <stdlib.h>

#define STRETCH (UINT64_C(1) << 20)
/* The cache holds pages together up to this size, and keeps them all when only some are
 * to go: so each time those before are asked for again. */
#define TOGETHER (UINT64_C(4) << 20)

static bool was_cached(const uint8_t *cached, uint64_t stretch)
{
    return cached[stretch / 8] >> stretch % 8 & 1;
}

/* One bit for each stretch of a file; NULL without a message when that cannot be known. */
static uint8_t *look(const struct tp_file *file)
{
    uint64_t stretches = tp_ceil_div(file->size, STRETCH);
    struct tp_err ignored = {0};
    uint8_t *cached = tp_os_zalloc((size_t)stretches / 8 + 1, 1, &ignored);
    for (uint64_t i = 0; cached && i < stretches; i++) {
        uint64_t size = tp_min_u64(STRETCH, file->size - i * STRETCH);
        int any = tp_os.cached(file->fd, (off_t)(i * STRETCH), (size_t)size);
        if (any < 0) {
            free(cached);
            return NULL;
        }
        cached[i / 8] |= (uint8_t)(any << i % 8);
    }
    return cached;
}

/* Calls visit for the tensors of a unit, each once for each part that names it first. */
static void each_tensor(const struct tp_plan *plan, const struct tp_unit *unit,
                        void (*visit)(struct tp_dropbehind *, uint32_t), struct tp_dropbehind *d)
{
    uint64_t parts = unit->box.e * unit->parts_per_expert;
    for (uint64_t p = 0; p < parts; p++) {
        uint32_t w = unit->parts[p].weight;
        bool seen = false; /* experts of a stack lie in the same tensors */
        for (uint64_t back = 1; back <= unit->parts_per_expert && back <= p && !seen; back++)
            seen = unit->parts[p - back].weight == w;
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
                                const struct tp_grid *grids, struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    *d = (struct tp_dropbehind){.plan = plan};
    d->cached = tp_os_zalloc(ckpt->file_count + 1, sizeof *d->cached, err);
    d->boxes = tp_os_zalloc(plan->unit_count + 1, sizeof *d->boxes, err);
    d->users = tp_os_zalloc(ckpt->tensor_count + 1, sizeof *d->users, err);
    d->tensors = tp_os_zalloc(ckpt->file_count + 1, sizeof *d->tensors, err);
    if (!d->cached || !d->boxes || !d->users || !d->tensors)
        return TP_E_MEMORY;
    for (size_t f = 0; f < ckpt->file_count; f++)
        if (!ckpt->files[f].zst) /* an archive is not read where its tensors are */
            d->cached[f] = look(&ckpt->files[f]);
    for (size_t u = 0; u < plan->unit_count; u++) {
        atomic_init(&d->boxes[u], (unsigned)grids[u].count);
        each_tensor(plan, &plan->units[u], add_user, d);
    }
    return TP_OK;
}

/* Drops the stretches of [begin, end) that were not cached, neighbours together. */
static void drop(struct tp_dropbehind *d, uint32_t f, uint64_t begin, uint64_t end)
{
    const struct tp_file *file = &d->plan->ckpt->files[f];
    const uint8_t *cached = d->cached[f];
    begin -= tp_min_u64(begin, TOGETHER);
    for (uint64_t at = begin, next; cached && at < end; at = next) {
        bool keep = was_cached(cached, at / STRETCH);
        next = at;
        while (next < end && was_cached(cached, next / STRETCH) == keep)
            next = tp_min_u64(next / STRETCH * STRETCH + STRETCH, end);
        if (!keep) /* to the end of the file with its last, incomplete page */
            tp_os.drop_cache(file->fd, (off_t)at, next == file->size ? 0 : (off_t)(next - at));
    }
}

static void release(struct tp_dropbehind *d, uint32_t t)
{
    const struct tp_tensor *tensor = &d->plan->ckpt->tensors[t];
    if (atomic_fetch_sub(&d->users[t], 1) != 1)
        return;
    bool last = atomic_fetch_sub(&d->tensors[tensor->file], 1) == 1;
    if (last)
        drop(d, tensor->file, 0, d->plan->ckpt->files[tensor->file].size);
    else
        drop(d, tensor->file, tensor->offset, tensor->offset + tensor->bytes);
}

void tp_dropbehind_box(struct tp_dropbehind *d, uint32_t unit)
{
    if (d->plan && atomic_fetch_sub(&d->boxes[unit], 1) == 1)
        each_tensor(d->plan, &d->plan->units[unit], release, d);
}

void tp_dropbehind_copy(struct tp_dropbehind *d, const struct tp_tensor *tensor, uint64_t offset,
                        uint64_t size)
{
    if (d->plan)
        drop(d, tensor->file, tensor->offset + offset, tensor->offset + offset + size);
}

void tp_dropbehind_close(struct tp_dropbehind *d)
{
    for (size_t f = 0; d->cached && f < d->plan->ckpt->file_count; f++) {
        drop(d, (uint32_t)f, 0, d->plan->ckpt->files[f].size); /* of a run that ended early too */
        free(d->cached[f]);
    }
    free(d->cached);
    free(d->boxes);
    free(d->users);
    free(d->tensors);
    *d = (struct tp_dropbehind){0};
}
