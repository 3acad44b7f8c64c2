/* How long the headers of a checkpoint are that is not opened yet: what memory it takes to open it
 * depends on that.
 */
#ifndef TP_PACK_HEADER_BYTES_H
#define TP_PACK_HEADER_BYTES_H

#include <stdint.h>

/* Of a file, or of all files of a directory, archives too; 0: not known. What cannot be read, or is
 * no header, counts nothing: whoever opens it says why. */
uint64_t tp_header_bytes(const char *path);

#endif
