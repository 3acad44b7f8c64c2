// The plug-in's device: memory, copies and the comparison of results. The kernels are in a table
// that the build makes of those it compiled (prove.mk). Knows no GEMM.
#include "prove_launch.cuh"

#include <cutlass/version.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

extern "C" const struct tilepack_prove_kernel *const tilepack_prove_table[];
extern "C" const uint32_t tilepack_prove_table_count;

namespace {

using prove::check;
using prove::fail;

// The kernels are of sm_90a, which nothing but compute capability 9.0 runs.
int open_device(uint32_t index, tilepack_prove_device *device, char *message, size_t size)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0)
        return fail(message, size, "no GPU is usable",
                    status != cudaSuccess ? cudaGetErrorString(status) : "the driver finds none");
    cudaDeviceProp about;
    if (index >= static_cast<uint32_t>(count) || cudaGetDeviceProperties(&about, index))
        return fail(message, size, "no GPU is usable", "there is none of that number");
    snprintf(device->name, sizeof device->name, "%s", about.name);
    device->major = about.major;
    device->minor = about.minor;
    device->sms = about.multiProcessorCount;
    device->cache_bytes = about.l2CacheSize;
    size_t free_bytes = 0, all = 0;
    if (check(cudaSetDevice(index), "no GPU is usable", message, size) ||
        check(cudaMemGetInfo(&free_bytes, &all), "no GPU is usable", message, size))
        return 1;
    device->free_bytes = free_bytes;
    return 0;
}

void close_device() { cudaDeviceReset(); }

void *take(uint64_t bytes)
{
    void *memory = nullptr;
    if (cudaMalloc(&memory, bytes ? bytes : 1) == cudaSuccess)
        return memory;
    cudaGetLastError(); // a lack of memory is no failure of what comes next
    return nullptr;
}

void release(void *memory) { cudaFree(memory); }

int upload(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    return check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a copy to the device",
                 message, size);
}

int download(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    return check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy from the device",
                 message, size);
}

int copy(void *to, const void *from, uint64_t bytes, char *message, size_t size)
{
    return check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice), "a copy on the device",
                 message, size);
}

int fill(void *to, int byte, uint64_t bytes, char *message, size_t size)
{
    return check(cudaMemset(to, byte, bytes), "the device", message, size) ||
           check(cudaDeviceSynchronize(), "the device", message, size);
}

__device__ bool same(uint16_t a, uint16_t b)
{
    bool nan = (a & 0x7fff) > 0x7f80 || (b & 0x7fff) > 0x7f80;
    return !nan && (a == b || ((a | b) & 0x7fff) == 0);
}

// found[0]: how many differ; found[1]: the first
__global__ void differences(const uint16_t *expected, const uint16_t *got, uint64_t count,
                            unsigned long long *found)
{
    unsigned long long differing = 0, first = ~0ull;
    for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < count;
         i += uint64_t(gridDim.x) * blockDim.x)
        if (!same(expected[i], got[i])) {
            differing++;
            first = first < i ? first : i;
        }
    if (differing) {
        atomicAdd(&found[0], differing);
        atomicMin(&found[1], first);
    }
}

int compare(const void *expected, const void *got, uint64_t count, uint64_t *differing,
            uint64_t *first, char *message, size_t size)
{
    prove::Memory memory;
    unsigned long long found[2] = {0, ~0ull};
    auto *to = memory.send(std::vector<unsigned long long>(found, found + 2));
    if (!memory.good())
        return fail(message, size, "the comparison", "out of device memory");
    differences<<<2048, 256>>>(static_cast<const uint16_t *>(expected),
                               static_cast<const uint16_t *>(got), count, to);
    if (check(cudaGetLastError(), "the comparison", message, size) ||
        download(found, to, sizeof found, message, size))
        return 1;
    *differing = found[0];
    *first = found[1];
    return 0;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct tilepack_prove_plugin *
tilepack_prove_plugin(void)
{
    static const struct tilepack_prove_plugin plugin = {
        TILEPACK_PROVE_ABI, tilepack_prove_table_count, tilepack_prove_table,
        "CUTLASS " TEXT(CUTLASS_MAJOR) "." TEXT(CUTLASS_MINOR) "." TEXT(CUTLASS_PATCH)
        ", CUDA " TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__),
        open_device, close_device, take, release, upload, download, copy, fill, compare};
    return &plugin;
}
