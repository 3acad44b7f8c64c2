/* Pages and pictures for a browser: one file that needs nothing else, from nowhere. Begins
 * and ends such a file, and puts text of others into it. Knows nothing of what it shows.
 */
#ifndef TP_CLI_PAGE_H
#define TP_CLI_PAGE_H

#include "pack/os/below.h"

#include <stdio.h>

struct tp_page {
    FILE *file;
    const char *path;
    char *text; /* what was written, until it is closed */
    size_t size, room;
    mode_t mode;
};

/* Begins the file `path`, whose name must end in `suffix` (".html"), so that a mistyped one
 * replaces no file of another kind. `mode` is that of what it shows. With TP_OK, it has to be
 * closed, and stays where it is until then. */
enum tp_code tp_page_open(struct tp_page *page, const char *path, const char *suffix,
                          mode_t mode, struct tp_err *err);
/* Closes it. If all of it was made, which `made` says, it is written beside its name and gets that,
 * and what had it is replaced, a link itself and not what it leads to; else nothing is left.
 * Returns `made`, or what failed: TP_E_IO when something could not be written. */
enum tp_code tp_page_close(struct tp_page *page, enum tp_code made, struct tp_err *err);

/* The page until its first heading, which is the title; the style that all pages have. */
void tp_page_head(FILE *out, const char *title);
void tp_page_foot(FILE *out);

/* Text for HTML and SVG: control characters escaped as on a terminal, and what markup takes
 * for itself written as entities, also within quotes. */
void tp_page_text(FILE *out, const char *text);

#endif
