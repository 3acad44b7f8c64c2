/* tilepack: weights in the bytes that GPU kernels read. The C library.
 *
 *     cc program.c -ltilepack
 *
 * Four parts, independent of each other:
 *   formats   what can be made: names, parameters, the facts of each format
 *   weights   quantize, repack and decode one weight W[E,N,K] in memory, on the
 *             host or on a CUDA device
 *   layouts   where element (e,n,k) lies, and what lies at an offset
 *   files     read checkpoints, plain and packed, tensor by tensor or value by value, or
 *             load them to a CUDA device
 *
 * Conventions
 *   A weight is W[E,N,K]: E experts of N output features by K input features,
 *   row-major, K fastest. A plain matrix has E = 1.
 *   Handles (tilepack_weight, tilepack_layout, tilepack_checkpoint) are opaque. What is
 *   made by a function is freed by its counterpart; freeing NULL does nothing.
 *   Strings that are returned belong to the library and live as long as the handle
 *   they came from, or for ever when they came from none.
 *   A function that can fail returns an enum tilepack_status and takes `message`, a
 *   buffer of `size` bytes (or NULL) that receives one line of text: what failed, and
 *   what to do, control characters and bytes that are no UTF-8 as \x0A and the like. It is
 *   empty after success. Handles and pointers to results are not NULL, unless that is said.
 *   Everything may be called from any thread; one handle may be read by many threads
 *   at a time. Nothing is printed, no signal is touched, the process is never ended.
 *
 * The same call makes the same bytes on any processor and any GPU.
 *
 * Compatibility: names and meanings declared here stay within one major version;
 * enumerators and functions may be added. The shared library exports nothing else.
 */
#ifndef TILEPACK_H
#define TILEPACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TILEPACK_VERSION "0.2.0"
#define TILEPACK_VERSION_NUMBER 200 /* major * 10000 + minor * 100 + patch */

/* The version of the library at run time, in these two forms. */
const char *tilepack_version(void);
unsigned tilepack_version_number(void);

/* Equal to the exit statuses of the program tilepack(1). */
enum tilepack_status {
    TILEPACK_OK = 0,
    TILEPACK_E_DIFFERENT = 1,   /* what is stored is not what its hash says */
    TILEPACK_E_USAGE = 2,       /* an argument is wrong */
    TILEPACK_E_INPUT = 3,       /* a file, or data, is not what it should be */
    TILEPACK_E_UNSUPPORTED = 4, /* right, but not to be done by this version */
    TILEPACK_E_IO = 5,          /* the operating system refused */
    TILEPACK_E_MEMORY = 6,      /* out of memory, or the device failed */
};

/* Element type of unquantized values. */
enum tilepack_dtype {
    TILEPACK_F32 = 1,
    TILEPACK_BF16 = 2,
    TILEPACK_F16 = 3,
};

/* Most dimensions of a tensor, most tensors of a packed weight. */
enum { TILEPACK_MAX_RANK = 8, TILEPACK_MAX_TENSORS = 6 };

/* ------------------------------------------------------------------ formats --
 *
 * `tilepack formats` prints the same facts; tilepack-formats(5) explains them.
 */

/* Names of all formats, sorted; NULL when i is too large. Some are read only: they
 * can be decoded and repacked from, not quantized to. The first call of the library that needs
 * them reads them all. While memory for that is short every format is unknown to these functions,
 * tilepack_weight_new() and tilepack_open() give TILEPACK_E_MEMORY, and a later call succeeds. */
const char *tilepack_format_name(size_t i);

/* 1 when weights can be quantized to it, 0 when it is read only or unknown. */
int tilepack_format_is_written(const char *format);

/* One line about it, and the whole format file (JSON). NULL when unknown. */
const char *tilepack_format_title(const char *format);
const char *tilepack_format_json(const char *format);

/* Its parameters, and the values of each; the first value is the default. NULL when
 * p or v is too large. A value may have other names, "aliases" in the format file, that
 * are taken as well. */
const char *tilepack_format_parameter(const char *format, size_t p);
const char *tilepack_format_parameter_value(const char *format, size_t p, size_t v);
const char *tilepack_format_parameter_help(const char *format, size_t p);

/* ------------------------------------------------------------------ weights --
 *
 * A tilepack_weight describes one packed weight: its format, parameters and size,
 * and from these the tensors that it consists of. It holds no data.
 */
typedef struct tilepack_weight tilepack_weight;

/* `parameters`: "key=value,key=value", or NULL for the defaults. TILEPACK_E_UNSUPPORTED
 * when the format cannot hold a weight of this size; the message says why. Some formats
 * that are only read hold one matrix: they take E = 1. */
int tilepack_weight_new(const char *format, const char *parameters, uint64_t e, uint64_t n,
                        uint64_t k, tilepack_weight **weight, char *message, size_t size);

