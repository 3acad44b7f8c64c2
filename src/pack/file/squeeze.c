/* Texts compressed in memory, by zstd's fastest way. Invariant: what comes out is what went in. */
#include "pack/file/squeeze.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { LEVEL = 1, PIECE = 128 << 10 };

static enum tp_code fail(struct tp_err *err)
{
    return tp_fail(err, TP_E_MEMORY, "out of memory for the headers of the output");
}

/* Compresses to the end, in steps that grow the output. */
static enum tp_code compress(ZSTD_CCtx *context, const char *text, size_t size,
                             struct tp_squeezed *squeezed, size_t *room, struct tp_err *err)
{
    ZSTD_inBuffer in = {text, size, 0};
    size_t left = 1;
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context, size)))
        return fail(err);
    while (left) {
        void *data = squeezed->data;
        enum tp_code code = tp_os_grow(&data, room, squeezed->size + PIECE / 8, 1, err);
        squeezed->data = data;
        if (code)
            return code;
        ZSTD_outBuffer out = {squeezed->data, *room, squeezed->size};
        left = ZSTD_compressStream2(context, &out, &in, ZSTD_e_end);
        if (ZSTD_isError(left))
            return fail(err);
        squeezed->size = out.pos;
    }
    return TP_OK;
}

enum tp_code tp_squeeze(const char *text, size_t size, struct tp_squeezed *squeezed,
                        struct tp_err *err)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t room = 0;
    squeezed->plain = size;
    enum tp_code code =
        context ? compress(context, text, size, squeezed, &room, err) : fail(err);
    ZSTD_freeCCtx(context);
    void *data = squeezed->data;
    if (code == TP_OK)
        code = tp_os_trim(&data, &room, squeezed->size, 1, err);
    squeezed->data = data;
    if (code)
        tp_squeezed_free(squeezed);
    return code;
}

static enum tp_code decompress(ZSTD_DCtx *context, const struct tp_squeezed *squeezed, char *piece,
                               tp_squeezed_take take, void *arg, struct tp_err *err)
{
    ZSTD_inBuffer in = {squeezed->data, squeezed->size, 0};
    enum tp_code code = TP_OK;
    for (uint64_t at = 0; at < squeezed->plain && code == TP_OK;) {
        ZSTD_outBuffer out = {piece, PIECE, 0};
        if (ZSTD_isError(ZSTD_decompressStream(context, &out, &in)) || !out.pos)
            return fail(err);
        code = take(arg, piece, out.pos, at, err);
        at += out.pos;
    }
    return code;
}

enum tp_code tp_squeezed_each(const struct tp_squeezed *squeezed, tp_squeezed_take take, void *arg,
                              struct tp_err *err)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();
    char *piece = tp_os_alloc(PIECE, err);
    enum tp_code code = piece ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK)
        code = context ? decompress(context, squeezed, piece, take, arg, err) : fail(err);
    ZSTD_freeDCtx(context);
    free(piece);
    return code;
}

static enum tp_code copy(void *arg, const char *piece, size_t size, uint64_t offset,
                         struct tp_err *err)
{
    (void)err;
    memcpy((char *)arg + offset, piece, size);
    return TP_OK;
}

char *tp_squeezed_text(const struct tp_squeezed *squeezed, struct tp_err *err)
{
    char *text = tp_os_alloc(squeezed->plain + 1, err);
    if (text && tp_squeezed_each(squeezed, copy, text, err)) {
        free(text);
        text = NULL;
    }
    if (text)
        text[squeezed->plain] = '\0';
    return text;
}

void tp_squeezed_free(struct tp_squeezed *squeezed)
{
    free(squeezed->data);
    *squeezed = (struct tp_squeezed){0};
}
