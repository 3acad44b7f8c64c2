/* From an element to its bytes, and back. Names are inspect_find.c, regions
 * inspect_values.c.
 *
 * Does: coordinates through layouts, reading the touched bytes. Does not: print.
 * Invariant: the value of a packed element is computed by the reference decoder,
 * on a weight of one element made of the bytes found, so that it cannot differ
 * from what unpack gives.
 */
#include "pack/inspect/inspect.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/scalar.h"
#include "kernels/op/traits.h"
#include "kernels/op/word_bits.h"
#include "pack/os/os.h"
#include "pack/source/weight_complete.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------ */

static double e5m2_value(uint8_t code)
{
    return tp_f16_to_f32((uint16_t)(code << 8));
}

static uint64_t little(const uint8_t raw[8], unsigned bytes)
{
    uint64_t word = 0;
    for (unsigned i = bytes; i-- > 0;)
        word = word << 8 | raw[i];
    return word;
}

bool tp_raw_number(enum tp_dtype dtype, const uint8_t raw[8], double *value)
{
    uint64_t word = little(raw, 8);
    switch (dtype) {
    case TP_F32: *value = tp_bits_f32((uint32_t)word); return true;
    case TP_BF16: *value = tp_bf16_to_f32((uint16_t)word); return true;
    case TP_F16: *value = tp_f16_to_f32((uint16_t)word); return true;
    case TP_F64: memcpy(value, &word, sizeof word); return true;
    case TP_F8_E4M3: *value = tp_e4m3_value(raw[0]); return true;
    case TP_F8_E5M2: *value = e5m2_value(raw[0]); return true;
    case TP_F8_E8M0: *value = tp_e8m0_value(raw[0]); return true;
    case TP_F4: *value = tp_e2m1_value(raw[0]); return true;
    case TP_BOOL:
    case TP_U8: *value = raw[0]; return true;
    case TP_I8: *value = (int8_t)raw[0]; return true;
    case TP_U16: *value = (uint16_t)word; return true;
    case TP_I16: *value = (int16_t)word; return true;
    case TP_U32: *value = (uint32_t)word; return true;
    case TP_I32: *value = (int32_t)word; return true;
    case TP_U64: *value = (double)word; return true;
    case TP_I64: *value = (double)(int64_t)word; return true;
    default: *value = NAN; return false;
    }
}

/* A stored element by itself; codes need the operation, see code_of(). */
static double element_value(enum tp_element element, const uint8_t raw[8])
{
    return tp_elements[element].value ? tp_elements[element].value(raw) : NAN;
}

/* Canonical code (codec.h) of a stored one. */
static uint8_t code_of(const struct tp_op *op, enum tp_element element, const uint8_t raw[8])
{
    uint8_t code = 0;
    int zero_point = tp_op_zero_point(op);
    if (element == TP_ELEM_INT8)
        return (uint8_t)((raw[0] + zero_point) & (2 * zero_point - 1));
    if (!tp_elements[element].has_table)
        return raw[0];
    while (op->table[code] != raw[0])
        code++;
    return code;
}

static double spot_value(const struct tp_weight *weight, uint32_t i, const uint8_t raw[8])
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    if (out->role == TP_ROLE_ZERO && !tp_op_zero_is_product(&weight->form->op))
        return (int)code_of(&weight->form->op, out->element, raw) + weight->form->op.zero_add -
               tp_op_zero_point(&weight->form->op);
    if (out->role == TP_ROLE_CODES && !tp_codecs[weight->form->op.codec].is_number)
        return tp_codec_code_value(&weight->form->op,
                                   code_of(&weight->form->op, out->element, raw));
    double value = element_value(out->element, raw);
    value = out->factor ? ldexp(value, -out->factor) : value;
    if (out->role != TP_ROLE_SCALE || !tp_op_is_int(&weight->form->op))
        return value;
    return tp_half_round(tp_op_has_f16_scales(&weight->form->op), (float)value); /* as kernels do */
}

/* ---- places ------------------------------------------------------------- */

void tp_inspect_per(const struct tp_weight *weight, uint32_t i, uint64_t *per_n, uint64_t *per_k)
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    *per_n = out->per_n ? out->per_n : weight->form->box.n;
    *per_k = out->per_k ? out->per_k : weight->form->box.k;
}

