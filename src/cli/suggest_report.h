/* What `tilepack suggest` found, as text and JSON. */
#ifndef TP_CLI_SUGGEST_REPORT_H
#define TP_CLI_SUGGEST_REPORT_H

#include "pack/suggest/suggest.h"

struct tp_suggest_report {
    const char *source;  /* its path, as it was typed */
    const char *base;    /* how an output is called, less its format */
    const struct tp_suggest_wish *wish;
    const struct tp_suggestions *found;
    double seconds;
};

/* On stdout; the exit status: TP_E_DIFF where nothing fits. */
int tp_suggest_print(const struct tp_suggest_report *report, bool json);

#endif
