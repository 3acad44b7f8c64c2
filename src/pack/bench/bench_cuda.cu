/* See bench_cuda.h. Fills inputs with random weights on the device, so that nothing
 * is timed on zeros; knows rows only through the finders of cuda.h. */
#include "kernels/cuda/cuda_device.cuh"

#include "base/num.h"
#include "kernels/cuda/cuda.h"
#include "pack/bench/bench_cuda.h"

#include <stdlib.h>

enum { STREAM_THREADS = 256, MAX_SETS = 64, MAX_LAUNCHES = 256, WARM_UP = 5, REPEATS = 25 };

/* ---- the ceiling ----------------------------------------------------------- */

/* READS loads and WRITES stores of 16 bytes a thread and step, each step a
 * contiguous piece of both arrays, UNROLL steps at a time. */
template <int READS, int WRITES, int UNROLL>
static __global__ __launch_bounds__(STREAM_THREADS) void
stream(const uint4 *in, uint4 *out, uint64_t steps)
{
    for (uint64_t s = (uint64_t)blockIdx.x * UNROLL; s < steps;
         s += (uint64_t)gridDim.x * UNROLL) {
        uint4 v[UNROLL][READS];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int j = 0; j < READS; j++)
                if (s + u < steps)
                    v[u][j] = in[((s + u) * READS + j) * STREAM_THREADS + threadIdx.x];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (s + u >= steps)
                break;
#pragma unroll
            for (int j = 1; j < READS; j++) { /* every word read is used */
                v[u][0].x ^= v[u][j].x, v[u][0].y ^= v[u][j].y;
                v[u][0].z ^= v[u][j].z, v[u][0].w ^= v[u][j].w;
            }
#pragma unroll
            for (int j = 0; j < WRITES; j++)
                out[((s + u) * WRITES + j) * STREAM_THREADS + threadIdx.x] =
                    j < READS ? v[u][j < READS ? j : 0] : v[u][0];
        }
    }
}

typedef void (*stream_fn)(const uint4 *in, uint4 *out, uint64_t steps);

struct mix {
    uint32_t reads, writes;
    stream_fn kernel[2]; /* one step at a time, and several */
};

static const struct mix mixes[] = {
    {1, 4, {stream<1, 4, 1>, stream<1, 4, 4>}}, {1, 2, {stream<1, 2, 1>, stream<1, 2, 4>}},
    {1, 1, {stream<1, 1, 1>, stream<1, 1, 4>}}, {2, 1, {stream<2, 1, 1>, stream<2, 1, 2>}},
    {3, 1, {stream<3, 1, 1>, stream<3, 1, 2>}}, {7, 2, {stream<7, 2, 1>, stream<7, 2, 2>}},
    {4, 1, {stream<4, 1, 1>, stream<4, 1, 2>}}, {7, 1, {stream<7, 1, 1>, stream<7, 1, 2>}},
};
enum { MIXES = sizeof mixes / sizeof mixes[0] };

static const struct mix *nearest_mix(uint64_t read, uint64_t write)
{
    const struct mix *best = &mixes[0];
    double min = 1e300;
    for (int i = 0; i < MIXES; i++) {
        double a = (double)read * mixes[i].writes, b = (double)write * mixes[i].reads;
        double distance = a > b ? a / b : b / a;
        if (distance < min)
            min = distance, best = &mixes[i];
    }
    return best;
}

/* ---- random weights ------------------------------------------------------- */

static __device__ float random_weight(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    int sum = (int)(z & 0xFFFF) + (int)(z >> 16 & 0xFFFF) + (int)(z >> 32 & 0xFFFF) +
              (int)(z >> 48) - 131070;
    return (float)sum * (0.04f / 65536.0f);
}

static __global__ void random_weights(uint8_t *out, uint32_t dtype, uint64_t count, uint64_t seed)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += (uint64_t)gridDim.x * blockDim.x) {
        float v = random_weight(i + seed);
        if (dtype == TP_F32)
            ((float *)out)[i] = v;
        else
            ((uint16_t *)out)[i] = dtype == TP_BF16 ? tp_f32_to_bf16(v) : tp_f32_to_f16(v);
    }
}

