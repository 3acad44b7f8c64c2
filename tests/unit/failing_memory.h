/* Memory that runs short once: of the allocations through tp_os and by jansson the one after the
 * next `count` fails, those behind it do not. For unit tests. */
#ifndef TP_TESTS_FAILING_MEMORY_H
#define TP_TESTS_FAILING_MEMORY_H

#include "pack/os/os.h"

#include <jansson.h>
#include <stdlib.h>

static struct tp_os failing_saved;
static long failing_left; /* allocations until the one that fails; below 0: it has failed */

static void *failing_malloc(size_t size)
{
    return failing_left-- ? failing_saved.malloc(size) : NULL;
}

static void *failing_calloc(size_t count, size_t size)
{
    return failing_left-- ? failing_saved.calloc(count, size) : NULL;
}

static void *failing_realloc(void *memory, size_t size)
{
    return failing_left-- ? failing_saved.realloc(memory, size) : NULL;
}

static void failing_begin(long count)
{
    failing_saved = tp_os;
    failing_left = count;
    tp_os.malloc = failing_malloc;
    tp_os.calloc = failing_calloc;
    tp_os.realloc = failing_realloc;
    json_set_alloc_funcs(failing_malloc, free);
}

static void failing_end(void)
{
    tp_os = failing_saved;
    json_set_alloc_funcs(malloc, free);
}

#endif
