/* Model files: JSON text to struct tp_model.
 *
 * Strict: an unknown key, a missing one, a value of another kind, a pattern that can match
 * nothing is an error that says where, so that a mistake in a file is not taken for a fact.
 */
#include "pack/model/model.h"

#include "pack/os/os.h"
#include "pack/text/json_fields.h"
#include "pack/text/json_tree.h"

#include <stdlib.h>
#include <string.h>

static const char *const holds[] = {"down", "gate_up", NULL};
static const char *const layouts[] = {"sizes", "enk", "ekn", NULL};
static const char *const orders[] = {"halves", "alternate", NULL};
static const char *const divided[] = {"halves", "thirds", "qkv", "heads", NULL};
static const char *const cuts[] = {"none", "N", "K", NULL};

static const struct tp_json_field keep[] = {
    TP_ONE("why", TEXT, TP_NEEDED, tp_model_keep, why),
    TP_ONE("embedding", NO, TP_MAY_BE, tp_model_keep, embedding),
    TP_ONE("head", NO, TP_MAY_BE, tp_model_keep, head),
    TP_ONE("unknown", NO, TP_MAY_BE, tp_model_keep, unknown),
    TP_ONE("plain", NO, TP_MAY_BE, tp_model_keep, plain),
    TP_LIST("modules", MODULES, TP_NEEDED, tp_model_keep, module, modules),
    {0}};
static const struct tp_json_field stack[] = {
    TP_ONE("name", STACK, TP_NEEDED, tp_model_stack, name),
    TP_ONE("holds", SECOND, TP_NEEDED, tp_model_stack, gate_up, .words = holds),
    TP_ONE("layout", WORD, TP_MAY_BE, tp_model_stack, layout, .words = layouts),
    TP_ONE("rows", SECOND, TP_MAY_BE, tp_model_stack, interleaved, .words = orders),
    TP_ONE("kept", TEXT, TP_MAY_BE, tp_model_stack, kept),
    TP_ONE("engines", TEXT, TP_MAY_BE, tp_model_stack, engines),
    {0}};
static const struct tp_json_field fused[] = {
    TP_ONE("as", TEXT, TP_NEEDED, tp_model_fused, set),
    TP_ONE("engines", TEXT, TP_MAY_BE, tp_model_fused, engines),
    TP_LIST("parts", TEXTS, TP_NEEDED, tp_model_fused, part, parts),
    {0}};
static const struct tp_json_field merged[] = {
    TP_ONE("module", MODULE, TP_NEEDED, tp_model_merged, module),
    TP_ONE("parts", WORD, TP_NEEDED, tp_model_merged, parts, .words = divided),
    {0}};
static const struct tp_json_field row_order[] = {
    TP_LIST("modules", MODULES, TP_NEEDED, tp_model_rows, module, modules),
    TP_ONE("order", WORD, TP_NEEDED, tp_model_rows, order, .words = tp_row_kinds),
    TP_ONE("if", TEXT, TP_MAY_BE, tp_model_rows, when),
    TP_ONE("unless", TEXT, TP_MAY_BE, tp_model_rows, unless),
    TP_LIST("heads", TEXTS, TP_MAY_BE, tp_model_rows, heads, head_keys),
    TP_LIST("groups", TEXTS, TP_MAY_BE, tp_model_rows, group, group_keys),
    {0}};
static const struct tp_json_field parallel[] = {
    TP_ONE("cut", WORD, TP_NEEDED, tp_model_parallel, cut, .words = cuts),
    TP_LIST("modules", MODULES, TP_NEEDED, tp_model_parallel, module, modules),
    {0}};
static const struct tp_json_field labels[] = {
    TP_ONE("gate", SEGMENT, TP_MAY_BE, tp_model_expert, matrix[TP_EXPERT_GATE]),
    TP_ONE("up", SEGMENT, TP_NEEDED, tp_model_expert, matrix[TP_EXPERT_UP]),
    TP_ONE("down", SEGMENT, TP_NEEDED, tp_model_expert, matrix[TP_EXPERT_DOWN]),
    {0}};
static const struct tp_json_field renamed[] = {
    TP_ONE("from", TEXT, TP_NEEDED, tp_model_rename, from),
    TP_ONE("to", TEXT, TP_NEEDED, tp_model_rename, to),
    {0}};
static const struct tp_json_field sizes[] = {
    TP_LIST("hidden", TEXTS, TP_MAY_BE, tp_model, hidden, hiddens),
    TP_LIST("expert", TEXTS, TP_MAY_BE, tp_model, expert, experts),
    {0}};
