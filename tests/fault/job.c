#include "job.h"

#include "tree.h"

#include "pack/check/estimate_card.h"
#include "pack/commit/commit.h"
#include "pack/commit/parts.h"
#include "pack/check/verify_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Journals and notes, which are removed just after the commit. */
#define OWN ".tilepack-"

const struct scenario scenarios[] = {
    {.name = "directory", .format = "w4a8-cutlass"},
    {.name = "file", .format = "fp8-deepseek", .single = true},
    {.name = "replaced directory", .format = "mxfp8-blocked", .replace = true},
    {.name = "replaced file", .format = "w4a8-ct", .single = true, .replace = true},
    {.name = "replaced stranger", .format = "mxfp8-blocked", .replace = true, .stranger = true,
     .ends = true},
    {.name = "archives", .format = "fp8-deepseek", .zstd = 1},
    {.name = "archive", .format = "w4a8-cutlass", .single = true, .zstd = 1},
    {.name = "parts", .format = "w4a8-ct", .parts = true},
    {.name = "replaced parts", .format = "w4a8-ct", .parts = true, .replace = true, .ends = true},
    {.name = "search", .format = "w4a8-ct", .search = true},
};
const int scenario_count = sizeof scenarios / sizeof *scenarios;

struct weight {
    const char *name;
    unsigned n, k;
};

static void write_shard(const char *path, const struct weight *weights, int count, unsigned seed)
{
    char header[4096] = "{\"__metadata__\":{\"format\":\"pt\"}";
    size_t end = 0, used = strlen(header);
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)weights[i].n * weights[i].k * 2;
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%u,%u],"
                                 "\"data_offsets\":[%zu,%zu]}", weights[i].name, weights[i].n,
                                 weights[i].k, end, end + bytes);
        end += bytes;
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    uint8_t *file = calloc(1, 8 + used + end);
    if (!file)
        abort();
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)used >> 8 * i);
    memcpy(file + 8, header, used);
    for (size_t i = 0; i < end; i += 2) { /* bf16 of magnitudes from 2^-8 to 2^-1 */
        seed = seed * 1664525u + 1013904223u;
        unsigned bits = (seed & 0x80000000u) >> 16 | (0x3B80u + (seed >> 8) % 0x380u);
        file[8 + used + i] = (uint8_t)bits;
        file[8 + used + i + 1] = (uint8_t)(bits >> 8);
    }
    tree_write(path, file, 8 + used + end);
    free(file);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tree_write(path, text, strlen(text));
}

static void write_source(const char *folder)
{
    static const struct weight first[] = {{"m.0.up_proj.weight", 128, 256},
                                          {"m.norm.weight", 1, 64}};
    static const struct weight second[] = {{"m.1.down_proj.weight", 64, 128},
                                           {"m.1.up_proj.weight", 128, 128}};
    char path[4200];
    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", folder);
    write_shard(path, first, 2, 1);
    snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", folder);
    write_shard(path, second, 2, 2);
    write_text(folder, "model.safetensors.index.json",
               "{\"weight_map\": {\"m.0.up_proj.weight\": \"model-00001-of-00002.safetensors\", "
               "\"m.norm.weight\": \"model-00001-of-00002.safetensors\", "
               "\"m.1.down_proj.weight\": \"model-00002-of-00002.safetensors\", "
               "\"m.1.up_proj.weight\": \"model-00002-of-00002.safetensors\"}}");
    write_text(folder, "config.json",
               "{\n  \"model_type\": \"llama\",\n  \"quantization_config\": {\"ignore\": "
               "[\"re:.*norm\", \"re:m\\\\.1\\\\.up_(?:proj|x)\"]}\n}\n");
    write_text(folder, "tokenizer.json", "{\"version\": \"1.0\"}");
}

static void put_number(uint8_t **at, int32_t number)
{
    memcpy(*at, &number, sizeof number);
    *at += sizeof number;
}

