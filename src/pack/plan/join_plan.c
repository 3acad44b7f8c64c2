/* Joining: the plan of the whole. What is read from files is checked before it decides an
 * offset.
 */
#include "pack/plan/join_plan.h"

#include "base/num.h"
#include "pack/file/own_hash.h"
#include "pack/os/os.h"
#include "pack/plan/constant.h"
#include "pack/plan/describe.h"
#include "pack/plan/ranks.h"
#include "pack/source/descriptor.h"
#include "pack/source/index.h"
#include "pack/text/json_tree.h"
#include "pack/text/name_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *tp_join_plan_text(const struct tp_join_plan *join, const char *key)
{
    const char *text = json_string_value(json_object_get(join->info, key));
    return text ? text : "";
}

static enum tp_code bad_info(struct tp_join_plan *join, struct tp_err *err, const char *what)
{
    char *path = tp_os_format(err, "%s/%s", join->path, TP_RANKS_NAME);
    if (path)
        tp_err_path(err, path);
    free(path);
    tp_err_hint(err, "convert again, or take the file of that conversion");
    return tp_fail(err, TP_E_INPUT, "%s", what);
}

static enum tp_code read_info(struct tp_join_plan *join, struct tp_err *err)
{
    struct stat st;
    size_t size;
    char *text = NULL, *path = tp_os_format(err, "%s/%s", join->path, TP_RANKS_NAME);
    if (!tp_os_there(path, &st, err)) {
        free(path);
        if (err->code)
            return err->code;
        tp_err_path(err, join->path);
        tp_err_hint(err, "name the directory that 'tilepack convert --tp' wrote");
        return tp_fail(err, TP_E_USAGE, "there are no ranks here (no %s)", TP_RANKS_NAME);
    }
    uint64_t mark = tp_json_mark();
    enum tp_code code = tp_os_slurp(path, TP_RANKS_MOST, &text, &size, err);
    if (code == TP_OK) {
        tp_hash(text, size, join->info_hash);
        join->info = tp_json_load(text, size, NULL);
        if ((code = tp_json_check(mark, TP_OK, err)))
            tp_err_path(err, path);
    }
    free(path);
    if (code) {
        free(text);
        return code;
    }
    json_int_t version = json_integer_value(json_object_get(join->info, "tilepack_tp"));
    bool right = tp_own_hash_right(text, size);
    free(text);
    bool has_hash = json_object_get(join->info, TP_OWN_KEY) != NULL;
    join->unchecked = version == 1;
    if ((has_hash || version == TP_RANKS_VERSION) && !right)
        return bad_info(join, err, "its text has changed: its own hash is wrong");
    if (version == 1 && (has_hash || json_object_get(join->info, "rank_files")))
        return bad_info(join, err, "it says that it is of version 1, but has \"" TP_OWN_KEY "\" or "
                        "\"rank_files\", which that has not");
    json_int_t ranks = json_integer_value(json_object_get(join->info, "ranks"));
    if (!json_is_object(join->info) ||
        (version != 1 && version != TP_RANKS_VERSION) || ranks < 1 ||
        ranks > TP_MAX_RANKS ||
        json_array_size(json_object_get(join->info, "rank_plans")) != (size_t)ranks)
        return bad_info(join, err, "not what this version of tilepack writes beside ranks");
    join->count = (unsigned)ranks;
    return TP_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tp_named *)a)->name, ((const struct tp_named *)b)->name);
}

static void sort_names(struct tp_name_list *names)
{
    if (names->count)
        qsort(names->items, names->count, sizeof *names->items, by_name);
}

static const struct tp_named *find_name(const struct tp_name_list *names, const char *name)
{
    struct tp_named key = {name, 0};
    return names->count ? bsearch(&key, names->items, names->count, sizeof key, by_name) : NULL;
}

/* ---- ranks ------------------------------------------------------------------ */

