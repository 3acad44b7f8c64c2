/* The FP8 GEMM on a GPU, exactly: values and scales are such that every sum is exact in the tensor
 * cores and in fp32, so that the result is the one right number, or that rounded to bf16. Every
 * layout, both planners, fp32 results, rows with strides, edges of tiles, NaN and overflow.
 * Ends with `N passed, N failed`; without a GPU nothing is run. */
#include "../../plugin/fp8_gemm.h"

#include "kernels/op/scalar.h"
#include "pack/schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 /* bytes behind the result that must stay as they are */ };

struct host {
    struct fp8_problem p;
    uint64_t a_rows, steps, lines, scale_rows, out_rows, out_bytes;
    uint8_t *a, *b, *out;
    float *row_scales, *weight_scales;
    int32_t *rows;
    uint64_t row_numbers;
};

static int passed, failed;
static double value[256]; /* of a code */
static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}

/* -2, -1, 0, 1, 2 */
static uint8_t small_code(void)
{
    static const uint8_t codes[] = {0xC0, 0xB8, 0, 0x38, 0x40};
    return codes[draw(5)];
}

static void *room(uint64_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        exit(1);
    return memory;
}

static uint64_t stride_of(uint64_t stride, uint64_t row) { return stride ? stride : row; }

static void make(struct host *h, const struct fp8_problem *p)
{
    uint64_t stacks = p->layout == FP8_MASKED ? p->groups : 1;
    uint64_t a = stride_of(p->a_stride, p->k), b = stride_of(p->b_stride, p->k);
    *h = (struct host){.p = *p, .a_rows = stacks * p->m, .steps = (p->k + 127) / 128,
                       .lines = (p->n + 127) / 128, .scale_rows = (p->m + 3) / 4 * 4};
    h->out_bytes = h->a_rows * stride_of(p->out_stride, p->n) * (p->fp32_out ? 4 : 2);
    h->a = room(h->a_rows * a);
    h->b = room(p->groups * p->n * b);
    h->out = room(h->out_bytes + GUARD);
    h->row_scales = room(stacks * h->steps * h->scale_rows * 4);
    h->weight_scales = room(p->groups * h->lines * h->steps * 4);
    for (uint64_t i = 0; i < h->a_rows * a; i++)
        h->a[i] = small_code();
    for (uint64_t i = 0; i < p->groups * p->n * b; i++)
        h->b[i] = small_code();
    for (uint64_t i = 0; i < stacks * h->steps * h->scale_rows; i++)
        h->row_scales[i] = draw(2) ? 1 : 0.5f;
    for (uint64_t i = 0; i < p->groups * h->lines * h->steps; i++)
        h->weight_scales[i] = draw(2) ? 2 : 1;
    h->row_numbers = p->layout == FP8_MASKED ? p->groups : p->layout == FP8_CONTIGUOUS ? p->m : 0;
    h->rows = room(h->row_numbers * 4 + 4);
    for (uint64_t i = 0; i < h->row_numbers; i++)
        h->rows[i] = p->layout == FP8_MASKED
                         ? (int32_t)(i == 1 ? 0 : p->m - i)
                         : (int32_t)(i / 128 * p->groups / (p->m / 128));
}

static void drop(struct host *h)
{
    free(h->a);
    free(h->b);
    free(h->out);
    free(h->row_scales);
    free(h->weight_scales);
    free(h->rows);
}

/* The group of a row, -1: nothing is computed for it. */
static int64_t group_of(const struct host *h, uint64_t row)
{
    const struct fp8_problem *p = &h->p;
    if (p->layout == FP8_DENSE)
        return 0;
    if (p->layout == FP8_CONTIGUOUS)
        return h->rows[row];
    return row % p->m < (uint64_t)h->rows[row / p->m] ? (int64_t)(row / p->m) : -1;
}

/* As the kernel adds: 128 products at a time, which are exact, then scaled and added in fp32. */
static float expected(const struct host *h, uint64_t row, uint64_t group, uint64_t n)
{
    const struct fp8_problem *p = &h->p;
    uint64_t stack = p->layout == FP8_MASKED ? row / p->m : 0, at = row - stack * p->m;
    const uint8_t *a = h->a + row * stride_of(p->a_stride, p->k);
    const uint8_t *b = h->b + (group * p->n + n) * stride_of(p->b_stride, p->k);
    float sum = 0;
    for (uint64_t s = 0; s < h->steps; s++) {
        double part = 0;
        for (uint64_t k = s * 128; k < p->k && k < s * 128 + 128; k++)
            part += value[a[k]] * value[b[k]];
        float scale = h->row_scales[(stack * h->steps + s) * h->scale_rows + at] *
                      h->weight_scales[(group * h->lines + n / 128) * h->steps + s];
        sum = fmaf(scale, (float)part, sum);
    }
    return sum;
}

