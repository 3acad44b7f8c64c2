/* Speed of every compiled host row, against memcpy of the same number of bytes.
 *
 * One thread; bf16 and f32 normal values, no NaN. Prints GB/s (bytes in plus bytes
 * out) and the ratio; the best of alternating runs in the thread's own CPU time, so
 * that other work on the machine disturbs little.
 * Usage: bench_rows [MiB of input] [part of a row's name] [K]
 */
#include "ops.h"

#include "kernels/op/row_set.h"
#include "kernels/op/scalar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 41, MAX_OPS = 32 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *buffer(size_t size)
{
    void *p = aligned_alloc(64, (size + 64) / 64 * 64);
    if (p == NULL) {
        perror("bench_rows");
        exit(6);
    }
    memset(p, 1, size);
    return p;
}

/* A sum of uniforms is normal enough; roughly as wide as real weights. */
static float next_value(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 0.035f;
}

static void fill_values(void *p, enum tp_dtype dtype, uint64_t count)
{
    uint64_t state = 12345;
    for (uint64_t i = 0; i < count; i++) {
        float x = next_value(&state);
        if (dtype == TP_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = dtype == TP_BF16 ? tp_f32_to_bf16(x) : tp_f32_to_f16(x);
    }
}

/* One measured thing: run() moves `bytes` in all. */
struct job {
    void (*run)(struct job *job);
    const struct tp_op *from, *op;
    struct tp_args args;
    tp_encode_fn encode;
    tp_repack_fn repack;
    uint64_t bytes;
};

static void run_encode(struct job *job) { job->encode(job->op, &job->args); }
static void run_repack(struct job *job) { job->repack(job->from, job->op, &job->args); }

static void measure(struct job *job, const char *name)
{
    double t_row[RUNS], t_copy[RUNS];
    uint8_t *a = buffer(job->bytes / 2), *b = buffer(job->bytes / 2);
    job->run(job);
    for (int i = 0; i < RUNS; i++) {
        double t = now();
        memcpy(b, a, job->bytes / 2);
        __asm__ volatile("" : : "r"(b) : "memory");
        t_copy[i] = now() - t;
        t = now();
        job->run(job);
        t_row[i] = now() - t;
    }
    qsort(t_row, RUNS, sizeof *t_row, by_value);
    qsort(t_copy, RUNS, sizeof *t_copy, by_value);
    printf("%-34s %7.2f GB/s  memcpy %7.2f  ratio %.2f\n", name,
           (double)job->bytes / t_row[0] * 1e-9,
           (double)job->bytes / t_copy[0] * 1e-9, t_copy[0] / t_row[0]);
    fflush(stdout);
    free(a);
    free(b);
}

static uint64_t outputs(const struct tp_op *op, struct tp_box3 box, void *out[])
{
    struct tp_err err = {0};
    uint64_t total = 0, bytes;
    for (uint32_t i = 0; i < op->outs; i++) {
        if (tp_op_bytes(op, i, box, &bytes, &err) != TP_OK) {
            fprintf(stderr, "%s\n", err.what);
            exit(3);
        }
        out[i] = buffer(bytes);
        total += bytes;
    }
    return total;
}

static void free_all(void *p[], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(p[i]);
}

static size_t make_ops(struct tp_op ops[])
{
    size_t n = 0;
    ops[n++] = ops_fp8_deepseek(TP_FP8_V2, TP_FP8_SCALE_FP32);
    ops[n++] = ops_fp8_sm100(TP_FP8_V2);
    ops[n++] = ops_fp8_1x128(TP_FP8_V2, TP_FP8_SCALE_FP32);
    ops[n++] = ops_mxfp8_ct(TP_MX_RCEIL);
    ops[n++] = ops_mxfp8_blocked(TP_MX_RCEIL);
    ops[n++] = ops_mxfp8_torchao3d(TP_MX_RCEIL, 1);
    ops[n++] = ops_mxfp8_torchao3d(TP_MX_RCEIL, 32);
    ops[n++] = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32);
    ops[n++] = ops_w4a8_cutlass(TP_INT4_QUOTIENT_FP32, TP_CHANNEL_GPU, false);
    ops[n++] = ops_mxfp4_ct(TP_MX_RCEIL);
    ops[n++] = ops_nvfp4_ct(TP_NVFP4_CT);
    return n;
}

/* The same with a search and the importance that it has by default. */
static size_t make_searches(struct tp_op ops[])
{
    size_t n = 0;
    ops[n++] = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32);
    ops[n++] = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32);
    ops[n++] = ops_w4a8_cutlass(TP_INT4_QUOTIENT_FP32, TP_CHANNEL_GPU, false);
    for (size_t i = 0; i < n; i++) {
        ops[i].search = i == 0 ? TP_SEARCH_MSE : TP_SEARCH_W4A8;
        ops[i].importance = TP_IMPORTANCE_MAGNITUDE;
    }
    ops[n] = ops_mxfp4_ct(TP_MX_RCEIL);
    ops[n++].search = TP_SEARCH_MSE;
    ops[n] = ops_nvfp4_ct(TP_NVFP4_CT);
    ops[n++].search = TP_SEARCH_MSE;
    return n;
}

static uint64_t row_length = 5120;