enum tp_code tp_join_plan_rank(struct tp_join_plan *join, unsigned r, const char *path,
                               struct tp_err *err)
{
    struct tp_weights *weights = &join->weights[r];
    enum tp_code code = tp_checkpoint_open(path, join->flags, &join->ckpts[r], err);
    if (code || (code = tp_weights_find(&join->ckpts[r], weights, err)))
        return code;
    struct tp_name_list *names = &join->packed[r];
    if (!(names->items = tp_os_zalloc(weights->count + 1, sizeof *names->items, err)))
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < weights->count; w++) {
        const struct tp_weight *weight = &weights->items[w];
        if (!weight->form->format)
            continue;
        const char *prefix = tp_store_join(&join->prefixes, weight->name, strlen(weight->name),
                                           (char[2]){weight->form->joint}, err);
        if (!prefix)
            return TP_E_MEMORY;
        names->items[names->count++] = (struct tp_named){prefix, w};
    }
    sort_names(names);
    return TP_OK;
}

static const struct tp_weight *find_weight(const struct tp_join_plan *join, unsigned r,
                                           const char *prefix)
{
    const struct tp_named *found = find_name(&join->packed[r], prefix);
    return found ? &join->weights[r].items[found->index] : NULL;
}

/* ---- files and outputs of the whole -------------------------------------------- */

static enum tp_code add_outputs(struct tp_join_plan *join, const struct tp_st_header *header,
                                size_t *capacity, struct tp_err *err)
{
    struct tp_plan *plan = &join->plan;
    struct tp_plan_file *file = &plan->files[plan->file_count];
    enum tp_code code = tp_os_grow((void **)&plan->outputs, capacity,
                                   plan->output_count + header->count, sizeof *plan->outputs, err);
    file->first_output = (uint32_t)plan->output_count;
    for (size_t i = 0; i < header->count && code == TP_OK; i++) {
        const struct tp_st_tensor *tensor = &header->tensors[i];
        struct tp_output *output = &plan->outputs[plan->output_count];
        *output = (struct tp_output){.dtype = (uint8_t)tensor->dtype,
                                     .rank = (uint8_t)tensor->rank,
                                     .bytes = tensor->end - tensor->begin,
                                     .file = (uint32_t)plan->file_count,
                                     .offset = file->header_size + tensor->begin,
                                     .unit = UINT32_MAX};
        output->shape = tp_store_copy(&plan->store, tensor->shape,
                                      tensor->rank * sizeof *tensor->shape, err);
        output->name = tp_store_join(&plan->store, tensor->name, strlen(tensor->name), "", err);
        if (!output->shape || !output->name)
            return TP_E_MEMORY;
        plan->output_count++;
        file->output_count++;
        plan->bytes_out += output->bytes;
    }
    return code;
}

/* The digits that are written over: as many zeros as a hash has. */
static bool has_hash_place(const struct tp_st_header *header)
{
    const char *digits = tp_st_meta(header, TP_META_HASH);
    return digits && strlen(digits) == TP_HASH_TEXT - 1 &&
           strspn(digits, "0") == TP_HASH_TEXT - 1;
}

static enum tp_code add_file(struct tp_join_plan *join, const json_t *json, size_t *capacity,
                             struct tp_err *err)
{
    struct tp_plan_file *file = &join->plan.files[join->plan.file_count];
    const char *name = json_string_value(json_object_get(json, "name"));
    const json_t *text = json_object_get(json, "header");
    json_int_t size = json_integer_value(json_object_get(json, "size"));
    uint64_t length = json_string_length(text);
    const char *mark = "\"" TP_META_HASH "\":\"";
    struct tp_st_header header = {0};
    if (!name || strchr(name, '/') || name[0] == '.' || !json_is_string(text) || size < 0 ||
        length + 8 > (uint64_t)size)
        return bad_info(join, err, "an entry of \"files\" lacks a plain name, size or header");
    file->size = (uint64_t)size;
    file->header_size = length + 8;
    file->name = tp_os_format(err, "%s", name);
    char *prefix = tp_os_alloc(file->header_size, err);
    if (!file->name || !prefix) {
        join->plan.file_count++; /* to be freed with it */
        free(prefix);
        return TP_E_MEMORY;
    }
    for (int i = 0; i < 8; i++)
        prefix[i] = (char)(length >> 8 * i);
    memcpy(prefix + 8, json_string_value(text), length);
    const char *found = memmem(prefix, file->header_size, mark, strlen(mark));
    file->hash_at = found ? (uint64_t)(found - prefix) + strlen(mark) : 0;
    bool has_place = found && file->hash_at + TP_HASH_TEXT - 1 <= file->header_size;
    enum tp_code code = TP_OK;
    file->header = prefix;
    if (!has_place)
        code = bad_info(join, err, "a header has no place for its hash");
    if (code == TP_OK &&
        (code = tp_st_parse(json_string_value(text), length, file->size, &header, err)))
        bad_info(join, err, "");
    if (code == TP_OK && !has_hash_place(&header))
        code = bad_info(join, err, "a header has no place for its hash");
    if (code == TP_OK)
        code = add_outputs(join, &header, capacity, err);
    join->plan.file_count++;
    tp_st_close(&header);
    return code;
}

