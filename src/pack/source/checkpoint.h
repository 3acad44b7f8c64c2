/* Checkpoints: one .safetensors file, or a Hugging Face directory with an index
 * and any number of shards (plain or .safetensors.zst). Opening reads headers
 * only; nothing of the tensor data is read before tp_checkpoint_read().
 */
#ifndef TP_PACK_CHECKPOINT_H
#define TP_PACK_CHECKPOINT_H

#include "pack/file/safetensors.h"
#include "pack/os/os.h"
#include "pack/os/store.h"

#include <stdbool.h>

#define TP_CARD_NAME "README.md" /* the model card */
enum { TP_CARD_MAX_BYTES = 4 << 20 }; /* of which the text is taken over */
#define TP_CONFIG_MAX_BYTES (UINT64_C(64) << 20) /* of config.json */

struct tp_zst; /* an open seekable archive, see zst.h */

/* By what a file is known to be the one that it was. Anybody can set the first time to any time;
 * the second one is that of the last change to its inode, which nobody can set. */
struct tp_stamp {
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
};
struct tp_stamp tp_stamp_of(const struct stat *st);

struct tp_file {
    char *path;       /* as opened */
    char *name;       /* its name in the checkpoint, without .zst:
                         "model-00001-of-00002.safetensors" */
    int fd;
    struct tp_zst *zst; /* not NULL: compressed; sizes below are of the plain file */
    uint64_t size;
    uint64_t disk_size; /* as stored: differs from size when compressed */
    struct tp_stamp stamp; /* when it was opened */
    uint64_t device, inode;
    uint8_t header_hash[16]; /* XXH3-128 (canonical bytes) of the 8 + n header bytes */
    struct tp_st_header header; /* without tensors: they are the checkpoint's */
};

/* Reads bytes of the plain file; thread-safe. The caller adds the path. */
enum tp_code tp_file_read(const struct tp_file *file, void *data, uint64_t size, uint64_t offset,
                          struct tp_err *err);

struct tp_tensor {
    const char *name; /* owned by its file's header */
    uint64_t shape[TP_ST_MAX_RANK]; /* 0 beyond the rank */
    uint64_t offset; /* from the beginning of the (plain) file */
    uint64_t bytes;
    enum tp_dtype dtype;
    uint32_t rank;
    uint32_t file;   /* index into files */
};

enum { TP_ODDS = 4 };

struct tp_checkpoint {
    char *path;
    bool directory;
    bool strict, copies, folders; /* opened so: see TP_CHECKPOINT_STRICT, _COPIES, _FOLDERS */
    mode_t mode;     /* what all files allow that it is read from, other than `others` */
    mode_t dir_mode; /* of the directory; 0777 for a file */
    struct tp_file *files; /* in byte order of the names that the index gives them */
    size_t file_count;
    struct tp_tensor *tensors; /* sorted by name (bytes); names are unique */
    size_t tensor_count;
    uint32_t *by_data;         /* numbers of the tensors in the order of their data: by file,
                                  then offset */
    char *config;       /* text of config.json, or NULL */
    size_t config_size;
    struct tp_stamp config_stamp; /* when it was read */
    char *index_name;             /* of the file; NULL: there is none */
    struct tp_stamp index_stamp;  /* the same of it */
    const char *base;             /* of tp_stem: what the names of its files begin with */
    char *odds[TP_ODDS];          /* where index and shards differ: one sentence each, or NULL */
    const char *const *copy;  /* globs: what they match is among `others`, whatever it is;
                                 borrowed */
    size_t copy_count;
    char **others;      /* names of the other regular files to be copied (tokenizer, ...), also
                           in folders ("1_Pooling/config.json"), sorted folder by folder; not
                           shards, index, config.json or tilepack.json */
    struct tp_stamp *other_stamps; /* when they were found */
    size_t other_count;
    char **left;        /* what is not to be copied: weights in other formats, pipes, devices, and
                           folders, with a slash at their end, of which nothing is; hidden ones
                           apart */
    size_t left_count;
    char **unread;      /* names of the shards (plain: without .zst) that are there but not
                           part of the checkpoint: the index does not name them; sorted */
    size_t unread_count;
};