/* ---- one measurement ------------------------------------------------------- */

struct run {
    struct tp_cuda_bench *b;
    struct tp_err *err;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    uint8_t *in[MAX_SETS], *out[MAX_SETS];
    uint64_t in_bytes, out_bytes; /* allocated, of one set */
    const struct mix *mix;
    uint32_t grid, unrolled; /* ceiling; grid 0: the row is timed */
    cudaError_t error;
};

static void keep(struct run *r, cudaError_t error)
{
    if (r->error == cudaSuccess)
        r->error = error;
}

static enum tp_code place(const struct tp_op *op, struct tp_box3 box, uint8_t *buffer,
                          void **places, uint64_t *sum, struct tp_err *err)
{
    *sum = 0;
    for (uint32_t i = 0; i < op->outs; i++) {
        uint64_t bytes;
        enum tp_code code = tp_op_bytes(op, i, box, &bytes, err);
        if (code != TP_OK)
            return code;
        places[i] = bytes > 0 ? buffer + *sum : NULL;
        *sum += tp_round_up(bytes, 256);
    }
    return TP_OK;
}

static void enqueue_row(struct run *r, uint32_t set)
{
    struct tp_cuda_bench *b = r->b;
    struct tp_args args = {};
    uint64_t sum;
    args.box = b->box;
    args.dtype = b->dtype;
    args.global = 0.01f;
    args.stream = r->stream;
    args.in[0] = r->in[set];
    args.out[0] = r->out[set];
    if (b->from != NULL)
        place(b->from, b->box, r->in[set], (void **)args.in, &sum, r->err);
    if (b->kind != TP_CUDA_DECODE)
        place(b->to, b->box, r->out[set], args.out, &sum, r->err);
    if (b->scales_only)
        args.out[tp_op_find(b->to, TP_ROLE_CODES)] =
            (void *)args.in[tp_op_find(b->from, TP_ROLE_CODES)];
    if (b->kind == TP_CUDA_ENCODE)
        tp_cuda_encode_find(b->to, b->dtype)(b->to, &args);
    else if (b->kind == TP_CUDA_REPACK)
        tp_cuda_repack_find(b->from, b->to)(b->from, b->to, &args);
    else
        tp_cuda_decode_find(b->from, b->dtype)(b->from, &args);
}

static void enqueue(struct run *r, uint32_t set)
{
    if (r->grid == 0) {
        enqueue_row(r, set);
        return;
    }
    uint64_t steps = (r->b->read_bytes + r->b->write_bytes) /
                     ((r->mix->reads + r->mix->writes) * 16 * STREAM_THREADS);
    r->mix->kernel[r->unrolled]<<<r->grid, STREAM_THREADS, 0, r->stream>>>(
        (const uint4 *)r->in[set], (uint4 *)r->out[set], steps ? steps : 1);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Captures `launches` launches over the rotating buffers and times replays; sorted
 * milliseconds of a whole replay. */
static uint32_t replay(struct run *r, uint32_t launches, uint32_t repeats, float *ms)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    keep(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < launches && r->error == cudaSuccess; i++)
        enqueue(r, i % r->b->buffers);
    keep(r, cudaGetLastError());
    keep(r, cudaStreamEndCapture(r->stream, &graph));
    if (r->error == cudaSuccess)
        keep(r, cudaGraphInstantiate(&exec, graph, 0));
    for (uint32_t i = 0; i < WARM_UP + repeats && r->error == cudaSuccess; i++) {
        keep(r, cudaEventRecord(r->start, r->stream));
        keep(r, cudaGraphLaunch(exec, r->stream));
        keep(r, cudaEventRecord(r->stop, r->stream));
        keep(r, cudaEventSynchronize(r->stop));
        if (i >= WARM_UP)
            keep(r, cudaEventElapsedTime(&ms[i - WARM_UP], r->start, r->stop));
    }
    if (exec != NULL)
        cudaGraphExecDestroy(exec);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    qsort(ms, repeats, sizeof *ms, by_value);
    return repeats;
}

