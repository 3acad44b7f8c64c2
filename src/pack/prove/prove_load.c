/* Finding, loading and opening the plug-in. What its kernels compute is of prove.c. */
#include "pack/prove/prove_load.h"

#include "pack/os/os.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libtilepack_prove.so"

enum { PATH = 4096 };

static bool is_there(const char *path)
{
    struct stat st;
    return tp_os.stat(path, &st) == 0;
}

/* The directory of the program with what stands behind it; false when it is not known. */
static bool beside_program(const char *behind, char path[PATH])
{
    ssize_t size = tp_os.readlink("/proc/self/exe", path, PATH);
    if (size <= 0 || size >= PATH)
        return false;
    path[size] = 0;
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + strlen(behind) + 1 > PATH)
        return false;
    strcpy(slash, behind);
    return is_there(path);
}

/* The file to load; without a directory: where the system finds it. */
static void find_library(char path[PATH])
{
    const char *given = getenv("TILEPACK_PROVE");
    if (given && *given)
        snprintf(path, PATH, "%s", given);
    else if (!beside_program("/" LIBRARY, path) && !beside_program("/../lib/" LIBRARY, path))
        snprintf(path, PATH, "%s", LIBRARY);
}

static enum tp_code absent(const char *path, const char *why, struct tp_err *err)
{
    struct stat st;
    bool named = strchr(path, '/') != NULL, there = named && tp_os_there(path, &st, err);
    if (err->code)
        return err->code;
    tp_err_hint(err, "'make prove' in tilepack's source builds it in seconds; it is looked for "
                     "beside the program, in ../lib, and where TILEPACK_PROVE says");
    if (!there)
        return tp_fail(err, TP_E_UNSUPPORTED, "the plug-in with the kernels, %s, is not installed",
                       named ? path : LIBRARY);
    return tp_fail(err, TP_E_UNSUPPORTED, "the plug-in with the kernels does not load: %s",
                   why ? why : "the reason is not known");
}

static enum tp_code load(struct tp_prover *prover, struct tp_err *err)
{
    char path[PATH];
    find_library(path);
    prover->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!prover->library)
        return absent(path, dlerror(), err);
    tilepack_prove_plugin_fn entry = NULL;
    void *symbol = dlsym(prover->library, "tilepack_prove_plugin");
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from void * to a function */
    if (!entry) {
        tp_err_path(err, path);
        return tp_fail(err, TP_E_UNSUPPORTED, "is no plug-in of tilepack: it has no "
                                              "tilepack_prove_plugin()");
    }
    prover->plugin = entry();
    if (prover->plugin->abi == TILEPACK_PROVE_ABI)
        return TP_OK;
    return tp_refuse_at(err, TP_E_UNSUPPORTED, path,
                        "build both from the same source: make, make prove",
                        "the plug-in speaks version %u of its interface, this program version %u",
                        (unsigned)prover->plugin->abi, TILEPACK_PROVE_ABI);
}

static enum tp_code open_device(uint32_t index, struct tp_prover *prover, struct tp_err *err)
{
    char message[512] = "";
    const struct tilepack_prove_device *device = &prover->device;
    if (prover->plugin->open(index, &prover->device, message, sizeof message))
        return tp_refuse(err, TP_E_MEMORY,
                         "'nvidia-smi' lists the GPUs; --device cuda:I takes number I", "%s",
                         message);
    if (device->major != 9)
        return tp_refuse(err, TP_E_UNSUPPORTED, "H100, H200, H20 and GH200 have it",
                         "%s has compute capability %u.%u; the kernels that read these weights run "
                         "on 9.0 (Hopper) alone", device->name, (unsigned)device->major,
                         (unsigned)device->minor);
    prover->gpu = tp_gpu_of_product(device->name, device->sms);
    return TP_OK;
}

enum tp_code tp_prover_open(uint32_t index, struct tp_prover *prover, struct tp_err *err)
{
    memset(prover, 0, sizeof *prover);
    enum tp_code code = load(prover, err);
    if (code == TP_OK)
        code = open_device(index, prover, err);
    if (code)
        tp_prover_close(prover);
    return code;
}

/* The library stays loaded: a driver's threads may be in it until the process ends. */
void tp_prover_close(struct tp_prover *prover)
{
    if (prover->plugin && prover->plugin->abi == TILEPACK_PROVE_ABI)
        prover->plugin->close();
    memset(prover, 0, sizeof *prover);
}

void *tp_prover_alloc(const struct tp_prover *prover, uint64_t bytes, struct tp_err *err)
{
    void *memory = prover->plugin->alloc(bytes);
    if (!memory)
        tp_refuse(err, TP_E_MEMORY,
                  "other programs may hold memory of the GPU; --m with fewer rows needs less",
                  "out of memory on the GPU: %llu bytes more were needed",
                  (unsigned long long)bytes);
    return memory;
}

enum tp_code tp_prover_check(int status, const char *message, struct tp_err *err)
{
    if (status == 0)
        return TP_OK;
    return tp_fail(err, status == TP_E_UNSUPPORTED ? TP_E_UNSUPPORTED : TP_E_MEMORY, "%s", message);
}
