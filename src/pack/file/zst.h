/* Seekable zstd files: independent frames and a seek table in a final skippable
 * frame (zstd's "seekable format", magic 0x8F92EAB1). `zstd -d` restores the
 * plain file exactly. Reading one range decompresses only the frames it touches.
 *
 * Each frame written states its size and carries its own checksum (XXH64, by
 * which zstd finds damage), so the seek table is written without checksums; where
 * another writer put some there, they are checked as well.
 */
#ifndef TP_PACK_ZST_H
#define TP_PACK_ZST_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_zst;

/* True when the file begins with a zstd frame or a skippable frame. No safetensors
 * file does: the bytes would be a header length beyond its limit. */
bool tp_zst_detect(const uint8_t magic[4]);

/* Reads the seek table and checks it against the file: sizes add up, frames lie
 * inside. What cannot be read in parts (a file without a seek table, a frame of more
 * than 64 MiB) is TP_E_UNSUPPORTED, with the hint to run `zstd -d`; a damaged file is
 * TP_E_INPUT, with the offset. The fd stays the caller's and must outlive *zst. */
enum tp_code tp_zst_open(int fd, uint64_t file_size, const char *path, struct tp_zst **zst,
                         struct tp_err *err);
void tp_zst_close(struct tp_zst *zst); /* NULL is legal */
uint64_t tp_zst_size(const struct tp_zst *zst); /* of the plain file */

/* Reads plain bytes. Thread-safe; a cache keeps recently used frames. A range that
 * covers a whole frame is decoded in place. A damaged frame is TP_E_INPUT with the
 * frame's offset in the archive; `data` is then unspecified. */
enum tp_code tp_zst_read(struct tp_zst *zst, void *data, uint64_t size, uint64_t offset,
                         struct tp_err *err);

/* Plain bytes [*begin, *end), not none of them, become those of the archive that hold
 * the frames they are in. */
void tp_zst_stored(const struct tp_zst *zst, uint64_t *begin, uint64_t *end);

/* Bytes that reading its largest frame takes: as stored, and plain. */
uint64_t tp_zst_largest(const struct tp_zst *zst);

/* Bytes that all archives together may hold for cached and running reads; at first
 * 64 MiB. A single frame that needs more is still read, alone. */
void tp_zst_cache_limit(uint64_t bytes);

/* Writing: frames are compressed by `threads` workers and appended in order.
 * add() takes the next plain bytes (any amount; it cuts frames at 4 MiB and at
 * every tp_zst_cut()). finish() writes the seek table and returns the size of the
 * archive, which begins at offset 0 of fd; the caller then fsyncs.
 * The same bytes for any number of threads (and one version of libzstd).
 * add, cut and finish belong to one thread at a time; the first failure stays and
 * is returned by every later call; nothing may be added after finish().
 * `level` is 1 to 22, `threads` 1 to 32 (more are cut down to that; memory is
 * tp_zst_memory()). */
struct tp_zst_writer;
/* Bytes that a writer takes at this level with so many threads, its encoders included. */
uint64_t tp_zst_memory(int level, unsigned threads);
enum tp_code tp_zst_create(int fd, const char *path, int level, unsigned threads,
                           struct tp_zst_writer **writer, struct tp_err *err);
enum tp_code tp_zst_add(struct tp_zst_writer *writer, const void *data, uint64_t size,
                        struct tp_err *err);
enum tp_code tp_zst_cut(struct tp_zst_writer *writer, struct tp_err *err);
enum tp_code tp_zst_finish(struct tp_zst_writer *writer, uint64_t *file_size, struct tp_err *err);
void tp_zst_abandon(struct tp_zst_writer *writer); /* frees; NULL is legal, also after finish */

#endif
