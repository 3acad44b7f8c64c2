/* DeepGEMM's assertions as checks on described operands: what the entry of May
 * 2025 asserts (7.2.x), what its kernel and planner assert, what the version of
 * 2026 needs (8.x), and what the serving engines ask before they choose it. Such
 * numbers are the names of the checks, which `schedule` prints.
 *
 * Nothing is assumed: a check looks only at the operands, so that a caller with
 * real tensors and one that only has a shape use the same code.
 */
#include "pack/schedule/schedule_planners.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

enum { SHAPE_TEXT = 72 };

void tp_sched_tensor_set(struct tp_sched_tensor *tensor, enum tp_dtype dtype, uint32_t rank,
                         const uint64_t *shape)
{
    *tensor = (struct tp_sched_tensor){.dtype = dtype, .rank = rank};
    uint64_t stride = 1;
    for (uint32_t i = rank; i-- > 0;) {
        tensor->shape[i] = shape[i];
        tensor->stride[i] = stride;
        stride *= shape[i] ? shape[i] : 1;
    }
}

/* A matrix, or a stack of them when `stack` is not 0. */
static void set_matrix(struct tp_sched_tensor *tensor, enum tp_dtype dtype, uint64_t stack,
                       uint64_t rows, uint64_t columns)
{
    const uint64_t shape[3] = {stack, rows, columns};
    tp_sched_tensor_set(tensor, dtype, stack ? 3 : 2, stack ? shape : shape + 1);
}

static void set_m_major(struct tp_sched_tensor *tensor, uint64_t stack, uint64_t rows,
                        uint64_t columns)
{
    set_matrix(tensor, TP_I32, stack, rows, columns);
    uint64_t aligned = tp_round_up(rows, 4);
    uint32_t last = tensor->rank - 1;
    tensor->stride[last - 1] = 1;
    tensor->stride[last] = aligned;
    if (stack)
        tensor->stride[0] = aligned * columns;
}

void tp_sched_operands(const struct tp_sched_problem *p, struct tp_sched_operands *ops)
{
    uint64_t m = p->masked ? tp_round_up(p->m, 256) : p->m; /* a multiple of every block_m */
    uint64_t a_stack = p->masked ? p->groups : 0;
    uint64_t b_stack = p->masked ? p->groups : p->contiguous ? p->experts : 0;
    uint64_t columns = tp_ceil_div(p->k, 128), packed = tp_ceil_div(p->k, 512);
    bool per_row = p->wgrad || p->one_d;
    memset(ops, 0, sizeof *ops);
    set_matrix(&ops->lhs, TP_F8_E4M3, a_stack, m, p->k);
    set_matrix(&ops->rhs, TP_F8_E4M3, b_stack, p->n, p->k);
    set_matrix(&ops->out, p->fp32_out || p->wgrad ? TP_F32 : TP_BF16, a_stack, m, p->n);
    if (p->kernel == TP_SCHED_DEEPGEMM && p->arch == 10) {
        set_m_major(&ops->lhs_scales, a_stack, m, packed);
        set_m_major(&ops->rhs_scales, b_stack, p->n, packed);
    } else {
        set_matrix(&ops->lhs_scales, TP_F32, a_stack, m, columns);
        set_matrix(&ops->rhs_scales, TP_F32, b_stack, per_row ? p->n : tp_ceil_div(p->n, 128),
                   columns);
    }
    if (p->contiguous)
        tp_sched_tensor_set(&ops->m_indices, TP_I32, 1, &m);
    if (p->masked)
        tp_sched_tensor_set(&ops->masked_m, TP_I32, 1, &p->groups);
    ops->device_sms = p->sms;
}