/* Names that the output's own files cannot have, and that no two shards share. */
static enum tp_code check_names(struct tp_join_plan *join, struct tp_err *err)
{
    struct tp_names names = {0};
    enum tp_code code = TP_OK;
    for (size_t f = 0; f < join->plan.file_count && code == TP_OK; f++) {
        const char *name = join->plan.files[f].name, *why = tp_index_shard_name(name);
        size_t length = strlen(name);
        uint32_t number = 0;
        if (!why && strcmp(name + length - 4, ".zst") == 0)
            why = "it is that of an archive, and what is joined is plain";
        if (!why && (code = tp_names_add(&names, name, length, &number, err)) == TP_OK &&
            number != f)
            why = "the name comes twice";
        char *what = why ? tp_os_format(err, "'%.200s' cannot be a shard: %s", name, why) : NULL;
        if (why)
            code = what ? bad_info(join, err, what) : TP_E_MEMORY;
        free(what);
    }
    tp_names_close(&names);
    return code;
}

static enum tp_code name_outputs(struct tp_join_plan *join, struct tp_err *err)
{
    const struct tp_plan *plan = &join->plan;
    struct tp_name_list *names = &join->outputs;
    if (!(names->items = tp_os_zalloc(plan->output_count + 1, sizeof *names->items, err)))
        return TP_E_MEMORY;
    for (; names->count < plan->output_count; names->count++)
        names->items[names->count] =
            (struct tp_named){plan->outputs[names->count].name, (uint32_t)names->count};
    sort_names(names);
    for (size_t i = 1; i < names->count; i++)
        if (strcmp(names->items[i - 1].name, names->items[i].name) == 0) {
            tp_err_tensor(err, names->items[i].name);
            return bad_info(join, err, "two headers hold a tensor of this name");
        }
    return TP_OK;
}

/* The index is written as it is stored: it must be that of these files. */
static enum tp_code check_index(struct tp_join_plan *join, struct tp_err *err)
{
    struct tp_text text = {0};
    enum tp_code code = tp_index_text(&join->plan, &text, err);
    if (code == TP_OK && strcmp(text.data, tp_join_plan_text(join, "index")) != 0)
        code = bad_info(join, err, "its index is not that of its files and tensors");
    tp_text_free(&text);
    return code;
}

static enum tp_code plan_files(struct tp_join_plan *join, struct tp_err *err)
{
    const json_t *files = json_object_get(join->info, "files");
    struct tp_plan *plan = &join->plan;
    size_t capacity = 0, count = json_array_size(files);
    enum tp_code code = TP_OK;
    if (!count)
        return bad_info(join, err, "there are no files in it");
    if (!(plan->files = tp_os_zalloc(count + 1, sizeof *plan->files, err)))
        return TP_E_MEMORY;
    for (size_t f = 0; f < count && code == TP_OK; f++)
        code = add_file(join, json_array_get(files, f), &capacity, err);
    if (code || (code = check_names(join, err)) || (code = name_outputs(join, err)))
        return code;
    return check_index(join, err);
}

/* ---- weights that are in slices --------------------------------------------------- */

