/* Fuzz target: a manifest, tilepack.json.
 *
 * Beyond not crashing: names of its files stay below their folder. Build: make fuzz.
 */
#include "folder.h"

#include "pack/commit/manifest_read.h"

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
    tp_manifest_close(&manifest);
    return 0;
}
