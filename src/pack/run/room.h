/* Memory that several threads share for what they do now and then: whoever needs some of it waits
 * until the others have given enough back. */
#ifndef TP_PACK_ROOM_H
#define TP_PACK_ROOM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct tp_room {
    pthread_mutex_t lock;
    pthread_cond_t given;
    uint64_t most; /* bytes; set before there are threads */
    uint64_t taken;
    bool refused; /* somebody has asked for more than there is */
};

void tp_room_open(struct tp_room *room); /* of 0 bytes */
void tp_room_close(struct tp_room *room);

/* Waits for so many bytes, which are then given back by whoever took them. False, at once: there
 * never are as many. A room that is NULL has no end. */
bool tp_room_take(struct tp_room *room, uint64_t bytes);
void tp_room_give(struct tp_room *room, uint64_t bytes);

#endif
