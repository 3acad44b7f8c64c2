/* Threads take pieces of tensors, one after the other. Invariant: a piece begins and ends with
 * blocks of the sum. */
#include "pack/source/source_sums.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>

enum { PIECE = 256 * TP_SUM_BLOCK, MAX_THREADS = 64 };

struct reading {
    const struct tp_checkpoint *ckpt;
    uint32_t file;
    const struct tp_sum_options *options;
    pthread_mutex_t lock; /* of all below */
    size_t next;          /* in ckpt->by_data: the tensor whose next piece is at `at` */
    uint64_t at;
    struct tp_sum sum;
    struct tp_err err;
};

/* Under the lock. */
static bool stopped(struct reading *r)
{
    int signal = r->options->stop ? atomic_load(r->options->stop) : 0;
    if (signal)
        tp_fail(&r->err, signal == 2 ? TP_E_INTERRUPT : TP_E_TERMINATE, "interrupted");
    return r->err.code != TP_OK;
}

/* The next piece; NULL: there is none. */
static const struct tp_tensor *take(struct reading *r, uint64_t *at)
{
    const struct tp_tensor *tensor = NULL;
    pthread_mutex_lock(&r->lock);
    while (!stopped(r) && !tensor && r->next < r->ckpt->tensor_count) {
        tensor = &r->ckpt->tensors[r->ckpt->by_data[r->next]];
        if (tensor->file != r->file) {
            tensor = NULL;
            break;
        }
        *at = r->at;
        r->at += PIECE;
        if (r->at >= tensor->bytes) {
            r->at = 0;
            r->next++;
        }
        if (*at >= tensor->bytes) /* an empty one */
            tensor = NULL;
    }
    pthread_mutex_unlock(&r->lock);
    return tensor;
}

static void *read_pieces(void *arg)
{
    struct reading *r = arg;
    struct tp_sum sum = {0, 0};
    struct tp_err err = {0};
    const struct tp_tensor *tensor;
    uint64_t at;
    uint8_t *data = tp_os_alloc(PIECE, &err);
    enum tp_code code = data ? TP_OK : TP_E_MEMORY;
    while (code == TP_OK && (tensor = take(r, &at))) {
        uint64_t size = tp_min_u64(PIECE, tensor->bytes - at);
        code = tp_checkpoint_read(r->ckpt, r->file, data, size, tensor->offset + at, &err);
        if (code)
            break;
        tp_sum_add(&sum, data, size, tensor->offset + at);
        if (r->options->progress)
            r->options->progress(r->options->progress_arg, size, tensor->name);
    }
    free(data);
    pthread_mutex_lock(&r->lock);
    r->sum.a += sum.a;
    r->sum.b += sum.b;
    if (code && r->err.code == TP_OK)
        r->err = err;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum tp_code tp_source_sum(const struct tp_checkpoint *ckpt, uint32_t f,
                           const struct tp_sum_options *options, struct tp_sum *sum,
                           struct tp_err *err)
{
    struct reading r = {.ckpt = ckpt, .file = f, .options = options,
                        .next = tp_checkpoint_behind(ckpt, f, 0)};
    pthread_t threads[MAX_THREADS];
    unsigned started = 0;
    pthread_mutex_init(&r.lock, NULL);
    while (started + 1 < options->jobs && started < MAX_THREADS &&
           tp_os.start_thread(&threads[started], read_pieces, &r) == 0)
        started++;
    read_pieces(&r);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&r.lock);
    if (r.err.code && err && err->code == TP_OK)
        *err = r.err;
    *sum = r.sum;
    return r.err.code;
}
