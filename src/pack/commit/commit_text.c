/* Texts of any length: index and manifest are written as they are made. A checkpoint of a
 * million tensors has hundreds of megabytes of them.
 *
 * Invariant: what is in memory is one part (tp_text_part()), and the file has the bytes that
 * tp_commit_write_small() would have given it.
 */
#include "pack/commit/commit_build.h"

#include "pack/file/own_hash.h"
#include "pack/os/below.h"

#include <errno.h>
#include <stdlib.h>

struct drained {
    struct tp_text text; /* first: see drain() */
    int fd;
    const char *path;
    uint64_t size;
    struct tp_own_hash own; /* closed: the text does not hold its hash */
};

static enum tp_code drain(struct tp_text *text, struct tp_err *err)
{
    struct drained *d = (struct drained *)text;
    if (d->own.state)
        tp_own_hash_add(&d->own, text->data, text->size);
    enum tp_code code = tp_os_write(d->fd, text->data, text->size, d->size, d->path, err);
    d->size += text->size;
    text->size = 0;
    return code;
}

/* Fills in the digits of the text's own hash. */
static enum tp_code sign(struct drained *d, struct tp_err *err)
{
    char digits[TP_HASH_TEXT];
    if (!d->own.at)
        return TP_OK;
    tp_own_hash_digits(&d->own, digits);
    return tp_os_write(d->fd, digits, TP_HASH_TEXT - 1, d->own.at, d->path, err);
}

static enum tp_code read_back(void *arg, void *data, uint64_t size, uint64_t offset,
                              struct tp_err *err)
{
    const struct drained *d = arg;
    return tp_os_read(d->fd, data, size, offset, d->path, err);
}

enum tp_code tp_commit_write_text(struct tp_commit *c, const char *name,
                                  enum tp_code (*make)(struct tp_commit *c, struct tp_text *text),
                                  uint64_t *size, uint8_t hash[TP_HASH_BYTES])
{
    char *path = tp_os_format(c->err, "%s/%s", c->partial, name);
    struct drained d = {.text.drain = drain, .fd = -1, .path = path};
    enum tp_code code = path ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && !hash)
        code = tp_own_hash_begin(&d.own, c->err);
    if (code == TP_OK)
        code = tp_below_create(c->dir, name, c->plan->ckpt->mode, path, &d.fd, c->err);
    if (code == TP_OK && (code = make(c, &d.text)) == TP_OK &&
        (code = drain(&d.text, c->err)) == TP_OK && (code = sign(&d, c->err)) == TP_OK)
        code = tp_os_fsync(d.fd, path, c->err);
    if (code == TP_OK && hash)
        code = tp_leafhash_file(d.size, 1, read_back, &d, hash, c->err);
    if (d.fd >= 0 && tp_os.close(d.fd) && code == TP_OK)
        code = tp_os_fail(c->err, errno, path, "cannot close the output");
    *size = d.size;
    tp_own_hash_close(&d.own);
    tp_text_free(&d.text);
    free(path);
    return code;
}
