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
    void record(cudaStream_t stream) { cudaEventRecord(event_, stream); }
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

// So many launches, which take the sets in turn, as a graph: what a server replays, too, and
// nothing of the host is in the time of a short kernel.
class Replay {
  public:
    Replay() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
    Replay(const Replay &) = delete;
    Replay &operator=(const Replay &) = delete;
    ~Replay()
    {
        if (ready_)
            cudaGraphExecDestroy(ready_);
        if (graph_)
            cudaGraphDestroy(graph_);
        cudaStreamDestroy(stream_);
    }
    template <class Gemm> bool record(std::vector<Gemm> &gemms, uint32_t launches)
    {
        bool good =
            cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
        for (uint32_t i = 0; good && i < launches; i++)
            good = gemms[i % gemms.size()].run(stream_) == cutlass::Status::kSuccess;
        return cudaStreamEndCapture(stream_, &graph_) == cudaSuccess && good &&
               cudaGraphInstantiate(&ready_, graph_, 0) == cudaSuccess;
    }
    double microseconds() // of all launches
    {
        begin_.record(stream_);
        cudaGraphLaunch(ready_, stream_);
        end_.record(stream_);
        return end_.since(begin_);
    }

  private:
    cudaStream_t stream_ = nullptr;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t ready_ = nullptr;
    Event begin_, end_;
};

// Once for the result; then, to be timed, once to warm up and the rounds.
template <class Gemm>
int launch(std::vector<Gemm> &gemms, uint32_t rounds, uint32_t launches, double *microseconds,
           char *message, size_t size)
{
    bool good = gemms[0].run() == cutlass::Status::kSuccess;
    if (check(cudaDeviceSynchronize(), "the kernel failed", message, size))
        return 1;
    if (good && rounds) {
        Replay replay;
        good = replay.record(gemms, launches);
        if (good)
            replay.microseconds();
        for (uint32_t r = 0; good && r < rounds; r++)
            microseconds[r] = replay.microseconds() / launches;
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
