/* `tilepack dump`: chooses which answer is wanted; the printing is in dump_*.c. */
#include "cli/cmd.h"
#include "cli/dump.h"
#include "cli/report.h"
#include "pack/source/weight_complete.h"

#include <string.h>

static enum tp_code check_options(const struct tp_options *o, struct tp_err *err)
{
    bool offset = o->offset != TP_UNSET, expert = o->expert != TP_UNSET;
    bool picture = o->svg || o->html;
    const char *asked = o->at.set       ? "--at"
                        : offset        ? "--offset"
                        : o->values.set ? "--values"
                        : o->svg        ? "--svg"
                                        : "--html";
    if (o->at.set + offset + o->values.set > 1)
        return tp_refuse(err, TP_E_USAGE, "ask for one at a time",
                         "--at, --offset and --values exclude each other");
    if (picture && (o->at.set || offset || o->values.set))
        return tp_fail(err, TP_E_USAGE, "%s and a picture exclude each other", asked);
    if (o->arg.count < 2 && (o->at.set || offset || o->values.set || picture))
        return tp_refuse(err, TP_E_USAGE, "'tilepack dump PATH' lists the tensors",
                         "%s needs a tensor", asked);
    if (o->fold && o->tree)
        return tp_fail(err, TP_E_USAGE, "--fold and --tree exclude each other");
    if (o->json && (o->fold || o->tree))
        return tp_refuse(err, TP_E_USAGE, "jq can group what --json lists",
                         "--json lists every tensor: without --fold and --tree");
    if (expert && !o->values.set)
        return tp_refuse(err, TP_E_USAGE,
                         "with --at the expert is the first of three numbers: --at E,N,K",
                         "--expert goes with --values");
    return TP_OK;
}

/* The table shows no plain weights as such: it is spared making 100,000 of them. */
static enum tp_code open_source(const struct tp_options *o, struct tp_source *source,
                                struct tp_err *err)
{
    if (o->arg.count > 1)
        return tp_source_open(o->arg.item[0], NULL, source, err);
    *source = (struct tp_source){0};
    enum tp_code code = tp_checkpoint_open(o->arg.item[0], 0, &source->ckpt, err);
    if (code == TP_OK && (code = tp_weights_find_packed(&source->ckpt, &source->weights, err)))
        tp_checkpoint_close(&source->ckpt);
    return code;
}

/* Finds the tensor; small tensors of another tool's weight say how to read it. */
static enum tp_code find(struct tp_source *source, const char *name, struct tp_subject *subject,
                         struct tp_err *err)
{
    enum tp_code code = tp_inspect_find(&source->ckpt, &source->weights, name, subject, err);
    if (code || !subject->weight)
        return code;
    size_t index = (size_t)(subject->weight - source->weights.items);
    return tp_weight_complete(&source->ckpt, &source->weights, index, err);
}

/* Several tensors: `pattern` or, with NULL, all of them. */
static int dump_listed(const struct tp_options *o, const struct tp_source *source,
                       const char *pattern)
{
    struct tp_err err = {0};
    if (pattern && (o->at.set || o->values.set || o->offset != TP_UNSET || o->svg || o->html)) {
        tp_err_hint(&err, "'tilepack dump PATH %.200s' lists what it matches", pattern);
        tp_fail(&err, TP_E_USAGE, "a pattern stands for several tensors; name one");
        return tp_report_usage("dump", &err);
    }
    return tp_dump_table(o, source, pattern);
}

static int dump(const struct tp_options *o, struct tp_source *source)
{
    struct tp_subject subject;
    struct tp_err err = {0};
    const char *name = o->arg.count < 2 ? NULL : o->arg.item[1];
    if (!name || (tp_is_pattern(name) && !tp_checkpoint_find(&source->ckpt, name)))
        return dump_listed(o, source, name);
    if (o->fold || o->tree) {
        tp_err_hint(&err, "a pattern such as '*%.200s*' chooses several", name);
        tp_fail(&err, TP_E_USAGE, "--fold and --tree are for several tensors");
        return tp_report_usage("dump", &err);
    }
    if (find(source, name, &subject, &err))
        return tp_report_error(&err);
    if (o->svg || o->html)
        return tp_dump_picture(o, source, &subject);
    if (o->at.set)
        return tp_dump_at(o, source, &subject);
    if (o->offset != TP_UNSET)
        return tp_dump_byte(o, source, &subject);
    if (o->values.set)
        return tp_dump_values(o, source, &subject);
    bool whole = strcmp(source->ckpt.tensors[subject.tensor].name, name) != 0;
    return tp_dump_tensor(o, source, &subject, whole);
}

int tp_cmd_dump(const struct tp_options *o)
{
    struct tp_err err = {0};
    if (check_options(o, &err))
        return tp_report_usage("dump", &err);
    struct tp_source source;
    if (open_source(o, &source, &err))
        return tp_report_error(&err);
    tp_say_unknown(&source.weights);
    int status = dump(o, &source);
    tp_source_close(&source);
    return status;
}
