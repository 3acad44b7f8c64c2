/* The plan: files, headers and hash; the parts that every kind of plan shares. Units
 * come from plan_units.c or plan_unpack.c, their outputs from plan_outputs.c.
 *
 * Order is decided by the source's data and by names alone, so the same request
 * on the same source is always the same plan.
 */
#include "pack/plan/plan.h"

#include "base/num.h"
#include "pack/plan/config.h"
#include "pack/plan/describe.h"
#include "pack/source/descriptor.h"
#include "pack/text/json_memory.h"
#include "pack/file/leafhash.h"
#include "pack/text/name_set.h"
#include "pack/os/os.h"
#include "pack/plan/plan_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 4096
/* Tensors after which a shard is closed, so that its header stays well below what
 * the format allows, whatever the names are like. */
#define MAX_OUTPUTS 100000
#define HASH_DIGITS "00000000000000000000000000000000"

enum tp_code tp_plan_add_unit(struct tp_builder *b, struct tp_unit *unit)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->units, &b->unit_capacity, plan->unit_count + 1,
                                   sizeof *plan->units, b->err);
    if (code) {
        free(unit->name);
        free(unit->prefix);
        free(unit->parts);
        return code;
    }
    plan->units[plan->unit_count++] = *unit;
    return TP_OK;
}

const struct tp_part *tp_unit_part(const struct tp_unit *unit, uint64_t e, uint64_t n,
                                   uint64_t *row, uint64_t *rows_left)
{
    uint32_t p = 0;
    while (p + 1 < unit->parts_per_expert && n >= unit->part_rows[p])
        n -= unit->part_rows[p++];
    const struct tp_part *part = &unit->parts[e * unit->parts_per_expert + p];
    *row = part->row + n;
    *rows_left = unit->part_rows[p] - n;
    return part;
}

/* Units and kept tensors in the order of the source's data. */
struct item {
    uint32_t file;
    uint64_t offset;
    bool kept;
    uint32_t index;
};

static int by_source(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->kept != y->kept)
        return x->kept ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static struct item item_of(const struct tp_plan *plan, bool kept, uint32_t index)
{
    uint32_t t = kept ? plan->kept[index].tensor
                      : plan->weights->items[plan->units[index].parts[0].weight].tensor[0];
    return (struct item){plan->ckpt->tensors[t].file, plan->ckpt->tensors[t].offset, kept, index};
}

static enum tp_code add_file(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->files, &b->file_capacity, plan->file_count + 1,
                                   sizeof *plan->files, b->err);
    if (code == TP_OK)
        memset(&plan->files[plan->file_count++], 0, sizeof *plan->files);
    return code;
}

/* Whether kept tensor k follows another one of the same packed weight. */
static bool follows(const struct tp_plan *plan, size_t k)
{
    return k > 0 && k < plan->kept_count && plan->kept[k].unit != UINT32_MAX &&
           plan->kept[k].unit == plan->kept[k - 1].unit;
}

static enum tp_code item_outputs(struct tp_builder *b, const struct item *item)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = TP_OK;
    size_t k = item->index;
    if (!item->kept)
        return tp_plan_unit_outputs(b, item->index);
    do
        code = tp_plan_kept_output(b, &plan->kept[k++]);
    while (code == TP_OK && follows(plan, k));
    return code;
}

/* Outputs of one item all go to one file; a file is closed when it is full. */
static enum tp_code place_item(struct tp_builder *b, const struct item *item, uint64_t shard_size,
                               uint64_t *fill)
{
    struct tp_plan *plan = b->plan;
    size_t first = plan->output_count;
    enum tp_code code = item_outputs(b, item);
    uint64_t bytes = 0;
    for (size_t o = first; o < plan->output_count && code == TP_OK; o++)
        if (!tp_add_u64(&bytes, bytes, plan->outputs[o].bytes))
            code = tp_fail(b->err, TP_E_UNSUPPORTED, "the output is too large");
    if (code)
        return code;
    bool full = *fill && bytes > shard_size - tp_min_u64(*fill, shard_size);
    bool many = first - b->file_begins >= MAX_OUTPUTS && shard_size < UINT64_MAX;
    if (plan->file_count == 0 || full || many) {
        if ((code = add_file(b)))
            return code;
        *fill = 0;
        b->file_begins = first;
    }
    *fill += bytes;
    for (size_t o = first; o < plan->output_count; o++)
        plan->outputs[o].file = (uint32_t)plan->file_count - 1;
    uint32_t file = (uint32_t)plan->file_count - 1;
    if (!item->kept)
        plan->units[item->index].file = file;
    else if (plan->kept[item->index].unit != UINT32_MAX)
        plan->kept_units[plan->kept[item->index].unit].file = file;
    return TP_OK;
}

