#include "reading.h"

#include "pack/check/diff.h"
#include "pack/check/verify.h"

#include <string.h>

const char *reading_name(enum reading reading)
{
    static const char *const names[READINGS] = {"verify", "verify --against", "diff"};
    return names[reading];
}

static enum tp_code verify(const struct tp_side *stored, const char *source, bool against,
                           long *found, struct tp_err *err)
{
    struct tp_verify_report report = {0};
    struct tp_verify_options options = {.jobs = 1};
    struct tp_side plain = {0};
    struct tp_checkpoint ckpt = {0};
    struct tp_weights weights = {0};
    enum tp_code code = tp_verify(stored->ckpt, (struct tp_weights *)stored->weights, &options,
                                  &report, err);
    if (code == TP_OK && against && !report.problem_count) {
        if ((code = tp_checkpoint_open(source, 0, &ckpt, err)) == TP_OK &&
            (code = tp_weights_find(&ckpt, &weights, err)) == TP_OK) {
            plain = (struct tp_side){.ckpt = &ckpt, .weights = &weights};
            code = tp_verify_against(stored, &plain, &options, &report, err);
        }
    }
    *found = (long)report.problem_count;
    for (size_t u = 0; u < report.unit_count; u++)
        *found += report.units[u].differs;
    tp_verify_report_close(&report);
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
    return code;
}

static enum tp_code compare(const struct tp_side *stored, const char *other, long *found,
                            struct tp_err *err)
{
    struct tp_checkpoint ckpt = {0};
    struct tp_weights weights = {0};
    struct tp_diff diff = {0};
    struct tp_diff_options options = {.jobs = 1};
    struct tp_side side = {.ckpt = &ckpt, .weights = &weights};
    enum tp_code code = tp_weights_find(stored->ckpt, (struct tp_weights *)stored->weights, err);
    if (code == TP_OK && (code = tp_checkpoint_open(other, 0, &ckpt, err)) == TP_OK &&
        (code = tp_weights_find(&ckpt, &weights, err)) == TP_OK)
        code = tp_diff(stored, &side, &options, &diff, err);
    *found = (long)diff.differing;
    tp_diff_close(&diff);
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
    return code;
}

enum tp_code reading_run(enum reading reading, const char *path, const char *source, long *found,
                         struct tp_err *err)
{
    struct tp_checkpoint ckpt = {0};
    struct tp_weights weights = {0};
    struct tp_side stored = {.ckpt = &ckpt, .weights = &weights};
    memset(err, 0, sizeof *err);
    *found = 0;
    enum tp_code code = tp_checkpoint_open(path, 0, &ckpt, err);
    if (code == TP_OK)
        code = reading == READ_DIFF ? compare(&stored, source, found, err)
                                    : verify(&stored, source, reading == READ_AGAINST, found, err);
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
    return code;
}
