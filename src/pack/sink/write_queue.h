/* Write queue: of all workers that bring something for one file, one writes, and takes
 * along what the others bring meanwhile.
 *
 * The kernel lets one writer into a file at a time. Workers that wait for its lock
 * spin, and a lock that goes from worker to worker waits for each to wake up; a worker
 * that stays writing does neither. Knows no files: how to write is the caller's.
 */
#ifndef TP_PACK_WRITE_QUEUE_H
#define TP_PACK_WRITE_QUEUE_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>

struct tp_write {
    struct tp_write *next;
    const void *data;
    uint64_t offset, size;
    bool lent; /* the thread that brought it waits until it is written */
    bool written;
};

struct tp_write_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tp_write *first, **end;
    bool writing;
    struct tp_err failure; /* the first: nothing is written after it */
};

void tp_write_queue_open(struct tp_write_queue *q);
void tp_write_queue_close(struct tp_write_queue *q); /* legal on {0} */

/* Writes `w`. One that is not lent is not touched any more when it returns, and may have
 * been released. */
typedef enum tp_code (*tp_write_fn)(void *arg, struct tp_write *w, struct tp_err *err);

/* Puts `w` into the queue, and writes all that is there unless another worker is doing
 * so; returns then, or for one that is lent when it is written. After a failure everybody
 * gets that failure. The same `write` for all of a queue. */
enum tp_code tp_write_queue_put(struct tp_write_queue *q, struct tp_write *w, tp_write_fn write,
                                void *arg, struct tp_err *err);

#endif
