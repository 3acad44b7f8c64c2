/* Bytes that come to shared memory without a thread that waits for them, and the barriers there
 * that tell of them (compute capability 9.0 and later). Names of instructions; knows no tile.
 */
#ifndef TP_KERNELS_CUDA_BULK_CUH
#define TP_KERNELS_CUDA_BULK_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#if __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Barriers turn when so many have arrived, and all bytes that were expected. */
static __device__ __forceinline__ void barrier_begin(uint64_t *barrier, uint32_t count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 :
                 : "r"(shared_at(barrier)), "r"(count)
                 : "memory");
}

/* Before the barrier of threads behind which others use what has begun. */
static __device__ __forceinline__ void barriers_begun()
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" : : "r"(shared_at(barrier)) : "memory");
}

/* Arrives, and expects bytes. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 :
                 : "r"(shared_at(barrier)), "r"(bytes)
                 : "memory");
}

/* By a whole warp, until the phase of that parity is over. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                     " selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(shared_at(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
    __syncwarp();
}

/* Sends for bytes that a barrier expects: whole 16, at multiples of 16 on both sides. */
static __device__ __forceinline__ void bulk_load(void *to, const void *from, uint32_t bytes,
                                                 uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_at(to)), "l"(from), "r"(bytes), "r"(shared_at(barrier))
                 : "memory");
}

#endif

#endif
