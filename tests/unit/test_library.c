/* The C library as a stranger uses it: nothing but tilepack.h is included. */
#include "pack/api/tilepack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include <cmocka.h>

enum { E = 1, N = 256, K = 512, VALUES = E * N * K };

static char message[400];

#define CALL(call)                                        \
    do {                                                  \
        if ((call) != TILEPACK_OK)                        \
            fail_msg("%s", message);                      \
        assert_string_equal(message, "");                 \
    } while (0)

/* Normal enough, as wide as weights; the same on every run. */
static void make_values(float *values)
{
    uint32_t state = 1;
    for (int i = 0; i < VALUES; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) * 0x1p-24f - 0.5f;
        }
        values[i] = sum * 0.04f;
    }
}

struct packed {
    tilepack_weight *weight;
    uint8_t *memory[TILEPACK_MAX_TENSORS];
    void *tensor[TILEPACK_MAX_TENSORS];
    const void *input[TILEPACK_MAX_TENSORS];
    size_t count;
};

/* Room for all tensors; `shift` bytes off the alignment the kernels want. */
static struct packed room(const char *format, const char *parameters, unsigned shift)
{
    struct packed p = {0};
    CALL(tilepack_weight_new(format, parameters, E, N, K, &p.weight, message, sizeof message));
    p.count = tilepack_weight_tensors(p.weight);
    assert_in_range(p.count, 1, TILEPACK_MAX_TENSORS);
    for (size_t i = 0; i < p.count; i++) {
        uint64_t bytes = tilepack_weight_bytes(p.weight, i);
        p.memory[i] = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
        assert_non_null(p.memory[i]);
        memset(p.memory[i], 0xA5, bytes + 64);
        p.tensor[i] = p.memory[i] + shift;
        p.input[i] = p.tensor[i];
    }
    return p;
}

static void release(struct packed *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->memory[i]);
    tilepack_weight_free(p->weight);
}

static void assert_same(const struct packed *a, const struct packed *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(tilepack_weight_bytes(a->weight, i), tilepack_weight_bytes(b->weight, i));
        assert_memory_equal(a->tensor[i], b->tensor[i], tilepack_weight_bytes(a->weight, i));
    }
}

static double relative_error(const float *a, const float *b)
{
    double error = 0, norm = 0;
    for (int i = 0; i < VALUES; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)a[i] * a[i];
    }
    return sqrt(error / norm);
}

/* ---- formats ------------------------------------------------------------- */

static void test_version(void **state)
{
    unsigned major, minor, patch;
    (void)state;
    assert_string_equal(tilepack_version(), TILEPACK_VERSION);
    assert_int_equal(sscanf(tilepack_version(), "%u.%u.%u", &major, &minor, &patch), 3);
    assert_int_equal(tilepack_version_number(), major * 10000 + minor * 100 + patch);
}

static void test_formats(void **state)
{
    size_t count = 0, written = 0;
    bool found = false;
    (void)state;
    for (const char *name; (name = tilepack_format_name(count)); count++) {
        written += tilepack_format_is_written(name) == 1;
        found |= strcmp(name, "w4a8-cutlass") == 0;
        assert_non_null(tilepack_format_title(name));
        assert_non_null(strstr(tilepack_format_json(name), name));
        for (size_t p = 0; tilepack_format_parameter(name, p); p++) {
            assert_non_null(tilepack_format_parameter_value(name, p, 0));
            assert_null(tilepack_format_parameter_value(name, p, 1000));
            assert_non_null(tilepack_format_parameter_help(name, p));
        }
    }
    assert_true(found && written >= 9 && written <= count);
    assert_null(tilepack_format_name(count + 1000));
    assert_null(tilepack_format_title("none"));
    assert_null(tilepack_format_json(NULL));
    assert_int_equal(tilepack_format_is_written("none"), 0);
    assert_string_equal(tilepack_format_parameter("mxfp8-torchao3d", 0), "scale");
    assert_string_equal(tilepack_format_parameter_value("mxfp8-torchao3d", 0, 1), "floor");
}

/* ---- weights ------------------------------------------------------------- */

static uint64_t bits_of(const char *dtype)
{
    static const struct {
        const char *name;
        uint64_t bits;
    } all[] = {{"F8_E4M3", 8}, {"U8", 8}, {"I8", 8}, {"BF16", 16}, {"F16", 16},
               {"F32", 32},    {"I32", 32}, {"I64", 64}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, dtype) == 0)
            return all[i].bits;
    fail_msg("dtype %s", dtype);
    return 0;
}