/* Enough launches for about 2 ms, a multiple of the buffers. */
static uint32_t launches_for(const struct run *r)
{
    double seconds = (double)(r->b->read_bytes + r->b->write_bytes) / 4e12;
    uint64_t launches = (uint64_t)(2e-3 / seconds) + 1;
    launches = tp_round_up(launches, r->b->buffers);
    return (uint32_t)tp_min_u64(launches, MAX_LAUNCHES / r->b->buffers * r->b->buffers);
}

static void measure(struct run *r)
{
    struct tp_cuda_bench *b = r->b;
    uint32_t repeats = b->repeats ? (uint32_t)tp_min_u64(b->repeats, 1000) : (uint32_t)REPEATS;
    float ms[1000];
    r->grid = 0;
    replay(r, b->launches, repeats, ms);
    double seconds = ms[repeats / 2] / 1e3 / b->launches;
    if (r->error != cudaSuccess || seconds >= b->seconds)
        return;
    b->seconds = seconds;
    b->seconds_min = ms[0] / 1e3 / b->launches;
    b->seconds_max = ms[repeats - 1] / 1e3 / b->launches;
}

/* The best of several grids: some thread blocks for each multiprocessor, up to one
 * for each piece of work. */
static void measure_ceiling(struct run *r, int multiprocessors)
{
    static const uint32_t per[] = {2, 4, 8, 16, 32, 0};
    struct tp_cuda_bench *b = r->b;
    float ms[REPEATS];
    r->mix = nearest_mix(b->read_bytes, b->write_bytes);
    b->ceiling_reads = r->mix->reads;
    b->ceiling_writes = r->mix->writes;
    uint64_t steps = (b->read_bytes + b->write_bytes) /
                     ((r->mix->reads + r->mix->writes) * 16 * STREAM_THREADS);
    for (uint32_t u = 0; u < 2; u++)
        for (uint32_t p : per) {
            uint64_t grid = p ? (uint64_t)p * multiprocessors : dev_ceil(steps, u ? 2 : 1);
            r->grid = (uint32_t)tp_min_u64(tp_max_u64(grid, 1), 0x7FFFFFFF);
            r->unrolled = u;
            replay(r, b->launches, REPEATS, ms);
            double seconds = ms[REPEATS / 2] / 1e3 / b->launches;
            if (r->error == cudaSuccess && seconds < b->ceiling_seconds) {
                b->ceiling_seconds = seconds;
                b->ceiling_grid = r->grid;
            }
        }
}

/* Fills one set: random weights, encoded on the device where packed data is read. */
static void fill_set(struct run *r, uint32_t set, uint8_t *weights)
{
    struct tp_cuda_bench *b = r->b;
    uint64_t count = b->box.e * b->box.n * b->box.k, sum;
    uint8_t *values = b->kind == TP_CUDA_ENCODE ? r->in[set] : weights;
    enum tp_dtype dtype = b->kind == TP_CUDA_ENCODE ? b->dtype : TP_BF16;
    random_weights<<<2048, 256, 0, r->stream>>>(values, dtype, count, (uint64_t)set << 40);
    if (b->kind != TP_CUDA_ENCODE) {
        struct tp_args args = {};
        args.box = b->box;
        args.dtype = dtype;
        args.global = 0.01f;
        args.stream = r->stream;
        args.in[0] = values;
        place(b->from, b->box, r->in[set], args.out, &sum, r->err);
        tp_cuda_encode_find(b->from, dtype)(b->from, &args);
    }
    keep(r, cudaMemsetAsync(r->out[set], 0xA5, r->out_bytes, r->stream));
}

/* Bytes of the scales (and channel scales) alone. */
static uint64_t scale_bytes(const struct tp_op *op, struct tp_box3 box, struct tp_err *err)
{
    uint64_t sum = 0, bytes;
    for (uint32_t i = 0; i < op->outs; i++)
        if (op->out[i].role != TP_ROLE_CODES && tp_op_bytes(op, i, box, &bytes, err) == TP_OK)
            sum += bytes;
    return sum;
}

