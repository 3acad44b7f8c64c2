/* Source weights: what the tensors of a checkpoint are, before anyone asks for a
 * format.
 */
#ifndef TP_PACK_WEIGHTS_H
#define TP_PACK_WEIGHTS_H

#include "pack/source/checkpoint.h"
#include "pack/source/weight_list.h"

/* Sorts a checkpoint's tensors into weights. Descriptors stored by tilepack are
 * taken first; then the interchange formats are recognised by their tensors;
 * every other float tensor of two or three dimensions is a plain weight. Packed
 * weights of other tools need tp_weight_complete() before they are decoded. */
enum tp_code tp_weights_find(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                             struct tp_err *err);
/* The same with what the user says of the model (NULL: nothing); what `choice` points to
 * lives as long as the weights. */
enum tp_code tp_weights_find_as(const struct tp_checkpoint *ckpt,
                                const struct tp_model_choice *choice, struct tp_weights *weights,
                                struct tp_err *err);
/* The same for a reader who makes nothing new of them: weights whose format has a name or a version
 * that is not known are read by their descriptors (format->unknown). */
enum tp_code tp_weights_find_any(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                                 struct tp_err *err);
/* The same for such a reader who looks at packed weights only: plain ones are not among
 * the items, and `other` is empty. */
enum tp_code tp_weights_find_packed(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                                    struct tp_err *err);

/* The tensor of codes of a packed weight that is a convolution, with four dimensions; else NULL. */
const struct tp_tensor *tp_weight_convolution(const struct tp_checkpoint *ckpt,
                                              const struct tp_weight *weight);

/* Refers a failure to what a packed weight holds: its name, and the file of its codes. */
void tp_weight_attribute_error(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                               struct tp_err *err);

#endif
