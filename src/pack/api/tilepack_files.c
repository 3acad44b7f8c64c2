/* The C library: layouts, and reading files. Thin wrappers over base/layout.h,
 * checkpoint.h, weights.h and inspect.h. */
#include "pack/api/tilepack_handles.h"

#include "base/layout_parse.h"
#include "base/num.h"
#include "pack/inspect/inspect.h"
#include "pack/os/os.h"
#include "pack/source/weight_complete.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)TILEPACK_MAX_RANK >= (int)TP_ST_MAX_RANK &&
                   (int)TILEPACK_MAX_RANK >= (int)TP_MAX_RANK &&
                   (int)TILEPACK_MAX_TENSORS >= (int)TP_MAX_OUT,
               "the public limits hold every tensor");

/* ---- layouts ------------------------------------------------------------- */

int tilepack_layout_new(const char *text, uint64_t e, uint64_t n, uint64_t k,
                        tilepack_layout **layout, char *message, size_t size)
{
    struct tp_err err = {0};
    struct tp_layout parsed;
    struct tp_box3 box = {e, n, k};
    *layout = NULL;
    if (!text)
        tp_fail(&err, TP_E_USAGE, "no layout is given");
    else if (tp_layout_parse(text, box, &parsed, &err) == TP_OK &&
             tp_layout_check(&parsed, &err) == TP_OK &&
             (*layout = tp_os_zalloc(1, sizeof **layout, &err)))
        (*layout)->layout = parsed;
    return tp_handle_report(&err, message, size);
}

void tilepack_layout_free(tilepack_layout *layout) { free(layout); }

void tilepack_layout_box(const tilepack_layout *layout, uint64_t box[3])
{
    for (int d = 0; d < TP_DIMS; d++)
        box[d] = tp_layout_extent(&layout->layout, d);
}

uint64_t tilepack_layout_size(const tilepack_layout *layout)
{
    return tp_layout_size(&layout->layout);
}

uint64_t tilepack_layout_at(const tilepack_layout *layout, uint64_t e, uint64_t n, uint64_t k)
{
    const struct tp_layout *l = &layout->layout;
    if (e >= tp_layout_extent(l, TP_DIM_E) || n >= tp_layout_extent(l, TP_DIM_N) ||
        k >= tp_layout_extent(l, TP_DIM_K))
        return UINT64_MAX;
    return tp_layout_at(l, e, n, k);
}

int tilepack_layout_coord(const tilepack_layout *layout, uint64_t offset, uint64_t coord[3])
{
    if (offset >= tp_layout_size(&layout->layout))
        return -1;
    tp_layout_coord(&layout->layout, offset, coord);
    return 0;
}

size_t tilepack_layout_print(const tilepack_layout *layout, char *text, size_t size)
{
    return tp_layout_print(&layout->layout, text, size);
}

int tilepack_layout_runs(const tilepack_layout *part, const tilepack_layout *whole, uint64_t e,
                         uint64_t n, uint64_t k, tilepack_run_visit visit, void *arg)
{
    uint64_t at[3] = {e, n, k}, end;
    if (!tp_layout_embeds(&part->layout, &whole->layout))
        return TILEPACK_E_USAGE;
    for (int d = 0; d < TP_DIMS; d++)
        if (!tp_add_u64(&end, at[d], tp_layout_extent(&part->layout, d)) ||
            end > tp_layout_extent(&whole->layout, d))
            return TILEPACK_E_USAGE;
    return tp_layout_runs(&part->layout, &whole->layout, tp_layout_at(&whole->layout, e, n, k),
                          visit, arg);
}

/* ---- checkpoints --------------------------------------------------------- */

static enum tp_code list_packed(tilepack_checkpoint *c, struct tp_err *err)
{
    if (!(c->packed = tp_os_zalloc(c->weights.count + 1, sizeof *c->packed, err)))
        return TP_E_MEMORY;
    for (size_t w = 0; w < c->weights.count; w++)
        if (c->weights.items[w].form->format)
            c->packed[c->packed_count++] = w;
    return TP_OK;
}

int tilepack_open(const char *path, tilepack_checkpoint **checkpoint, char *message, size_t size)
{
    struct tp_err err = {0};
    tilepack_checkpoint *c = tp_os_zalloc(1, sizeof *c, &err);
    *checkpoint = NULL;
    if (c)
        pthread_mutex_init(&c->lock, NULL);
    if (!path)
        tp_fail(&err, TP_E_USAGE, "no path is given");
    if (c && err.code == TP_OK && tp_checkpoint_open(path, 0, &c->ckpt, &err) == TP_OK &&
        tp_weights_find(&c->ckpt, &c->weights, &err) == TP_OK && list_packed(c, &err) == TP_OK)
        *checkpoint = c;
    else
        tilepack_close(c);
    return tp_handle_report(&err, message, size);
}

