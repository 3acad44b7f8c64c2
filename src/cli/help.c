/* Prints the tables of commands and options (option_table.h): usage text in 80 columns, and mdoc
 * lists of options for the man pages. What is said of a command or an option stands in the tables.
 */
#include "cli/help.h"

#include "cli/facts.h"

#include <ctype.h>
#include <string.h>

enum { INDENT = 26 }; /* the column where the text of an option begins */

static const char *const group_titles[] = {
    [TP_GROUP_START] = "Start here",
    [TP_GROUP_CHECKPOINTS] = "More for checkpoints",
    [TP_GROUP_KNOWN] = "Formats, models and other programs that are known",
    [TP_GROUP_KERNELS] = "Kernels",
};

void tp_help_top(FILE *out)
{
    fputs("Usage: tilepack COMMAND [arguments]\n\n"
          "Writes a model's weights in exactly the bytes that the GPU kernel will read.\n", out);
    for (unsigned g = 0; g < TP_GROUP_HELPERS; g++) {
        fprintf(out, "\n%s:\n", group_titles[g]);
        for (unsigned c = 0; c < TP_CMD_COUNT; c++)
            if (tp_command_rows[c].group == g)
                fprintf(out, "  %-10s %s\n", tp_command_rows[c].name, tp_command_rows[c].line);
    }
    fputs("\nOptions:\n"
          "  -V, --version         print version and commit\n"
          "  -h, --help            show this help\n\n"
          "'tilepack COMMAND --help' explains a command, 'man tilepack' everything.\n", out);
}

/* "  -j, --jobs N            worker threads (default: ...)", wrapped at INDENT. */
static void help_option(FILE *out, const struct tp_option *row)
{
    char left[80], line[400];
    const char *open = row->alone ? "[=" : " ", *close = row->alone ? "]" : "";
    const char *given = row->alone ? row->alone : row->initial;
    char letter[8] = "    ";
    if (row->letter)
        snprintf(letter, sizeof letter, "-%c, ", row->letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s%s", letter, row->name,
                     row->value ? open : "", row->value ? row->value : "",
                     row->value ? close : "");
    size_t at = (size_t)n + 2 <= INDENT ? INDENT : (size_t)n + 2;
    fprintf(out, "%-*s", (int)at, left);
    const char *label = row->alone ? " (alone: " : " (default: ";
    snprintf(line, sizeof line, "%s%s%s%s", row->help, given ? label : "", given ? given : "",
             given ? ")" : "");
    if (row->kind == TP_OPT_CHOICE) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " [%s]", row->words);
    }
    tp_print_wrapped(out, line, (unsigned)at, INDENT);
}

/* Convert's options come in groups, as nobody reads forty in a row. */
static void help_options(FILE *out, enum tp_command command)
{
    bool grouped = command == TP_CMD_CONVERT;
    if (!grouped)
        fputs("\nOptions:\n", out);
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        if (grouped && row->heading)
            fprintf(out, "\n%s:\n", row->heading);
        if (tp_option_applies(row, command) && !row->hidden)
            help_option(out, row);
    }
}

void tp_help_command(FILE *out, enum tp_command command)
{
    const struct tp_command_row *row = &tp_command_rows[command];
    fprintf(out, "Usage: tilepack %s %s\n\n", row->name, row->synopsis);
    fputc(toupper((unsigned char)row->line[0]), out);
    fprintf(out, "%s.\n", row->line + 1);
    tp_print_wrapped(out, row->about, 0, 0);
    if (command == TP_CMD_PLAN)
        fputs("\nOptions: those of 'tilepack convert --help'.\n", out);
    else
        help_options(out, command);
    if (!*row->examples)
        return;
    fputs("\nExamples:\n", out);
    for (const char *line = row->examples; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "  %.*s\n", (int)length, line);
        line += length + 1;
    }
}

/* ------------------------------------------------------------------- mdoc -- */

/* One word as mdoc text. A backslash is escaped, and so is a dot or a quote that begins a line;
 * the hyphens of an option become minus signs, so that it can be copied from the page. */
