/* The three kinds of files of importance: names and places of their numbers.
 *
 * Nothing is trusted: whatever is read lies in the file, and counts are bounded by the bytes
 * that are left for what they count.
 */
#include "pack/source/importance_files.h"

#include "base/num.h"
#include "kernels/op/feedback.h"
#include "pack/file/safetensors.h"
#include "pack/os/os.h"
#include "pack/source/importance_names.h"

#include <stdlib.h>
#include <string.h>

/* ---- safetensors ------------------------------------------------------------------ */

/* The length of the name before an end, or 0. */
static size_t base_of(const char *name, const char *end)
{
    size_t size = strlen(name), tail = strlen(end);
    return size > tail && strcmp(name + size - tail, end) == 0 ? size - tail : 0;
}

/* The same of "NAME.v", "NAME.amax" or "NAME.gradient", without ".weight". */
static size_t weight_of(const struct tp_st_tensor *tensor, const char *end)
{
    size_t size = base_of(tensor->name, end);
    return size > 7 && memcmp(tensor->name + size - 7, ".weight", 7) == 0 ? size - 7 : size;
}

/* Adds what stands beside the importance of a weight, under that name without ".weight". */
static enum tp_code add_beside(struct tp_importance_file *file, const struct tp_st_tensor *tensor,
                               const char *end, const struct tp_importance_entry *entry,
                               struct tp_err *err)
{
    char *name = tp_os_join(err, tensor->name, weight_of(tensor, end), end);
    enum tp_code code = name ? tp_importance_add(file, name, strlen(name), entry, err)
                             : TP_E_MEMORY;
    free(name);
    return code;
}

static enum tp_code add_moments(struct tp_importance_file *file, const struct tp_st_header *header,
                                const struct tp_st_tensor *tensor, struct tp_err *err)
{
    const bool half = tensor->dtype == TP_BF16, known = half || tensor->dtype == TP_F32;
    const uint64_t rank = tensor->shape[tensor->rank - 1];
    const struct tp_importance_entry entry = {
        .offset = header->data_start + tensor->begin, .half = half, .rank = (uint32_t)rank,
        .count = (tensor->end - tensor->begin) / (half ? 2 : sizeof(float)),
        .columns = tensor->shape[tensor->rank - 2]};
    if (known && tensor->rank <= 3 && rank >= 1 && rank <= TP_FEEDBACK_RANK)
        return add_beside(file, tensor, ".v", &entry, err);
    tp_err_tensor(err, tensor->name);
    return tp_fail(err, TP_E_INPUT, "it is %s of %u dimensions, the last of %llu: moments are F32 "
                   "or BF16, [K,r] or [E,K,r], r from 1 to %d", tp_dtype_name(tensor->dtype),
                   tensor->rank, (unsigned long long)rank, TP_FEEDBACK_RANK);
}

/* A number, or one for each expert: ".amax" or ".gradient". */
static enum tp_code add_number(struct tp_importance_file *file, const struct tp_st_header *header,
                               const struct tp_st_tensor *tensor, const char *end,
                               struct tp_err *err)
{
    const bool largest = strcmp(end, ".amax") == 0;
    const struct tp_importance_entry entry = {
        .offset = header->data_start + tensor->begin, .largest = largest, .gradient = !largest,
        .count = (tensor->end - tensor->begin) / sizeof(float)};
    file->gradients |= entry.gradient;
    if (tensor->dtype == TP_F32 && tensor->rank <= 1)
        return add_beside(file, tensor, end, &entry, err);
    tp_err_tensor(err, tensor->name);
    return tp_fail(err, TP_E_INPUT, "it is %s of %u dimensions: the %s F32, [], [1] or [E]",
                   tp_dtype_name(tensor->dtype), tensor->rank,
                   largest ? "largest magnitude of inputs is"
                           : "mean square of the gradients of outputs is");
}

/* Moments belong to the importance whose name they have. */
static enum tp_code find_moments(struct tp_importance_file *file, struct tp_err *err)
{
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->entries[i].name;
        int64_t of = file->entries[i].rank ? tp_names_find(&file->names, name, strlen(name) - 2)
                                           : (int64_t)i;
        if (of < 0) {
            tp_err_tensor(err, name);
            return tp_fail(err, TP_E_INPUT, "these moments have no importance beside them");
        }
        if (file->entries[i].rank)
            file->entries[of].moments = i + 1;
    }
    return TP_OK;
}