/* The same for any weight that `convert` writes. `part`: what it is for its format, "part" of its
 * descriptor, or "gated" for the rows of gate and up, each n/2 (a format that is the same for that
 * part is taken as it is); NULL where there is none. `bias` not 0: the bias of such a weight, of n
 * numbers and k = 1, as "bias" of the format has it. For the sizes and layouts of its tensors. */
int tilepack_weight_new_part(const char *format, const char *parameters, const char *part,
                             int bias, uint64_t e, uint64_t n, uint64_t k,
                             tilepack_weight **weight, char *message, size_t size);
void tilepack_weight_free(tilepack_weight *weight);

/* Number of tensors it consists of; the functions below take i below that. */
size_t tilepack_weight_tensors(const tilepack_weight *weight);

/* What tensor i is called in a file: "weight_packed" for `S.weight_packed`. */
const char *tilepack_weight_suffix(const tilepack_weight *weight, size_t i);

/* "codes", "scale", "group8", "channel", "global", "words" (constants that follow
 * from the size alone), "zero" or "order". */
const char *tilepack_weight_role(const tilepack_weight *weight, size_t i);

/* As in a safetensors header: "F8_E4M3", "U8", "I32", "F32", "BF16", ... */
const char *tilepack_weight_dtype(const tilepack_weight *weight, size_t i);

/* Shape of tensor i; returns its rank, at most TILEPACK_MAX_RANK. As in a stack of E
 * experts, so that E leads also when it is 1 (constants may have no E). */
size_t tilepack_weight_shape(const tilepack_weight *weight, size_t i,
                             uint64_t shape[TILEPACK_MAX_RANK]);

/* Bytes of tensor i, padding included. */
uint64_t tilepack_weight_bytes(const tilepack_weight *weight, size_t i);

/* Layout of tensor i as text, to be read by tilepack_layout_new(): numbers only, in
 * units of one stored element (a nibble for int4). NULL for constants. */
const char *tilepack_weight_layout(const tilepack_weight *weight, size_t i);

/* On the host. `values`: E*N*K elements. tensors[i] receives
 * tilepack_weight_bytes(weight, i) bytes, padding and constants included. *nonfinite
 * (may be NULL) becomes 1 when a value was NaN or infinite, or so large that the format
 * has no number for it, else 0; the result is then
 * what the format's own library makes of them. Pointers at multiples of 64 bytes are
 * used as they are, others cost a copy. Works in the calling thread alone: call it
 * for several weights, or experts, at a time to use more.
 *
 * Formats with a global scale (nvfp4) take E = 1. TILEPACK_E_INPUT, and nothing is written, when
 * the largest magnitude is above 0 and has none: where the scale is a multiplier, below 1.9e-42. */
int tilepack_quantize(const tilepack_weight *weight, enum tilepack_dtype dtype,
                      const void *values, void *const tensors[], int *nonfinite, char *message,
                      size_t size);

/* The reverse: E*N*K values of dtype F32 or BF16, as the format's kernel computes
 * them. A tensor that may be missing from a file may be NULL; a global scale only when
 * the weight is one of tilepack_packed_weight() or the scale is always 1. E = 1 as above.
 * TILEPACK_E_INPUT when the tensors contradict the weight: act-order that names a group
 * that does not exist, int8-stored codes that are no int4 values. */
int tilepack_decode(const tilepack_weight *weight, const void *const tensors[],
                    enum tilepack_dtype dtype, void *values, char *message, size_t size);

/* 1 when codes and scales of `from` can be taken over into `to` unchanged, but for a global scale
 * that divides in one and multiplies in the other: its reciprocal is stored. */
int tilepack_can_repack(const tilepack_weight *from, const tilepack_weight *to);

/* Takes them over. Both have one size; what decoding says of tensors holds here, too.
 * Scales that are NaN, infinite or negative are TILEPACK_E_INPUT, but negative ones are
 * taken over when `from` is one of tilepack_packed_weight() and its file says that they were
 * searched so (`convert --signed`). On a device scales are not looked at. Scales of a format
 * with "lift" are stored as they are: how far a weight's are shifted only `convert` finds out. */
int tilepack_repack(const tilepack_weight *from, const void *const from_tensors[],
                    const tilepack_weight *to, void *const to_tensors[], char *message,
                    size_t size);

/* The bytes of a constant tensor (role "words"): on a device they are the caller's to
 * copy. TILEPACK_E_USAGE for any other tensor. */
int tilepack_weight_constant(const tilepack_weight *weight, size_t i, void *bytes,
                             char *message, size_t size);

