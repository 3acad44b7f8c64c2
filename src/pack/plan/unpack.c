/* The plan that makes a checkpoint plain again: what is packed becomes the tensors that it was made
 * of (unit/restore.c), all else is copied.
 */
#include "pack/plan/unit/build.h"

#include "pack/os/os.h"
#include "pack/plan/file/config.h"
#include "pack/text/json_tree.h"

enum tp_code tp_plan_unpack(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                            enum tp_dtype dtype, uint64_t shard_size, const char *file_name,
                            struct tp_plan *plan, struct tp_err *err)
{
    struct tp_request request = {.shard_size = shard_size, .restore = true, .dtype = dtype};
    struct tp_builder b = {.plan = plan, .request = &request, .err = err};
    uint64_t before = tp_json_failures();
    *plan = (struct tp_plan){.ckpt = ckpt, .weights = weights, .restores = true};
    b.left_out = tp_os_zalloc(ckpt->tensor_count + 1, sizeof *b.left_out, err);
    enum tp_code code = b.left_out ? tp_plan_find_unread(&b) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_plan_check_sources(&b);
    if (code == TP_OK)
        code = tp_plan_plain_units(&b, dtype, false, NULL);
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (!weights->items[w].form->format)
            code = tp_plan_keep_weight(&b, w, NULL);
        else {
            tp_plan_leave_inputs(&b, w, false); /* plain weights have none */
            tp_plan_leave_beside(&b, w);
        }
    for (size_t i = 0; i < weights->other_count && code == TP_OK; i++)
        if (!tp_plan_is_left_out(&b, &ckpt->tensors[weights->other[i]]))
            code = tp_plan_add_kept(&b, weights->other[i], UINT32_MAX, NULL);
    if (code == TP_OK)
        code = tp_plan_files(&b, file_name);
    if (code == TP_OK && !file_name)
        code = tp_config_check(plan, err);
    code = tp_json_check(before, code, err);
    tp_builder_close(&b);
    if (code)
        tp_plan_close(plan);
    return code;
}
