/* Links of a checkpoint. Looks at names and link texts, opens nothing. */
#include "pack/source/ckpt_links.h"

#include "pack/os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "../../blobs/HASH": HASH are the 40 or 64 hexadecimal digits of SHA-1 or SHA-256. */
static bool is_hub_text(const char *text)
{
    size_t above = 0;
    for (; strncmp(text, "../", 3) == 0; text += 3)
        above++;
    if (above < 2 || strncmp(text, "blobs/", 6) != 0)
        return false;
    size_t digits = strspn(text + 6, "0123456789abcdef");
    return (digits == 40 || digits == 64) && text[6 + digits] == '\0';
}

/* The blob that a link of the Hub's cache leads to, or NULL: a blob is a plain file. */
static char *hub_blob(const char *path, struct tp_err *err)
{
    char text[256];
    struct stat st;
    ssize_t size = tp_os.readlink(path, text, sizeof text - 1);
    const char *slash = strrchr(path, '/');
    if (size < 0 && errno != EINVAL) /* EINVAL: no link */
        tp_os_fail(err, errno, path, "cannot read the link");
    if (size <= 0)
        return NULL;
    text[size] = '\0';
    if (!is_hub_text(text))
        return NULL;
    char *blob = tp_os_format(err, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, text);
    bool plain = tp_os_link_there(blob, &st, err) && S_ISREG(st.st_mode);
    char *real = plain ? tp_os.realpath(blob, NULL) : NULL;
    if (plain && !real)
        tp_os_fail(err, errno, blob, "cannot resolve the path");
    free(blob);
    return real;
}

enum tp_code tp_ckpt_inside(const char *root, const char *path, const char *hint, char **real,
                            struct tp_err *err)
{
    if ((*real = hub_blob(path, err)))
        return TP_OK;
    if (err->code)
        return err->code;
    enum tp_code code = tp_os_inside(root, path, real, err);
    if (code)
        tp_err_hint(err, "%s", hint);
    return code;
}

enum tp_code tp_ckpt_other(const struct tp_checkpoint *ckpt, const char *path, char **real,
                           struct tp_err *err)
{
    struct stat st;
    *real = NULL;
    if (!ckpt->strict &&
        (!ckpt->copies || (tp_os_link_there(path, &st, err) && !S_ISLNK(st.st_mode))))
        return TP_OK;
    if (err->code)
        return err->code;
    return tp_ckpt_inside(ckpt->path, path,
                          ckpt->strict ? TP_STRICT_LINK_HINT
                                       : "replace the link by the file itself, remove it, or copy "
                                         "what it leads to with --follow-links", real, err);
}
