/* The frame of pages. Invariants: nothing that tp_page_text() writes can be markup; a page of which
 * a write failed gets no name, and the error is that of this write.
 */
#include "cli/page.h"

#include "base/suffix.h"
#include "cli/print_text.h"
#include "pack/commit/partial_name.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum tp_code fail_write(const struct tp_page *page, int sys, struct tp_err *err)
{
    return tp_os_fail(err, sys, page->path, "cannot be written");
}

/* Writes what the FILE hands over. Nobody looks before the end, when the FILE knows that a write
 * failed and errno no longer why. */
static ssize_t write_part(void *cookie, const char *data, size_t size)
{
    struct tp_page *page = cookie;
    struct tp_err why = {0};
    if (!page->sys && tp_os_write(page->fd, data, size, page->size, page->path, &why))
        page->sys = why.sys ? why.sys : EIO;
    page->size += size;
    return page->sys ? 0 : (ssize_t)size;
}

/* An empty file of this process alone; what a killed one left is taken. */
static enum tp_code open_own(struct tp_page *page, mode_t mode, int *fd,
                             struct tp_err *err)
{
    struct tp_err local = {0};
    bool unlocked;
    enum tp_code code = tp_below_open_own(AT_FDCWD, page->unfinished, mode,
                                          page->unfinished, fd, &local);
    if (code == TP_OK)
        code = tp_os_lock(*fd, page->unfinished, &unlocked, &local);
    if (code && local.sys)
        return fail_write(page, local.sys, err);
    if (code)
        *err = local;
    return code ? code : tp_os.ftruncate(*fd, 0) ? fail_write(page, errno, err) : TP_OK;
}

enum tp_code tp_page_open(struct tp_page *page, const char *path, const char *suffix,
                          mode_t mode, struct tp_err *err)
{
    *page = (struct tp_page){.path = path, .fd = -1};
    if (!tp_ends_with(path, suffix)) {
        tp_err_hint(err, "name it '%.200s%s', say", path, suffix);
        return tp_fail(err, TP_E_USAGE, "'%.200s' does not end in %s", path, suffix);
    }
    if (!(page->unfinished = tp_partial_name(path, true, err)))
        return TP_E_MEMORY;
    enum tp_code code = open_own(page, mode, &page->fd, err);
    cookie_io_functions_t calls = {.write = write_part};
    if (code == TP_OK && !(page->file = fopencookie(page, "w", calls)))
        code = fail_write(page, errno, err);
    if (code) {
        tp_os_close(&page->fd);
        free(page->unfinished);
    }
    return code;
}

/* Gives it its name while it is locked still. */
static enum tp_code publish(const struct tp_page *page, struct tp_err *err)
{
    if (fflush(page->file) || ferror(page->file))
        return fail_write(page, page->sys ? page->sys : errno, err);
    if (tp_os.fsync(page->fd) || tp_os.rename(page->unfinished, page->path))
        return fail_write(page, errno, err);
    return TP_OK;
}

enum tp_code tp_page_close(struct tp_page *page, enum tp_code made, struct tp_err *err)
{
    enum tp_code code = made ? made : publish(page, err);
    if (code)
        tp_os.unlink(page->unfinished);
    fclose(page->file);
    page->file = NULL;
    tp_os_close(&page->fd);
    free(page->unfinished);
    return code;
}

static bool put_entities(const char *text, size_t size, void *to)
{
    FILE *out = to;
    for (const char *at = text; at < text + size; at++)
        switch (*at) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: fputc(*at, out);
        }
    return !ferror(out);
}

void tp_page_text(FILE *out, const char *text)
{
    tp_escape_parts(text, strlen(text), false, put_entities, out);
}

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--dim:#5b6570;--rule:#d5dae0;--paper:#fff;"
    "--mark:#2563a8}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--dim:#9aa4ae;--rule:#3a424b;"
    "--paper:#15191d;--mark:#7db4ec}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "margin:2rem auto;max-width:72rem;padding:0 1rem}\n"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\n"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "border-bottom:1px solid var(--rule);vertical-align:top}\n"
    "th{font-weight:600;color:var(--dim)}.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    "code,pre{font:13px/1.4 ui-monospace,monospace}p.dim,.dim{color:var(--dim)}\n"
    "svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .dim{fill:var(--dim)}\n"
    "svg .rule{stroke:var(--rule)}svg .dot{fill:var(--mark)}\n"
    ".wide{overflow-x:auto}.full{width:calc(100vw - 3rem);margin-left:calc(50% - 50vw + 1.5rem)}"
    "details{margin:.5rem 0}summary{cursor:pointer}\n";

void tp_page_head(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n<title>", out);
    tp_page_text(out, title);
    fprintf(out, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
    tp_page_text(out, title);
    fputs("</h1>\n", out);
}

void tp_page_foot(FILE *out)
{
    fputs("</body></html>\n", out);
}