static bool equals(float want, float got, bool fp32)
{
    float right = fp32 ? want : tp_bf16_to_f32(tp_f32_to_bf16(want));
    return isnan(want) ? isnan(got) : right == got;
}

static float result_at(const struct host *h, uint64_t row, uint64_t n)
{
    uint64_t at = row * stride_of(h->p.out_stride, h->p.n) + n;
    uint16_t half;
    float single;
    if (h->p.fp32_out) {
        memcpy(&single, h->out + 4 * at, 4);
        return single;
    }
    memcpy(&half, h->out + 2 * at, 2);
    return tp_bf16_to_f32(half);
}

/* How many numbers are wrong; what is between rows and behind the last must be poison still. */
static uint64_t wrong_numbers(const struct host *h)
{
    const struct fp8_problem *p = &h->p;
    uint64_t wrong = 0, size = p->fp32_out ? 4 : 2, stride = stride_of(p->out_stride, p->n);
    for (uint64_t row = 0; row < h->a_rows; row++) {
        int64_t group = group_of(h, row);
        for (uint64_t n = 0; n < p->n && group >= 0; n++)
            wrong += !equals(expected(h, row, (uint64_t)group, n), result_at(h, row, n),
                             p->fp32_out);
        bool skipped = p->layout == FP8_CONTIGUOUS && h->rows[row / 64 * 64] < 0;
        for (uint64_t n = 0; n < p->n && skipped; n++)
            wrong += result_at(h, row, n) != 0;
        for (uint64_t i = p->n * size; i < stride * size; i++)
            wrong += h->out[row * stride * size + i] != 0xFF;
    }
    for (uint64_t i = 0; i < GUARD; i++)
        wrong += h->out[h->out_bytes + i] != 0xFF;
    return wrong;
}

static gpu_address send(const void *data, uint64_t bytes)
{
    gpu_address memory = 0;
    if (bytes && (gpu.alloc(&memory, bytes) || gpu.upload(memory, data, bytes)))
        exit(1);
    return memory;
}

static enum tp_code compute(const struct tp_sched_config *config, struct host *h,
                            struct tp_err *err)
{
    const struct fp8_problem *p = &h->p;
    uint64_t stacks = p->layout == FP8_MASKED ? p->groups : 1;
    gpu_address memory[] = {
        send(h->a, h->a_rows * stride_of(p->a_stride, p->k)),
        send(h->b, p->groups * p->n * stride_of(p->b_stride, p->k)),
        send(h->row_scales, stacks * h->steps * h->scale_rows * 4),
        send(h->weight_scales, p->groups * h->lines * h->steps * 4),
        send(h->rows, h->row_numbers * 4), send(h->out, h->out_bytes + GUARD)};
    struct fp8_operands o;
    const void **to[] = {&o.a, &o.b, &o.row_scales, &o.weight_scales, &o.rows};
    for (int i = 0; i < 5; i++)
        *to[i] = (const void *)(uintptr_t)memory[i];
    o.out = (void *)(uintptr_t)memory[5];
    struct fp8_kernel kernel;
    struct fp8_arguments arguments;
    gpu.fill(memory[5], 0xFF, h->out_bytes + GUARD);
    enum tp_code code = fp8_open(config, p, &kernel, err);
    if (code == TP_OK && (code = fp8_arguments(&kernel, &o, &arguments, err)) == TP_OK &&
        (code = fp8_launch(&kernel, &arguments, NULL, err)) == TP_OK)
        code = gpu_check(gpu.synchronize(), "the kernel failed", err);
    if (code == TP_OK)
        code = gpu_check(gpu.download(h->out, memory[5], h->out_bytes + GUARD), "the result", err);
    fp8_close(&kernel);
    for (int i = 0; i < 6; i++)
        if (memory[i])
            gpu.release(memory[i]);
    return code;
}

