/* The kernel's numbers, its operands' maps and its launch. What it needs of shared memory is
 * computed here and there by the same rule, and checked against what the planner counted. */
#include "fp8_gemm.h"

#include "base/num.h"
#include "jit.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum { BLOCK = 128, LARGE = 1024, WGMMA_ROWS = 64 };

static uint64_t out_bytes(const struct fp8_problem *p)
{
    return p->fp32_out ? 4 : 2;
}

/* ---- what it takes ------------------------------------------------------------------- */

static enum tp_code refuse(struct tp_err *err, bool good, const char *rule, uint64_t number)
{
    return good ? TP_OK : tp_fail(err, TP_E_UNSUPPORTED, "the kernel wants %s, and it is %llu",
                                  rule, (ull)number);
}

static uint64_t stride_of(uint64_t stride, uint64_t row)
{
    return stride ? stride : row;
}

static enum tp_code check_problem(const struct fp8_problem *p, struct tp_err *err)
{
    uint64_t a = stride_of(p->a_stride, p->k), b = stride_of(p->b_stride, p->k);
    uint64_t out = stride_of(p->out_stride, p->n), unit = 16 / out_bytes(p);
    const struct {
        bool good;
        const char *rule;
        uint64_t number;
    } rules[] = {
        {p->m >= 1 && p->m <= INT32_MAX, "m of 1..2147483647", p->m},
        {p->n >= 1 && p->n <= INT32_MAX, "n of 1..2147483647", p->n},
        {p->k >= 1 && p->k <= INT32_MAX, "k of 1..2147483647", p->k},
        {p->groups >= 1 && p->groups <= INT32_MAX, "1 group or more", p->groups},
        {p->layout != FP8_DENSE || p->groups == 1, "one group where rows are of no group",
         p->groups},
        {p->n % 8 == 0, "n % 8 == 0", p->n},
        {a % 16 == 0 && a >= p->k, "rows of A of 16 bytes each, k % 16 == 0", a},
        {b % 16 == 0 && b >= p->k, "rows of B of 16 bytes each, k % 16 == 0", b},
        {out % unit == 0 && out >= p->n, "rows of the result of 16 bytes each", out},
        {p->layout != FP8_CONTIGUOUS || p->m % BLOCK == 0,
         "groups' rows filled up to multiples of 128", p->m},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (refuse(err, rules[i].good, rules[i].rule, rules[i].number))
            return err->code;
    return TP_OK;
}

/* As the kernel lays it out. */
static uint64_t shared_memory(const struct tp_sched_config *c, const struct fp8_problem *p)
{
    uint64_t out = tp_round_up(c->block_m * c->block_n * out_bytes(p), LARGE);
    uint64_t stage = (c->block_m + c->block_n) * BLOCK + tp_round_up(c->block_m * 4, BLOCK) + 16;
    uint64_t lines = BLOCK % c->block_n == 0 ? 1 : 2;
    return out + c->stages * stage + lines * tp_ceil_div(p->k, BLOCK) * 4;
}

static enum tp_code check_config(const struct tp_sched_config *c, const struct fp8_problem *p,
                                 struct tp_err *err)
{
    uint64_t bm = c->block_m, bn = c->block_n, pairs = c->cluster_m * c->cluster_n;
    bool small = bm == 16 || bm == 32;
    if (refuse(err, small || bm == 64 || bm == 128 || bm == 256, "block_m of 16, 32, 64, 128, 256",
               bm) ||
        refuse(err, p->layout != FP8_CONTIGUOUS || bm == BLOCK, "block_m of 128 for groups that "
               "begin at multiples of 128", bm) ||
        refuse(err, bn >= 16 && bn <= 192 && bn % 8 == 0, "block_n of 16, 24 .. 192", bn) ||
        refuse(err, bn <= BLOCK || tp_gcd_u64(bn, BLOCK) == bn - BLOCK,
               "block_n <= 128 or gcd(block_n, 128) == block_n - 128", bn) ||
        refuse(err, bm <= BLOCK || bn <= BLOCK, "block_n <= 128 where block_m is 256", bn) ||
        refuse(err, c->stages >= 1 && c->stages <= 16, "1..16 stages", c->stages) ||
        refuse(err, bm + c->stages * bn >= WGMMA_ROWS, "block_m + stages * block_n of 64 or more, "
               "as a wgmma reads 64 rows", bm + c->stages * bn) ||
        refuse(err, pairs == 1 || pairs == 2, "clusters of one or two blocks", pairs) ||
        refuse(err, c->sms >= 1 && c->sms % pairs == 0, "as many blocks as clusters have",
               c->sms) ||
        refuse(err, c->padding == 0, "no padding of the result", c->padding))
        return err->code;
    uint64_t element = out_bytes(p);
    bool known = c->swizzle == 32 || c->swizzle == 64 || c->swizzle == BLOCK;
    bool whole = c->swizzle == 0 ||
                 (known && !p->fp32_out && bn * element % c->swizzle == 0);
    if (refuse(err, whole, "a result swizzled by 0, 32, 64 or 128 bytes that divide its row",
               c->swizzle))
        return err->code;
    return refuse(err, c->smem <= TP_SCHED_SMEM && c->smem >= shared_memory(c, p),
                  "shared memory for its tiles, and no more than a block can have", c->smem);
}

enum tp_code fp8_check(const struct tp_sched_config *config, const struct fp8_problem *problem,
                       struct tp_err *err)
{
    enum tp_code code = check_problem(problem, err);
    if (code || (code = check_config(config, problem, err)))
        return code;
    /* Two blocks of one row of tiles share rows, and no group may end between them. */
    uint64_t columns = tp_ceil_div(problem->n, config->block_n);
    uint64_t pairs = config->cluster_m * config->cluster_n;
    return refuse(err, problem->layout != FP8_MASKED || columns % pairs == 0,
                  "columns of tiles in pairs where groups are masked", columns);
}

/* ---- its text ------------------------------------------------------------------------ */

/* The accumulators of one wgmma, as its text names them and as C++ does, and what is behind. */
static enum tp_code add_wgmma(uint64_t block_n, struct tp_text *to, struct tp_err *err)
{
    ull sums = block_n / 2;
    tp_text_addf(to, err, "#define WGMMA_SHAPE \"m64n%lluk32\"\n#define WGMMA_SUMS \"",
                 (ull)block_n);
    for (ull i = 0; i < sums; i++)
        tp_text_addf(to, err, "%s%%%llu", i ? ", " : "", i);
    tp_text_addf(to, err, "\"\n#define WGMMA_OPERANDS(s) ");
    for (ull i = 0; i < sums; i++)
        tp_text_addf(to, err, "%s\"+f\"(s[%llu])", i ? ", " : "", i);
    return tp_text_addf(to, err, "\n#define WGMMA_A \"%%%llu\"\n#define WGMMA_B \"%%%llu\"\n"
                        "#define WGMMA_ADD \"%%%llu\"\n", sums, sums + 1, sums + 2);
}

/* Which operand two neighbours share, and along which side tiles are taken in bands. Single blocks
 * take them along n, too: with few rows that is up to a tenth faster. */
static bool along_n(const struct tp_sched_config *c)
{
    return c->cluster_m == 1;
}

enum tp_code fp8_source(const struct tp_sched_config *c, const struct fp8_problem *p,
                        struct tp_text *source, struct tp_err *err)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"BLOCK_M", c->block_m},     {"BLOCK_N", c->block_n},
                   {"STAGES", c->stages},       {"CLUSTER_M", c->cluster_m},
                   {"CLUSTER_N", c->cluster_n}, {"ON_A", along_n(c)},
                   {"SWIZZLE", c->swizzle},     {"FP32_OUT", p->fp32_out},
                   {"LAYOUT", p->layout}};
    const char *body = jit_text("fp8_gemm.cu");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        tp_text_addf(source, err, "#define %s %llu\n", numbers[i].name, (ull)numbers[i].value);
    add_wgmma(c->block_n, source, err);
    return tp_text_add(source, body, strlen(body), err);
}

