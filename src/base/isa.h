/* Instruction sets that fast code may use: those of this machine, less those that
 * TILEPACK_DISABLE takes away (a comma list of names, read once).
 */
#ifndef TP_BASE_ISA_H
#define TP_BASE_ISA_H

#include "base/c_linkage.h"

#include <stdbool.h>

TP_C_BEGIN

/* REF is plain C, which always works and cannot be disabled. CUDA is enabled unless
 * taken away; whether there is a device is for the device's own code to find out. */
enum tp_isa { TP_ISA_REF, TP_ISA_AVX2, TP_ISA_AVX512, TP_ISA_NEON, TP_ISA_CUDA, TP_ISA_COUNT };
const char *tp_isa_name(enum tp_isa isa);
bool tp_isa_enabled(enum tp_isa isa);

TP_C_END

#endif
