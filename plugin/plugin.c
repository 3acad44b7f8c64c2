/* The plug-in: device, memory, copies, the comparison of results, and the FP8 GEMM. Schedules of
 * W4A8 are in a table that the build makes of those it compiled (prove.mk), or in none. */
#include "pack/prove/tilepack_prove.h"

#include "base/num.h"
#include "fp8_run.h"
#include "gpu.h"
#include "jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct tilepack_prove_kernel *const tilepack_prove_table[];
extern const uint32_t tilepack_prove_table_count;

static struct {
    int device;
    bool open;
    void *module, *differences; /* compiled when they are first asked for */
} plugin;

/* What went wrong in one line, and its code. */
static int answer(const struct tp_err *err, char *message, size_t size)
{
    if (err->code)
        snprintf(message, size, "%s%s%s", err->what, *err->hint ? "; " : "", err->hint);
    return (int)err->code;
}

static gpu_address address(const void *memory)
{
    return (gpu_address)(uintptr_t)memory;
}

/* ---- the device ----------------------------------------------------------------------- */

static enum tp_code find_device(uint32_t index, struct tp_err *err)
{
    int count = 0;
    enum tp_code code = gpu_load(err);
    if (code || (code = gpu_check(gpu.init(0), "no GPU is usable", err)) ||
        (code = gpu_check(gpu.device_count(&count), "no GPU is usable", err)))
        return code;
    if (index >= (uint32_t)count)
        return tp_fail(err, TP_E_MEMORY, "no GPU is usable: there is none of that number");
    if ((code = gpu_check(gpu.device_get(&plugin.device, (int)index), "no GPU is usable", err)))
        return code;
    void *context = NULL;
    code = gpu_check(gpu.context_retain(&context, plugin.device), "no GPU is usable", err);
    plugin.open = code == TP_OK;
    return code ? code : gpu_check(gpu.context_set(context), "no GPU is usable", err);
}

static enum tp_code describe(struct tilepack_prove_device *device, struct tp_err *err)
{
    int values[4] = {0};
    static const int attributes[] = {GPU_MAJOR, GPU_MINOR, GPU_SMS, GPU_CACHE_BYTES};
    size_t left = 0, all = 0;
    enum tp_code code = gpu_check(gpu.device_name(device->name, sizeof device->name,
                                                  plugin.device), "no GPU is usable", err);
    for (size_t i = 0; i < 4 && code == TP_OK; i++)
        code = gpu_check(gpu.device_attribute(&values[i], attributes[i], plugin.device),
                         "no GPU is usable", err);
    if (code || (code = gpu_check(gpu.memory_info(&left, &all), "no GPU is usable", err)))
        return code;
    device->major = (uint32_t)values[0];
    device->minor = (uint32_t)values[1];
    device->sms = (uint32_t)values[2];
    device->cache_bytes = (uint64_t)values[3];
    device->free_bytes = left;
    return TP_OK;
}

static int open_device(uint32_t index, struct tilepack_prove_device *device, char *message,
                       size_t size)
{
    struct tp_err err = {0};
    if (find_device(index, &err) == TP_OK)
        describe(device, &err);
    return answer(&err, message, size);
}

static void close_device(void)
{
    fp8_run_close();
    if (plugin.module)
        gpu.module_unload(plugin.module);
    plugin.module = NULL;
    if (plugin.open)
        gpu.context_release(plugin.device);
    plugin.open = false;
}

/* ---- memory --------------------------------------------------------------------------- */

static void *take(uint64_t bytes)
{
    gpu_address memory = 0;
    return gpu.alloc(&memory, bytes ? bytes : 1) ? NULL : (void *)(uintptr_t)memory;
}

static void release(void *memory)
{
    if (memory)
        gpu.release(address(memory));
}

static int upload(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    struct tp_err err = {0};
    gpu_check(gpu.upload(address(to), from, bytes), "a copy to the device", &err);
    return answer(&err, message, size);
}

static int download(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    struct tp_err err = {0};
    gpu_check(gpu.download(to, address(from), bytes), "a copy from the device", &err);
    return answer(&err, message, size);
}

