/* The C library on a GPU against itself on the host, byte for byte: every format that is
 * written, quantize, decode and repack, on a stream that is not the default one; and files
 * that are loaded to the GPU.
 * Includes tilepack.h and the CUDA runtime, nothing of the project's own. Exit 0 equal,
 * 1 not, 77 no device. Ends with `N passed, N failed`.
 */
#include "pack/api/tilepack.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { E = 1, N = 384, K = 1024, VALUES = E * N * K };

static char message[400];
static int passed, failed;
static cudaStream_t stream;
static uint16_t values[VALUES];
static float amax;

static void need(int status, const char *what)
{
    if (status == 0)
        return;
    printf("%s: status %d %s\n", what, status, message);
    exit(1);
}

static void note(int good, const char *what, const char *format)
{
    passed += good;
    failed += !good;
    if (!good)
        printf("FAIL %s %s: the GPU's bytes are not the host's %s\n", what, format, message);
}

static void make_values(void)
{
    uint32_t state = 1;
    for (int i = 0; i < VALUES; i++) {
        float sum = 0;
        uint32_t bits;
        for (int j = 0; j < 4; j++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) * 0x1p-24f - 0.5f;
        }
        sum *= 0.04f;
        memcpy(&bits, &sum, 4);
        values[i] = (uint16_t)(bits >> 16);
        bits &= 0x7FFF0000u;
        memcpy(&sum, &bits, 4);
        amax = fmaxf(amax, sum);
    }
}

/* The tensors of one weight on both sides. */
struct packed {
    tilepack_weight *weight;
    size_t count;
    void *host[TILEPACK_MAX_TENSORS], *device[TILEPACK_MAX_TENSORS];
    int constant[TILEPACK_MAX_TENSORS];
};

static struct packed open_packed(const char *format, const char *parameters)
{
    struct packed p = {0};
    need(tilepack_weight_new(format, parameters, E, N, K, &p.weight, message, sizeof message),
         format);
    p.count = tilepack_weight_tensors(p.weight);
    for (size_t i = 0; i < p.count; i++) {
        uint64_t bytes = tilepack_weight_bytes(p.weight, i);
        p.host[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        need(cudaMalloc(&p.device[i], bytes), "cudaMalloc");
        need(cudaMemset(p.device[i], 0xA5, bytes), "cudaMemset");
        p.constant[i] = strcmp(tilepack_weight_role(p.weight, i), "words") == 0;
    }
    return p;
}

static void close_packed(struct packed *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->host[i]);
        cudaFree(p->device[i]);
    }
    tilepack_weight_free(p->weight);
}