/* An imatrix of llama.cpp in its older form: 1, 2, 3, ... for each column of two weights. */
static void write_importance(const char *path)
{
    static const struct weight weights[] = {{"m.0.up_proj.weight", 1, 256},
                                            {"m.1.down_proj.weight", 1, 128}};
    uint8_t file[2048], *at = file;
    put_number(&at, 2);
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(weights[i].name);
        put_number(&at, (int32_t)size);
        memcpy(at, weights[i].name, size);
        at += size;
        put_number(&at, 1);
        put_number(&at, (int32_t)weights[i].k);
        for (unsigned k = 0; k < weights[i].k; k++, at += sizeof(float))
            memcpy(at, &(float){(float)(k + 1)}, sizeof(float));
    }
    tree_write(path, file, (size_t)(at - file));
}

static void make_folder(const char *path)
{
    tree_remove(path);
    if (mkdir(path, 0777))
        abort();
}

/* The output of an undisturbed run. */
static void make(const struct scenario *scenario, const struct places *p, const char *path)
{
    struct tp_err err = {0};
    if (job_run(scenario, p, 1, &err)) {
        fprintf(stderr, "the conversion does not work at all: %s: %s\n", err.path, err.what);
        exit(1);
    }
    if (rename(p->output, path))
        abort();
}

void job_prepare(const char *work, const struct scenario *scenario, struct places *p)
{
    char folder[4096];
    const char *name = scenario->single ? "out.safetensors" : "out";
    snprintf(p->source, sizeof p->source, "%.4000s/source", work);
    snprintf(p->importance, sizeof p->importance, "%.4000s/importance", work);
    snprintf(p->root, sizeof p->root, "%.4000s/root", work);
    snprintf(p->output, sizeof p->output, "%.4000s/root/%s", work, name);
    snprintf(p->reference, sizeof p->reference, "%.4000s/reference", work);
    snprintf(p->old, sizeof p->old, "%.4000s/old", work);
    make_folder(p->source);
    make_folder(p->root);
    tree_remove(p->reference);
    tree_remove(p->old);
    write_source(p->source);
    write_importance(p->importance);
    struct scenario plain = *scenario;
    plain.replace = false;
    make(&plain, p, p->reference);
    plain.format = "fp8-ct"; /* what is replaced is of this program, and goes */
    plain.parts = plain.search = false;
    make(&plain, p, p->old);
    if (scenario->stranger) { /* or has a file of somebody's, and stays */
        snprintf(folder, sizeof folder, "%.4000s/old", work);
        write_text(folder, "thesis.txt", "words");
    }
}

void job_reset(const struct scenario *scenario, const struct places *p)
{
    tree_clear(p->root);
    if (scenario->replace)
        tree_copy(p->old, p->output);
}

static enum tp_code run_parts(const struct tp_plan *plan, const struct tp_request *request,
                              const char *output, const struct tp_convert_options *options,
                              struct tp_err *err)
{
    struct tp_parts parts = {0};
    struct tp_convert_result result;
    enum tp_code code = TP_OK;
    for (unsigned part = 1; part <= 2 && code == TP_OK; part++)
        code = tp_convert_part(plan, request, output, (struct tp_share){part, 2}, options, &result,
                               err);
    if (code == TP_OK && (code = tp_parts_read(output, &parts, err)) == TP_OK &&
        !parts.already_done) {
        code = tp_merge(plan, request, &parts, output, options, &result, err);
        tp_convert_result_close(&result);
    }
    tp_parts_close(&parts);
    return code;
}

/* As `convert` measures what a search gains. */
static enum tp_code run_measured(const struct tp_plan *plan, const struct tp_request *request,
                                 const char *output, struct tp_convert_options *options,
                                 struct tp_err *err)
{
    struct tp_side source = {.ckpt = plan->ckpt, .weights = plan->weights};
    struct tp_value_observer observer = {0};
    struct tp_convert_result result;
    struct tp_unit_result *units = tp_unit_results_new(plan, err);
    enum tp_code code = units ? tp_value_observer_open(&observer, plan, &source, true, units, err)
                              : TP_E_MEMORY;
    options->run.observe = tp_value_observe;
    options->run.observe_arg = &observer;
    if (code == TP_OK)
        code = tp_convert(plan, request, output, options, &result, err);
    tp_value_observer_close(&observer);
    if (units)
        tp_unit_results_free(units, plan->unit_count);
    return code;
}

