/* Every tensor of tests/golden/search against the reference of the scale search and against
 * every row that this machine runs, byte for byte; and W4A8 searches that are encoded straight
 * into the kernel's form against the same bytes taken over from the checkpoint form. A tensor
 * that no case accounts for fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../tools/ops.h"
#include "kernels/op/codec.h"
#include "kernels/op/row_set.h"
#include "pack/file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

struct golden {
    char *bytes;
    struct tp_st_header header;
    struct tp_box3 box;
    const void *input;
    const float *importance;
    size_t used;
};

static const uint8_t *data_of(const struct golden *g, const struct tp_st_tensor *t)
{
    return (const uint8_t *)g->bytes + g->header.data_start + t->begin;
}

static const struct tp_st_tensor *tensor_of(struct golden *g, const char *name)
{
    for (size_t i = 0; i < g->header.count; i++)
        if (strcmp(g->header.tensors[i].name, name) == 0) {
            g->used++;
            return &g->header.tensors[i];
        }
    fail_msg("the golden has no %s", name);
    return NULL;
}

static void open_golden(struct golden *g, const char *name)
{
    const char *tests = getenv("TESTS");
    struct tp_err err = {0};
    uint64_t size, header;
    char path[4096];
    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, "%s/golden/search/%s", tests ? tests : "tests", name);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot read %s (run it from the top of the source, or set TESTS)", path);
    fseek(f, 0, SEEK_END);
    size = (uint64_t)ftell(f);
    rewind(f);
    g->bytes = malloc(size);
    assert_int_equal(fread(g->bytes, 1, size, f), size);
    fclose(f);
    assert_int_equal(tp_st_header_size((const uint8_t *)g->bytes, size, &header, &err), TP_OK);
    assert_int_equal(tp_st_parse(g->bytes + 8, header, size, &g->header, &err), TP_OK);
    const struct tp_st_tensor *input = tensor_of(g, "input");
    g->box = (struct tp_box3){1, input->shape[0], input->shape[1]};
    g->input = data_of(g, input);
    g->importance = (const float *)(const void *)data_of(g, tensor_of(g, "importance"));
}

static void close_golden(struct golden *g)
{
    tp_st_close(&g->header);
    free(g->bytes);
}

static void *take(uint64_t size)
{
    void *p = aligned_alloc(64, (size + 64) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xA5, size);
    return p;
}

struct outputs {
    void *data[TP_MAX_OUT];
    uint64_t bytes[TP_MAX_OUT];
    uint32_t count;
};

static struct outputs take_outputs(const struct tp_op *op, struct tp_box3 box)
{
    struct outputs o = {.count = op->outs};
    struct tp_err err = {0};
    for (uint32_t i = 0; i < op->outs; i++) {
        assert_int_equal(tp_op_bytes(op, i, box, &o.bytes[i], &err), TP_OK);
        o.data[i] = take(o.bytes[i]);
    }
    return o;
}

static void free_outputs(struct outputs *o)
{
    for (uint32_t i = 0; i < o->count; i++)
        free(o->data[i]);
}

static float amax_of(const struct golden *g)
{
    struct tp_value_stats stats;
    tp_value_stats(TP_BF16, g->input, g->box.n * g->box.k, &stats);
    return stats.amax;
}

static struct outputs encode_by(const struct golden *g, const struct tp_op *op,
                                tp_encode_fn encode)
{
    struct outputs o = take_outputs(op, g->box);
    struct tp_args args = {.box = g->box, .dtype = TP_BF16, .in = {g->input}};
    args.importance = g->importance;
    args.global = tp_codec_global(op, TP_BF16, amax_of(g));
    args.scratch = take(tp_encode_scratch(op, g->box));
    memcpy(args.out, o.data, sizeof o.data);
    encode(op, &args);
    assert_int_equal(args.flags, 0);
    free(args.scratch);
    return o;
}

/* By the reference, once every row has made the same. */
static struct outputs encode(const struct golden *g, const struct tp_op *op)
{
    const struct tp_row_set *set = tp_host_rows();
    struct outputs o = encode_by(g, op, tp_encode_ref);
    for (size_t r = 0; r < set->encodes; r++) {
        const struct tp_encode_row *row = &set->encode[r];
        if (!tp_isa_enabled(row->isa) || !tp_encode_row_fits(row, op, TP_BF16))
            continue;
        struct outputs fast = encode_by(g, op, row->encode);
        for (uint32_t i = 0; i < op->outs; i++)
            if (memcmp(o.data[i], fast.data[i], o.bytes[i]) != 0)
                fail_msg("%s: output %u differs from the reference", row->name, i);
        free_outputs(&fast);
    }
    return o;
}