static bool read_cut(const json_t *json, unsigned ranks, struct tp_cut *cut, struct tp_box3 *box)
{
    const json_t *sizes = json_object_get(json, "box"), *rows = json_object_get(json, "rows");
    const char *along = json_string_value(json_object_get(json, "along"));
    uint64_t size[3];
    for (size_t d = 0; d < 3; d++) {
        json_int_t value = json_integer_value(json_array_get(sizes, d));
        if (value <= 0)
            return false;
        size[d] = (uint64_t)value;
    }
    *box = (struct tp_box3){size[0], size[1], size[2]};
    *cut = (struct tp_cut){.ranks = ranks, .pieces = 1, .piece_rows = {box->n}};
    if (!along || (strcmp(along, "K") != 0 && strcmp(along, "N") != 0))
        return false;
    cut->along = *along == 'K' ? TP_CUT_K : TP_CUT_N;
    if (cut->along == TP_CUT_K)
        return true;
    cut->pieces = (uint32_t)json_array_size(rows);
    for (size_t p = 0; p < cut->pieces && p < TP_MAX_VIEWS; p++)
        cut->piece_rows[p] = (uint64_t)json_integer_value(json_array_get(rows, p));
    return cut->pieces >= 1 && cut->pieces <= TP_MAX_VIEWS;
}

static bool same_weight(const struct tp_weight *a, const struct tp_weight *b)
{
    return a->form->format == b->form->format && a->form->rank == b->form->rank &&
           memcmp(&a->form->settings, &b->form->settings, sizeof a->form->settings) == 0 &&
           memcmp(&a->form->search, &b->form->search, sizeof a->form->search) == 0 &&
           memcmp(&a->form->box, &b->form->box, sizeof a->form->box) == 0 &&
           tp_op_same(&a->form->op, &b->form->op);
}

/* The weight in every rank, and as it was. */
static enum tp_code whole_weight(struct tp_join_plan *join, const char *prefix,
                                 const struct tp_cut *cut, struct tp_box3 box, struct tp_err *err)
{
    size_t w = join->whole.count;
    const struct tp_weight *first = NULL;
    struct tp_box3 slice = tp_cut_box(cut, box);
    for (unsigned r = 0; r < join->count; r++) {
        const struct tp_weight *own = find_weight(join, r, prefix);
        bool fits = own && memcmp(&own->form->box, &slice, sizeof slice) == 0 &&
                    (!first || same_weight(first, own));
        if (!fits) {
            tp_err_path(err, join->ckpts[r].path);
            tp_err_tensor(err, prefix);
            return tp_fail(err, TP_E_INPUT, own ? "the slice of this rank has another shape or "
                                                  "format than it should have"
                                                : "the slice of this rank is missing");
        }
        first = first ? first : own;
        join->sources[w * join->count + r] = (uint32_t)(own - join->weights[r].items);
    }
    if (!first || !tp_cut_aligned(&first->form->op, cut, box)) {
        tp_err_tensor(err, prefix);
        return bad_info(join, err, "its slices do not end at borders of tiles");
    }
    struct tp_weight_form form;
    memcpy(&form, first->form, sizeof form); /* with what lies between the members */
    form.box = box;
    join->whole.items[w] = *first;
    join->whole.items[w].form = tp_weights_form(&join->whole, &form, err);
    if (!join->whole.items[w].form)
        return TP_E_MEMORY;
    join->cuts[w] = *cut;
    join->whole.count++;
    return TP_OK;
}

/* Output i of a unit that is in slices: found by name, and as large as it must be. */
static enum tp_code unit_output(struct tp_join_plan *join, struct tp_unit *unit, uint32_t i,
                                struct tp_err *err)
{
    uint64_t shape[TP_MAX_RANK], bytes;
    uint32_t rank;
    char *name = tp_os_format(err, "%s%s%s", unit->name, (char[2]){unit->form->joint},
                              unit->form->format->out[i].suffix);
    if (!name)
        return TP_E_MEMORY;
    const struct tp_named *found = find_name(&join->outputs, name);
    tp_err_tensor(err, name);
    free(name);
    if (!found || !join->plan.outputs)
        return bad_info(join, err, "a tensor in slices is in no header");
    struct tp_output *output = &join->plan.outputs[found->index];
    const struct tp_weight *weight = &join->whole.items[join->whole.count - 1];
    enum tp_dtype dtype = join->ckpts[0].tensors[weight->tensor[i]].dtype;
    enum tp_code code = tp_format_shape(unit->form->format, i, unit->form->box, unit->form->rank,
                                        shape, &rank, err);
    if (code == TP_OK && unit->form->op.out[i].role != TP_ROLE_WORDS)
        code = tp_op_whole_bytes(&unit->form->op, i, unit->form->box, &bytes, err);
    else
        bytes = output->bytes;
    if (code)
        return code;
    if (rank != output->rank || memcmp(shape, output->shape, rank * sizeof *shape) != 0 ||
        dtype != output->dtype || bytes != output->bytes || output->unit != UINT32_MAX)
        return bad_info(join, err, "a header and a cut disagree");
    output->unit = (uint32_t)join->plan.unit_count;
    output->source = i;
    unit->output[i] = found->index;
    unit->file = output->file;
    if (unit->form->op.out[i].role == TP_ROLE_WORDS) {
        code = tp_output_constant(&join->plan.store, unit->form, i, output, NULL, err);
    }
    if (err && code == TP_OK)
        err->tensor[0] = '\0';
    return code;
}

