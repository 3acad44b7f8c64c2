/* The table of GPUs. Figures are the vendor's, rounded as the vendor rounds;
 * rates are dense: data sheets print them with 2:4 sparsity, which is twice as
 * much. A GPU whose figures are not public or differ between sources is left out.
 */
#include "pack/schedule/gpus.h"

#include <ctype.h>
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
    /* HGX B300 data sheet: 8 TB/s, FP8 as the B200's; 148 SMs as the device reports them. */
    {"b300", "NVIDIA B300 SXM 270 GB", 10, 148, 8.0 * TB, 4500 * TFLOPS},
    /* Without a planner, see tp_gpu_is_planned(). A100 data sheet: SXM 80 GB 2.039 TB/s, no FP8:
     * the rate is that of INT8; white paper: 108 SMs. */
    {"a100", "NVIDIA A100 SXM 80 GB", 8, 108, 2.039 * TB, 624 * TFLOPS},
    /* L40S data sheet: 864 GB/s, FP8 1466 sparse, 18176 cores / 128. */
    {"l40s", "NVIDIA L40S 48 GB", 8, 142, 0.864 * TB, 733 * TFLOPS},
    /* Ada white paper: 1008 GB/s, FP8 with fp32 sums 660.6 sparse, 128 SMs. */
    {"4090", "NVIDIA GeForce RTX 4090 24 GB", 8, 128, 1.008 * TB, 330.3 * TFLOPS},
};

const struct tp_gpu *tp_gpus(size_t *count)
{
    *count = sizeof gpus / sizeof gpus[0];
    return gpus;
}

bool tp_gpu_is_planned(const struct tp_gpu *gpu)
{
    return gpu->arch == 9 || gpu->arch == 10;
}

const struct tp_gpu *tp_gpu_find(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        if (strcmp(gpus[i].name, name) == 0)
            return &gpus[i];
    return NULL;
}

/* Whether a word of `product` begins with the name up to a dash: "h100-pcie" is an H100. */
static bool is_called(const char *product, const char *name)
{
    size_t size = strcspn(name, "-");
    for (const char *word = product; *word; word++) {
        size_t i = 0;
        if (word != product && isalnum((unsigned char)word[-1]))
            continue;
        while (i < size && tolower((unsigned char)word[i]) == name[i])
            i++;
        if (i == size && !isalnum((unsigned char)word[size]))
            return true;
    }
    return false;
}

const struct tp_gpu *tp_gpu_of_product(const char *product, uint32_t sms)
{
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        if (gpus[i].sms == sms && is_called(product, gpus[i].name))
            return &gpus[i];
    return NULL;
}