/* ---- loading it ---------------------------------------------------------------------- */

enum tp_code fp8_open(const struct tp_sched_config *config, const struct fp8_problem *problem,
                      struct fp8_kernel *kernel, struct tp_err *err)
{
    struct tp_text source = {0};
    struct jit_image image = {0};
    *kernel = (struct fp8_kernel){.config = *config, .problem = *problem};
    enum tp_code code = fp8_check(config, problem, err);
    if (code == TP_OK && (code = fp8_source(config, problem, &source, err)) == TP_OK)
        code = jit_make(source.data, "fp8_gemm.cu", JIT_CODE, &image, err);
    if (code == TP_OK)
        code = jit_load(&image, &kernel->module, "loading the kernel", err);
    if (code == TP_OK)
        code = gpu_check(gpu.function_get(&kernel->function, kernel->module, "fp8_gemm"),
                         "the kernel", err);
    if (code == TP_OK)
        code = gpu_check(gpu.function_set(kernel->function, GPU_SHARED_BYTES, (int)config->smem),
                         "shared memory for the kernel", err);
    kernel->cached = image.cached;
    free(image.data);
    tp_text_free(&source);
    if (code)
        fp8_close(kernel);
    return code;
}

void fp8_close(struct fp8_kernel *kernel)
{
    if (kernel->module)
        gpu.module_unload(kernel->module);
    *kernel = (struct fp8_kernel){0};
}

/* ---- its operands -------------------------------------------------------------------- */