static void check_description(const tilepack_weight *weight)
{
    for (size_t i = 0; i < tilepack_weight_tensors(weight); i++) {
        uint64_t shape[TILEPACK_MAX_RANK], bits = bits_of(tilepack_weight_dtype(weight, i));
        size_t rank = tilepack_weight_shape(weight, i, shape);
        assert_in_range(rank, 1, TILEPACK_MAX_RANK);
        for (size_t d = 0; d < rank; d++)
            bits *= shape[d];
        assert_int_equal(bits / 8, tilepack_weight_bytes(weight, i));
        assert_non_null(tilepack_weight_suffix(weight, i));
        bool words = strcmp(tilepack_weight_role(weight, i), "words") == 0;
        const char *text = tilepack_weight_layout(weight, i);
        bool matrix = shape[0] == K / 8 || shape[0] == K / 16 || shape[0] == K / 128 ||
                      shape[0] == K; /* no experts */
        assert_true(words || shape[0] == E || matrix);
        assert_int_equal(text == NULL, words);
        if (!words) {
            tilepack_layout *layout;
            CALL(tilepack_layout_new(text, 0, 0, 0, &layout, message, sizeof message));
            assert_true(tilepack_layout_size(layout) <= 2 * tilepack_weight_bytes(weight, i));
            tilepack_layout_free(layout);
        }
    }
}

/* Every format that is written: values come back, as near as its bits allow. */
static void test_round_trip(void **state)
{
    float *values = malloc(VALUES * sizeof *values), *back = malloc(VALUES * sizeof *back);
    (void)state;
    make_values(values);
    const char *name;
    for (size_t f = 0; (name = tilepack_format_name(f)); f++) {
        if (!tilepack_format_is_written(name))
            continue;
        struct packed p = room(name, NULL, 0), q = room(name, NULL, 8);
        int nonfinite = 7;
        check_description(p.weight);
        CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, &nonfinite, message,
                               sizeof message));
        assert_int_equal(nonfinite, 0);
        CALL(tilepack_quantize(q.weight, TILEPACK_F32, values, q.tensor, NULL, message,
                               sizeof message));
        assert_same(&p, &q); /* wherever the memory lies */
        CALL(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message, sizeof message));
        double error = relative_error(values, back);
        if (error < 1e-4 || error > 0.2)
            fail_msg("%s: relative error %g", name, error);
        release(&p);
        release(&q);
    }
    free(values);
    free(back);
}

static void test_dtypes(void **state)
{
    float *values = malloc(VALUES * sizeof *values), *back = malloc(VALUES * sizeof *back);
    uint16_t *half = malloc(VALUES * sizeof *half), *out = malloc(VALUES * sizeof *out);
    (void)state;
    make_values(values);
    for (int i = 0; i < VALUES; i++) { /* cut to bf16, so that both hold the same numbers */
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        half[i] = (uint16_t)(bits >> 16);
        bits &= 0xFFFF0000u;
        memcpy(&values[i], &bits, 4);
    }
    struct packed p = room("fp8-deepseek", NULL, 0), q = room("fp8-deepseek", NULL, 0);
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    CALL(tilepack_quantize(q.weight, TILEPACK_BF16, half, q.tensor, NULL, message,
                           sizeof message));
    assert_same(&p, &q);
    CALL(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message, sizeof message));
    CALL(tilepack_decode(p.weight, p.input, TILEPACK_BF16, out, message, sizeof message));
    for (int i = 0; i < VALUES; i++) { /* rounded, not cut: at most one apart */
        uint32_t bits;
        memcpy(&bits, &back[i], 4);
        assert_in_range(out[i], bits >> 16, (bits >> 16) + 1);
    }
    release(&p);
    release(&q);
    free(values);
    free(back);
    free(half);
    free(out);
}

static void test_parameters(void **state)
{
    float *values = malloc(VALUES * sizeof *values);
    struct packed p = room("mxfp8-ct", NULL, 0), q = room("mxfp8-ct", "scale=floor", 0);
    (void)state;
    make_values(values);
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    CALL(tilepack_quantize(q.weight, TILEPACK_F32, values, q.tensor, NULL, message,
                           sizeof message));
    assert_memory_not_equal(p.tensor[1], q.tensor[1], tilepack_weight_bytes(p.weight, 1));
    release(&p);
    release(&q);
    free(values);
}

static void test_constants(void **state)
{
    struct packed p = room("w4a8-cutlass", NULL, 0);
    int32_t words[3 * E];
    float *values = malloc(VALUES * sizeof *values);
    (void)state;
    make_values(values);
    assert_string_equal(tilepack_weight_role(p.weight, 1), "words");
    assert_int_equal(tilepack_weight_bytes(p.weight, 1), sizeof words);
    CALL(tilepack_weight_constant(p.weight, 1, words, message, sizeof message));
    assert_int_equal(words[0], N / 16);
    assert_int_equal(words[1], K / 32);
    assert_int_equal(words[2], 32 * N);
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    assert_memory_equal(p.tensor[1], words, sizeof words);
    assert_int_equal(tilepack_weight_constant(p.weight, 0, words, message, sizeof message),
                     TILEPACK_E_USAGE);
    release(&p);
    free(values);
}

static void test_nonfinite(void **state)
{
    float *values = malloc(VALUES * sizeof *values);
    struct packed p = room("fp8-1x128", NULL, 0);
    int nonfinite = 0;
    (void)state;
    make_values(values);
    values[12345] = INFINITY;
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, &nonfinite, message,
                           sizeof message));
    assert_int_equal(nonfinite, 1);
    release(&p);
    free(values);
}