/* About `values` values in a shape like real weights. */
static struct tp_box3 box_of(uint64_t values)
{
    struct tp_box3 box = {1, values / row_length / 128 * 128, row_length};
    if (box.n == 0)
        box = (struct tp_box3){1, 128, values / 128 / 256 * 256};
    return box;
}

static void bench_encode(const struct tp_encode_row *row, const struct tp_op *op, uint64_t size,
                         const char *block)
{
    uint64_t width = tp_dtype_bits(row->dtype) / 8;
    struct tp_box3 box = box_of(size / width);
    uint64_t count = box.e * box.n * box.k;
    struct job job = {.run = run_encode, .op = op, .encode = row->encode};
    void *in = buffer(count * width);
    char name[96];
    fill_values(in, row->dtype, count);
    job.args.box = box;
    job.args.dtype = row->dtype;
    job.args.global = 1000.0f;
    job.args.in[0] = in;
    job.args.scratch = buffer(tp_encode_scratch(op, box));
    job.bytes = count * width + outputs(op, box, job.args.out);
    snprintf(name, sizeof name, "%s%s", row->name, block);
    measure(&job, name);
    free(in);
    free(job.args.scratch);
    free_all(job.args.out, op->outs);
}

static void bench_decode(const struct tp_decode_row *row, const struct tp_op *op, uint64_t size)
{
    uint64_t width = tp_dtype_bits(row->dtype) / 8;
    struct tp_box3 box = box_of(size / width);
    uint64_t count = box.e * box.n * box.k;
    struct job job = {.run = run_encode, .op = op, .encode = row->decode};
    void *values = buffer(count * width), *in[TP_MAX_OUT] = {0};
    fill_values(values, row->dtype, count);
    job.args.box = box;
    job.args.dtype = row->dtype;
    job.args.global = 1000.0f;
    job.args.in[0] = values;
    job.args.scratch = buffer(tp_encode_scratch(op, box));
    job.bytes = count * width + outputs(op, box, in);
    memcpy(job.args.out, in, sizeof in);
    tp_encode_find(op, row->dtype)(op, &job.args);
    memcpy(job.args.in, in, sizeof in);
    job.args.out[0] = values;
    measure(&job, row->name);
    free(values);
    free(job.args.scratch);
    free_all(in, op->outs);
}

static void bench_repack(const struct tp_repack_row *row, const struct tp_op *from,
                         const struct tp_op *to, uint64_t size)
{
    struct tp_box3 box = box_of(size);
    uint64_t count = box.e * box.n * box.k;
    struct job job = {.run = run_repack, .from = from, .op = to, .repack = row->repack};
    void *values = buffer(2 * count), *in[TP_MAX_OUT] = {0};
    fill_values(values, TP_BF16, count);
    job.args.box = box;
    job.args.dtype = TP_BF16;
    job.args.in[0] = values;
    job.args.scratch = buffer(tp_encode_scratch(to, box));
    job.bytes = outputs(from, box, in);
    memcpy(job.args.out, in, sizeof in);
    tp_encode_find(from, TP_BF16)(from, &job.args);
    memcpy(job.args.in, in, sizeof in);
    job.bytes += outputs(to, box, job.args.out);
    measure(&job, row->name);
    free(values);
    free(job.args.scratch);
    free_all(in, from->outs);
    free_all(job.args.out, to->outs);
}

static void bench_encodes(const struct tp_op *op, uint64_t size, const char *part)
{
    const struct tp_encode_row *row = tp_host_rows()->encode;
    const size_t count = tp_host_rows()->encodes;
    for (size_t r = 0; r < count; r++)
        if (tp_encode_row_fits(&row[r], op, row[r].dtype) && strstr(row[r].name, part))
            bench_encode(&row[r], op, size,
                         op->block_n == 32 && op->block_k == 32 ? "_32x32" : "");
}

static void bench_decodes(const struct tp_op *op, uint64_t size, const char *part)
{
    const struct tp_decode_row *row = tp_host_rows()->decode;
    const size_t count = tp_host_rows()->decodes;
    for (size_t r = 0; r < count; r++)
        if (tp_decode_row_fits(&row[r], op, row[r].dtype) && strstr(row[r].name, part))
            bench_decode(&row[r], op, size);
}

static void bench_repacks(const struct tp_op *from, const struct tp_op *to, uint64_t size,
                          const char *part)
{
    const struct tp_repack_row *row = tp_host_rows()->repack;
    const size_t count = tp_host_rows()->repacks;
    for (size_t r = 0; r < count; r++)
        if (tp_repack_possible(from, to) && tp_repack_row_fits(&row[r], from, to) &&
            strstr(row[r].name, part))
            bench_repack(&row[r], from, to, size);
}

int main(int argc, char **argv)
{
    uint64_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) << 20;
    const char *part = argc > 2 ? argv[2] : "";
    struct tp_op ops[MAX_OPS];
    size_t count = make_ops(ops), searches = make_searches(ops + count);
    if (argc > 3)
        row_length = strtoull(argv[3], NULL, 10);
    for (size_t i = 0; i < count + searches; i++)
        bench_encodes(&ops[i], size, part);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            bench_repacks(&ops[i], &ops[j], size, part);
    for (size_t i = 0; i < count; i++)
        bench_decodes(&ops[i], size, part);
    return 0;
}
