// How many of two lists of bf16 values differ, and the first that does. The two zeros are equal, a
// NaN equals nothing. Compiled at run time, as fp8_gemm.cu is.

typedef unsigned short u16;
typedef unsigned long long u64;

static __device__ bool same(u16 a, u16 b)
{
    bool nan = (a & 0x7fff) > 0x7f80 || (b & 0x7fff) > 0x7f80;
    return !nan && (a == b || ((a | b) & 0x7fff) == 0);
}

// found[0]: how many differ; found[1]: the first
extern "C" __global__ void differences(const u16 *expected, const u16 *got, u64 count, u64 *found)
{
    u64 differing = 0, first = ~0ull;
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < count;
         i += u64(gridDim.x) * blockDim.x)
        if (!same(expected[i], got[i])) {
            differing++;
            first = first < i ? first : i;
        }
    if (differing) {
        atomicAdd(&found[0], differing);
        atomicMin(&found[1], first);
    }
}
