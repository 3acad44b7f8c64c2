/* Shares of one plan: which part writes which shard. Pure arithmetic. */
#include "pack/commit/parts.h"

#include "pack/os/os.h"
#include "pack/run/run.h"

#include <stdlib.h>
#include <string.h>

struct sized {
    uint64_t size;
    uint32_t file;
};

static int largest_first(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

enum tp_code tp_parts_assign(const struct tp_plan *plan, unsigned count, unsigned *owner,
                             struct tp_err *err)
{
    /* More parts than files: the first ones get one each, the others nothing. */
    size_t used = count < plan->file_count ? count : plan->file_count;
    struct sized *files = tp_os_zalloc(plan->file_count + 1, sizeof *files, err);
    uint64_t *load = tp_os_zalloc(used + 1, sizeof *load, err);
    enum tp_code code = files && load ? TP_OK : TP_E_MEMORY;
    for (uint32_t f = 0; f < plan->file_count && code == TP_OK; f++)
        files[f] = (struct sized){plan->files[f].size, f};
    if (code == TP_OK)
        qsort(files, plan->file_count, sizeof *files, largest_first);
    for (size_t i = 0; i < plan->file_count && code == TP_OK; i++) {
        size_t least = 0;
        for (size_t p = 1; p < used; p++)
            if (load[p] < load[least])
                least = p;
        load[least] += files[i].size;
        owner[files[i].file] = (unsigned)least + 1;
    }
    free(files);
    free(load);
    return code;
}

enum tp_code tp_share_work(const struct tp_plan *plan, struct tp_share share,
                           struct tp_share_work *work, struct tp_err *err)
{
    unsigned *owner = tp_os_zalloc(plan->file_count + 1, sizeof *owner, err);
    enum tp_code code = owner ? tp_parts_assign(plan, share.count, owner, err) : TP_E_MEMORY;
    memset(work, 0, sizeof *work);
    for (size_t f = 0; f < plan->file_count && code == TP_OK; f++)
        if (owner[f] == share.index) {
            work->shards++;
            work->bytes_out += plan->files[f].size;
        }
    bool *mine = code ? NULL : tp_os_zalloc(plan->file_count + 1, sizeof *mine, err);
    for (size_t f = 0; f < plan->file_count && mine; f++)
        mine[f] = owner[f] == share.index;
    if (mine)
        work->bytes_in = tp_run_work(plan, mine);
    else if (code == TP_OK)
        code = TP_E_MEMORY;
    free(mine);
    free(owner);
    return code;
}
