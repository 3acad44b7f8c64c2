/* Threads that take the next item until there is none. */
#include "pack/os/threads.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <signal.h>
#include <stdlib.h>

enum { MAX_THREADS = 64 };

struct team {
    const struct tp_each *each;
    _Atomic uint64_t next;
    pthread_mutex_t lock; /* of err */
    struct tp_err err;    /* the first failure */
};

static void *work(void *arg)
{
    struct team *team = arg;
    const struct tp_each *each = team->each;
    struct tp_err err = {0};
    void *own = tp_os_zalloc(1, each->own, &err);
    enum tp_code code = err.code;
    uint64_t i;
    while (!code && !(code = tp_stopped(each->stop, &err)) &&
           (i = atomic_fetch_add(&team->next, 1)) < each->count)
        code = each->one(each->arg, own, i, &err);
    if (own && each->close)
        each->close(own);
    free(own);
    if (code) {
        err.code = code;
        atomic_store(&team->next, each->count); /* the others end too */
        pthread_mutex_lock(&team->lock);
        if (team->err.code == TP_OK)
            team->err = err;
        pthread_mutex_unlock(&team->lock);
    }
    return NULL;
}

enum tp_code tp_each(const struct tp_each *each, struct tp_err *err)
{
    struct team team = {.each = each};
    pthread_t others[MAX_THREADS];
    unsigned started = 0;
    uint64_t want = tp_min_u64(tp_min_u64(each->threads, MAX_THREADS), each->count);
    pthread_mutex_init(&team.lock, NULL);
    while (started + 1 < want && tp_os.start_thread(&others[started], work, &team) == 0)
        started++;
    work(&team);
    for (unsigned i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    pthread_mutex_destroy(&team.lock);
    if (team.err.code && err && err->code == TP_OK)
        *err = team.err;
    return team.err.code;
}

enum tp_code tp_stopped(atomic_int *stop, struct tp_err *err)
{
    int number = stop ? atomic_load(stop) : 0;
    return !number ? TP_OK
                   : tp_fail(err, number == SIGINT ? TP_E_INTERRUPT : TP_E_TERMINATE,
                             "interrupted");
}
