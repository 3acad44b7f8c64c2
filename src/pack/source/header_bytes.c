/* Whether a file that is not opened as a checkpoint has a header. Nothing else of it is read. */
#include "pack/source/header_bytes.h"

#include "pack/file/safetensors.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"

#include <string.h>

bool tp_header_begins(const char *path, struct tp_err *err)
{
    uint8_t bytes[sizeof(uint64_t) + 1] = {0};
    uint64_t length; /* little-endian hosts only, as is the format */
    struct tp_err why = {0};
    struct stat st;
    int fd = -1;
    bool read = tp_os_open_regular(path, O_RDONLY, &fd, &st, &why) == TP_OK &&
                (uint64_t)st.st_size >= sizeof bytes &&
                tp_os_read(fd, bytes, sizeof bytes, 0, path, &why) == TP_OK;
    if (read && tp_zst_detect(bytes))
        read = tp_zst_peek(fd, (uint64_t)st.st_size, bytes, sizeof bytes, &why);
    tp_os_close(&fd);
    memcpy(&length, bytes, sizeof length);
    tp_err_take_unread(err, &why);
    return read && length >= 2 && length <= TP_ST_MAX_HEADER && bytes[sizeof length] == '{';
}
