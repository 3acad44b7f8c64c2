/* A plug-in of `tilepack prove` without a GPU: slow sums in double over the same operands, by
 * formulas of its own. So the whole command is tested where there is no device.
 *
 * TILEPACK_FAKE says what is wrong with it: "unit" and "random" spoil one number of the results
 * with unit vectors and with random rows, "lazy" leaves the last row out, "ampere" and "none" are
 * other GPUs, "abi" another version, "few" has one schedule of each kind, "fp8" none, "memory" little of it.
 */
#include "pack/prove/tilepack_prove.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tilepack_prove_problem problem;
typedef struct tilepack_prove_operands operands;

static int is(const char *word)
{
    const char *fake = getenv("TILEPACK_FAKE");
    return fake && strcmp(fake, word) == 0;
}

static double e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return (code & 127) == 127 ? NAN : code & 128 ? -size : size;
}

static uint16_t bf16(double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* The number that the W4A8 mainloop makes of one nibble. */
static double w4a8_weight(const problem *p, const operands *o, uint64_t e, uint64_t n, uint64_t k)
{
    uint64_t at = e * p->n * p->k + (k >> 5) * 32 * p->n + (n >> 4) * 512 + (n & 7) * 64 +
                  ((k >> 2) & 3) * 16 + ((k >> 4) & 1) * 8 + ((n >> 3) & 1) * 4 + (k & 3);
    int nibble = ((const uint8_t *)o->codes)[at / 2] >> (at % 2 * 4) & 15;
    const uint8_t *multiples =
        (const uint8_t *)o->groups + 8 * ((e * (p->k / 128) + k / 128) * p->n + n);
    if (nibble == 0)
        return 0;
    return nibble & 8 ? e4m3(multiples[nibble & 7]) : -e4m3(multiples[nibble & 7]);
}

static double row_code(const problem *p, const operands *o, uint64_t e, uint64_t m, uint64_t k)
{
    return e4m3(((const uint8_t *)o->rows)[((o->shared_rows ? 0 : e) * p->m + m) * p->k + k]);
}

static double w4a8_sum(const problem *p, const operands *o, uint64_t e, uint64_t m, uint64_t n)
{
    const float *token = (const float *)o->row_scales + (o->shared_rows ? 0 : e) * p->m;
    double sum = 0;
    for (uint64_t k = 0; k < p->k; k++)
        sum += row_code(p, o, e, m, k) * w4a8_weight(p, o, e, n, k);
    return (double)(((const float *)o->scales)[e * p->n + n] * (float)(token[m] * (float)sum));
}

static double fp8_sum(const problem *p, const operands *o, uint64_t e, uint64_t m, uint64_t n)
{
    uint64_t blocks = (p->k + 127) / 128, lines = (p->n + 127) / 128;
    const uint8_t *code = (const uint8_t *)o->codes + (e * p->n + n) * p->k;
    const float *scale = (const float *)o->scales + (e * lines + n / 128) * blocks;
    uint64_t stride = (p->m + 3) / 4 * 4;
    const float *row = (const float *)o->row_scales + e * blocks * stride;
    double sum = 0;
    if (p->layout == TILEPACK_PROVE_CONTIGUOUS) { /* of all rows together */
        stride = p->e * p->m;
        row = (const float *)o->row_scales + e * p->m;
    }
    for (uint64_t k = 0; k < p->k; k++)
        sum += row_code(p, o, e, m, k) * e4m3(code[k]) * (double)row[k / 128 * stride + m] *
               (double)scale[k / 128];
    return sum;
}

/* Unit vectors have a scale of 1, random rows a small one. */
static void spoil(const problem *p, const operands *o)
{
    uint16_t *out = o->out;
    int unit = *(const float *)o->row_scales == 1;
    if (unit ? is("unit") : is("random"))
        out[p->n * p->m * (p->e - 1) + 3] ^= 0x80;
    if (is("lazy"))
        memset(out + p->n * (p->m * p->e - 1), 0xFF, 2 * p->n);
}

static int run(const problem *p, const operands *sets, size_t count, uint32_t rounds,
               uint32_t launches, double *microseconds,
               double (*sum)(const problem *, const operands *, uint64_t, uint64_t, uint64_t))
{
    uint16_t *out = sets->out;
    (void)launches;
    for (uint64_t e = 0; e < p->e; e++)
        for (uint64_t m = 0; m < p->m; m++)
            for (uint64_t n = 0; n < p->n; n++)
                out[(e * p->m + m) * p->n + n] = bf16(sum(p, sets, e, m, n));
    spoil(p, sets);
    for (size_t i = 1; i < count; i++) /* copies are equal */
        if (((const uint8_t *)sets[i].codes)[7] != ((const uint8_t *)sets[0].codes)[7])
            return 1;
    for (uint32_t i = 0; i < rounds; i++)
        microseconds[i] = 10 + (double)p->m / 16 + i;
    return 0;
}

static int run_w4a8(const problem *p, const operands *sets, size_t count, uint32_t rounds,
                    uint32_t launches, double *microseconds, char *message, size_t size)
{
    (void)message;
    (void)size;
    return run(p, sets, count, rounds, launches, microseconds, w4a8_sum);
}

/* Faster than any other for 16 rows: the best is not the predicted one. */
static int run_best(const problem *p, const operands *sets, size_t count, uint32_t rounds,
                    uint32_t launches, double *microseconds, char *message, size_t size)
{
    int status = run_w4a8(p, sets, count, rounds, launches, microseconds, message, size);
    for (uint32_t i = 0; i < rounds; i++)
        microseconds[i] /= 2;
    return status;
}

/* The planner's configuration decides nothing here but that it is one, and of these experts. */
static int run_fp8(const struct tp_sched_config *config, const problem *p, const operands *sets,
                   size_t count, uint32_t rounds, uint32_t launches, double *microseconds,
                   char *message, size_t size)
{
    if (config->block_k != 128 || (p->layout == TILEPACK_PROVE_ONE) != (p->e == 1) ||
        (p->layout == TILEPACK_PROVE_CONTIGUOUS && (p->m % 128 || config->block_m != 128))) {
        snprintf(message, size, "no configuration of DeepGEMM for these rows");
        return 1;
    }
    return run(p, sets, count, rounds, launches, microseconds, fp8_sum);
}

static int can_run_fp8(const struct tp_sched_config *config, const problem *p, char *message,
                       size_t size)
{
    (void)config;
    if (p->n % 8 == 0)
        return 0;
    snprintf(message, size, "the kernel wants n %% 8 == 0, and it is %llu",
             (unsigned long long)p->n);
    return 1;
}

static int takes(const problem *p, char *message, size_t size)
{
    (void)message;
    (void)size;
    return p->n % 8 != 0;
}

#define GROUPED TILEPACK_PROVE_W4A8_GROUPED
#define DENSE TILEPACK_PROVE_W4A8_DENSE
static const struct tilepack_prove_kernel kernels[] = {
    {"Kernel_128x16_2x1x1_Coop", GROUPED, 128, 16, 2, 1, takes, run_w4a8},
    {"128x16_1x1x1", DENSE, 128, 16, 1, 1, takes, run_w4a8},
    {"Kernel_256x16_1x1x1_Coop", GROUPED, 256, 16, 1, 1, takes, run_best},
    {"Kernel_128x256_2x1x1_Coop", GROUPED, 128, 256, 2, 1, takes, run_w4a8},
    {"128x256_1x1x1", DENSE, 128, 256, 1, 1, takes, run_w4a8},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };
static const struct tilepack_prove_kernel *table[KERNELS];

static int open_device(uint32_t index, struct tilepack_prove_device *device, char *message,
                       size_t size)
{
    if (is("none") || index > 1) {
        snprintf(message, size, "no GPU is usable: the driver finds none");
        return 1;
    }
    *device = (struct tilepack_prove_device){.name = "NVIDIA H200", .major = 9, .sms = 132,
                                             .free_bytes = 1 << 30, .cache_bytes = 1 << 16};
    if (is("ampere")) {
        strcpy(device->name, "NVIDIA A100-SXM4-80GB");
        device->major = 8;
    }
    return 0;
}

static void close_device(void) {}

static void *take(uint64_t bytes) { return is("memory") && bytes > 9999 ? NULL : malloc(bytes); }

static int move(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    (void)message;
    (void)size;
    memcpy(to, from, bytes);
    return 0;
}

static int fill(void *to, int byte, uint64_t bytes, char *message, size_t size)
{
    (void)message;
    (void)size;
    memset(to, byte, bytes);
    return 0;
}

static int compare(const void *expected, const void *got, uint64_t count, uint64_t *differing,
                   uint64_t *first, char *message, size_t size)
{
    const uint16_t *a = expected, *b = got;
    (void)message;
    (void)size;
    *differing = 0;
    for (uint64_t i = count; i-- > 0;)
        if (a[i] != b[i] && ((a[i] | b[i]) & 0x7FFF) != 0) {
            ++*differing;
            *first = i;
        }
    return 0;
}

const struct tilepack_prove_plugin *tilepack_prove_plugin(void)
{
    static struct tilepack_prove_plugin plugin = {
        .abi = TILEPACK_PROVE_ABI, .kernels = KERNELS, .kernel = table, .built = "nothing",
        .fp8_can_run = can_run_fp8, .fp8_run = run_fp8,
        .open = open_device, .close = close_device, .alloc = take, .release = free,
        .upload = move, .download = move, .copy = move, .fill = fill, .compare = compare};
    for (int i = 0; i < KERNELS; i++)
        table[i] = &kernels[i];
    if (is("few"))
        plugin.kernels = 2;
    if (is("fp8"))
        plugin.kernels = 0;
    if (is("abi"))
        plugin.abi++;
    return &plugin;
}
