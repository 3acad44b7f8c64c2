/* What of the plug-in of `prove` needs no GPU: every configuration that the planners choose
 * compiles through NVRTC, the cache of what was compiled, what is refused and how. Where NVRTC is
 * not here what needs it is skipped. TILEPACK_TEST_LONG=1 compiles all configurations, not some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../plugin/fp8_gemm.h"
#include "../../plugin/jit.h"
#include "../../plugin/jit_cache.h"
#include "pack/os/os.h"
#include "pack/schedule/schedule.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_BYTES = 2000, SOME = 5 };

static bool have_nvrtc(void)
{
    char version[32];
    struct tp_err err = {0};
    if (jit_version(version, &err) == TP_OK)
        return true;
    printf("skipped: %s\n", err.what);
    return false;
}

/* ---- the planners' closure --------------------------------------------------------------- */

struct plan {
    struct tp_sched_config config;
    struct fp8_problem problem;
};

static struct plan plans[MAX_BYTES];
static size_t plan_count;

/* The same text: shared memory, blocks and shapes are not in it. */
static bool is_same(const struct plan *a, const struct plan *b)
{
    const struct tp_sched_config *x = &a->config, *y = &b->config;
    return x->block_m == y->block_m && x->block_n == y->block_n && x->stages == y->stages &&
           x->cluster_m == y->cluster_m && x->cluster_n == y->cluster_n &&
           x->swizzle == y->swizzle && a->problem.layout == b->problem.layout &&
           a->problem.fp32_out == b->problem.fp32_out;
}

static void add_plan(struct tp_sched_problem problem, const struct fp8_problem *p)
{
    struct tp_sched_plan plan;
    struct tp_err err = {0};
    assert_int_equal(tp_sched_plan(&problem, 1, &plan, &err), TP_OK);
    if (plan.count == 0)
        return;
    struct plan one = {plan.config[0], *p};
    if (fp8_check(&one.config, p, &err))
        fail_msg("m %llu n %llu k %llu, tile %llux%llu: %s", (unsigned long long)p->m,
                 (unsigned long long)p->n, (unsigned long long)p->k,
                 (unsigned long long)one.config.block_m, (unsigned long long)one.config.block_n,
                 err.what);
    for (size_t i = 0; i < plan_count; i++)
        if (is_same(&plans[i], &one))
            return;
    assert_true(plan_count < MAX_BYTES);
    plans[plan_count++] = one;
}

/* One shape as each planner is asked for it. */
static void plan_shape(uint64_t m, uint64_t n, uint64_t k)
{
    static const enum tp_sched_kernel kernels[] = {TP_SCHED_DEEPGEMM, TP_SCHED_DEEPGEMM_2025};
    for (int i = 0; i < 2; i++) {
        struct tp_sched_problem dense = {.kernel = kernels[i], .arch = 9, .m = m, .n = n, .k = k,
                                         .groups = 1, .experts = 1, .sms = 132};
        struct fp8_problem p = {.m = m, .n = n, .k = k, .groups = 1};
        add_plan(dense, &p);
        dense.fp32_out = p.fp32_out = true;
        add_plan(dense, &p);
        p = (struct fp8_problem){.m = m, .n = n, .k = k, .groups = 8, .layout = FP8_MASKED};
        struct tp_sched_problem masked = dense;
        masked.fp32_out = false;
        masked.masked = true;
        masked.groups = masked.experts = 8;
        add_plan(masked, &p);
        struct tp_sched_problem contiguous = masked;
        contiguous.masked = false;
        contiguous.contiguous = true;
        contiguous.groups = 1;
        contiguous.m = p.m = (m + 127) / 128 * 128;
        p.layout = FP8_CONTIGUOUS;
        add_plan(contiguous, &p);
    }
}

static void plan_all(void)
{
    static const uint64_t ms[] = {1, 8, 17, 40, 64, 100, 128, 200, 333, 512, 777, 1024, 1500, 2048,
                                  4096, 8192};
    static const uint64_t ns[] = {64, 128, 256, 576, 1536, 2048, 2112, 3072, 4096, 5120, 7168, 8192,
                                  18432, 24576, 32768};
    static const uint64_t ks[] = {128, 512, 1536, 2048, 4096, 7168, 16384};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
            for (size_t l = 0; l < sizeof ks / sizeof *ks; l++)
                plan_shape(ms[i], ns[j], ks[l]);
}