static int copy(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    struct tp_err err = {0};
    gpu_check(gpu.copy(address(to), address(from), bytes), "a copy on the device", &err);
    return answer(&err, message, size);
}

static int fill(void *to, int byte, uint64_t bytes, char *message, size_t size)
{
    struct tp_err err = {0};
    if (gpu_check(gpu.fill(address(to), (unsigned char)byte, bytes), "the device", &err) == TP_OK)
        gpu_check(gpu.synchronize(), "the device", &err);
    return answer(&err, message, size);
}

/* ---- the comparison ------------------------------------------------------------------- */

static enum tp_code load_differences(struct tp_err *err)
{
    struct jit_image image;
    if (plugin.module)
        return TP_OK;
    enum tp_code code = jit_make(jit_text("differences.cu"), "differences.cu", JIT_CODE, &image,
                                 err);
    if (code == TP_OK)
        code = jit_load(&image, &plugin.module, "loading the comparison", err);
    if (code == TP_OK)
        code = gpu_check(gpu.function_get(&plugin.differences, plugin.module, "differences"),
                         "the comparison", err);
    free(image.data);
    return code;
}

static enum tp_code count_differences(const void *expected, const void *got, uint64_t count,
                                      gpu_address to, uint64_t found[2], struct tp_err *err)
{
    void *arguments[] = {&expected, &got, &count, &to};
    const struct gpu_launch launch = {.grid = {2048, 1, 1}, .block = {256, 1, 1}};
    enum tp_code code = gpu_check(gpu.upload(to, found, 16), "the comparison", err);
    if (code || (code = gpu_check(gpu.launch(&launch, plugin.differences, arguments, NULL),
                                  "the comparison", err)))
        return code;
    return gpu_check(gpu.download(found, to, 16), "the comparison", err);
}

static int compare(const void *expected, const void *got, uint64_t count, uint64_t *differing,
                   uint64_t *first, char *message, size_t size)
{
    struct tp_err err = {0};
    uint64_t found[2] = {0, UINT64_MAX};
    gpu_address to = 0;
    if (load_differences(&err) == TP_OK &&
        gpu_check(gpu.alloc(&to, sizeof found), "the comparison", &err) == TP_OK) {
        count_differences(expected, got, count, to, found, &err);
        gpu.release(to);
    }
    *differing = found[0];
    *first = found[1];
    return answer(&err, message, size);
}

/* ---- the FP8 GEMM --------------------------------------------------------------------- */

static int fp8_can_run(const struct tp_sched_config *config,
                       const struct tilepack_prove_problem *problem, char *message, size_t size)
{
    struct tp_err err = {0};
    struct fp8_problem p = fp8_problem_of(problem);
    fp8_check(config, &p, &err);
    return answer(&err, message, size);
}

static int fp8_run_sets(const struct tp_sched_config *config,
                        const struct tilepack_prove_problem *problem,
                        const struct tilepack_prove_operands *sets, size_t set_count,
                        uint32_t rounds, uint32_t launches, double *microseconds, char *message,
                        size_t size)
{
    struct tp_err err = {0};
    struct fp8_times times = {rounds, launches, microseconds};
    fp8_run(config, problem, sets, set_count, &times, &err);
    return answer(&err, message, size);
}

__attribute__((visibility("default"))) const struct tilepack_prove_plugin *
tilepack_prove_plugin(void)
{
    static struct tilepack_prove_plugin table = {
        .abi = TILEPACK_PROVE_ABI, .kernel = tilepack_prove_table, .built = "",
        .fp8_can_run = fp8_can_run, .fp8_run = fp8_run_sets, .open = open_device,
        .close = close_device, .alloc = take, .release = release, .upload = upload,
        .download = download, .copy = copy, .fill = fill, .compare = compare};
    static char version[32];
    struct tp_err err = {0};
    table.kernels = tilepack_prove_table_count;
    if (jit_version(version, &err) == TP_OK)
        table.built = version;
    return &table;
}