static enum tp_code add_tensor(struct tp_importance_file *file, const struct tp_st_header *header,
                               const struct tp_st_tensor *tensor, struct tp_err *err)
{
    /* The importance of a weight that is called so has one dimension. */
    if (tensor->rank >= 2 && weight_of(tensor, ".v"))
        return add_moments(file, header, tensor, err);
    if (weight_of(tensor, ".amax"))
        return add_number(file, header, tensor, ".amax", err);
    if (weight_of(tensor, ".gradient"))
        return add_number(file, header, tensor, ".gradient", err);
    struct tp_importance_entry entry = {.offset = header->data_start + tensor->begin,
                                        .count = (tensor->end - tensor->begin) / sizeof(float),
                                        .divisor = 1};
    if (tensor->rank == 1 || tensor->rank == 2)
        entry.columns = tensor->shape[tensor->rank - 1];
    if (tensor->dtype == TP_F32 && (tensor->rank == 1 || tensor->rank == 2))
        return tp_importance_add(file, tensor->name, strlen(tensor->name), &entry, err);
    tp_err_tensor(err, tensor->name);
    return tp_fail(err, TP_E_INPUT, "it is %s of %u dimensions: importance is F32, [K] or [E,K]",
                   tp_dtype_name(tensor->dtype), tensor->rank);
}

enum tp_code tp_importance_safetensors(struct tp_importance_file *file, struct tp_err *err)
{
    uint8_t prefix[8];
    uint64_t size;
    struct tp_st_header header = {0};
    enum tp_code code = tp_os_read(file->fd, prefix, sizeof prefix, 0, file->path, err);
    if (code || (code = tp_st_header_size(prefix, file->size, &size, err)))
        return code;
    char *text = tp_os_alloc((size_t)size, err);
    if (!text)
        return TP_E_MEMORY;
    if ((code = tp_os_read(file->fd, text, size, sizeof prefix, file->path, err)) == TP_OK)
        code = tp_st_parse(text, size, file->size, &header, err);
    free(text);
    for (size_t i = 0; i < header.count && code == TP_OK; i++)
        code = add_tensor(file, &header, &header.tensors[i], err);
    tp_st_close(&header);
    return code ? code : find_moments(file, err);
}

/* ---- reading on ------------------------------------------------------------------- */

/* A place in the file, and a buffer of what comes next. */
struct cursor {
    const struct tp_importance_file *file;
    uint64_t at;
    uint64_t begin, end; /* of the buffer, in the file */
    uint8_t buffer[16384];
    struct tp_err *err;
};

static enum tp_code truncated(struct cursor *c)
{
    tp_err_offset(c->err, c->at);
    return tp_fail(c->err, TP_E_INPUT, "the file ends inside of what is there: it is truncated or "
                   "damaged");
}

/* Whether so many bytes are left. */
static bool is_left(const struct cursor *c, uint64_t bytes)
{
    return bytes <= c->file->size - c->at;
}

static enum tp_code skip(struct cursor *c, uint64_t bytes)
{
    if (!is_left(c, bytes))
        return truncated(c);
    c->at += bytes;
    return TP_OK;
}

/* The next `size` bytes, at most a buffer. */
static enum tp_code take(struct cursor *c, void *to, uint64_t size)
{
    if (!is_left(c, size))
        return truncated(c);
    if (c->at < c->begin || c->at + size > c->end) {
        c->begin = c->at;
        c->end = c->at + tp_min_u64(sizeof c->buffer, c->file->size - c->at);
        enum tp_code code = tp_os_read(c->file->fd, c->buffer, c->end - c->begin, c->begin,
                                       c->file->path, c->err);
        if (code)
            return code;
    }
    memcpy(to, c->buffer + (c->at - c->begin), size);
    c->at += size;
    return TP_OK;
}

/* ---- the older imatrix -------------------------------------------------------------- */

/* A count of the file, at least 1 and at most `max`. */
static enum tp_code take_count(struct cursor *c, const char *what, uint64_t max, uint64_t *count)
{
    int32_t number;
    uint64_t at = c->at;
    enum tp_code code = take(c, &number, sizeof number);
    if (code)
        return code;
    *count = number < 0 ? 0 : (uint64_t)number;
    if (number >= 1 && *count <= max)
        return TP_OK;
    tp_err_offset(c->err, at);
    return tp_fail(c->err, TP_E_INPUT, "its %s is %d: this is no file of importance, or a damaged "
                   "one", what, number);
}

static enum tp_code take_dat_entry(struct tp_importance_file *file, struct cursor *c)
{
    char name[TP_IMPORTANCE_NAME];
    uint64_t size, count;
    int32_t calls;
    enum tp_code code = take_count(c, "length of a name", sizeof name, &size);
    if (code || (code = take(c, name, size)) || (code = take(c, &calls, sizeof calls)) ||
        (code = take_count(c, "number of values", INT32_MAX, &count)))
        return code;
    struct tp_importance_entry entry = {.offset = c->at, .count = count,
                                        .divisor = calls > 0 ? (float)calls : 1};
    code = tp_importance_add(file, name, strnlen(name, size), &entry, c->err);
    return code ? code : skip(c, count * sizeof(float));
}

