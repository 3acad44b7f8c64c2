/* Which blocks were seen is a bit each. Invariant: a block counts once, for the file that its
 * tensor is read for, and only in jobs of that file: so nobody adds to a file that is complete.
 */
#include "pack/run/read_sums.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/os/stage.h"

#include <stdlib.h>
#include <string.h>

#define UNUSED_BYTES (UINT64_C(1) << 20) /* of a tensor that nothing is made of */
enum { WORD = 64, CHUNK = 256, ALL = (1 << TP_SUM_GROUPS) - 1 };

/* Blocks in pieces. Most are whole soon: who reads columns reads those beside them, too. */
struct tp_read_chunk {
    unsigned begun; /* blocks with a part */
    struct {
        struct tp_sum sum;
        unsigned groups; /* a bit each */
    } parts[CHUNK];
};

static void own(const struct tp_plan *plan, uint32_t *owner, uint32_t tensor, uint32_t file)
{
    if (tensor < plan->ckpt->tensor_count && owner[tensor] == TP_READ_BY_NONE)
        owner[tensor] = file;
}

/* owner[] of the tensors of the plan's source. What nothing is made of is read for the first file
 * where it has a MiB at most, and else for none. */
static void find_owners(const struct tp_plan *plan, uint32_t *owner)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        owner[t] = TP_READ_BY_NONE;
    for (size_t o = 0; o < plan->output_count; o++)
        if (plan->outputs[o].unit == UINT32_MAX && !plan->outputs[o].constant)
            own(plan, owner, plan->outputs[o].source, plan->outputs[o].file);
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        for (uint64_t v = 0; v < tp_unit_views(unit); v++)
            for (int i = 0; i < TP_MAX_OUT; i++)
                own(plan, owner, plan->weights->items[unit->views[v].weight].tensor[i],
                    unit->file);
    }
    for (size_t t = 0; t < ckpt->tensor_count && plan->file_count; t++)
        if (ckpt->tensors[t].bytes <= UNUSED_BYTES)
            own(plan, owner, (uint32_t)t, 0);
}

enum tp_code tp_read_sums_open(struct tp_read_sums *sums, const struct tp_plan *plan,
                               struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    const size_t tensors = ckpt->tensor_count + 1;
    uint64_t blocks = 0;
    *sums = (struct tp_read_sums){.plan = plan};
    sums->owner = tp_os_zalloc(tensors, sizeof *sums->owner, err);
    sums->first_block = tp_os_zalloc(tensors, sizeof *sums->first_block, err);
    sums->of = tp_os_zalloc(plan->file_count + 1, sizeof *sums->of, err);
    if (!sums->owner || !sums->first_block || !sums->of)
        return TP_E_MEMORY;
    find_owners(plan, sums->owner);
    for (size_t t = 0; t < ckpt->tensor_count; t++) {
        sums->first_block[t] = blocks;
        blocks += tp_ceil_div(ckpt->tensors[t].bytes, TP_SUM_BLOCK);
    }
    sums->seen = tp_os_zalloc((size_t)(blocks / WORD + 1), sizeof *sums->seen, err);
    sums->chunk_count = (size_t)(blocks / CHUNK + 1);
    sums->chunks = tp_os_zalloc(sums->chunk_count, sizeof *sums->chunks, err);
    pthread_mutex_init(&sums->lock, NULL);
    return sums->seen && sums->chunks ? TP_OK : TP_E_MEMORY;
}

void tp_read_sums_close(struct tp_read_sums *sums)
{
    if (sums->seen)
        pthread_mutex_destroy(&sums->lock);
    for (size_t f = 0; sums->of && f < sums->plan->file_count; f++)
        free(sums->of[f].items);
    for (size_t i = 0; sums->chunks && i < sums->chunk_count; i++)
        free(sums->chunks[i]);
    free(sums->chunks);
    free(sums->of);
    free(sums->owner);
    free(sums->first_block);
    free(sums->seen);
    *sums = (struct tp_read_sums){0};
}

static enum tp_code add(struct tp_read_sums *sums, uint32_t f, uint32_t source,
                        const struct tp_sum *sum, struct tp_err *err)
{
    struct tp_read_list *of = &sums->of[f];
    enum tp_code code = TP_OK;
    pthread_mutex_lock(&sums->lock);
    size_t i = of->count;
    while (i > 0 && of->items[i - 1].source != source) /* the last is the one that is read */
        i--;
    if (i == 0) {
        void *items = of->items;
        size_t capacity = of->count;
        code = tp_os_grow(&items, &capacity, of->count + 1, sizeof *of->items, err);
        of->items = items;
        if (code == TP_OK)
            of->items[i = of->count++] = (struct tp_read_sum){.source = source};
    } else {
        i--;
    }
    if (code == TP_OK) {
        of->items[i].sum.a += sum->a;
        of->items[i].sum.b += sum->b;
    }
    pthread_mutex_unlock(&sums->lock);
    return code;
}