void tilepack_close(tilepack_checkpoint *c)
{
    if (!c)
        return;
    tp_load_cuda_end(&c->ring);
    tp_weights_close(&c->weights);
    tp_checkpoint_close(&c->ckpt);
    pthread_mutex_destroy(&c->lock);
    free(c->packed);
    free(c);
}

size_t tilepack_tensors(const tilepack_checkpoint *c) { return c->ckpt.tensor_count; }

size_t tilepack_tensor_find(const tilepack_checkpoint *c, const char *name)
{
    const struct tp_tensor *tensor = name ? tp_checkpoint_find(&c->ckpt, name) : NULL;
    return tensor ? (size_t)(tensor - c->ckpt.tensors) : SIZE_MAX;
}

static const struct tp_tensor *tensor_of(const tilepack_checkpoint *c, size_t t)
{
    return t < c->ckpt.tensor_count ? &c->ckpt.tensors[t] : NULL;
}

const char *tilepack_tensor_name(const tilepack_checkpoint *c, size_t t)
{
    const struct tp_tensor *tensor = tensor_of(c, t);
    return tensor ? tensor->name : NULL;
}

const char *tilepack_tensor_dtype(const tilepack_checkpoint *c, size_t t)
{
    const struct tp_tensor *tensor = tensor_of(c, t);
    return tensor ? tp_dtype_name(tensor->dtype) : NULL;
}

size_t tilepack_tensor_shape(const tilepack_checkpoint *c, size_t t,
                             uint64_t shape[TILEPACK_MAX_RANK])
{
    const struct tp_tensor *tensor = tensor_of(c, t);
    for (uint32_t d = 0; tensor && d < tensor->rank; d++)
        shape[d] = tensor->shape[d];
    return tensor ? tensor->rank : 0;
}

uint64_t tilepack_tensor_bytes(const tilepack_checkpoint *c, size_t t)
{
    const struct tp_tensor *tensor = tensor_of(c, t);
    return tensor ? tensor->bytes : 0;
}

/* NULL: there is no such tensor, or its file is compressed. */
static const struct tp_file *plain_file_of(const tilepack_checkpoint *c, size_t t)
{
    const struct tp_tensor *tensor = tensor_of(c, t);
    return tensor && !c->ckpt.files[tensor->file].zst ? &c->ckpt.files[tensor->file] : NULL;
}

const char *tilepack_tensor_file(const tilepack_checkpoint *c, size_t t, uint64_t *offset)
{
    const struct tp_file *file = plain_file_of(c, t);
    if (!file)
        return NULL;
    *offset = tensor_of(c, t)->offset;
    return file->path;
}

int tilepack_tensor_descriptor(const tilepack_checkpoint *c, size_t t)
{
    const struct tp_file *file = plain_file_of(c, t);
    return file ? file->fd : -1;
}

int tilepack_tensor_read(const tilepack_checkpoint *c, size_t t, uint64_t offset, void *to,
                         uint64_t bytes, char *message, size_t size)
{
    struct tp_err err = {0};
    const struct tp_tensor *tensor = tensor_of(c, t);
    uint64_t end;
    if (!tensor)
        tp_fail(&err, TP_E_USAGE, "there is no tensor %zu", t);
    else if (!to && bytes)
        tp_fail(&err, TP_E_USAGE, "no memory for the bytes is given");
    else if (!tp_add_u64(&end, offset, bytes) || end > tensor->bytes)
        tp_fail(&err, TP_E_USAGE, "bytes %llu to %llu are outside of tensor '%s'",
                (unsigned long long)offset, (unsigned long long)(offset + bytes), tensor->name);
    else
        tp_checkpoint_read(&c->ckpt, tensor->file, to, bytes, tensor->offset + offset, &err);
    return tp_handle_report(&err, message, size);
}

/* ---- packed weights ------------------------------------------------------ */

size_t tilepack_packed(const tilepack_checkpoint *c) { return c->packed_count; }

/* What reading changes of a handle, it changes under its lock. */
static void lock(const tilepack_checkpoint *c)
{
    pthread_mutex_lock(&((tilepack_checkpoint *)c)->lock);
}

static void unlock(const tilepack_checkpoint *c)
{
    pthread_mutex_unlock(&((tilepack_checkpoint *)c)->lock);
}