static enum tp_code count_bytes(struct run *r)
{
    struct tp_cuda_bench *b = r->b;
    struct tp_cuda_call call = {};
    uint64_t scratch;
    call.kind = b->kind;
    call.from = b->from;
    call.to = b->to;
    call.args.box = b->box;
    call.args.dtype = b->dtype;
    enum tp_code code =
        tp_cuda_call_bytes(&call, &b->read_bytes, &b->write_bytes, &scratch, r->err);
    /* room for the 256-byte places, and for a ceiling whose mix is not exact */
    r->in_bytes = b->read_bytes + b->write_bytes / 4 + (1 << 20);
    r->out_bytes = b->write_bytes + b->read_bytes / 4 + (1 << 20);
    if (code == TP_OK && b->scales_only) {
        b->read_bytes = scale_bytes(b->from, b->box, r->err);
        b->write_bytes = scale_bytes(b->to, b->box, r->err);
    }
    return code;
}

/* As many sets as make their traffic six times the L2 cache; at least two. */
static void open_sets(struct run *r, uint64_t l2_bytes, uint64_t memory)
{
    struct tp_cuda_bench *b = r->b;
    uint64_t sets = tp_ceil_div(6 * l2_bytes, b->read_bytes + b->write_bytes);
    uint64_t max = memory / (r->in_bytes + r->out_bytes);
    sets = tp_max_u64(tp_min_u64(tp_min_u64(sets, max), MAX_SETS), 2);
    for (b->buffers = 0; b->buffers < sets && r->error == cudaSuccess; b->buffers++) {
        keep(r, cudaMalloc((void **)&r->in[b->buffers], r->in_bytes));
        if (r->error == cudaSuccess)
            keep(r, cudaMalloc((void **)&r->out[b->buffers], r->out_bytes));
    }
}

static void fill_sets(struct run *r)
{
    struct tp_box3 box = r->b->box;
    uint8_t *weights = NULL;
    if (r->b->kind != TP_CUDA_ENCODE)
        keep(r, cudaMalloc((void **)&weights, box.e * box.n * box.k * 2));
    for (uint32_t i = 0; i < r->b->buffers && r->error == cudaSuccess; i++)
        fill_set(r, i, weights);
    keep(r, cudaStreamSynchronize(r->stream));
    cudaFree(weights);
}

static void close_run(struct run *r)
{
    for (uint32_t i = 0; i < MAX_SETS; i++) {
        cudaFree(r->in[i]);
        cudaFree(r->out[i]);
    }
    if (r->start != NULL)
        cudaEventDestroy(r->start);
    if (r->stop != NULL)
        cudaEventDestroy(r->stop);
    if (r->stream != NULL)
        cudaStreamDestroy(r->stream);
}

extern "C" enum tp_code tp_cuda_bench(struct tp_cuda_bench *b, struct tp_err *err)
{
    struct run run = {}, *r = &run;
    struct tp_cuda_device device;
    enum tp_code code;
    r->b = b;
    r->err = err;
    code = tp_cuda_query(b->device, &device, err);
    if (code == TP_OK)
        code = count_bytes(r);
    if (code == TP_OK) {
        keep(r, cudaSetDevice(b->device));
        keep(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
        keep(r, cudaEventCreate(&r->start));
        keep(r, cudaEventCreate(&r->stop));
        open_sets(r, device.l2_bytes, b->memory ? b->memory : device.memory_free / 2);
        if (r->error == cudaSuccess)
            fill_sets(r);
        b->launches = launches_for(r);
        b->seconds = b->ceiling_seconds = 1e300;
        if (r->error == cudaSuccess)
            measure(r);
        if (r->error == cudaSuccess)
            measure_ceiling(r, device.multiprocessors);
        if (r->error == cudaSuccess)
            measure(r); /* the ceiling has many tries; the row gets a second one */
        keep(r, cudaGetLastError());
        if (r->error != cudaSuccess)
            code = tp_fail(err, TP_E_MEMORY, "bench on the GPU: %s", cudaGetErrorString(r->error));
    }
    close_run(r);
    return code;
}
