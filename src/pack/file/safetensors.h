/* Safetensors headers: a strict streaming reader, and a writer.
 *
 * The reader accepts a subset of what the safetensors library accepts (every
 * file it takes, that library takes too) and says at which byte a file breaks
 * which rule. It holds one arena for all names, no tree, and never trusts a
 * number before checking it. It reads no tensor data.
 */
#ifndef TP_PACK_SAFETENSORS_H
#define TP_PACK_SAFETENSORS_H

#include "base/dtype.h"
#include "base/error.h"
#include "pack/text/text.h"

#include <stddef.h>
#include <stdint.h>

enum { TP_ST_MAX_RANK = 8 };
#define TP_ST_MAX_HEADER UINT64_C(100000000) /* the format's own limit */
#define TP_ST_MAX_TENSORS UINT64_C(1000000)  /* this program's */

struct tp_st_tensor {
    const char *name; /* NUL-terminated UTF-8 in the arena */
    enum tp_dtype dtype;
    uint32_t rank;
    uint64_t shape[TP_ST_MAX_RANK];
    uint64_t begin, end; /* data_offsets: relative to the end of the header */
};

struct tp_st_meta {
    const char *key, *value; /* decoded strings in the arena */
};

struct tp_st_header {
    struct tp_st_tensor *tensors; /* in the order of their data */
    size_t count;
    struct tp_st_meta *meta; /* __metadata__ in file order */
    size_t meta_count;
    uint64_t data_start; /* 8 + header length */
    char *arena;
};

/* TP_E_INPUT, with what to do, where a file that begins so is what Git LFS puts in a file's
 * place. */
enum tp_code tp_lfs_check(const void *text, uint64_t size, struct tp_err *err);

/* The header length stored in the first 8 bytes of a file of `file_size` bytes:
 * at least 2, at most TP_ST_MAX_HEADER, and inside the file. Recognizes a few
 * files that are commonly found under a .safetensors name and says so. */
enum tp_code tp_st_header_size(const uint8_t prefix[8], uint64_t file_size, uint64_t *size,
                               struct tp_err *err);

/* Parses `size` header bytes (without the 8-byte length) of a file of
 * `file_size` bytes. Checks every rule: UTF-8, no duplicate keys, known dtypes,
 * shape x dtype = bytes, no holes, no overlaps, data reaches exactly the end of
 * the file. A broken rule is TP_E_INPUT; more dimensions or tensors than the
 * limits above, or a dtype this program does not know, TP_E_UNSUPPORTED. Errors
 * carry the tensor's name and the file offset of the offending byte, not the
 * path. On failure *header is closed. `text` may be freed afterwards. */
enum tp_code tp_st_parse(const char *text, uint64_t size, uint64_t file_size,
                         struct tp_st_header *header, struct tp_err *err);
/* The same of the first 8 + size bytes of the file, in memory from malloc() that is the
 * header's from now on, also on failure: strings are decoded where they stand, so
 * that a header of 100 MB is in memory once. `size` passed tp_st_header_size(). */
enum tp_code tp_st_parse_here(char *begin, uint64_t size, uint64_t file_size,
                              struct tp_st_header *header, struct tp_err *err);
void tp_st_close(struct tp_st_header *header); /* legal on {0} and twice */

/* Value of a __metadata__ key, or NULL. */
const char *tp_st_meta(const struct tp_st_header *header, const char *key);

/* Writes the header of a file whose data starts at a multiple of `align` > 0
 * (8-byte length, compact JSON, spaces). Metadata comes first, without it there
 * is no __metadata__; keys stay in the order given. Tensors must be in data
 * order without holes, which is checked (TP_E_INPUT). A header above the
 * format's limit is TP_E_UNSUPPORTED. The whole prefix, length included, is
 * appended to *out, whose size before the call must be 0 for `align` to hold. */
enum tp_code tp_st_write_header(const struct tp_st_tensor *tensors, size_t count,
                                const struct tp_st_meta *meta, size_t meta_count, uint64_t align,
                                struct tp_text *out, struct tp_err *err);

#endif