/* Taking codes over gives what quantizing to the second format gives. */
static void test_repack(void **state)
{
    float *values = malloc(VALUES * sizeof *values);
    (void)state;
    make_values(values);
    static const char *const pairs[][2] = {{"w4a8-ct", "w4a8-cutlass"},
                                           {"mxfp8-ct", "mxfp8-blocked"},
                                           {"mxfp8-blocked", "mxfp8-ct"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct packed from = room(pairs[i][0], NULL, 0), to = room(pairs[i][1], NULL, 8);
        struct packed direct = room(pairs[i][1], NULL, 0);
        assert_int_equal(tilepack_can_repack(from.weight, to.weight), 1);
        CALL(tilepack_quantize(from.weight, TILEPACK_F32, values, from.tensor, NULL, message,
                               sizeof message));
        CALL(tilepack_quantize(direct.weight, TILEPACK_F32, values, direct.tensor, NULL, message,
                               sizeof message));
        CALL(tilepack_repack(from.weight, from.input, to.weight, to.tensor, message,
                             sizeof message));
        assert_same(&to, &direct);
        release(&from);
        release(&to);
        release(&direct);
    }
    struct packed fp8 = room("fp8-ct", NULL, 0), int4 = room("w4a8-ct", NULL, 0);
    assert_int_equal(tilepack_can_repack(fp8.weight, int4.weight), 0);
    assert_int_equal(tilepack_repack(fp8.weight, fp8.input, int4.weight, int4.tensor, message,
                                     sizeof message),
                     TILEPACK_E_UNSUPPORTED);
    assert_non_null(strstr(message, "fp8-ct"));
    release(&fp8);
    release(&int4);
    free(values);
}

/* Values of a weight in act-order follow from a table that the caller gives: an entry that
 * is no group is refused, wherever it stands, and never followed. */
static void test_act_order(void **state)
{
    static const char *const formats[] = {"gptq", "ct-int4"};
    float *back = malloc(VALUES * sizeof *back);
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct packed p = room(formats[f], NULL, 0);
        size_t order = p.count - 1;
        int32_t *groups = p.tensor[order];
        assert_string_equal(tilepack_weight_role(p.weight, order), "order");
        for (int k = 0; k < K; k++)
            groups[k] = k * 7 % (K / 128);
        CALL(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message, sizeof message));
        static const int32_t wrong[] = {K / 128, 0x7FFFFFFF, -1, INT32_MIN};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            for (int k = 0; k < K; k += K - 1) {
                int32_t kept = groups[k];
                char where[40];
                groups[k] = wrong[i];
                assert_int_equal(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message,
                                                 sizeof message), TILEPACK_E_INPUT);
                snprintf(where, sizeof where, "g_idx[%d] is %d,", k, wrong[i]);
                assert_non_null(strstr(message, where));
                groups[k] = kept;
            }
        p.input[order] = NULL; /* groups in their order */
        CALL(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message, sizeof message));
        release(&p);
    }
    free(back);
}

/* Formats whose tensors have no dimension of experts describe one matrix, and no weight has
 * tensors that are shorter than what their layouts reach. */
static void test_stacks(void **state)
{
    size_t stacks = 0, matrices = 0;
    const char *name;
    (void)state;
    for (size_t f = 0; (name = tilepack_format_name(f)); f++) {
        tilepack_weight *weight;
        int status = tilepack_weight_new(name, NULL, 9, N, K, &weight, message, sizeof message);
        if (status) {
            assert_int_equal(status, TILEPACK_E_UNSUPPORTED);
            assert_non_null(strstr(message, name));
            assert_non_null(strstr(message, "E=1"));
            matrices++;
            continue;
        }
        for (size_t i = 0; i < tilepack_weight_tensors(weight); i++) {
            tilepack_layout *layout;
            const char *text = tilepack_weight_layout(weight, i);
            if (!text)
                continue;
            CALL(tilepack_layout_new(text, 0, 0, 0, &layout, message, sizeof message));
            assert_true(tilepack_layout_size(layout) <= 2 * tilepack_weight_bytes(weight, i));
            tilepack_layout_free(layout);
        }
        tilepack_weight_free(weight);
        stacks++;
    }
    assert_true(stacks >= 9 && matrices >= 2);
}

/* The global scale of NVFP4 is a number that decoding and taking over cannot guess, and
 * each expert has its own. */
