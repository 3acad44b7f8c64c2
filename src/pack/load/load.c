/* Loading: threads that carry windows of files through slots.
 *
 * A window is a slot's worth of a file that begins at a multiple of that. Whoever takes one
 * reads into a slot what is needed of it, begins the copies out of the slot, and goes on with
 * the next slot, whose copies have most likely ended. Short runs are put together in another
 * slot first, so that no copy is short but of a short part.
 *
 * Invariant: a slot is written only when the copies out of it have ended; tp_load() returns
 * when all have.
 */
#include "pack/load/load.h"

#include "base/num.h"
#include "pack/load/load_hash.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 4096,
    GAP = 16,         /* pages that are read, not needed, rather than begin another read */
    SHORT_RUN = 65536 /* bytes: shorter runs are put together before they are copied */
};
#define SLOT_MAX (UINT64_C(16) << 20)
#define NO_SLOT TP_LOAD_SLOTS

/* Bytes [at,end) of a file, and the cuts that may have some of them. */
struct window {
    uint32_t file;
    uint64_t at, end;
    size_t first, last;
    struct tp_load_hash *hash; /* NULL without verifying */
};

struct load {
    const struct tp_checkpoint *ckpt;
    const struct tp_load_target *target;
    struct tp_load_cut *cuts; /* by file, then by tensor */
    size_t count;
    struct tp_load_hash *hashes; /* of each file that has cuts, in order; NULL: none */
    size_t hash_count;
    struct tp_load_size size;
    void *ring;
    pthread_mutex_t lock; /* of what follows */
    uint64_t at;         /* in the file that is being read */
    size_t first, group; /* its first cut that does not end before `at`; behind its last one */
    size_t files;        /* that were begun */
    unsigned workers;    /* that threads have */
    struct tp_err err;
};

struct worker {
    struct load *load;
    unsigned number;
    unsigned slot; /* that was taken last */
};

/* ---- what is to be done -------------------------------------------------- */

static int compare_cuts(const void *a, const void *b)
{
    const struct tp_load_cut *x = a, *y = b;
    if (x->tensor->file != y->tensor->file)
        return x->tensor->file < y->tensor->file ? -1 : 1;
    if (x->tensor->offset != y->tensor->offset)
        return x->tensor->offset < y->tensor->offset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static enum tp_code list_cuts(struct load *l, const struct tp_load_part *parts, size_t count,
                              struct tp_err *err)
{
    if (!(l->cuts = tp_os_zalloc(count + 1, sizeof *l->cuts, err)))
        return TP_E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        enum tp_code code = TP_OK;
        if (parts[i].tensor >= l->ckpt->tensor_count)
            code = tp_fail(err, TP_E_USAGE, "there is no tensor %zu", parts[i].tensor);
        else
            code = tp_load_cut(l->ckpt, &parts[i], &l->cuts[l->count], err);
        if (code)
            return code;
        l->count += l->cuts[l->count].runs > 0;
    }
    qsort(l->cuts, l->count, sizeof *l->cuts, compare_cuts);
    return TP_OK;
}

static enum tp_code list_hashes(struct load *l, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (!(l->hashes = tp_os_zalloc(l->ckpt->file_count + 1, sizeof *l->hashes, err)))
        return TP_E_MEMORY;
    for (size_t i = 0; i < l->count && code == TP_OK; i++) {
        uint32_t file = l->cuts[i].tensor->file;
        if (i == 0 || file != l->cuts[i - 1].tensor->file)
            code = tp_load_hash_open(l->ckpt, file, &l->hashes[l->hash_count++], err);
    }
    return code;
}

/* The next file: the cuts of it. */
static void begin_group(struct load *l)
{
    l->files++;
    l->first = l->group;
    l->at = 0;
    while (l->group < l->count &&
           l->cuts[l->group].tensor->file == l->cuts[l->first].tensor->file)
        l->group++;
}

static uint64_t tensor_end(const struct tp_load_cut *cut)
{
    return cut->tensor->offset + cut->tensor->bytes;
}

/* The file's next window; false when it has no more that are needed. */
static bool next_in_file(struct load *l, struct window *w)
{
    w->file = l->cuts[l->group - 1].tensor->file;
    const struct tp_file *file = &l->ckpt->files[w->file];
    while (l->first < l->group && tensor_end(&l->cuts[l->first]) <= l->at)
        l->first++;
    if (!l->hashes && l->first == l->group)
        return false;
    if (!l->hashes)
        l->at = tp_max_u64(l->at, l->cuts[l->first].tensor->offset / l->size.bytes * l->size.bytes);
    if (l->at >= file->size)
        return false;
    w->at = l->at;
    w->end = l->at = tp_min_u64(l->at + l->size.bytes, file->size);
    for (w->first = w->last = l->first; w->last < l->group; w->last++)
        if (l->cuts[w->last].tensor->offset >= w->end)
            break;
    w->hash = l->hashes ? &l->hashes[l->files - 1] : NULL;
    return true;
}