static const char *shape_text(const struct tp_sched_tensor *t, char text[SHAPE_TEXT])
{
    if (t->rank == 3)
        snprintf(text, SHAPE_TEXT, "(%llu,%llu,%llu)", (ull)t->shape[0], (ull)t->shape[1],
                 (ull)t->shape[2]);
    else if (t->rank == 2)
        snprintf(text, SHAPE_TEXT, "(%llu,%llu)", (ull)t->shape[0], (ull)t->shape[1]);
    else
        snprintf(text, SHAPE_TEXT, "(%llu)", (ull)t->shape[0]);
    return text;
}

/* Rows and columns of a matrix, or of each matrix of a stack. */
static uint64_t rows_of(const struct tp_sched_tensor *t)
{
    return t->rank >= 2 ? t->shape[t->rank - 2] : 0;
}

static uint64_t columns_of(const struct tp_sched_tensor *t)
{
    return t->rank >= 2 ? t->shape[t->rank - 1] : 0;
}

static uint64_t stack_of(const struct tp_sched_tensor *t)
{
    return t->rank == 3 ? t->shape[0] : 1;
}

static uint64_t row_stride(const struct tp_sched_tensor *t)
{
    return t->rank >= 2 ? t->stride[t->rank - 2] : 0;
}

static uint64_t column_stride(const struct tp_sched_tensor *t)
{
    return t->rank >= 1 ? t->stride[t->rank - 1] : 0;
}

static bool contiguous(const struct tp_sched_tensor *t)
{
    uint64_t stride = 1;
    for (uint32_t i = t->rank; i-- > 0;) {
        if (t->shape[i] != 1 && t->stride[i] != stride)
            return false;
        stride *= t->shape[i];
    }
    return true;
}

static bool has_shape(const struct tp_sched_tensor *t, uint64_t rows, uint64_t columns)
{
    return t->rank >= 2 && rows_of(t) == rows && columns_of(t) == columns;
}

static bool known_ranks(const struct tp_sched_problem *p, const struct tp_sched_operands *o)
{
    uint32_t a = p->masked ? 3 : 2, b = p->masked || p->contiguous ? 3 : 2;
    return o->lhs.rank == a && o->out.rank == a && o->rhs.rank == b;
}

static void check_shapes(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                         struct tp_sched_checks *checks)
{
    char lhs[SHAPE_TEXT], rhs[SHAPE_TEXT], out[SHAPE_TEXT];
    uint64_t m = rows_of(&o->lhs), k = columns_of(&o->lhs), n = rows_of(&o->rhs);
    bool pass = known_ranks(p, o) && has_shape(&o->rhs, n, k) && has_shape(&o->out, m, n);
    tp_sched_check_add(checks, "7.2.1", TP_SCHED_ASSERT, "out is (m,n), lhs (m,k), rhs (n,k)",
                       pass, "out %s, lhs %s, rhs %s", shape_text(&o->out, out),
                       shape_text(&o->lhs, lhs), shape_text(&o->rhs, rhs));
    tp_sched_check_add(checks, "7.2.2", TP_SCHED_ASSERT,
                       p->wgrad ? "n > 0 (k may be 0: returns at once)"
                                : "n > 0 and k > 0 (m may be 0: returns at once)",
                       n > 0 && (k > 0 || p->wgrad), "n %llu, k %llu", (ull)n, (ull)k);
}

/* Weight gradients may come with their scales already transposed. */
static bool wgrad_scales(const struct tp_sched_tensor *scales, uint64_t rows, uint64_t columns)
{
    if (has_shape(scales, rows, columns))
        return true;
    return has_shape(scales, columns, rows) && rows % 4 == 0 && row_stride(scales) == rows;
}

