/* The plan: which output goes to which file, and where in it. Outputs come from
 * outputs.c, headers from headers.c.
 *
 * Order is decided by the source's data and by names alone, so the same request
 * on the same source is always the same plan.
 */
#include "pack/plan/unit/build.h"

#include "base/num.h"
#include "base/suffix.h"
#include "pack/os/os.h"
#include "pack/plan/file/config.h"
#include "pack/plan/file/describe.h"
#include "pack/source/index.h"
#include "pack/text/json_scan.h"
#include "pack/text/name_set.h"

#include <stdlib.h>
#include <string.h>

/* Tensors after which a shard is closed, so that its header stays well below what
 * the format allows, whatever the names are like. */
#define MAX_OUTPUTS 100000

/* A unit or a kept tensor: there may be a million of them. */
struct item {
    uint32_t tensor; /* of the source: its data decide on the order */
    uint32_t index : 31, kept : 1;
};
_Static_assert(TP_INDEX_MAX_TENSORS < 1u << 31, "an index has 31 bits");

static int by_source(const void *a, const void *b, void *ckpt)
{
    const struct item *x = a, *y = b;
    const struct tp_tensor *tensors = ((const struct tp_checkpoint *)ckpt)->tensors;
    const struct tp_tensor *s = &tensors[x->tensor], *t = &tensors[y->tensor];
    if (s->file != t->file)
        return s->file < t->file ? -1 : 1;
    if (s->offset != t->offset)
        return s->offset < t->offset ? -1 : 1;
    if (x->kept != y->kept)
        return x->kept ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static struct item item_of(const struct tp_plan *plan, bool kept, uint32_t index)
{
    uint32_t t = kept ? plan->kept[index].tensor
                      : plan->weights->items[plan->units[index].views[0].weight].tensor[0];
    return (struct item){.tensor = t, .index = index, .kept = kept};
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

/* Room for all outputs, and no more; of no more than can be read again. */
static enum tp_code reserve_outputs(struct tp_builder *b, bool one_file)
{
    uint64_t max = one_file ? TP_ST_MAX_TENSORS : TP_INDEX_MAX_TENSORS;
    struct tp_plan *plan = b->plan;
    size_t count = plan->kept_count;
    for (size_t u = 0; u < plan->unit_count; u++)
        count += plan->units[u].form->format ? plan->units[u].form->op.outs : 1;
    if (count <= max)
        return tp_os_grow((void **)&plan->outputs, &b->output_capacity, count,
                          sizeof *plan->outputs, b->err);
    tp_err_hint(b->err, one_file ? "choose a directory as the output"
                                 : "convert the checkpoint in parts, one shard at a time");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "the output would have %zu tensors, more than the "
                   "limit of %llu", count, (unsigned long long)max);
}

static enum tp_code place_all(struct tp_builder *b, uint64_t shard_size)
{
    struct tp_plan *plan = b->plan;
    size_t count = 0, total = plan->unit_count + plan->kept_count;
    struct item *items = tp_os_zalloc(total + 1, sizeof *items, b->err);
    enum tp_code code = items ? reserve_outputs(b, shard_size == UINT64_MAX) : TP_E_MEMORY;
    if (code) {
        free(items);
        return code;
    }
    for (uint32_t u = 0; u < plan->unit_count; u++)
        items[count++] = item_of(plan, false, u);
    for (uint32_t k = 0; k < plan->kept_count; k++)
        if (!follows(plan, k))
            items[count++] = item_of(plan, true, k);
    qsort_r(items, count, sizeof *items, by_source, (void *)(uintptr_t)plan->ckpt);
    uint64_t fill = 0;
    for (size_t i = 0; i < count && code == TP_OK; i++)
        code = place_item(b, &items[i], shard_size, &fill);
    if (code == TP_OK && plan->file_count == 0)
        code = add_file(b);
    free(items);
    return code;
}

/* Within a file: wide elements first, so that every tensor is aligned to its
 * element, then large tensors, then by name. */
static int by_order(const void *a, const void *b)
{
    const struct tp_output *x = a, *y = b;
    unsigned x_bits = tp_dtype_bits((enum tp_dtype)x->dtype);
    unsigned y_bits = tp_dtype_bits((enum tp_dtype)y->dtype);
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x_bits != y_bits)
        return x_bits > y_bits ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static const char *name_at(void *arg, size_t o)
{
    return ((const struct tp_plan *)arg)->outputs[o].name;
}

static enum tp_code check_names(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    size_t twice;
    enum tp_code code = tp_names_repeated(name_at, plan, plan->output_count, &twice, b->err);
    if (code || twice == plan->output_count)
        return code;
    tp_err_tensor(b->err, name_at(plan, twice));
    tp_err_hint(b->err, "leave one of the two weights out with --exclude");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "two outputs would have this name");
}

static const char *packed_at(void *arg, size_t u)
{
    const struct tp_plan *plan = arg;
    return u < plan->unit_count ? plan->units[u].name : plan->kept_units[u - plan->unit_count].name;
}

/* Their tensors may differ by their suffixes, and readers still find one of the two alone. What is
 * recorded was allowed then. */
static enum tp_code check_packed_names(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    size_t twice, count = plan->unit_count + plan->kept_unit_count;
    if (plan->restores || b->request->recorded)
        return TP_OK;
    enum tp_code code = tp_names_repeated(packed_at, plan, count, &twice, b->err);
    if (code || twice == count)
        return code;
    tp_err_tensor(b->err, packed_at(plan, twice));
    tp_err_hint(b->err, "leave one of the two out with --exclude");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "two packed weights would have this name");
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

