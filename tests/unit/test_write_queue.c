/* The write queue: every write is made once, never two at a time, the lent ones before
 * their worker goes on; after a failure nothing is written and everybody hears of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/sink/write_queue.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { WORKERS = 4, EACH = 3000, WRITES = WORKERS * EACH };

struct world {
    struct tp_write_queue queue;
    struct tp_write writes[WRITES];
    atomic_int times[WRITES]; /* how often each was written */
    atomic_int inside;        /* workers that are writing */
    atomic_bool two;          /* there were two of them */
    int fails_at;             /* the number of the write that fails, or -1 */
    int order;                /* writes made */
    atomic_int refused;       /* workers that were told of the failure */
    atomic_int late;          /* writes after the failure */
    atomic_bool wrong_error;
    bool lend_all;
};

static enum tp_code write_one(void *arg, struct tp_write *w, struct tp_err *err)
{
    struct world *world = arg;
    if (atomic_fetch_add(&world->inside, 1) > 0)
        world->two = true;
    if (world->fails_at >= 0 && world->order > world->fails_at)
        world->late++;
    atomic_fetch_add(&world->times[w - world->writes], 1);
    if (w->offset % 16 == 0)
        sched_yield(); /* lets others come meanwhile */
    atomic_fetch_sub(&world->inside, 1);
    return world->order++ == world->fails_at ? tp_fail(err, TP_E_IO, "the disk is full") : TP_OK;
}

struct worker {
    struct world *world;
    int first;
    pthread_t thread;
    bool missed; /* a lent write came back unwritten */
};

static void *bring(void *arg)
{
    struct worker *worker = arg;
    struct world *world = worker->world;
    for (int i = worker->first; i < worker->first + EACH; i++) {
        bool lent = world->lend_all || i % 3 == 0;
        struct tp_err err = {0};
        world->writes[i] = (struct tp_write){.offset = (uint64_t)i, .lent = lent};
        enum tp_code code =
            tp_write_queue_put(&world->queue, &world->writes[i], write_one, world, &err);
        if (code) {
            if (code != TP_E_IO || strcmp(err.what, "the disk is full") != 0)
                world->wrong_error = true;
            world->refused++;
            break;
        }
        if (lent && world->times[i] != 1)
            worker->missed = true;
    }
    return NULL;
}

static void run(struct world *world)
{
    struct worker workers[WORKERS];
    tp_write_queue_open(&world->queue);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.world = world, .first = i * EACH};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, bring, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_false(workers[i].missed);
    }
    assert_false(world->two);
    assert_false(world->wrong_error);
    tp_write_queue_close(&world->queue);
}

static struct world world;

static void every_write_is_made_once(void **state)
{
    (void)state;
    world = (struct world){.fails_at = -1};
    run(&world);
    for (int i = 0; i < WRITES; i++)
        assert_int_equal(world.times[i], 1);
    assert_int_equal(world.refused, 0);
}

static void a_failure_reaches_everybody(void **state)
{
    (void)state;
    for (int at = 0; at < 200; at += 7) {
        world = (struct world){.fails_at = at, .lend_all = at % 2 == 0};
        run(&world);
        assert_int_equal(world.order, at + 1);
        assert_int_equal(world.late, 0);
        assert_int_equal(world.refused, WORKERS);
    }
}

/* Fails once something else waits in the queue. */
static enum tp_code fail_when_another_waits(void *arg, struct tp_write *w, struct tp_err *err)
{
    struct tp_write_queue *queue = arg;
    bool waits = false;
    (void)w;
    while (!waits) {
        sched_yield();
        pthread_mutex_lock(&queue->lock);
        waits = queue->first != NULL;
        pthread_mutex_unlock(&queue->lock);
    }
    return tp_fail(err, TP_E_IO, "the disk is full");
}

static void *put_and_fail(void *arg)
{
    struct tp_err err = {0};
    struct tp_write own = {.lent = true};
    assert_int_equal(tp_write_queue_put(arg, &own, fail_when_another_waits, arg, &err), TP_E_IO);
    return NULL;
}

/* What waited and was refused is its owner's again, who may have put something else there. */
static void what_was_refused_is_left_alone(void **state)
{
    (void)state;
    struct tp_write_queue queue;
    struct tp_err err = {0};
    struct tp_write refused = {.lent = true}, late = {.lent = true}, other;
    pthread_t thread;
    tp_write_queue_open(&queue);
    assert_int_equal(pthread_create(&thread, NULL, put_and_fail, &queue), 0);
    for (bool busy = false; !busy; sched_yield()) {
        pthread_mutex_lock(&queue.lock);
        busy = queue.writing;
        pthread_mutex_unlock(&queue.lock);
    }
    assert_int_equal(tp_write_queue_put(&queue, &refused, fail_when_another_waits, &queue, &err),
                     TP_E_IO);
    pthread_join(thread, NULL);
    memset(&other, 0x55, sizeof other);
    refused = other;
    assert_int_equal(tp_write_queue_put(&queue, &late, fail_when_another_waits, &queue, &err),
                     TP_E_IO);
    assert_memory_equal(&refused, &other, sizeof other);
    tp_write_queue_close(&queue);
}

static void closing_nothing_is_legal(void **state)
{
    (void)state;
    struct tp_write_queue queue = {0};
    tp_write_queue_close(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_write_is_made_once),
        cmocka_unit_test(a_failure_reaches_everybody),
        cmocka_unit_test(what_was_refused_is_left_alone),
        cmocka_unit_test(closing_nothing_is_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
