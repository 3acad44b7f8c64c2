/* The rows "serve" of format files and the names of GPUs.
 * Invariant: a row that was parsed has a known engine and speed, and only GPUs of the form
 * smNN or smNN+. */
#include "pack/format/serve.h"

#include "base/suffix.h"

#include <string.h>

static const char *const speed_names[] = {"native", "mixed", "decoded", NULL};
static const char *const engine_names[] = {"vllm",         "sglang",  "trtllm",
                                           "transformers", "kernels", NULL};
static const char *const engine_titles[] = {"vLLM", "SGLang", "TensorRT-LLM", "transformers",
                                            "a loader of your own"};

/* Compute capabilities as the vendor lists them. */
static const struct tp_chip chips[] = {
    {"a100", 80},  {"a800", 80},          {"a30", 80},   {"a10", 86},  {"a40", 86},
    {"3090", 86},  {"l4", 89},            {"l40s", 89},  {"4090", 89}, {"rtx-6000-ada", 89},
    {"h100", 90},  {"h100-pcie", 90},     {"h200", 90},  {"h800", 90}, {"h20", 90},
    {"gh200", 90}, {"b200", 100},         {"gb200", 100}, {"b300", 103}, {"gb300", 103},
    {"5090", 120}, {"rtx-pro-6000", 120}, {"gb10", 121},
};

const char *tp_speed_name(enum tp_speed speed) { return speed_names[speed]; }
const char *tp_engine_name(enum tp_engine engine) { return engine_names[engine]; }
const char *tp_engine_title(enum tp_engine engine) { return engine_titles[engine]; }

bool tp_engine_find(const char *name, enum tp_engine *engine)
{
    int i = tp_word_of(name, engine_names, SIZE_MAX);
    *engine = i < 0 ? TP_ENGINE_COUNT : (enum tp_engine)i;
    return i >= 0;
}

const struct tp_chip *tp_chips(size_t *count)
{
    *count = sizeof chips / sizeof *chips;
    return chips;
}

/* "sm90", or with `later` also "sm90+"; 0 if it is neither. */
static unsigned sm_of(const char *text, bool *later)
{
    unsigned sm = 0, digits = 0;
    if (strncmp(text, "sm", 2) != 0)
        return 0;
    for (text += 2; *text >= '0' && *text <= '9' && digits < 4; text++, digits++)
        sm = 10 * sm + (unsigned)(*text - '0');
    if (later)
        *later = *text == '+';
    text += later && *text == '+';
    return !*text && sm >= 10 && sm < 1000 ? sm : 0;
}

unsigned tp_chip_sm(const char *name)
{
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        if (strcmp(chips[i].name, name) == 0)
            return chips[i].sm;
    return sm_of(name, NULL);
}

bool tp_serve_on(const struct tp_serve *row, unsigned sm)
{
    for (size_t i = 0; i < json_array_size(row->gpus) && sm; i++) {
        bool later;
        unsigned from = sm_of(json_string_value(json_array_get(row->gpus, i)), &later);
        if (sm == from || (later && sm > from))
            return true;
    }
    return sm == 0;
}

bool tp_serve_takes(const struct tp_serve *row, bool expert)
{
    return row->engine != TP_ENGINE_KERNELS && (expert ? row->experts : row->linear);
}

/* What a row says that it does not take; it takes everything that it does not name. */
static enum tp_code parse_taken(const json_t *json, struct tp_serve *row, size_t *keys,
                                struct tp_err *err)
{
    const json_t *linear = json_object_get(json, "linear");
    const json_t *experts = json_object_get(json, "experts");
    row->linear = !linear;
    row->experts = !experts;
    *keys = (size_t)!row->linear + (size_t)!row->experts;
    if ((!linear || json_is_false(linear)) && (!experts || json_is_false(experts)) && *keys < 2)
        return TP_OK;
    return tp_fail(err, TP_E_INPUT, "a row of \"serve\" may have one of \"linear\" and "
                   "\"experts\", which is false");
}

static enum tp_code parse_row(const json_t *json, struct tp_serve *row, struct tp_err *err)
{
    int engine = tp_word_of(json_string_value(json_object_get(json, "engine")), engine_names,
                            SIZE_MAX);
    int speed = tp_word_of(json_string_value(json_object_get(json, "speed")), speed_names, SIZE_MAX);
    size_t keys;
    if (parse_taken(json, row, &keys, err))
        return err->code;
    row->versions = json_string_value(json_object_get(json, "versions"));
    row->line = json_string_value(json_object_get(json, "line"));
    row->gpus = json_object_get(json, "gpus");
    if (engine < 0 || speed < 0 || !row->versions || !row->line ||
        !json_array_size(row->gpus) || json_object_size(json) != 5 + keys)
        return tp_fail(err, TP_E_INPUT, "a row of \"serve\" is not {\"engine\", \"versions\", "
                       "\"gpus\", \"speed\", \"line\"} with known words");
    row->engine = (enum tp_engine)engine;
    row->speed = (enum tp_speed)speed;
    for (size_t i = 0; i < json_array_size(row->gpus); i++) {
        const char *gpu = json_string_value(json_array_get(row->gpus, i));
        bool later;
        if (!gpu || !sm_of(gpu, &later))
            return tp_fail(err, TP_E_INPUT, "\"gpus\" of \"serve\" holds '%s', which is neither "
                           "smNN nor smNN+", gpu ? gpu : "no string");
    }
    return TP_OK;
}

enum tp_code tp_serve_parse(const json_t *list, struct tp_serve rows[TP_MAX_SERVES],
                            uint32_t *count, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    *count = (uint32_t)json_array_size(list);
    if ((list && !json_is_array(list)) || *count > TP_MAX_SERVES)
        return tp_fail(err, TP_E_INPUT, "\"serve\" is no list of up to %d rows", TP_MAX_SERVES);
    for (uint32_t i = 0; i < *count && !code; i++)
        code = parse_row(json_array_get(list, i), &rows[i], err);
    return code;
}
