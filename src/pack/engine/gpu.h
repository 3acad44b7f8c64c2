/* GPUs by name and by compute capability, and lists of them as files write these: "sm90", "sm100+".
 */
#ifndef TP_PACK_GPU_H
#define TP_PACK_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_chip {
    const char *name;  /* "h100", as --gpu takes it */
    unsigned sm;       /* compute capability: 90 for 9.0 */
    unsigned mib;      /* of memory, as nvidia-smi shows it */
    const char *which; /* where others have that name: which of them it is; or NULL */
};
const struct tp_chip *tp_chips(size_t *count);

/* The chip that a product's name is about: that which has most of its words, "h100" of "NVIDIA H100
 * 80GB HBM3", "a100-40gb" of "NVIDIA A100-SXM4-40GB"; NULL: none. */
const struct tp_chip *tp_chip_find(const char *text);
/* Whether it is the name of one of AMD's. */
bool tp_chip_is_amd(const char *text);

/* The compute capability of such a name, or of "sm90"; 0 when unknown. */
unsigned tp_chip_sm(const char *name);

/* "sm90" or "sm90+": its number, and whether later ones are meant, too; 0 if it is neither. */
unsigned tp_sm_of(const char *text, bool *later);

/* Sets of GPUs are bits, one for each compute capability that the table of chips has, by size. The
 * last bit is one for another, which --gpu asked for. */
enum { TP_SM_OTHER = 31 };
unsigned tp_sm_at(unsigned bit); /* 0: there is no such bit */

/* The bits of those in the list; `other` is the capability that TP_SM_OTHER stands for, or 0. */
uint32_t tp_sms_of(const char *const *list, size_t count, unsigned other);

/* "sm89 and later", "sm90, sm100". The text is cut where it is too long. */
void tp_sms_text(uint32_t bits, unsigned other, char *text, size_t size);

#endif