static void check_scales(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                         struct tp_sched_checks *checks)
{
    char text[SHAPE_TEXT];
    uint64_t m = rows_of(&o->lhs), n = rows_of(&o->rhs);
    uint64_t columns = tp_ceil_div(columns_of(&o->lhs), 128);
    const struct tp_sched_tensor *a = &o->lhs_scales, *b = &o->rhs_scales;
    bool a_good = a->rank == o->lhs.rank && stack_of(a) == stack_of(&o->lhs);
    bool b_good = b->rank == o->rhs.rank && stack_of(b) == stack_of(&o->rhs);
    if (p->wgrad) {
        a_good = a_good && wgrad_scales(a, m, columns);
        b_good = b_good && wgrad_scales(b, n, columns);
    } else {
        a_good = a_good && has_shape(a, m, columns);
        b_good = b_good && has_shape(b, tp_ceil_div(n, 128), columns);
    }
    tp_sched_check_add(checks, "7.2.3", TP_SCHED_ASSERT,
                       p->wgrad ? "lhs_scales is (m, ceil(k/128)), or that transposed with "
                                  "m % 4 == 0"
                                : "lhs_scales is (m, ceil(k/128))",
                       a_good, "lhs_scales %s, m %llu, ceil(k/128) %llu", shape_text(a, text),
                       (ull)m, (ull)columns);
    tp_sched_check_add(checks, "7.2.4", TP_SCHED_ASSERT,
                       p->wgrad ? "rhs_scales is (n, ceil(k/128)), or that transposed with "
                                  "n % 4 == 0"
                                : "rhs_scales is (ceil(n/128), ceil(k/128))",
                       b_good, "rhs_scales %s, n %llu, ceil(k/128) %llu", shape_text(b, text),
                       (ull)n, (ull)columns);
}

static void check_dtypes(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                         struct tp_sched_checks *checks)
{
    enum tp_dtype out = p->wgrad ? TP_F32 : TP_BF16;
    bool pass = o->lhs.dtype == TP_F8_E4M3 && o->rhs.dtype == TP_F8_E4M3 &&
                o->lhs_scales.dtype == TP_F32 && o->rhs_scales.dtype == TP_F32 &&
                o->out.dtype == out;
    tp_sched_check_add(checks, "7.2.5", TP_SCHED_ASSERT,
                       p->wgrad ? "lhs and rhs are F8_E4M3, scales F32, out F32"
                                : "lhs and rhs are F8_E4M3, scales F32, out BF16",
                       pass, "lhs %s, rhs %s, scales %s and %s, out %s",
                       tp_dtype_name(o->lhs.dtype), tp_dtype_name(o->rhs.dtype),
                       tp_dtype_name(o->lhs_scales.dtype), tp_dtype_name(o->rhs_scales.dtype),
                       tp_dtype_name(o->out.dtype));
}

static void check_strides(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                          struct tp_sched_checks *checks)
{
    bool rows = column_stride(&o->lhs) == 1 && column_stride(&o->rhs) == 1 &&
                column_stride(&o->out) == 1;
    tp_sched_check_add(checks, "7.2.6", TP_SCHED_ASSERT, "stride(1) of lhs, rhs and out is 1",
                       rows, "stride(1): lhs %llu, rhs %llu, out %llu",
                       (ull)column_stride(&o->lhs), (ull)column_stride(&o->rhs),
                       (ull)column_stride(&o->out));
    uint64_t unit = p->wgrad ? 4 : 8;
    bool aligned = row_stride(&o->lhs) % 16 == 0 && row_stride(&o->rhs) % 16 == 0 &&
                   row_stride(&o->out) % unit == 0;
    tp_sched_check_add(checks, "7.2.7", TP_SCHED_ASSERT,
                       p->wgrad ? "stride(0) of lhs and rhs is a multiple of 16, of out of 4"
                                : "stride(0) of lhs and rhs is a multiple of 16, of out of 8",
                       aligned, "stride(0): lhs %llu, rhs %llu, out %llu",
                       (ull)row_stride(&o->lhs), (ull)row_stride(&o->rhs),
                       (ull)row_stride(&o->out));
    if (!p->wgrad)
        tp_sched_check_add(checks, "7.2.8", TP_SCHED_ASSERT, "rhs_scales is contiguous",
                           contiguous(&o->rhs_scales), "strides (%llu,%llu)",
                           (ull)row_stride(&o->rhs_scales), (ull)column_stride(&o->rhs_scales));
}

