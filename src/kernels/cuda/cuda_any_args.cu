/* The arguments of the general kernels: an operation's layouts in numbers, its padding, and
 * what ends every W4A8 encode and repack, the channel scale of a row. Does not encode.
 */
#include "kernels/cuda/cuda_any.cuh"

/* A layout that cannot be evaluated sets TP_FAILED, as in plane.c: nothing is launched. */
static struct any_plane plane_of(const struct tp_op *op, enum tp_role role, struct tp_args *args,
                                 void *const *data)
{
    const struct tp_box3 box = args->box;
    struct any_plane p;
    struct tp_err err = {};
    int i = tp_op_find(op, role);
    memset(&p, 0, sizeof p);
    if (i < 0 || data[i] == NULL)
        return p;
    if ((op->out[i].layout != NULL &&
         tp_op_layout(op, (uint32_t)i, box, &p.layout, &err) != TP_OK) ||
        tp_op_bytes(op, (uint32_t)i, box, &p.bytes, &err) != TP_OK) {
        args->flags |= TP_FAILED;
        return p;
    }
    p.element = op->out[i].element;
    p.zero_point = op->codec == TP_CODEC_INT8 ? 128 : 8;
    p.f16 = tp_op_is_int(op) && op->scale_rule == TP_INT_SCALE_F16;
    p.min = op->out[i].min;
    p.per_n = op->out[i].per_n ? op->out[i].per_n : box.n;
    p.per_k = op->out[i].per_k ? op->out[i].per_k : box.k;
    p.data = (uint8_t *)data[i];
    return p;
}

struct any_side tp_cuda_any_side(const struct tp_op *op, struct tp_args *args, void *const *data)
{
    struct any_side s;
    s.codes = plane_of(op, TP_ROLE_CODES, args, data);
    s.scale = plane_of(op, TP_ROLE_SCALE, args, data);
    s.group8 = plane_of(op, TP_ROLE_GROUP8, args, data);
    s.channel = plane_of(op, TP_ROLE_CHANNEL, args, data);
    s.global = plane_of(op, TP_ROLE_GLOBAL, args, data);
    for (int c = 0; c < 16; c++)
        s.to_code[op->table[c] & 15] = (uint8_t)c;
    return s;
}

struct any_codec tp_cuda_any_codec(const struct tp_op *op, const struct tp_args *args)
{
    struct any_codec c;
    c.codec = op->codec;
    c.rule = op->rule;
    c.scale_rule = op->scale_rule;
    c.global = args->global;
    c.f16 = tp_op_is_int(op) && op->scale_rule == TP_INT_SCALE_F16;
    c.per_tensor = tp_op_per_tensor(op);
    return c;
}

struct any_args tp_cuda_any_args(const struct tp_op *op, struct tp_args *args, void *const *data)
{
    struct any_args a;
    memset(&a, 0, sizeof a);
    (struct any_codec &)a = tp_cuda_any_codec(op, args);
    a.box = args->box;
    a.side = tp_cuda_any_side(op, args, data);
    a.in = (const uint8_t *)args->in[0];
    a.flags = args->device_flags;
    a.block_n = a.per_tensor ? 1 : op->block_n ? op->block_n : args->box.n;
    a.block_k = op->block_k ? op->block_k : args->box.k;
    memcpy(a.table, op->table, sizeof a.table);
    a.dtype = args->dtype;
    a.channel_rule = op->channel_rule;
    a.skip_zero = op->skip_zero_groups;
    a.how = dev_search_of(op, args);
    return a;
}

void tp_cuda_any_pad(const struct tp_op *op, enum tp_role role, const any_plane &p,
                     uint64_t elements, cudaStream_t stream)
{
    if (p.data != NULL && p.bytes * 8 > elements * tp_element_bits((enum tp_element)p.element))
        cudaMemsetAsync(p.data, op->out[tp_op_find(op, role)].fill, p.bytes, stream);
}

static void fill(const struct tp_op *op, enum tp_role role, const any_plane &p,
                 cudaStream_t stream)
{
    if (p.data != NULL)
        cudaMemsetAsync(p.data, op->out[tp_op_find(op, role)].fill, p.bytes, stream);
}

void tp_cuda_any_fill(const struct tp_op *op, const struct any_args &a, cudaStream_t stream)
{
    fill(op, TP_ROLE_CODES, a.side.codes, stream);
    fill(op, TP_ROLE_SCALE, a.side.scale, stream);
    fill(op, TP_ROLE_GROUP8, a.side.group8, stream);
    fill(op, TP_ROLE_CHANNEL, a.side.channel, stream);
}

/* Channel scales, and packed group scales over the stashed ones: a warp a row. */
static __global__ __launch_bounds__(ANY_THREADS) void finish_w4a8(const struct any_args a)
{
    const any_plane &p = a.side.group8;
    const uint64_t groups = dev_ceil(a.box.k, p.per_k), rows = a.box.e * a.box.n;
    const uint32_t lane = threadIdx.x % 32;
    uint64_t w = ((uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x) / 32;
    for (; w < rows; w += (uint64_t)gridDim.x * ANY_THREADS / 32) {
        uint64_t e = w / a.box.n, n = w - e * a.box.n;
        uint32_t amax = 0;
        for (uint64_t g = lane; g < groups; g += 32) {
            const uint16_t *stash = (const uint16_t *)(p.data + 8 * at_of(p, e, n, g * p.per_k));
            if (!(a.skip_zero && stash[1]))
                amax = max(amax, (uint32_t)stash[0] & 0x7FFFu);
        }
        const dev_channel c = dev_channel_of(dev_max_lanes<32>(amax), a.channel_rule);
        if (lane == 0)
            ((float *)a.side.channel.data)[at_of(a.side.channel, e, n, 0)] = dev_channel_value(c);
        for (uint64_t g = lane; g < groups; g += 32) {
            uint2 *unit = (uint2 *)(p.data + 8 * at_of(p, e, n, g * p.per_k));
            *unit = dev_group8(*(const uint16_t *)unit, c);
        }
    }
}

void tp_cuda_any_finish(const struct any_args &a, cudaStream_t stream)
{
    if (a.side.group8.data != NULL)
        finish_w4a8<<<grid_for(a.box.e * a.box.n * 32), ANY_THREADS, 0, stream>>>(a);
}
