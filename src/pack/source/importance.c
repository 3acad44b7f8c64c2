/* Files of importance: opening, finding a weight, reading its numbers. */
#include "pack/source/importance.h"

#include "base/num.h"
#include "kernels/op/plane.h"
#include "pack/os/os.h"
#include "pack/source/importance_files.h"
#include "pack/source/importance_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---------------------------------------------------------------------- */

/* A header of safetensors is JSON behind its length. */
static bool is_safetensors(const uint8_t begin[9])
{
    uint64_t size;
    memcpy(&size, begin, sizeof size);
    return size < UINT64_C(1) << 32 && begin[8] == '{';
}

static enum tp_code read_names(struct tp_importance_file *file, struct tp_err *err)
{
    uint8_t begin[9];
    if (file->size < sizeof begin)
        return tp_fail(err, TP_E_INPUT, "only %llu bytes, which is too short for a file of "
                       "importance", (unsigned long long)file->size);
    enum tp_code code = tp_os_read(file->fd, begin, sizeof begin, 0, file->path, err);
    if (code)
        return code;
    code = memcmp(begin, "GGUF", 4) == 0 ? tp_importance_gguf(file, err)
           : is_safetensors(begin)       ? tp_importance_safetensors(file, err)
                                         : tp_importance_dat(file, err);
    if (code == TP_OK && file->count == 0)
        code = tp_fail(err, TP_E_INPUT, "it holds no importance of any weight");
    return code;
}

enum tp_code tp_importance_open(const char *path, struct tp_importance_file **opened,
                                struct tp_err *err)
{
    struct stat st;
    struct tp_importance_file *file = tp_os_zalloc(1, sizeof *file, err);
    *opened = NULL;
    if (!file)
        return TP_E_MEMORY;
    file->fd = -1;
    file->path = tp_os_copy(err, path);
    enum tp_code code = file->path ? tp_os_open_regular(path, 0, &file->fd, &st, err)
                                   : TP_E_MEMORY;
    if (code == TP_OK) {
        file->size = (uint64_t)st.st_size;
        code = read_names(file, err);
    }
    if (code == TP_OK) {
        *opened = file;
        return TP_OK;
    }
    tp_err_path(err, path);
    if (code == TP_E_INPUT)
        tp_err_hint(err, "--importance takes safetensors with an F32 tensor for each weight, and "
                         "llama.cpp's imatrix");
    tp_importance_close(file);
    return code;
}

void tp_importance_close(struct tp_importance_file *file)
{
    if (!file)
        return;
    tp_names_close(&file->names);
    for (size_t i = 0; i < file->count; i++)
        free(file->entries[i].name);
    free(file->entries);
    tp_os_close(&file->fd);
    free(file->path);
    free(file);
}

/* ---- finding ---------------------------------------------------------------------- */

static int64_t entry_of(const struct tp_importance_file *file, const char *name)
{
    return tp_names_find(&file->names, name, strlen(name));
}

/* The entry beside that name with this end, or -1. */
static int64_t beside(const struct tp_importance_file *file, const char *name, const char *end)
{
    char text[TP_IMPORTANCE_NAME + 16];
    snprintf(text, sizeof text, "%s%s", name, end);
    return entry_of(file, text);
}

void tp_importance_claim(struct tp_importance_file *file, const char *weight)
{
    struct tp_importance_name name;
    for (uint32_t i = 0; tp_importance_name(weight, i, &name); i++) {
        int64_t entries[] = {entry_of(file, name.text), beside(file, name.text, ".amax"),
                             beside(file, name.text, ".gradient")};
        for (int e = 0; e < 3; e++)
            if (entries[e] >= 0)
                file->entries[entries[e]].claimed = true;
    }
}

enum tp_code tp_importance_all_claimed(const struct tp_importance_file *file, struct tp_err *err)
{
    for (size_t i = 0; i < file->count; i++)
        if (!file->entries[i].claimed && !file->entries[i].rank) {
            tp_err_path(err, file->path);
            tp_err_tensor(err, file->entries[i].name);
            tp_err_hint(err, "make the file with this model, or leave out what is not of it");
            return tp_fail(err, TP_E_INPUT, "this importance belongs to no weight of the "
                           "checkpoint");
        }
    return TP_OK;
}

/* The moments beside the importance that was found, of all experts or of `row`; experts = 0: it may
 * be one of any number of them. */