/* A code whose bits are moved: where its lowest one lies is its place. */
static enum tp_code read_moved(const struct tp_checkpoint *ckpt, const struct tp_tensor *tensor,
                               struct tp_spot *spot, struct tp_err *err)
{
    uint8_t word[TP_WORD_BITS / 8];
    uint64_t per = TP_WORD_BITS / spot->bits, half = tp_bits_half(spot->word_bits, spot->index);
    enum tp_code code =
        tp_checkpoint_read(ckpt, tensor->file, word, sizeof word,
                           tensor->offset + spot->index / per * sizeof word, err);
    if (spot->bits < 8) {
        spot->nibble = half % 2;
        spot->spread = !tp_bits_whole(spot->word_bits, spot->index);
        spot->byte = half / 2;
        spot->offset = tensor->offset + spot->byte;
    }
    spot->raw[0] = tp_bits_load(spot->word_bits, word, spot->index % per, spot->bits);
    return code;
}

/* Fills in the rest of a spot whose tensor, index and bits are set, and reads it. */
static enum tp_code read_spot(const struct tp_checkpoint *ckpt, struct tp_spot *spot,
                              struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[spot->tensor];
    unsigned bytes = spot->bits < 8 ? 1 : spot->bits / 8;
    memset(spot->raw, 0, sizeof spot->raw);
    spot->nibble = spot->bits < 8 ? spot->index % 2 : 0;
    spot->byte = spot->bits < 8 ? spot->index / 2 : spot->index * bytes;
    spot->offset = tensor->offset + spot->byte;
    if (spot->byte + bytes > tensor->bytes)
        return tp_fail(err, TP_E_INPUT, "the tensor is shorter than its layout");
    if (spot->word_bits)
        return read_moved(ckpt, tensor, spot, err);
    enum tp_code code = tp_checkpoint_read(ckpt, tensor->file, spot->raw, bytes, spot->offset, err);
    if (spot->bits < 8)
        spot->raw[0] = spot->raw[0] >> 4 * spot->nibble & 15;
    return code;
}

/* The same of output i of a packed weight; what is shown as int4 is such. */
static enum tp_code read_output(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                uint32_t i, struct tp_spot *spot, struct tp_err *err)
{
    const void *data[TP_MAX_OUT] = {0};
    enum tp_code code = read_spot(ckpt, spot, err);
    data[i] = spot->raw;
    if (code || weight->form->op.out[i].role != TP_ROLE_CODES)
        return code;
    code = tp_source_codes_check(&weight->form->op, (struct tp_box3){1, 1, 1}, data, err);
    if (code)
        tp_err_path(err, ckpt->files[ckpt->tensors[spot->tensor].file].path);
    return code;
}

/* Output i of a packed weight at the element (e,n,k). */
static enum tp_code packed_spot(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                uint32_t i, const uint64_t at[TP_DIMS], struct tp_spot *spot,
                                struct tp_err *err)
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    struct tp_layout layout;
    uint64_t per_n, per_k;
    enum tp_code code;
    *spot = (struct tp_spot){.tensor = TP_NO_TENSOR, .value = NAN};
    if (weight->tensor[i] == TP_NO_TENSOR || out->role == TP_ROLE_WORDS)
        return TP_OK;
    spot->tensor = weight->tensor[i];
    spot->bits = tp_element_bits(out->element);
    spot->word_bits = out->word_bits;
    tp_inspect_per(weight, i, &per_n, &per_k);
    if (out->layout) {
        if ((code = tp_op_whole_layout(&weight->form->op, i, weight->form->box, &layout, err)))
            return code;
        uint64_t e = at[0], n = at[1];
        tp_op_fold(&weight->form->op, i, weight->form->box.n, &e, &n);
        spot->index = tp_layout_at(&layout, e, n / per_n, at[2] / per_k);
    }
    if ((code = read_output(ckpt, weight, i, spot, err)) == TP_OK)
        spot->value = spot_value(weight, i, spot->raw);
    return code;
}

/* All outputs. With act-order the scale and the zero point of column k are those
 * of the group that the order names. */
