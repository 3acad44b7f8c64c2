/* tp_cuda_compare() against the same sums on the host, added in the same order: equal
 * to the last bit, for counts around the chunk size, all three types, and values that
 * are NaN or infinite. Then lanes that ask for too much. Exit 0 passed, 1 not, 77 no
 * device. (Not for compute-sanitizer, which counts the refused allocation.)
 */
#include <cuda_runtime.h>

extern "C" {
#include "kernels/cuda/cuda.h"
#include "pack/format/format.h"
}
#include "kernels/op/scalar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 256, CHUNK = 16384 };

struct sums {
    double error2, value2;
    float max;
    uint64_t differing, first;
};

static uint32_t state = 1;

static uint32_t next_random(void) { return state = state * 1664525u + 1013904223u; }

static float value_at(enum tp_dtype dtype, const void *values, uint64_t i)
{
    if (dtype == TP_F32)
        return ((const float *)values)[i];
    uint16_t h = ((const uint16_t *)values)[i];
    return dtype == TP_BF16 ? tp_bf16_to_f32(h) : tp_f16_to_f32(h);
}

static void add_pair(struct sums *s, float a, float b, uint64_t i)
{
    if (isfinite(b))
        s->value2 += (double)b * (double)b;
    if (tp_f32_bits(a) == tp_f32_bits(b) || (isnan(a) && isnan(b)))
        return;
    double d = fabs((double)a - (double)b);
    d = isfinite(d) ? d : INFINITY;
    s->error2 += d * d;
    s->max = fmaxf(s->max, (float)d);
    s->first = s->differing++ == 0 || i < s->first ? i : s->first;
}

static void add(struct sums *a, const struct sums *b)
{
    a->error2 += b->error2;
    a->value2 += b->value2;
    a->max = fmaxf(a->max, b->max);
    if (b->differing > 0 && (a->differing == 0 || b->first < a->first))
        a->first = b->first;
    a->differing += b->differing;
}

static void fold(struct sums *s)
{
    for (int half = THREADS / 2; half > 0; half /= 2)
        for (int t = 0; t < half; t++)
            add(&s[t], &s[t + half]);
}

static struct sums host_sums(enum tp_dtype dtype, const void *a, const void *b, uint64_t count)
{
    static struct sums total[THREADS];
    for (int t = 0; t < THREADS; t++)
        total[t] = {};
    for (uint64_t c = 0; c * CHUNK < count; c++) {
        static struct sums s[THREADS];
        for (int t = 0; t < THREADS; t++) {
            s[t] = {};
            for (uint64_t i = c * CHUNK + t; i < count && i < (c + 1) * CHUNK; i += THREADS)
                add_pair(&s[t], value_at(dtype, a, i), value_at(dtype, b, i), i);
        }
        fold(s);
        add(&total[c % THREADS], &s[0]);
    }
    fold(total);
    return total[0];
}

static void fill(enum tp_dtype dtype, void *a, void *b, uint64_t count, bool special)
{
    for (uint64_t i = 0; i < count; i++) {
        float x = (float)(int)next_random() * 1e-9f;
        float y = next_random() % 3 ? x : x + (float)(int)next_random() * 1e-12f;
        if (special && next_random() % 50 == 0)
            x = next_random() % 2 ? NAN : INFINITY, y = next_random() % 2 ? x : y;
        if (dtype == TP_F32) {
            ((float *)a)[i] = x;
            ((float *)b)[i] = y;
        } else {
            ((uint16_t *)a)[i] = dtype == TP_BF16 ? tp_f32_to_bf16(x) : tp_f32_to_f16(x);
            ((uint16_t *)b)[i] = dtype == TP_BF16 ? tp_f32_to_bf16(y) : tp_f32_to_f16(y);
        }
    }
}

static int check(enum tp_dtype dtype, uint64_t count, bool special)
{
    struct tp_cuda_errors got = {};
    struct tp_err err = {};
    void *a = malloc(count * 4 + 4), *b = malloc(count * 4 + 4), *x, *y, *scratch;
    if (a == NULL || b == NULL || cudaMalloc(&x, count * 4 + 4) || cudaMalloc(&y, count * 4 + 4) ||
        cudaMalloc(&scratch, tp_cuda_compare_scratch(count)))
        return 1;
    fill(dtype, a, b, count, special);
    if (cudaMemcpy(x, a, count * 4, cudaMemcpyHostToDevice) ||
        cudaMemcpy(y, b, count * 4, cudaMemcpyHostToDevice))
        return 1;
    struct sums want = host_sums(dtype, a, b, count);
    int bad = tp_cuda_compare(dtype, x, y, count, scratch, NULL, &got, &err) != TP_OK ||
              got.sum_error2 != want.error2 || got.sum_value2 != want.value2 ||
              got.max_error != want.max || got.differing != want.differing ||
              (want.differing > 0 && got.first != want.first);
    if (bad)
        printf("FAIL %s %llu: %s error2 %.17g, not %.17g; first %llu, not %llu\n",
               tp_dtype_name(dtype), (unsigned long long)count, err.what, got.sum_error2,
               want.error2, (unsigned long long)got.first, (unsigned long long)want.first);
    cudaFree(x);
    cudaFree(y);
    free(a);
    free(b);
    cudaFree(scratch);
    return bad;
}

/* Too large a slot fails as "no memory", leaves nothing behind, and a smaller one
 * opens afterwards. A call outside its slot's buffers is refused. */
static int check_limits(void)
{
    const struct tp_op *op = &tp_format_find("mxfp8-ct")->op;
    struct tp_cuda_call call = {};
    struct tp_cuda_slot *slot;
    struct tp_err err = {}, second = {}, third = {};
    bool no_memory = false;
    int failed = 0;
    if (tp_cuda_open(0, 64, 64, (uint64_t)1 << 46, &slot, &no_memory, &err) != TP_E_MEMORY ||
        !no_memory || slot != NULL)
        failed += puts("FAIL a slot too large is not refused as out of memory") >= 0;
    if (tp_cuda_open(0, 4096, 1 << 20, 0, &slot, &no_memory, &second) != TP_OK) {
        printf("FAIL a slot after that: %s\n", second.what);
        return failed + 1;
    }
    call.kind = TP_CUDA_ENCODE;
    call.to = op;
    call.args.box = {1, 128, 128};
    call.args.dtype = TP_F32;
    call.args.in[0] = tp_cuda_input(slot);
    call.args.out[0] = tp_cuda_output(slot);
    call.args.out[1] = (uint8_t *)tp_cuda_output(slot) + 65536;
    if (tp_cuda_run(slot, &call, &third) == TP_OK)
        failed += puts("FAIL an input larger than its slot is not refused") >= 0;
    tp_cuda_close(slot);
    tp_cuda_close(NULL);
    return failed;
}

int main(void)
{
    static const enum tp_dtype dtypes[] = {TP_F32, TP_BF16, TP_F16};
    static const uint64_t counts[] = {0, 1, 255, 16383, 16384, 16385, 70000, 5000001};
    int failed = 0;
    if (tp_cuda_count() == 0) {
        printf("no device: %s\n", tp_cuda_why_none());
        return 77;
    }
    for (enum tp_dtype dtype : dtypes)
        for (uint64_t count : counts)
            for (int special = 0; special < 2; special++)
                failed += check(dtype, count, special != 0);
    failed += check_limits();
    printf("%d failures\n", failed);
    return failed != 0;
}
