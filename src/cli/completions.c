/* Shell completion scripts, generated from the tables and the formats. What a script
 * knows is fixed when it is printed; only the tensors of a checkpoint that stands on the
 * line are asked from the program, by `dump --json`.
 * Invariant: every visible command, option, choice and format is in all three. */
#include "cli/cmd.h"
#include "cli/report.h"
#include "pack/format/format.h"
#include "pack/model/model.h"
#include "pack/schedule/gpus.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------- words to complete -- */

typedef void (*emit_fn)(const char *word, size_t length, const char *about);

static void emit_plain(const char *word, size_t length, const char *about)
{
    (void)about;
    printf("%.*s ", (int)length, word);
}

static void each_format(bool all, emit_fn emit)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t i = 0; i < count; i++)
        if (all || !formats[i]->input_only)
            emit(formats[i]->name, strlen(formats[i]->name), formats[i]->title);
}

static void each_model(emit_fn emit)
{
    size_t count;
    const struct tp_model *models = tp_models(&count);
    for (size_t i = 0; i < count; i++)
        emit(models[i].name, strlen(models[i].name), models[i].title);
}

/* True when an earlier format, or an earlier parameter, has that pair too. */
static bool setting_seen(const struct tp_format *const *formats, size_t f, uint32_t p,
                         const char *choice)
{
    const char *key = formats[f]->param[p].key;
    for (size_t i = 0; i <= f; i++)
        for (uint32_t j = 0; j < (i < f ? formats[i]->params : p); j++)
            if (!strcmp(formats[i]->param[j].key, key) &&
                tp_param_find(&formats[i]->param[j], choice) >= 0)
                return true;
    return false;
}

/* The settings of format f; less those that an earlier format has, too, where `once`. */
static void settings_of(const struct tp_format *const *formats, size_t f, bool once, emit_fn emit)
{
    for (uint32_t p = 0; p < formats[f]->params; p++)
        for (uint32_t c = 0; c < formats[f]->param[p].count; c++) {
            const struct tp_param *param = &formats[f]->param[p];
            const char *const *alias = param->aliases[c];
            for (const char *name = param->choices[c]; name; name = *alias++) {
                char word[100];
                if (once && setting_seen(formats, f, p, name))
                    continue;
                snprintf(word, sizeof word, "%s=%s", param->key, name);
                emit(word, strlen(word), "");
            }
        }
}

static void each_setting(emit_fn emit)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++)
        if (!formats[f]->input_only)
            settings_of(formats, f, true, emit);
}

/* A branch for each format of a shell's `case` or `switch`: what stands before its name and
 * behind it, its settings, and the end. */
static void setting_cases(const char *before, const char *behind, const char *end)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++)
        if (!formats[f]->input_only) {
            printf("%s%s%s", before, formats[f]->name, behind);
            settings_of(formats, f, false, emit_plain);
            fputs(end, stdout);
        }
}

static void each_command(emit_fn emit)
{
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        if (!tp_command_rows[c].hidden)
            emit(tp_command_rows[c].name, strlen(tp_command_rows[c].name),
                 tp_command_rows[c].line);
}

static void each_gpu(emit_fn emit)
{
    size_t count;
    const struct tp_gpu *gpus = tp_gpus(&count);
    for (size_t i = 0; i < count; i++)
        emit(gpus[i].name, strlen(gpus[i].name), gpus[i].title);
}

static void each_chip(emit_fn emit)
{
    size_t count;
    const struct tp_chip *chips = tp_chips(&count);
    for (size_t i = 0; i < count; i++)
        emit(chips[i].name, strlen(chips[i].name), "");
}

static void each_word(enum tp_complete complete, const char *words, emit_fn emit)
{
    if (complete == TP_COMPLETE_MODEL)
        each_model(emit);
    if (complete == TP_COMPLETE_FORMAT || complete == TP_COMPLETE_ANY_FORMAT)
        each_format(complete == TP_COMPLETE_ANY_FORMAT, emit);
    if (complete == TP_COMPLETE_SETTING)
        each_setting(emit);
    if (complete == TP_COMPLETE_COMMAND)
        each_command(emit);
    if (complete == TP_COMPLETE_GPU)
        each_gpu(emit);
    if (complete == TP_COMPLETE_CHIP)
        each_chip(emit);
    for (const char *word = complete == TP_COMPLETE_WORDS ? words : NULL; word;
         word = strchr(word, '|')) {
        word += *word == '|';
        emit(word, strcspn(word, "|"), "");
    }
}

