/* Writeback: one thread per sink that hands written pages to the disk.
 *
 * The call waits whenever the disk's queue is full; as it has a thread of its own, no
 * worker waits with it. Everything here is a hint: without the thread the calls are made by
 * the workers, and without the calls the fsync at the end waits longer. Invariant:
 * the thread touches no file after tp_writeback_end() returned for it.
 */
#include "pack/sink/open_file.h"

#include "pack/os/os.h"

/* With `drop` also: pages that are on the disk leave the page cache. */
static void start(const struct tp_writeback *w, const struct tp_open_file *file)
{
    tp_os.start_writeback(file->fd);
    if (w->drop)
        tp_os.drop_cache(file->fd, 0, 0);
}

static void *serve(void *arg)
{
    struct tp_writeback *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        if (!w->first) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        struct tp_open_file *file = w->first;
        w->first = file->next_due;
        file->due = false;
        w->busy = file;
        pthread_mutex_unlock(&w->lock);
        start(w, file);
        pthread_mutex_lock(&w->lock);
        w->busy = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void tp_writeback_open(struct tp_writeback *w, bool drop)
{
    *w = (struct tp_writeback){.drop = drop};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
}

void tp_writeback_close(struct tp_writeback *w)
{
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->started)
        pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

void tp_writeback_request(struct tp_writeback *w, struct tp_open_file *file)
{
    pthread_mutex_lock(&w->lock);
    if (!w->started)
        w->started = tp_os.start_thread(&w->thread, serve, w) == 0;
    bool alone = !w->started;
    if (!alone && !file->due) {
        file->due = true;
        file->next_due = w->first;
        w->first = file;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    if (alone)
        start(w, file);
}

void tp_writeback_end(struct tp_writeback *w, struct tp_open_file *file)
{
    pthread_mutex_lock(&w->lock);
    for (struct tp_open_file **at = &w->first; file->due; at = &(*at)->next_due)
        if (*at == file) {
            *at = file->next_due;
            file->due = false;
        }
    while (w->busy == file)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
