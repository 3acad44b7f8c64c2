/* Error feedback on the device and on one thread of each instruction set: rates, and whether the
 * bytes are the same.
 *
 *     bench_feedback [--device D] [--rank R] [--repeats N] [--only TEXT]
 *
 * One line per format and shape. The device's time is of whole calls, copies over the bus
 * included; the host's is the best of some. TEXT picks the formats whose name holds it. Without a
 * GPU only the host is measured.
 */
#include "base/num.h"
#include "kernels/cuda/cuda.h"
#include "kernels/op/codec.h"
#include "kernels/op/feedback.h"
#include "kernels/op/scalar.h"
#include "pack/format/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HOST_ROWS = 64 };

struct options {
    int device;
    uint32_t rank, repeats;
    const char *only;
};

/* Groups of 128 with scales of bf16, of 16 and of 32; and as the W4A8 kernel computes. */
static const char *const formats[] = {"w4a16-ct", "nvfp4-ct", "mxfp4-ct", "w4a8-cutlass"};
static const struct tp_box3 boxes[] = {
    {1, 4096, 4096}, {1, 1024, 4096}, {1, 4096, 14336}, {1, 512, 14336}, {0, 0, 0},
};

/* Of the host the time of the thread, which others that run do not add to. */
static double now(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Numbers about 0 of a bell shape. */
static float normal(uint64_t *state)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) / 16777216.0f - 0.5f;
    }
    return sum;
}

static void *take(uint64_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p)
        exit(2);
    return memset(p, 0, bytes);
}

/* One weight and what is made of its moments. */
struct weight {
    struct tp_op op;
    struct tp_box3 box;
    uint16_t *values;
    float *h, *v;
    void *state;
    struct tp_feedback fed;
    float global;
    uint64_t bytes[TP_MAX_OUT], all;
    uint8_t *out;
};

static void make_op(const char *name, uint32_t rank, struct tp_op *op)
{
    struct tp_settings settings = {.choice = {0}};
    tp_format_op(tp_format_find(name), &settings, op);
    op->search = TP_SEARCH_MSE;
    op->importance = TP_IMPORTANCE_FILE;
    op->rank = (uint8_t)rank;
}

static void make_weight(const char *name, struct tp_box3 box, uint32_t rank, struct weight *w)
{
    struct tp_value_stats stats;
    struct tp_err err = {0};
    uint64_t state = 1;
    *w = (struct weight){.box = box};
    make_op(name, rank, &w->op);
    w->values = take(2 * box.n * box.k);
    w->h = take(box.k * sizeof(float));
    w->v = take(box.k * rank * sizeof(float));
    for (uint64_t i = 0; i < box.n * box.k; i++)
        w->values[i] = (uint16_t)(tp_f32_bits(normal(&state)) >> 16);
    for (uint64_t i = 0; i < box.k; i++)
        w->h[i] = 1.0f + 20.0f * normal(&state) * normal(&state);
    for (uint64_t i = 0; i < box.k; i++)
        w->h[i] = fmaxf(w->h[i], 0.01f);
    for (uint64_t i = 0; i < box.k * rank; i++)
        w->v[i] = normal(&state) * sqrtf(w->h[i / rank] / (float)rank);
    w->state = take(tp_feedback_bytes(box.k, rank));
    tp_feedback_make(tp_feedback_column_find(), w->h, w->v, box.k, rank, w->state, &w->fed);
    w->fed.serial = 1;
    tp_value_stats(TP_BF16, w->values, box.n * box.k, &stats);
    w->global = tp_codec_global(&w->op, TP_BF16, stats.amax);
    for (uint32_t i = 0; i < w->op.outs; i++) {
        if (tp_op_bytes(&w->op, i, box, &w->bytes[i], &err) != TP_OK)
            exit(2);
        w->all += tp_round_up(w->bytes[i], 64);
    }
    w->out = take(w->all);
}

static void free_weight(struct weight *w)
{
    free(w->values);
    free(w->h);
    free(w->v);
    free(w->state);
    free(w->out);
}

static struct tp_args args_of(const struct weight *w, void *values, uint8_t *out)
{
    struct tp_args args = {.box = w->box, .dtype = TP_BF16, .in = {values},
                           .importance = w->h, .fed = &w->fed, .global = w->global};
    for (uint32_t i = 0; i < w->op.outs; out += tp_round_up(w->bytes[i], 64), i++)
        args.out[i] = w->op.out[i].role == TP_ROLE_WORDS ? NULL : out;
    return args;
}

/* Seconds of a call with a host function. */
static double encode(const struct weight *w, tp_encode_fn function, void *scratch, uint8_t *out)
{
    struct tp_args args = args_of(w, w->values, out);
    args.scratch = scratch;
    const double start = now(CLOCK_THREAD_CPUTIME_ID);
    function(&w->op, &args);
    return now(CLOCK_THREAD_CPUTIME_ID) - start;
}