static enum tp_code add_unit(struct tp_join_plan *join, struct tp_err *err)
{
    uint32_t w = (uint32_t)join->whole.count - 1;
    const struct tp_weight *weight = &join->whole.items[w];
    struct tp_unit *unit = &join->plan.units[join->plan.unit_count];
    enum tp_code code = tp_unit_of_weight(&join->plan, unit, TP_UNIT_MOVE, w, err);
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++) {
        unit->output[i] = UINT32_MAX;
        if (weight->tensor[i] != TP_NO_TENSOR)
            code = unit_output(join, unit, i, err);
    }
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++)
        if (unit->output[i] != UINT32_MAX &&
            join->plan.outputs[unit->output[i]].file != unit->file)
            code = bad_info(join, err, "the tensors of a weight are in several files");
    join->plan.unit_count++;
    return code;
}

static enum tp_code plan_units(struct tp_join_plan *join, struct tp_err *err)
{
    const json_t *cuts = json_object_get(join->info, "cuts");
    size_t count = json_array_size(cuts);
    enum tp_code code = TP_OK;
    join->plan.units = tp_os_zalloc(count + 1, sizeof *join->plan.units, err);
    join->whole.items = tp_os_zalloc(count + 1, sizeof *join->whole.items, err);
    join->cuts = tp_os_zalloc(count + 1, sizeof *join->cuts, err);
    join->sources = tp_os_zalloc((count + 1) * join->count, sizeof *join->sources, err);
    if (!join->plan.units || !join->whole.items || !join->cuts || !join->sources)
        return TP_E_MEMORY;
    for (size_t i = 0; i < count && code == TP_OK; i++) {
        const json_t *json = json_array_get(cuts, i);
        const char *prefix = json_string_value(json_object_get(json, "prefix"));
        struct tp_cut cut;
        struct tp_box3 box;
        if (!prefix || !read_cut(json, join->count, &cut, &box))
            return bad_info(join, err, "an entry of \"cuts\" is not understood");
        if ((code = whole_weight(join, prefix, &cut, box, err)) == TP_OK)
            code = add_unit(join, err);
    }
    return code;
}

/* All other tensors are the same in every rank. */
static enum tp_code plan_copies(struct tp_join_plan *join, struct tp_err *err)
{
    for (size_t o = 0; o < join->plan.output_count; o++) {
        struct tp_output *output = &join->plan.outputs[o];
        for (unsigned r = 0; r < join->count && output->unit == UINT32_MAX; r++) {
            const struct tp_tensor *tensor = tp_checkpoint_find(&join->ckpts[r], output->name);
            if (!tensor || tensor->dtype != output->dtype || tensor->bytes != output->bytes ||
                tensor->rank != output->rank ||
                memcmp(tensor->shape, output->shape, tensor->rank * sizeof *tensor->shape) != 0) {
                tp_err_path(err, join->ckpts[r].path);
                tp_err_tensor(err, output->name);
                return tp_fail(err, TP_E_INPUT, "this tensor is missing in this rank, or has "
                               "another shape there");
            }
            if (r == 0)
                output->source = (uint32_t)(tensor - join->ckpts[0].tensors);
        }
    }
    return TP_OK;
}