/* The same on a CUDA device. All pointers are device memory of device `device` (as the
 * CUDA runtime numbers them), at multiples of 64 bytes; `stream` is a cudaStream_t (or
 * CUstream) of it, NULL the default one. The calls enqueue and return: nothing is
 * allocated, copied or waited for. Constants are left alone; their pointers may be
 * NULL. *device_flags, a zeroed 32-bit word of device memory (or NULL), becomes
 * non-zero when a value was NaN or infinite. `amax`: the largest magnitude of the
 * weight, for formats with a global scale, TILEPACK_E_INPUT as above; ignored by the others.
 *
 * TILEPACK_E_MEMORY when there is no usable device, or the launch failed. */
int tilepack_cuda_devices(void); /* 0 without a GPU, a driver, or CUDA in this build */
int tilepack_quantize_cuda(const tilepack_weight *weight, enum tilepack_dtype dtype,
                           const void *values, void *const tensors[], float amax,
                           uint32_t *device_flags, int device, void *stream, char *message,
                           size_t size);
int tilepack_decode_cuda(const tilepack_weight *weight, const void *const tensors[],
                         enum tilepack_dtype dtype, void *values, int device, void *stream,
                         char *message, size_t size);
int tilepack_repack_cuda(const tilepack_weight *from, const void *const from_tensors[],
                         const tilepack_weight *to, void *const to_tensors[], int device,
                         void *stream, char *message, size_t size);

/* ------------------------------------------------------------------ layouts --
 *
 * A layout is a CuTe map of (e,n,k) to an offset: three modes `shape:stride`, e.g.
 *     (8,(8,2,64),(4,4,2,16)):(1048576,(64,4,512),(1,16,8,32768))
 * where a mode is one size or a list of sizes, fastest first. Texts may hold E, N, K
 * and + - * / ceil(a,b) align(a,b); tilepack-formats(5) has the grammar. Every layout
 * is a bijection of its box onto [0,size): anything else is refused.
 */
typedef struct tilepack_layout tilepack_layout;

int tilepack_layout_new(const char *text, uint64_t e, uint64_t n, uint64_t k,
                        tilepack_layout **layout, char *message, size_t size);
void tilepack_layout_free(tilepack_layout *layout);

/* Coordinates along e, n and k, padding included; and their product. */
void tilepack_layout_box(const tilepack_layout *layout, uint64_t box[3]);
uint64_t tilepack_layout_size(const tilepack_layout *layout);

/* Offset of a coordinate inside the box; UINT64_MAX outside of it. */
uint64_t tilepack_layout_at(const tilepack_layout *layout, uint64_t e, uint64_t n, uint64_t k);

/* The coordinate stored at an offset; 0, or -1 when offset >= size. */
int tilepack_layout_coord(const tilepack_layout *layout, uint64_t offset, uint64_t coord[3]);

/* The numeric text; returns its length without the zero, as snprintf does. */
size_t tilepack_layout_print(const tilepack_layout *layout, char *text, size_t size);

/* Ranges that are contiguous both in `whole` and in `part`, the same symbolic
 * layout for a smaller box that begins at (e,n,k) of the whole: what to copy to put a
 * part in its place. Calls visit(arg, offset in whole, offset in part, length) in order
 * of the part's offsets; ends at the first non-zero return, which it returns.
 * TILEPACK_E_USAGE (2) when the part is not stored like a small whole. */
typedef int (*tilepack_run_visit)(void *arg, uint64_t whole_offset, uint64_t part_offset,
                                  uint64_t length);
int tilepack_layout_runs(const tilepack_layout *part, const tilepack_layout *whole, uint64_t e,
                         uint64_t n, uint64_t k, tilepack_run_visit visit, void *arg);

/* -------------------------------------------------------------------- files --
 *
 * A checkpoint is a .safetensors file or a directory of them, plain or packed, also
 * compressed (.safetensors.zst). Opening reads headers only.
 */
typedef struct tilepack_checkpoint tilepack_checkpoint;

int tilepack_open(const char *path, tilepack_checkpoint **checkpoint, char *message,
                  size_t size);
void tilepack_close(tilepack_checkpoint *checkpoint);

/* Tensors, sorted by name; t is below tilepack_tensors(). */
size_t tilepack_tensors(const tilepack_checkpoint *checkpoint);
/* SIZE_MAX when there is none of that name. */
size_t tilepack_tensor_find(const tilepack_checkpoint *checkpoint, const char *name);
const char *tilepack_tensor_name(const tilepack_checkpoint *checkpoint, size_t t);
const char *tilepack_tensor_dtype(const tilepack_checkpoint *checkpoint, size_t t);
size_t tilepack_tensor_shape(const tilepack_checkpoint *checkpoint, size_t t,
                             uint64_t shape[TILEPACK_MAX_RANK]);
uint64_t tilepack_tensor_bytes(const tilepack_checkpoint *checkpoint, size_t t);

/* The path of the file it lies in, as it was opened, and its offset there. NULL when the file is
 * compressed and has no such offset. */