/* Static assertions: the kernel is compiled at its first call, and fails then. */
static void check_static(const struct tp_sched_operands *o, const struct tp_sched_plan *plan,
                         struct tp_sched_checks *checks)
{
    uint64_t n = rows_of(&o->rhs);
    tp_sched_check_add(checks, "7.2.9", TP_SCHED_ASSERT, "the kernel compiles: n % 8 == 0",
                       n % 8 == 0, "n %llu, n %% 8 = %llu", (ull)n, (ull)(n % 8));
    if (plan->count == 0)
        return;
    uint64_t bm = plan->config[0].block_m, bn = plan->config[0].block_n;
    tp_sched_check_add(checks, "7.2.10", TP_SCHED_ASSERT,
                       "the kernel compiles: block_n <= 128 or gcd(block_n,128) == block_n-128",
                       bn <= 128 || tp_gcd_u64(bn, 128) == bn - 128, "block_n %llu", (ull)bn);
    tp_sched_check_add(checks, "7.2.11", TP_SCHED_ASSERT,
                       "the kernel compiles: block_m % 64 == 0", bm % 64 == 0, "block_m %llu",
                       (ull)bm);
}

static void check_contiguous(const struct tp_sched_operands *o, struct tp_sched_checks *checks)
{
    uint64_t m = rows_of(&o->lhs), entries = o->m_indices.rank == 1 ? o->m_indices.shape[0] : 0;
    tp_sched_check_add(checks, "7.2.12", TP_SCHED_ASSERT, "m_indices has m entries",
                       o->m_indices.rank == 1 && entries == m, "m %llu, m_indices %llu", (ull)m,
                       (ull)entries);
    tp_sched_check_add(checks, "7.2.13", TP_SCHED_ASSERT, "m_indices is I32",
                       o->m_indices.dtype == TP_I32, "m_indices %s",
                       tp_dtype_name(o->m_indices.dtype));
    bool pass = contiguous(&o->lhs) && contiguous(&o->rhs) && contiguous(&o->out) &&
                contiguous(&o->m_indices);
    tp_sched_check_add(checks, "7.2.14", TP_SCHED_ASSERT,
                       "lhs, rhs, out and m_indices are contiguous", pass, "%s",
                       pass ? "all are" : "one is not");
}

/* The consumer does not assert it: the kernel reads the group of a block's first row only. */
static void check_segments(const char *id, const struct tp_sched_operands *o,
                           struct tp_sched_checks *checks)
{
    uint64_t m = rows_of(&o->lhs), rest = m % TP_SCHED_GROUP_ROWS;
    tp_sched_check_add(checks, id, TP_SCHED_SILENT,
                       "each group's rows are padded to a multiple of 128",
                       rest == 0, "m %llu, m %% %d = %llu%s", (ull)m, TP_SCHED_GROUP_ROWS, (ull)rest,
                       rest ? ": at least one segment is not" : "");
}

