/* Devices: which of CPU and GPUs do a job, and the slots opened on them. */
#ifndef TP_PACK_DEVICE_H
#define TP_PACK_DEVICE_H

#include "pack/plan/unit/plan.h"
#include "pack/run/compute.h"

enum { TP_MAX_DEVICES = 64 };

#define TP_DEVICES_WHY 320 /* bytes of tp_devices.why */

/* count 0: the CPU does everything. */
struct tp_devices {
    int id[TP_MAX_DEVICES];
    unsigned count;
    unsigned slots_per_device;
    uint64_t memory; /* bytes of each GPU that may be taken; 0 = half of what is free */
    uint64_t slot; /* bytes of each of a slot's two buffers; halved when memory is short */
    uint64_t driver; /* bytes of the heap that starting the driver took, no part of any limit */
    char why[TP_DEVICES_WHY]; /* what was chosen, and the reason, in words */
};

/* Understands "auto", "cpu", "cuda", "cuda:all", "cuda:0,2". auto measures one box
 * of the plan on both and takes the faster; without a usable GPU it takes the CPU.
 * cuda without one is TP_E_MEMORY. memory: bytes that the process may take, which measuring
 * keeps within (0: any); gpu_memory: bytes per device, 0 = what is free. */
enum tp_code tp_devices_choose(const char *spec, const struct tp_plan *plan, unsigned jobs,
                               uint64_t memory, uint64_t gpu_memory,
                               struct tp_devices *devices, struct tp_err *err);

/* Fails as tp_devices_choose() would where what is asked for is not there, before there is a
 * plan. */
enum tp_code tp_devices_check(const char *spec, struct tp_err *err);

/* Opens the slots of all devices into computes[count * slots_per_device], device by
 * device in turn. Halves the slot while memory is short. */
enum tp_code tp_devices_open(struct tp_devices *devices, struct tp_compute *computes,
                             struct tp_err *err);

#endif
