/* Fuzz target: any text as the config.json of a checkpoint. Its first byte chooses which: of
 * plain weights or of one of the quantizations that are read; and what is planned with it.
 *
 * Beyond not crashing: the new config.json of an accepted one is JSON with the kept keys.
 * Build: make fuzz.
 */
#include "folder.h"

#include "pack/plan/file/config.h"
#include "pack/plan/unit/request.h"
#include "pack/source/source_config.h"
#include "pack/text/json_edit.h"

#include <jansson.h>

#define P "model.layers.0.mlp.down_proj."
#define T(name, dtype, shape, data) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" data "]}"
static const struct {
    const char *name, *header;
    size_t bytes;
} checkpoints[] = {
    {"plain", "{" T(P "weight", "BF16", "128,128", "0,32768") ","
              T("lm_head.weight", "BF16", "16,128", "32768,36864") "}", 36864},
    {"gptq", "{" T(P "qweight", "I32", "16,64", "0,4096") ","
             T(P "qzeros", "I32", "1,8", "4096,4128") ","
             T(P "scales", "F16", "1,64", "4128,4256") "}", 4256},
    {"fp8", "{" T(P "weight", "F8_E4M3", "128,128", "0,16384") ","
            T(P "weight_scale_inv", "F32", "1,1", "16384,16388") ","
            T("model.layers.1.x_proj.weight", "BF16", "128,128", "16388,49156") "}", 49156},
    {"nvfp4", "{" T(P "weight_packed", "U8", "128,64", "0,8192") ","
              T(P "weight_scale", "F8_E4M3", "128,8", "8192,9216") ","
              T(P "weight_global_scale", "F32", "1", "9216,9220") "}", 9220},
    {"foreign", "{" T(P "weight", "F8_E4M3", "128,128", "0,16384") ","
                T(P "weight_scale_inv", "F32", "1,1", "16384,16388") ","
                T("model.layers.1.up_proj.weight", "U8", "128,64", "16388,24580") "}", 24580},
};
enum { CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };
static const char *const formats[] = {"w4a8-ct", "fp8-deepseek", "nvfp4-ct", "w4a8-cutlass"};

static void start(void)
{
    fuzz_enter();
    json_object_seed(1);
    for (size_t i = 0; i < CHECKPOINTS; i++) {
        char path[64];
        must(mkdir(checkpoints[i].name, 0777) == 0);
        snprintf(path, sizeof path, "%s/model.safetensors", checkpoints[i].name);
        fuzz_write_tensors(path, checkpoints[i].header, strlen(checkpoints[i].header),
                           checkpoints[i].bytes);
    }
}

/* The new text is read as the old one is. Where jansson reads that: it reads the new one, and only
 * what is about quantization differs. */
static void compare(const struct tp_checkpoint *ckpt, const struct tp_text *text)
{
    static const char *const ours[] = {"quantization_config", TP_LEGACY_CONFIG, "text_config",
                                       "transformers_weights"};
    struct tp_json_span value;
    must(tp_json_get_key(text->data, text->size, "model_type", &value, NULL) == TP_OK);
    json_t *before = json_loadb(ckpt->config, ckpt->config_size, JSON_REJECT_DUPLICATES, NULL);
    json_t *after = before ? json_loadb(text->data, text->size, 0, NULL) : NULL;
    must(!before || after);
    for (size_t i = 0; i < sizeof ours / sizeof *ours && before; i++) {
        json_object_del(before, ours[i]);
        json_object_del(after, ours[i]);
    }
    must(!before || json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

static enum tp_code make_plan(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                              uint8_t choice, struct tp_request *request, struct tp_plan *plan,
                              struct tp_err *err)
{
    if (choice >> 3 & 1)
        return tp_plan_unpack(ckpt, weights, TP_BF16, 0, NULL, plan, err);
    enum tp_code code = tp_request_to(request, formats[choice >> 4 & 3], NULL, 0, err);
    if (choice >> 6 & 1 && code == TP_OK)
        code = tp_request_include(request, "lm_head", err);
    request->requantize = choice >> 7;
    return code ? code : tp_plan_convert(ckpt, weights, request, NULL, plan, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_err err = {0};
    struct tp_checkpoint ckpt;
    struct tp_weights weights = {0};
    struct tp_request request = {0};
    struct tp_plan plan = {0};
    struct tp_text text = {0};
    char path[64];
    if (!*fuzz_path)
        start();
    if (!size)
        return 0;
    const char *name = checkpoints[(data[0] & 7) % CHECKPOINTS].name;
    snprintf(path, sizeof path, "%s/config.json", name);
    fuzz_write(path, data + 1, size - 1);
    enum tp_code code = tp_checkpoint_open(name, 0, &ckpt, &err);
    if (!code) {
        code = tp_weights_find(&ckpt, &weights, &err);
        if (!code)
            code = make_plan(&ckpt, &weights, data[0], &request, &plan, &err);
        if (!code && (code = tp_config_text(&plan, &text, &err)) == TP_OK && text.data)
            compare(&ckpt, &text);
        tp_text_free(&text);
        tp_plan_close(&plan);
        tp_weights_close(&weights);
        tp_checkpoint_close(&ckpt);
    }
    must(code == err.code && (!code || err.what[0]));
    tp_request_close(&request);
    return 0;
}