/* Behind the entries: nothing, or how often the model was called and the name of the text. */
static enum tp_code check_trailer(struct cursor *c)
{
    int32_t calls = 0, size = 0;
    if (c->at == c->file->size)
        return TP_OK;
    enum tp_code code = take(c, &calls, sizeof calls);
    if (code || (code = take(c, &size, sizeof size)))
        return code;
    if (size >= 0 && (uint64_t)size == c->file->size - c->at)
        return TP_OK;
    tp_err_offset(c->err, c->at);
    return tp_fail(c->err, TP_E_INPUT, "what stands behind its entries is no end of an imatrix");
}

enum tp_code tp_importance_dat(struct tp_importance_file *file, struct tp_err *err)
{
    struct cursor c = {.file = file, .err = err};
    uint64_t entries = 0;
    enum tp_code code = take_count(&c, "number of entries", TP_IMPORTANCE_MAX, &entries);
    for (uint64_t i = 0; i < entries && code == TP_OK; i++)
        code = take_dat_entry(file, &c);
    return code ? code : check_trailer(&c);
}

/* ---- GGUF --------------------------------------------------------------------------- */

enum { GGUF_UINT32 = 4, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_TYPES = 13, GGUF_F32 = 0 };

/* Bytes of a value of each type; 0 for those that have no fixed size. */
static const uint8_t gguf_sizes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* A tensor of the file; names of sums and counts differ in their ends. */
struct gguf_tensor {
    char name[TP_IMPORTANCE_NAME];
    uint64_t columns, rows, offset;
};

static enum tp_code bad_gguf(struct cursor *c, const char *what)
{
    tp_err_offset(c->err, c->at);
    return tp_fail(c->err, TP_E_INPUT, "%s: this is no imatrix in GGUF, or a damaged one", what);
}

/* A string that fits into `capacity` with its end, or (to NULL) any. */
static enum tp_code take_string(struct cursor *c, char *to, uint64_t capacity)
{
    uint64_t size;
    enum tp_code code = take(c, &size, sizeof size);
    if (code || !to)
        return code ? code : skip(c, size);
    if (size >= capacity)
        return bad_gguf(c, "a name is too long");
    to[size] = '\0';
    return take(c, to, size);
}

static enum tp_code skip_array(struct cursor *c)
{
    uint32_t type;
    uint64_t count, bytes;
    enum tp_code code = take(c, &type, sizeof type);
    if (code || (code = take(c, &count, sizeof count)))
        return code;
    if (type >= GGUF_TYPES || type == GGUF_ARRAY)
        return bad_gguf(c, "a list is of an unknown type");
    if (type != GGUF_STRING)
        return tp_mul_u64(&bytes, count, gguf_sizes[type]) ? skip(c, bytes) : truncated(c);
    for (uint64_t i = 0; i < count && code == TP_OK; i++)
        code = take_string(c, NULL, 0);
    return code;
}

/* One key and its value, of which only the alignment is of interest. */
static enum tp_code take_pair(struct cursor *c, uint32_t *alignment)
{
    char key[256];
    uint32_t type;
    enum tp_code code = take_string(c, key, sizeof key);
    if (code || (code = take(c, &type, sizeof type)))
        return code;
    if (type >= GGUF_TYPES)
        return bad_gguf(c, "a value is of an unknown type");
    if (type == GGUF_UINT32 && strcmp(key, "general.alignment") == 0)
        return take(c, alignment, sizeof *alignment);
    return type == GGUF_STRING  ? take_string(c, NULL, 0)
           : type == GGUF_ARRAY ? skip_array(c)
                                : skip(c, gguf_sizes[type]);
}

static enum tp_code take_tensor(struct cursor *c, struct gguf_tensor *tensor)
{
    uint32_t rank, type;
    uint64_t sizes[4] = {1, 1, 1, 1};
    enum tp_code code = take_string(c, tensor->name, sizeof tensor->name);
    if (code || (code = take(c, &rank, sizeof rank)))
        return code;
    if (rank < 1 || rank > 4)
        return bad_gguf(c, "a tensor has a wrong number of dimensions");
    if ((code = take(c, sizes, rank * sizeof *sizes)) || (code = take(c, &type, sizeof type)) ||
        (code = take(c, &tensor->offset, sizeof tensor->offset)))
        return code;
    tensor->columns = sizes[0];
    if (type != GGUF_F32 || !tp_mul_u64(&tensor->rows, sizes[1], sizes[2]) ||
        !tp_mul_u64(&tensor->rows, tensor->rows, sizes[3]))
        return bad_gguf(c, "a tensor is not of 32-bit floats");
    return TP_OK;
}

