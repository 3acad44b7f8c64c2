/* Opening a zstd archive: the index of its frames, from the seek table. Decodes no data.
 *
 * Invariant: an index that is handed out covers the file from its first byte to
 * the seek table, each frame lies inside, no frame needs more than
 * TP_ZST_MAX_FRAME plain bytes, and `size` is the sum over all frames.
 */
#include "pack/file/zst_format.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <xxhash.h>

/* A small window on the file: entries of the table lie close together. */
struct window {
    const struct tp_zst *zst;
    uint64_t at;
    size_t size;
    uint8_t data[4096];
};

/* Points *p at the bytes from `at` on, *n of them: `want`, or what the file has. */
static enum tp_code look(struct window *w, uint64_t at, size_t want, const uint8_t **p, size_t *n,
                         struct tp_err *err)
{
    uint64_t rest = at < w->zst->file_size ? w->zst->file_size - at : 0;
    *n = (size_t)tp_min_u64(want, rest);
    if (at < w->at || at - w->at > w->size || w->size - (at - w->at) < *n) {
        w->size = 0;
        size_t fill = (size_t)tp_min_u64(sizeof w->data, rest);
        enum tp_code code = tp_os_read(w->zst->fd, w->data, fill, at, w->zst->path, err);
        if (code)
            return code;
        w->at = at;
        w->size = fill;
    }
    *p = w->data + (at - w->at);
    return TP_OK;
}

bool tp_zst_parse_head(const uint8_t *p, size_t n, struct tp_zst_head *head)
{
    static const uint8_t id_bytes[4] = {0, 1, 2, 4};
    static const uint8_t size_bytes[4] = {0, 2, 4, 8};
    if (n < 6 || tp_zst_u32(p) != TP_ZST_MAGIC || p[4] & 8)
        return false;
    bool single = p[4] >> 5 & 1;
    uint32_t field = size_bytes[p[4] >> 6];
    if (!field && single)
        field = 1;
    uint32_t at = 5 + !single + id_bytes[p[4] & 3];
    *head = (struct tp_zst_head){.bytes = at + field, .sized = field, .single = single,
                                 .checksum = p[4] >> 2 & 1};
    if (n < head->bytes)
        return false;
    for (uint32_t i = 5 + !single; i < at; i++)
        head->dictionary |= p[i] != 0;
    for (uint32_t i = 0; i < field; i++)
        head->plain |= (uint64_t)p[at + i] << 8 * i;
    if (field == 2)
        head->plain += 256;
    return true;
}

static enum tp_code bad(const struct tp_zst *zst, uint64_t at, const char *what,
                        struct tp_err *err)
{
    enum tp_code code = tp_fail(err, TP_E_INPUT, "%s", what);
    tp_err_path(err, zst->path);
    tp_err_offset(err, at);
    tp_err_hint(err, "the archive is damaged or incomplete: `zstd -t %s` checks it; "
                "get the file again", zst->path);
    return code;
}

static enum tp_code unseekable(const struct tp_zst *zst, uint64_t at, const char *what,
                               struct tp_err *err)
{
    enum tp_code code = tp_fail(err, TP_E_UNSUPPORTED, "%s", what);
    tp_err_path(err, zst->path);
    tp_err_offset(err, at);
    tp_err_hint(err, "unpack it first: zstd -d %s", zst->path);
    return code;
}

/* Appends a frame; empty ones only count for the position of the next. */
static enum tp_code add_frame(struct tp_zst *zst, struct tp_zst_frame frame, struct tp_err *err)
{
    if (frame.plain == 0)
        return TP_OK;
    if (zst->count >= TP_ZST_MAX_FRAMES)
        return unseekable(zst, frame.at, "the archive has more than 4194304 frames", err);
    enum tp_code code = tp_os_grow((void **)&zst->frames, &zst->capacity, zst->count + 1,
                                   sizeof *zst->frames, err);
    if (code)
        return code;
    frame.begin = zst->size;
    zst->frames[zst->count++] = frame;
    zst->size += frame.plain; /* at most 2^22 frames of 2^26 bytes */
    return TP_OK;
}

