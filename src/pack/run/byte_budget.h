/* A counting semaphore over bytes: threads that need memory now and then share one budget of it,
 * and a thread waits until the others have given back enough. */
#ifndef TP_PACK_BYTE_BUDGET_H
#define TP_PACK_BYTE_BUDGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct tp_byte_budget {
    pthread_mutex_t lock;
    pthread_cond_t given;
    uint64_t max; /* bytes; set before there are threads */
    uint64_t taken;
    bool refused; /* a caller has asked for more than the whole */
};

void tp_byte_budget_open(struct tp_byte_budget *budget); /* of 0 bytes */
void tp_byte_budget_close(struct tp_byte_budget *budget);

/* Waits until so many bytes are free and takes them; the caller gives them back. False, at once, if
 * the whole is less than that. NULL stands for one without a limit. */
bool tp_byte_budget_acquire(struct tp_byte_budget *budget, uint64_t bytes);
void tp_byte_budget_release(struct tp_byte_budget *budget, uint64_t bytes);

#endif