/* Each row of the host that does it, on the first rows of the weight. */
static int bench_host(const char *name, uint64_t k, const struct options *o)
{
    struct weight w;
    int failed = 0;
    make_weight(name, (struct tp_box3){1, HOST_ROWS, k}, o->rank, &w);
    void *scratch = take(tp_encode_scratch(&w.op, w.box));
    uint8_t *want = take(w.all);
    const double slow = encode(&w, tp_encode_ref, scratch, want);
    const double weights = (double)(w.box.n * w.box.k);
    printf("%-13s %5d rank %-3u reference %7.1f ns", name, (int)k, o->rank, 1e9 * slow / weights);
    const struct tp_row_set *host = tp_host_rows();
    for (size_t i = 0; i < host->encodes; i++) {
        double best = 1e9;
        if (!tp_encode_row_fits(&host->encode[i], &w.op, TP_BF16))
            continue;
        for (int r = 0; r < 9; r++) {
            memset(w.out, 0, w.all);
            best = fmin(best, encode(&w, host->encode[i].encode, scratch, w.out));
        }
        const bool same = memcmp(w.out, want, w.all) == 0;
        failed |= !same;
        printf(", %s %5.2f ns%s", host->encode[i].name, 1e9 * best / weights,
               same ? "" : " OTHER BYTES");
    }
    printf("\n");
    fflush(stdout);
    free(scratch);
    free(want);
    free_weight(&w);
    return failed;
}

/* A whole call on the device, its bytes beside those of the host. */
static int bench_device(const char *name, struct tp_box3 box, const struct options *o)
{
    struct weight w;
    struct tp_err err = {0};
    struct tp_cuda_slot *slot;
    bool no_memory;
    double best = 1e9, search = 1e9;
    make_weight(name, box, o->rank, &w);
    if (tp_cuda_open(o->device, 2 * box.n * box.k, w.all, 0, &slot, &no_memory, &err) != TP_OK) {
        printf("%s\n", err.what);
        return 1;
    }
    uint8_t *out = tp_cuda_output(slot);
    void *in = memcpy(tp_cuda_input(slot), w.values, 2 * box.n * box.k);
    struct tp_op plain = w.op;
    plain.rank = 0;
    for (uint32_t r = 0; r < 2 * o->repeats; r++) {
        struct tp_cuda_call call = {.kind = TP_CUDA_ENCODE, .to = r % 2 ? &w.op : &plain,
                                    .args = args_of(&w, in, out)};
        if (r % 2 == 0)
            call.args.fed = NULL;
        memset(out, 0, w.all);
        const double start = now(CLOCK_MONOTONIC);
        if (tp_cuda_run(slot, &call, &err) != TP_OK) {
            printf("%s: %s\n", name, err.what);
            return 1;
        }
        double *time = r % 2 ? &best : &search;
        *time = fmin(*time, now(CLOCK_MONOTONIC) - start);
    }
    void *scratch = take(tp_encode_scratch(&w.op, box));
    encode(&w, tp_encode_find(&w.op, TP_BF16), scratch, w.out);
    const bool same = memcmp(out, w.out, w.all) == 0;
    const double weights = (double)(box.n * box.k);
    printf("%-13s %5d x %-5d rank %-3u %8.3f ms, %6.2f G weights/s; search alone %8.3f ms; "
           "feedback alone %6.2f G weights/s%s\n", name, (int)box.n, (int)box.k, o->rank,
           1e3 * best, 1e-9 * weights / best, 1e3 * search, 1e-9 * weights / (best - search),
           same ? "" : " OTHER BYTES");
    fflush(stdout);
    tp_cuda_close(slot);
    free(scratch);
    free_weight(&w);
    return !same;
}

int main(int argc, char **argv)
{
    struct options o = {.rank = 64, .repeats = 10};
    int failed = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            o.device = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rank") == 0)
            o.rank = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--repeats") == 0)
            o.repeats = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            o.only = argv[i + 1];
    }
    if (o.rank < 1 || o.rank > TP_FEEDBACK_RANK || o.repeats < 1)
        return 2;
    if (tp_cuda_count() == 0)
        printf("no device: %s\n", tp_cuda_why_none());
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        if (o.only != NULL && strstr(formats[f], o.only) == NULL)
            continue;
        failed |= bench_host(formats[f], 4096, &o);
        for (const struct tp_box3 *box = boxes; box->e > 0 && tp_cuda_count() > 0; box++)
            failed |= bench_device(formats[f], *box, &o);
    }
    return failed;
}
