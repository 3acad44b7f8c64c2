/* Threads take files, one after the other. */
#include "pack/source/source_sums.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>

enum { CHUNK = 256 * TP_SUM_BLOCK, MAX_THREADS = 64 };

struct reading {
    const struct tp_checkpoint *ckpt;
    const struct tp_sum_options *options;
    struct tp_sum *sums;
    _Atomic uint32_t next; /* file */
    pthread_mutex_t lock;
    struct tp_err err; /* the first failure */
};

static bool goes_on(struct reading *r)
{
    int signal = r->options->stop ? atomic_load(r->options->stop) : 0;
    pthread_mutex_lock(&r->lock);
    if (signal)
        tp_fail(&r->err, signal == 2 ? TP_E_INTERRUPT : TP_E_TERMINATE, "interrupted");
    bool on = r->err.code == TP_OK;
    pthread_mutex_unlock(&r->lock);
    return on;
}

static enum tp_code read_tensor(struct reading *r, const struct tp_tensor *tensor, uint8_t *data,
                                struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint64_t at = 0; at < tensor->bytes && code == TP_OK && goes_on(r); at += CHUNK) {
        uint64_t size = tp_min_u64(CHUNK, tensor->bytes - at);
        code = tp_checkpoint_read(r->ckpt, tensor->file, data, size, tensor->offset + at, err);
        if (code == TP_OK)
            tp_sum_add(&r->sums[tensor->file], data, size, tensor->offset + at);
        if (code == TP_OK && r->options->progress)
            r->options->progress(r->options->progress_arg, size, tensor->name);
    }
    return code;
}

static void *read_files(void *arg)
{
    struct reading *r = arg;
    const struct tp_checkpoint *ckpt = r->ckpt;
    struct tp_err err = {0};
    uint8_t *data = tp_os_alloc(CHUNK, &err);
    for (uint32_t f; data && (f = atomic_fetch_add(&r->next, 1)) < ckpt->file_count;)
        for (size_t i = 0; i < ckpt->tensor_count && err.code == TP_OK; i++)
            if (ckpt->tensors[ckpt->by_data[i]].file == f)
                read_tensor(r, &ckpt->tensors[ckpt->by_data[i]], data, &err);
    free(data);
    pthread_mutex_lock(&r->lock);
    if (r->err.code == TP_OK)
        r->err = err;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum tp_code tp_source_sums(const struct tp_checkpoint *ckpt,
                            const struct tp_sum_options *options, struct tp_sum *sums,
                            struct tp_err *err)
{
    struct reading r = {.ckpt = ckpt, .options = options, .sums = sums};
    pthread_t threads[MAX_THREADS];
    unsigned started = 0;
    for (size_t f = 0; f < ckpt->file_count; f++)
        sums[f] = (struct tp_sum){0, 0};
    pthread_mutex_init(&r.lock, NULL);
    while (started + 1 < options->jobs && started < MAX_THREADS && started + 1 < ckpt->file_count &&
           tp_os.start_thread(&threads[started], read_files, &r) == 0)
        started++;
    read_files(&r);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&r.lock);
    if (r.err.code && err && err->code == TP_OK)
        *err = r.err;
    return r.err.code;
}