static enum tp_code packed_spots(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 struct tp_element_info *info, struct tp_err *err)
{
    uint64_t at[TP_DIMS] = {info->e, info->n, info->k}, grouped[TP_DIMS];
    int order = tp_op_find(&weight->form->op, TP_ROLE_ORDER);
    int scale = tp_op_find(&weight->form->op, TP_ROLE_SCALE);
    enum tp_code code = TP_OK;
    memcpy(grouped, at, sizeof at);
    info->spots = weight->form->op.outs;
    if (order >= 0 && weight->tensor[order] != TP_NO_TENSOR && scale >= 0) {
        uint64_t per_n, per_k;
        struct tp_spot spot;
        tp_inspect_per(weight, (uint32_t)scale, &per_n, &per_k);
        if ((code = packed_spot(ckpt, weight, (uint32_t)order, at, &spot, err)))
            return code;
        if (!tp_mul_u64(&grouped[2], little(spot.raw, 4), per_k) ||
            grouped[2] >= weight->form->box.k)
            return tp_fail(err, TP_E_INPUT, "column %llu belongs to a group that does not exist",
                           (unsigned long long)info->k);
    }
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++) {
        enum tp_role role = weight->form->op.out[i].role;
        bool by_group = role == TP_ROLE_SCALE || role == TP_ROLE_ZERO;
        code = packed_spot(ckpt, weight, i, by_group ? grouped : at, &info->spot[i], err);
    }
    return code;
}

/* ---- the value ---------------------------------------------------------- */

/* Decodes a weight of one element whose outputs are the bytes found. */
static enum tp_code decode_one(const struct tp_weight *weight, struct tp_element_info *info,
                               struct tp_err *err)
{
    struct tp_op op = weight->form->op;
    struct tp_args args = {.box = {1, 1, 1}, .dtype = TP_F32, .global = weight->global};
    uint8_t raw[TP_MAX_OUT][8];
    float value = 0;
    op.block_n = op.block_k = 1;
    for (uint32_t i = 0; i < op.outs; i++) {
        memcpy(raw[i], info->spot[i].raw, sizeof raw[i]);
        bool absent = info->spot[i].tensor == TP_NO_TENSOR || op.out[i].role == TP_ROLE_ORDER;
        args.in[i] = absent ? NULL : raw[i]; /* the order was followed when reading */
        op.out[i].per_n = op.out[i].per_k = 1;
        op.out[i].word_bits = NULL; /* moved back when it was read */
        if (op.out[i].layout)
            op.out[i].layout = &tp_layout_dense;
    }
    args.out[0] = &value;
    args.scratch = tp_os_alloc(tp_encode_scratch(&op, args.box), err);
    if (!args.scratch)
        return TP_E_MEMORY;
    tp_decode_ref(&op, &args);
    free(args.scratch);
    info->value = value;
    info->has_value = true;
    return tp_args_check(&args, err);
}

static enum tp_code empty(struct tp_err *err)
{
    return tp_fail(err, TP_E_USAGE, "the tensor is empty: a dimension is 0");
}

static enum tp_code outside(const struct tp_subject *subject, uint64_t e, uint64_t n, uint64_t k,
                            struct tp_err *err)
{
    struct tp_box3 box = subject->box;
    if (e < box.e && n < box.n && k < box.k)
        return TP_OK;
    if (!box.e || !box.n || !box.k)
        return empty(err);
    tp_err_hint(err, "e is 0 to %llu, n 0 to %llu, k 0 to %llu", (unsigned long long)box.e - 1,
                (unsigned long long)box.n - 1, (unsigned long long)box.k - 1);
    return tp_fail(err, TP_E_USAGE,
                   "element e=%llu n=%llu k=%llu is outside of the box [%llu,%llu,%llu]",
                   (unsigned long long)e, (unsigned long long)n, (unsigned long long)k,
                   (unsigned long long)box.e, (unsigned long long)box.n,
                   (unsigned long long)box.k);
}

