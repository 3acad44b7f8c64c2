/* Fuzz target: a recipe (first byte 'r'), or a recorded request.
 *
 * Beyond not crashing: what is accepted is recorded as JSON that reads back as the same
 * request, and its patterns can be asked. Build: make fuzz.
 */
#include "folder.h"

#include "pack/plan/unit/request.h"

static void record(const struct tp_request *request)
{
    struct tp_request again;
    struct tp_err err = {0};
    json_t *json = tp_request_record(request), *same;
    char *text = json_dumps(json, 0);
    if (text && tp_request_parse(text, &again, &err) == TP_OK) {
        same = tp_request_record(&again);
        must(json_equal(json, same));
        json_decref(same);
        tp_request_close(&again);
    }
    free(text);
    json_decref(json);
}

static void ask(struct tp_request *request)
{
    static const char *const names[] = {"model.layers.0.mlp.down_proj.weight", "a", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tp_err err = {0};
        bool matches;
        enum tp_code code = tp_request_includes(request, names[i], &matches, &err);
        must(code == err.code);
        err = (struct tp_err){0};
        code = tp_request_excludes(request, names[i], &matches, &err);
        must(code == err.code);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_request request = {0};
    struct tp_err err = {0};
    enum tp_code code;
    if (!*fuzz_path)
        fuzz_enter();
    if (size && data[0] == 'r') {
        fuzz_write("recipe.json", data + 1, size - 1);
        code = tp_request_recipe(&request, "recipe.json", &err);
    } else {
        char *text = strndup((const char *)data, size);
        must(text != NULL);
        code = tp_request_parse(text, &request, &err);
        free(text);
    }
    must(code == err.code && (!code || err.what[0]));
    if (!code) {
        record(&request);
        ask(&request);
    }
    tp_request_close(&request);
    return 0;
}