static void every_configuration_compiles(void **state)
{
    (void)state;
    plan_all();
    printf("%zu configurations of the planners\n", plan_count);
    assert_true(plan_count > 100);
    if (!have_nvrtc())
        return;
    size_t step = getenv("TILEPACK_TEST_LONG") ? 1 : plan_count / SOME;
    for (size_t i = 0; i < plan_count; i += step) {
        struct tp_text source = {0};
        struct jit_image image = {0};
        struct tp_err err = {0};
        assert_int_equal(fp8_source(&plans[i].config, &plans[i].problem, &source, &err), TP_OK);
        if (jit_make(source.data, "fp8_gemm.cu", JIT_PTX, &image, &err))
            fail_msg("%.400s: %s", source.data, err.what);
        assert_non_null(strstr(image.data, "wgmma.mma_async"));
        assert_non_null(strstr(image.data, "fp8_gemm"));
        free(image.data);
        tp_text_free(&source);
    }
}

/* ---- the cache ------------------------------------------------------------------------------ */

static const char source[] = "extern \"C\" __global__ void f(int *p) { *p = 7; }\n";

static void compiles(const char *text, bool cached)
{
    struct jit_image image;
    struct tp_err err = {0};
    assert_int_equal(jit_make(text, "f.cu", JIT_CODE, &image, &err), TP_OK);
    assert_int_equal(image.cached, cached);
    assert_true(image.size > 4 && memcmp(image.data, "\177ELF", 4) == 0);
    free(image.data);
}

/* The one file in the cache, in fresh memory. */
static char *only_file(const char *cache)
{
    struct tp_err err = {0};
    struct tp_os_list list = {0};
    char *folder = tp_os_format(&err, "%s/tilepack/kernels", cache);
    assert_int_equal(tp_os_list(folder, &list, &err), TP_OK);
    assert_int_equal(list.count, 1); /* no partial file beside it */
    char *path = tp_os_format(&err, "%s/%s", folder, list.names[0]);
    tp_os_list_free(&list);
    free(folder);
    return path;
}

static void spoil(const char *path, long at, bool truncate)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    if (truncate) {
        assert_int_equal(ftruncate(fileno(file), at), 0);
    } else {
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 1, file);
    }
    fclose(file);
}

static void kernels_are_kept(void **state)
{
    (void)state;
    if (!have_nvrtc())
        return;
    char cache[] = "/tmp/tilepack-plugin-XXXXXX", command[256];
    assert_non_null(mkdtemp(cache));
    setenv("XDG_CACHE_HOME", cache, 1);
    compiles(source, false);
    compiles(source, true);
    char *path = only_file(cache);
    spoil(path, 100, false); /* in the code: made again */
    compiles(source, false);
    compiles(source, true);
    spoil(path, 100, true); /* cut off */
    compiles(source, false);
    spoil(path, 0, true); /* empty */
    compiles(source, false);
    compiles(source, true);
    compiles("extern \"C\" __global__ void f(int *p) { *p = 8; }\n", false); /* another one */
    compiles(source, true);
    free(path);
    snprintf(command, sizeof command, "rm -r '%s'; : >'%s'", cache, cache);
    assert_int_equal(system(command), 0); /* a file where the folder should be: nothing is kept */
    compiles(source, false);
    compiles(source, false);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", cache, 1);
    compiles(source, false);
    assert_int_not_equal(access("relative", F_OK), 0);
    unlink(cache);
}

static bool reads_back(const char *const *parts)
{
    char *data;
    size_t size;
    bool found = jit_cache_read(parts, &data, &size);
    bool good = found && size == 5 && memcmp(data, "bytes", 5) == 0;
    free(data);
    return good;
}

/* Nobody else may write where code comes from, and nothing is written through another's link. */
static void only_own_directories(void **state)
{
    (void)state;
    static const char *const parts[] = {"a", "b", NULL};
    char cache[] = "/tmp/tilepack-plugin-XXXXXX", text[512];
    assert_non_null(mkdtemp(cache));
    setenv("XDG_CACHE_HOME", cache, 1);
    jit_cache_write(parts, "bytes", 5);
    assert_true(reads_back(parts));
    char *path = only_file(cache);
    static const char *const folders[] = {"tilepack", "tilepack/kernels"};
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%s/%s", cache, folders[i]);
        assert_int_equal(chmod(text, 0770), 0);
        assert_false(reads_back(parts));
        assert_int_equal(unlink(path), 0);
        jit_cache_write(parts, "bytes", 5);
        assert_int_not_equal(access(path, F_OK), 0);
        assert_int_equal(chmod(text, 0700), 0);
        jit_cache_write(parts, "bytes", 5);
        assert_true(reads_back(parts));
        if (geteuid() == 0) {
            assert_int_equal(chown(text, 65534, (gid_t)-1), 0);
            assert_false(reads_back(parts));
            assert_int_equal(chown(text, 0, (gid_t)-1), 0);
        }
    }
    snprintf(text, sizeof text, "%s.%ld", path, (long)getpid());
    assert_int_equal(symlink("../../victim", text), 0);
    jit_cache_write(parts, "bytes", 5);
    assert_true(reads_back(parts));
    snprintf(text, sizeof text, "%s/victim", cache);
    assert_int_not_equal(access(text, F_OK), 0);
    free(only_file(cache));
    free(path);
    snprintf(text, sizeof text, "rm -r '%s'", cache);
    assert_int_equal(system(text), 0);
}

