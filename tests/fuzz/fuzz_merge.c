/* Fuzz target: `merge` on what parts left, notes, journals and shards (command.h has the
 * input's form).
 *
 * Beyond not crashing: what it publishes, `verify` finds right; where it fails, nothing is
 * published. Build: make fuzz.
 */
#include "command.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char line[1024];
    struct stat st;
    fuzz_command_start();
    fuzz_empty();
    if (!fuzz_unbundle(data, size, line))
        return 0;
    bool before = stat("out", &st) == 0;
    int status = fuzz_run("merge out --quiet");
    if (before)
        return 0;
    must((status == 0) == (stat("out/tilepack.json", &st) == 0));
    if (status == 0)
        must(fuzz_run("verify out --quiet") == 0);
    return 0;
}
