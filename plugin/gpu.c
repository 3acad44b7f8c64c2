/* Finding the driver's calls. */
#include "gpu.h"

#include <dlfcn.h>
#include <string.h>

enum { MIN_VERSION = 12000 /* that knows Hopper's tensor maps; 12.x loads code of any 12.y */ };

struct gpu gpu;

#define GPU_ROW(name, symbol, arguments) {#symbol, offsetof(struct gpu, name)},
static const struct {
    const char *symbol;
    size_t at;
} calls[] = {GPU_CALLS(GPU_ROW)};

static enum tp_code check_version(void *driver, struct tp_err *err)
{
    int (*get)(int *) = NULL, version = 0;
    void *symbol = dlsym(driver, "cuDriverGetVersion");
    memcpy(&get, &symbol, sizeof get);
    if (!get || get(&version) || version >= MIN_VERSION)
        return TP_OK;
    return tp_fail(err, TP_E_MEMORY, "the NVIDIA driver is of CUDA %d.%d, and Hopper's kernels "
                   "need one of %d.%d or later", version / 1000, version % 1000 / 10,
                   MIN_VERSION / 1000, MIN_VERSION % 1000 / 10);
}

enum tp_code gpu_load(struct tp_err *err)
{
    if (gpu.init)
        return TP_OK;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return tp_fail(err, TP_E_MEMORY, "no GPU is usable: there is no NVIDIA driver "
                                         "(libcuda.so.1)");
    struct gpu found;
    if (check_version(driver, err))
        return err->code;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(driver, calls[i].symbol);
        if (!symbol)
            return tp_fail(err, TP_E_MEMORY, "the NVIDIA driver is too old for Hopper's kernels: "
                           "it has no %s", calls[i].symbol);
        memcpy((char *)&found + calls[i].at, &symbol, sizeof symbol);
    }
    gpu = found; /* the driver stays loaded */
    return TP_OK;
}

int gpu_version(void)
{
    struct tp_err ignored = {0};
    int version = 0;
    return gpu_load(&ignored) == TP_OK && gpu.version(&version) == 0 ? version : 0;
}

enum tp_code gpu_check(int status, const char *what, struct tp_err *err)
{
    const char *text = NULL;
    if (status == 0)
        return TP_OK;
    if (gpu.error_text(status, &text) || !text)
        text = "the driver does not say why";
    return tp_fail(err, TP_E_MEMORY, "%s: %s", what, text);
}