/* ---- versions: libraries made here stand for NVRTC and the driver ----------------------------- */

static int driver_says; /* of cuDriverGetVersion */

static int stub_init(unsigned flags) { return (int)flags; }
static int stub_version(int *version)
{
    *version = driver_says;
    return 0;
}
static int stub_load(void **module, const void *image)
{
    (void)module;
    (void)image;
    return 1;
}
static int stub_text(int error, const char **text)
{
    (void)error;
    *text = "not for this driver";
    return 0;
}

/* A library of that name, whatever it is asked for; it is found by its name once it is loaded. */
static void load_stub(const char *folder, const char *name, const char *text)
{
    char command[1024];
    const char *cc = getenv("CC");
    snprintf(command, sizeof command, "cd '%s' && echo '%s' >stub.c && %s -shared -fPIC -w "
             "-Wl,-soname,%s -o %s stub.c", folder, text, cc && *cc ? cc : "cc", name, name);
    if (system(command))
        _exit(101);
    snprintf(command, sizeof command, "%s/%s", folder, name);
    if (!dlopen(command, RTLD_NOW | RTLD_LOCAL))
        _exit(102);
}

static void load_nvrtc(const char *folder, int major)
{
    char name[32], text[768];
    snprintf(name, sizeof name, "libnvrtc.so.%d", major);
    snprintf(text, sizeof text, "int nvrtcVersion(int *a, int *b) { *a = %d; *b = 4; return 0; } "
             "int nvrtcCreateProgram() { return 1; } int nvrtcDestroyProgram() { return 1; } "
             "int nvrtcCompileProgram() { return 1; } int nvrtcGetProgramLogSize() { return 1; } "
             "int nvrtcGetProgramLog() { return 1; } int nvrtcGetCUBINSize() { return 1; } "
             "int nvrtcGetCUBIN() { return 1; } int nvrtcGetPTXSize() { return 1; } "
             "int nvrtcGetPTX() { return 1; }", major);
    load_stub(folder, name, text);
}

