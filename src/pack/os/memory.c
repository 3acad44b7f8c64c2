/* Memory: what is allocated, grown and copied, below a ceiling that the whole process has.
 *
 * Knows no system call but those of the heap. Invariant: what fails leaves what was there as it
 * was, and says how much was asked for.
 */
#include "pack/os/os.h"

#include "base/num.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t tp_os_heap_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
    return info.arena + info.hblkhd;
#else
    return 0;
#endif
}

static uint64_t ceiling; /* 0: none. Set before there are threads. */

void tp_os_limit_heap(uint64_t max)
{
    ceiling = max;
#ifdef M_MMAP_THRESHOLD
    enum { LARGE = 256 << 10 }; /* set by hand, it does not rise */
    mallopt(M_MMAP_THRESHOLD, LARGE);
#endif
}

uint64_t tp_os_heap_left(void)
{
    uint64_t used = ceiling ? tp_os_heap_bytes() : 0;
    return !ceiling ? UINT64_MAX : used < ceiling ? ceiling - used : 0;
}

/* Asking what the heap holds takes a while: only where much is asked for, or has been since. */
static bool is_refused(uint64_t more)
{
    enum { MUCH = 256 << 10 };
    static _Atomic uint64_t unseen;
    if (!ceiling || (more < MUCH && atomic_fetch_add(&unseen, more) + more < MUCH))
        return false;
    atomic_store(&unseen, 0);
    return more > tp_os_heap_left();
}

enum tp_code tp_os_fail_limit(struct tp_err *err)
{
    return tp_fail(err, TP_E_MEMORY, "more memory is needed: --max-memory");
}

static enum tp_code fail_memory(struct tp_err *err, uint64_t size)
{
    if (size > tp_os_heap_left())
        return tp_os_fail_limit(err);
    enum tp_code code =
        tp_fail(err, TP_E_MEMORY, "out of memory (%llu bytes asked for)", (unsigned long long)size);
    tp_err_hint(err, "free memory or give the process more");
    return code;
}

void *tp_os_alloc(size_t size, struct tp_err *err)
{
    void *memory = is_refused(size) ? NULL : tp_os.malloc(size ? size : 1);
    if (!memory)
        fail_memory(err, size);
    return memory;
}

void *tp_os_zalloc(size_t count, size_t size, struct tp_err *err)
{
    uint64_t bytes;
    bool fits = tp_mul_u64(&bytes, count, size) && bytes <= PTRDIFF_MAX;
    void *memory =
        fits && !is_refused(bytes) ? tp_os.calloc(count ? count : 1, size ? size : 1) : NULL;
    if (!memory)
        fail_memory(err, fits ? bytes : UINT64_MAX);
    return memory;
}

enum tp_code tp_os_grow(void **items, size_t *capacity, size_t need, size_t size,
                        struct tp_err *err)
{
    if (need <= *capacity)
        return TP_OK;
    enum { LARGE = 4 << 20 }; /* grows where it is, page by page */
    uint64_t items_wanted, bytes, more = *capacity >= LARGE / size ? *capacity / 8 : *capacity;
    if (!tp_add_u64(&items_wanted, *capacity, more))
        items_wanted = need;
    items_wanted = tp_max_u64(tp_max_u64(items_wanted, need), 8);
    if (!tp_mul_u64(&bytes, items_wanted, size) || bytes > PTRDIFF_MAX)
        return fail_memory(err, UINT64_MAX);
    void *grown = is_refused(bytes - *capacity * size) ? NULL
                                                       : tp_os.realloc(*items, (size_t)bytes);
    if (!grown)
        return fail_memory(err, bytes - *capacity * size);
    *items = grown;
    *capacity = (size_t)items_wanted;
    return TP_OK;
}

char *tp_os_join(struct tp_err *err, const char *text, size_t size, const char *end)
{
    size_t more = strlen(end) + 1;
    char *joined = tp_os_alloc(size + more, err);
    if (!joined)
        return NULL;
    memcpy(joined, text, size);
    memcpy(joined + size, end, more);
    return joined;
}

char *tp_os_copy(struct tp_err *err, const char *text)
{
    return tp_os_join(err, text, strlen(text), "");
}

char *tp_os_format(struct tp_err *err, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = length < 0 ? NULL : tp_os_alloc((size_t)length + 1, err);
    if (text)
        vsnprintf(text, (size_t)length + 1, fmt, again);
    else
        tp_fail(err, TP_E_MEMORY, "out of memory");
    va_end(again);
    return text;
}
