/* The kernel rows of the target table against the memory ceiling, on one device.
 *
 *     bench_cuda [--device D] [--only TEXT] [--repeats N] [--json FILE]
 *
 * One line per row and shape; TEXT picks the lines whose name holds it. The rate is of bytes
 * read and written, that in brackets of bytes read alone.
 */
#include "pack/bench/bench_cuda.h"
#include "pack/format/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line {
    const char *name, *from, *to; /* formats; from NULL: encode; to NULL: decode */
    const char *set;              /* "key=value" of `to` (scales alone: of `from`), or NULL */
    enum tp_dtype dtype;
    bool scales_only;
    const struct tp_box3 *boxes;
};

/* An encode with a search of scales. */
struct search_line {
    struct line line;
    enum tp_search search;
    enum tp_importance importance;
    bool is_signed;
};

static const struct tp_box3 nwise[] = {
    {8, 5120, 5120}, {8, 7168, 5120}, {8, 7168, 7168}, {8, 8192, 8192}, {32, 4096, 7168},
    {128, 2048, 7168}, {1, 8192, 5120}, {1, 2048, 2048}, {0, 0, 0},
};
static const struct tp_box3 kwise[] = {
    {1, 16384, 7168}, {1, 7168, 16384}, {64, 4096, 7168}, {0, 0, 0},
};
static const struct tp_box3 int4[] = {
    {8, 5120, 5120}, {8, 7168, 5120}, {8, 7168, 7168}, {8, 8192, 8192}, {64, 4096, 7168},
    {1, 8192, 8192}, {0, 0, 0},
};
static const struct tp_box3 scales[] = {{64, 4096, 7168}, {128, 4096, 7168}, {0, 0, 0}};
static const struct tp_box3 one[] = {{8, 7168, 7168}, {0, 0, 0}};

