/* The journal: header line with the plan's hash, source, command, then one line per shard. */
#include "pack/commit/journal.h"

#include "pack/commit/shard_file.h"
#include "pack/os/below.h"
#include "pack/sink/compress.h"
#include "pack/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Equally long; plain and compressed shards are different work. */
#define MAGIC_SIZE strlen("tilepack-journal 1 ")
#define MAGIC "tilepack-journal "
/* No shard's lines: those have a hash behind their first blank. */
#define COMMAND "# tilepack "
#define READ " read"
#define SOURCE "# source "
/* Bytes of one: a line for each of the most files, each of the longest name, with some sums, and
 * the command. */
#define MAX_BYTES (UINT64_C(512) << 20)
static const char *const magics[2] = {"tilepack-journal 1 ", "tilepack-journal z "};

/* Whether the shard on disk is what the journal says; anything else is redone. A lack of memory
 * says nothing of it, and is the error. */
static bool proven(int dir, const struct tp_plan_file *file, bool zstd,
                   const uint8_t hash[TP_HASH_BYTES], struct tp_err *err)
{
    uint8_t actual[TP_HASH_BYTES];
    struct tp_shard_file shard = {.fd = -1};
    struct stat st;
    struct tp_err seen = {0};
    int fd = -1;
    char *path = tp_os_format(&seen, "%s%s", file->name, zstd ? TP_ZST_SUFFIX : "");
    bool good = path && tp_below_open_regular(dir, path, path, &fd, &st, &seen) == TP_OK &&
                tp_shard_open(&shard, fd, (uint64_t)st.st_size, zstd, path, &seen) == TP_OK &&
                shard.size == file->size;
    shard.hash_at = file->hash_at;
    good = good && tp_shard_hash(&shard, 2, actual, &seen) == TP_OK &&
           memcmp(actual, hash, TP_HASH_BYTES) == 0 && tp_shard_has_digits(&shard, hash, &seen);
    tp_shard_close(&shard);
    tp_os_close(&fd);
    free(path);
    tp_err_memory(err, &seen);
    return good;
}

enum tp_code tp_journal_prove(struct tp_journal *journal, int dir, const struct tp_plan *plan,
                              uint32_t f, bool zstd, struct tp_err *err)
{
    journal->done[f] = proven(dir, &plan->files[f], zstd, journal->hash[f], err);
    journal->done_count += journal->done[f];
    return err->code;
}

/* " read" and " SOURCE:SUM" of each. */
static enum tp_code sums_text(const struct tp_read_list *read, struct tp_text *text,
                              struct tp_err *err)
{
    enum tp_code code = tp_text_add_word(text, READ, err);
    for (size_t i = 0; i < read->count && code == TP_OK; i++) {
        uint8_t bytes[TP_SUM_BYTES];
        char digits[TP_HASH_TEXT];
        tp_sum_bytes(&read->items[i].sum, bytes);
        tp_hash_print(bytes, digits);
        code = tp_text_addf(text, err, " %u:%s", (unsigned)read->items[i].source, digits);
    }
    return code;
}

/* Reads what sums_text() wrote; false: it is none. */
static bool parse_list(const char *text, size_t size, struct tp_read_list *list,
                       struct tp_err *err)
{
    const size_t digits = 2 * TP_SUM_BYTES, max = 10; /* of a number */
    const char *end = text + size;
    size_t capacity = 0;
    if (size < strlen(READ) || memcmp(text, READ, strlen(READ)) != 0)
        return false;
    for (text += strlen(READ); text < end; text += digits) {
        uint8_t bytes[TP_SUM_BYTES];
        uint64_t source = 0;
        const char *begin = text + 1;
        if (*text++ != ' ')
            return false;
        for (; text < end && *text >= '0' && *text <= '9' && text - begin < (long)max; text++)
            source = source * 10 + (uint64_t)(*text - '0');
        if (text == begin || source > UINT32_MAX || (size_t)(end - text) < 1 + digits ||
            *text++ != ':' || !tp_hash_parse(text, digits, bytes))
            return false;
        void *items = list->items;
        if (tp_os_grow(&items, &capacity, list->count + 1, sizeof *list->items, err))
            return false;
        list->items = items;
        list->items[list->count++] =
            (struct tp_read_sum){(uint32_t)source, tp_sum_of_bytes(bytes)};
    }
    list->known = true;
    return true;
}

/* The last line of a shard counts; those that are named are done until they are proven. Shards
 * end about in their order: the search begins with number *next, behind the one before. */