static bool visible(const struct tp_option *row, enum tp_command command)
{
    return tp_option_applies(row, command) && !row->hidden;
}

/* Text inside single quotes of a shell. */
static void quoted(const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr(special, *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

/* -------------------------------------------------------------------- bash -- */

static void bash_value(enum tp_complete complete, const char *words)
{
    const char *function = complete == TP_COMPLETE_PATH      ? "_tilepack_paths"
                           : complete == TP_COMPLETE_TENSOR  ? "_tilepack_tensors"
                           : complete == TP_COMPLETE_SETTING ? "_tilepack_settings"
                                                             : NULL;
    if (function) {
        printf("%s ;;\n", function);
        return;
    }
    fputs("_tilepack_words '", stdout);
    each_word(complete, words, emit_plain);
    fputs("' ;;\n", stdout);
}

static void bash_command(enum tp_command command)
{
    const struct tp_command_row *row = &tp_command_rows[command];
    printf("        %s)\n            case $prev in\n", row->name);
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *option = &tp_option_rows[i];
        if (!visible(option, command) || !option->value)
            continue;
        if (option->kind == TP_OPT_LEVEL)
            continue;
        printf("                --%s", option->name);
        if (option->letter)
            printf("|-%c", option->letter);
        fputs(") ", stdout);
        bash_value(option->complete, option->words);
    }
    fputs("                *)\n                    case $cur in\n"
          "                        -*) _tilepack_words '", stdout);
    for (size_t i = 0; i < tp_option_count; i++)
        if (visible(&tp_option_rows[i], command))
            printf("--%s ", tp_option_rows[i].name);
    fputs("' ;;\n                        *) ", stdout);
    const struct tp_operand *operand = &row->operand[0];
    if (row->operand[1].complete == TP_COMPLETE_TENSOR) /* paths as long as there is none */
        operand++;
    bash_value(operand->complete, operand->words);
    fputs("                    esac ;;\n            esac ;;\n", stdout);
}

/* What `dump --json` prints, a tensor on a line, as names of weights and tensors: strangers'
 * text, which a shell has to quote before it is on the line. Not those that JSON escapes
 * (control characters, quotes), nor those that would be options. */
#define TENSOR_NAME "\\([^-\"\\][^\"\\]*\\)"
#define TENSOR_NAMES                                                                        \
    "sed -n 'h;s/.*\"weight\": \"" TENSOR_NAME "\".*/\\1/p;"                                \
    "g;s/^ *{\"name\": \"" TENSOR_NAME "\", \"dtype.*/\\1/p' | LC_ALL=C sort -u"

/* bash cuts words at = and :, so the words are taken from the line instead, and
 * what bash thinks is already there is cut off the answers. It inserts them as they
 * are, but for names of files (-o filenames), so names of tensors are quoted here; not
 * as $'...', which double quotes that are open already would take apart again. */
static const char bash_head[] =
    "# bash completion for tilepack, generated by: tilepack completions bash\n"
    "_tilepack_add() {\n"
    "    local cut=''\n"
    "    case $cur in\n"
    "        *[=:]*) cut=${cur%\"${cur##*[=:]}\"} ;;\n"
    "    esac\n"
    "    COMPREPLY+=(\"${1#\"$cut\"}\")\n"
    "}\n"
    "_tilepack_words() {\n"
    "    local word\n"
    "    for word in $1; do\n"
    "        if [[ $word == \"$cur\"* ]]; then _tilepack_add \"$word\"; fi\n"
    "    done\n"
    "}\n"
    "_tilepack_paths() {\n"
    "    local path\n"
    "    while IFS= read -r path; do\n"
    "        COMPREPLY+=(\"$path\")\n"
    "    done < <(compgen -f -- \"$cur\")\n"
    "    compopt -o filenames 2>/dev/null\n"
    "}\n"
    "_tilepack_tensors() {\n"
    "    local word path name begin=${cur//\\\\/}\n"
    "    for word in \"${words[@]:2:last-2}\"; do\n"
    "        path=${word/#\\~\\//$HOME/}\n"
    "        if [[ ! -e $path ]]; then continue; fi\n"
    "        while IFS= read -r name; do\n"
    "            if [[ $name != \"$begin\"* ]]; then continue; fi\n"
    "            printf -v name %q \"$name\"\n"
    "            if [[ $name != \\$* ]]; then _tilepack_add \"$name\"; fi\n"
    "        done < <(tilepack dump \"$path\" \"$begin*\" --json 2>/dev/null | "
    TENSOR_NAMES ")\n"
    "        return\n"
    "    done\n"
    "    _tilepack_paths\n"
    "}\n";

static const char bash_main[] =
    "_tilepack() {\n"
    "    local cur prev line=${COMP_LINE:0:COMP_POINT}\n"
    "    local -a words\n"
    "    read -ra words <<<\"$line\"\n"
    "    if [[ $line == *[[:space:]] ]]; then words+=(''); fi\n"
    "    local last=$((${#words[@]} - 1))\n"
    "    cur=${words[last]} prev=''\n"
    "    COMPREPLY=()\n"
    "    if ((last >= 1)); then prev=${words[last - 1]}; fi\n"
    "    if [[ $cur == --*=* ]]; then\n"
    "        prev=${cur%%=*} cur=${cur#*=}\n"
    "    fi\n"
    "    if ((last == 1)); then\n"
    "        prev=''\n"
    "    fi\n";

static void bash_settings(void)
{
    fputs("_tilepack_settings() {\n"
          "    local i to=''\n"
          "    for ((i = 2; i <= last; i++)); do\n"
          "        case ${words[i]} in\n"
          "            --to) to=${words[i + 1]-} ;;\n"
          "            --to=*) to=${words[i]#--to=} ;;\n"
          "        esac\n"
          "    done\n"
          "    case $to in\n", stdout);
    setting_cases("        ", ") _tilepack_words '", "' ;;\n");
    fputs("        *) _tilepack_words '", stdout);
    each_setting(emit_plain);
    fputs("' ;;\n    esac\n}\n", stdout);
}

static void print_bash(void)
{
    fputs(bash_head, stdout);
    bash_settings();
    fputs(bash_main, stdout);
    fputs("    if ((last == 1)); then\n        _tilepack_words '", stdout);
    each_command(emit_plain);
    fputs("--version --help'\n        return\n    fi\n    case ${words[1]} in\n", stdout);
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        if (!tp_command_rows[c].hidden)
            bash_command((enum tp_command)c);
    fputs("        help) _tilepack_words '", stdout);
    each_command(emit_plain);
    fputs("' ;;\n        *) ;;\n    esac\n}\ncomplete -F _tilepack tilepack\n", stdout);
}

/* --------------------------------------------------------------------- zsh -- */

static void zsh_word(const char *word, size_t length, const char *about)
{
    (void)about;
    for (; length--; word++)
        printf("%s%c", *word == ':' ? "\\" : "", *word);
    putchar(' ');
}

static void zsh_action(enum tp_complete complete, const char *words)
{
    if (complete == TP_COMPLETE_PATH) {
        fputs("_files", stdout);
    } else if (complete == TP_COMPLETE_SETTING) {
        fputs("_tilepack_settings", stdout);
    } else if (complete == TP_COMPLETE_TENSOR) {
        fputs("_tilepack_tensors", stdout);
    } else if (complete != TP_COMPLETE_NONE) {
        putchar('(');
        each_word(complete, words, zsh_word);
        putchar(')');
    }
}

/* One _arguments specification: '(-o --output)'{-o+,--output=}'[help]:DST:_files' */
static void zsh_option(const struct tp_option *row)
{
    bool repeats = row->kind == TP_OPT_LIST;
    const char *mark = row->kind == TP_OPT_LEVEL ? "=-" : row->value ? "=" : "";
    fputs("                ", stdout);
    if (row->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, row->name, row->letter,
               row->value ? "+" : "", row->name, mark);
    else
        printf("'%s--%s%s[", repeats ? "*" : "", row->name, mark);
    quoted(row->help, "[]:\\");
    putchar(']');
    if (row->value) {
        fputs(row->kind == TP_OPT_LEVEL ? "::" : ":", stdout);
        quoted(row->value, "[]:\\");
        putchar(':');
        zsh_action(row->complete, row->words);
    }
    fputs("' \\\n", stdout);
}

static void zsh_command(enum tp_command command)
{
    const struct tp_command_row *row = &tp_command_rows[command];
    printf("            %s)\n                _arguments -s -S \\\n", row->name);
    for (size_t i = 0; i < tp_option_count; i++)
        if (visible(&tp_option_rows[i], command))
            zsh_option(&tp_option_rows[i]);
    for (size_t i = 0; row->operand[i].name; i++) {
        bool optional = i >= row->least;
        printf("                '%zu:%s%s:", i + 1, optional ? ":" : "", row->operand[i].name);
        zsh_action(row->operand[i].complete, row->operand[i].words);
        fputs("' \\\n", stdout);
    }
    fputs("                && return 0 ;;\n", stdout);
}

/* In both, $words begins with the command. */
static void zsh_functions(void)
{
    fputs("_tilepack_settings() {\n"
          "    local i to\n"
          "    for ((i = 2; i <= $#words; i++)); do\n"
          "        case $words[i] in\n"
          "            --to) to=$words[i+1] ;;\n"
          "            --to=*) to=${words[i]#--to=} ;;\n"
          "        esac\n"
          "    done\n"
          "    case $to in\n", stdout);
    setting_cases("        ", ") compadd \"$@\" - ", ";;\n");
    fputs("        *) compadd \"$@\" - ", stdout);
    each_setting(emit_plain);
    fputs(";;\n    esac\n}\n"
          "_tilepack_tensors() {\n"
          "    local word\n"
          "    local -a names\n"
          "    for word in ${words[2,CURRENT-1]}; do\n"
          "        word=${(Q)word/#\\~\\//$HOME/}\n"
          "        [[ -e $word ]] || continue\n"
          "        names=(${(f)\"$(tilepack dump $word \"$PREFIX*\" --json 2>/dev/null | "
          TENSOR_NAMES ")\"})\n"
          "        compadd \"$@\" -a names\n"
          "        return\n"
          "    done\n"
          "}\n", stdout);
}

static void print_zsh(void)
{
    fputs("#compdef tilepack\n"
          "# zsh completion for tilepack, generated by: tilepack completions zsh\n", stdout);
    zsh_functions();
    fputs("_tilepack() {\n"
          "    local curcontext=$curcontext state line ret=1\n"
          "    local -A opt_args\n"
          "    local -a commands\n"
          "    commands=(\n", stdout);
    for (unsigned c = 0; c < TP_CMD_COUNT; c++) {
        if (tp_command_rows[c].hidden)
            continue;
        printf("        '%s:", tp_command_rows[c].name);
        quoted(tp_command_rows[c].line, ":\\");
        fputs("'\n", stdout);
    }
    fputs("    )\n"
          "    _arguments -C \\\n"
          "        '(- *)'{-V,--version}'[print version and commit]' \\\n"
          "        '(- *)'{-h,--help}'[show help]' \\\n"
          "        '1:command:->command' \\\n"
          "        '*::argument:->argument' && ret=0\n"
          "    case $state in\n"
          "    command) _describe -t commands 'tilepack command' commands && ret=0 ;;\n"
          "    argument)\n"
          "        case $words[1] in\n", stdout);
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        if (!tp_command_rows[c].hidden)
            zsh_command((enum tp_command)c);
    fputs("            help) _describe -t commands 'tilepack command' commands && ret=0 ;;\n"
          "        esac ;;\n"
          "    esac\n"
          "    return ret\n"
          "}\n"
          /* autoloaded from fpath the file is the function; sourced, it registers */
          "if [[ $funcstack[1] == _tilepack ]]; then\n"
          "    _tilepack \"$@\"\n"
          "else\n"
          "    compdef _tilepack tilepack\n"
          "fi\n", stdout);
}

/* -------------------------------------------------------------------- fish -- */

static void fish_word(const char *word, size_t length, const char *about)
{
    printf("%.*s", (int)length, word);
    if (*about) {
        fputs("\\t\"", stdout);
        quoted(about, "\"\\$");
        putchar('"');
    }
    putchar(' ');
}

static void fish_values(enum tp_complete complete, const char *words)
{
    if (complete == TP_COMPLETE_PATH) {
        fputs(" -F", stdout);
    } else if (complete == TP_COMPLETE_SETTING) {
        fputs(" -a '(__tilepack_settings)'", stdout);
    } else if (complete != TP_COMPLETE_NONE) {
        fputs(" -a '", stdout);
        each_word(complete, words, fish_word);
        putchar('\'');
    }
}

static void fish_command(enum tp_command command)
{
    const struct tp_command_row *row = &tp_command_rows[command];
    printf("complete -c tilepack -n __fish_use_subcommand -a %s -d '", row->name);
    quoted(row->line, "");
    fputs("'\n", stdout);
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *option = &tp_option_rows[i];
        if (!visible(option, command))
            continue;
        printf("complete -c tilepack -n '__fish_seen_subcommand_from %s' -l %s", row->name,
               option->name);
        if (option->letter)
            printf(" -s %c", option->letter);
        if (option->value && option->kind != TP_OPT_LEVEL)
            fputs(option->complete == TP_COMPLETE_PATH ? " -r" : " -x", stdout);
        fish_values(option->complete, option->words);
        fputs(" -d '", stdout);
        quoted(option->help, "");
        fputs("'\n", stdout);
    }
    if (row->operand[0].complete == TP_COMPLETE_NONE)
        return;
    bool tensors = row->operand[1].complete == TP_COMPLETE_TENSOR;
    printf("complete -c tilepack -n '__fish_seen_subcommand_from %s%s'", row->name,
           tensors ? "; and not __tilepack_path >/dev/null" : "");
    fish_values(row->operand[0].complete, row->operand[0].words);
    putchar('\n');
    if (tensors)
        printf("complete -c tilepack -n '__fish_seen_subcommand_from %s' "
               "-a '(__tilepack_tensors)'\n", row->name);
}

