/* Declarations between TP_C_BEGIN and TP_C_END are C's, also in a CUDA file that includes them. */
#ifndef TP_BASE_C_LINKAGE_H
#define TP_BASE_C_LINKAGE_H

#ifdef __cplusplus
#define TP_C_BEGIN extern "C" {
#define TP_C_END }
#else
#define TP_C_BEGIN
#define TP_C_END
#endif

#endif