/* The bits [from, end) of a word. */
static uint64_t bits(uint64_t from, uint64_t end)
{
    return (end == WORD ? 0 : UINT64_C(1) << end) - (UINT64_C(1) << from);
}

/* Sets the first bits of a word that stand together, and are not set, in `range`. */
static bool claim(_Atomic uint64_t *word, uint64_t range, uint64_t *first, uint64_t *count)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed), open, rest;
    while ((open = ~seen & range)) {
        *first = (uint64_t)__builtin_ctzll(open);
        rest = ~(open >> *first);
        *count = rest ? (uint64_t)__builtin_ctzll(rest) : WORD;
        if (atomic_compare_exchange_weak_explicit(word, &seen,
                                                  seen | bits(*first, *first + *count),
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    }
    return false;
}

/* Takes the first blocks of tensor t in [*block, end) that nobody has seen, *block to *last, within
 * a word of bits; false where there are none. */
static bool take(struct tp_read_sums *sums, uint32_t t, uint64_t *block, uint64_t end,
                 uint64_t *last)
{
    while (*block < end) {
        const uint64_t at = sums->first_block[t] + *block, from = at % WORD;
        const uint64_t stop = tp_min_u64(WORD, from + end - *block);
        uint64_t first, count;
        if (claim(&sums->seen[at / WORD], bits(from, stop), &first, &count)) {
            *block += first - from;
            *last = *block + count;
            return true;
        }
        *block += stop - from;
    }
    return false;
}

/* The tensor that has that byte of a file; TP_NO_TENSOR: the header. */
static uint32_t tensor_at(const struct tp_checkpoint *ckpt, uint32_t file, uint64_t offset)
{
    size_t low = 0, high = ckpt->tensor_count;
    while (low < high) { /* the first that begins behind it */
        size_t middle = low + (high - low) / 2;
        const struct tp_tensor *tensor = &ckpt->tensors[ckpt->by_data[middle]];
        if (tensor->file < file || (tensor->file == file && tensor->offset <= offset))
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return TP_NO_TENSOR;
    const struct tp_tensor *tensor = &ckpt->tensors[ckpt->by_data[low - 1]];
    return tensor->file == file && offset - tensor->offset < tensor->bytes
               ? ckpt->by_data[low - 1] : TP_NO_TENSOR;
}

/* Whether groups of a block that are cut off by columns are whole, if these are as even. */
static bool has_even_rows(const struct tp_tensor *tensor)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < tensor->rank; d++)
        rows *= tensor->shape[d];
    return rows && tensor->bytes / rows % TP_SUM_GROUP == 0;
}

/* Bytes [from, stop) of block number `block` of tensor t. Adds the block when it has been seen in
 * all of its groups. */