static enum tp_code find_moments(const struct tp_importance_file *file, const char *weight,
                                 uint64_t row, uint64_t experts, uint64_t k,
                                 struct tp_importance_ref *ref, struct tp_err *err)
{
    const size_t at = file->entries[ref->entry].moments;
    if (!at)
        return TP_OK;
    const struct tp_importance_entry *moments = &file->entries[at - 1];
    const uint64_t rows = moments->count / tp_max_u64(k * moments->rank, 1);
    ref->rank = moments->rank;
    ref->moments_row = rows == 1 ? 0 : row;
    if (moments->columns == k && (rows == 1 || (experts ? rows == experts : row < rows)))
        return TP_OK;
    tp_err_path(err, file->path);
    tp_err_tensor(err, moments->name);
    tp_err_hint(err, "make the file of importance with this model");
    if (moments->columns != k)
        return tp_fail(err, TP_E_INPUT, "its moments are of %llu columns, and %.200s has %llu",
                       (unsigned long long)moments->columns, weight, (unsigned long long)k);
    return tp_fail(err, TP_E_INPUT, "its moments are of %llu experts, which do not fit %.200s",
                   (unsigned long long)rows, weight);
}

enum tp_code tp_importance_find(const struct tp_importance_file *file, const char *weight,
                                uint64_t expert, uint64_t experts, uint64_t k,
                                struct tp_importance_ref *ref, struct tp_err *err)
{
    struct tp_importance_name name;
    int64_t entry = -1;
    *ref = (struct tp_importance_ref){.entry = TP_NO_IMPORTANCE};
    for (uint32_t i = 0; entry < 0 && tp_importance_name(weight, i, &name); i++)
        entry = name.known_only ? -1 : entry_of(file, name.text);
    if (entry < 0)
        return TP_OK;
    uint64_t count = file->entries[entry].count, row = expert;
    uint64_t columns = file->entries[entry].columns;
    bool one_weight = experts == 1 && name.expert >= 0; /* of the experts that an entry stacks */
    if (one_weight)
        row = (uint64_t)name.expert;
    *ref = (struct tp_importance_ref){.entry = (uint32_t)entry, .row = count == k ? 0 : row};
    bool other = columns && columns != k; /* the same count in another shape means others */
    if (!other && (count == k ||
                   (count % k == 0 && (one_weight ? row < count / k : count / k == experts))))
        return find_moments(file, weight, row, one_weight ? 0 : experts, k, ref, err);
    tp_err_path(err, file->path);
    tp_err_tensor(err, file->entries[entry].name);
    tp_err_hint(err, "make the file of importance with this model");
    if (other)
        return tp_fail(err, TP_E_INPUT, "its rows are %llu long, and %.200s has %llu "
                       "columns", (unsigned long long)columns, weight, (unsigned long long)k);
    return tp_fail(err, TP_E_INPUT, "it has %llu numbers, which do not fit the %llu columns of "
                   "%.200s%s", (unsigned long long)count, (unsigned long long)k, weight,
                   experts > 1 || one_weight ? " and its experts" : "");
}

/* ---- numbers ---------------------------------------------------------------------- */

static enum tp_code fail_number(const struct tp_importance_file *file,
                                const struct tp_importance_entry *entry, uint64_t at, float value,
                                struct tp_err *err)
{
    const char *what = entry->rank      ? "moments are finite"
                       : entry->largest ? "the largest magnitude of inputs is finite and above 0"
                       : entry->gradient ? "mean squares are finite and not negative"
                                        : "importance is finite and not negative";
    tp_err_path(err, file->path);
    tp_err_tensor(err, entry->name);
    tp_err_hint(err, "make the file of importance again");
    return tp_fail(err, TP_E_INPUT, "its number %llu is %g: %s", (unsigned long long)at,
                   (double)value, what);
}

/* The number of that expert of a weight, of the entry with the end that stands beside `name`; *value
 * is left alone where there is none. */
static enum tp_code number_of(const struct tp_importance_file *file,
                              const struct tp_importance_name *name, const char *end,
                              const char *weight, uint64_t expert, uint64_t experts, float *value,
                              struct tp_err *err)
{
    const int64_t at = beside(file, name->text, end);
    if (at < 0)
        return TP_OK;
    const struct tp_importance_entry *entry = &file->entries[at];
    const bool stacks = experts == 1 && name->expert >= 0; /* the experts of a layer */
    const uint64_t row = entry->count == 1 ? 0 : stacks ? (uint64_t)name->expert : expert;
    if (entry->count != 1 && (stacks ? row >= entry->count : entry->count != experts)) {
        tp_err_tensor(err, entry->name);
        tp_err_path(err, file->path);
        tp_err_hint(err, "make the file of importance with this model");
        return tp_fail(err, TP_E_INPUT, "it has %llu numbers, which do not fit the experts of "
                       "%.200s", (unsigned long long)entry->count, weight);
    }
    enum tp_code code = tp_os_read(file->fd, value, sizeof *value,
                                   entry->offset + row * sizeof *value, file->path, err);
    if (code == TP_OK && !(isfinite(*value) && (entry->gradient ? *value >= 0 : *value > 0)))
        code = fail_number(file, entry, row, *value, err);
    return code;
}

