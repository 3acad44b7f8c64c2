/* Words of a command that is printed to be typed. */
#ifndef TP_CLI_SHELL_WORD_H
#define TP_CLI_SHELL_WORD_H

#include "pack/text/text.h"

/* Appends the path as one word of a shell's command, and no option there: as it is where nothing in
 * it is special. What others may have in UTF-8 is not. */
enum tp_code tp_add_shell_word(struct tp_text *text, const char *path, struct tp_err *err);

#endif