/* A frame that is said to be empty is never decoded, so its few bytes are checked
 * here: `zstd -d` must not restore bytes that we do not see. An empty frame is its
 * header, one last raw block of no bytes, and perhaps the checksum of no bytes. */
static enum tp_code check_empty(struct window *w, const struct tp_zst_frame *frame,
                                struct tp_err *err)
{
    enum { LAST_RAW_EMPTY = 1, BLOCK_HEAD = 3 };
    const uint8_t *p;
    size_t n;
    enum tp_code code = look(w, frame->at, TP_ZST_HEAD_MAX + BLOCK_HEAD + 4, &p, &n, err);
    if (code)
        return code;
    if (n >= TP_ZST_SKIP_HEAD && (tp_zst_u32(p) & ~UINT32_C(15)) == TP_ZST_SKIP_MAGIC) {
        if ((uint64_t)tp_zst_u32(p + 4) + TP_ZST_SKIP_HEAD != frame->stored)
            return bad(w->zst, frame->at, "a skippable frame is not as long as the seek table "
                       "says", err);
        return TP_OK;
    }
    struct tp_zst_head head;
    if (!tp_zst_parse_head(p, n, &head))
        return bad(w->zst, frame->at, "no zstd frame where the seek table says", err);
    if (!head.sized || head.plain)
        return bad(w->zst, frame->at, "the seek table says that a frame is empty, "
                   "which its header does not", err);
    p += head.bytes;
    size_t want = head.bytes + BLOCK_HEAD + (head.checksum ? 4 : 0);
    if (frame->stored != want || n < want || p[0] != LAST_RAW_EMPTY || p[1] || p[2] ||
        (head.checksum && tp_zst_u32(p + BLOCK_HEAD) != (uint32_t)XXH64(NULL, 0, 0)) ||
        head.dictionary || !head.single)
        return bad(w->zst, frame->at, "a zstd frame that should be empty is damaged", err);
    return TP_OK;
}

/* Files that the zstd command made, and those that lack their end or have more behind it. */
static enum tp_code no_table(const struct tp_zst *zst, struct tp_err *err)
{
    tp_err_path(err, zst->path);
    tp_err_hint(err, "unpack it first: zstd -d %s", zst->path);
    return tp_fail(err, TP_E_UNSUPPORTED, "the archive does not end in a seek table: it cannot be "
                   "read in parts");
}

struct table {
    uint64_t at, entries; /* of the skippable frame, and of its first entry */
    uint32_t count, entry_bytes;
};

static enum tp_code find_table(struct window *w, struct table *table, struct tp_err *err)
{
    const struct tp_zst *zst = w->zst;
    const uint8_t *p;
    size_t n;
    if (zst->file_size < TP_ZST_FOOTER + TP_ZST_SKIP_HEAD)
        return no_table(zst, err);
    uint64_t footer = zst->file_size - TP_ZST_FOOTER;
    enum tp_code code = look(w, footer, TP_ZST_FOOTER, &p, &n, err);
    if (code)
        return code;
    if (tp_zst_u32(p + 5) != TP_ZST_SEEK_MAGIC)
        return no_table(zst, err);
    if (p[4] & 0x7C)
        return bad(zst, footer + 4, "the seek table's reserved bits are set", err);
    table->count = tp_zst_u32(p);
    table->entry_bytes = p[4] & 0x80 ? 12 : 8;
    uint64_t bytes = (uint64_t)table->count * table->entry_bytes + TP_ZST_FOOTER;
    if (bytes + TP_ZST_SKIP_HEAD > zst->file_size)
        return bad(zst, footer, "the seek table is longer than the file", err);
    table->at = zst->file_size - bytes - TP_ZST_SKIP_HEAD;
    table->entries = table->at + TP_ZST_SKIP_HEAD;
    code = look(w, table->at, TP_ZST_SKIP_HEAD, &p, &n, err);
    if (code)
        return code;
    if (tp_zst_u32(p) != TP_ZST_TABLE_MAGIC || tp_zst_u32(p + 4) != bytes)
        return bad(zst, table->at, "the seek table's head does not fit its footer", err);
    return TP_OK;
}