static enum tp_code add_sums(struct tp_importance_file *file, const struct gguf_tensor *tensor,
                             size_t base_length, uint64_t data, struct tp_err *err)
{
    struct tp_importance_entry entry = {.columns = tensor->columns, .divisor = 1};
    if (!tp_mul_u64(&entry.count, tensor->columns, tensor->rows) ||
        !tp_add_u64(&entry.offset, data, tensor->offset))
        entry.count = 0; /* not in the file, as add() will say */
    return tp_importance_add(file, tensor->name, base_length, &entry, err);
}

/* The counts of the entry of that name. */
static enum tp_code add_counts(struct tp_importance_file *file, const struct gguf_tensor *tensor,
                               size_t base_length, uint64_t data, struct tp_err *err)
{
    uint64_t offset, count, bytes, end;
    size_t bare = base_length > 7 ? base_length - 7 : 0; /* without ".weight", where it ends so */
    if (bare && memcmp(tensor->name + bare, ".weight", 7) == 0)
        base_length = bare;
    int64_t entry = tp_names_find(&file->names, tensor->name, base_length);
    bool inside = tp_mul_u64(&count, tensor->columns, tensor->rows) && count > 0 &&
                  tp_add_u64(&offset, data, tensor->offset) && tp_mul_u64(&bytes, count, 4) &&
                  tp_add_u64(&end, offset, bytes) && end <= file->size;
    if (entry >= 0 && inside) {
        file->entries[entry].counts = offset;
        file->entries[entry].rows = count;
        return TP_OK;
    }
    tp_err_tensor(err, tensor->name);
    return tp_fail(err, TP_E_INPUT, inside ? "there are no sums to these counts"
                                           : "its counts are not all in the file, which is "
                                             "truncated or damaged");
}

/* All tensors once more, behind the pairs: their sums, or then their counts. */
static enum tp_code
take_tensors(struct tp_importance_file *file, struct cursor *c, uint64_t count, const char *end,
             uint64_t data,
             enum tp_code (*add)(struct tp_importance_file *file, const struct gguf_tensor *tensor,
                                 size_t base_length, uint64_t data, struct tp_err *err))
{
    enum tp_code code = TP_OK;
    for (uint64_t i = 0; i < count && code == TP_OK; i++) {
        struct gguf_tensor tensor;
        code = take_tensor(c, &tensor);
        size_t base_length = code || !add ? 0 : base_of(tensor.name, end);
        if (base_length)
            code = add(file, &tensor, base_length, data, c->err);
    }
    return code;
}

static enum tp_code check_counts(const struct tp_importance_file *file, struct tp_err *err)
{
    for (size_t i = 0; i < file->count; i++)
        if (!file->entries[i].counts) {
            tp_err_tensor(err, file->entries[i].name);
            return tp_fail(err, TP_E_INPUT, "its sums have no counts");
        }
    return TP_OK;
}

enum tp_code tp_importance_gguf(struct tp_importance_file *file, struct tp_err *err)
{
    struct cursor c = {.file = file, .err = err, .at = 4};
    uint32_t version, alignment = 32;
    uint64_t tensors, pairs, data;
    enum tp_code code = take(&c, &version, sizeof version);
    if (code || (code = take(&c, &tensors, sizeof tensors)) ||
        (code = take(&c, &pairs, sizeof pairs)))
        return code;
    if (version < 2 || version > 3)
        return bad_gguf(&c, "its version is not 2 or 3");
    if (tensors > 2 * TP_IMPORTANCE_MAX || !is_left(&c, tensors * 24) || pairs > file->size)
        return bad_gguf(&c, "it counts more tensors or values than it can hold");
    for (uint64_t i = 0; i < pairs && code == TP_OK; i++)
        code = take_pair(&c, &alignment);
    uint64_t first = c.at;
    if (code || (code = take_tensors(file, &c, tensors, "", 0, NULL)))
        return code;
    if (alignment == 0 || !tp_align_u64(&data, c.at, alignment))
        return bad_gguf(&c, "its alignment is wrong");
    c.at = first;
    if ((code = take_tensors(file, &c, tensors, ".in_sum2", data, add_sums)))
        return code;
    c.at = first;
    code = take_tensors(file, &c, tensors, ".counts", data, add_counts);
    return code ? code : check_counts(file, err);
}