static void check(const struct fp8_problem *p, enum tp_sched_kernel planner, const char *what,
                  void (*spoil)(struct host *))
{
    bool masked = p->layout == FP8_MASKED;
    struct tp_sched_problem problem = {
        .kernel = planner, .arch = 9, .m = p->m, .n = p->n, .k = p->k,
        .groups = masked ? p->groups : 1, .experts = p->groups, .sms = 132, .masked = masked,
        .contiguous = p->layout == FP8_CONTIGUOUS, .fp32_out = p->fp32_out};
    struct tp_sched_plan plan;
    struct tp_err err = {0};
    struct host h;
    if (tp_sched_plan(&problem, 1, &plan, &err) || plan.count == 0)
        return;
    make(&h, p);
    if (spoil)
        spoil(&h);
    enum tp_code code = compute(&plan.config[0], &h, &err);
    uint64_t wrong = code ? 0 : wrong_numbers(&h);
    if (code || wrong) {
        failed++;
        printf("FAIL %s m %llu n %llu k %llu, tile %llux%llu: %llu wrong %s\n", what,
               (unsigned long long)p->m, (unsigned long long)p->n, (unsigned long long)p->k,
               (unsigned long long)plan.config[0].block_m,
               (unsigned long long)plan.config[0].block_n, (unsigned long long)wrong, err.what);
    } else {
        passed++;
    }
    drop(&h);
}

/* A NaN in a row of each, the largest values, and scales that overflow. */
static void spoil(struct host *h)
{
    h->a[3 * h->p.k + 5] = 0x7F;
    h->b[2 * h->p.k + 7] = 0xFF;
    memset(h->a + h->p.k, 0x7E, h->p.k);
    memset(h->b + 4 * h->p.k, 0x7E, h->p.k);
    for (uint64_t s = 0; s < h->steps; s++)
        h->row_scales[s * h->scale_rows + 1] = 0x1p120f;
}

/* Rows of no group: the end of a half tile, a half, and the last tile, of which the neighbour in a
 * cluster has rows. */
static void leave_rows(struct host *h)
{
    for (uint64_t i = 0; i < h->p.m; i++)
        if ((i >= 123 && i < 128) || (i >= 192 && i < 256) || i >= h->p.m - 128)
            h->rows[i] = -1;
}

static void check_all(enum tp_sched_kernel planner)
{
    static const uint64_t shapes[][3] = {{1, 8, 16},     {3, 24, 48},     {17, 104, 400},
                                         {64, 128, 128}, {65, 200, 272},  {129, 576, 512},
                                         {300, 136, 784}, {513, 520, 384}, {1100, 264, 256},
                                         {40, 64, 208} /* one stage for two steps */};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fp32 = 0; fp32 < 2; fp32++) {
            struct fp8_problem p = {.m = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2],
                                    .groups = 1, .fp32_out = fp32};
            check(&p, planner, fp32 ? "fp32" : "bf16", NULL);
            p.a_stride = p.k + 32;
            p.b_stride = p.k + 16;
            p.out_stride = p.n + 16;
            check(&p, planner, "strides", NULL);
            p.a_stride = p.b_stride = p.out_stride = 0;
            if (p.m > 4 && p.n > 4)
                check(&p, planner, "NaN and overflow", spoil);
        }
    static const uint64_t groups[][4] = {{3, 384, 200, 272}, {4, 512, 576, 512}, {2, 40, 256, 272},
                                         {5, 130, 384, 400}, {3, 600, 768, 256}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct fp8_problem p = {.groups = groups[i][0], .m = groups[i][1], .n = groups[i][2],
                                .k = groups[i][3], .layout = FP8_MASKED};
        check(&p, planner, "masked", NULL);
        p.layout = FP8_CONTIGUOUS;
        if (p.m % 128 == 0)
            check(&p, planner, "contiguous", NULL);
        if (p.m % 128 == 0)
            check(&p, planner, "rows of no group", leave_rows);
    }
    struct fp8_problem pairs = {.groups = 2, .m = 2048, .n = 3072, .k = 16,
                                .layout = FP8_CONTIGUOUS}; /* in clusters along m */
    check(&pairs, planner, "rows of no group, in clusters", leave_rows);
}

int main(void)
{
    struct tp_err err = {0};
    int device;
    void *context;
    if (gpu_load(&err) || gpu.init(0) || gpu.device_get(&device, 0) ||
        gpu.context_retain(&context, device) || gpu.context_set(context)) {
        printf("skipped: no GPU is usable\n");
        return 0;
    }
    for (int i = 0; i < 256; i++)
        value[i] = (double)tp_e4m3_value((uint8_t)i);
    check_all(TP_SCHED_DEEPGEMM);
    check_all(TP_SCHED_DEEPGEMM_2025);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