static enum tp_code place_all(struct tp_builder *b, uint64_t shard_size)
{
    struct tp_plan *plan = b->plan;
    size_t count = 0, total = plan->unit_count + plan->kept_count;
    struct item *items = tp_os_zalloc(total + 1, sizeof *items, b->err);
    if (!items)
        return TP_E_MEMORY;
    for (uint32_t u = 0; u < plan->unit_count; u++)
        items[count++] = item_of(plan, false, u);
    for (uint32_t k = 0; k < plan->kept_count; k++)
        if (!follows(plan, k))
            items[count++] = item_of(plan, true, k);
    qsort(items, count, sizeof *items, by_source);
    uint64_t fill = 0;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && code == TP_OK; i++)
        code = place_item(b, &items[i], shard_size, &fill);
    if (code == TP_OK && plan->file_count == 0)
        code = add_file(b);
    free(items);
    return code;
}

/* The same units and kept tensors in each file as in another plan. */
static enum tp_code place_like(struct tp_builder *b, const struct tp_plan *other)
{
    struct tp_plan *plan = b->plan;
    uint32_t *file_of = tp_os_zalloc(plan->ckpt->tensor_count + 1, sizeof *file_of, b->err);
    enum tp_code code = file_of ? TP_OK : TP_E_MEMORY;
    for (size_t o = 0; o < other->output_count && code == TP_OK; o++)
        if (other->outputs[o].unit == UINT32_MAX)
            file_of[other->outputs[o].source] = other->outputs[o].file;
    for (size_t f = 0; f < other->file_count && code == TP_OK; f++)
        code = add_file(b);
    for (uint32_t u = 0; u < plan->unit_count && code == TP_OK; u++) {
        size_t first = plan->output_count;
        code = item_outputs(b, &(struct item){.index = u});
        for (size_t o = first; o < plan->output_count; o++)
            plan->outputs[o].file = plan->units[u].file;
    }
    for (size_t k = 0; k < plan->kept_count && code == TP_OK; k++) {
        code = tp_plan_kept_output(b, &plan->kept[k]);
        if (code == TP_OK)
            plan->outputs[plan->output_count - 1].file = file_of[plan->kept[k].tensor];
    }
    free(file_of);
    return code;
}

/* Within a file: wide elements first, so that every tensor is aligned to its
 * element, then large tensors, then by name. */
struct place {
    uint32_t file, bits;
    uint64_t bytes;
    const struct tp_output *output;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->bits != y->bits)
        return x->bits > y->bits ? -1 : 1;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

/* The outputs in the order of `places`, those of equal place by name. */
static void copy_sorted(const struct place *places, size_t count, struct tp_name_key *keys,
                        struct tp_output *to)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && by_place(&places[first], &places[end]) == 0; end++)
            keys[end] = (struct tp_name_key){.name = places[end].output->name, .index = end};
        tp_names_sort(keys + first, end - first);
        for (size_t i = first; i < end; i++)
            to[i] = *places[keys[i].index].output;
    }
}

