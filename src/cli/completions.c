/* Shell completion. A script of each shell hands over the words that stand on the line, and the
 * program answers with what the last one may become, from the same tables by which it is read.
 * Names of files are the shell's own work.
 * Invariant: what is printed is words of the program, and names of tensors that no shell has to
 * escape with more than backslashes. */
#include "cli/cmd.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/engine/engine.h"
#include "pack/format/format.h"
#include "pack/model/model.h"
#include "pack/schedule/gpus.h"

#include <stdio.h>
#include <string.h>

/* A line that is being completed, behind the name of the program. */
struct line {
    const char *const *words;
    int count; /* the last one is not complete, and may be empty */
    const struct tp_command_row *command;
};

/* ---- what stands on the line -------------------------------------------------- */

static enum tp_command command_of(const struct line *line)
{
    return (enum tp_command)(line->command - tp_command_rows);
}

/* The option whose value is the word behind this one. */
static const struct tp_option *takes_next(const struct line *line, const char *word)
{
    const struct tp_option *row = NULL;
    if (strncmp(word, "--", 2) == 0)
        row = tp_option_find(command_of(line), word + 2, strlen(word + 2), '\0');
    else if (word[0] == '-' && word[1])
        row = tp_option_find(command_of(line), NULL, 0, word[strlen(word) - 1]);
    return row && row->value && !row->alone ? row : NULL;
}

/* The number of operands before the last word, and the first of them. */
static size_t count_operands(const struct line *line, const char **first)
{
    size_t count = 0;
    for (int i = 1; i + 1 < line->count; i++) {
        const char *word = line->words[i];
        if (word[0] == '-' && word[1])
            i += takes_next(line, word) != NULL;
        else if (count++ == 0)
            *first = word;
    }
    return count;
}

/* The format that --to names, or NULL. */
static const struct tp_format *format_of(const struct line *line)
{
    const struct tp_format *format = NULL;
    for (int i = 1; i < line->count; i++)
        if (strncmp(line->words[i], "--to=", 5) == 0)
            format = tp_format_find(line->words[i] + 5);
        else if (i > 1 && strcmp(line->words[i - 1], "--to") == 0)
            format = tp_format_find(line->words[i]);
    return format;
}

/* ---- what the last word may become -------------------------------------------- */

static void offer(const char *word, const char *about)
{
    printf("%s%s%s\n", word, *about ? "\t" : "", about);
}

static void offer_formats(bool all)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t i = 0; i < count; i++)
        if (all || !formats[i]->input_only)
            offer(formats[i]->name, formats[i]->title);
}

/* Offers the settings of the named format; without one, those of all that are written, where some
 * recur. */
static void offer_settings(const struct line *line)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count), *one = format_of(line);
    for (size_t f = 0; f < count; f++)
        for (uint32_t p = 0; p < formats[f]->params && (!one || one == formats[f]); p++)
            for (uint32_t c = 0; c < formats[f]->param[p].count && !formats[f]->input_only; c++) {
                const struct tp_param *param = &formats[f]->param[p];
                const char *const *alias = param->aliases[c];
                for (const char *name = param->choices[c]; name; name = *alias++)
                    printf("%s=%s\n", param->key, name);
            }
}

static void offer_words(const char *words)
{
    for (; words; words = strchr(words, '|')) {
        words += *words == '|';
        printf("%.*s\n", (int)strcspn(words, "|"), words);
    }
}

static void offer_commands(void)
{
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        if (!tp_command_is_hidden((enum tp_command)c))
            offer(tp_command_rows[c].name, tp_command_rows[c].line);
}

/* A name of strangers: not one that would be an option, or that JSON would escape. */
static void offer_name(const char *name, const char *begin)
{
    bool plain = name[0] != '-' && strncmp(name, begin, strlen(begin)) == 0;
    for (const char *at = name; *at; at++)
        plain &= (unsigned char)*at >= 0x20 && *at != 0x7f && *at != '"' && *at != '\\';
    if (plain)
        offer(name, "");
}