static int same(const void *host, const void *device, uint64_t bytes)
{
    void *copy = malloc(bytes);
    need(cudaMemcpyAsync(copy, device, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpy");
    need(cudaStreamSynchronize(stream), "the kernel");
    int equal = memcmp(host, copy, bytes) == 0;
    free(copy);
    return equal;
}

static int same_packed(const struct packed *p)
{
    int equal = 1;
    for (size_t i = 0; i < p->count; i++)
        if (!p->constant[i])
            equal &= same(p->host[i], p->device[i], tilepack_weight_bytes(p->weight, i));
    return equal;
}

static void test_format(const char *format, const void *device_values, uint32_t *device_flags)
{
    struct packed p = open_packed(format, NULL);
    uint32_t flags = 7;
    need(tilepack_quantize(p.weight, TILEPACK_BF16, values, p.host, NULL, message,
                           sizeof message), format);
    need(cudaMemset(device_flags, 0, 4), "cudaMemset");
    int status = tilepack_quantize_cuda(p.weight, TILEPACK_BF16, device_values, p.device, amax,
                                        device_flags, 0, stream, message, sizeof message);
    if (status != 0 && strstr(message, "is worked on the host only")) {
        printf("%s\n", message);
        close_packed(&p);
        return;
    }
    note(status == 0 && same_packed(&p), "quantize", format);
    need(cudaMemcpy(&flags, device_flags, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    note(flags == 0, "flags of", format);
    float *back = malloc(VALUES * sizeof *back);
    void *device_back;
    need(cudaMalloc(&device_back, VALUES * sizeof *back), "cudaMalloc");
    need(tilepack_decode(p.weight, (const void *const *)p.host, TILEPACK_F32, back, message,
                         sizeof message), format);
    status = tilepack_decode_cuda(p.weight, (const void *const *)p.device, TILEPACK_F32,
                                  device_back, 0, stream, message, sizeof message);
    note(status == 0 && same(back, device_back, VALUES * sizeof *back), "decode", format);
    free(back);
    cudaFree(device_back);
    close_packed(&p);
}

static void test_repack(const char *from_format, const char *to_format, const void *device_values)
{
    struct packed from = open_packed(from_format, NULL), to = open_packed(to_format, NULL);
    need(tilepack_quantize(from.weight, TILEPACK_BF16, values, from.host, NULL, message,
                           sizeof message), from_format);
    need(tilepack_quantize_cuda(from.weight, TILEPACK_BF16, device_values, from.device, amax, NULL,
                                0, stream, message, sizeof message), from_format);
    need(tilepack_repack(from.weight, (const void *const *)from.host, to.weight, to.host, message,
                         sizeof message), to_format);
    int status = tilepack_repack_cuda(from.weight, (const void *const *)from.device, to.weight,
                                      to.device, 0, stream, message, sizeof message);
    note(status == 0 && same_packed(&to), "repack to", to_format);
    close_packed(&from);
    close_packed(&to);
}

/* The device word says that a value was infinite. */
static void test_flags(void *device_values, uint32_t *device_flags)
{
    struct packed p = open_packed("fp8-ct", NULL);
    uint16_t infinite = 0x7F80;
    uint32_t flags = 0;
    need(cudaMemcpy(device_values, &infinite, 2, cudaMemcpyHostToDevice), "cudaMemcpy");
    need(cudaMemset(device_flags, 0, 4), "cudaMemset");
    need(tilepack_quantize_cuda(p.weight, TILEPACK_BF16, device_values, p.device, amax,
                                device_flags, 0, stream, message, sizeof message), "fp8-ct");
    need(cudaStreamSynchronize(stream), "the kernel");
    need(cudaMemcpy(&flags, device_flags, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    note(flags != 0, "flags of an infinite value,", "fp8-ct");
    close_packed(&p);
}

/* ---- loading ------------------------------------------------------------- */

enum { ROWS = 3000, COLUMNS = 1500, FEW = 200, FILE_BYTES = ROWS * COLUMNS + FEW * 10 };

/* A file of one large tensor and many small ones; its data in *data. */
static void write_file(const char *path, uint8_t *data)
{
    static char header[FEW * 80 + 200];
    FILE *file = fopen(path, "wb");
    uint64_t size = (uint64_t)sprintf(header, "{\"large\":{\"dtype\":\"U8\",\"shape\":[%d,%d],"
                                      "\"data_offsets\":[0,%d]}", ROWS, COLUMNS, ROWS * COLUMNS);
    for (int i = 0; i < FEW; i++)
        size += (uint64_t)sprintf(header + size, ",\"s%03d\":{\"dtype\":\"U8\",\"shape\":[10],"
                                  "\"data_offsets\":[%d,%d]}", i, ROWS * COLUMNS + 10 * i,
                                  ROWS * COLUMNS + 10 * i + 10);
    header[size++] = '}';
    for (int i = 0; i < FILE_BYTES; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    need(!file || fwrite(&size, 8, 1, file) != 1 || fwrite(header, 1, size, file) != size ||
             fwrite(data, 1, FILE_BYTES, file) != FILE_BYTES || fclose(file), path);
}

static void take(tilepack_part *part, const tilepack_checkpoint *c, const char *name, uint8_t *to)
{
    *part = (tilepack_part){.tensor = tilepack_tensor_find(c, name), .to = to};
    tilepack_tensor_shape(c, part->tensor, part->end);
}

/* Everything, with any ring, and with each once more; then a slice of columns; then a device that there is not. */
static void test_load(void)
{
    static uint8_t data[FILE_BYTES], columns[ROWS * 100];
    static tilepack_part parts[FEW + 1];
    char path[] = "/tmp/tilepack-load-XXXXXX", name[16];
    tilepack_checkpoint *c;
    uint8_t *device;
    int fd = mkstemp(path);
    need(fd < 0, path);
    write_file(path, data);
    need(tilepack_open(path, &c, message, sizeof message), path);
    need(cudaMalloc((void **)&device, FILE_BYTES), "cudaMalloc");
    take(&parts[FEW], c, "large", device);
    for (int i = 0; i < FEW; i++) {
        sprintf(name, "s%03d", i);
        take(&parts[i], c, name, device + ROWS * COLUMNS + 10 * i);
    }
    for (unsigned i = 0; i < 6; i++) {
        const unsigned threads = i / 2 * 4;
        need(cudaMemsetAsync(device, 0xA5, FILE_BYTES, stream), "cudaMemset");
        int status = tilepack_load(c, parts, FEW + 1, 0, stream, 0, threads, threads * 5000000,
                                   message, sizeof message);
        note(status == 0 && same(data, device, FILE_BYTES), "load", "to the device");
    }
    parts[FEW].begin[1] = 700;
    parts[FEW].end[1] = 800;
    for (int i = 0; i < ROWS; i++)
        memcpy(columns + 100 * i, data + COLUMNS * i + 700, 100);
    int status = tilepack_load(c, &parts[FEW], 1, 0, stream, 0, 3, 0, message, sizeof message);
    note(status == 0 && same(columns, device, sizeof columns), "load", "columns to the device");
    status = tilepack_load(c, parts, 1, 1000, NULL, 0, 0, 0, message, sizeof message);
    note(status == TILEPACK_E_USAGE, "load", "to device 1000");
    tilepack_close(c);
    cudaFree(device);
    close(fd);
    remove(path);
}

int main(void)
{
    const char *name;
    void *device_values;
    uint32_t *device_flags;
    if (tilepack_cuda_devices() == 0) {
        printf("no device\n");
        return 77;
    }
    make_values();
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    need(cudaMalloc(&device_values, sizeof values), "cudaMalloc");
    need(cudaMalloc((void **)&device_flags, 4), "cudaMalloc");
    need(cudaMemcpy(device_values, values, sizeof values, cudaMemcpyHostToDevice), "cudaMemcpy");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (size_t i = 0; (name = tilepack_format_name(i)); i++)
        if (tilepack_format_is_written(name))
            test_format(name, device_values, device_flags);
    test_repack("w4a8-ct", "w4a8-cutlass", device_values);
    test_repack("mxfp8-ct", "mxfp8-blocked", device_values);
    test_repack("mxfp8-blocked", "mxfp8-ct", device_values);
    test_flags(device_values, device_flags);
    test_load();
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
