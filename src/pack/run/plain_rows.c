/* Plain weights in both orientations. A transposed matrix is read and written in
 * whole runs of its own rows, which are columns here, and turned in memory.
 */
#include "pack/run/plain_rows.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

/* [rows][columns] -> [columns][rows] of elements of 2 or 4 bytes. */
static void transpose(const void *from, void *to, uint64_t rows, uint64_t columns, uint64_t width)
{
    enum { TILE = 32 }; /* both sides stay in cache */
    const uint8_t *source = from;
    uint8_t *target = to;
    for (uint64_t r0 = 0; r0 < rows; r0 += TILE)
        for (uint64_t c0 = 0; c0 < columns; c0 += TILE)
            for (uint64_t r = r0; r < tp_min_u64(r0 + TILE, rows); r++)
                for (uint64_t c = c0; c < tp_min_u64(c0 + TILE, columns); c++)
                    memcpy(target + (c * rows + r) * width, source + (r * columns + c) * width,
                           width);
}

/* Elements of a tensor, each as it is stored, but for F64, which is rounded. */
static enum tp_code read_run(const struct tp_checkpoint *ckpt, const struct tp_tensor *tensor,
                             uint64_t at, uint64_t count, uint8_t *to, struct tp_err *err)
{
    const uint64_t width = tp_dtype_bits(tensor->dtype) / 8, offset = tensor->offset + at * width;
    double piece[1024];
    enum tp_code code = TP_OK;
    if (tensor->dtype != TP_F64)
        return tp_checkpoint_read(ckpt, tensor->file, to, count * width, offset, err);
    for (uint64_t i = 0, n; i < count && code == TP_OK; i += n) {
        n = tp_min_u64(count - i, sizeof piece / sizeof *piece);
        code = tp_checkpoint_read(ckpt, tensor->file, piece, n * width, offset + i * width, err);
        for (uint64_t j = 0; j < n && code == TP_OK; j++) {
            const float value = (float)piece[j];
            memcpy(to + (i + j) * sizeof value, &value, sizeof value);
        }
    }
    return code;
}

/* A rectangle of a matrix in a file; `width` of an element as it is read. */
static enum tp_code read_rectangle(const struct tp_checkpoint *ckpt,
                                   const struct tp_tensor *tensor, uint64_t at, uint64_t pitch,
                                   uint64_t rows, uint64_t wanted, uint64_t width, uint8_t *to,
                                   struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (wanted == pitch)
        return read_run(ckpt, tensor, at, rows * pitch, to, err);
    for (uint64_t r = 0; r < rows && code == TP_OK; r++)
        code = read_run(ckpt, tensor, at + r * pitch, wanted, to + r * wanted * width, err);
    return code;
}

enum tp_code tp_plain_read(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                           uint64_t expert, uint64_t row, uint64_t rows, uint64_t k,
                           uint64_t columns, void *to, struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[0]];
    const struct tp_box3 *box = &weight->form->box;
    uint64_t width = tp_dtype_bits(weight->form->dtype) / 8, base = expert * box->n * box->k;
    if (!weight->form->transposed)
        return read_rectangle(ckpt, tensor, base + row * box->k + k, box->k, rows, columns, width,
                              to, err);
    uint8_t *turned = tp_os_alloc(rows * columns * width, err);
    if (!turned)
        return TP_E_MEMORY;
    enum tp_code code = read_rectangle(ckpt, tensor, base + k * box->n + row, box->n, columns,
                                       rows, width, turned, err);
    if (code == TP_OK)
        transpose(turned, to, columns, rows, width);
    free(turned);
    return code;
}

static enum tp_code write_rectangle(const struct tp_unit *unit, uint64_t at, uint64_t pitch,
                                    uint64_t rows, uint64_t size, const uint8_t *from,
                                    struct tp_sink *sink, struct tp_err *err)
{
    uint64_t step = size == pitch ? rows : 1;
    enum tp_code code = TP_OK;
    for (uint64_t r = 0; r < rows && code == TP_OK; r += step)
        code = sink->write(sink, unit->file, unit->output[0], at + r * pitch, from + r * size,
                           step * size, err);
    return code;
}

enum tp_code tp_plain_write(const struct tp_unit *unit, const struct tp_box *box,
                            const void *from, struct tp_sink *sink, struct tp_err *err)
{
    uint64_t width = tp_dtype_bits(unit->form->dtype) / 8, rows = box->size.n,
             columns = box->size.k;
    uint64_t base = box->e * unit->form->box.n * unit->form->box.k;
    if (!unit->form->transposed)
        return write_rectangle(unit, (base + box->n * unit->form->box.k + box->k) * width,
                               unit->form->box.k * width, rows, columns * width, from, sink, err);
    uint8_t *turned = tp_os_alloc(rows * columns * width, err);
    if (!turned)
        return TP_E_MEMORY;
    transpose(from, turned, rows, columns, width);
    enum tp_code code =
        write_rectangle(unit, (base + box->k * unit->form->box.n + box->n) * width,
                        unit->form->box.n * width, columns, rows * width, turned, sink, err);
    free(turned);
    return code;
}
