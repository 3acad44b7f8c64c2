/* NVRTC's calls, and the way through them. */
#include "jit.h"

#include "gpu.h"
#include "jit_cache.h"
#include "pack/os/os.h"
#include "pack/text/embedded.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_MAJOR = 12, /* that knows what Hopper's kernels say */
    MIN_MINOR = 3,
    MAX_MAJOR = 19, /* that is looked for */
};

#define CALLS(CALL) \
    CALL(version, nvrtcVersion, (int *major, int *minor)) \
    CALL(create, nvrtcCreateProgram, \
         (void **program, const char *source, const char *name, int headers, \
          const char *const *texts, const char *const *names)) \
    CALL(destroy, nvrtcDestroyProgram, (void **program)) \
    CALL(compile, nvrtcCompileProgram, (void *program, int count, const char *const *options)) \
    CALL(log_size, nvrtcGetProgramLogSize, (void *program, size_t *size)) \
    CALL(log, nvrtcGetProgramLog, (void *program, char *log)) \
    CALL(code_size, nvrtcGetCUBINSize, (void *program, size_t *size)) \
    CALL(code, nvrtcGetCUBIN, (void *program, char *code)) \
    CALL(ptx_size, nvrtcGetPTXSize, (void *program, size_t *size)) \
    CALL(ptx, nvrtcGetPTX, (void *program, char *ptx))

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator and its parameters */
#define MEMBER(name, symbol, arguments) int (*name) arguments;
static struct nvrtc {
    CALLS(MEMBER)
    int major, minor;
} nvrtc;

#define ROW(name, symbol, arguments) {#symbol, offsetof(struct nvrtc, name)},
static const struct {
    const char *symbol;
    size_t at;
} calls[] = {CALLS(ROW)};

