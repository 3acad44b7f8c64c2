/* One output file while it is written, and what is asked of the disk meanwhile. Inside of
 * sink_file.c and writeback.c.
 */
#ifndef TP_PACK_OPEN_FILE_H
#define TP_PACK_OPEN_FILE_H

#include "pack/sink/sink.h"

struct tp_open_file {
    pthread_mutex_t lock;
    char *path;
    int fd; /* -1: not open yet, failed, or finished */
    atomic_bool opened; /* or tried to */
    struct tp_err open_error; /* why it could not be opened */
    atomic_uint_fast64_t missing; /* bytes not written yet */
    struct tp_leafhash hash;
    struct tp_assembly assembly;
    struct tp_write_queue queue;
    struct tp_open_file *next_due; /* in the writeback's list */
    bool due;
};

void tp_writeback_open(struct tp_writeback *w, bool drop);
void tp_writeback_close(struct tp_writeback *w);

/* The disk should start on what this file has so far. Does not wait. */
void tp_writeback_request(struct tp_writeback *w, struct tp_open_file *file);

/* After this nothing is done to the file any more; before it is closed. */
void tp_writeback_end(struct tp_writeback *w, struct tp_open_file *file);

#endif