static struct outputs repack(const struct golden *g, const struct tp_op *from,
                             const struct outputs *in, const struct tp_op *to)
{
    struct outputs o = take_outputs(to, g->box);
    struct tp_args args = {.box = g->box};
    args.scratch = take(tp_encode_scratch(to, g->box));
    memcpy(args.in, in->data, sizeof args.in);
    memcpy(args.out, o.data, sizeof o.data);
    tp_repack_ref(from, to, &args);
    free(args.scratch);
    return o;
}

static void same(const char *name, const void *got, const void *want, uint64_t bytes)
{
    const uint8_t *a = got, *b = want;
    for (uint64_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s: byte %u of %u is %02x, golden %02x", name, (unsigned)i, (unsigned)bytes,
                     a[i], b[i]);
}

static void check_tensor(struct golden *g, const char *prefix, const char *suffix,
                         const void *got, uint64_t bytes)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", prefix, suffix);
    const struct tp_st_tensor *t = tensor_of(g, name);
    assert_int_equal(t->end - t->begin, bytes);
    same(name, got, data_of(g, t), bytes);
}

/* The operation that a golden's name tells: codec, rule, search and how it is weighted. */
static struct tp_op op_of(const char *prefix)
{
    struct tp_op op = {0};
    char text[128];
    snprintf(text, sizeof text, "%s", prefix);
    for (char *word = strtok(text, "."); word; word = strtok(NULL, ".")) {
        if (strcmp(word, "int4") == 0)
            op = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32);
        else if (strcmp(word, "nvfp4") == 0)
            op = ops_nvfp4_ct(TP_NVFP4_CT);
        else if (strcmp(word, "mxfp4") == 0)
            op = ops_mxfp4_ct(TP_MX_EVEN);
        else if (strcmp(word, "torchao") == 0)
            op.rule = TP_NVFP4_TORCHAO;
        else if (strcmp(word, "floor") == 0)
            op.rule = TP_MX_FLOOR;
        else if (strcmp(word, "bf16") == 0)
            op.rule = TP_INT4_QUOTIENT_BF16;
        else if (strcmp(word, "mse") == 0)
            op.search = TP_SEARCH_MSE;
        else if (strcmp(word, "w4a8") == 0)
            op.search = TP_SEARCH_W4A8;
        else if (strcmp(word, "signed") == 0)
            op.search_signed = true;
        else if (strcmp(word, "magnitude") == 0)
            op.importance = TP_IMPORTANCE_MAGNITUDE;
        else if (strcmp(word, "importance") == 0)
            op.importance = TP_IMPORTANCE_FILE;
        else if (strcmp(word, "ct") != 0 && strcmp(word, "even") != 0 &&
                 strcmp(word, "none") != 0)
            fail_msg("%s: what is \"%s\"?", prefix, word);
    }
    assert_true(op.outs > 0);
    return op;
}

/* The operation of w4a8-cutlass with the same search; where N has no whole tiles, with codes
 * in rows. */
static struct tp_op kernel_form(const struct golden *g, const struct tp_op *ct,
                                enum tp_channel_rule rule, bool skip_zero)
{
    struct tp_op op = ops_w4a8_cutlass(ct->rule, rule, skip_zero);
    op.search_signed = ct->search_signed;
    op.importance = ct->importance;
    if (g->box.n % 16 != 0)
        op.out[0].layout = ops_layout(OPS_ROW);
    return op;
}