/* The newest of these majors that the system has. */
static void *open_newest(int max, int min)
{
    void *library = NULL;
    char name[32];
    for (int major = max; !library && major >= min; major--) {
        snprintf(name, sizeof name, "libnvrtc.so.%d", major);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* The one that TILEPACK_NVRTC names, else the newest whose code the driver takes: of its own major
 * version or an older one. Where there is none such, any. */
static void *open_library(void)
{
    const char *given = getenv("TILEPACK_NVRTC");
    int driver = gpu_version() / 1000;
    int max = driver && driver < MAX_MAJOR ? driver : MAX_MAJOR;
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *library = open_newest(max, MIN_MAJOR);
    if (!library)
        library = dlopen("libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("/usr/local/cuda/lib64/libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
    return library ? library : open_newest(MAX_MAJOR, max + 1);
}

static enum tp_code find_calls(void *library, struct nvrtc *found, struct tp_err *err)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(library, calls[i].symbol);
        if (!symbol)
            return tp_fail(err, TP_E_UNSUPPORTED, "NVRTC has no %s", calls[i].symbol);
        memcpy((char *)found + calls[i].at, &symbol, sizeof symbol);
    }
    if (found->version(&found->major, &found->minor))
        return tp_fail(err, TP_E_UNSUPPORTED, "NVRTC does not say its version");
    return TP_OK;
}

static enum tp_code load(struct tp_err *err)
{
    struct nvrtc found = {0};
    if (nvrtc.create)
        return TP_OK;
    void *library = open_library();
    tp_err_hint(err, "it comes with CUDA's toolkit and with the Python package nvidia-cuda-nvrtc; "
                     "TILEPACK_NVRTC names its file where the system does not find it");
    if (!library)
        return tp_fail(err, TP_E_UNSUPPORTED, "CUDA's compiler library NVRTC is not here, which "
                                              "makes the kernel");
    enum tp_code code = find_calls(library, &found, err);
    if (code)
        return code;
    if (found.major < MIN_MAJOR || (found.major == MIN_MAJOR && found.minor < MIN_MINOR))
        return tp_fail(err, TP_E_UNSUPPORTED, "NVRTC is of CUDA %d.%d, and the kernel needs %d.%d "
                       "or later", found.major, found.minor, MIN_MAJOR, MIN_MINOR);
    err->hint[0] = 0;
    nvrtc = found;
    return TP_OK;
}

const char *jit_text(const char *name)
{
    extern const struct tp_embedded tp_embedded_plugin[];
    const struct tp_embedded *row = tp_embedded_plugin;
    while (row->name && strcmp(row->name, name) != 0)
        row++;
    return row->text;
}

enum tp_code jit_version(char out[32], struct tp_err *err)
{
    enum tp_code code = load(err);
    if (code == TP_OK)
        snprintf(out, 32, "NVRTC %d.%d", nvrtc.major, nvrtc.minor);
    return code;
}

/* The first line that NVRTC says. */
static enum tp_code refused(void *program, const char *name, struct tp_err *err)
{
    size_t size = 0;
    char *log = nvrtc.log_size(program, &size) ? NULL : tp_os_zalloc(size + 1, 1, err);
    if (log && nvrtc.log(program, log) == 0)
        log[strcspn(log, "\n")] = 0;
    tp_fail(err, TP_E_UNSUPPORTED, "NVRTC %d.%d does not compile %s: %s", nvrtc.major, nvrtc.minor,
            name, log && *log ? log : "it does not say why");
    free(log);
    return err->code;
}

static enum tp_code take(void *program, enum jit_kind kind, struct jit_image *image,
                         struct tp_err *err)
{
    int (*size_of)(void *, size_t *) = kind == JIT_PTX ? nvrtc.ptx_size : nvrtc.code_size;
    int (*get)(void *, char *) = kind == JIT_PTX ? nvrtc.ptx : nvrtc.code;
    if (size_of(program, &image->size))
        return tp_fail(err, TP_E_UNSUPPORTED, "NVRTC made nothing");
    image->data = tp_os_alloc(image->size, err);
    if (!image->data)
        return TP_E_MEMORY;
    return get(program, image->data) ? tp_fail(err, TP_E_UNSUPPORTED, "NVRTC made nothing") : TP_OK;
}

static enum tp_code compile(const char *source, const char *name, enum jit_kind kind,
                            const char *const *options, int count, struct jit_image *image,
                            struct tp_err *err)
{
    void *program = NULL;
    if (nvrtc.create(&program, source, name, 0, NULL, NULL))
        return tp_fail(err, TP_E_MEMORY, "NVRTC takes no source");
    enum tp_code code = nvrtc.compile(program, count, options)
                            ? refused(program, name, err)
                            : take(program, kind, image, err);
    nvrtc.destroy(&program);
    return code;
}

enum tp_code jit_make(const char *source, const char *name, enum jit_kind kind,
                      struct jit_image *image, struct tp_err *err)
{
    char version[32];
    const char *options[] = {
        kind == JIT_PTX ? "--gpu-architecture=compute_90a" : "--gpu-architecture=sm_90a",
        "--std=c++17"};
    *image = (struct jit_image){0};
    enum tp_code code = jit_version(version, err);
    if (code)
        return code;
    const char *parts[] = {version, options[0], options[1], source, NULL};
    if (kind == JIT_CODE && jit_cache_read(parts, &image->data, &image->size)) {
        image->cached = 1;
        return TP_OK;
    }
    code = compile(source, name, kind, options, 2, image, err);
    if (code == TP_OK && kind == JIT_CODE)
        jit_cache_write(parts, image->data, image->size);
    return code;
}

enum tp_code jit_load(const struct jit_image *image, void **module, const char *what,
                      struct tp_err *err)
{
    int version = gpu_version();
    enum tp_code code = gpu_check(gpu.module_load(module, image->data), what, err);
    if (code == TP_OK)
        return TP_OK;
    char why[sizeof err->what];
    snprintf(why, sizeof why, "%s", err->what);
    tp_err_hint(err, "TILEPACK_NVRTC names another NVRTC: its major version must not be above the "
                     "driver's");
    err->code = TP_OK; /* said again, with both versions */
    return tp_fail(err, code, "%s (code of NVRTC %d.%d, driver of CUDA %d.%d)", why, nvrtc.major,
                   nvrtc.minor, version / 1000, version % 1000 / 10);
}
