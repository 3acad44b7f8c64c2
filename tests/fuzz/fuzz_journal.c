/* Fuzz target: the journal of an unfinished output of two shards; with a first byte 'z', of
 * archives.
 *
 * Beyond not crashing: a shard counts as done only with the hash that it has; what was added
 * is there when the journal is opened again; a foreign one stays as it is until it is
 * restarted. Build: make fuzz.
 */
#include "folder.h"

#include "pack/commit/journal.h"
#include "pack/file/zst.h"

enum { SHARD = 200, HASH_AT = 20 };

static struct tp_plan_file files[2] = {
    {.name = (char[]){"a.safetensors"}, .size = SHARD, .hash_at = HASH_AT},
    {.name = (char[]){"b.safetensors"}, .size = SHARD, .hash_at = HASH_AT}};
static const struct tp_checkpoint source = {.mode = 0777, .file_count = 1};
static const struct tp_plan plan = {.ckpt = &source, .files = files, .file_count = 2};
static uint8_t hashes[2][TP_HASH_BYTES];

static enum tp_code read_text(void *arg, void *data, uint64_t size, uint64_t offset,
                              struct tp_err *err)
{
    (void)err;
    memcpy(data, (const char *)arg + offset, size);
    return TP_OK;
}

static void archive(const char *name, const char *text)
{
    struct tp_err err = {0};
    struct tp_zst_writer *writer = NULL;
    uint64_t size;
    int fd = open(name, O_RDWR | O_CREAT, 0666);
    must(fd >= 0 && !tp_zst_create(fd, name, 1, 1, &writer, &err) &&
         !tp_zst_add(writer, text, SHARD, &err) && !tp_zst_finish(writer, &size, &err));
    close(fd);
    tp_zst_abandon(writer);
}

/* Two shards, each once as it is and once as an archive. */
static void start(void)
{
    fuzz_enter();
    for (int f = 0; f < 2; f++) {
        char text[SHARD], digits[TP_HASH_TEXT], name[40];
        struct tp_err err = {0};
        memset(text, 'a' + f, SHARD);
        memset(text + HASH_AT, '0', TP_HASH_TEXT - 1);
        must(!tp_leafhash_file(SHARD, 1, read_text, text, hashes[f], &err));
        tp_hash_print(hashes[f], digits);
        memcpy(text + HASH_AT, digits, TP_HASH_TEXT - 1);
        fuzz_write(files[f].name, text, SHARD);
        snprintf(name, sizeof name, "%s.zst", files[f].name);
        archive(name, text);
    }
}

static void add_and_reopen(struct tp_journal *journal, bool zstd)
{
    struct tp_err err = {0};
    const struct tp_journal_work work = {.plan = &plan, .source = hashes[0], .zstd = zstd};
    const struct tp_read_sum sum = {.source = 0, .sum = {1, UINT64_MAX}};
    struct tp_read_list read = {malloc(sizeof sum), 1, true};
    *read.items = sum;
    bool foreign;
    bool done = journal->done[1];
    if (!done)
        must(!tp_journal_add(journal, &plan, 1, hashes[1], &read, &err));
    free(read.items);
    tp_journal_close(journal);
    must(!tp_journal_open(AT_FDCWD, ".", TP_JOURNAL_NAME, &work, journal, &foreign, &err));
    must(!foreign && journal->done[1] && journal->names_shards);
    must(done || (journal->read[1].known && journal->read[1].count == 1 &&
                  journal->read[1].items->source == sum.source &&
                  memcmp(&journal->read[1].items->sum, &sum.sum, sizeof sum.sum) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_journal journal;
    struct tp_err err = {0};
    bool foreign, zstd = size && data[0] == 'z';
    if (!*fuzz_path)
        start();
    fuzz_write(TP_JOURNAL_NAME, data + (size > 0), size - (size > 0));
    const struct tp_journal_work work = {&plan, hashes[0], "tilepack x", zstd};
    enum tp_code code = tp_journal_open(AT_FDCWD, ".", TP_JOURNAL_NAME, &work, &journal, &foreign,
                                        &err);
    must(code == err.code && code == TP_OK);
    size_t done = 0;
    for (int f = 0; f < 2; f++) {
        done += journal.done[f];
        must(!journal.done[f] || memcmp(journal.hash[f], hashes[f], TP_HASH_BYTES) == 0);
    }
    must(done == journal.done_count && (!foreign || !done));
    if (foreign)
        must(!tp_journal_restart(&journal, &work, &err));
    add_and_reopen(&journal, zstd);
    tp_journal_close(&journal);
    return 0;
}