static void read_line(const char *line, size_t size, const struct tp_plan *plan,
                      struct tp_journal *journal, size_t *next, struct tp_err *err)
{
    const size_t digits = TP_HASH_TEXT - 1;
    uint8_t hash[TP_HASH_BYTES];
    struct tp_read_list read = {0};
    const char *space = memchr(line, ' ', size);
    size_t name_size = space ? (size_t)(space - line) : 0;
    if (!space || size - name_size - 1 < digits || !tp_hash_parse(space + 1, digits, hash))
        return;
    size -= name_size + 1 + digits; /* what is left: nothing, in a line of 0.1.0 */
    if (size && !parse_list(space + 1 + digits, size, &read, err)) {
        free(read.items);
        return;
    }
    for (size_t i = 0; i < plan->file_count; i++) {
        size_t f = (*next + i) % plan->file_count;
        const struct tp_plan_file *file = &plan->files[f];
        if (strlen(file->name) != name_size || memcmp(file->name, line, name_size) != 0)
            continue;
        journal->done[f] = true;
        memcpy(journal->hash[f], hash, sizeof hash);
        free(journal->read[f].items);
        journal->read[f] = read;
        *next = f + 1;
        return;
    }
    free(read.items);
}

/* All that stands before the lines of shards. */
static enum tp_code head_text(const struct tp_journal_work *work, struct tp_text *text,
                              struct tp_err *err)
{
    char hash[TP_HASH_TEXT];
    tp_hash_print(work->plan->hash, hash);
    enum tp_code code = tp_text_addf(text, err, "%s%s\n", magics[work->zstd], hash);
    if (code == TP_OK) {
        tp_hash_print(work->source, hash);
        code = tp_text_addf(text, err, SOURCE "%s\n", hash);
    }
    if (code == TP_OK && work->command && !strchr(work->command, '\n'))
        code = tp_text_addf(text, err, "# %s\n", work->command);
    return code;
}

static enum tp_code start(struct tp_journal *journal, const struct tp_journal_work *work,
                          struct tp_err *err)
{
    struct tp_text text = {0};
    enum tp_code code = head_text(work, &text, err);
    if (code == TP_OK && tp_os.ftruncate(journal->fd, 0))
        code = tp_os_fail(err, errno, journal->path, "cannot truncate the journal");
    if (code == TP_OK)
        code = tp_os_write(journal->fd, text.data, text.size, 0, journal->path, err);
    journal->size = text.size;
    tp_text_free(&text);
    return code ? code : tp_os_fsync(journal->fd, journal->path, err);
}

/* The line behind the header, if it says which source, as it does since 0.2.0; returns where the
 * next one begins. */
static const char *read_source(const char *line, const char *end, const uint8_t *source,
                               bool *same)
{
    const size_t begin = strlen(SOURCE), size = begin + TP_HASH_TEXT;
    uint8_t stored[TP_HASH_BYTES];
    bool says = (size_t)(end - line) >= size && memcmp(line, SOURCE, begin) == 0 &&
                line[size - 1] == '\n' && tp_hash_parse(line + begin, TP_HASH_TEXT - 1, stored);
    *same = !says || memcmp(stored, source, sizeof stored) == 0;
    return says ? line + size : line;
}

/* The line behind these, if it is the command; returns where the shards' lines begin. */
static const char *read_command(const char *line, const char *end, char **command,
                                struct tp_err *err)
{
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop || (size_t)(stop - line) < strlen(COMMAND) ||
        memcmp(line, COMMAND, strlen(COMMAND)) != 0)
        return line;
    *command = tp_os_format(err, "%.*s", (int)(stop - line - 2), line + 2);
    return stop + 1;
}

enum tp_code tp_journal_text(const struct tp_journal *journal, char **text, size_t *size,
                             struct tp_err *err)
{
    struct stat st;
    *text = NULL;
    if (tp_os.fstat(journal->fd, &st) != 0)
        return tp_os_fail(err, errno, journal->path, "cannot read the file's size");
    return tp_os_slurp_fd(journal->fd, &st, journal->path, MAX_BYTES, text, size, err);
}

static enum tp_code resume(struct tp_journal *journal, int dir,
                           const struct tp_journal_work *work, bool *foreign, struct tp_err *err)
{
    bool same = true;
    struct tp_err memory = {0};
    char hash[TP_HASH_TEXT], *text;
    size_t size = 0, next = 0, head = MAGIC_SIZE + TP_HASH_TEXT;
    enum tp_code code = tp_journal_text(journal, &text, &size, err);
    if (code)
        return code;
    tp_hash_print(work->plan->hash, hash);
    /* A first line that a crash cut off or garbled: no shard was entered before it
     * was safe, so there is nothing to lose. */
    bool begun = size >= head && text[head - 1] == '\n' && memcmp(text, MAGIC, strlen(MAGIC)) == 0;
    *foreign = begun && (memcmp(text, magics[work->zstd], MAGIC_SIZE) != 0 ||
                         memcmp(text + MAGIC_SIZE, hash, TP_HASH_TEXT - 1) != 0);
    const char *end = text + size, *line = text + head, *stop;
    if (begun) {
        line = read_source(line, end, work->source, &same);
        line = read_command(line, end, &journal->command, &memory);
    }
    journal->other_source = begun && !*foreign && !same;
    *foreign = *foreign || journal->other_source;
    journal->names_shards = begun && memchr(line, '\n', (size_t)(end - line));
    if (*foreign || !begun) {
        free(text);
        tp_err_memory(err, &memory);
        return memory.code;
    }
    for (; line < end && (stop = memchr(line, '\n', (size_t)(end - line))); line = stop + 1)
        read_line(line, (size_t)(stop - line), work->plan, journal, &next, &memory);
    for (uint32_t f = 0; f < work->plan->file_count; f++)
        if (journal->done[f])
            tp_journal_prove(journal, dir, work->plan, f, work->zstd, &memory);
    journal->size = (uint64_t)(line - text); /* a line cut off is overwritten */
    free(text);
    tp_err_memory(err, &memory);
    return memory.code;
}