static enum tp_code read_table(struct tp_zst *zst, struct window *w, const struct table *table,
                               struct window *frames, struct tp_err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const uint8_t *p;
        size_t n;
        uint64_t entry = table->entries + (uint64_t)i * table->entry_bytes;
        enum tp_code code = look(w, entry, table->entry_bytes, &p, &n, err);
        if (code)
            return code;
        struct tp_zst_frame frame = {.at = at, .stored = tp_zst_u32(p), .plain = tp_zst_u32(p + 4)};
        if (table->entry_bytes == 12) {
            frame.has_checksum = true;
            frame.checksum = tp_zst_u32(p + 8);
        }
        if (frame.stored < TP_ZST_SKIP_HEAD || frame.stored > table->at - at)
            return bad(zst, entry, "the seek table names a frame that does not lie in the file",
                       err);
        at += frame.stored;
        if (frame.plain > TP_ZST_MAX_FRAME || frame.stored > tp_zst_stored_limit(frame.plain))
            return unseekable(zst, frame.at, "a zstd frame is too large to be read in parts "
                              "(64 MiB of plain data is the limit)", err);
        if (frame.plain || !(code = check_empty(frames, &frame, err)))
            code = add_frame(zst, frame, err);
        if (code)
            return code;
    }
    if (at != table->at)
        return bad(zst, table->at, "the frames of the seek table do not add up to the file", err);
    return TP_OK;
}

static enum tp_code build_index(struct tp_zst *zst, struct window windows[2], struct tp_err *err)
{
    const uint8_t *p;
    size_t n;
    enum tp_code code = look(&windows[0], 0, 4, &p, &n, err);
    if (code)
        return code;
    if (n < 4 || !tp_zst_detect(p))
        return bad(zst, 0, "not a zstd file", err);
    struct table table = {0};
    code = find_table(&windows[0], &table, err);
    return code ? code : read_table(zst, &windows[0], &table, &windows[1], err);
}

bool tp_zst_detect(const uint8_t magic[4])
{
    uint32_t word = tp_zst_u32(magic);
    return word == TP_ZST_MAGIC || (word & ~UINT32_C(15)) == TP_ZST_SKIP_MAGIC;
}

void tp_zst_free(struct tp_zst *zst)
{
    if (!zst)
        return;
    free(zst->frames);
    free(zst->path);
    free(zst);
}

uint64_t tp_zst_largest(const struct tp_zst *zst)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < zst->count; i++)
        largest = tp_max_u64(largest, (uint64_t)zst->frames[i].stored + zst->frames[i].plain);
    return largest;
}

enum tp_code tp_zst_open(int fd, uint64_t file_size, const char *path, struct tp_zst **zst,
                         struct tp_err *err)
{
    *zst = NULL;
    struct tp_err local = {0};
    err = err ? err : &local;
    struct tp_zst *z = tp_os_zalloc(1, sizeof *z, err);
    struct window *windows = z ? tp_os_zalloc(2, sizeof *windows, err) : NULL;
    enum tp_code code = err->code;
    if (windows) {
        z->fd = fd;
        z->file_size = file_size;
        z->path = tp_os_format(err, "%s", path);
        windows[0].zst = windows[1].zst = z;
        code = z->path ? build_index(z, windows, err) : err->code;
    }
    free(windows);
    if (code || !z) {
        tp_zst_free(z); /* no frame of it was read */
        return code;
    }
    *zst = z;
    return TP_OK;
}

uint64_t tp_zst_size(const struct tp_zst *zst)
{
    return zst->size;
}