static const struct tp_json_field model_fields[] = {
    TP_ONE("name", TEXT, TP_NEEDED, tp_model, name),
    TP_ONE("title", TEXT, TP_NEEDED, tp_model, title),
    TP_LIST("source", TEXTS, TP_NEEDED, tp_model, source, sources),
    TP_LIST("model_type", TEXTS, TP_MAY_BE, tp_model, type, types),
    TP_LIST("architectures", TEXTS, TP_MAY_BE, tp_model, architecture, architectures),
    TP_LIST("convert", MODULES, TP_MAY_BE, tp_model, convert, converts),
    TP_LIST("integers", MODULES, TP_MAY_BE, tp_model, integer, integers),
    TP_LIST("keep", OBJECTS, TP_MAY_BE, tp_model, keep, keeps, TP_OF(keep, tp_model_keep)),
    TP_LIST("stacks", OBJECTS, TP_MAY_BE, tp_model, stack, stacks, TP_OF(stack, tp_model_stack)),
    TP_LIST("fused", OBJECTS, TP_MAY_BE, tp_model, fused, fuseds, TP_OF(fused, tp_model_fused)),
    TP_LIST("merged", OBJECTS, TP_MAY_BE, tp_model, merged, mergeds,
            TP_OF(merged, tp_model_merged)),
    TP_LIST("rows", OBJECTS, TP_MAY_BE, tp_model, rows, row_orders, TP_OF(row_order, tp_model_rows)),
    TP_LIST("parallel", OBJECTS, TP_MAY_BE, tp_model, parallel, parallels,
            TP_OF(parallel, tp_model_parallel)),
    TP_LIST("experts", OBJECTS, TP_MAY_BE, tp_model, labels, label_sets,
            TP_OF(labels, tp_model_expert)),
    TP_LIST("renamed", OBJECTS, TP_MAY_BE, tp_model, rename, renames,
            TP_OF(renamed, tp_model_rename)),
    {.key = "checked", .kind = TP_JSON_MOVED},
    {.key = "ran", .kind = TP_JSON_MOVED},
    {.key = "limits", .kind = TP_JSON_MOVED},
    {.key = "sizes", .kind = TP_JSON_OBJECT, .of = sizes},
    {0}};

/* ---- the model ---------------------------------------------------------------------- */

static enum tp_code check_labels(const struct tp_model *model, struct tp_err *err)
{
    for (size_t i = 0; i < model->label_sets; i++) {
        const char *const *matrix = model->labels[i].matrix;
        for (int m = 1; m < TP_EXPERT_MATRICES; m++)
            for (int before = 0; before < m; before++)
                if (matrix[before] && strcmp(matrix[before], matrix[m]) == 0)
                    return tp_json_wrong(&(struct tp_json_place){"experts", i, err}, labels[m].key,
                                 "is called as another of the matrices");
    }
    return TP_OK;
}

static enum tp_code parse_all(const json_t *json, struct tp_model *model, struct tp_err *err)
{
    const struct tp_json_place file = {NULL, 0, err};
    enum tp_code code = tp_json_fields(&file, model_fields, json, model);
    if (code == TP_OK && !model->types && strcmp(model->name, TP_MODEL_DEFAULT) != 0)
        code = tp_json_wrong(&file, "model_type", "is missing");
    return code ? code : check_labels(model, err);
}

enum tp_code tp_model_from(json_t *json, struct tp_model *model, struct tp_err *err)
{
    uint64_t before = tp_json_failures();
    *model = (struct tp_model){.json = json};
    enum tp_code code = tp_json_check(before, parse_all(json, model, err), err);
    if (code)
        tp_model_close(model);
    return code;
}

enum tp_code tp_model_parse(const char *text, size_t size, struct tp_model *model,
                            struct tp_err *err)
{
    json_error_t where;
    uint64_t before = tp_json_failures();
    *model = (struct tp_model){0};
    json_t *json = tp_json_load(text, size, &where);
    enum tp_code code = tp_json_check(before, TP_OK, err);
    if (code || !json) {
        json_decref(json);
        return code ? code : tp_fail(err, TP_E_INPUT, "line %d, column %d: %s", where.line,
                                     where.column, where.text);
    }
    return tp_model_from(json, model, err);
}

enum tp_code tp_model_read(const char *path, struct tp_model *model, struct tp_err *err)
{
    char *text;
    size_t size;
    *model = (struct tp_model){0};
    enum tp_code code = tp_os_slurp(path, TP_MODEL_MAX_BYTES, &text, &size, err);
    if (code)
        return code;
    code = tp_model_parse(text, size, model, err);
    free(text);
    if (code == TP_E_INPUT) {
        tp_err_path(err, path);
        tp_err_hint(err, "'tilepack models NAME --json' prints a file to begin with");
    }
    return code;
}

void tp_model_close(struct tp_model *model)
{
    tp_json_fields_free(model_fields, model);
    json_decref(model->json);
    *model = (struct tp_model){0};
}
