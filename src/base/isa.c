/* The processor is asked, and TILEPACK_DISABLE read, once: what is enabled never changes
 * while the program runs. */
#include "base/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static bool enabled[TP_ISA_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *tp_isa_name(enum tp_isa isa)
{
    static const char *const names[TP_ISA_COUNT] = {
        [TP_ISA_REF] = "ref",   [TP_ISA_AVX2] = "avx2", [TP_ISA_AVX512] = "avx512",
        [TP_ISA_NEON] = "neon", [TP_ISA_CUDA] = "cuda",
    };
    return (unsigned)isa < TP_ISA_COUNT ? names[isa] : "?";
}

/* True when `name` is one of the words of the comma list. */
static bool listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    while (list != NULL && *list != '\0') {
        size_t word = strcspn(list, ", ");
        if (word == length && strncmp(list, name, length) == 0)
            return true;
        list += word + strspn(list + word, ", ");
        if (word == 0 && *list == '\0')
            break;
    }
    return false;
}

static bool machine_has(enum tp_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == TP_ISA_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* and so F16C */
    if (isa == TP_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
               __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni");
#elif defined(__aarch64__)
    if (isa == TP_ISA_NEON)
        return true;
#endif
    /* Whether there is a device is for the device's own code to find out. */
    return isa == TP_ISA_REF || isa == TP_ISA_CUDA;
}

static void prepare(void)
{
    const char *disabled = getenv("TILEPACK_DISABLE");
    for (int isa = 0; isa < TP_ISA_COUNT; isa++)
        enabled[isa] = machine_has((enum tp_isa)isa) &&
                       (isa == TP_ISA_REF || !listed(disabled, tp_isa_name((enum tp_isa)isa)));
}

bool tp_isa_enabled(enum tp_isa isa)
{
    pthread_once(&once, prepare);
    return (unsigned)isa < TP_ISA_COUNT && enabled[isa];
}