/* In a process of its own, as what is loaded stays. 0: as it should be. */
static int in_child(int (*work)(const char *folder))
{
    char folder[] = "/tmp/tilepack-plugin-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    pid_t child = fork();
    if (child == 0)
        _exit(work(folder));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

/* What is taken of 12 and 13, and what a refusal says. */
static int takes(const char *folder, int driver, const char *version, const char *both)
{
    char text[32];
    struct tp_err err = {0};
    struct jit_image image = {0};
    void *module = NULL;
    load_nvrtc(folder, 12);
    load_nvrtc(folder, 13);
    driver_says = driver;
    gpu.init = stub_init;
    gpu.version = stub_version;
    gpu.module_load = stub_load;
    gpu.error_text = stub_text;
    if (jit_version(text, &err) || strcmp(text, version) != 0)
        return 1;
    if (jit_load(&image, &module, "loading the kernel", &err) != TP_E_MEMORY)
        return 2;
    return strcmp(err.what, both) != 0 || !strstr(err.hint, "TILEPACK_NVRTC") ? 3 : 0;
}

static int takes_12(const char *folder)
{
    return takes(folder, 12040, "NVRTC 12.4", "loading the kernel: not for this driver (code of "
                 "NVRTC 12.4, driver of CUDA 12.4)");
}

static int takes_13(const char *folder)
{
    return takes(folder, 14010, "NVRTC 13.4", "loading the kernel: not for this driver (code of "
                 "NVRTC 13.4, driver of CUDA 14.1)");
}

static int old_driver(const char *folder)
{
    struct tp_err err = {0};
    load_stub(folder, "libcuda.so.1", "int cuDriverGetVersion(int *v) { *v = 11080; return 0; }");
    return gpu_load(&err) != TP_E_MEMORY ||
           strcmp(err.what, "the NVIDIA driver is of CUDA 11.8, and Hopper's kernels need one "
                            "of 12.0 or later") != 0;
}

static void versions(void **state)
{
    (void)state;
    assert_int_equal(in_child(takes_12), 0);
    assert_int_equal(in_child(takes_13), 0);
    assert_int_equal(in_child(old_driver), 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void without_nvrtc(void **state)
{
    (void)state;
    struct tp_err err = {0};
    char version[32];
    setenv("TILEPACK_NVRTC", "/nowhere/libnvrtc.so", 1);
    assert_int_equal(jit_version(version, &err), TP_E_UNSUPPORTED);
    assert_string_equal(err.what, "CUDA's compiler library NVRTC is not here, which makes the "
                                  "kernel");
    assert_non_null(strstr(err.hint, "TILEPACK_NVRTC"));
    unsetenv("TILEPACK_NVRTC");
}

static void broken_sources(void **state)
{
    (void)state;
    struct jit_image image;
    struct tp_err err = {0};
    if (!have_nvrtc())
        return;
    assert_int_equal(jit_make("broken\n", "f.cu", JIT_PTX, &image, &err), TP_E_UNSUPPORTED);
    assert_non_null(strstr(err.what, "does not compile f.cu: f.cu(1): error"));
}

static const struct tp_sched_config tile = {
    .block_m = 64, .block_n = 32, .block_k = 128, .stages = 8, .cluster_m = 1, .cluster_n = 1,
    .smem = 120000, .swizzle = 64, .sms = 132};

static void refused(struct tp_sched_config config, struct fp8_problem problem, const char *what)
{
    struct tp_err err = {0};
    assert_int_equal(fp8_check(&config, &problem, &err), TP_E_UNSUPPORTED);
    if (!strstr(err.what, what))
        fail_msg("'%s' is not in '%s'", what, err.what);
}

#define WITH(name, value) \
    struct tp_sched_config name##_config = tile; \
    name##_config.name = (value)
#define REFUSED_CONFIG(name, value, what) \
    do { \
        WITH(name, value); \
        refused(name##_config, right, what); \
    } while (0)
#define REFUSED_PROBLEM(name, value, what) \
    do { \
        struct fp8_problem wrong = right; \
        wrong.name = (value); \
        refused(tile, wrong, what); \
    } while (0)

/* What the original asserts, and configurations that are none of its kernels. */
static void wrong_shapes_and_configurations(void **state)
{
    (void)state;
    const struct fp8_problem right = {.m = 65, .n = 4096, .k = 7168, .groups = 1};
    struct tp_err err = {0};
    assert_int_equal(fp8_check(&tile, &right, &err), TP_OK);
    REFUSED_PROBLEM(m, 0, "m of 1..2147483647, and it is 0");
    REFUSED_PROBLEM(n, 4100, "n % 8 == 0, and it is 4100");
    REFUSED_PROBLEM(k, 0, "k of 1..2147483647");
    REFUSED_PROBLEM(k, 7176, "k % 16 == 0, and it is 7176");
    REFUSED_PROBLEM(groups, 2, "one group where rows are of no group");
    REFUSED_PROBLEM(a_stride, 7160, "rows of A");
    REFUSED_PROBLEM(b_stride, 7176, "rows of B");
    REFUSED_PROBLEM(out_stride, 4100, "rows of the result");
    REFUSED_PROBLEM(layout, FP8_CONTIGUOUS, "multiples of 128, and it is 65");
    REFUSED_CONFIG(block_m, 96, "block_m of");
    REFUSED_CONFIG(block_n, 20, "block_n of");
    REFUSED_CONFIG(block_n, 176, "gcd(block_n, 128) == block_n - 128, and it is 176");
    REFUSED_CONFIG(stages, 0, "stages, and it is 0");
    REFUSED_CONFIG(stages, 17, "stages, and it is 17");
    REFUSED_CONFIG(cluster_m, 4, "clusters of one or two blocks");
    REFUSED_CONFIG(padding, 8, "no padding");
    REFUSED_CONFIG(swizzle, 128, "a result swizzled by");
    REFUSED_CONFIG(smem, 60000, "shared memory for its tiles");
    REFUSED_CONFIG(smem, 240000, "no more than a block can have");
    REFUSED_CONFIG(sms, 0, "as many blocks as clusters have");
    struct tp_sched_config odd = tile;
    odd.block_n = 48;
    odd.swizzle = 96;
    refused(odd, right, "a result swizzled by");
    struct tp_sched_config small = tile;
    small.block_m = small.block_n = 16;
    small.stages = 2;
    refused(small, right, "block_m + stages * block_n of 64 or more, as a wgmma reads 64 rows, and "
                          "it is 48");
}

static void without_a_driver(void **state)
{
    (void)state;
    struct tp_err err = {0};
    if (gpu_load(&err) == TP_OK) {
        printf("skipped: there is a driver\n");
        return;
    }
    assert_non_null(strstr(err.what, "driver"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_nvrtc), /* before it is loaded */
        cmocka_unit_test(versions),      /* so, too */
        cmocka_unit_test(every_configuration_compiles),
        cmocka_unit_test(kernels_are_kept),
        cmocka_unit_test(only_own_directories),
        cmocka_unit_test(broken_sources),
        cmocka_unit_test(wrong_shapes_and_configurations),
        cmocka_unit_test(without_a_driver),
    };
    return cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
}
