/* The manifest with one key more: read, checked, written beside itself, renamed. */
#include "pack/commit/manifest_note.h"

#include "pack/commit/manifest.h"
#include "pack/file/own_hash.h"
#include "pack/os/below.h"
#include "pack/text/json_edit.h"

#include <errno.h>
#include <stdlib.h>

/* More than any has that tp_manifest_text() makes of as many tensors as an index may have. */
#define MAX_BYTES (UINT64_C(2) << 30)

#define SOURCE_ID "user.tilepack.source"

void tp_manifest_note_source(int fd, const char id[TP_HASH_TEXT])
{
    tp_os.fsetxattr(fd, SOURCE_ID, id, TP_HASH_TEXT - 1, 0);
}

void tp_manifest_noted_source(int fd, char id[TP_HASH_TEXT])
{
    bool is = tp_os.fgetxattr(fd, SOURCE_ID, id, TP_HASH_TEXT - 1) == TP_HASH_TEXT - 1;
    id[is ? TP_HASH_TEXT - 1 : 0] = '\0';
}

static enum tp_code read_signed(int dir, const char *path, char **text, size_t *size,
                                mode_t *mode, char id[TP_HASH_TEXT], struct tp_err *err)
{
    struct stat st;
    int fd = -1;
    enum tp_code code = tp_below_open_regular(dir, TP_MANIFEST_NAME, path, &fd, &st, err);
    if (code == TP_OK) {
        *mode = st.st_mode;
        tp_manifest_noted_source(fd, id);
        code = tp_os_slurp_fd(fd, &st, path, MAX_BYTES, text, size, err);
    }
    tp_os_close(&fd);
    if (code == TP_OK && !tp_own_hash_right(*text, *size))
        code = tp_refuse(err, TP_E_INPUT, "'tilepack verify' says what has changed",
                         "the manifest is not as it was written");
    return code;
}

static enum tp_code write_new(int dir, const char *path, const struct tp_text *text,
                              mode_t mode, const char *id, struct tp_err *err)
{
    int fd = -1;
    enum tp_code code = tp_below_create(dir, TP_MANIFEST_NEW, mode, path, &fd, err);
    if (code == TP_OK && (code = tp_os_write(fd, text->data, text->size, 0, path, err)) == TP_OK)
        code = tp_os_fsync(fd, path, err);
    if (code == TP_OK && *id)
        tp_manifest_note_source(fd, id);
    if (fd >= 0 && tp_os.close(fd) && code == TP_OK)
        code = tp_os_fail(err, errno, path, "cannot close the manifest");
    return code;
}

enum tp_code tp_manifest_note(const char *directory, const char *key, const char *value,
                              struct tp_err *err)
{
    int dir = -1;
    char *text = NULL, id[TP_HASH_TEXT];
    size_t size = 0;
    struct tp_text out = {0};
    mode_t mode = 0;
    char *path = tp_os_format(err, "%s/%s", directory, TP_MANIFEST_NAME);
    char *fresh = tp_os_format(err, "%s/%s", directory, TP_MANIFEST_NEW);
    enum tp_code code = path && fresh ? tp_below_open_dir(directory, &dir, err) : TP_E_MEMORY;
    if (code == TP_OK &&
        (code = read_signed(dir, path, &text, &size, &mode, id, err)) == TP_OK &&
        (code = tp_json_set_key(text, size, key, value, &out, err)) == TP_OK) {
        tp_own_hash_sign(out.data, out.size);
        if ((code = write_new(dir, fresh, &out, mode, id, err)) == TP_OK &&
            (code = tp_os_rename(fresh, path, err)) == TP_OK)
            code = tp_os_fsync_dir(directory, err);
    }
    if (code)
        tp_err_path(err, path);
    tp_os_close(&dir);
    tp_text_free(&out);
    free(text);
    free(path);
    free(fresh);
    return code;
}