static enum tp_code carry_out(const struct scenario *scenario, const struct tp_plan *plan,
                              const struct tp_request *request, const char *output, unsigned jobs,
                              struct tp_err *err)
{
    struct tp_convert_result result;
    struct tp_convert_options options = {.run = {.jobs = jobs, .box_target = 16384},
                                         .if_exists = scenario->replace ? TP_EXISTS_REPLACE
                                                                        : TP_EXISTS_COMPARE,
                                         .zstd = scenario->zstd,
                                         .errors = tp_estimate_card};
    if (scenario->parts)
        return run_parts(plan, request, output, &options, err);
    if (scenario->search)
        return run_measured(plan, request, output, &options, err);
    enum tp_code code = tp_convert(plan, request, output, &options, &result, err);
    tp_convert_result_close(&result);
    return code;
}

static enum tp_code make_request(const struct scenario *scenario, const struct places *p,
                                 struct tp_request *request, struct tp_err *err)
{
    struct tp_search_words words = {"mse", true, p->importance};
    enum tp_code code = tp_request_to(request, scenario->format, NULL, 0, err);
    request->shard_size = 20000;
    if (code == TP_OK)
        code = tp_request_exclude(request, "no such (tensor|weight)", err);
    if (code || !scenario->search)
        return code;
    code = tp_request_search(request, &words, err);
    return code ? code : tp_request_importance(request, NULL, err);
}

enum tp_code job_run(const struct scenario *scenario, const struct places *p, unsigned jobs,
                     struct tp_err *err)
{
    struct tp_checkpoint ckpt = {0};
    struct tp_weights weights = {0};
    struct tp_request request = {0};
    struct tp_plan plan = {0};
    memset(err, 0, sizeof *err);
    enum tp_code code = tp_checkpoint_open(p->source, 0, &ckpt, err);
    if (code == TP_OK)
        code = tp_weights_find(&ckpt, &weights, err);
    if (code == TP_OK)
        code = make_request(scenario, p, &request, err);
    if (code == TP_OK)
        code = tp_plan_convert(&ckpt, &weights, &request,
                               scenario->single ? "out.safetensors" : NULL, &plan, err);
    if (code == TP_OK)
        code = carry_out(scenario, &plan, &request, p->output, jobs, err);
    tp_plan_close(&plan);
    tp_request_close(&request);
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
    return code;
}

enum outcome job_outcome(const struct scenario *scenario, const struct places *p,
                         const char **why)
{
    *why = NULL;
    if (!tree_exists(p->output)) {
        *why = "the old content is gone";
        return scenario->replace ? OUTCOME_TORN : OUTCOME_NOTHING;
    }
    if (!tree_difference(p->output, p->reference, OWN))
        return OUTCOME_COMPLETE;
    if (scenario->replace && !tree_difference(p->output, p->old, NULL))
        return OUTCOME_OLD;
    *why = tree_difference(p->output, p->reference, OWN);
    return OUTCOME_TORN;
}

bool job_keeps_old(const struct places *p)
{
    static const char *const ends[] = {"", ".partial", ".old"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s%s", p->output, ends[i]);
        if (tree_exists(path) && !tree_difference(path, p->old, NULL))
            return true;
    }
    return false;
}

const char *job_difference(const struct scenario *scenario, const struct places *p)
{
    struct tree_file *files;
    static char text[512];
    const char *name = strrchr(p->output, '/') + 1;
    size_t count = tree_list(p->root, &files);
    text[0] = '\0';
    for (size_t i = 0; i < count && !text[0]; i++)
        if (strcmp(files[i].name, name) != 0 &&
            !(scenario->stranger && strcmp(files[i].name, "out.old") == 0))
            snprintf(text, sizeof text, "%.300s was left behind", files[i].name);
    tree_free(files, count);
    return text[0] ? text : tree_difference(p->output, p->reference, NULL);
}
