/* Files of importance: for each weight how much the columns of W count in a scale search, one
 * number for each column (formats/README.md, section 14.2).
 *
 * Three kinds are read: safetensors, and llama.cpp's imatrix as GGUF and in its older form.
 * A file is opened once; its names and places are kept, numbers are read when they are asked
 * for, and each is checked every time: finite and, but of moments, not negative.
 */
#ifndef TP_PACK_IMPORTANCE_H
#define TP_PACK_IMPORTANCE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_importance_file;

/* Where the K numbers of one expert of a weight are. */
struct tp_importance_ref {
    uint32_t entry; /* TP_NO_IMPORTANCE: nowhere */
    uint32_t rank;  /* of the moments beside them: K times so many numbers, or none */
    uint64_t row, moments_row;
};
#define TP_NO_IMPORTANCE UINT32_MAX

/* TP_E_INPUT, with the file and the place, for whatever is none of the three kinds, is cut
 * off, or holds impossible counts. */
enum tp_code tp_importance_open(const char *path, struct tp_importance_file **opened,
                                struct tp_err *err);
void tp_importance_close(struct tp_importance_file *file); /* legal on NULL */

/* Marks every entry that has one of the names of the weight (importance_names.h). */
void tp_importance_claim(struct tp_importance_file *file, const char *weight);
/* TP_E_INPUT when an entry was not marked: it is the file of another model. */
enum tp_code tp_importance_all_claimed(const struct tp_importance_file *file, struct tp_err *err);

/* The largest magnitude of what that expert of a weight is multiplied with, "NAME.amax": the
 * largest of the entries that weights of the same input have. 0: the file says nothing of it. An
 * entry of another number of experts, and a number that is not finite or not above 0, is
 * TP_E_INPUT. */
enum tp_code tp_importance_largest(const struct tp_importance_file *file, const char *weight,
                                   uint64_t expert, uint64_t experts, float *largest,
                                   struct tp_err *err);

/* The mean square of the gradients of that expert's outputs, "NAME.gradient", of the weight's own
 * entry; -1: the file says nothing of it. Errors as above. */
enum tp_code tp_importance_gradient(const struct tp_importance_file *file, const char *weight,
                                    uint64_t expert, uint64_t experts, float *square,
                                    struct tp_err *err);
bool tp_importance_has_gradients(const struct tp_importance_file *file); /* of some weight */

/* The numbers of that expert of a weight of `experts` experts and K columns. Entries of one
 * row serve all experts. No entry is no error; one of another size is TP_E_INPUT. */
enum tp_code tp_importance_find(const struct tp_importance_file *file, const char *weight,
                                uint64_t expert, uint64_t experts, uint64_t k,
                                struct tp_importance_ref *ref, struct tp_err *err);

/* Numbers [first, first + count) of the K that a ref stands for; zeros for one that is
 * nowhere, so that all root weights are equal. Any number of threads may read. */
enum tp_code tp_importance_read(const struct tp_importance_file *file, struct tp_importance_ref ref,
                                uint64_t k, uint64_t first, uint64_t count, float *to,
                                struct tp_err *err);

const char *tp_importance_path(const struct tp_importance_file *file);

/* The moments v[K][ref.rank] beside them, ref.rank > 0. */
enum tp_code tp_moments_read(const struct tp_importance_file *file, struct tp_importance_ref ref,
                             uint64_t k, float *to, struct tp_err *err);

#endif