static const struct line lines[] = {
    {"mxfp8 n-wise rceil", NULL, "mxfp8-torchao3d", "scale=rceil", TP_BF16, false, nwise},
    {"mxfp8 n-wise floor", NULL, "mxfp8-torchao3d", "scale=floor", TP_BF16, false, nwise},
    {"mxfp8 n-wise 32x32", NULL, "mxfp8-torchao3d", "block=32x32", TP_BF16, false, one},
    {"mxfp8 n-wise f32", NULL, "mxfp8-torchao3d", NULL, TP_F32, false, one},
    {"mxfp8 k-wise tiles", NULL, "mxfp8-blocked", NULL, TP_BF16, false, kwise},
    {"mxfp8 k-wise rows", NULL, "mxfp8-ct", NULL, TP_BF16, false, kwise},
    {"fp8 128x128", NULL, "fp8-deepseek", NULL, TP_BF16, false, kwise},
    {"fp8 128x128 ct", NULL, "fp8-ct", NULL, TP_BF16, false, one},
    {"fp8 128x128 sm100", NULL, "fp8-deepgemm-sm100", NULL, TP_BF16, false, one},
    {"fp8 128x128 f32", NULL, "fp8-deepseek", NULL, TP_F32, false, one},
    {"fp8 1x128", NULL, "fp8-1x128", NULL, TP_BF16, false, one},
    {"int4 reorder", "w4a8-ct", "w4a8-cutlass", NULL, TP_BF16, false, int4},
    {"int4 restore", "w4a8-cutlass", "w4a8-ct", NULL, TP_BF16, false, one},
    {"float to w4a8-cutlass", NULL, "w4a8-cutlass", NULL, TP_BF16, false, int4},
    {"f32 to w4a8-cutlass", NULL, "w4a8-cutlass", NULL, TP_F32, false, one},
    {"float to w4a8-ct", NULL, "w4a8-ct", NULL, TP_BF16, false, int4},
    {"w4a8 scale pack", "w4a8-ct", "w4a8-cutlass", NULL, TP_BF16, true, scales},
    {"sm100 scale pack", "fp8-1x128", "fp8-deepgemm-sm100", "scale=ue8m0", TP_BF16, true, scales},
    {"mx scales to tiles", "mxfp8-ct", "mxfp8-blocked", NULL, TP_BF16, true, scales},
    {"mx scales to rows", "mxfp8-blocked", "mxfp8-ct", NULL, TP_BF16, true, scales},
    {"mxfp8 rows to tiles", "mxfp8-ct", "mxfp8-blocked", NULL, TP_BF16, false, kwise},
    {"mxfp8 tiles to rows", "mxfp8-blocked", "mxfp8-ct", NULL, TP_BF16, false, kwise},
    {"fp8 to sm100", "fp8-deepseek", "fp8-deepgemm-sm100", NULL, TP_BF16, false, kwise},
    {"fp4 mx rows", NULL, "mxfp4-ct", NULL, TP_BF16, false, one},
    {"fp4 mx tiles f16", NULL, "mxfp4-blocked", NULL, TP_F16, false, one},
    {"fp4 mx rows f16", NULL, "mxfp4-ct", NULL, TP_F16, false, one},
    {"fp4 nv rows", NULL, "nvfp4-ct", NULL, TP_BF16, false, kwise},
    {"fp4 nv rows f16", NULL, "nvfp4-ct", NULL, TP_F16, false, one},
    {"fp4 nv rows f32", NULL, "nvfp4-ct", NULL, TP_F32, false, one},
    {"fp4 nv tiles", NULL, "nvfp4-blocked", NULL, TP_BF16, false, kwise},
    {"fp4 nv tiles f16", NULL, "nvfp4-blocked", NULL, TP_F16, false, one},
    {"int8 channel", NULL, "int8-ct", NULL, TP_BF16, false, kwise},
    {"int8 groups of 128", NULL, "w8a16-ct", "group=128", TP_BF16, false, one},
    {"int8 groups of 32 f16", NULL, "w8a16-ct", "group=32", TP_F16, false, one},
    {"fp8 tensor", NULL, "fp8-tensor-ct", NULL, TP_BF16, false, kwise},
    {"int4 marlin", NULL, "w4a16-marlin", NULL, TP_BF16, false, one},
    {"int4 marlin channel", NULL, "w4a16-marlin-channel", NULL, TP_BF16, false, one},
    {"int8 marlin channel", NULL, "w8a16-marlin-channel", NULL, TP_BF16, false, one},
    {"int4 machete", NULL, "w4a16-machete", NULL, TP_BF16, false, one},
    {"int4 gptq", NULL, "gptq", NULL, TP_BF16, false, one},
    {"int4 awq", NULL, "awq", NULL, TP_BF16, false, one},
    {"int4 trtllm", NULL, "mxint4-trtllm", NULL, TP_BF16, false, one},
    {"int8 marlin", NULL, "w8a16-marlin", NULL, TP_BF16, false, one},
    {"fp8 dynamic", NULL, "fp8-dynamic-ct", NULL, TP_BF16, false, one},
    {"fp8 trtllm", NULL, "fp8-trtllm", NULL, TP_BF16, false, one},
    {"fp8 tensor trtllm", NULL, "fp8-tensor-trtllm", NULL, TP_BF16, false, one},
    {"mxfp8 marlin", NULL, "mxfp8-marlin", NULL, TP_BF16, false, one},
    {"mxfp8 trtllm", NULL, "mxfp8-trtllm", NULL, TP_BF16, false, one},
    {"mxfp4 marlin", NULL, "mxfp4-marlin", NULL, TP_BF16, false, one},
    {"mxfp4 trtllm", NULL, "mxfp4-trtllm", NULL, TP_BF16, false, one},
    {"nvfp4 trtllm", NULL, "nvfp4-trtllm", NULL, TP_BF16, false, one},
    {"int4 marlin repack", "w4a16-ct", "w4a16-marlin", NULL, TP_BF16, false, one},
    {"int4 gptq repack", "w4a16-ct", "gptq", "scales=bf16", TP_BF16, false, one},
    {"int4 gptq marlin repack", "gptq", "w4a16-marlin", "scales=f16", TP_BF16, false, one},
    {"mxfp4 marlin repack", "mxfp4-ct", "mxfp4-marlin", NULL, TP_BF16, false, one},
    {"nvfp4 trtllm repack", "nvfp4-ct", "nvfp4-trtllm", NULL, TP_BF16, false, one},
    {"fp8 trtllm repack", "fp8-deepseek", "fp8-trtllm", NULL, TP_BF16, false, one},
    {"decode fp8 f32", "fp8-deepseek", NULL, NULL, TP_F32, false, one},
    {"decode fp8 bf16", "fp8-deepseek", NULL, NULL, TP_BF16, false, one},
    {"decode n-wise bf16", "mxfp8-torchao3d", NULL, NULL, TP_BF16, false, one},
    {"decode w4a8 bf16", "w4a8-cutlass", NULL, NULL, TP_BF16, false, one},
    {"decode int4 marlin bf16", "w4a16-marlin", NULL, NULL, TP_BF16, false, one},
    {"decode gptq bf16", "gptq", NULL, NULL, TP_BF16, false, one},
    {"decode int8 marlin bf16", "w8a16-marlin", NULL, NULL, TP_BF16, false, one},
    {"decode mxfp4 marlin bf16", "mxfp4-marlin", NULL, NULL, TP_BF16, false, one},
    {"decode nvfp4 trtllm bf16", "nvfp4-trtllm", NULL, NULL, TP_BF16, false, one},
    {"decode w4a8-ct bf16", "w4a8-ct", NULL, NULL, TP_BF16, false, one},
};

