/* How long the headers of a checkpoint are that is not opened yet; see header_bytes.h. Only the
 * first bytes of each file are read. */
#include "pack/source/header_bytes.h"

#include "base/suffix.h"
#include "pack/file/safetensors.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Of one file. */
static uint64_t file_bytes(const char *path)
{
    uint64_t length; /* little-endian hosts only, as is the format */
    struct stat st;
    struct tp_err ignored = {0};
    int fd = -1;
    if (tp_os_open_regular(path, O_RDONLY, &fd, &st, &ignored))
        return 0;
    uint64_t most = (uint64_t)st.st_size;
    bool read = most > sizeof length &&
                tp_os_read(fd, &length, sizeof length, 0, path, &ignored) == TP_OK;
    if (read && tp_zst_detect((const uint8_t *)&length)) {
        read = tp_zst_peek(fd, most, &length, sizeof length);
        most = TP_ST_MAX_HEADER;
    }
    tp_os_close(&fd);
    return read && length < TP_ST_MAX_HEADER && length < most ? length : 0;
}

uint64_t tp_header_bytes(const char *path)
{
    struct tp_os_list list = {0};
    struct tp_err ignored = {0};
    struct stat st;
    uint64_t sum = 0;
    if (tp_os.stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return file_bytes(path);
    if (tp_os_list(path, &list, &ignored))
        list.count = 0;
    for (size_t i = 0; i < list.count; i++) {
        bool shard = tp_ends_with(list.names[i], ".safetensors") ||
                     tp_ends_with(list.names[i], ".safetensors.zst");
        char *file = shard ? tp_os_format(&ignored, "%s/%s", path, list.names[i]) : NULL;
        sum += file ? file_bytes(file) : 0;
        free(file);
    }
    tp_os_list_free(&list);
    return sum;
}