const char *tilepack_tensor_file(const tilepack_checkpoint *checkpoint, size_t t,
                                 uint64_t *offset);

/* The open descriptor of that file, for memory mapping: whatever file has that path by now, the
 * offset is of this one. It is for reading and stays the handle's: a mapping of it outlives
 * tilepack_close(). -1 when the file is compressed. */
int tilepack_tensor_descriptor(const tilepack_checkpoint *checkpoint, size_t t);

/* Reads `bytes` bytes at `offset` of the tensor's data. */
int tilepack_tensor_read(const tilepack_checkpoint *checkpoint, size_t t, uint64_t offset,
                         void *to, uint64_t bytes, char *message, size_t size);

/* Packed weights, in the order of the files' data; w is below tilepack_packed(). */
size_t tilepack_packed(const tilepack_checkpoint *checkpoint);
/* SIZE_MAX when there is none of that name (the name as tilepack_packed_name has it). */
size_t tilepack_packed_find(const tilepack_checkpoint *checkpoint, const char *name);
/* "model.layers.0.self_attn.q_proj": the tensors' names without the suffixes. */
const char *tilepack_packed_name(const tilepack_checkpoint *checkpoint, size_t w);
const char *tilepack_packed_format(const tilepack_checkpoint *checkpoint, size_t w);
void tilepack_packed_box(const tilepack_checkpoint *checkpoint, size_t w, uint64_t box[3]);

/* The tensor that holds part i of it; SIZE_MAX when the file has none. */
size_t tilepack_packed_tensor(const tilepack_checkpoint *checkpoint, size_t w, size_t i);

/* Its description as a weight of its own, to be freed: for decoding and repacking what
 * tilepack_tensor_read() has read. */
int tilepack_packed_weight(const tilepack_checkpoint *checkpoint, size_t w,
                           tilepack_weight **weight, char *message, size_t size);

/* Decoded values of rows [n0,n1) and columns [k0,k1) of expert e, row by row, as they lie: of
 * some weights in another order than the source's ("rows" of descriptors). Reads no more of the
 * file than the tiles they lie in. */
int tilepack_packed_values(const tilepack_checkpoint *checkpoint, size_t w, uint64_t e,
                           uint64_t n0, uint64_t n1, uint64_t k0, uint64_t k1, float *values,
                           char *message, size_t size);

/* A box of a tensor, and where it goes. */
typedef struct tilepack_part {
    size_t tensor; /* below tilepack_tensors() */
    /* Along each dimension of tilepack_tensor_shape() the first element, and the one behind
     * the last. Further dimensions are not looked at. */
    uint64_t begin[TILEPACK_MAX_RANK], end[TILEPACK_MAX_RANK];
    /* Memory of the caller that receives the elements row-major, without gaps, as they are
     * stored. NULL is right for an empty box alone. */
    void *to;
    /* 0, or the box is one of the tensor's bytes, as an array of so many dimensions: for tiles,
     * which the tensor's own dimensions need not count. */
    size_t rank;
    uint64_t shape[TILEPACK_MAX_RANK];
} tilepack_part;

/* Loads parts of tensors into memory that the caller allocated: several threads read into a
 * ring of host memory, out of which the bytes are copied while others are read. Nothing but the
 * pages in which the parts lie is read, however the parts are ordered.
 *
 *   device   a CUDA device as its runtime numbers them, whose memory all `to` are and for which
 *            the ring is pinned; -1: host memory
 *   stream   a cudaStream_t of the device, NULL the default one: the memory is written when
 *            what is queued there now has ended. The call itself waits for all copies.
 *   verify   not 0: every file that holds a part is read whole, once, and hashed on the way;
 *            with its own hash in the header, as tilepack writes files, or TILEPACK_E_UNSUPPORTED
 *   threads  that read; 0: one for each processor that the process may use, at most 14
 *   ring     most bytes of the ring; 2 MiB for each thread at least, or fewer threads. 0: 6 MiB for
 *            each thread
 *
 * The pinned ring is kept for the next call, until the checkpoint is closed. Parts may lie anywhere
 * in the checkpoint; their memory must not overlap. After a failure
 * nothing is written any more, and the contents of all `to` are undefined: TILEPACK_E_USAGE for
 * a box that is not inside of its tensor or a shape of other bytes, TILEPACK_E_INPUT for a file that was truncated or
 * changed since it was opened, TILEPACK_E_DIFFERENT for a wrong hash, TILEPACK_E_UNSUPPORTED for
 * a box of elements below one byte that does not begin and end with a byte, TILEPACK_E_IO,
 * TILEPACK_E_MEMORY also when the device fails. */
int tilepack_load(const tilepack_checkpoint *checkpoint, const tilepack_part parts[],
                  size_t count, int device, void *stream, int verify, unsigned threads,
                  uint64_t ring, char *message, size_t size);

#ifdef __cplusplus
}
#endif

#endif