/* A tensor of three dimensions, and the box of it that is moved at a time. */
struct tensor {
    enum gpu_element element;
    enum gpu_swizzle swizzle;
    uint64_t bytes, size[3], stride; /* bytes: of an element; stride: of rows, in elements */
    uint64_t box[2];
};

static enum tp_code encode(const struct tensor *t, const void *memory, struct gpu_map *map,
                           struct tp_err *err)
{
    enum { NO_INTERLEAVE = 0, PROMOTE_256 = 3, ZEROS = 0 };
    uint64_t strides[2] = {t->stride * t->bytes, t->stride * t->bytes * t->size[1]};
    unsigned box[3] = {(unsigned)t->box[0], (unsigned)t->box[1], 1}, steps[3] = {1, 1, 1};
    return gpu_check(gpu.map_encode(map, (int)t->element, 3, (void *)(uintptr_t)memory, t->size,
                                    strides, box, steps, NO_INTERLEAVE, (int)t->swizzle,
                                    PROMOTE_256, ZEROS), "the map of an operand", err);
}

static enum gpu_swizzle swizzle_of(uint64_t bytes)
{
    return bytes == 128 ? GPU_SWIZZLE_128 : bytes == 64 ? GPU_SWIZZLE_64
         : bytes == 32 ? GPU_SWIZZLE_32 : GPU_PLAIN;
}

/* Tiles across of those that are worked on at a time: of 8 and 16 that which reads less. */
static uint32_t band_of(const struct tp_sched_config *c)
{
    uint64_t across = along_n(c) ? c->block_n : c->block_m;
    uint64_t along = along_n(c) ? c->block_m : c->block_n;
    uint64_t narrow = 8 * across + tp_ceil_div(c->sms, 8) * along;
    uint64_t wide = 16 * across + tp_ceil_div(c->sms, 16) * along;
    return wide < narrow ? 16 : 8;
}

enum tp_code fp8_arguments(const struct fp8_kernel *kernel, const struct fp8_operands *o,
                           struct fp8_arguments *to, struct tp_err *err)
{
    const struct fp8_problem *p = &kernel->problem;
    const struct tp_sched_config *c = &kernel->config;
    uint64_t steps = tp_ceil_div(p->k, BLOCK), a_groups = p->layout == FP8_MASKED ? p->groups : 1;
    uint64_t scale_rows = tp_round_up(p->m, 4);
    const struct tensor a = {GPU_U8, GPU_SWIZZLE_128, 1, {p->k, p->m, a_groups},
                             stride_of(p->a_stride, p->k), {BLOCK, c->block_m}};
    const struct tensor b = {GPU_U8, GPU_SWIZZLE_128, 1, {p->k, p->n, p->groups},
                             stride_of(p->b_stride, p->k), {BLOCK, c->block_n}};
    const struct tensor scales = {GPU_F32, GPU_PLAIN, 4, {scale_rows, steps, a_groups}, scale_rows,
                                  {c->block_m, 1}};
    const struct tensor out = {p->fp32_out ? GPU_F32 : GPU_BF16, swizzle_of(c->swizzle),
                               out_bytes(p), {p->n, p->m, a_groups},
                               stride_of(p->out_stride, p->n),
                               {c->swizzle ? c->swizzle / out_bytes(p) : c->block_n, c->block_m}};
    *to = (struct fp8_arguments){.weight_scales = o->weight_scales};
    to->shape.m = (uint32_t)p->m;
    to->shape.n = (uint32_t)p->n;
    to->shape.k = (uint32_t)p->k;
    to->shape.groups = (uint32_t)p->groups;
    to->shape.band = band_of(c);
    to->shape.rows = o->rows;
    enum tp_code code = encode(&a, o->a, &to->a, err);
    if (code || (code = encode(&b, o->b, &to->b, err)) ||
        (code = encode(&scales, o->row_scales, &to->row_scales, err)))
        return code;
    return encode(&out, o->out, &to->out, err);
}

enum tp_code fp8_launch(const struct fp8_kernel *kernel, struct fp8_arguments *a, void *stream,
                        struct tp_err *err)
{
    const struct tp_sched_config *c = &kernel->config;
    void *arguments[] = {&a->a, &a->row_scales, &a->b, &a->out, &a->shape, &a->weight_scales};
    struct gpu_attribute cluster = {
        .id = GPU_CLUSTER, .cluster = {(unsigned)(c->cluster_m * c->cluster_n), 1, 1}};
    struct gpu_launch launch = {
        .grid = {(unsigned)c->sms, 1, 1},
        .block = {c->block_m <= 64 ? 256 : 384, 1, 1},
        .shared_bytes = (unsigned)c->smem,
        .stream = stream,
        .attributes = &cluster,
        .attribute_count = 1,
    };
    return gpu_check(gpu.launch(&launch, kernel->function, arguments, NULL), "the launch", err);
}