static bool take_window(struct load *l, struct window *w)
{
    bool any = false;
    pthread_mutex_lock(&l->lock);
    while (l->err.code == TP_OK && !any) {
        if (l->group > 0 && next_in_file(l, w))
            any = true;
        else if (l->group == l->count)
            break;
        else
            begin_group(l);
    }
    pthread_mutex_unlock(&l->lock);
    return any;
}

/* ---- one window ---------------------------------------------------------- */

/* The pages of a window that its cuts need. */
static void mark_pages(const struct load *l, const struct window *w, bool *needed)
{
    memset(needed, 0, tp_ceil_div(w->end - w->at, PAGE));
    for (size_t c = w->first; c < w->last; c++) {
        uint64_t i, runs = tp_load_cut_runs(&l->cuts[c], w->at, w->end, &i);
        for (uint64_t end = i + runs; i < end; i++) {
            struct tp_load_run run = tp_load_cut_run(&l->cuts[c], i, w->at, w->end);
            uint64_t page = (run.at - w->at) / PAGE;
            memset(needed + page, 1, (run.at + run.bytes - 1 - w->at) / PAGE - page + 1);
        }
    }
}

/* The page behind the run that begins at `p`; short gaps are a part of it. */
static uint64_t run_end(const bool *needed, uint64_t p, uint64_t pages)
{
    uint64_t end = p + 1;
    for (uint64_t i = end; i < pages && i - end < GAP; i++)
        if (needed[i])
            end = i + 1;
    return end;
}

static enum tp_code read_pages(const struct load *l, const struct window *w, uint8_t *data,
                               struct tp_err *err)
{
    bool needed[SLOT_MAX / PAGE];
    const uint64_t pages = tp_ceil_div(w->end - w->at, PAGE);
    enum tp_code code = TP_OK;
    mark_pages(l, w, needed);
    for (uint64_t p = 0, end; p < pages && code == TP_OK; p = end) {
        end = needed[p] ? run_end(needed, p, pages) : p + 1;
        if (!needed[p])
            continue;
        uint64_t at = p * PAGE, size = tp_min_u64(end * PAGE, w->end - w->at) - at;
        code = tp_checkpoint_read(l->ckpt, w->file, data + at, size, w->at + at, err);
    }
    return code;
}

/* A slot that may be written, other than `busy`; its number is the worker's last one. */
static enum tp_code take_slot(struct worker *worker, unsigned busy, uint8_t **data,
                              struct tp_err *err)
{
    const struct load *l = worker->load;
    void *slot = NULL;
    do
        worker->slot = (worker->slot + 1) % TP_LOAD_SLOTS;
    while (worker->slot == busy);
    enum tp_code code = l->target->take(l->ring, worker->number, worker->slot, &slot, err);
    *data = slot;
    return code;
}

static enum tp_code copy_out(const struct worker *worker, uint8_t *to, const uint8_t *from,
                             uint64_t bytes, struct tp_err *err)
{
    const struct load *l = worker->load;
    return l->target->copy(l->ring, worker->number, to, from, bytes, err);
}

static enum tp_code record_slot(const struct worker *worker, unsigned slot, struct tp_err *err)
{
    const struct load *l = worker->load;
    return l->target->record(l->ring, worker->number, slot, err);
}

/* A window in a slot. */
struct filled {
    const struct window *window;
    const uint8_t *data;
    unsigned slot;
};

/* Short runs of a cut: put together in another slot, which is copied as one. */
static enum tp_code copy_together(struct worker *worker, const struct filled *f,
                                  const struct tp_load_cut *cut, uint64_t i, uint64_t runs,
                                  struct tp_err *err)
{
    const struct window *w = f->window;
    uint64_t size = 0, to = tp_load_cut_run(cut, i, w->at, w->end).to;
    uint8_t *together;
    enum tp_code code = take_slot(worker, f->slot, &together, err);
    if (code)
        return code;
    for (uint64_t end = i + runs; i < end; i++) {
        struct tp_load_run run = tp_load_cut_run(cut, i, w->at, w->end);
        memcpy(together + size, f->data + (run.at - w->at), run.bytes);
        size += run.bytes;
    }
    code = copy_out(worker, cut->to + to, together, size, err);
    return code ? code : record_slot(worker, worker->slot, err);
}