enum tp_code tp_importance_gradient(const struct tp_importance_file *file, const char *weight,
                                    uint64_t expert, uint64_t experts, float *square,
                                    struct tp_err *err)
{
    struct tp_importance_name name;
    enum tp_code code = TP_OK;
    *square = -1;
    for (uint32_t i = 0; i < 2 && *square < 0 && code == TP_OK; i++) /* both are the weight's own */
        if (tp_importance_name(weight, i, &name))
            code = number_of(file, &name, ".gradient", weight, expert, experts, square, err);
    return code;
}

bool tp_importance_has_gradients(const struct tp_importance_file *file)
{
    return file->gradients;
}

enum tp_code tp_importance_largest(const struct tp_importance_file *file, const char *weight,
                                   uint64_t expert, uint64_t experts, float *largest,
                                   struct tp_err *err)
{
    struct tp_importance_name name;
    enum tp_code code = TP_OK;
    *largest = 0;
    for (uint32_t i = 0; code == TP_OK && tp_importance_name(weight, i, &name); i++) {
        float value = 0;
        code = number_of(file, &name, ".amax", weight, expert, experts, &value, err);
        *largest = fmaxf(*largest, value);
    }
    return code;
}

/* What the numbers of a row are to be divided by; 0: it was never used, and has none. */
static enum tp_code divisor_of(const struct tp_importance_file *file,
                               const struct tp_importance_entry *entry, uint64_t row,
                               float *divisor, struct tp_err *err)
{
    *divisor = entry->divisor;
    if (!entry->counts)
        return TP_OK;
    uint64_t at = entry->rows == 1 ? 0 : row;
    enum tp_code code = at < entry->rows
                            ? tp_os_read(file->fd, divisor, sizeof *divisor,
                                         entry->counts + at * sizeof *divisor, file->path, err)
                            : tp_fail(err, TP_E_INPUT, "its counts are of %llu rows only",
                                      (unsigned long long)entry->rows);
    if (code)
        return code;
    return isfinite(*divisor) && *divisor >= 0 ? TP_OK
                                               : fail_number(file, entry, at, *divisor, err);
}

enum tp_code tp_importance_read(const struct tp_importance_file *file, struct tp_importance_ref ref,
                                uint64_t k, uint64_t first, uint64_t count, float *to,
                                struct tp_err *err)
{
    float divisor;
    memset(to, 0, count * sizeof *to);
    if (ref.entry == TP_NO_IMPORTANCE)
        return TP_OK;
    const struct tp_importance_entry *entry = &file->entries[ref.entry];
    uint64_t begin = ref.row * k + first;
    enum tp_code code = divisor_of(file, entry, ref.row, &divisor, err);
    if (code == TP_OK)
        code = tp_os_read(file->fd, to, count * sizeof *to, entry->offset + begin * sizeof *to,
                          file->path, err);
    for (uint64_t i = 0; i < count && code == TP_OK; i++) {
        float value = divisor > 0 ? to[i] / divisor : 0;
        if (!isfinite(to[i]) || !isfinite(value) || to[i] < 0)
            code = fail_number(file, entry, begin + i, isfinite(to[i]) ? to[i] : value, err);
        to[i] = value;
    }
    return code;
}

const char *tp_importance_path(const struct tp_importance_file *file) { return file->path; }

enum tp_code tp_moments_read(const struct tp_importance_file *file, struct tp_importance_ref ref,
                             uint64_t k, float *to, struct tp_err *err)
{
    const struct tp_importance_entry *entry =
        &file->entries[file->entries[ref.entry].moments - 1];
    const uint64_t count = k * ref.rank, first = ref.moments_row * count;
    const uint64_t width = entry->half ? sizeof(uint16_t) : sizeof(float);
    uint8_t *from = (uint8_t *)to + count * (sizeof *to - width); /* bf16 is widened in place */
    enum tp_code code = tp_os_read(file->fd, from, count * width, entry->offset + first * width,
                                   file->path, err);
    for (uint64_t i = 0; i < count && code == TP_OK; i++) {
        const float value = tp_load_value(from, entry->half ? TP_BF16 : TP_F32, i);
        if (!isfinite(value))
            code = fail_number(file, entry, first + i, value, err);
        to[i] = value;
    }
    return code;
}