static enum tp_code add_part(struct tp_read_sums *sums, uint32_t t, uint64_t block,
                             const uint8_t *data, uint64_t from, uint64_t stop,
                             struct tp_sum *sum, struct tp_err *err)
{
    const struct tp_tensor *tensor = &sums->plan->ckpt->tensors[t];
    const uint64_t number = sums->first_block[t] + block;
    const uint64_t bit = bits(number % WORD, number % WORD + 1);
    struct tp_read_chunk **chunk = &sums->chunks[number / CHUNK];
    _Atomic uint64_t *seen = &sums->seen[number / WORD];
    uint64_t first, count;
    if (stop - from < TP_SUM_GROUP || (block + 1) * TP_SUM_BLOCK > tensor->bytes ||
        atomic_load_explicit(seen, memory_order_relaxed) & bit || !has_even_rows(tensor))
        return TP_OK;
    pthread_mutex_lock(&sums->lock);
    const bool has = *chunk || (*chunk = tp_os_zalloc(1, sizeof **chunk, err));
    if (has) {
        struct tp_sum *part = &(*chunk)->parts[number % CHUNK].sum;
        unsigned *groups = &(*chunk)->parts[number % CHUNK].groups;
        (*chunk)->begun += !*groups;
        for (uint64_t g = tp_ceil_div(from, TP_SUM_GROUP); (g + 1) * TP_SUM_GROUP <= stop; g++)
            if (!(*groups >> g & 1)) {
                tp_sum_part(part, data + (g * TP_SUM_GROUP - from), g, 1);
                *groups |= 1u << g;
            }
        if (*groups == ALL && claim(seen, bit, &first, &count))
            tp_sum_whole(sum, part, tensor->offset + block * TP_SUM_BLOCK);
        if (*groups == ALL) {
            *part = (struct tp_sum){0, 0};
            *groups = 0;
            if (!--(*chunk)->begun) {
                free(*chunk);
                *chunk = NULL;
            }
        }
    }
    pthread_mutex_unlock(&sums->lock);
    return has ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_read_sums_note(void *arg, const struct tp_checkpoint *ckpt, uint32_t file,
                               const void *data, uint64_t size, uint64_t offset,
                               struct tp_err *err)
{
    const struct tp_read_watch *watch = arg;
    struct tp_read_sums *sums = watch->sums;
    struct tp_sum sum = {0, 0};
    if (size < TP_SUM_GROUP || watch->file == TP_READ_BY_NONE || ckpt != sums->plan->ckpt)
        return TP_OK;
    const uint32_t t = tensor_at(ckpt, file, offset);
    if (t == TP_NO_TENSOR || sums->owner[t] != watch->file)
        return TP_OK;
    const struct tp_tensor *tensor = &ckpt->tensors[t];
    const uint64_t from = offset - tensor->offset, stop = tp_min_u64(from + size, tensor->bytes);
    const uint64_t end = stop == tensor->bytes ? tp_ceil_div(stop, TP_SUM_BLOCK)
                                               : stop / TP_SUM_BLOCK;
    uint64_t block = tp_ceil_div(from, TP_SUM_BLOCK), last;
    enum tp_stage before = tp_stage_set(TP_STAGE_HASH);
    enum tp_code code = TP_OK;
    if (from % TP_SUM_BLOCK)
        code = add_part(sums, t, block - 1, data, from % TP_SUM_BLOCK,
                        tp_min_u64(TP_SUM_BLOCK, from % TP_SUM_BLOCK + stop - from), &sum, err);
    if (code == TP_OK && block <= end && end * TP_SUM_BLOCK < stop)
        code = add_part(sums, t, end, (const uint8_t *)data + (end * TP_SUM_BLOCK - from), 0,
                        stop % TP_SUM_BLOCK, &sum, err);
    for (; take(sums, t, &block, end, &last); block = last) {
        uint64_t at = block * TP_SUM_BLOCK, to = tp_min_u64(last * TP_SUM_BLOCK, tensor->bytes);
        tp_sum_add(&sum, (const uint8_t *)data + (at - from), to - at, tensor->offset + at);
    }
    tp_stage_set(before);
    return code || !(sum.a | sum.b) ? code : add(sums, watch->file, file, &sum, err);
}

/* Reads the blocks of a tensor that nobody has seen. */
static enum tp_code read_rest(struct tp_read_sums *sums, uint32_t f, uint32_t t, uint8_t *buffer,
                              struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = sums->plan->ckpt;
    const struct tp_tensor *tensor = &ckpt->tensors[t];
    const uint64_t end = tp_ceil_div(tensor->bytes, TP_SUM_BLOCK);
    uint64_t block = 0, last;
    struct tp_sum sum = {0, 0};
    enum tp_code code = TP_OK;
    for (; code == TP_OK && take(sums, t, &block, end, &last); block = last) {
        uint64_t at = block * TP_SUM_BLOCK, stop = tp_min_u64(last * TP_SUM_BLOCK, tensor->bytes);
        code = tp_checkpoint_read(ckpt, tensor->file, buffer, stop - at, tensor->offset + at, err);
        if (code == TP_OK)
            tp_sum_add(&sum, buffer, stop - at, tensor->offset + at);
    }
    return code ? code : add(sums, f, tensor->file, &sum, err);
}

enum tp_code tp_read_sums_file(struct tp_read_sums *sums, uint32_t f, struct tp_read_list *list,
                               struct tp_err *err)
{
    uint8_t *buffer = tp_os_alloc(WORD * TP_SUM_BLOCK, err);
    enum tp_code code = buffer ? TP_OK : TP_E_MEMORY;
    for (uint32_t t = 0; t < sums->plan->ckpt->tensor_count && code == TP_OK; t++)
        if (sums->owner[t] == f)
            code = read_rest(sums, f, t, buffer, err);
    free(buffer);
    *list = sums->of[f];
    list->known = code == TP_OK;
    sums->of[f] = (struct tp_read_list){0};
    return code;
}

enum tp_code tp_read_sums_total(const struct tp_plan *plan, const struct tp_read_list *lists,
                                struct tp_sum *sums, bool *known, struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    uint32_t *owner = tp_os_alloc((ckpt->tensor_count + 1) * sizeof *owner, err);
    if (!owner)
        return TP_E_MEMORY;
    find_owners(plan, owner);
    for (size_t s = 0; s < ckpt->file_count; s++) {
        sums[s] = (struct tp_sum){0, 0};
        known[s] = true;
    }
    for (size_t f = 0; f < plan->file_count; f++)
        for (size_t i = 0; i < lists[f].count; i++) {
            const struct tp_read_sum *item = &lists[f].items[i];
            if (item->source >= ckpt->file_count) /* a text says so */
                continue;
            sums[item->source].a += item->sum.a;
            sums[item->source].b += item->sum.b;
        }
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        if (owner[t] == TP_READ_BY_NONE || !lists[owner[t]].known)
            known[ckpt->tensors[t].file] = false;
    free(owner);
    return TP_OK;
}
