/* The process: finds the command, parses, runs it, ends with its status. Does no
 * work of its own. Invariant: only here is a status turned into the process's. */
#include "cli/cmd.h"
#include "cli/help.h"
#include "cli/report.h"
#include "cli/session.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef TP_COMMIT
#define TP_COMMIT ""
#endif

int tp_cmd_help(const struct tp_options *o)
{
    enum tp_command command;
    struct tp_err err = {0};
    if (!o->arg.count) {
        tp_help_top(stdout);
        return TP_OK;
    }
    if (tp_command_find(o->arg.item[0], &command, &err))
        return tp_report_usage(NULL, &err);
    tp_help_command(stdout, command);
    return TP_OK;
}

int tp_cmd_man_options(const struct tp_options *o)
{
    enum tp_command command;
    enum tp_help_which which = TP_HELP_ALL;
    struct tp_err err = {0};
    if (tp_command_find(o->arg.item[0], &command, &err))
        return tp_report_usage(NULL, &err);
    if (o->arg.count > 1)
        which = strcmp(o->arg.item[1], "common") ? TP_HELP_OWN : TP_HELP_COMMON;
    tp_help_mdoc(stdout, command, which);
    return TP_OK;
}

static int (*const commands[TP_CMD_COUNT])(const struct tp_options *) = {
#define X(constant, function) tp_cmd_##function,
    TP_COMMANDS(X)
#undef X
};

/* Before parsing has succeeded: was --json meant? */
static void guess_json(int argc, char **argv)
{
    struct tp_options o = {0};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        o.json |= !strcmp(argv[i], "--json");
    tp_report_setup(&o);
}

static int run(enum tp_command command, int argc, char **argv)
{
    struct tp_options o;
    struct tp_err err = {0};
    int status = TP_OK;
    if (tp_options_parse(command, argc, argv, &o, &err)) {
        guess_json(argc, argv);
        status = tp_report_usage(tp_command_rows[command].name, &err);
    } else {
        tp_report_setup(&o);
        if (o.help)
            tp_help_command(stdout, command);
        else if (tp_read_facts(&o, &err))
            status = tp_report_error(&err);
        else
            status = commands[command](&o);
    }
    tp_options_free(&o);
    return status;
}

static int start(int argc, char **argv)
{
    enum tp_command command;
    struct tp_err err = {0};
    const char *word = argc > 1 ? argv[1] : "";
    if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
        printf("tilepack %s (%s)\n", TP_VERSION, *TP_COMMIT ? TP_COMMIT : "unknown");
        return TP_OK;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        tp_help_top(stdout);
        return TP_OK;
    }
    if (!strcmp(word, "--complete")) /* of the scripts that 'tilepack completions' prints */
        return tp_complete(argc - 2, (const char *const *)argv + 2);
    guess_json(argc, argv);
    if (!*word) {
        tp_fail(&err, TP_E_USAGE, "no command is given");
        int status = tp_report_usage(NULL, &err);
        fputc('\n', stderr);
        tp_help_top(stderr);
        return status;
    }
    if (*word == '-') {
        tp_fail(&err, TP_E_USAGE, "option '%s' before the command", word);
        tp_err_hint(&err, "options follow the command: tilepack COMMAND %s", word);
        return tp_report_usage(NULL, &err);
    }
    if (tp_command_find(word, &command, &err))
        return tp_report_usage(NULL, &err);
    return run(command, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    static char buffer[1 << 16]; /* for tables and plans of 100,000 lines */
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes becomes an error with a message */
    if (!isatty(STDOUT_FILENO))
        setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    return tp_report_finish(start(argc, argv));
}
