/* Shared memory by counting. Invariant: `taken` is never above `most`. */
#include "pack/run/room.h"

void tp_room_open(struct tp_room *room)
{
    *room = (struct tp_room){0};
    pthread_mutex_init(&room->lock, NULL);
    pthread_cond_init(&room->given, NULL);
}

void tp_room_close(struct tp_room *room)
{
    pthread_cond_destroy(&room->given);
    pthread_mutex_destroy(&room->lock);
}

bool tp_room_take(struct tp_room *room, uint64_t bytes)
{
    if (!room)
        return true;
    pthread_mutex_lock(&room->lock);
    bool fits = bytes <= room->most;
    room->refused |= !fits;
    while (fits && room->most - room->taken < bytes)
        pthread_cond_wait(&room->given, &room->lock);
    room->taken += fits ? bytes : 0;
    pthread_mutex_unlock(&room->lock);
    return fits;
}

void tp_room_give(struct tp_room *room, uint64_t bytes)
{
    if (!room)
        return;
    pthread_mutex_lock(&room->lock);
    room->taken -= bytes;
    pthread_cond_broadcast(&room->given);
    pthread_mutex_unlock(&room->lock);
}
