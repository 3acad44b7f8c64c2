/* Compute: arenas, and the choice between CPU rows and a GPU slot for each box. */
#include "pack/run/compute.h"

#include "base/num.h"
#include "kernels/cuda/cuda.h"
#include "kernels/op/convert_scales.h"
#include "pack/os/buffer.h"
#include "pack/os/stage.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN UINT64_C(64)

static enum tp_code grow(struct tp_arena *arena, uint64_t bytes, struct tp_err *err)
{
    struct tp_buffer buffer = {arena->base, arena->capacity};
    enum tp_code code = tp_buffer_reserve(&buffer, bytes, err);
    *arena = (struct tp_arena){buffer.data, buffer.capacity, 0};
    return code;
}

/* Empties an arena that can grow and makes room; returns its base or NULL. */
static void *reserve(struct tp_arena *arena, uint64_t bytes, struct tp_err *err)
{
    return grow(arena, tp_max_u64(bytes, ALIGN), err) ? NULL : arena->base;
}

void *tp_arena_allocate(struct tp_arena *arena, uint64_t bytes)
{
    void *at = arena->base + arena->used;
    arena->used += tp_round_up(bytes, ALIGN);
    return at;
}

enum tp_code tp_compute_begin(struct tp_compute *c, uint64_t in_bytes, uint64_t out_bytes,
                              struct tp_err *err)
{
    bool device =
        c->cuda && in_bytes <= c->pinned_in.capacity && out_bytes <= c->pinned_out.capacity;
    c->in = device ? &c->pinned_in : &c->host_in;
    c->out = device ? &c->pinned_out : &c->host_out;
    c->in->used = c->out->used = 0;
    if (device)
        return TP_OK;
    enum tp_code code = grow(c->in, tp_max_u64(in_bytes, ALIGN), err);
    return code ? code : grow(c->out, tp_max_u64(out_bytes, ALIGN), err);
}

void *tp_compute_bytes(struct tp_compute *c, uint64_t bytes, struct tp_err *err)
{
    return reserve(&c->host_in, bytes, err);
}

void tp_op_allocate(const struct tp_op_at *at, struct tp_arena *arena, void *buffers[TP_MAX_OUT])
{
    for (uint32_t i = 0; i < at->op->outs; i++)
        buffers[i] = at->op->out[i].role == TP_ROLE_WORDS ? NULL
                                                          : tp_arena_allocate(arena, at->bytes[i]);
}

static bool on_device(const struct tp_compute *c)
{
    return c->cuda && c->in == &c->pinned_in;
}

/* Whether the box is in the slot and the GPU can read or write this operation. */
static bool device_has(const struct tp_compute *c, const struct tp_op *op)
{
    return on_device(c) && tp_device_can(op);
}

static enum tp_code run_device(struct tp_compute *c, enum tp_cuda_kind kind,
                               const struct tp_op *from, const struct tp_op *to, enum tp_dtype via,
                               struct tp_args *args, struct tp_err *err)
{
    struct tp_cuda_call call = {kind, from, to, via, *args};
    enum tp_stage before = tp_stage_set(TP_STAGE_KERNEL);
    enum tp_code code = tp_cuda_run(c->cuda, &call, err);
    tp_stage_set(before);
    args->flags |= call.args.flags;
    return code ? code : tp_args_check(args, err);
}

static enum tp_code take_bytes(struct tp_compute *c, size_t bytes, struct tp_args *args,
                               struct tp_err *err)
{
    args->scratch = reserve(&c->scratch, bytes, err);
    return args->scratch ? TP_OK : TP_E_MEMORY;
}

static enum tp_code take_scratch(struct tp_compute *c, const struct tp_op *op,
                                 struct tp_args *args, struct tp_err *err)
{
    return take_bytes(c, tp_encode_scratch(op, args->box), args, err);
}

/* Values that the CPU decoded are not in the slot, and stay with the CPU. */
static bool in_slot(const struct tp_compute *c, const void *data)
{
    const uint8_t *at = data;
    return on_device(c) && at >= c->in->base && at < c->in->base + c->in->capacity;
}

