/* The three kinds of files of importance: names and places of their numbers, read into the
 * entries. Errors are TP_E_INPUT, with the offset where there is one.
 */
#ifndef TP_PACK_IMPORTANCE_FILES_H
#define TP_PACK_IMPORTANCE_FILES_H

#include "pack/source/importance_entries.h"

enum tp_code tp_importance_safetensors(struct tp_importance_file *file, struct tp_err *err);
enum tp_code tp_importance_gguf(struct tp_importance_file *file, struct tp_err *err);
enum tp_code tp_importance_dat(struct tp_importance_file *file, struct tp_err *err);

#endif