/* Identity for the journal: the ranks as they lie here, with times. */
static enum tp_code hash_plan(struct tp_join_plan *join, struct tp_err *err)
{
    struct tp_text text = {0};
    const char *plan = tp_join_plan_text(join, "plan");
    enum tp_code code = tp_text_add(&text, (const char *)join->info_hash, TP_HASH_BYTES, err);
    for (unsigned r = 0; r < join->count; r++)
        for (size_t f = 0; f < join->ckpts[r].file_count && code == TP_OK; f++) {
            const struct tp_file *file = &join->ckpts[r].files[f];
            code = tp_text_addf(&text, err, "%s %llu %lld\n", file->name,
                                (unsigned long long)file->size, (long long)file->stamp.mtime_ns);
            if (code == TP_OK)
                code = tp_text_add(&text, (const char *)file->header_hash, 16, err);
        }
    if (code == TP_OK)
        tp_hash(text.data, text.size, join->plan.hash);
    tp_text_free(&text);
    if (code == TP_OK && !tp_hash_parse(plan, strlen(plan), join->plan.id))
        code = bad_info(join, err, "\"plan\" is not a hash");
    join->plan.bytes_in = join->plan.bytes_out; /* what the run reports */
    return code;
}

enum tp_code tp_join_plan_read(const char *path, unsigned flags, struct tp_join_plan *join,
                               struct tp_err *err)
{
    *join = (struct tp_join_plan){.path = tp_os_format(err, "%s", path), .flags = flags};
    if (!join->path)
        return TP_E_MEMORY;
    enum tp_code code = read_info(join, err);
    if (code)
        return code;
    join->ckpts = tp_os_zalloc(join->count, sizeof *join->ckpts, err);
    join->weights = tp_os_zalloc(join->count, sizeof *join->weights, err);
    join->packed = tp_os_zalloc(join->count, sizeof *join->packed, err);
    return join->ckpts && join->weights && join->packed ? TP_OK : TP_E_MEMORY;
}

/* The whole is readable by those who may read all ranks, and the directory that they are in. Small
 * files, which are the same in each, are as readable as rank 0's, and so are folders of them. */
static enum tp_code meet_rights(struct tp_join_plan *join, struct tp_err *err)
{
    struct stat st;
    struct tp_checkpoint *first = &join->ckpts[0];
    for (unsigned r = 1; r < join->count; r++) {
        tp_rights_meet(&first->rights, join->ckpts[r].rights);
        tp_rights_meet(&first->dir_rights, join->ckpts[r].dir_rights);
    }
    if (tp_os.stat(join->path, &st) != 0)
        return tp_os_fail(err, errno, join->path, "cannot open");
    tp_rights_meet_file(&first->dir_rights, -1, join->path, &st);
    char *info = tp_os_format(err, "%s/" TP_RANKS_NAME, join->path);
    if (info && tp_os.stat(info, &st) != 0)
        tp_os_fail(err, errno, info, "cannot open");
    else if (info)
        tp_rights_meet_file(&first->rights, -1, info, &st);
    free(info);
    return err->code;
}

enum tp_code tp_join_plan_make(struct tp_join_plan *join, struct tp_err *err)
{
    enum tp_code code = meet_rights(join, err);
    join->plan = (struct tp_plan){.ckpt = &join->ckpts[0], .weights = &join->whole};
    if (code || (code = plan_files(join, err)) || (code = plan_units(join, err)) ||
        (code = plan_copies(join, err)))
        return code;
    return hash_plan(join, err);
}

void tp_join_plan_close(struct tp_join_plan *join)
{
    tp_plan_close(&join->plan);
    for (unsigned r = 0; r < join->count; r++) {
        if (join->weights)
            tp_weights_close(&join->weights[r]);
        if (join->ckpts)
            tp_checkpoint_close(&join->ckpts[r]);
        if (join->packed)
            free(join->packed[r].items);
    }
    free(join->ckpts);
    free(join->weights);
    free(join->packed);
    tp_store_close(&join->prefixes);
    free(join->outputs.items);
    if (join->whole.forms)
        tp_shared_close(join->whole.forms);
    free(join->whole.forms);
    free(join->whole.items);
    free(join->cuts);
    free(join->sources);
    json_decref(join->info);
    free(join->path);
    *join = (struct tp_join_plan){0};
}
