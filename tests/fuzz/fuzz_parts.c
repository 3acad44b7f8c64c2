/* Fuzz target: the file of a part, what it says of itself.
 *
 * Beyond not crashing: what is accepted has a request and a journal, whatever is in them; and
 * what is removed of it lies in its directory. Build: make fuzz.
 */
#include "folder.h"

#include "pack/commit/part_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_parts parts;
    struct tp_request request;
    struct tp_err err = {0};
    struct stat st;
    if (!*fuzz_path)
        fuzz_enter();
    fuzz_empty();
    mkdir("out.part-1-of-2", 0777);
    fuzz_write("out.part-1-of-2/" TP_PART_FILE, data, size);
    enum tp_code code = tp_parts_read("out", &parts, &err);
    must(code == err.code && (!code || (err.what[0] && err.path[0])));
    if (code)
        return 0;
    must(parts.count == 1 && parts.items[0].share.count == 2 && parts.items[0].source);
    must(parts.items[0].journal != NULL);
    fuzz_write("kept.safetensors", data, size);
    must(tp_part_remove(&parts.items[0], &err) || stat("kept.safetensors", &st) == 0);
    if (tp_request_parse(parts.items[0].request, &request, &err) == TP_OK)
        tp_request_close(&request);
    tp_parts_close(&parts);
    return 0;
}
