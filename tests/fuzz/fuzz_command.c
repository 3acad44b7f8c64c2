/* Fuzz target: any command of the program on any folder (command.h has the input's form).
 *
 * Beyond not crashing: the exit status is one of the table; what `convert` and `unpack` say
 * that they wrote, `verify` finds right, and what they did not finish is not there.
 * Build: make fuzz.
 */
#include "command.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char line[1024];
    struct stat st;
    fuzz_command_start();
    fuzz_empty();
    if (!fuzz_unbundle(data, size, line) || !fuzz_harmless(line))
        return 0;
    bool before = stat("out", &st) == 0;
    int status = fuzz_run(line);
    bool writes = strncmp(line, "convert ", 8) == 0 || strncmp(line, "unpack ", 7) == 0;
    bool after = stat("out", &st) == 0;
    if (!writes || before)
        return 0;
    must(status == 0 || !after);
    if (status == 0 && after)
        must(fuzz_run("verify out --quiet") == 0);
    return 0;
}