enum tp_code tp_compute_encode(struct tp_compute *c, const struct tp_op *op, struct tp_args *args,
                               struct tp_err *err)
{
    if (in_slot(c, args->in[0]) && tp_device_can(op))
        return run_device(c, TP_CUDA_ENCODE, NULL, op, TP_DTYPE_NONE, args, err);
    enum tp_stage before = tp_stage_set(TP_STAGE_KERNEL);
    enum tp_code code = take_scratch(c, op, args, err);
    if (code == TP_OK)
        tp_encode_find(op, args->dtype)(op, args);
    tp_stage_set(before);
    return code ? code : tp_args_check(args, err);
}

/* MXFP4 as NVFP4: its scales are made anew, then the codes are taken over as those of NVFP4. */
static enum tp_code recast(struct tp_compute *c, const struct tp_op *from, const struct tp_op *to,
                           struct tp_args *args, struct tp_err *err)
{
    const struct tp_op as = tp_convert_scales_op(from, to);
    uint8_t *scales = reserve(&c->values, tp_convert_scales_bytes(args->box), err);
    enum tp_code code = scales ? take_scratch(c, to, args, err) : TP_E_MEMORY;
    if (code)
        return code;
    tp_convert_scales(from, to, args, scales);
    args->in[tp_op_find(from, TP_ROLE_SCALE)] = scales;
    if ((code = tp_args_check(args, err)) == TP_OK)
        tp_repack_find(&as, to)(&as, to, args);
    return code ? code : tp_args_check(args, err);
}

static enum tp_code convert_scales_on_host(struct tp_compute *c, const struct tp_op *from,
                                           const struct tp_op *to, struct tp_args *args,
                                           struct tp_err *err)
{
    enum tp_stage before = tp_stage_set(TP_STAGE_KERNEL);
    enum tp_code code = recast(c, from, to, args, err);
    tp_stage_set(before);
    return code;
}

enum tp_code tp_compute_repack(struct tp_compute *c, const struct tp_op *from,
                               const struct tp_op *to, struct tp_args *args, struct tp_err *err)
{
    if (from->codec != to->codec)
        return convert_scales_on_host(c, from, to, args, err);
    if (device_has(c, from) && device_has(c, to))
        return run_device(c, TP_CUDA_REPACK, from, to, TP_DTYPE_NONE, args, err);
    enum tp_stage before = tp_stage_set(TP_STAGE_KERNEL);
    enum tp_code code = take_scratch(c, to, args, err);
    if (code == TP_OK)
        tp_repack_find(from, to)(from, to, args);
    tp_stage_set(before);
    return code ? code : tp_args_check(args, err);
}

enum tp_code tp_compute_decode_on_host(struct tp_compute *c, const struct tp_op *op,
                                       struct tp_args *args, struct tp_err *err)
{
    enum tp_stage before = tp_stage_set(TP_STAGE_KERNEL);
    enum tp_code code = take_bytes(c, tp_decode_scratch(op, args->box), args, err);
    if (code == TP_OK)
        tp_decode_find(op, args->dtype)(op, args);
    tp_stage_set(before);
    return code ? code : tp_args_check(args, err);
}

enum tp_code tp_compute_decode(struct tp_compute *c, const struct tp_op *op, struct tp_args *args,
                               struct tp_err *err)
{
    if (device_has(c, op))
        return run_device(c, TP_CUDA_DECODE, op, NULL, TP_DTYPE_NONE, args, err);
    return tp_compute_decode_on_host(c, op, args, err);
}

enum tp_code tp_compute_requantize(struct tp_compute *c, const struct tp_op *from,
                                   const struct tp_op *to, enum tp_dtype via,
                                   struct tp_args *args, struct tp_err *err)
{
    if (device_has(c, from) && tp_device_can(to))
        return run_device(c, TP_CUDA_REQUANT, from, to, via, args, err);
    struct tp_args decode = *args;
    decode.dtype = args->dtype = via;
    decode.out[0] = reserve(&c->values, tp_value_bytes(args->box, via), err);
    if (!decode.out[0])
        return TP_E_MEMORY;
    enum tp_code code = tp_compute_decode_on_host(c, from, &decode, err);
    if (code)
        return code;
    args->in[0] = decode.out[0];
    return tp_compute_encode(c, to, args, err);
}

void tp_compute_close(struct tp_compute *c)
{
    free(c->host_in.base);
    free(c->host_out.base);
    free(c->values.base);
    free(c->scratch.base);
    tp_cuda_close(c->cuda);
    memset(c, 0, sizeof *c);
}