static enum tp_code plain_at(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                             struct tp_element_info *info, struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[subject->tensor];
    struct tp_spot *spot = &info->spot[0];
    unsigned bits = tp_dtype_bits(tensor->dtype);
    if (bits % 4 || bits == 12)
        return tp_fail(err, TP_E_UNSUPPORTED, "elements of %s lie across bytes",
                       tp_dtype_name(tensor->dtype));
    info->spots = 1;
    info->code = info->multiple = -1;
    *spot = (struct tp_spot){.tensor = subject->tensor, .bits = bits};
    spot->index = (info->e * subject->box.n + info->n) * subject->box.k + info->k;
    enum tp_code code = read_spot(ckpt, spot, err);
    info->has_value = tp_raw_number(tensor->dtype, spot->raw, &info->value);
    spot->value = info->value;
    return code;
}

enum tp_code tp_inspect_at(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                           uint64_t e, uint64_t n, uint64_t k, struct tp_element_info *info,
                           struct tp_err *err)
{
    const struct tp_weight *weight = subject->weight;
    enum tp_code code = outside(subject, e, n, k, err);
    *info = (struct tp_element_info){.e = e, .n = n, .k = k};
    if (code)
        return code;
    if (!weight)
        return plain_at(ckpt, subject, info, err);
    if ((code = packed_spots(ckpt, weight, info, err)))
        return code;
    uint32_t c = (uint32_t)tp_op_find(&weight->form->op, TP_ROLE_CODES);
    info->code = -1; /* numbers have none */
    if (!tp_codecs[weight->form->op.codec].is_number)
        info->code = code_of(&weight->form->op, weight->form->op.out[c].element,
                             info->spot[c].raw);
    info->multiple = -1;
    if (tp_op_find(&weight->form->op, TP_ROLE_GROUP8) >= 0 && info->code != 8)
        info->multiple = info->code < 8 ? info->code : 16 - info->code;
    return decode_one(weight, info, err);
}

/* ---- a byte ------------------------------------------------------------- */

/* Elements of W behind the stored coordinate x of a dimension with `extent`
 * elements; false: padding. */
static bool span(uint64_t x, uint64_t per, uint64_t extent, uint64_t *first, uint64_t *end)
{
    if (x >= tp_ceil_div(extent, per)) {
        *first = *end = extent;
        return false;
    }
    *first = x * per;
    *end = tp_min_u64(*first + per, extent);
    return true;
}

static enum tp_code stored_in_layout(const struct tp_weight *weight, uint32_t i,
                                     struct tp_stored *item, struct tp_err *err)
{
    struct tp_layout layout;
    uint64_t coord[TP_DIMS], per_n, per_k;
    enum tp_code code = tp_op_whole_layout(&weight->form->op, i, weight->form->box, &layout, err);
    if (code)
        return code;
    tp_inspect_per(weight, i, &per_n, &per_k);
    tp_layout_coord(&layout, item->spot.index, coord);
    uint64_t first_row = 0, rows = weight->form->box.n;
    tp_op_unfold(&weight->form->op, i, rows, &coord[0], &first_row);
    if (weight->form->op.out[i].per_n) /* one element for all rows knows no segments */
        rows = tp_op_segment_rows(&weight->form->op, rows);
    item->padding = !span(coord[0], 1, weight->form->box.e, &item->e0, &item->e1);
    item->padding |= !span(coord[1], per_n, rows, &item->n0, &item->n1);
    item->n0 += first_row;
    item->n1 += first_row;
    item->padding |= !span(coord[2], per_k, weight->form->box.k, &item->k0, &item->k1);
    item->fill = weight->form->op.out[i].fill;
    if (item->spot.bits == 4)
        item->fill = item->fill >> 4 * item->spot.nibble & 15;
    return TP_OK;
}

/* Constants belong to all of W, or, in a row per expert, to that expert. */
static void stored_word(const struct tp_subject *subject, const struct tp_tensor *tensor,
                        struct tp_stored *item)
{
    const struct tp_format_out *out = &subject->weight->form->format->out[subject->out];
    struct tp_box3 box = subject->box;
    uint64_t count = out->word_count ? out->word_count : 1;
    uint64_t rows = tensor->bytes * 8 / item->spot.bits / count;
    uint64_t row = item->spot.index / count;
    item->word = (int)(item->spot.index % count);
    item->n1 = box.n;
    item->k1 = box.k;
    item->e0 = rows == box.e ? row : 0;
    item->e1 = rows == box.e ? row + 1 : box.e;
}

