/* Shared memory by counting. Invariant: `taken` is never above `max`. */
#include "pack/run/byte_budget.h"

void tp_byte_budget_open(struct tp_byte_budget *budget)
{
    *budget = (struct tp_byte_budget){0};
    pthread_mutex_init(&budget->lock, NULL);
    pthread_cond_init(&budget->given, NULL);
}

void tp_byte_budget_close(struct tp_byte_budget *budget)
{
    pthread_cond_destroy(&budget->given);
    pthread_mutex_destroy(&budget->lock);
}

bool tp_byte_budget_acquire(struct tp_byte_budget *budget, uint64_t bytes)
{
    if (!budget)
        return true;
    pthread_mutex_lock(&budget->lock);
    bool fits = bytes <= budget->max;
    budget->refused |= !fits;
    while (fits && budget->max - budget->taken < bytes)
        pthread_cond_wait(&budget->given, &budget->lock);
    budget->taken += fits ? bytes : 0;
    pthread_mutex_unlock(&budget->lock);
    return fits;
}

void tp_byte_budget_release(struct tp_byte_budget *budget, uint64_t bytes)
{
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    budget->taken -= bytes;
    pthread_cond_broadcast(&budget->given);
    pthread_mutex_unlock(&budget->lock);
}
