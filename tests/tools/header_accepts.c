/* Says of many safetensors files whether the header reader takes them.
 *
 * stdin: cases, each an 8-byte little-endian length and that many bytes, which
 * are a whole file. stdout: a line per case, "accept JSON" with the header as the
 * writer would write it, or "refuse CODE OFFSET MESSAGE". A buffer of exactly the
 * right size per case lets AddressSanitizer see every read beyond the end.
 */
#include "pack/file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum tp_code check(const unsigned char *file, uint64_t size, struct tp_text *out,
                          struct tp_err *err)
{
    struct tp_st_header header = {0};
    uint64_t length;
    if (size < 8)
        return tp_fail(err, TP_E_INPUT, "shorter than 8 bytes");
    enum tp_code code = tp_st_header_size(file, size, &length, err);
    if (code)
        return code;
    char *text = malloc((size_t)length);
    if (!text)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    memcpy(text, file + 8, (size_t)length);
    code = tp_st_parse(text, length, size, &header, err);
    free(text);
    if (!code)
        code = tp_st_write_header(header.tensors, header.count, header.meta, header.meta_count, 1,
                                  out, err);
    tp_st_close(&header);
    return code;
}

int main(void)
{
    unsigned char length[8];
    while (fread(length, 1, 8, stdin) == 8) {
        uint64_t size = 0;
        for (int i = 7; i >= 0; i--)
            size = size << 8 | length[i];
        unsigned char *file = malloc(size ? (size_t)size : 1);
        if (!file || fread(file, 1, (size_t)size, stdin) != size) {
            fprintf(stderr, "header_accepts: a case is cut off\n");
            free(file);
            return 2;
        }
        struct tp_err err = {0};
        struct tp_text out = {0};
        if (check(file, size, &out, &err) == TP_OK) {
            printf("accept %s\n", out.data + 8);
        } else {
            for (char *p = err.what; *p; p++)
                if ((unsigned char)*p < 0x20)
                    *p = '?'; /* a message may quote the file */
            printf("refuse %d %lld %s\n", (int)err.code, (long long)err.offset - 1, err.what);
        }
        tp_text_free(&out);
        free(file);
    }
    return 0;
}
