/* `tilepack dump`: chooses which answer is wanted; the printing is in dump_*.c. */
#include "cli/cmd.h"
#include "cli/dump.h"
#include "cli/report.h"
#include "pack/check/verify_ranks.h"
#include "pack/plan/ranks.h"
#include "pack/source/source_check.h"

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
    if (o->at.set + offset + o->values.set > 1) {
        tp_err_hint(err, "ask for one at a time");
        return tp_fail(err, TP_E_USAGE, "--at, --offset and --values exclude each other");
    }
    if (picture && (o->at.set || offset || o->values.set))
        return tp_fail(err, TP_E_USAGE, "%s and a picture exclude each other", asked);
    if (o->arg.count < 2 && (o->at.set || offset || o->values.set || picture)) {
        tp_err_hint(err, "'tilepack dump PATH' lists the tensors");
        return tp_fail(err, TP_E_USAGE, "%s needs a tensor", asked);
    }
    if (o->fold && o->tree)
        return tp_fail(err, TP_E_USAGE, "--fold and --tree exclude each other");
    if (o->json && (o->fold || o->tree)) {
        tp_err_hint(err, "jq can group what --json lists");
        return tp_fail(err, TP_E_USAGE, "--json lists every tensor: without --fold and --tree");
    }
    if (expert && !o->values.set) {
        tp_err_hint(err, "with --at the expert is the first of three numbers: --at E,N,K");
        return tp_fail(err, TP_E_USAGE, "--expert goes with --values");
    }
    return TP_OK;
}

/* The table shows no plain weights as such: it is spared making 100,000 of them. */
static enum tp_code open_source(const struct tp_options *o, struct tp_source *source,
                                struct tp_err *err)
{
    if (o->arg.count > 1)
        return tp_source_open(o->arg.item[0], 0, source, err);
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
    return tp_source_check(&source->ckpt, &source->weights, index, err);
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

static int open_and_dump(const struct tp_options *o)
{
    struct tp_source source;
    struct tp_err err = {0};
    if (open_source(o, &source, &err))
        return tp_report_error(&err);
    int status = dump(o, &source);
    tp_source_close(&source);
    return status;
}

static int dump_rank(const struct tp_options *o, unsigned r)
{
    struct tp_err err = {0};
    struct tp_options rank = *o;
    char path[4096];
    const char *operands[2] = {path, o->arg.count > 1 ? o->arg.item[1] : NULL};
    int size = snprintf(path, sizeof path, "%s/" TP_RANK_PREFIX "%u", o->arg.item[0], r);
    if (size < 0 || (size_t)size >= sizeof path) {
        tp_err_path(&err, o->arg.item[0]);
        tp_fail(&err, TP_E_USAGE, "the path is too long");
        return tp_report_error(&err);
    }
    rank.arg.item = operands;
    if (o->json) {
        fputs(r ? ",\n" : "", stdout);
    } else {
        printf("%s", r ? "\n" : "");
        tp_print_text(stdout, path);
        printf(":\n");
    }
    return open_and_dump(&rank);
}

/* One rank after the other: in text each under its path, in JSON a list of what each gives. The
 * first that fails is the last, in JSON an object with "error" in its place. */
static int dump_ranks(const struct tp_options *o)
{
    struct tp_err err = {0};
    unsigned ranks;
    int status = TP_OK;
    if (o->svg || o->html) {
        tp_err_path(&err, o->arg.item[0]);
        tp_err_hint(&err, "name one of them: " TP_RANK_PREFIX "0");
        tp_fail(&err, TP_E_USAGE, "a picture shows one rank");
        return tp_report_usage("dump", &err);
    }
    if (tp_verify_count_ranks(o->arg.item[0], &ranks, &err))
        return tp_report_error(&err);
    if (o->json)
        printf("{\n\"version\": 1,\n\"ranks\": [\n");
    for (unsigned r = 0; r < ranks && status == TP_OK; r++)
        status = dump_rank(o, r);
    if (o->json)
        printf("]\n}\n");
    return status;
}

int tp_cmd_dump(const struct tp_options *o)
{
    struct tp_err err = {0};
    if (check_options(o, &err))
        return tp_report_usage("dump", &err);
    if (tp_verify_is_ranks(o->arg.item[0], &err))
        return dump_ranks(o);
    return err.code ? tp_report_error(&err) : open_and_dump(o);
}
