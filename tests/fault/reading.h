/* The reading commands, run whole: verify, verify --against, diff. */
#ifndef TEST_FAULT_READING_H
#define TEST_FAULT_READING_H

#include "base/error.h"

enum reading { READ_VERIFY, READ_AGAINST, READ_DIFF, READINGS };

const char *reading_name(enum reading reading);
/* Reads `path` (and `source`, the plain checkpoint). *found is the number of
 * differences that were reported. */
enum tp_code reading_run(enum reading reading, const char *path, const char *source, long *found,
                         struct tp_err *err);

#endif
