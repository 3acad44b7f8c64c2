// What the kernels of the plug-in have in common: memory that goes with its owner, and launches
// that are counted and timed. Knows no kernel. Invariant: nothing of it outlives a call.
#pragma once
#include "pack/prove/tilepack_prove.h"

#include "cutlass/cutlass.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <memory>
#include <vector>

namespace prove {

inline int fail(char *message, size_t size, const char *what, const char *why)
{
    snprintf(message, size, "%s: %s", what, why);
    return 1;
}

inline int check(cudaError_t status, const char *what, char *message, size_t size)
{
    return status == cudaSuccess ? 0 : fail(message, size, what, cudaGetErrorString(status));
}

// Device memory of the arguments of one call.
class Memory {
  public:
    Memory() = default;
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory()
    {
        for (void *p : held_)
            cudaFree(p);
    }
    void *take(size_t bytes)
    {
        void *p = nullptr;
        if (cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
            good_ = false;
            return nullptr;
        }
        held_.push_back(p);
        return p;
    }
    template <class T> T *send(const std::vector<T> &values)
    {
        void *p = take(values.size() * sizeof(T));
        good_ = p && cudaMemcpy(p, values.data(), values.size() * sizeof(T),
                                cudaMemcpyHostToDevice) == cudaSuccess && good_;
        return static_cast<T *>(p);
    }
    bool good() const { return good_; }

  private:
    std::vector<void *> held_;
    bool good_ = true;
};

class Event {
  public:
    Event() { cudaEventCreate(&event_); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    void record() { cudaEventRecord(event_); }
    double since(const Event &before) const // microseconds
    {
        float milliseconds = 0;
        cudaEventSynchronize(event_);
        cudaEventElapsedTime(&milliseconds, before.event_, event_);
        return 1000.0 * milliseconds;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

// Once for the result; then, to be timed, all sets once and the rounds.
template <class Gemm>
int launch(std::vector<Gemm> &gemms, uint32_t rounds, uint32_t launches, double *microseconds,
           char *message, size_t size)
{
    Event begin, end;
    bool good = gemms[0].run() == cutlass::Status::kSuccess;
    if (check(cudaDeviceSynchronize(), "the kernel failed", message, size))
        return 1;
    for (size_t i = 0; good && rounds && i < gemms.size(); i++)
        good = gemms[i].run() == cutlass::Status::kSuccess;
    for (uint32_t r = 0, next = 0; good && r < rounds; r++) {
        begin.record();
        for (uint32_t i = 0; good && i < launches; i++)
            good = gemms[next++ % gemms.size()].run() == cutlass::Status::kSuccess;
        end.record();
        microseconds[r] = end.since(begin) / launches;
    }
    if (check(cudaDeviceSynchronize(), "the kernel failed", message, size))
        return 1;
    return good ? 0 : fail(message, size, "the kernel", "was not launched");
}

// Prepares one GEMM for each set of operands; Arguments are made by arguments(set, memory).
template <class Gemm, class Make>
int run(size_t set_count, uint32_t rounds, uint32_t launches, double *microseconds, Make arguments,
        char *message, size_t size)
{
    Memory memory;
    std::vector<Gemm> gemms(rounds ? set_count : 1);
    for (size_t i = 0; i < gemms.size(); i++) {
        typename Gemm::Arguments a = arguments(i, memory);
        void *space = memory.take(Gemm::get_workspace_size(a));
        if (!memory.good())
            return fail(message, size, "the kernel", "out of device memory for its arguments");
        cutlass::Status status = Gemm::can_implement(a);
        if (status == cutlass::Status::kSuccess)
            status = gemms[i].initialize(a, space);
        if (status != cutlass::Status::kSuccess)
            return fail(message, size, "the kernel", cutlass::cutlassGetStatusString(status));
    }
    return launch(gemms, rounds, launches, microseconds, message, size);
}

} // namespace prove