static enum tp_code sort_outputs(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    size_t count = plan->output_count;
    struct place *places = tp_os_zalloc(count + 1, sizeof *places, b->err);
    struct tp_name_key *keys = tp_os_zalloc(count + 1, sizeof *keys, b->err);
    struct tp_output *sorted = tp_os_zalloc(count + 1, sizeof *sorted, b->err);
    enum tp_code code = places && keys && sorted ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK) {
        for (size_t o = 0; o < count; o++) {
            const struct tp_output *output = &plan->outputs[o];
            places[o] = (struct place){output->file, tp_dtype_bits(output->dtype), output->bytes,
                                       output};
        }
        qsort(places, count, sizeof *places, by_place);
        copy_sorted(places, count, keys, sorted);
        free(plan->outputs);
        plan->outputs = sorted;
        b->output_capacity = count + 1;
    } else {
        free(sorted);
    }
    free(places);
    free(keys);
    return code;
}

static enum tp_code check_names(struct tp_builder *b)
{
    const struct tp_plan *plan = b->plan;
    struct tp_names names = {0};
    enum tp_code code = TP_OK;
    for (size_t o = 0; o < plan->output_count && code == TP_OK; o++) {
        const char *name = plan->outputs[o].name;
        uint32_t number = 0;
        code = tp_names_add(&names, name, strlen(name), &number, b->err);
        if (code == TP_OK && number != o) {
            tp_err_tensor(b->err, name);
            tp_err_hint(b->err, "leave one of the two weights out with --exclude");
            code = tp_fail(b->err, TP_E_UNSUPPORTED, "two outputs would have this name");
        }
    }
    tp_names_close(&names);
    return code;
}

/* Puts one list of units behind those that are in place already. */
static void list_units(struct tp_plan *plan, const struct tp_unit *units, size_t count)
{
    for (size_t u = 0; u < count; u++) {
        struct tp_plan_file *file = &plan->files[units[u].file];
        plan->units_by_file[file->first_unit + file->unit_count++] = &units[u];
    }
}

static enum tp_code sort_units(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    uint32_t at = 0;
    plan->units_by_file = tp_os_zalloc(plan->unit_count + plan->kept_unit_count + 1,
                                       sizeof *plan->units_by_file, b->err);
    if (!plan->units_by_file)
        return TP_E_MEMORY;
    for (size_t u = 0; u < plan->unit_count; u++)
        plan->files[plan->units[u].file].unit_count++;
    for (size_t u = 0; u < plan->kept_unit_count; u++)
        plan->files[plan->kept_units[u].file].unit_count++;
    for (size_t f = 0; f < plan->file_count; f++) {
        plan->files[f].first_unit = at;
        at += plan->files[f].unit_count;
        plan->files[f].unit_count = 0;
    }
    list_units(plan, plan->units, plan->unit_count);
    list_units(plan, plan->kept_units, plan->kept_unit_count);
    return TP_OK;
}

static enum tp_code file_meta(struct tp_builder *b, uint32_t file, char *texts[3])
{
    struct tp_text units = {0};
    enum tp_code code = tp_descriptors_text(b->plan, file, &texts[0], &units, b->err);
    if (code)
        return code;
    json_t *request = tp_request_json(b->request);
    texts[1] = units.data;
    texts[2] = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    return texts[2] ? TP_OK : tp_fail(b->err, TP_E_MEMORY, "out of memory for the descriptors");
}