static void fish_functions(void)
{
    fputs("function __tilepack_settings\n"
          "    set -l to\n"
          "    set -l next 0\n"
          "    for word in (commandline -opc)\n"
          "        if test $next = 1\n"
          "            set to $word\n"
          "        end\n"
          "        set next 0\n"
          "        switch $word\n"
          "            case --to\n"
          "                set next 1\n"
          "            case '--to=*'\n"
          "                set to (string replace -- --to= '' $word)\n"
          "        end\n"
          "    end\n"
          "    switch \"$to\"\n", stdout);
    setting_cases("        case ", "\n            string split -n ' ' '", "'\n");
    fputs("        case '*'\n            string split -n ' ' '", stdout);
    each_setting(emit_plain);
    fputs("'\n    end\nend\n"
          "function __tilepack_path\n"
          "    for word in (commandline -opc)[3..-1]\n"
          "        set -l path (string replace -r '^~/' $HOME/ -- $word)\n"
          "        if test -e \"$path\"\n"
          "            echo $path\n"
          "            return 0\n"
          "        end\n"
          "    end\n"
          "    return 1\n"
          "end\n"
          "function __tilepack_tensors\n"
          "    set -l path (__tilepack_path); or return\n"
          "    tilepack dump $path (commandline -ct)'*' --json 2>/dev/null | " TENSOR_NAMES "\n"
          "end\n", stdout);
}

static void print_fish(void)
{
    fputs("# fish completion for tilepack, generated by: tilepack completions fish\n"
          "complete -c tilepack -f\n"
          "complete -c tilepack -n __fish_use_subcommand -s V -l version "
          "-d 'print version and commit'\n"
          "complete -c tilepack -n __fish_use_subcommand -s h -l help -d 'show help'\n", stdout);
    fish_functions();
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        if (!tp_command_rows[c].hidden)
            fish_command((enum tp_command)c);
    fputs("complete -c tilepack -n '__fish_seen_subcommand_from help' -a '", stdout);
    each_command(emit_plain);
    fputs("'\n", stdout);
}

int tp_cmd_completions(const struct tp_options *o)
{
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    struct tp_err err = {0};
    if (tp_formats_check(&err) || tp_models_check(&err)) /* words would be missing */
        return tp_report_error(&err);
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (!strcmp(o->arg.item[0], shells[i].shell)) {
            shells[i].print();
            return TP_OK;
        }
    tp_refuse(&err, TP_E_USAGE, "bash, zsh and fish are known", "no completions for '%s'",
              o->arg.item[0]);
    return tp_report_usage("completions", &err);
}