static void test_global(void **state)
{
    float *values = malloc(VALUES * sizeof *values), *back = malloc(VALUES * sizeof *back);
    struct packed p = room("nvfp4-ct", NULL, 0), q = room("nvfp4-ct", NULL, 0);
    struct packed one = room("nvfp4-blocked", "scale=torchao-single", 0);
    tilepack_weight *stack;
    size_t global = p.count - 1;
    (void)state;
    make_values(values);
    assert_string_equal(tilepack_weight_role(p.weight, global), "global");
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    CALL(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message, sizeof message));
    assert_true(relative_error(values, back) < 0.2);
    p.input[global] = NULL;
    assert_int_equal(tilepack_decode(p.weight, p.input, TILEPACK_F32, back, message,
                                     sizeof message), TILEPACK_E_USAGE);
    assert_non_null(strstr(message, "weight_global_scale"));
    assert_int_equal(tilepack_repack(p.weight, p.input, q.weight, q.tensor, message,
                                     sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_decode_cuda(p.weight, p.input, TILEPACK_F32, back, 0, NULL, message,
                                          sizeof message), TILEPACK_E_USAGE);
    p.input[global] = p.tensor[global];
    CALL(tilepack_weight_new("nvfp4-ct", NULL, 2, N / 2, K, &stack, message, sizeof message));
    assert_int_equal(tilepack_decode(stack, p.input, TILEPACK_F32, back, message, sizeof message),
                     TILEPACK_E_UNSUPPORTED);
    assert_non_null(strstr(message, "E=1"));
    assert_int_equal(tilepack_repack(stack, p.input, stack, q.tensor, message, sizeof message),
                     TILEPACK_E_UNSUPPORTED);
    tilepack_weight_free(stack);
    CALL(tilepack_quantize(one.weight, TILEPACK_F32, values, one.tensor, NULL, message,
                           sizeof message));
    one.input[one.count - 1] = NULL; /* it is 1, whatever the weight */
    CALL(tilepack_decode(one.weight, one.input, TILEPACK_F32, back, message, sizeof message));
    assert_true(relative_error(values, back) < 0.2);
    release(&p);
    release(&q);
    release(&one);
    free(values);
    free(back);
}

/* A size is taken or not; that it is not is nothing wrong with an input. */
static void test_sizes(void **state)
{
    static const uint64_t sizes[] = {1, 2, 31, 72, 128, 129, 256, 384};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    size_t taken = 0, refused = 0;
    tilepack_weight *part;
    const char *name;
    (void)state;
    for (size_t f = 0; (name = tilepack_format_name(f)); f++)
        for (size_t i = 0; i < 4 * SIZES * SIZES; i++) {
            uint64_t e = i / 2 % 2 ? 8 : 1, n = sizes[i / 4 % SIZES], k = sizes[i / 4 / SIZES];
            tilepack_weight *weight;
            int status = tilepack_weight_new_part(name, NULL, i % 2 ? "gated" : NULL, 0, e, n, k,
                                                  &weight, message, sizeof message);
            taken += status == TILEPACK_OK;
            refused += status == TILEPACK_E_UNSUPPORTED;
            if (status && (status != TILEPACK_E_UNSUPPORTED || strstr(message, "layout '")))
                fail_msg("%s [%d,%d,%d]: %d, %s", name, (int)e, (int)n, (int)k, status, message);
            tilepack_weight_free(weight);
        }
    assert_true(taken > 1000 && refused > 1000);
    assert_int_equal(tilepack_weight_new_part("fp8-trtllm", NULL, "gated", 0, 8, 128, 256, &part,
                                              message, sizeof message), TILEPACK_E_UNSUPPORTED);
    assert_non_null(strstr(message, "N=128 is not a multiple of 256: up and gate each have "));
    assert_int_equal(tilepack_weight_new_part("mxfp4-trtllm", NULL, "gated", 0, 8, 129, 256, &part,
                                              message, sizeof message), TILEPACK_E_UNSUPPORTED);
    assert_non_null(strstr(message, "mxfp4-trtllm does not hold gate and up of [8,129,256]: "));
    assert_int_equal(tilepack_weight_new_part("fp8-tensor-trtllm", NULL, "gated", 0, 8, 336, 256,
                                              &part, message, sizeof message), TILEPACK_OK);
    assert_int_equal(tilepack_weight_bytes(part, 0), 8 * 2 * 176 * 256); /* 336 is no multiple of 32 */
    tilepack_weight_free(part);
    assert_int_equal(tilepack_weight_new_part("mxfp4-marlin", NULL, "up", 0, 4, 384, 320,
                                              &part, message, sizeof message), TILEPACK_OK);
    assert_int_equal(tilepack_weight_bytes(part, 0), 4 * 512 * 512 / 2); /* rows, columns: 256 */
    tilepack_weight_free(part);
    assert_int_equal(tilepack_weight_new_part("mxfp4-marlin", "type=f16", "gated", 1, 4, 384, 1,
                                              &part, message, sizeof message), TILEPACK_OK);
    assert_string_equal(tilepack_weight_layout(part, 0),
                        "((2,4),(2,4,4,8),1):((256,512),(1,8,2,32),1)");
    assert_string_equal(tilepack_weight_dtype(part, 0), "F16");
    tilepack_weight_free(part);
    assert_int_equal(tilepack_weight_new_part("mxfp4-marlin", NULL, "sideways", 0, 4, 384, 320,
                                              &part, message, sizeof message), TILEPACK_E_USAGE);
    assert_true(!part && strcmp(message, "there is no part 'sideways' of a format") == 0);
    assert_int_equal(tilepack_weight_new_part("w4a8-cutlass", NULL, NULL, 1, 4, 384, 1, &part,
                                              message, sizeof message), TILEPACK_E_USAGE);
    assert_true(!part && strstr(message, "w4a8-cutlass has no order of its own for biases"));
    assert_int_equal(tilepack_weight_new_part("mxfp4-marlin", NULL, NULL, 1, 1, 1024, 4096, &part,
                                              message, sizeof message), TILEPACK_E_USAGE);
    assert_true(!part && strstr(message, "a bias is of n numbers and k = 1"));
    for (unsigned bits = 48; bits < 64; bits++) { /* with its padding it fits no number */
        assert_int_equal(tilepack_weight_new("w4a8-int8-marlin-channel", NULL, UINT64_C(1) << bits,
                                             3, 8, &(tilepack_weight *){NULL}, message,
                                             sizeof message), TILEPACK_E_UNSUPPORTED);
        assert_string_equal(message, "the weight is too large");
    }
}