static enum tp_code name_file(struct tp_builder *b, uint32_t f, const char *file_name)
{
    struct tp_plan *plan = b->plan;
    plan->files[f].name =
        file_name                ? tp_os_format(b->err, "%s", file_name)
        : plan->file_count == 1  ? tp_os_format(b->err, "%s.safetensors", plan->ckpt->base)
                                 : tp_os_format(b->err, "%s-%05u-of-%05zu.safetensors",
                                                plan->ckpt->base, f + 1, plan->file_count);
    return plan->files[f].name ? TP_OK : TP_E_MEMORY;
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

static enum tp_code check_utf8(const struct tp_builder *b, const char *name)
{
    if (tp_is_utf8(name))
        return TP_OK;
    tp_err_path(b->err, b->plan->ckpt->path);
    tp_err_hint(b->err, "rename it, or convert from a folder without it");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "the name of the file '%.200s' is not UTF-8: the "
                   "manifest of the output cannot hold it", name);
}

/* A manifest names the files that are read and those that are copied. */
static enum tp_code check_file_names(const struct tp_builder *b)
{
    const struct tp_checkpoint *ckpt = b->plan->ckpt;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < ckpt->file_count && code == TP_OK; i++)
        code = check_utf8(b, ckpt->files[i].name);
    for (size_t i = 0; i < ckpt->other_count && code == TP_OK; i++)
        if (!tp_config_leaves_out(b->plan, ckpt->others[i]))
            code = check_utf8(b, ckpt->others[i]);
    return code;
}

/* Tensors by whose names PEFT, diffusers and others store what is to be added to a model. */
static bool is_adapter(const char *name)
{
    static const char *const endings[] = {
        ".lora_A.weight", ".lora_B.weight", ".lora_A.default.weight", ".lora_B.default.weight",
        ".lora_down.weight", ".lora.down.weight", ".hada_w1_a", ".lokr_w1", ".lokr_w1_a"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (tp_ends_with(name, endings[i]))
            return true;
    return false;
}

static enum tp_code check_adapter(const struct tp_builder *b)
{
    const struct tp_checkpoint *ckpt = b->plan->ckpt;
    size_t t = 0;
    while (t < ckpt->tensor_count && !is_adapter(ckpt->tensors[t].name))
        t++;
    if (t == ckpt->tensor_count)
        return TP_OK;
    tp_err_path(b->err, ckpt->path);
    tp_err_tensor(b->err, ckpt->tensors[t].name);
    tp_err_hint(b->err, "merge it first, in Python: PeftModel.from_pretrained(MODEL, ADAPTER)"
                        ".merge_and_unload().save_pretrained(DST), then convert DST");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "this tensor is of a LoRA adapter, which is no weight "
                   "until it is merged into its model");
}

/* What is copied must not have the name of what is written. */
static enum tp_code check_copies(const struct tp_builder *b)
{
    const struct tp_plan *plan = b->plan;
    for (size_t i = 0; i < plan->ckpt->other_count && plan->ckpt->copy_count; i++) {
        const char *name = plan->ckpt->others[i], *end = strstr(name, TP_INDEX_END);
        size_t f = 0;
        while (f < plan->file_count && !tp_begins_with(name, plan->files[f].name))
            f++;
        if (f == plan->file_count && (!end || strcmp(tp_stem_of(name), plan->ckpt->base) != 0))
            continue;
        tp_err_path(b->err, plan->ckpt->path);
        tp_err_hint(b->err, "copy it by hand, under another name");
        return tp_fail(b->err, TP_E_UNSUPPORTED, "--copy: '%.200s' has a name of the output's own "
                       "files", name);
    }
    return TP_OK;
}

/* An index that no reader of this program would take is never begun. */
static enum tp_code check_index(const struct tp_builder *b)
{
    uint64_t size;
    enum tp_code code = tp_index_size(b->plan, &size, b->err);
    if (code || size <= TP_INDEX_MAX_BYTES)
        return code;
    tp_err_hint(b->err, "shorten the names of the tensors, or convert the checkpoint in parts, "
                        "one shard at a time");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "the index of the output would have %llu bytes, more "
                   "than the limit of %llu", (unsigned long long)size,
                   (unsigned long long)TP_INDEX_MAX_BYTES);
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
    enum tp_code code = check_adapter(b);
    if (code == TP_OK)
        code = place_all(b, file_name ? UINT64_MAX : shard_size);
    if (code == TP_OK && !file_name)
        code = check_file_names(b);
    if (code || (code = check_names(b)) || (code = check_packed_names(b)) || (code = sort_units(b)))
        return code;
    if (!outline)
        qsort(plan->outputs, plan->output_count, sizeof *plan->outputs, by_order);
    number_outputs(plan);
    for (size_t t = 0; t < plan->ckpt->tensor_count; t++)
        plan->bytes_in += plan->ckpt->tensors[t].bytes;
    for (uint32_t f = 0; f < plan->file_count && code == TP_OK; f++)
        code = name_file(b, f, file_name);
    if (code == TP_OK && !file_name)
        code = check_copies(b);
    if (code == TP_OK && !file_name && !outline)
        code = check_index(b);
    return code || outline ? code : tp_plan_headers(b);
}