static void mdoc_word(FILE *out, const char *word, size_t length, bool first)
{
    if (first && (*word == '.' || *word == '\''))
        fputs("\\&", out);
    bool option = length > 1 && (word[0] == '-' || (word[0] == '\'' && word[1] == '-'));
    for (size_t i = 0; i < length; i++) {
        if (word[i] == '\\')
            fputs("\\e", out);
        else if (word[i] == '-' && option)
            fputs("\\-", out);
        else if (word[i] == '^')
            fputs("\\(ha", out);
        else if (word[i] == '~')
            fputs("\\(ti", out);
        else
            fputc(word[i], out);
    }
}

/* Text as lines under 80 bytes; `capital`: it begins with one, whatever its first letter is. A word
 * begins a new line where the line is full, and behind the end of a sentence: mdoc(7) makes the
 * space between sentences itself. "..." ends none. */
static void mdoc_text(FILE *out, const char *text, bool capital)
{
    size_t at = 0;
    bool first_word = true;
    while (*text) {
        size_t length = strcspn(text, " ");
        bool fits = at && at + 1 + length < 72;
        if (at)
            fputc(fits ? ' ' : '\n', out);
        at = fits ? at + 1 : 0;
        if (first_word && capital && islower((unsigned char)*text)) {
            fputc(toupper((unsigned char)*text), out);
            mdoc_word(out, text + 1, length - 1, false);
        } else {
            mdoc_word(out, text, length, at == 0);
        }
        first_word = false;
        at += length;
        bool ends = text[length] && length > 1 && strchr(".?!", text[length - 1]) &&
                    text[length - 2] != '.';
        text += length;
        text += strspn(text, " ");
        if (ends) {
            fputc('\n', out);
            at = 0;
        }
    }
    if (at)
        fputc('\n', out);
}

/* The head of a list item, as ".It Fl j Ar N , Fl \-jobs Ns = Ns Ar N". */
static void mdoc_item(FILE *out, const struct tp_option *row)
{
    fputs(".It", out);
    if (row->letter)
        fprintf(out, " Fl %c%s%s ,", row->letter, row->value ? " Ar " : "",
                row->value ? row->value : "");
    fprintf(out, " Fl \\-%s", row->name);
    if (row->alone)
        fprintf(out, " Ns Op = Ns Ar %s", row->value);
    else if (row->value)
        fprintf(out, " Ns = Ns Ar %s", row->value);
    fputc('\n', out);
}

/* "One of" and the words of "a|b|c". */
static void mdoc_choices(FILE *out, const char *words)
{
    fputs("One of", out);
    for (const char *word = words; word; word = strchr(word, '|')) {
        word += *word == '|';
        fprintf(out, "%s\n.Cm %.*s", word == words ? "" : " ,", (int)strcspn(word, "|"), word);
    }
    fputs(" .\n", out);
}

static void mdoc_option(FILE *out, const struct tp_option *row)
{
    char text[400];
    mdoc_item(out, row);
    snprintf(text, sizeof text, "%s.", row->help);
    mdoc_text(out, text, true);
    if (row->kind == TP_OPT_CHOICE)
        mdoc_choices(out, row->words);
    if (row->initial || row->alone)
        fprintf(out, "%s\n.Cm %s .\n", row->alone ? "Without a value, it is" : "Default:",
                row->alone ? row->alone : row->initial);
    if (row->more)
        mdoc_text(out, row->more, false);
}

/* An option that every visible command has. */
static bool is_common(const struct tp_option *row)
{
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        if (!tp_command_is_hidden((enum tp_command)c) &&
            !tp_option_applies(row, (enum tp_command)c))
            return false;
    return true;
}

void tp_help_mdoc(FILE *out, enum tp_command command, enum tp_help_which which)
{
    bool open = false;
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        if (!tp_option_applies(row, command) || row->hidden ||
            (which != TP_HELP_ALL && is_common(row) != (which == TP_HELP_COMMON)))
            continue;
        if (row->heading && command == TP_CMD_CONVERT)
            fprintf(out, "%s.Ss %s\n.Bl -tag -width Ds\n", open ? ".El\n" : "", row->heading);
        else if (!open)
            fputs(".Bl -tag -width Ds\n", out);
        open = true;
        mdoc_option(out, row);
    }
    if (open)
        fputs(".El\n", out);
}
