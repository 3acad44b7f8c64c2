/* Finding the driver's calls. */
#include "gpu.h"

#include <dlfcn.h>
#include <string.h>

struct gpu gpu;

#define GPU_ROW(name, symbol, arguments) {#symbol, offsetof(struct gpu, name)},
static const struct {
    const char *symbol;
    size_t at;
} calls[] = {GPU_CALLS(GPU_ROW)};

enum tp_code gpu_load(struct tp_err *err)
{
    if (gpu.init)
        return TP_OK;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return tp_fail(err, TP_E_MEMORY, "no GPU is usable: there is no NVIDIA driver "
                                         "(libcuda.so.1)");
    struct gpu found;
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

enum tp_code gpu_check(int status, const char *what, struct tp_err *err)
{
    const char *text = NULL;
    if (status == 0)
        return TP_OK;
    if (gpu.error_text(status, &text) || !text)
        text = "the driver does not say why";
    return tp_fail(err, TP_E_MEMORY, "%s: %s", what, text);
}