/* Tensors and packed weights of a checkpoint; none where it cannot be read. */
static void offer_tensors(const char *path, const char *begin)
{
    struct tp_source source;
    struct tp_err err = {0};
    if (tp_source_open(path, 0, &source, &err))
        return;
    for (size_t w = 0; w < source.weights.count; w++)
        if (source.weights.items[w].form->format)
            offer_name(source.weights.items[w].name, begin);
    for (size_t t = 0; t < source.ckpt.tensor_count; t++)
        offer_name(source.ckpt.tensors[t].name, begin);
    tp_source_close(&source);
}

/* TP_E_DIFF: names of files, which the shell knows. */
static int offer_values(const struct line *line, enum tp_complete complete, const char *words)
{
    size_t count;
    const char *path = NULL;
    switch (complete) {
    case TP_COMPLETE_NONE: break;
    case TP_COMPLETE_PATH: return TP_E_DIFF;
    case TP_COMPLETE_FORMAT: offer_formats(false); break;
    case TP_COMPLETE_ANY_FORMAT: offer_formats(true); break;
    case TP_COMPLETE_SETTING: offer_settings(line); break;
    case TP_COMPLETE_COMMAND: offer_commands(); break;
    case TP_COMPLETE_WORDS: offer_words(words); break;
    case TP_COMPLETE_TENSOR:
        count_operands(line, &path);
        offer_tensors(path, line->words[line->count - 1]);
        break;
    case TP_COMPLETE_MODEL:
        for (const struct tp_model *const *model = tp_models(&count, NULL); count--; model++)
            offer((*model)->name, (*model)->title);
        break;
    case TP_COMPLETE_GPU:
        for (const struct tp_gpu *gpu = tp_gpus(&count); count--; gpu++)
            offer(gpu->name, gpu->title);
        break;
    case TP_COMPLETE_ENGINE:
        for (const struct tp_engine *const *e = tp_engines(&count); count--; e++)
            offer((*e)->name, (*e)->title);
        break;
    case TP_COMPLETE_CHIP:
        for (const struct tp_chip *chip = tp_chips(&count); count--; chip++)
            offer(chip->name, "");
    }
    return TP_OK;
}

static int offer_options(const struct line *line, const char *begin)
{
    size_t size = strlen(begin);
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        if (!tp_option_applies(row, command_of(line)) || row->hidden)
            continue;
        if (size <= 2 || strncmp(row->name, begin + 2, size - 2) == 0)
            printf("--%s\t%s\n", row->name, row->help);
        if (row->letter && size == 1)
            printf("-%c\t%s\n", row->letter, row->help);
    }
    return TP_OK;
}

static int offer_operand(const struct line *line)
{
    const struct tp_operand *operand = line->command->operand;
    const char *first;
    size_t count = count_operands(line, &first);
    if (count >= line->command->max)
        return TP_OK;
    while (count-- && operand[1].name)
        operand++;
    return offer_values(line, operand->complete, operand->words);
}

int tp_complete(int count, const char *const *words)
{
    struct line line = {words, count, tp_command_rows};
    const char *last = count ? words[count - 1] : "";
    const char *equals = strncmp(last, "--", 2) == 0 ? strchr(last, '=') : NULL;
    if (count <= 1) {
        if (*last == '-')
            puts("--version\tprint version and commit\n--help\tshow help");
        else
            offer_commands();
        return TP_OK;
    }
    while (line.command < tp_command_rows + TP_CMD_COUNT &&
           strcmp(line.command->name, words[0]) != 0)
        line.command++;
    if (line.command == tp_command_rows + TP_CMD_COUNT)
        return TP_OK;
    const struct tp_option *option =
        equals ? tp_option_find(command_of(&line), last + 2, (size_t)(equals - last - 2), '\0')
               : takes_next(&line, words[count - 2]);
    if (option)
        return offer_values(&line, option->complete, option->words);
    return *last == '-' ? offer_options(&line, last) : offer_operand(&line);
}

/* ---- the scripts ---------------------------------------------------------------- */

/* In each the answer is lines of words, some with a tab and what they mean behind them; with an
 * exit status that is not 0 names of files are asked for. */

/* bash cuts words at = and :, so the words are taken from the line instead, and what bash thinks is
 * already there is cut off the answers. It inserts them as they are, but for names of files (-o
 * filenames), so they are quoted here; not as $'...', which double quotes that are open already
 * would take apart again. */
