/* Devices: choosing by measurement, and opening slots. */
#include "pack/run/device.h"

#include "base/num.h"
#include "kernels/cuda/cuda.h"
#include "pack/os/clock.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Together 240 MiB of pinned memory. Few slots do not fill a GPU's copy engines where
 * a worker reads its source twice or in short runs; small slots cut columns short. */
#define SLOT_BYTES (UINT64_C(10) << 20)
#define MIN_SLOT (UINT64_C(1) << 20)
#define LANES 12
#define SAMPLE_BYTES (UINT64_C(8) << 20)
/* Seconds that starting the CUDA runtime and pinning memory take. */
#define START_SECONDS 1.0

static void use_cpu(struct tp_devices *devices, const char *why)
{
    devices->count = 0;
    snprintf(devices->why, sizeof devices->why, "cpu: %s", why);
}

static enum tp_code no_device(struct tp_err *err, const char *spec, const char *why)
{
    tp_err_hint(err, "use --device cpu, or --device auto to take a GPU where there is one");
    return tp_fail(err, TP_E_MEMORY, "--device %s: %s", spec, why);
}

static enum tp_code parse_list(const char *spec, struct tp_devices *devices, int count,
                               struct tp_err *err)
{
    for (const char *at = spec + strlen("cuda:"); *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || id < 0) {
            tp_err_hint(err, "auto, cpu, cuda, cuda:all or cuda:I,J,...");
            return tp_fail(err, TP_E_USAGE, "--device '%s' is not understood", spec);
        }
        if (id >= count)
            return no_device(err, spec, "there is no GPU of that number");
        for (unsigned i = 0; i < devices->count; i++)
            if (devices->id[i] == id)
                return tp_fail(err, TP_E_USAGE, "--device names GPU %ld twice", id);
        if (devices->count < TP_MAX_DEVICES)
            devices->id[devices->count++] = (int)id;
        at = *end ? end + 1 : end;
    }
    return devices->count ? TP_OK : tp_fail(err, TP_E_USAGE, "--device '%s' names no GPU", spec);
}

/* Small jobs take small slots: pinning memory costs more than they do. */
static void size_slot(const struct tp_plan *plan, struct tp_devices *devices)
{
    devices->slots_per_device = LANES;
    devices->slot = SLOT_BYTES;
    while (devices->slot > MIN_SLOT &&
           devices->slot * LANES * devices->count > 2 * plan->bytes_in)
        devices->slot /= 2;
}

/* Asking how much is free starts the GPU, which takes a while: only when it is used. */
static void fit_slot(struct tp_devices *devices)
{
    struct tp_cuda_device info;
    uint64_t budget = devices->memory;
    if (!budget && tp_cuda_query(devices->id[0], &info, NULL) == TP_OK)
        budget = info.memory_free / 2;
    /* a slot holds input, output and, when it decodes first, the values */
    while (budget && devices->slot > MIN_SLOT &&
           devices->slot * 4 * devices->slots_per_device > budget)
        devices->slot /= 2;
}

/* The unit whose box stands for the job: the largest one that encodes values. */
static const struct tp_unit *sample_unit(const struct tp_plan *plan)
{
    const struct tp_unit *best = NULL;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        if (unit->form->kind == TP_UNIT_ENCODE &&
            (!best ||
             unit->form->box.n * unit->form->box.k > best->form->box.n * best->form->box.k))
            best = unit;
    }
    return best;
}

struct sample {
    const struct tp_unit *unit;
    struct tp_box3 box;
    uint64_t in_bytes;
    struct tp_op_at at; /* the operation at that size */
};

/* Halves a length; false when it is one granule already. */
static bool shorten(uint64_t *k, uint64_t granule)
{
    uint64_t half = *k / 2 / granule * granule;
    *k = half ? half : *k;
    return half != 0;
}

/* Memory for working on the sample, until the run has its own. */
static uint64_t sample_memory(const struct sample *sample)
{
    return sample->in_bytes + sample->at.total +
           tp_encode_scratch(&sample->unit->form->op, sample->box);
}

