/* Checks of an option value's form, referred to by the rows of option_table.c.
 * Each returns NULL, or why the value is refused (valid until the next call). */
#ifndef TP_CLI_OPTION_CHECK_H
#define TP_CLI_OPTION_CHECK_H

const char *tp_check_regex(const char *value);   /* POSIX extended */
const char *tp_check_setting(const char *value); /* key=value */
const char *tp_check_device(const char *value);  /* auto, cpu, cuda, cuda:all, cuda:0,2 */

#endif
