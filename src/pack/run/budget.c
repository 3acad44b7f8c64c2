/* Memory by arithmetic: the shares of lanes and leaves, and when to drop behind. */
#include "pack/run/budget.h"

#include "base/num.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_MEMORY (UINT64_C(512) << 20)
#define PROGRAM (UINT64_C(16) << 20) /* code, libraries, stacks, and what the heap wastes */
#define LEAST (UINT64_C(4) << 20)

/* Bytes that the heap has taken from the system. */
static uint64_t heap_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
    return info.arena + info.hblkhd;
#else
    return 0;
#endif
}

static uint64_t cache_limit(void)
{
    const char *text = getenv("TILEPACK_CACHE");
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    if (text && *text)
        return strtoull(text, NULL, 10);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : UINT64_MAX;
}

bool tp_budget_too_large(uint64_t bytes)
{
    return bytes > cache_limit();
}

struct tp_budget tp_budget_run(const struct tp_plan *plan, struct tp_run_options *run)
{
    bool gpu = run->devices != NULL;
    uint64_t most = run->memory ? run->memory : DEFAULT_MEMORY, used = heap_bytes() + PROGRAM;
    uint64_t rest = tp_max_u64(most > used ? most - used : 0, LEAST), files;
    run->memory = gpu ? rest / 4 : rest / 2;
    run->drop_source = !tp_add_u64(&files, plan->bytes_in, plan->bytes_out) ||
                       tp_budget_too_large(files);
    return (struct tp_budget){.leaves = gpu ? rest / 2 : rest / 4, .drop = run->drop_source};
}
