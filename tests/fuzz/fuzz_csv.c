/* Fuzz target: a table of cases for `schedule --cases`.
 *
 * Beyond not crashing: what comes out of an accepted table is accepted, and planning it again
 * changes nothing. Build: make fuzz.
 */
#include "folder.h"

#include "pack/schedule/schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_err err = {0};
    struct tp_text out = {0}, again = {0};
    enum tp_sched_table which, same;
    char *text = malloc(size ? size : 1); /* exact: the sanitizer sees overreads */
    must(text != NULL);
    memcpy(text, data, size);
    enum tp_code code = tp_sched_csv(text, size, "cases.csv", &which, &out, &err);
    free(text);
    must(code == err.code && (!code || (err.what[0] && err.path[0])));
    if (!code) {
        must(tp_sched_csv(out.data, out.size, "again.csv", &same, &again, &err) == TP_OK);
        must(same == which && again.size == out.size);
        must(memcmp(again.data, out.data, out.size) == 0);
    }
    tp_text_free(&again);
    tp_text_free(&out);
    return 0;
}