static void check_kernel_scales(struct golden *g, const char *prefix, const struct tp_op *op,
                                const struct outputs *o)
{
    uint64_t groups = g->box.k / 128;
    uint8_t *scales = take(g->box.n * groups);
    const uint8_t *group8 = o->data[tp_op_find(op, TP_ROLE_GROUP8)];
    for (uint64_t n = 0; n < g->box.n; n++)
        for (uint64_t j = 0; j < groups; j++) /* the last multiple is -g */
            scales[n * groups + j] = group8[8 * (j * g->box.n + n) + 7] ^ 0x80;
    check_tensor(g, prefix, ".group_scale", scales, g->box.n * groups);
    check_tensor(g, prefix, ".channel", o->data[tp_op_find(op, TP_ROLE_CHANNEL)], 4 * g->box.n);
    free(scales);
}

/* The kernel's form, searched straight: equal to taking over the checkpoint form. */
static void check_cutlass(struct golden *g, const char *prefix, const struct tp_op *ct,
                          const struct outputs *packed)
{
    for (int i = 0; i < 8; i++) {
        struct tp_op op = kernel_form(g, ct, i & 1 ? TP_CHANNEL_DIV : TP_CHANNEL_CPU, i & 2);
        op.search = i & 4 ? TP_SEARCH_MSE : TP_SEARCH_W4A8;
        struct outputs o = encode(g, &op), r = repack(g, ct, packed, &op);
        for (uint32_t j = 0; j < op.outs; j++)
            if (op.out[j].role != TP_ROLE_WORDS)
                same(prefix, o.data[j], r.data[j], o.bytes[j]);
        size_t used = g->used;
        if (!op.skip_zero_groups) /* rows of zeros have another channel scale */
            check_kernel_scales(g, prefix, &op, &o);
        g->used = i ? used : g->used;
        free_outputs(&o);
        free_outputs(&r);
    }
}

/* The tiles of scales hold the same scales in another order. */
static void check_blocked(struct golden *g, const char *prefix, const struct tp_op *ct,
                          const struct outputs *packed)
{
    struct tp_op op = ct->codec == TP_CODEC_NVFP4 ? ops_nvfp4_blocked(ct->rule)
                                                  : ops_mxfp4_blocked(ct->rule);
    op.search = ct->search;
    op.importance = ct->importance;
    struct outputs o = encode(g, &op), r = repack(g, &op, &o, ct);
    for (uint32_t j = 0; j < ct->outs; j++)
        same(prefix, r.data[j], packed->data[j], r.bytes[j]);
    free_outputs(&o);
    free_outputs(&r);
}

static void check_case(struct golden *g, const char *prefix)
{
    struct tp_op op = op_of(prefix);
    struct outputs o = encode(g, &op);
    check_tensor(g, prefix, ".weight_packed", o.data[0], o.bytes[0]);
    check_tensor(g, prefix, ".weight_scale", o.data[1], o.bytes[1]);
    if (op.search == TP_SEARCH_W4A8)
        check_cutlass(g, prefix, &op, &o);
    else if (op.codec != TP_CODEC_INT4)
        check_blocked(g, prefix, &op, &o);
    free_outputs(&o);
}

static void check_globals(struct golden *g)
{
    static const char *const prefixes[] = {"nvfp4.ct", "nvfp4.torchao"};
    for (int i = 0; i < 2; i++) {
        struct tp_op op = op_of(prefixes[i]);
        float global = tp_codec_global(&op, TP_BF16, amax_of(g));
        check_tensor(g, prefixes[i], ".global", &global, sizeof global);
    }
}

static void check_file(void **state)
{
    static const char codes[] = ".weight_packed";
    struct golden g;
    open_golden(&g, *state);
    check_globals(&g);
    for (size_t i = 0; i < g.header.count; i++) {
        const char *name = g.header.tensors[i].name;
        size_t length = strlen(name), end = strlen(codes);
        char prefix[128];
        if (length < end || strcmp(name + length - end, codes) != 0)
            continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)(length - end), name);
        check_case(&g, prefix);
    }
    assert_int_equal(g.used, g.header.count);
    close_golden(&g);
}

#define FILE_TEST(name) {name, check_file, NULL, NULL, (void *)(uintptr_t)name}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST("edge_11_32x512.safetensors"),
        FILE_TEST("edge_12_20x1024.safetensors"),
        FILE_TEST("minilm_l0_attention_output_dense_0_48x384.safetensors"),
        FILE_TEST("minilm_l0_output_dense_5_24x1536.safetensors"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