enum {
    TP_CHECKPOINT_STRICT = 1, /* no symlinks that leave the directory, but those into the blobs
                                 of the Hub's cache */
    TP_CHECKPOINT_COPIES = 2, /* the same for `others`, which are to be copied; no folders that
                                 are links */
    TP_CHECKPOINT_FOLDERS = 4, /* for who copies `others`: these and `left` of folders, too, at any
                                  depth; links that lead nowhere are TP_E_IO, and else left out */
};

/* Opens and checks everything that headers and index can tell: weight_map values
 * are plain basenames of regular files. Where index and headers differ the index
 * decides, and `odds` says it. The first of tp_stem that has an index or a file of its
 * own is the checkpoint, else the only index or the only *.safetensors. Also fine: a symlink to
 * either, shards that are symlinks (the HF cache), and shards stored as NAME.safetensors.zst,
 * whether the index says so or not. Weights that the index does not name are
 * neither opened nor among `others`; nor are weights in other formats and hidden
 * files. At most TP_INDEX_MAX_TENSORS tensors in all.
 *
 * Errors name the file, and the tensor and byte where there is one; what the
 * files say wrongly is TP_E_INPUT. On failure *ckpt is closed. */
enum tp_code tp_checkpoint_open(const char *path, unsigned flags, struct tp_checkpoint *ckpt,
                                struct tp_err *err);
/* The same, and files that match one of these globs, or are in a folder that does, are among
 * `others` also where they are weights. */
enum tp_code tp_checkpoint_open_copying(const char *path, unsigned flags, const char *const *copy,
                                        size_t copies, struct tp_checkpoint *ckpt,
                                        struct tp_err *err);
bool tp_checkpoint_copy_matches(const char *glob, const char *name);
void tp_checkpoint_close(struct tp_checkpoint *ckpt); /* legal on {0} and twice */

/* Bytes that reading the largest frame of its archives takes, as stored and plain; 0: it has none.
 * *path, if not NULL: of that archive. */
uint64_t tp_checkpoint_largest_frame(const struct tp_checkpoint *ckpt, const char **path);

/* NULL when there is none of that name. */
const struct tp_tensor *tp_checkpoint_find(const struct tp_checkpoint *ckpt, const char *name);
/* The same, quickly where the name lies near that of tensor `from`, any number: they are sorted. */
const struct tp_tensor *tp_checkpoint_near(const struct tp_checkpoint *ckpt, uint32_t from,
                                           const char *name);

/* Is told of bytes of a file that were read, by the thread that has named it; NULL: nobody is. What
 * it fails with is the reading's failure. */
typedef enum tp_code tp_checkpoint_seen(void *arg, const struct tp_checkpoint *ckpt, uint32_t file,
                                        const void *data, uint64_t size, uint64_t offset,
                                        struct tp_err *err);
void tp_checkpoint_tell(tp_checkpoint_seen *seen, void *arg);

/* Reads bytes of one (plain) file; thread-safe. */
enum tp_code tp_checkpoint_read(const struct tp_checkpoint *ckpt, uint32_t file, void *data,
                                uint64_t size, uint64_t offset, struct tp_err *err);

/* Bytes of all files as they are on the disk. */
uint64_t tp_checkpoint_bytes(const struct tp_checkpoint *ckpt);

/* The mode of a single file that is made of it: who may not enter the directory may not read it. */
mode_t tp_checkpoint_file_mode(const struct tp_checkpoint *ckpt);

/* Fails with TP_E_INPUT if a shard changed since it was opened, by its stamp, or the index since it
 * was read. */
enum tp_code tp_checkpoint_unchanged(const struct tp_checkpoint *ckpt, struct tp_err *err);
/* The same of config.json and of those of `others` that count, and where another file has the name
 * by now. */
enum tp_code tp_checkpoint_others_unchanged(const struct tp_checkpoint *ckpt,
                                            bool (*counts)(const char *name), struct tp_err *err);

#endif