static bool make_sample(const struct tp_plan *plan, uint64_t max_memory, struct sample *sample)
{
    uint64_t gn, gk;
    sample->unit = sample_unit(plan);
    if (!sample->unit || tp_op_tile(&sample->unit->form->op, &gn, &gk, NULL))
        return false;
    uint64_t width = tp_dtype_bits(sample->unit->form->dtype) / 8;
    gn = tp_min_u64(tp_max_u64(gn, 1), sample->unit->form->box.n);
    gk = gk ? gk : sample->unit->form->box.k; /* of a block that is a whole row */
    if (!gn || !gk)
        return false; /* nothing but empty weights */
    uint64_t max = tp_max_u64(SAMPLE_BYTES / (gn * width) / gk * gk, gk);
    sample->box = (struct tp_box3){1, gn, tp_min_u64(sample->unit->form->box.k, max)};
    while (sample->box.n * sample->box.k * width < SAMPLE_BYTES &&
           sample->box.n * 2 <= sample->unit->form->box.n)
        sample->box.n *= 2;
    sample->box.n = tp_min_u64(sample->box.n, sample->unit->form->box.n);
    do { /* padding may make more of few rows than they are */
        sample->in_bytes = sample->box.n * sample->box.k * width;
        if (tp_op_at(&sample->unit->form->op, sample->box, false, &sample->at, NULL))
            return false;
    } while ((sample->at.total > SAMPLE_BYTES && shorten(&sample->box.k, gk)) ||
             (sample_memory(sample) > max_memory &&
              (shorten(&sample->box.n, gn) || shorten(&sample->box.k, gk))));
    return true;
}

/* Ordinary finite values of any float type: exponents near one, varied mantissas. */
static void fill(void *data, uint64_t bytes, enum tp_dtype dtype)
{
    uint64_t state = 1;
    unsigned width = tp_dtype_bits(dtype) / 8;
    for (uint64_t i = 0; i + width <= bytes; i += width) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t random = (uint32_t)(state >> 33);
        uint32_t value = dtype == TP_F32    ? 0x3c000000u | (random & 0x81ffffffu)
                         : dtype == TP_BF16 ? 0x3c00u | (random & 0x81ffu)
                                            : 0x2c00u | (random & 0x87ffu);
        memcpy((uint8_t *)data + i, &value, width);
    }
}

/* Bytes of source values per second, best of a few; 0 when it failed. */
static double measure(struct tp_compute *compute, const struct sample *sample)
{
    double best = 0;
    for (int round = 0; round < 3; round++) {
        struct tp_args args = {.box = sample->box, .dtype = sample->unit->form->dtype, .global = 1};
        if (tp_compute_begin(compute, sample->in_bytes, sample->at.total, NULL))
            return 0;
        void *in = tp_arena_allocate(compute->in, sample->in_bytes);
        if (round == 0)
            fill(in, sample->in_bytes, args.dtype);
        args.in[0] = in;
        tp_op_allocate(&sample->at, compute->out, args.out);
        args.to_at = &sample->at;
        double start = tp_now();
        if (tp_compute_encode(compute, &sample->unit->form->op, &args, NULL))
            return 0;
        double rate = (double)sample->in_bytes / (tp_now() - start);
        if (rate > best)
            best = rate;
    }
    return best;
}

static double measure_cpu(const struct sample *sample)
{
    struct tp_compute compute = {0};
    double rate = measure(&compute, sample);
    tp_compute_close(&compute);
    return rate;
}

static double measure_gpu(const struct tp_devices *devices, const struct sample *sample)
{
    struct tp_devices one = *devices;
    struct tp_compute compute[LANES] = {0};
    one.count = 1;
    one.slots_per_device = 1;
    double rate = 0;
    if (tp_devices_open(&one, compute, NULL) == TP_OK &&
        sample->in_bytes <= one.slot && sample->at.total <= one.slot)
        rate = measure(compute, sample);
    tp_compute_close(compute);
    return rate;
}

/* Half of what the process may take more: the other half is for what buffers waste. */
static uint64_t budget_of(uint64_t memory)
{
    uint64_t used = tp_os_heap_bytes() + TP_OS_PROGRAM_BYTES;
    return !memory ? UINT64_MAX : memory > used ? (memory - used) / 2 : 0;
}

