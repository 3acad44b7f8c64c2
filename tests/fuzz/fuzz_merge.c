/* Fuzz target: `merge` on what parts left, what they say of themselves and shards (command.h has the
 * input's form).
 *
 * Beyond not crashing: what it publishes, `verify` finds right; where it fails, nothing is
 * published. Build: make fuzz.
 */
#include "command.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_publishes(data, size, "merge out --quiet");
    return 0;
}
