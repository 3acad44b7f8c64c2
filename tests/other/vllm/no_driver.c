/* A libcuda.so.1 of a machine without a GPU, so that vLLM's extensions can be loaded and their
 * operators are registered. Every call answers CUDA_ERROR_NO_DEVICE. */
enum { NO_DEVICE = 100 };
#define CALL(name) \
    int name(void); \
    int name(void) { return NO_DEVICE; }
CALL(cuInit)
CALL(cuGetProcAddress)
CALL(cuGetProcAddress_v2)
CALL(cuDriverGetVersion)
CALL(cuPointerGetAttribute)
CALL(cuTensorMapEncodeTiled)
CALL(cuCtxGetCurrent)
CALL(cuCtxSetCurrent)
CALL(cuDeviceGetAttribute)
CALL(cuDeviceGetCount)
CALL(cuDevicePrimaryCtxRetain)
CALL(cuGetErrorString)
CALL(cuMemAddressFree)
CALL(cuMemAddressReserve)
CALL(cuMemCreate)
CALL(cuMemGetAllocationGranularity)
CALL(cuMemMap)
CALL(cuMemRelease)
CALL(cuMemSetAccess)
CALL(cuMemUnmap)
