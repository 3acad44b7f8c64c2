/* Fuzz target: notes of parts, as they lie in an unfinished output; a NUL stands between
 * them, and between a note's name and its text.
 *
 * Beyond not crashing: what is accepted has a source and a request, whatever is in it.
 * Build: make fuzz.
 */
#include "folder.h"

#include "pack/commit/parts_notes.h"

#include <ctype.h>
#include <stdbool.h>

static bool is_plain(const char *name)
{
    if (!*name || strlen(name) > 60 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    while (isalnum((unsigned char)*name) || *name == '.' || *name == '-')
        name++;
    return !*name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_parts parts;
    struct tp_request request;
    struct tp_err err = {0};
    if (!*fuzz_path)
        fuzz_enter();
    fuzz_empty();
    mkdir("out.partial", 0777);
    char *text = calloc(1, size + 2), *at = text;
    must(text != NULL);
    memcpy(text, data, size);
    while (at < text + size) {
        char *note = at + strlen(at) + 1, path[100];
        if (!is_plain(at) || note > text + size)
            break;
        snprintf(path, sizeof path, "out.partial/%s", at);
        fuzz_write(path, note, strlen(note));
        at = note + strlen(note) + 1;
    }
    enum tp_code code = tp_parts_read("out", true, &parts, &err);
    must(code == err.code && (!code || (err.what[0] && err.path[0])));
    if (!code) {
        must(parts.source && parts.request && parts.count >= 1);
        if (tp_request_parse(parts.request, &request, &err) == TP_OK)
            tp_request_close(&request);
        tp_parts_close(&parts);
    }
    free(text);
    return 0;
}