/* Sets offsets relative to the data and writes the header. */
static enum tp_code write_header(struct tp_builder *b, uint32_t f, struct tp_st_tensor *tensors)
{
    struct tp_plan *plan = b->plan;
    struct tp_plan_file *file = &plan->files[f];
    char *texts[3] = {0};
    struct tp_text text = {0};
    uint64_t at = 0;
    for (uint32_t i = 0; i < file->output_count; i++) {
        struct tp_output *output = &plan->outputs[file->first_output + i];
        output->offset = at;
        tensors[i] = (struct tp_st_tensor){output->name, output->dtype, output->rank, {0}, at, at};
        memcpy(tensors[i].shape, output->shape, sizeof output->shape);
        if (!tp_add_u64(&at, at, output->bytes))
            return tp_fail(b->err, TP_E_UNSUPPORTED, "the output file is too large");
        tensors[i].end = at;
    }
    enum tp_code code = file_meta(b, f, texts);
    struct tp_st_meta meta[] = {{"format", "pt"},
                                {TP_META_VERSION, TP_DESCRIPTOR_VERSION},
                                {TP_META_HASH, HASH_DIGITS},
                                {TP_META_REQUEST, texts[2]},
                                {TP_META_DESCRIPTORS, texts[0]},
                                {TP_META_UNITS, texts[1]}};
    if (code == TP_OK)
        code = tp_st_write_header(tensors, file->output_count, meta,
                                  plan->restores ? 4 : 6, DATA_ALIGN, &text, b->err);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
    if (code) {
        tp_text_free(&text);
        return code;
    }
    file->header = text.data;
    file->header_size = text.size;
    const char *mark = memmem(text.data, text.size, "\"" TP_META_HASH "\":\"",
                              strlen("\"" TP_META_HASH "\":\""));
    file->hash_at = (uint64_t)(mark - text.data) + strlen("\"" TP_META_HASH "\":\"");
    if (!tp_add_u64(&file->size, at, text.size))
        return tp_fail(b->err, TP_E_UNSUPPORTED, "the output file is too large");
    for (uint32_t i = 0; i < file->output_count; i++)
        plan->outputs[file->first_output + i].offset += text.size;
    return TP_OK;
}

static enum tp_code name_file(struct tp_builder *b, uint32_t f, const char *file_name)
{
    struct tp_plan *plan = b->plan;
    plan->files[f].name =
        file_name                ? tp_os_format(b->err, "%s", file_name)
        : plan->file_count == 1  ? tp_os_format(b->err, "model.safetensors")
                                 : tp_os_format(b->err, "model-%05u-of-%05zu.safetensors", f + 1,
                                                plan->file_count);
    return plan->files[f].name ? TP_OK : TP_E_MEMORY;
}

/* Identity of source and result: the hash of everything that decides the bytes. */
static enum tp_code hash_plan(const struct tp_plan *plan, bool times, uint8_t hash[16],
                              struct tp_err *err)
{
    struct tp_text text = {0};
    uint8_t part[TP_HASH_BYTES];
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < plan->ckpt->file_count && code == TP_OK; i++) {
        const struct tp_file *file = &plan->ckpt->files[i];
        code = tp_text_addf(&text, err, "%s %llu %lld\n", file->name,
                            (unsigned long long)file->size, times ? (long long)file->mtime_ns : 0);
        if (code == TP_OK)
            code = tp_text_add(&text, (const char *)file->header_hash, 16, err);
    }
    if (code == TP_OK && plan->ckpt->config)
        code = tp_text_add(&text, plan->ckpt->config, plan->ckpt->config_size, err);
    for (size_t f = 0; f < plan->file_count && code == TP_OK; f++) {
        tp_hash(plan->files[f].header, plan->files[f].header_size, part);
        code = tp_text_add(&text, (const char *)part, sizeof part, err);
    }
    if (code == TP_OK)
        tp_hash(text.data, text.size, hash);
    tp_text_free(&text);
    return code;
}

/* Tells files and units which outputs are theirs. */
static void number_outputs(struct tp_plan *plan)
{
    for (uint32_t o = 0; o < plan->output_count; o++) {
        struct tp_output *output = &plan->outputs[o];
        struct tp_plan_file *file = &plan->files[output->file];
        if (file->output_count++ == 0)
            file->first_output = o;
        if (output->unit != UINT32_MAX)
            plan->units[output->unit].output[output->source] = o;
        plan->bytes_out += output->bytes;
    }
}

/* Offsets, headers and hash: what an outline does without. */
static enum tp_code write_headers(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    struct tp_st_tensor *tensors = tp_os_zalloc(plan->output_count + 1, sizeof *tensors, b->err);
    enum tp_code code = tensors ? TP_OK : TP_E_MEMORY;
    for (uint32_t f = 0; f < plan->file_count && code == TP_OK; f++)
        code = write_header(b, f, tensors);
    free(tensors);
    if (code == TP_OK && (code = hash_plan(plan, true, plan->hash, b->err)) == TP_OK)
        code = hash_plan(plan, false, plan->id, b->err);
    return code;
}