static void check_masked(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                         const struct tp_sched_plan *plan, struct tp_sched_checks *checks)
{
    uint64_t g = stack_of(&o->lhs), m_max = rows_of(&o->lhs);
    uint64_t counts = o->masked_m.rank == 1 ? o->masked_m.shape[0] : 0;
    bool equal = g == stack_of(&o->rhs) && g == stack_of(&o->out) && g == counts;
    tp_sched_check_add(checks, "7.2.15", TP_SCHED_ASSERT,
                       "lhs, rhs, out and masked_m have equal group counts", equal,
                       "lhs %llu, rhs %llu, out %llu, masked_m %llu", (ull)g,
                       (ull)stack_of(&o->rhs), (ull)stack_of(&o->out), (ull)counts);
    bool positive = p->m && m_max && rows_of(&o->rhs) && columns_of(&o->lhs) && g;
    tp_sched_check_add(checks, "7.2.16", TP_SCHED_ASSERT,
                       "expected_m, m_max, n, k and the group count are positive", positive,
                       "expected_m %llu, m_max %llu, n %llu, k %llu, groups %llu", (ull)p->m,
                       (ull)m_max, (ull)rows_of(&o->rhs), (ull)columns_of(&o->lhs), (ull)g);
    tp_sched_check_add(checks, "7.2.17", TP_SCHED_ASSERT, "masked_m is I32",
                       o->masked_m.dtype == TP_I32, "masked_m %s",
                       tp_dtype_name(o->masked_m.dtype));
    bool pass = contiguous(&o->lhs) && contiguous(&o->rhs) && contiguous(&o->out) &&
                contiguous(&o->masked_m);
    tp_sched_check_add(checks, "7.2.18", TP_SCHED_ASSERT,
                       "lhs, rhs, out and masked_m are contiguous", pass, "%s",
                       pass ? "all are" : "one is not");
    if (plan->count == 0)
        return;
    uint64_t bm = plan->config[0].block_m;
    tp_sched_check_add(checks, "7.2.19", TP_SCHED_ASSERT,
                       "m_max is at most block_m or a multiple of it, when groups > 1",
                       g <= 1 || m_max <= bm || m_max % bm == 0,
                       "m_max %llu, block_m %llu, groups %llu", (ull)m_max, (ull)bm, (ull)g);
}

static void check_sms(const char *id, const struct tp_sched_problem *p,
                      const struct tp_sched_operands *o, struct tp_sched_checks *checks)
{
    tp_sched_check_add(checks, id, TP_SCHED_ASSERT, "0 < num_sms <= SMs of the device",
                       p->sms > 0 && p->sms <= o->device_sms, "num_sms %llu, device %llu",
                       (ull)p->sms, (ull)o->device_sms);
}

void tp_sched_checks_2025(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                          const struct tp_sched_plan *plan, struct tp_sched_checks *checks)
{
    check_shapes(p, o, checks);
    check_scales(p, o, checks);
    check_dtypes(p, o, checks);
    check_strides(p, o, checks);
    check_static(o, plan, checks);
    if (p->contiguous) {
        check_contiguous(o, checks);
        check_segments("6.1", o, checks);
    }
    if (p->masked)
        check_masked(p, o, plan, checks);
    if (p->wgrad)
        tp_sched_check_add(checks, "7.2.20", TP_SCHED_ASSERT, "m > 0", rows_of(&o->lhs) > 0,
                           "m %llu", (ull)rows_of(&o->lhs));
    check_sms("7.2.21", p, o, checks);
    tp_sched_check_add(checks, "7.1", TP_SCHED_ASSERT, "a pipeline depth fits in shared memory",
                       plan->count > 0, "%s", plan->count ? "it does" : plan->refused);
    tp_sched_check_add(checks, "7.2", TP_SCHED_ASSERT, "num_min_sms <= num_sms",
                       plan->count == 0 || plan->config[0].sms <= p->sms,
                       "num_min_sms %llu, num_sms %llu",
                       (ull)(plan->count ? plan->config[0].sms : 0), (ull)p->sms);
    tp_sched_check_add(checks, "7.3", TP_SCHED_ASSERT, "the device has to be SM90", p->arch == 9,
                       "SM%u0", (unsigned)p->arch);
}

/* Scales as the version of 2026 wants them: fp32 blocks on SM90, packed powers of two,
 * m-major and padded to 16 bytes, on SM100. */
