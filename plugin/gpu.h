/* The CUDA driver as a table of its calls, found when the plug-in is opened: it is built without
 * CUDA, and says in one sentence what is missing where it runs. Knows no kernel.
 */
#ifndef PLUGIN_GPU_H
#define PLUGIN_GPU_H

#include "base/error.h"

#include <stddef.h>

typedef unsigned long long gpu_address;

enum {
    GPU_SMS = 16, /* attributes of a device */
    GPU_CACHE_BYTES = 38,
    GPU_MAJOR = 75,
    GPU_MINOR = 76,
    GPU_SHARED_BYTES = 8, /* of a function: that a launch may ask for */
    GPU_CLUSTER = 4,      /* of a launch: blocks in a cluster */
    GPU_NON_BLOCKING = 1, /* stream */
    GPU_CAPTURE = 1,      /* of this thread */
};

/* As the driver lays them out. */
struct gpu_attribute {
    int id, pad;
    union {
        unsigned cluster[3];
        char storage[64];
    };
};

struct gpu_launch {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    struct gpu_attribute *attributes;
    unsigned attribute_count;
};

struct gpu_map {
    _Alignas(64) uint64_t opaque[16];
};

enum gpu_element { GPU_U8 = 0, GPU_F32 = 7, GPU_BF16 = 9 };
enum gpu_swizzle { GPU_PLAIN = 0, GPU_SWIZZLE_32, GPU_SWIZZLE_64, GPU_SWIZZLE_128 };

/* Name, the driver's name of it, arguments. Each returns 0 or the number of an error. */
#define GPU_CALLS(CALL) \
    CALL(version, cuDriverGetVersion, (int *version)) \
    CALL(init, cuInit, (unsigned flags)) \
    CALL(error_text, cuGetErrorString, (int error, const char **text)) \
    CALL(device_count, cuDeviceGetCount, (int *count)) \
    CALL(device_get, cuDeviceGet, (int *device, int index)) \
    CALL(device_name, cuDeviceGetName, (char *name, int size, int device)) \
    CALL(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device)) \
    CALL(context_retain, cuDevicePrimaryCtxRetain, (void **context, int device)) \
    CALL(context_release, cuDevicePrimaryCtxRelease_v2, (int device)) \
    CALL(context_set, cuCtxSetCurrent, (void *context)) \
    CALL(synchronize, cuCtxSynchronize, (void)) \
    CALL(memory_info, cuMemGetInfo_v2, (size_t *left, size_t *all)) \
    CALL(alloc, cuMemAlloc_v2, (gpu_address *memory, size_t bytes)) \
    CALL(release, cuMemFree_v2, (gpu_address memory)) \
    CALL(upload, cuMemcpyHtoD_v2, (gpu_address to, const void *from, size_t bytes)) \
    CALL(download, cuMemcpyDtoH_v2, (void *to, gpu_address from, size_t bytes)) \
    CALL(copy, cuMemcpyDtoD_v2, (gpu_address to, gpu_address from, size_t bytes)) \
    CALL(fill, cuMemsetD8_v2, (gpu_address to, unsigned char byte, size_t bytes)) \
    CALL(module_load, cuModuleLoadData, (void **module, const void *image)) \
    CALL(module_unload, cuModuleUnload, (void *module)) \
    CALL(function_get, cuModuleGetFunction, (void **function, void *module, const char *name)) \
    CALL(function_set, cuFuncSetAttribute, (void *function, int attribute, int value)) \
    CALL(launch, cuLaunchKernelEx, \
         (const struct gpu_launch *launch, void *function, void **arguments, void **extra)) \
    CALL(map_encode, cuTensorMapEncodeTiled, \
         (struct gpu_map *map, int element, unsigned rank, void *memory, const uint64_t *size, \
          const uint64_t *stride, const unsigned *box, const unsigned *step, int interleave, \
          int swizzle, int promotion, int fill)) \
    CALL(stream_create, cuStreamCreate, (void **stream, unsigned flags)) \
    CALL(stream_destroy, cuStreamDestroy_v2, (void *stream)) \
    CALL(capture_begin, cuStreamBeginCapture_v2, (void *stream, int mode)) \
    CALL(capture_end, cuStreamEndCapture, (void *stream, void **graph)) \
    CALL(graph_ready, cuGraphInstantiateWithFlags, \
         (void **ready, void *graph, unsigned long long flags)) \
    CALL(graph_launch, cuGraphLaunch, (void *ready, void *stream)) \
    CALL(graph_ready_destroy, cuGraphExecDestroy, (void *ready)) \
    CALL(graph_destroy, cuGraphDestroy, (void *graph)) \
    CALL(event_create, cuEventCreate, (void **event, unsigned flags)) \
    CALL(event_destroy, cuEventDestroy_v2, (void *event)) \
    CALL(event_record, cuEventRecord, (void *event, void *stream)) \
    CALL(event_wait, cuEventSynchronize, (void *event)) \
    CALL(event_elapsed, cuEventElapsedTime, (float *milliseconds, void *begin, void *end))

#define GPU_MEMBER(name, symbol, arguments) int (*name) arguments;
struct gpu {
    GPU_CALLS(GPU_MEMBER)
};
extern struct gpu gpu;

/* Finds the calls; done once. TP_E_MEMORY, as all that the device refuses: there is no driver, or
 * it is too old. */
enum tp_code gpu_load(struct tp_err *err);

/* The version of CUDA that the driver is of: 1000 * major + 10 * minor; 0 where none says it. */
int gpu_version(void);

/* What a call answered, as an error: "WHAT: the driver's text". */
enum tp_code gpu_check(int status, const char *what, struct tp_err *err);

#endif