enum tp_code tp_plan_files(struct tp_builder *b, const char *file_name)
{
    struct tp_plan *plan = b->plan;
    bool outline = b->request->outline;
    uint64_t shard_size = b->request->shard_size ? b->request->shard_size : TP_DEFAULT_SHARD_SIZE;
    plan->single_file = file_name != NULL;
    if (!plan->ckpt->tensor_count) {
        tp_err_path(b->err, plan->ckpt->path);
        tp_err_hint(b->err, "get the checkpoint again, or give the one that you meant");
        return tp_fail(b->err, TP_E_INPUT, "there is no tensor in it");
    }
    enum tp_code code = b->follow ? place_like(b, b->follow)
                                  : place_all(b, file_name ? UINT64_MAX : shard_size);
    if (code || (code = check_names(b)) || (code = sort_units(b)) ||
        (!outline && (code = sort_outputs(b))))
        return code;
    number_outputs(plan);
    for (size_t t = 0; t < plan->ckpt->tensor_count; t++)
        plan->bytes_in += plan->ckpt->tensors[t].bytes;
    for (uint32_t f = 0; f < plan->file_count && code == TP_OK; f++)
        code = name_file(b, f, file_name);
    return code || outline ? code : write_headers(b);
}

static enum tp_code keep_the_rest(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (!b->choices[w].rule)
            code = tp_plan_keep_weight(b, w, b->choices[w].reason);
    for (size_t i = 0; i < weights->other_count && code == TP_OK; i++)
        code = tp_plan_add_kept(b, weights->other[i], UINT32_MAX, NULL);
    return code;
}

void tp_builder_close(struct tp_builder *b)
{
    for (size_t w = 0; b->choices && w < b->plan->weights->count; w++)
        free(b->choices[w].reason);
    free(b->choices);
    b->choices = NULL;
}

/* A config.json that cannot be edited is found now, not after hours of writing. */
static enum tp_code check_config(const struct tp_plan *plan, struct tp_err *err)
{
    struct tp_text text = {0};
    enum tp_code code = tp_config_text(plan, &text, err);
    tp_text_free(&text);
    return code;
}

enum tp_code tp_plan_convert(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                             struct tp_request *request, const char *file_name,
                             struct tp_plan *plan, struct tp_err *err)
{
    struct tp_builder b = {.plan = plan, .request = request, .err = err};
    uint64_t mark = tp_json_mark();
    *plan = (struct tp_plan){.ckpt = ckpt, .weights = weights};
    b.choices = tp_os_zalloc(weights->count + 1, sizeof *b.choices, err);
    enum tp_code code = b.choices ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && (code = tp_plan_select(&b)) == TP_OK &&
        (code = tp_plan_check_sources(&b)) == TP_OK && (code = tp_plan_units(&b)) == TP_OK &&
        (code = tp_plan_stats(&b)) == TP_OK && (code = keep_the_rest(&b)) == TP_OK)
        code = tp_plan_files(&b, file_name);
    if (code == TP_OK && !file_name)
        code = check_config(plan, err);
    code = tp_json_check(mark, code, err);
    tp_builder_close(&b);
    if (code)
        tp_plan_close(plan);
    return code;
}

static void free_units(struct tp_unit *units, size_t count)
{
    for (size_t u = 0; u < count; u++) {
        free(units[u].name);
        free(units[u].prefix);
        free(units[u].parts);
    }
    free(units);
}

void tp_plan_close(struct tp_plan *plan)
{
    free_units(plan->units, plan->unit_count);
    free_units(plan->kept_units, plan->kept_unit_count);
    for (size_t o = 0; o < plan->output_count; o++) {
        free(plan->outputs[o].name);
        free(plan->outputs[o].constant);
    }
    for (size_t k = 0; k < plan->kept_count; k++)
        free(plan->kept[k].reason);
    for (size_t f = 0; f < plan->file_count; f++) {
        free(plan->files[f].name);
        free(plan->files[f].header);
    }
    free(plan->outputs);
    free(plan->kept);
    free(plan->files);
    free(plan->groups);
    free(plan->stats_units);
    free(plan->units_by_file);
    memset(plan, 0, sizeof *plan);
}
