/* Write queue: first come, first written. Invariant: while `writing` is set one worker
 * is in drain(), so that whatever is in the queue will be written or fail. After a
 * failure the queue is not touched: what is in it may be gone with those who lent it.
 */
#include "pack/sink/write_queue.h"

#include <string.h>

void tp_write_queue_open(struct tp_write_queue *q)
{
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->end = &q->first;
}

void tp_write_queue_close(struct tp_write_queue *q)
{
    if (!q->end)
        return;
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->changed);
    q->end = NULL;
}

static struct tp_write *take(struct tp_write_queue *q)
{
    struct tp_write *w = q->first;
    q->first = w->next;
    if (!q->first)
        q->end = &q->first;
    return w;
}

static void add(struct tp_write_queue *q, struct tp_write *w)
{
    w->next = NULL;
    *q->end = w;
    q->end = &w->next;
}

/* Called, and left, with the lock held. */
static void drain(struct tp_write_queue *q, tp_write_fn write, void *arg)
{
    struct tp_err failure = {0};
    q->writing = true;
    while (q->first && q->failure.code == TP_OK) {
        struct tp_write *w = take(q);
        bool lent = w->lent;
        pthread_mutex_unlock(&q->lock);
        enum tp_code code = write(arg, w, &failure);
        pthread_mutex_lock(&q->lock);
        if (code)
            q->failure = failure;
        else if (lent)
            w->written = true;
        if (code || lent)
            pthread_cond_broadcast(&q->changed);
    }
    q->writing = false;
}

enum tp_code tp_write_queue_put(struct tp_write_queue *q, struct tp_write *w, tp_write_fn write,
                                void *arg, struct tp_err *err)
{
    bool lent = w->lent;
    pthread_mutex_lock(&q->lock);
    if (q->failure.code == TP_OK) {
        add(q, w);
        if (!q->writing)
            drain(q, write, arg);
    }
    while (lent && !w->written && q->failure.code == TP_OK)
        pthread_cond_wait(&q->changed, &q->lock);
    bool done = lent && w->written;
    enum tp_code code = done ? TP_OK : q->failure.code;
    if (code && err && err->code == TP_OK)
        *err = q->failure;
    pthread_mutex_unlock(&q->lock);
    return code;
}
