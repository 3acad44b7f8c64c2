/* Fuzz target: any text as a pattern, any other as a name.
 * Build: make fuzz.
 *
 * The input is a pattern, a NUL and a name. Beyond not crashing: what is refused carries a
 * message and a hint; what matches from the start of the name is found in it, too; and the answer
 * is the same the second time.
 */
#include "pack/text/pattern.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

/* -1: refused, or too costly. */
static int answer(const char *text, const char *name, enum tp_pattern_kind kind)
{
    struct tp_matcher matcher = {0};
    struct tp_pattern pattern;
    struct tp_pattern_origin origin = {"--include", -1, TP_E_USAGE};
    struct tp_err err = {0};
    bool found = false, again;
    enum tp_code code = tp_pattern_compile(&matcher, text, kind, origin, &pattern, &err);
    if (code) {
        require(code == TP_E_USAGE && *err.what && *err.hint);
    } else {
        code = tp_pattern_match(&matcher, &pattern, name, &found, &err);
        require(code == err.code && (code == TP_OK || (code == TP_E_USAGE && !found)));
        err = (struct tp_err){0};
        require(tp_pattern_match(&matcher, &pattern, name, &again, &err) == code);
        require(found == again);
    }
    tp_pattern_free(&pattern);
    tp_matcher_close(&matcher);
    return code ? -1 : found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 2);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    const char *name = text + strlen(text) + 1;
    int match = answer(text, name, TP_PATTERN_MATCH);
    int search = answer(text, name, TP_PATTERN_SEARCH);
    if (match == 1 && !strstr(text, "[:") && strncmp(text, "glob:", 5) != 0)
        require(search != 0);
    free(text);
    return 0;
}