static void check_scale_layout(const struct tp_sched_problem *p,
                               const struct tp_sched_operands *o, struct tp_sched_checks *checks)
{
    char text[SHAPE_TEXT];
    const struct tp_sched_tensor *b = &o->rhs_scales;
    uint64_t n = rows_of(&o->rhs), k = columns_of(&o->rhs);
    bool pass = b->rank == o->rhs.rank && stack_of(b) == stack_of(&o->rhs);
    if (p->arch == 9) {
        uint64_t rows = p->one_d ? n : tp_ceil_div(n, 128);
        pass = pass && b->dtype == TP_F32 && has_shape(b, rows, tp_ceil_div(k, 128));
    } else {
        pass = pass && b->dtype == TP_I32 && has_shape(b, n, tp_ceil_div(k, 512)) &&
               row_stride(b) == 1 && column_stride(b) == tp_round_up(n, 4);
    }
    tp_sched_check_add(checks, "8.6", TP_SCHED_ASSERT,
                       p->arch == 9 ? "weight scales are F32 with one column per 128 of k"
                                    : "weight scales are packed UE8M0: I32 (n, ceil(k/512)), "
                                      "strides (1, align(n,4))",
                       pass, "%s %s", tp_dtype_name(b->dtype), shape_text(b, text));
}

void tp_sched_checks_newest(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                            const struct tp_sched_plan *plan, struct tp_sched_checks *checks)
{
    uint64_t n = rows_of(&o->rhs), k = columns_of(&o->rhs);
    tp_sched_check_add(checks, "8.1", TP_SCHED_ASSERT, "num_sms is even", p->sms % 2 == 0,
                       "num_sms %llu", (ull)p->sms);
    check_sms("8.2", p, o, checks);
    tp_sched_check_add(checks, "8.3", TP_SCHED_ASSERT, "a tile and pipeline depth fit",
                       plan->count > 0 || p->sms % 2 != 0, "%s",
                       plan->count ? "they do" : plan->refused);
    tp_sched_check_add(checks, "8.4", TP_SCHED_ASSERT,
                       "rows of the operands are multiples of 16 bytes (TMA)",
                       row_stride(&o->lhs) % 16 == 0 && row_stride(&o->rhs) % 16 == 0 &&
                           row_stride(&o->out) * tp_dtype_bits(o->out.dtype) / 8 % 16 == 0,
                       "k %llu, n %llu, out %s", (ull)k, (ull)n, tp_dtype_name(o->out.dtype));
    tp_sched_check_add(checks, "8.5", TP_SCHED_ASSERT, "weights and activations are F8_E4M3",
                       o->lhs.dtype == TP_F8_E4M3 && o->rhs.dtype == TP_F8_E4M3, "%s and %s",
                       tp_dtype_name(o->rhs.dtype), tp_dtype_name(o->lhs.dtype));
    check_scale_layout(p, o, checks);
    if (p->contiguous)
        check_segments("8.7", o, checks);
}

void tp_sched_checks_gates(const struct tp_sched_problem *p, const struct tp_sched_operands *o,
                           struct tp_sched_checks *checks)
{
    uint64_t n = rows_of(&o->rhs), k = columns_of(&o->rhs);
    bool bf16 = o->out.dtype == TP_BF16;
    if (p->wgrad)
        return; /* training: no serving engine asks */
    tp_sched_check_add(checks, "gate.sglang", TP_SCHED_GATE,
                       "SGLang takes this kernel only if n % 64 == 0, k % 128 == 0 and the "
                       "output is bf16",
                       n % 64 == 0 && k % 128 == 0 && bf16, "n %% 64 = %llu, k %% 128 = %llu, %s",
                       (ull)(n % 64), (ull)(k % 128), tp_dtype_name(o->out.dtype));
    tp_sched_check_add(checks, "gate.vllm", TP_SCHED_GATE,
                       "vLLM takes this kernel only if n % 128 == 0, k % 128 == 0 and the "
                       "output is bf16",
                       n % 128 == 0 && k % 128 == 0 && bf16,
                       "n %% 128 = %llu, k %% 128 = %llu, %s", (ull)(n % 128), (ull)(k % 128),
                       tp_dtype_name(o->out.dtype));
}