/* A copy, as another thread may be completing the weight; {0}: there is none of that number. */
static struct tp_weight packed_of(const tilepack_checkpoint *c, size_t w)
{
    struct tp_weight weight = {0};
    if (w < c->packed_count) {
        lock(c);
        weight = c->weights.items[c->packed[w]];
        unlock(c);
    }
    return weight;
}

size_t tilepack_packed_find(const tilepack_checkpoint *c, const char *name)
{
    for (size_t w = 0; name && w < c->packed_count; w++)
        if (strcmp(packed_of(c, w).name, name) == 0)
            return w;
    return SIZE_MAX;
}

const char *tilepack_packed_name(const tilepack_checkpoint *c, size_t w)
{
    return packed_of(c, w).name;
}

const char *tilepack_packed_format(const tilepack_checkpoint *c, size_t w)
{
    const struct tp_weight weight = packed_of(c, w);
    return weight.form ? weight.form->format->name : NULL;
}

void tilepack_packed_box(const tilepack_checkpoint *c, size_t w, uint64_t box[3])
{
    const struct tp_weight weight = packed_of(c, w);
    struct tp_box3 size = weight.form ? weight.form->box : (struct tp_box3){0};
    box[0] = size.e;
    box[1] = size.n;
    box[2] = size.k;
}

size_t tilepack_packed_tensor(const tilepack_checkpoint *c, size_t w, size_t i)
{
    const struct tp_weight weight = packed_of(c, w);
    return weight.form && i < weight.form->op.outs && weight.tensor[i] != TP_NO_TENSOR
               ? weight.tensor[i]
               : SIZE_MAX;
}

/* The weight, completed by what its small tensors say: once, by the first caller. Nothing
 * changes it from then on. */
static const struct tp_weight *checked(const tilepack_checkpoint *c, size_t w,
                                       struct tp_err *err)
{
    if (w >= c->packed_count) {
        tp_fail(err, TP_E_USAGE, "there is no packed weight %zu", w);
        return NULL;
    }
    lock(c);
    enum tp_code code = tp_weight_complete(&c->ckpt, &c->weights, c->packed[w], err);
    unlock(c);
    return code ? NULL : &c->weights.items[c->packed[w]];
}

int tilepack_packed_weight(const tilepack_checkpoint *c, size_t w, tilepack_weight **weight,
                           char *message, size_t size)
{
    struct tp_err err = {0};
    const struct tp_weight *found = checked(c, w, &err);
    *weight = NULL;
    enum tp_dtype dtypes[TP_MAX_OUT] = {TP_DTYPE_NONE};
    for (uint32_t i = 0; found && i < found->form->op.outs; i++)
        dtypes[i] = found->tensor[i] == TP_NO_TENSOR ? found->form->format->out[i].dtype
                                                     : c->ckpt.tensors[found->tensor[i]].dtype;
    if (found && tp_handle_weight(found->form->format, &found->form->op, found->form->box, dtypes,
                                  weight, &err) == TP_OK) {
        (*weight)->negative_scales = found->form->search.is_signed;
        if (found->global > 0)
            (*weight)->global = found->global;
    }
    return tp_handle_report(&err, message, size);
}

static enum tp_code store_row(void *arg, uint64_t n, const double *values, uint64_t count,
                              struct tp_err *err)
{
    float **to = arg;
    (void)n, (void)err;
    for (uint64_t i = 0; i < count; i++)
        (*to)[i] = (float)values[i];
    *to += count;
    return TP_OK;
}

int tilepack_packed_values(const tilepack_checkpoint *c, size_t w, uint64_t e, uint64_t n0,
                           uint64_t n1, uint64_t k0, uint64_t k1, float *values, char *message,
                           size_t size)
{
    struct tp_err err = {0};
    struct tp_region region = {e, n0, n1, k0, k1};
    const struct tp_weight *weight = checked(c, w, &err);
    if (weight && !values) {
        tp_fail(&err, TP_E_USAGE, "no memory for the values is given");
    } else if (weight && (n1 > weight->form->box.n || k1 > weight->form->box.k)) {
        tp_fail(&err, TP_E_USAGE, "the region is not inside of [%llu,%llu,%llu]",
                (unsigned long long)weight->form->box.e, (unsigned long long)weight->form->box.n,
                (unsigned long long)weight->form->box.k);
    } else if (weight) {
        struct tp_subject subject = {.weight = weight, .box = weight->form->box};
        int codes = tp_op_find(&weight->form->op, TP_ROLE_CODES);
        subject.out = (uint32_t)codes;
        subject.tensor = weight->tensor[codes];
        if (tp_inspect_region(&subject, &region, &err) == TP_OK)
            tp_inspect_values(&c->ckpt, &subject, &region, store_row, &values, &err);
    }
    return tp_handle_report(&err, message, size);
}