#define SEARCH(name, to, dtype, search, importance, is_signed)           \
    {{"search " name, NULL, to, NULL, dtype, false, one}, TP_SEARCH_##search, \
     TP_IMPORTANCE_##importance, is_signed}
static const struct search_line searches[] = {
    SEARCH("nvfp4", "nvfp4-ct", TP_BF16, MSE, NONE, false),
    SEARCH("nvfp4 f32", "nvfp4-ct", TP_F32, MSE, NONE, false),
    SEARCH("nvfp4 tiles", "nvfp4-blocked", TP_BF16, MSE, NONE, false),
    SEARCH("nvfp4 magnitude", "nvfp4-ct", TP_BF16, MSE, MAGNITUDE, false),
    SEARCH("mxfp4", "mxfp4-ct", TP_BF16, MSE, NONE, false),
    SEARCH("mxfp4 magnitude", "mxfp4-ct", TP_BF16, MSE, MAGNITUDE, false),
    SEARCH("int4 magnitude", "w4a8-ct", TP_BF16, MSE, MAGNITUDE, false),
    SEARCH("int4 magnitude signed", "w4a8-ct", TP_BF16, MSE, MAGNITUDE, true),
    SEARCH("int4 magnitude f32", "w4a8-ct", TP_F32, MSE, MAGNITUDE, false),
    SEARCH("int4", "w4a8-ct", TP_BF16, MSE, NONE, false),
    SEARCH("w4a8 magnitude", "w4a8-ct", TP_BF16, W4A8, MAGNITUDE, false),
    SEARCH("w4a8", "w4a8-ct", TP_BF16, W4A8, NONE, false),
    SEARCH("w4a8-cutlass magnitude", "w4a8-cutlass", TP_BF16, MSE, MAGNITUDE, false),
};

static void op_of(const char *name, const char *set, struct tp_op *op)
{
    const struct tp_format *format = tp_format_find(name);
    struct tp_settings settings = {.choice = {0}};
    struct tp_err err = {0};
    if (format == NULL || (set != NULL && tp_format_set(&format, set, &settings, &err) != TP_OK)) {
        printf("%s %s: %s\n", name, set, err.what);
        exit(2);
    }
    tp_format_op(format, &settings, op);
}

static void print(FILE *json, const char *name, const struct tp_cuda_bench *b)
{
    double bytes = (double)(b->read_bytes + b->write_bytes);
    double rate = bytes / b->seconds / 1e9, ceiling = bytes / b->ceiling_seconds / 1e9;
    printf("%-29s %3d %5d %5d %5s %9.1f us %7.0f GB/s [%5.0f] %7.0f %u:%u grid %-6u %6.3f"
           "  (%.0f..%.0f)\n",
           name, (int)b->box.e, (int)b->box.n, (int)b->box.k, tp_dtype_name(b->dtype),
           b->seconds * 1e6, rate, (double)b->read_bytes / b->seconds / 1e9, ceiling,
           b->ceiling_reads, b->ceiling_writes, b->ceiling_grid,
           rate / ceiling, bytes / b->seconds_max / 1e9, bytes / b->seconds_min / 1e9);
    fflush(stdout);
    if (json != NULL)
        fprintf(json,
                "{\"row\":\"%s\",\"shape\":[%d,%d,%d],\"dtype\":\"%s\",\"read\":%llu,"
                "\"written\":%llu,\"seconds\":%.9f,\"ceiling_seconds\":%.9f,\"fraction\":%.4f,"
                "\"buffers\":%u,\"launches\":%u}\n",
                name, (int)b->box.e, (int)b->box.n, (int)b->box.k, tp_dtype_name(b->dtype),
                (unsigned long long)b->read_bytes, (unsigned long long)b->write_bytes, b->seconds,
                b->ceiling_seconds, rate / ceiling, b->buffers, b->launches);
}

static void set_search(const struct search_line *search, struct tp_op *op)
{
    op->search = (uint8_t)search->search;
    op->importance = (uint8_t)search->importance;
    op->search_signed = search->is_signed;
}

/* `search`: NULL, or how the scales of `to` are searched. */
static int bench_line(const struct line *line, const struct search_line *search, int device,
                      uint32_t repeats, FILE *json)
{
    struct tp_op from, to;
    if (line->from != NULL)
        op_of(line->from, line->scales_only ? line->set : NULL, &from);
    if (line->to != NULL)
        op_of(line->to, line->scales_only ? NULL : line->set, &to);
    if (search != NULL)
        set_search(search, &to);
    for (const struct tp_box3 *box = line->boxes; box->e > 0; box++) {
        struct tp_err err = {0};
        struct tp_cuda_bench b = {.device = device, .dtype = line->dtype, .box = *box,
                                  .repeats = repeats, .scales_only = line->scales_only};
        b.kind = line->from == NULL ? TP_CUDA_ENCODE
                 : line->to == NULL ? TP_CUDA_DECODE : TP_CUDA_REPACK;
        b.from = line->from != NULL ? &from : NULL;
        b.to = line->to != NULL ? &to : NULL;
        if (tp_cuda_bench(&b, &err) != TP_OK) {
            printf("%s: %s\n", line->name, err.what);
            return 1;
        }
        print(json, line->name, &b);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *path = NULL;
    struct tp_cuda_device info;
    struct tp_err err = {0};
    FILE *json = NULL;
    uint32_t repeats = 0;
    int device = 0, failed = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            device = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--repeats") == 0)
            repeats = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            path = argv[i + 1];
    }
    if (tp_cuda_count() == 0) {
        printf("no device: %s\n", tp_cuda_why_none());
        return 77;
    }
    if (tp_cuda_query(device, &info, &err) != TP_OK) {
        printf("%s\n", err.what);
        return 1;
    }
    printf("%s, %d multiprocessors, %.0f MB L2\n", info.name, info.multiprocessors,
           (double)info.l2_bytes / 1e6);
    if (path != NULL)
        json = fopen(path, "w");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (only == NULL || strstr(lines[i].name, only) != NULL)
            failed |= bench_line(&lines[i], NULL, device, repeats, json);
    for (size_t i = 0; i < sizeof searches / sizeof searches[0]; i++)
        if (only == NULL || strstr(searches[i].line.name, only) != NULL)
            failed |= bench_line(&searches[i].line, &searches[i], device, repeats, json);
    if (json != NULL)
        fclose(json);
    return failed;
}
