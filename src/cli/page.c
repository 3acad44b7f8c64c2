/* The frame of pages. Invariants: nothing that tp_page_text() writes can be markup; a page that
 * cannot be written as a whole gets no name.
 */
#include "cli/page.h"

#include "base/suffix.h"
#include "cli/print_text.h"
#include "pack/commit/partial_name.h"

#include <stdlib.h>
#include <string.h>

/* The page grows in memory. open_memstream() would do, but the C library's loses bytes without an
 * error where memory ends in the middle of a page. Returns 0 then, which is the stream's error. */
static ssize_t grow(void *to, const char *bytes, size_t count)
{
    struct tp_page *page = to;
    if (count > page->room - page->size) {
        size_t room = 2 * page->room + count;
        char *text = realloc(page->text, room);
        if (!text)
            return 0;
        page->text = text;
        page->room = room;
    }
    memcpy(page->text + page->size, bytes, count);
    page->size += count;
    return (ssize_t)count;
}

enum tp_code tp_page_open(struct tp_page *page, const char *path, const char *suffix,
                          mode_t mode, struct tp_err *err)
{
    *page = (struct tp_page){.path = path, .mode = mode};
    if (!tp_ends_with(path, suffix)) {
        tp_err_hint(err, "name it '%.200s%s', say", path, suffix);
        return tp_fail(err, TP_E_USAGE, "'%.200s' does not end in %s", path, suffix);
    }
    page->file = fopencookie(page, "w", (cookie_io_functions_t){.write = grow});
    return page->file ? TP_OK : tp_fail(err, TP_E_MEMORY, "no memory for the page");
}

static enum tp_code publish(const struct tp_page *page, struct tp_err *err)
{
    struct tp_err why = {0};
    char *unfinished = tp_partial_name(page->path, true, err);
    if (!unfinished)
        return TP_E_MEMORY;
    enum tp_code code = tp_below_write(AT_FDCWD, unfinished, page->mode, unfinished, page->text,
                                       page->size, &why);
    if (code == TP_OK)
        code = tp_os_rename(unfinished, page->path, &why);
    if (code)
        tp_os.unlink(unfinished);
    free(unfinished);
    return code ? tp_os_fail(err, why.sys, page->path, "cannot be written") : TP_OK;
}

enum tp_code tp_page_close(struct tp_page *page, enum tp_code made, struct tp_err *err)
{
    bool whole = !ferror(page->file);
    whole = fclose(page->file) == 0 && whole;
    enum tp_code code = made    ? made
                        : whole ? publish(page, err)
                                : tp_fail(err, TP_E_MEMORY, "no memory for the page");
    free(page->text);
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
    "h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}\n"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "border-bottom:1px solid var(--rule);vertical-align:top}\n"
    "th{font-weight:600;color:var(--dim)}.n{text-align:right;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}\n"
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