enum tp_code tp_journal_open(int dir, const char *directory, const char *name,
                             const struct tp_journal_work *work, struct tp_journal *journal,
                             bool *foreign, struct tp_err *err)
{
    const struct tp_plan *plan = work->plan;
    memset(journal, 0, sizeof *journal);
    *foreign = false;
    journal->fd = -1;
    journal->file_count = plan->file_count;
    journal->path = tp_os_format(err, "%s/%s", directory, name);
    journal->done = tp_os_zalloc(plan->file_count + 1, sizeof *journal->done, err);
    journal->hash = tp_os_zalloc(plan->file_count + 1, sizeof *journal->hash, err);
    journal->read = tp_os_zalloc(plan->file_count + 1, sizeof *journal->read, err);
    if (!journal->path || !journal->done || !journal->hash || !journal->read)
        return TP_E_MEMORY;
    enum tp_code code = tp_below_open_own(dir, name, plan->ckpt->mode, journal->path,
                                          &journal->fd, err);
    if (code ||
        (code = tp_os_lock(journal->fd, journal->path, &journal->unlocked, err)) ||
        (code = resume(journal, dir, work, foreign, err)) || *foreign)
        return code;
    /* What names no shard may have been cut off in its head. */
    return journal->names_shards ? TP_OK : start(journal, work, err);
}

/* No line of the old plan may outlive a crash behind the new plan's header. */
enum tp_code tp_journal_restart(struct tp_journal *journal, const struct tp_journal_work *work,
                                struct tp_err *err)
{
    if (tp_os.ftruncate(journal->fd, 0))
        return tp_os_fail(err, errno, journal->path, "cannot truncate the journal");
    enum tp_code code = tp_os_fsync(journal->fd, journal->path, err);
    return code ? code : start(journal, work, err);
}

enum tp_code tp_journal_add(struct tp_journal *journal, const struct tp_plan *plan, uint32_t file,
                            const uint8_t hash[TP_HASH_BYTES], struct tp_read_list *read,
                            struct tp_err *err)
{
    struct tp_text line = {0};
    char digits[TP_HASH_TEXT];
    tp_hash_print(hash, digits);
    free(journal->read[file].items);
    journal->read[file] = *read;
    *read = (struct tp_read_list){0};
    memcpy(journal->hash[file], hash, TP_HASH_BYTES);
    enum tp_code code = tp_text_addf(&line, err, "%s %s", plan->files[file].name, digits);
    if (code == TP_OK && (!journal->read[file].known ||
                          (code = sums_text(&journal->read[file], &line, err)) == TP_OK) &&
        (code = tp_text_add_word(&line, "\n", err)) == TP_OK &&
        (code = tp_os_write(journal->fd, line.data, line.size, journal->size, journal->path,
                            err)) == TP_OK)
        code = tp_os_fsync(journal->fd, journal->path, err);
    journal->size += line.size;
    tp_text_free(&line);
    return code;
}

enum tp_code tp_journal_join(struct tp_journal *journal, const struct tp_plan *plan,
                             const char *text, struct tp_err *err)
{
    const char *stop;
    size_t size = strlen(text), next = 0;
    for (const char *line = text; (stop = strchr(line, '\n')); line = stop + 1)
        read_line(line, (size_t)(stop - line), plan, journal, &next, err);
    if (err->code)
        return err->code;
    enum tp_code code = tp_os_write(journal->fd, text, size, journal->size, journal->path, err);
    journal->size += size;
    return code ? code : tp_os_fsync(journal->fd, journal->path, err);
}

void tp_journal_close(struct tp_journal *journal)
{
    if (journal->path && journal->fd >= 0)
        tp_os.close(journal->fd);
    for (size_t f = 0; journal->read && f < journal->file_count; f++)
        free(journal->read[f].items);
    free(journal->read);
    free(journal->path);
    free(journal->command);
    free(journal->done);
    free(journal->hash);
    memset(journal, 0, sizeof *journal);
}
