/* The table of GPUs. Figures are the vendor's, rounded as the vendor rounds;
 * rates are dense: data sheets print them with 2:4 sparsity, which is twice as
 * much. A GPU whose figures are not public or differ between sources is left out.
 */
#include "pack/schedule/gpus.h"

#include <string.h>

#define TB 1e12
#define TFLOPS 1e12

static const struct tp_gpu gpus[] = {
    /* H100 data sheet: SXM 3.35 TB/s, FP8 3958 sparse; white paper: 132 SMs. */
    {"h100", "NVIDIA H100 SXM5 80 GB", 9, 132, 3.35 * TB, 1979 * TFLOPS},
    /* H100 data sheet: PCIe 2 TB/s, FP8 3026 sparse; white paper: 114 SMs. */
    {"h100-pcie", "NVIDIA H100 PCIe 80 GB", 9, 114, 2.0 * TB, 1513 * TFLOPS},
    /* H200 data sheet: SXM 4.8 TB/s, FP8 3958 sparse; same die as H100, 132 SMs. */
    {"h200", "NVIDIA H200 SXM 141 GB", 9, 132, 4.8 * TB, 1979 * TFLOPS},
    /* GH200 data sheet: 96 GB HBM3 4 TB/s, FP8 3958 sparse; H100 die, 132 SMs. */
    {"gh200", "NVIDIA GH200 96 GB", 9, 132, 4.0 * TB, 1979 * TFLOPS},
    /* H800 SXM: an H100 with a slower NVLink; memory and FP8 rate are the H100's. */
    {"h800", "NVIDIA H800 SXM5 80 GB", 9, 132, 3.35 * TB, 1979 * TFLOPS},
    /* H20: 78 SMs, 4.0 TB/s, FP8 296 dense (vendor's product brief). */
    {"h20", "NVIDIA H20 96 GB", 9, 78, 4.0 * TB, 296 * TFLOPS},
    /* HGX B200 data sheet: 7.7 TB/s and FP8 9 PFLOPS sparse per GPU; 148 SMs as the
     * device reports them (18944 cores / 128). */
    {"b200", "NVIDIA B200 SXM 180 GB", 10, 148, 7.7 * TB, 4500 * TFLOPS},
    /* GB200 NVL72 data sheet: 8 TB/s and FP8 10 PFLOPS sparse per GPU. */
    {"gb200", "NVIDIA GB200 186 GB", 10, 148, 8.0 * TB, 5000 * TFLOPS},
};

const struct tp_gpu *tp_gpus(size_t *count)
{
    *count = sizeof gpus / sizeof gpus[0];
    return gpus;
}

const struct tp_gpu *tp_gpu_find(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        if (strcmp(gpus[i].name, name) == 0)
            return &gpus[i];
    return NULL;
}
