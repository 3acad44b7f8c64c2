/* Sinks: where the bytes of a run go. Positioned files, a comparison with files
 * that exist, or nowhere.
 */
#ifndef TP_PACK_SINK_H
#define TP_PACK_SINK_H

#include "pack/os/below.h"
#include "pack/file/leafhash.h"
#include "pack/plan/unit/plan.h"
#include "pack/sink/assemble.h"

/* Offset of bytes that belong to a file's header and not to an output. */
#define TP_SINK_HEADER UINT32_MAX

struct tp_box;

/* One of many chunks of an output. */
struct tp_chunk {
    uint64_t offset; /* in the output */
    const void *data;
    uint64_t size;
};

struct tp_sink {
    /* Bytes [offset, offset + size) of output `output`, or of the header of file
     * `file` when output is TP_SINK_HEADER. Called from any thread, each byte once. */
    enum tp_code (*write)(struct tp_sink *sink, uint32_t file, uint32_t output, uint64_t offset,
                          const void *data, uint64_t size, struct tp_err *err);
    /* Many chunks of one output in one call, or NULL: write() takes them one by one. */
    enum tp_code (*write_many)(struct tp_sink *sink, uint32_t file, uint32_t output,
                               const struct tp_chunk *chunks, size_t count, struct tp_err *err);
    /* Gets a file ready for its bytes, as far as that can be done while there are none
     * yet; or NULL. At most once for each file, begun before any write of this worker. */
    enum tp_code (*prepare)(struct tp_sink *sink, uint32_t file, struct tp_err *err);
    uint64_t assembles; /* bytes in small chunks, lying together, that cost it little */
};

/* Writes an output that has a constant, `planned`, where it is number `output` of a sink. */
enum tp_code tp_sink_constant(struct tp_sink *sink, uint32_t file, uint32_t output,
                              const struct tp_output *planned, struct tp_err *err);

struct tp_open_file; /* one output file while it is written */

/* Tells the disk to start on what is written, in a thread of its own (writeback.c). */
struct tp_writeback {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct tp_open_file *first, *busy; /* waiting, being dealt with */
    bool started, quit, drop;
};

/* Writes the plan's files into a directory. A file is complete when its last byte
 * came; then it is hashed, its hash digits are filled in, it is fsynced, closed
 * and reported to `done`. */
struct tp_file_sink {
    struct tp_sink sink;
    const struct tp_plan *plan;
    const char *directory;
    const char *only_path; /* single-file output: the temporary path, else NULL; an archive lies
                            * beside it, under one more suffix */
    int only_fd;           /* of a single file, open for reading and writing, and its archive, -1 */
    int archive;           /* while there is none: the caller who opened the sink closes both */
    int dir;               /* `directory`, open, and to be kept so; AT_FDCWD: by path */
    mode_t mode;             /* of the files that are made, less the umask */
    unsigned zstd;         /* compress finished files at this level; 0 = leave them plain */
    unsigned threads;      /* for that */
    pthread_mutex_t compressing; /* one file at a time: encoders are large */
    struct tp_open_file *files;
    struct tp_leaf_pool pool;
    struct tp_writeback writeback;
    enum tp_code (*done)(void *arg, uint32_t file, const uint8_t hash[TP_HASH_BYTES],
                         struct tp_err *err);
    void *done_arg;
};
/* Sets `dir` to AT_FDCWD and `mode` to 0666. `memory`: bytes for putting leaves together.
 * `drop`: what is on the disk leaves the page cache. */
enum tp_code tp_file_sink_open(struct tp_file_sink *sink, const struct tp_plan *plan,
                               const char *directory, const char *only_path, uint64_t memory,
                               bool drop, struct tp_err *err);
void tp_file_sink_close(struct tp_file_sink *sink); /* closes what is open; legal on {0} */

/* Compares with the outputs of the same names in `stored`. Differences are
 * counted, the first one (lowest output, then offset) is kept per output. */
struct tp_difference {
    uint64_t bytes;        /* that differ */
    uint64_t first_offset; /* in the tensor, valid when bytes > 0 */
    uint8_t ours, theirs;  /* that byte, as it should be and as it is stored */
};
struct tp_compare_sink {
    struct tp_sink sink;
    const struct tp_plan *plan;
    const struct tp_checkpoint *stored;
    const struct tp_tensor **tensors; /* per output of the plan */
    struct tp_difference *differences; /* per output */
    pthread_mutex_t lock;
};
enum tp_code tp_compare_sink_open(struct tp_compare_sink *sink, const struct tp_plan *plan,
                                  const struct tp_checkpoint *stored, struct tp_err *err);
void tp_compare_sink_close(struct tp_compare_sink *sink);

extern struct tp_sink tp_discard_sink;

#endif
