/* Sums of errors between two arrays of values, the same on every run.
 *
 * The order of additions is fixed and does not depend on the grid: chunks of 16,384
 * values, in a chunk thread t of 256 adds values t, t + 256, ... in turn, then the
 * 256 sums are folded in halves (t + 128, t + 64, ...). The sums of all chunks are
 * added in the same way by one thread block. Doubles throughout, no atomics.
 */
#include "kernels/cuda/cuda_device.cuh"

#include "kernels/cuda/cuda.h"

enum { COMPARE_THREADS = 256, COMPARE_CHUNK = 16384 };

struct partial {
    double error2, value2;
    uint64_t differing, first;
    float max_error, pad;
};

static __device__ struct partial none()
{
    struct partial p = {0.0, 0.0, 0, ~(uint64_t)0, 0.0f, 0.0f};
    return p;
}

static __device__ void add_to(struct partial &p, const struct partial &q)
{
    p.error2 += q.error2;
    p.value2 += q.value2;
    p.differing += q.differing;
    p.first = min(p.first, q.first);
    p.max_error = fmaxf(p.max_error, q.max_error);
}

static __device__ void add_pair(struct partial &p, float a, float b, uint64_t i)
{
    const uint32_t x = __float_as_uint(a), y = __float_as_uint(b);
    const bool nan = tp_abs_bits(a) > TP_F32_INF_BITS && tp_abs_bits(b) > TP_F32_INF_BITS;
    if (tp_abs_bits(b) < TP_F32_INF_BITS)
        p.value2 += (double)b * (double)b;
    if (x == y || nan)
        return;
    double d = fabs((double)a - (double)b);
    if (!(d < 1e300)) /* one of the two is NaN or infinite */
        d = __longlong_as_double(0x7FF0000000000000);
    p.differing++;
    p.first = min(p.first, i);
    p.error2 += d * d;
    p.max_error = fmaxf(p.max_error, (float)d);
}

/* Folds the thread block's sums; thread 0 has the result. */
static __device__ struct partial fold(struct partial p)
{
    __shared__ struct partial shared[COMPARE_THREADS];
    shared[threadIdx.x] = p;
    for (int half = COMPARE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            add_to(p, shared[threadIdx.x + half]);
            shared[threadIdx.x] = p;
        }
    }
    return p;
}

template <int DT>
static __global__ __launch_bounds__(COMPARE_THREADS) void
compare_chunks(const uint8_t *a, const uint8_t *b, uint64_t count, struct partial *out)
{
    const uint64_t first = (uint64_t)blockIdx.x * COMPARE_CHUNK;
    struct partial p = none();
    for (int j = 0; j < COMPARE_CHUNK / COMPARE_THREADS; j++) {
        uint64_t i = first + (uint64_t)j * COMPARE_THREADS + threadIdx.x;
        if (i >= count)
            break;
        if (TP_IS32(DT))
            add_pair(p, ((const float *)a)[i], ((const float *)b)[i], i);
        else
            add_pair(p, dev_widen<DT>(((const uint16_t *)a)[i], 0),
                     dev_widen<DT>(((const uint16_t *)b)[i], 0), i);
    }
    p = fold(p);
    if (threadIdx.x == 0)
        out[blockIdx.x] = p;
}

static __global__ __launch_bounds__(COMPARE_THREADS) void
compare_total(const struct partial *in, uint64_t count, struct partial *out)
{
    struct partial p = none();
    for (uint64_t i = threadIdx.x; i < count; i += COMPARE_THREADS)
        add_to(p, in[i]);
    p = fold(p);
    if (threadIdx.x == 0)
        *out = p;
}

extern "C" uint64_t tp_cuda_compare_scratch(uint64_t count)
{
    return (dev_ceil(count, COMPARE_CHUNK) + 1) * sizeof(struct partial);
}

extern "C" enum tp_code tp_cuda_compare(enum tp_dtype dtype, const void *a, const void *b,
                                        uint64_t count, void *scratch, void *stream,
                                        struct tp_cuda_errors *errors, struct tp_err *err)
{
    const uint64_t chunks = dev_ceil(count, COMPARE_CHUNK);
    struct partial *parts = (struct partial *)scratch, total;
    const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
    cudaStream_t s = (cudaStream_t)stream;
    if (chunks > 0x7FFFFFFFu)
        return tp_fail(err, TP_E_UNSUPPORTED, "too many values to compare");
    if (chunks > 0 && dtype == TP_BF16)
        compare_chunks<TP_BF16><<<(uint32_t)chunks, COMPARE_THREADS, 0, s>>>(x, y, count, parts);
    else if (chunks > 0 && dtype == TP_F16)
        compare_chunks<TP_F16><<<(uint32_t)chunks, COMPARE_THREADS, 0, s>>>(x, y, count, parts);
    else if (chunks > 0)
        compare_chunks<TP_F32><<<(uint32_t)chunks, COMPARE_THREADS, 0, s>>>(x, y, count, parts);
    compare_total<<<1, COMPARE_THREADS, 0, s>>>(parts, chunks, parts + chunks);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(&total, parts + chunks, sizeof total, cudaMemcpyDeviceToHost, s);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(s);
    if (error != cudaSuccess)
        return tp_fail(err, TP_E_MEMORY, "comparison on the GPU: %s", cudaGetErrorString(error));
    errors->sum_error2 = total.error2;
    errors->sum_value2 = total.value2;
    errors->max_error = total.max_error;
    errors->differing = total.differing;
    errors->first = total.differing > 0 ? total.first : 0;
    return TP_OK;
}