static enum tp_code copy_cut(struct worker *worker, const struct filled *f,
                             const struct tp_load_cut *cut, struct tp_err *err)
{
    const struct window *w = f->window;
    enum tp_code code = TP_OK;
    uint64_t i, runs = tp_load_cut_runs(cut, w->at, w->end, &i);
    if (runs > 1 && cut->run < SHORT_RUN)
        return copy_together(worker, f, cut, i, runs, err);
    for (uint64_t end = i + runs; i < end && code == TP_OK; i++) {
        struct tp_load_run run = tp_load_cut_run(cut, i, w->at, w->end);
        code = copy_out(worker, cut->to + run.to, f->data + (run.at - w->at), run.bytes, err);
    }
    return code;
}

static enum tp_code carry(struct worker *worker, const struct window *w, struct tp_err *err)
{
    const struct load *l = worker->load;
    uint8_t *data;
    enum tp_code code = take_slot(worker, NO_SLOT, &data, err);
    const struct filled filled = {w, data, worker->slot};
    if (code)
        return code;
    code = w->hash ? tp_load_hash_read(l->ckpt, w->hash, data, w->end - w->at, w->at, err)
                   : read_pages(l, w, data, err);
    for (size_t c = w->first; c < w->last && code == TP_OK; c++)
        code = copy_cut(worker, &filled, &l->cuts[c], err);
    return code ? code : record_slot(worker, filled.slot, err);
}

/* ---- threads ------------------------------------------------------------- */

static void *work(void *arg)
{
    struct load *l = arg;
    struct worker worker = {.load = l};
    struct tp_err err = {0};
    struct window w;
    pthread_mutex_lock(&l->lock);
    worker.number = l->workers++;
    pthread_mutex_unlock(&l->lock);
    enum tp_code code = l->target->begin(l->ring, worker.number, &err);
    while (code == TP_OK && take_window(l, &w))
        code = carry(&worker, &w, &err);
    if (code == TP_OK)
        code = l->target->finish(l->ring, worker.number, &err);
    pthread_mutex_lock(&l->lock);
    if (code && l->err.code == TP_OK)
        l->err = err;
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* The calling thread is one of them; fewer if the system has no more. */
static enum tp_code work_together(struct load *l, struct tp_err *err)
{
    pthread_t others[TP_LOAD_THREADS];
    unsigned started = 0;
    if (l->target->open(l->target, l->size, &l->ring, err))
        return err->code;
    pthread_mutex_init(&l->lock, NULL);
    while (started + 1 < l->size.workers && tp_os.start_thread(&others[started], work, l) == 0)
        started++;
    work(l);
    for (unsigned i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    pthread_mutex_destroy(&l->lock);
    l->target->close(l->target, l->ring);
    if (l->err.code)
        *err = l->err;
    return err->code;
}

/* What the parts take of the files, gaps between their runs included. */
static uint64_t bytes_between(const struct load *l)
{
    uint64_t bytes = 0; /* what wraps around is no file */
    for (size_t i = 0; i < l->count; i++)
        bytes += tp_load_cut_at(&l->cuts[i], l->cuts[i].runs - 1) + l->cuts[i].run -
                 l->cuts[i].first;
    for (size_t i = 0; i < l->hash_count; i++)
        bytes += l->hashes[i].leaves.file_size;
    return bytes;
}

/* Slots are whole leaves: fewer threads rather than smaller slots, and none without work. */
static struct tp_load_size ring_size(const struct load *l, const struct tp_load_options *options)
{
    uint64_t ring = tp_max_u64(options->ring_bytes, TP_LOAD_MIN);
    uint64_t threads = tp_min_u64(tp_max_u64(options->threads, 1), TP_LOAD_THREADS);
    threads = tp_min_u64(threads, ring / TP_LOAD_MIN);
    uint64_t bytes = tp_min_u64(ring / threads / TP_LOAD_MIN * TP_LEAF_BYTES, SLOT_MAX);
    threads = tp_min_u64(threads, tp_max_u64(tp_ceil_div(bytes_between(l), bytes), 1));
    return (struct tp_load_size){(unsigned)threads, TP_LOAD_SLOTS, bytes};
}

enum tp_code tp_load(const struct tp_checkpoint *ckpt, const struct tp_load_part *parts,
                     size_t count, const struct tp_load_options *options, struct tp_err *err)
{
    struct load l = {.ckpt = ckpt, .target = options->target};
    enum tp_code code = list_cuts(&l, parts, count, err);
    if (code == TP_OK && options->verify)
        code = list_hashes(&l, err);
    l.size = ring_size(&l, options);
    if (code == TP_OK && l.count > 0)
        code = work_together(&l, err);
    for (size_t i = 0; i < l.hash_count; i++) {
        if (code == TP_OK)
            code = tp_load_hash_check(ckpt, &l.hashes[i], err);
        tp_load_hash_close(&l.hashes[i]);
    }
    if (code == TP_OK)
        code = tp_checkpoint_unchanged(ckpt, err);
    free(l.hashes);
    free(l.cuts);
    return code;
}