static enum tp_code stored_packed(const struct tp_checkpoint *ckpt,
                                  const struct tp_subject *subject, struct tp_stored *item,
                                  struct tp_err *err)
{
    const struct tp_op_out *out = &subject->weight->form->op.out[subject->out];
    if (out->role == TP_ROLE_WORDS) {
        stored_word(subject, &ckpt->tensors[subject->tensor], item);
    } else if (out->layout) {
        enum tp_code code = stored_in_layout(subject->weight, subject->out, item, err);
        if (code)
            return code;
    } else { /* one number for the whole weight */
        item->e1 = subject->box.e;
        item->n1 = subject->box.n;
        item->k1 = subject->box.k;
    }
    enum tp_code code = read_output(ckpt, subject->weight, subject->out, &item->spot, err);
    item->spot.value = item->padding ? NAN
                       : out->role == TP_ROLE_WORDS
                           ? element_value(out->element, item->spot.raw)
                           : spot_value(subject->weight, subject->out, item->spot.raw);
    return code;
}

static enum tp_code stored_plain(const struct tp_checkpoint *ckpt,
                                 const struct tp_subject *subject, struct tp_stored *item,
                                 struct tp_err *err)
{
    struct tp_box3 box = subject->box;
    uint64_t index = item->spot.index;
    item->k0 = index % box.k;
    item->n0 = index / box.k % box.n;
    item->e0 = index / box.k / box.n;
    item->k1 = item->k0 + 1;
    item->n1 = item->n0 + 1;
    item->e1 = item->e0 + 1;
    enum tp_code code = read_spot(ckpt, &item->spot, err);
    tp_raw_number(ckpt->tensors[subject->tensor].dtype, item->spot.raw, &item->spot.value);
    return code;
}

enum tp_code tp_inspect_byte(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                             uint64_t byte, struct tp_byte_info *info, struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[subject->tensor];
    unsigned bits = subject->weight
                        ? tp_element_bits(subject->weight->form->op.out[subject->out].element)
                        : tp_dtype_bits(tensor->dtype);
    *info = (struct tp_byte_info){.byte = byte, .offset = tensor->offset + byte};
    if (tensor->bytes == 0)
        return empty(err);
    if (byte >= tensor->bytes)
        return tp_refuse(err, TP_E_USAGE,
                         "offsets are counted from the beginning of the tensor's data",
                         "byte %llu is outside of the tensor, which has %llu bytes",
                         (unsigned long long)byte, (unsigned long long)tensor->bytes);
    if (subject->weight &&
        !tp_bits_within_bytes(subject->weight->form->op.out[subject->out].word_bits))
        return tp_refuse(err, TP_E_UNSUPPORTED, "--at shows an element and where it begins",
                         "the bits of its codes are moved inside of words of 4 bytes, so that a "
                         "byte holds parts of several");
    if (bits % 4 || bits == 12)
        return tp_fail(err, TP_E_UNSUPPORTED, "elements of %s lie across bytes",
                       tp_dtype_name(tensor->dtype));
    enum tp_code code = tp_checkpoint_read(ckpt, tensor->file, &info->value, 1, info->offset, err);
    for (info->count = 0; info->count < (bits == 4 ? 2u : 1u) && code == TP_OK; info->count++) {
        struct tp_stored *item = &info->item[info->count];
        *item = (struct tp_stored){.word = -1};
        item->spot = (struct tp_spot){.tensor = subject->tensor, .bits = bits, .value = NAN};
        item->spot.index = bits == 4 ? 2 * byte + info->count : byte / (bits / 8);
        item->spot.word_bits = subject->weight
                                   ? subject->weight->form->op.out[subject->out].word_bits : NULL;
        if (bits == 4 && item->spot.word_bits) /* a half byte in the other one's place */
            item->spot.index = tp_bits_half(item->spot.word_bits, item->spot.index);
        item->spot.nibble = bits == 4 ? info->count : 0;
        item->byte_of = bits == 4 ? 0 : (unsigned)(byte % (bits / 8));
        code = subject->weight ? stored_packed(ckpt, subject, item, err)
                               : stored_plain(ckpt, subject, item, err);
    }
    return code;
}