static void choose_auto(const struct tp_plan *plan, unsigned jobs, uint64_t memory,
                        struct tp_devices *devices)
{
    struct sample sample;
    if (!make_sample(plan, budget_of(memory), &sample)) {
        use_cpu(devices, "nothing is quantized, only copied");
        return;
    }
    double cpu = measure_cpu(&sample) * jobs, bytes = (double)plan->bytes_in;
    char why[160];
    if (bytes / cpu < 2 * START_SECONDS) {
        snprintf(why, sizeof why, "its kernels need about %.1f s, less than starting a GPU",
                 bytes / cpu);
        use_cpu(devices, why);
        return;
    }
    if (tp_cuda_count() == 0) {
        snprintf(why, sizeof why, "no GPU (%s)", tp_cuda_why_none());
        use_cpu(devices, why);
        return;
    }
    devices->count = 1;
    devices->id[0] = 0;
    size_slot(plan, devices);
    /* copies of one slot overlap the kernels of another: one slot is half the rate */
    double gpu = measure_gpu(devices, &sample) * 2;
    if (bytes / cpu <= bytes / (gpu > 0 ? gpu : 1) + START_SECONDS) {
        snprintf(why, sizeof why, "%.1f GB/s with %u threads, the GPU %.1f GB/s", cpu / 1e9, jobs,
                 gpu / 1e9);
        use_cpu(devices, why);
        return;
    }
    snprintf(devices->why, sizeof devices->why,
             "cuda:0: %.1f GB/s, the CPU %.1f GB/s with %u threads", gpu / 1e9, cpu / 1e9, jobs);
}

/* The GPUs that were named, or the CPU. */
static enum tp_code take_named(const char *spec, struct tp_devices *devices, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (strcmp(spec, "cpu") == 0) {
        use_cpu(devices, "as asked");
        return TP_OK;
    }
    int count = tp_cuda_count();
    if (count == 0)
        return no_device(err, spec, tp_cuda_why_none());
    if (strcmp(spec, "cuda") == 0 || strcmp(spec, "cuda:all") == 0) {
        devices->count = spec[4] ? (unsigned)tp_min_u64((uint64_t)count, TP_MAX_DEVICES) : 1;
        for (unsigned i = 0; i < devices->count; i++)
            devices->id[i] = (int)i;
    } else if (strncmp(spec, "cuda:", 5) == 0) {
        code = parse_list(spec, devices, count, err);
    } else {
        tp_err_hint(err, "auto, cpu, cuda, cuda:all or cuda:I,J,...");
        code = tp_fail(err, TP_E_USAGE, "--device '%s' is not understood", spec);
    }
    if (code == TP_OK)
        snprintf(devices->why, sizeof devices->why, "%u GPU%s, as asked", devices->count,
                 devices->count == 1 ? "" : "s");
    return code;
}

enum tp_code tp_devices_check(const char *spec, struct tp_err *err)
{
    struct tp_devices devices = {0};
    return strcmp(spec, "auto") == 0 ? TP_OK : take_named(spec, &devices, err);
}

enum tp_code tp_devices_choose(const char *spec, const struct tp_plan *plan, unsigned jobs,
                               uint64_t memory, uint64_t gpu_memory,
                               struct tp_devices *devices, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    uint64_t before = tp_os_heap_bytes();
    memset(devices, 0, sizeof *devices);
    devices->memory = gpu_memory;
    if (strcmp(spec, "auto") == 0)
        choose_auto(plan, jobs, memory, devices);
    else
        code = take_named(spec, devices, err);
    if (code == TP_OK && devices->count)
        size_slot(plan, devices);
    uint64_t after = tp_os_heap_bytes();
    devices->driver = after > before ? after - before : 0;
    return code;
}

static void close_all(struct tp_compute *computes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        tp_cuda_close(computes[i].cuda);
        memset(&computes[i], 0, sizeof computes[i]);
    }
}

static enum tp_code open_one(const struct tp_devices *devices, int device,
                             struct tp_compute *compute, bool *no_memory, struct tp_err *err)
{
    enum tp_code code = tp_cuda_open(device, devices->slot, devices->slot, 2 * devices->slot,
                                     &compute->cuda, no_memory, err);
    if (code)
        return code;
    compute->pinned_in = (struct tp_arena){tp_cuda_input(compute->cuda), devices->slot, 0};
    compute->pinned_out = (struct tp_arena){tp_cuda_output(compute->cuda), devices->slot, 0};
    return TP_OK;
}

enum tp_code tp_devices_open(struct tp_devices *devices, struct tp_compute *computes,
                             struct tp_err *err)
{
    unsigned total = devices->count * devices->slots_per_device;
    fit_slot(devices);
    for (;; devices->slot /= 2) {
        bool no_memory = false;
        struct tp_err failure = {0};
        enum tp_code code = TP_OK;
        unsigned i = 0;
        for (; i < total && code == TP_OK; i++)
            code = open_one(devices, devices->id[i % devices->count], &computes[i], &no_memory,
                            &failure);
        if (code == TP_OK)
            return TP_OK;
        close_all(computes, i);
        if (!no_memory || devices->slot <= MIN_SLOT) {
            if (err && err->code == TP_OK)
                *err = failure;
            return code;
        }
    }
}
