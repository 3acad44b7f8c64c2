/* GPUs by name: what the schedules and rooflines need to know of them. */
#ifndef TP_PACK_GPUS_H
#define TP_PACK_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_gpu {
    const char *name;  /* "h100", as given to --gpu */
    const char *title; /* the product */
    uint32_t arch;     /* major compute capability */
    uint32_t sms;
    double bandwidth; /* memory, bytes per second */
    double fp8_flops; /* dense (no sparsity) e4m3, operations per second */
};

const struct tp_gpu *tp_gpus(size_t *count);

/* Whether any of the kernels that are planned runs on it: SM90 or SM100. */
bool tp_gpu_is_planned(const struct tp_gpu *gpu);

/* NULL when unknown. */
const struct tp_gpu *tp_gpu_find(const char *name);

/* The GPU that a driver calls so ("NVIDIA H200", "NVIDIA H100 PCIe"), by its name and number of
 * SMs; NULL when unknown. */
const struct tp_gpu *tp_gpu_of_product(const char *product, uint32_t sms);

#endif