static void test_misuse(void **state)
{
    tilepack_weight *weight = (tilepack_weight *)message;
    float *values = calloc(VALUES, sizeof *values);
    char tiny[8] = "xxxxxxx";
    (void)state;
    assert_int_equal(tilepack_weight_new("none", NULL, 1, 16, 128, &weight, message,
                                         sizeof message), TILEPACK_E_USAGE);
    assert_null(weight);
    assert_non_null(strstr(message, "none"));
    assert_int_equal(tilepack_weight_new("w4a8-ct", "quotient=no", 1, 16, 128, &weight, tiny,
                                         sizeof tiny), TILEPACK_E_USAGE);
    assert_int_equal(strlen(tiny), sizeof tiny - 1);
    assert_int_equal(tilepack_weight_new("w4a8-cutlass", NULL, 1, 17, 128, &weight, message,
                                         sizeof message), TILEPACK_E_UNSUPPORTED);
    assert_non_null(strstr(message, "N=17"));
    assert_int_equal(tilepack_weight_new("w4a8-ct", NULL, 1, 0, 128, &weight, NULL, 0),
                     TILEPACK_E_USAGE);
    assert_int_equal(tilepack_weight_new("mxfp8-ct", NULL, UINT64_C(1) << 40, UINT64_C(1) << 30,
                                         32, &weight, NULL, 0), TILEPACK_E_UNSUPPORTED);
    assert_int_equal(tilepack_weight_new(NULL, NULL, 1, 16, 128, &weight, NULL, 0),
                     TILEPACK_E_USAGE);
    static const char odd[] = "a\nb\x1b[31m\xff\u00e9";
    assert_int_equal(tilepack_weight_new(odd, NULL, 1, 16, 128, &weight, message, sizeof message),
                     TILEPACK_E_USAGE); /* one line */
    assert_non_null(strstr(message, "'a\\x0Ab\\x1B[31m\\xFF\u00e9'"));
    size_t whole = (size_t)(strstr(message, "\u00e9") - message);
    for (size_t size = whole - 3; size <= whole + 2; size++) { /* no part of a character */
        tilepack_weight_new(odd, NULL, 1, 16, 128, &weight, message, size);
        assert_true(strlen(message) <= whole && !strchr(message, '\xc3'));
        assert_true(message[strlen(message) - 1] != 'x' && message[strlen(message) - 1] != '\\');
    }
    struct packed p = room("fp8-ct", NULL, 0);
    assert_int_equal(tilepack_quantize(p.weight, TILEPACK_F32, values, NULL, NULL, message,
                                       sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_decode(p.weight, NULL, TILEPACK_F32, values, message,
                                     sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_repack(p.weight, NULL, p.weight, NULL, message, sizeof message),
                     TILEPACK_E_USAGE);
    void *tensors[2] = {p.tensor[0], NULL};
    const void *inputs[2] = {NULL, p.tensor[1]};
    assert_int_equal(tilepack_quantize(p.weight, TILEPACK_F32, values, tensors, NULL, message,
                                       sizeof message), TILEPACK_E_USAGE);
    assert_non_null(strstr(message, "weight_scale"));
    assert_int_equal(tilepack_quantize(p.weight, (enum tilepack_dtype)9, values, p.tensor, NULL,
                                       message, sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_decode(p.weight, inputs, TILEPACK_F32, values, message,
                                     sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_decode(p.weight, p.input, TILEPACK_F16, values, message,
                                     sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_quantize(p.weight, TILEPACK_F32, NULL, p.tensor, NULL, message,
                                       sizeof message), TILEPACK_E_USAGE);
    assert_non_null(strstr(message, "values"));
    assert_int_equal(tilepack_decode(p.weight, p.input, TILEPACK_F32, NULL, message,
                                     sizeof message), TILEPACK_E_USAGE);
    assert_null(tilepack_weight_suffix(p.weight, 99));
    assert_int_equal(tilepack_weight_bytes(p.weight, 99), 0);
    release(&p);
    tilepack_weight_free(NULL);
    free(values);
}

/* What is so small that its global scale would be 0 is refused before anything is written. */
static void test_no_global(void **state)
{
    struct packed p = room("nvfp4-blocked", "scale=modelopt", 0);
    struct packed q = room("nvfp4-blocked", "scale=modelopt", 0);
    float *values = calloc(VALUES, sizeof *values);
    (void)state;
    values[7] = 0x1p-149f;
    assert_int_equal(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                                       sizeof message), TILEPACK_E_INPUT);
    assert_non_null(strstr(message, "its largest value is 1.4013e-45: so small that"));
    assert_same(&p, &q);
    const float none[] = {0x1p-149f, INFINITY};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(tilepack_quantize_cuda(p.weight, TILEPACK_F32, p.tensor[0], p.tensor,
                                                none[i], NULL, 0, NULL, message, sizeof message),
                         TILEPACK_E_INPUT);
    assert_non_null(strstr(message, "its largest value is inf: so large that"));
    values[7] = 0x1p-138f;
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    values[7] = 0;
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    release(&p);
    release(&q);
    free(values);
}

/* A machine without a GPU says so; one with a GPU refuses a device it has not. */
static void test_cuda_refusals(void **state)
{
    struct packed p = room("fp8-ct", NULL, 0);
    int count = tilepack_cuda_devices();
    (void)state;
    assert_int_equal(tilepack_quantize_cuda(p.weight, TILEPACK_F32, p.tensor[0], p.tensor, 0,
                                            NULL, count, NULL, message, sizeof message),
                     count ? TILEPACK_E_USAGE : TILEPACK_E_MEMORY);
    assert_true(strlen(message) > 10);
    void *odd[2] = {p.memory[0] + 8, p.tensor[1]};
    assert_int_equal(tilepack_quantize_cuda(p.weight, TILEPACK_F32, p.tensor[0], odd, 0, NULL, 0,
                                            NULL, message, sizeof message), TILEPACK_E_USAGE);
    assert_non_null(strstr(message, "64"));
    release(&p);
}

/* ---- layouts ------------------------------------------------------------- */

static void test_layout(void **state)
{
    tilepack_layout *layout;
    uint64_t box[3], coord[3];
    char text[128];
    (void)state;
    CALL(tilepack_layout_new("(E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))", 2, 32,
                             64, &layout, message, sizeof message));
    tilepack_layout_box(layout, box);
    assert_int_equal(box[0], 2);
    assert_int_equal(box[1], 32);
    assert_int_equal(box[2], 64);
    assert_int_equal(tilepack_layout_size(layout), 2 * 32 * 64);
    /* n = 9 = 1 + 8*1, k = 37 = 1 + 4*1 + 16*0 + 32*1 */
    assert_int_equal(tilepack_layout_at(layout, 1, 9, 37), 2048 + 64 + 4 + 1 + 16 + 1024);
    for (uint64_t i = 0; i < tilepack_layout_size(layout); i++) {
        assert_int_equal(tilepack_layout_coord(layout, i, coord), 0);
        assert_int_equal(tilepack_layout_at(layout, coord[0], coord[1], coord[2]), i);
    }
    assert_int_equal(tilepack_layout_coord(layout, 4096, coord), -1);
    assert_true(tilepack_layout_at(layout, 2, 0, 0) == UINT64_MAX);
    size_t length = tilepack_layout_print(layout, text, sizeof text);
    assert_string_equal(text, "(2,(8,2,2),(4,4,2,2)):(2048,(64,4,512),(1,16,8,1024))");
    assert_int_equal(length, strlen(text));
    tilepack_layout_free(layout);
    tilepack_layout_free(NULL);
    assert_int_equal(tilepack_layout_new("(E,N,K):(0,1,1)", 2, 3, 4, &layout, message,
                                         sizeof message), TILEPACK_E_INPUT);
    assert_null(layout);
    assert_int_equal(tilepack_layout_new("(E,N", 2, 3, 4, &layout, message, sizeof message),
                     TILEPACK_E_INPUT);
    assert_int_equal(tilepack_layout_new(NULL, 2, 3, 4, &layout, message, sizeof message),
                     TILEPACK_E_USAGE);
}

struct runs {
    uint64_t count, covered, next_part;
    bool good;
};

static int visit(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct runs *r = arg;
    (void)whole;
    r->good &= part == r->next_part;
    r->next_part = part + length;
    r->covered += length;
    r->count++;
    return 0;
}

static int stop(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    (void)arg, (void)whole, (void)part, (void)length;
    return 42;
}

static void test_runs(void **state)
{
    tilepack_layout *whole, *part, *other;
    struct runs r = {.good = true};
    (void)state;
    CALL(tilepack_layout_new("(E,N,K):(N*K,K,1)", 2, 8, 16, &whole, message, sizeof message));
    CALL(tilepack_layout_new("(E,N,K):(N*K,K,1)", 1, 4, 8, &part, message, sizeof message));
    CALL(tilepack_layout_new("(E,N,(2,K/2)):(N*K,K,(1,2))", 1, 4, 8, &other, message,
                             sizeof message));
    assert_int_equal(tilepack_layout_runs(part, whole, 1, 4, 8, visit, &r), 0);
    assert_true(r.good && r.covered == 32 && r.count == 4);
    assert_int_equal(tilepack_layout_runs(part, whole, 1, 4, 8, stop, &r), 42);
    assert_int_equal(tilepack_layout_runs(part, whole, 1, 5, 8, visit, &r), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_layout_runs(other, whole, 0, 0, 0, visit, &r), TILEPACK_E_USAGE);
    tilepack_layout_free(whole);
    tilepack_layout_free(part);
    tilepack_layout_free(other);
}

/* ---- files --------------------------------------------------------------- */

/* A file of one packed weight and one plain tensor, written by hand. */
static void write_file(const char *path, const struct packed *p, const float norm[4])
{
    uint64_t a = tilepack_weight_bytes(p->weight, 0), b = tilepack_weight_bytes(p->weight, 1);
    char header[1024];
    int size = snprintf(header, sizeof header,
                        "{\"norm\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                        "\"q.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,4],"
                        "\"data_offsets\":[16,%d]},"
                        "\"q.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d],"
                        "\"data_offsets\":[%d,%d]}}",
                        (int)(16 + b), N, K, (int)(16 + b), (int)(16 + b + a));
    uint64_t length = (uint64_t)size;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fwrite(&length, 8, 1, out);
    fwrite(header, 1, length, out);
    fwrite(norm, 16, 1, out);
    fwrite(p->tensor[1], 1, b, out);
    fwrite(p->tensor[0], 1, a, out);
    assert_int_equal(fclose(out), 0);
}

static void check_tensors(const tilepack_checkpoint *c, const float norm[4], const char *path)
{
    uint64_t shape[TILEPACK_MAX_RANK], offset = 0;
    float read[2];
    assert_int_equal(tilepack_tensors(c), 3);
    size_t t = tilepack_tensor_find(c, "norm");
    assert_string_equal(tilepack_tensor_name(c, t), "norm");
    assert_string_equal(tilepack_tensor_dtype(c, t), "F32");
    assert_int_equal(tilepack_tensor_shape(c, t, shape), 1);
    assert_int_equal(shape[0], 4);
    assert_int_equal(tilepack_tensor_bytes(c, t), 16);
    CALL(tilepack_tensor_read(c, t, 4, read, 8, message, sizeof message));
    assert_memory_equal(read, norm + 1, 8);
    assert_int_equal(tilepack_tensor_read(c, t, 12, read, 8, message, sizeof message),
                     TILEPACK_E_USAGE);
    assert_string_equal(tilepack_tensor_file(c, t, &offset), path);
    FILE *in = fopen(path, "rb");
    assert_int_equal(fseek(in, (long)offset, SEEK_SET), 0);
    assert_int_equal(fread(read, 4, 2, in), 2);
    assert_int_equal(pread(tilepack_tensor_descriptor(c, t), read, 8, (off_t)offset), 8);
    fclose(in);
    assert_memory_equal(read, norm, 8);
    assert_int_equal(tilepack_tensor_read(c, t, 0, NULL, 8, message, sizeof message),
                     TILEPACK_E_USAGE);
    assert_true(tilepack_tensor_find(c, "none") == SIZE_MAX);
    assert_true(tilepack_tensor_find(c, NULL) == SIZE_MAX);
    assert_null(tilepack_tensor_name(c, 3));
    assert_null(tilepack_tensor_file(c, 3, &offset));
    assert_int_equal(tilepack_tensor_descriptor(c, 3), -1);
}

static void check_packed(const tilepack_checkpoint *c, const struct packed *p, const float *values)
{
    uint64_t box[3];
    float region[3 * 5];
    tilepack_weight *weight;
    assert_int_equal(tilepack_packed(c), 1);
    assert_int_equal(tilepack_packed_find(c, "q"), 0);
    assert_true(tilepack_packed_find(c, "norm") == SIZE_MAX);
    assert_true(tilepack_packed_find(c, NULL) == SIZE_MAX);
    assert_string_equal(tilepack_packed_name(c, 0), "q");
    assert_string_equal(tilepack_packed_format(c, 0), "fp8-deepseek");
    tilepack_packed_box(c, 0, box);
    assert_int_equal(box[1], N);
    assert_int_equal(box[2], K);
    assert_true(tilepack_packed_tensor(c, 0, 0) == tilepack_tensor_find(c, "q.weight"));
    assert_true(tilepack_packed_tensor(c, 0, 5) == SIZE_MAX);
    CALL(tilepack_packed_weight(c, 0, &weight, message, sizeof message));
    assert_int_equal(tilepack_weight_bytes(weight, 0), tilepack_weight_bytes(p->weight, 0));
    tilepack_weight_free(weight);
    CALL(tilepack_packed_values(c, 0, 0, 126, 129, 255, 260, region, message, sizeof message));
    for (int n = 0; n < 3; n++)
        for (int k = 0; k < 5; k++)
            assert_true(region[n * 5 + k] == values[(126 + n) * K + 255 + k]);
    assert_int_equal(tilepack_packed_values(c, 0, 0, 0, N + 1, 0, 1, region, message,
                                            sizeof message), TILEPACK_E_USAGE);
    assert_int_equal(tilepack_packed_values(c, 1, 0, 0, 1, 0, 1, region, message, sizeof message),
                     TILEPACK_E_USAGE);
    assert_int_equal(tilepack_packed_values(c, 0, 0, 0, 1, 0, 1, NULL, message, sizeof message),
                     TILEPACK_E_USAGE);
}

/* Scales in another float type than the format's own: the weight is described as it is in
 * the file, so that what was read can be decoded, wherever the memory lies. */
static void check_scales_of(const char *suffix, const char *dtype, unsigned width)
{
    const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    uint8_t *file = malloc(N * K + 8 * width + 1), *scales = file + N * K;
    float *values = malloc(2 * VALUES * sizeof *values), *back = values + VALUES;
    char path[300], header[1024];
    tilepack_checkpoint *c;
    tilepack_weight *weight;
    memset(file, 0x31, N * K);
    for (unsigned i = 0; i < 8; i++) {
        float scale = 0.5f * (float)(i + 1); /* its upper half is the same number as bf16 */
        memcpy(scales + i * width, (uint8_t *)&scale + 4 - width, width);
    }
    uint64_t length = (uint64_t)snprintf(
        header, sizeof header, "{\"q.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d],"
        "\"data_offsets\":[0,%d]},\"q.%s\":{\"dtype\":\"%s\",\"shape\":[2,4],"
        "\"data_offsets\":[%d,%d]}}", N, K, N * K, suffix, dtype, N * K, (int)(N * K + 8 * width));
    snprintf(path, sizeof path, "%s/library-%d-%s.safetensors", directory, (int)getpid(), dtype);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fwrite(&length, 8, 1, out);
    fwrite(header, 1, length, out);
    fwrite(file, 1, N * K + 8 * width, out);
    assert_int_equal(fclose(out), 0);
    CALL(tilepack_open(path, &c, message, sizeof message));
    CALL(tilepack_packed_values(c, 0, 0, 0, N, 0, K, values, message, sizeof message));
    CALL(tilepack_packed_weight(c, 0, &weight, message, sizeof message));
    assert_string_equal(tilepack_weight_dtype(weight, 1), dtype);
    assert_int_equal(tilepack_weight_bytes(weight, 1), 8 * width);
    memmove(scales + 1, scales, 8 * width); /* of no alignment: the library takes a copy */
    const void *input[2] = {file, scales + 1};
    CALL(tilepack_decode(weight, input, TILEPACK_F32, back, message, sizeof message));
    assert_memory_equal(back, values, VALUES * sizeof *back);
    tilepack_weight_free(weight);
    tilepack_close(c);
    unlink(path);
    free(file);
    free(values);
}

static void test_other_scales(void **state)
{
    (void)state;
    check_scales_of("weight_scale_inv", "F32", 4);
    check_scales_of("weight_scale_inv", "BF16", 2);
    check_scales_of("weight_scale", "BF16", 2);
    check_scales_of("weight_scale", "F32", 4);
}

/* One handle, read by a thread that was the first to ask for values, or was not. */
static void *read_all(void *handle)
{
    tilepack_checkpoint *c = handle;
    uint64_t box[3], tensors = 0;
    float value = 0;
    tilepack_weight *weight;
    for (int i = 0; i < 2; i++) {
        const char *name = tilepack_packed_name(c, 0), *format = tilepack_packed_format(c, 0);
        tilepack_packed_box(c, 0, box);
        for (size_t t = 0; t < TILEPACK_MAX_TENSORS; t++)
            tensors += tilepack_packed_tensor(c, 0, t) != SIZE_MAX;
        if (tilepack_packed_find(c, name) != 0 || !format || box[1] != N ||
            tilepack_packed_values(c, 0, 0, 1, 2, 3, 4, &value, NULL, 0) ||
            tilepack_packed_weight(c, 0, &weight, NULL, 0))
            return NULL;
        tilepack_weight_free(weight);
    }
    return tensors == 4 && value != 0 ? c : NULL;
}

static void check_threads(const char *path)
{
    tilepack_checkpoint *c;
    pthread_t thread[4];
    void *done;
    CALL(tilepack_open(path, &c, message, sizeof message));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_all, c), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &done);
        assert_ptr_equal(done, c);
    }
    tilepack_close(c);
}

static void test_files(void **state)
{
    static const float norm[4] = {1, 2, 3, 4};
    const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    float *values = malloc(VALUES * sizeof *values);
    struct packed p = room("fp8-deepseek", NULL, 0);
    tilepack_checkpoint *c;
    char path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/library-%d.safetensors", directory, (int)getpid());
    make_values(values);
    CALL(tilepack_quantize(p.weight, TILEPACK_F32, values, p.tensor, NULL, message,
                           sizeof message));
    CALL(tilepack_decode(p.weight, p.input, TILEPACK_F32, values, message, sizeof message));
    write_file(path, &p, norm);
    CALL(tilepack_open(path, &c, message, sizeof message));
    check_tensors(c, norm, path);
    check_packed(c, &p, values);
    check_threads(path);
    tilepack_close(c);
    tilepack_close(NULL);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(tilepack_open(path, &c, message, sizeof message), TILEPACK_E_INPUT);
    assert_null(c);
    assert_non_null(strstr(message, path));
    unlink(path);
    assert_int_equal(tilepack_open(path, &c, message, sizeof message), TILEPACK_E_IO);
    assert_int_equal(tilepack_open(NULL, &c, message, sizeof message), TILEPACK_E_USAGE);
    release(&p);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),    cmocka_unit_test(test_formats),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_constants),
        cmocka_unit_test(test_nonfinite),  cmocka_unit_test(test_repack),
        cmocka_unit_test(test_act_order),  cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_stacks),     cmocka_unit_test(test_global),
        cmocka_unit_test(test_other_scales), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_global),
        cmocka_unit_test(test_cuda_refusals),
        cmocka_unit_test(test_layout),     cmocka_unit_test(test_runs),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
