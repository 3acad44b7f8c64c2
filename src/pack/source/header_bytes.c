/* What headers say of files that are not opened yet: how long they are, whether there are any, and,
 * by what stands there once for each tensor, how many tensors they list; see header_bytes.h. They
 * are not understood, and nothing else of the files is read. Names are counted, and not kept. */
#include "pack/source/header_bytes.h"

#include "base/num.h"
#include "base/suffix.h"
#include "pack/file/safetensors.h"
#include "pack/file/zst.h"
#include "pack/os/below.h"
#include "pack/os/os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct beginning {
    uint64_t length; /* of the header, if it is one; little-endian hosts only, as is the format */
    char first;      /* its first byte */
    bool packed;     /* it is an archive */
};

/* False, and an error or none: it has no such bytes. *size: of the file; of an archive, where it is
 * not known, the most that a header may have. */
static bool read_begin(const char *path, struct beginning *begin, uint64_t *size,
                       struct tp_err *err)
{
    uint8_t bytes[sizeof begin->length + 1] = {0};
    struct stat st;
    int fd = -1;
    if (tp_os_open_regular(path, O_RDONLY, &fd, &st, err))
        return false;
    *size = (uint64_t)st.st_size;
    bool read = *size >= sizeof bytes &&
                tp_os_read(fd, bytes, sizeof bytes, 0, path, err) == TP_OK;
    begin->packed = read && tp_zst_detect(bytes);
    if (begin->packed) {
        read = tp_zst_peek(fd, *size, bytes, sizeof bytes, err);
        *size = TP_ST_MAX_HEADER;
    }
    tp_os_close(&fd);
    memcpy(&begin->length, bytes, sizeof begin->length);
    begin->first = (char)bytes[sizeof begin->length];
    return read;
}

bool tp_header_begins(const char *path, struct tp_err *err)
{
    struct beginning begin;
    struct tp_err why = {0};
    uint64_t size;
    bool begins = read_begin(path, &begin, &size, &why) && begin.length >= 2 &&
                  begin.length <= TP_ST_MAX_HEADER && begin.first == '{';
    tp_err_take_unread(err, &why);
    return begins;
}

/* More than there is of as many tensors as are read; of what is none, so much is looked at. */
#define MOST_COUNTED (UINT64_C(1) << 30)

/* Tensors of a header of so many bytes; none from where it cannot be read. */
static uint64_t count_tensors(const char *path, uint64_t length)
{
    static const char mark[] = "\"data_offsets\"";
    enum { PIECE = 64 << 10, MARK = sizeof mark - 1 };
    char text[PIECE];
    struct tp_err ignored = {0};
    struct stat st;
    int fd = -1;
    uint64_t count = 0, end = sizeof length + length;
    size_t held = 0; /* the end of the piece before, in which a mark may begin */
    if (tp_os_open_regular(path, O_RDONLY, &fd, &st, &ignored))
        return 0;
    for (uint64_t at = sizeof length; at < end;) {
        size_t more = tp_min_u64(end - at, PIECE - held);
        if (tp_os_read(fd, text + held, more, at, path, &ignored))
            break;
        const char *from = text, *last = text + held + more, *found;
        for (; (found = memmem(from, (size_t)(last - from), mark, MARK)); from = found + MARK)
            count++;
        at += more;
        held = tp_min_u64((size_t)(last - from), MARK - 1);
        memmove(text, last - held, held);
    }
    tp_os_close(&fd);
    return count;
}

/* Adds those of one file. */
static void add_file(const char *path, void *arg)
{
    struct tp_header_size *size = arg;
    struct beginning begin;
    struct tp_err ignored = {0};
    uint64_t most;
    if (!read_begin(path, &begin, &most, &ignored) || begin.length >= TP_ST_MAX_HEADER ||
        begin.length >= most)
        return;
    size->bytes += begin.length;
    if (begin.packed || size->bytes > MOST_COUNTED)
        size->uncounted += begin.length;
    else
        size->tensors += count_tensors(path, begin.length);
}

/* What is done with the shards of a directory. */
struct shards {
    const char *directory;
    void (*act)(const char *file, void *arg);
    void *arg;
};

static enum tp_code act_on_shard(void *arg, const struct dirent *entry, struct tp_err *err)
{
    const struct shards *shards = arg;
    if (!tp_ends_with(entry->d_name, ".safetensors") &&
        !tp_ends_with(entry->d_name, ".safetensors.zst"))
        return TP_OK;
    char *file = tp_os_format(err, "%s/%s", shards->directory, entry->d_name);
    if (file)
        shards->act(file, shards->arg);
    free(file);
    return TP_OK;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return tp_os.stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Does `act` with a file, or with each shard of a directory. */
static void each_shard(const char *path, void (*act)(const char *file, void *arg), void *arg)
{
    struct shards shards = {path, act, arg};
    struct tp_err ignored = {0};
    if (is_directory(path))
        tp_os_each(path, act_on_shard, &shards, &ignored);
    else
        act(path, arg);
}

/* A folder whose names are counted. */
struct folder {
    struct tp_header_size *size;
    const char *path;
    uint64_t above; /* bytes of its own name, as it stands in front of those of its files */
    unsigned depth;
};

static void count_names(const struct folder *folder);

/* What is hidden is none of the checkpoint's, and links to folders may lead in a circle. */
static enum tp_code count_name(void *arg, const struct dirent *entry, struct tp_err *err)
{
    enum { DEEPEST = 16 };
    const struct folder *folder = arg;
    const uint64_t length = folder->above + strlen(entry->d_name) + 1;
    if (entry->d_name[0] == '.')
        return TP_OK;
    folder->size->files++;
    folder->size->names += length;
    if ((entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) || folder->depth == DEEPEST)
        return TP_OK;
    char *path = tp_os_format(err, "%s/%s", folder->path, entry->d_name);
    struct tp_err ignored = {0};
    if (path && tp_below_is_dir(path, &ignored))
        count_names(&(struct folder){folder->size, path, length, folder->depth + 1});
    free(path);
    return TP_OK;
}

static void count_names(const struct folder *folder)
{
    struct tp_err ignored = {0};
    struct folder own = *folder;
    tp_os_each(folder->path, count_name, &own, &ignored);
}

struct tp_header_size tp_header_size(const char *path)
{
    struct tp_header_size size = {0};
    each_shard(path, add_file, &size);
    if (is_directory(path))
        count_names(&(struct folder){&size, path, 0, 0});
    return size;
}

/* Opening an archive is what says it. */
static void open_archive(const char *path, void *unused)
{
    struct tp_err ignored = {0};
    struct tp_zst *zst = NULL;
    struct stat st;
    uint8_t magic[4];
    int fd = -1;
    (void)unused;
    if (!tp_os_open_regular(path, O_RDONLY, &fd, &st, &ignored) &&
        st.st_size >= (off_t)sizeof magic &&
        !tp_os_read(fd, magic, sizeof magic, 0, path, &ignored) && tp_zst_detect(magic))
        tp_zst_open(fd, (uint64_t)st.st_size, path, &zst, &ignored);
    tp_zst_close(zst);
    tp_os_close(&fd);
}

void tp_header_archives(const char *path)
{
    each_shard(path, open_archive, NULL);
}