static const char bash[] =
    "# bash completion for tilepack, generated by: tilepack completions bash\n"
    "_tilepack() {\n"
    "    local cur line=${COMP_LINE:0:COMP_POINT} cut='' answer word\n"
    "    local -a words plain\n"
    "    read -ra words <<<\"$line\"\n"
    "    if [[ $line == *[[:space:]] ]]; then words+=(''); fi\n"
    "    cur=${words[${#words[@]} - 1]}\n"
    "    if [[ $cur == --*=* ]]; then cur=${cur#*=}; fi\n"
    "    case $cur in\n"
    "        *[=:]*) cut=${cur%\"${cur##*[=:]}\"} ;;\n"
    "    esac\n"
    "    plain=(\"${words[@]//\\\\/}\")\n"
    "    plain=(\"${plain[@]/#\\~\\//$HOME/}\")\n"
    "    COMPREPLY=()\n"
    "    if ! answer=$(tilepack --complete \"${plain[@]:1}\" 2>/dev/null); then\n"
    "        while IFS= read -r word; do\n"
    "            COMPREPLY+=(\"$word\")\n"
    "        done < <(compgen -f -- \"$cur\")\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        return\n"
    "    fi\n"
    "    while IFS=$'\\t' read -r word _; do\n"
    "        if [[ -z $word || $word != \"${cur//\\\\/}\"* ]]; then continue; fi\n"
    "        printf -v word %q \"$word\"\n"
    "        if [[ $word != \\$* ]]; then COMPREPLY+=(\"${word#\"$cut\"}\"); fi\n"
    "    done < <(LC_ALL=C sort -u <<<\"$answer\")\n"
    "}\n"
    "complete -F _tilepack tilepack\n";

static const char zsh[] =
    "#compdef tilepack\n"
    "# zsh completion for tilepack, generated by: tilepack completions zsh\n"
    "_tilepack() {\n"
    "    local answer word about\n"
    "    local -a before found\n"
    "    before=(${(Q)words[2,CURRENT-1]})\n"
    "    before=(${before/#\\~\\//$HOME/})\n"
    "    if ! answer=$(tilepack --complete $before \"$PREFIX\" 2>/dev/null); then\n"
    "        compset -P '--*='\n"
    "        _files\n"
    "        return\n"
    "    fi\n"
    "    compset -P '--*='\n"
    "    while IFS=$'\\t' read -r word about; do\n"
    "        found+=(\"${word//:/\\\\:}${about:+:$about}\")\n"
    "    done <<<\"$answer\"\n"
    "    _describe -t words tilepack found\n"
    "}\n"
    /* autoloaded from fpath the file is the function; sourced, it registers */
    "if [[ $funcstack[1] == _tilepack ]]; then\n"
    "    _tilepack \"$@\"\n"
    "else\n"
    "    compdef _tilepack tilepack\n"
    "fi\n";

static const char fish[] =
    "# fish completion for tilepack, generated by: tilepack completions fish\n"
    "function __tilepack_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l now (commandline -ct)\n"
    "    set -l head (string match -r -- '^--[^=]*=' $now)\n"
    "    set -e words[1]\n"
    "    set -l answer (tilepack --complete (string replace -r '^~/' $HOME/ -- $words) \"$now\" "
    "2>/dev/null)\n"
    "    or set answer (__fish_complete_path (string replace -r -- '^--[^=]*=' '' \"$now\"))\n"
    "    printf \"$head%s\\n\" $answer\n"
    "end\n"
    "complete -c tilepack -f -a '(__tilepack_complete)'\n";

int tp_cmd_completions(const struct tp_options *o)
{
    static const struct {
        const char *shell, *script;
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    struct tp_err err = {0};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (!strcmp(o->arg.item[0], shells[i].shell)) {
            fputs(shells[i].script, stdout);
            return TP_OK;
        }
    tp_refuse(&err, TP_E_USAGE, "bash, zsh and fish are known", "no completions for '%s'",
              o->arg.item[0]);
    return tp_report_usage("completions", &err);
}
