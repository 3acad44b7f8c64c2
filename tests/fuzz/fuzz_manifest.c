/* Fuzz target: a manifest, tilepack.json.
 *
 * Beyond not crashing: names of its files stay below their folder; one that is refilled with
 * the hashes of its own files is read again, and holds them. Build: make fuzz.
 */
#include "folder.h"

#include "pack/commit/manifest.h"

/* Components with slashes between them, and none that leads elsewhere. */
static bool is_below(const char *name)
{
    char copy[4096], *rest = copy, *part;
    must(strlen(name) < sizeof copy);
    strcpy(copy, name);
    while ((part = strsep(&rest, "/")))
        if (!*part || strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
            return false;
    return true;
}

static void refill(const char *stored, size_t size, struct tp_manifest *manifest)
{
    struct tp_text text = {0};
    struct tp_manifest again;
    struct tp_err err = {0};
    bool digests;
    must(tp_manifest_has_digests(stored, size, &digests, &err) == TP_OK);
    if (tp_manifest_refill(stored, size, manifest->files, manifest->file_count, &text, &err) ==
        TP_OK) {
        fuzz_write(TP_MANIFEST_NAME, text.data, text.size);
        must(tp_manifest_read(".", &again, &err) == TP_OK);
        must(again.file_count == manifest->file_count);
        for (size_t i = 0; i < again.file_count; i++)
            must(memcmp(again.files[i].hash, manifest->files[i].hash, TP_HASH_BYTES) == 0);
        tp_manifest_close(&again);
    }
    tp_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_manifest manifest;
    struct tp_err err = {0};
    if (!*fuzz_path)
        fuzz_enter();
    fuzz_write(TP_MANIFEST_NAME, data, size);
    enum tp_code code = tp_manifest_read(".", &manifest, &err);
    must(code == err.code && (!code || (err.what[0] && err.path[0])));
    if (code)
        return 0;
    must(manifest.plan != NULL);
    for (size_t i = 0; i < manifest.file_count; i++) {
        const char *name = manifest.files[i].name;
        must(is_below(name));
    }
    refill((const char *)data, size, &manifest);
    tp_manifest_close(&manifest);
    return 0;
}
