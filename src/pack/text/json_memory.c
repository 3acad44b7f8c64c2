/* Counting failures, and leaving a reader in which an allocation failed.
 *
 * While a text is read its allocations are listed, so that all of them can be freed
 * when the reader is left by longjmp(). jansson holds no lock and no state besides
 * that memory. What is listed is limited: of a text of small values a tree takes twenty-five
 * times as much. Invariant: outside of tp_json_load() the list is empty.
 */
#include "pack/text/json_memory.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>

struct loading {
    bool on, beyond;
    jmp_buf out;
    uint64_t bytes, most; /* of the tree so far, and of any */
    void **items;
    size_t count, capacity;
};

static _Thread_local uint64_t failures;
static _Thread_local uint64_t beyond; /* the limit that the latest failure was about, or 0 */
static _Thread_local struct loading loading;

static _Noreturn void leave(void)
{
    loading.on = false;
    longjmp(loading.out, 1);
}

static void list(void *memory)
{
    if (loading.count == loading.capacity) {
        size_t capacity = loading.capacity ? 2 * loading.capacity : 256;
        void **items = tp_os.realloc(loading.items, capacity * sizeof *items);
        if (!items) {
            free(memory);
            failures++;
            leave();
        }
        loading.items = items;
        loading.capacity = capacity;
    }
    loading.items[loading.count++] = memory;
}

/* With its place in the list, and what the heap has around it. */
static uint64_t size_of(void *memory)
{
    return malloc_usable_size(memory) + sizeof memory + sizeof(size_t);
}

static void *allocate(size_t size)
{
    void *memory = tp_os.malloc(size);
    failures += !memory;
    if (loading.on && !memory)
        leave();
    if (loading.on) {
        list(memory);
        loading.bytes += size_of(memory);
        loading.beyond = loading.bytes > loading.most;
        if (loading.beyond)
            leave();
    }
    return memory;
}

static void release(void *memory)
{
    if (loading.on && memory) { /* what is freed was made just now, so the end is searched */
        size_t i = loading.count;
        while (i > 0 && loading.items[i - 1] != memory)
            i--;
        if (i > 0) {
            loading.items[i - 1] = loading.items[--loading.count];
            loading.bytes -= size_of(memory);
        }
    }
    free(memory);
}

static void set_allocator(void) { json_set_alloc_funcs(allocate, release); }

uint64_t tp_json_mark(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    return failures;
}

void tp_json_no_memory(void) { failures++; }

enum tp_code tp_json_check(uint64_t mark, enum tp_code code, struct tp_err *err)
{
    if (failures == mark || code == TP_E_MEMORY)
        return code;
    if (!err) /* who asks for the reason gets it */
        return TP_E_MEMORY;
    *err = (struct tp_err){0};
    uint64_t most = beyond;
    beyond = 0;
    if (most ? most < TP_JSON_MOST : tp_os_limit_met()) /* of what stands around a tree */
        return tp_os_fail_limit(err);
    if (most) {
        tp_err_hint(err, "this is not what its name says, or was made to fill the memory");
        return tp_fail(err, TP_E_MEMORY, "the values of this JSON take more than %llu MiB of "
                       "memory", (unsigned long long)(most >> 20));
    }
    tp_err_hint(err, "free memory or give the process more");
    return tp_fail(err, TP_E_MEMORY, "out of memory for JSON");
}

json_t *tp_json_load(const char *text, size_t size, size_t flags, json_error_t *where)
{
    static _Thread_local json_t *json; /* not in a register: it has to survive longjmp() */
    json_error_t ignored;
    json = NULL;
    tp_json_mark();
    loading.count = 0;
    loading.bytes = 0;
    loading.beyond = false;
    loading.most = tp_min_u64(TP_JSON_MOST + size, tp_os_heap_left());
    loading.on = true;
    if (setjmp(loading.out) == 0) {
        json = json_loadb(text, size, flags, where ? where : &ignored);
    } else {
        for (size_t i = 0; i < loading.count; i++)
            free(loading.items[i]);
        if (where)
            *where = (json_error_t){.line = 1, .text = "out of memory"};
        if (loading.beyond) {
            beyond = tp_max_u64(loading.most, 1);
            failures++;
        }
    }
    loading.on = false;
    free(loading.items);
    loading = (struct loading){.on = false};
    return json;
}
