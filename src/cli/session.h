/* What several commands do alike: turning options into a request, interruption.
 */
#ifndef TP_CLI_SESSION_H
#define TP_CLI_SESSION_H

#include "cli/source_open.h"
#include "pack/plan/file/served.h"
#include "pack/plan/unit/plan.h"
#include "pack/plan/unit/request.h"

#include <stdatomic.h>

/* Into a zeroed request, or one that --to began: what --model-file, --stacks, --merged and
 * --plain say. The caller closes it in any case. */
enum tp_code tp_request_facts(const struct tp_options *o, struct tp_request *request,
                              struct tp_err *err);

/* The same, and what --include and --exclude say. */
enum tp_code tp_request_choice(const struct tp_options *o, struct tp_request *request,
                               struct tp_err *err);
/* Reads the files of --format-file, --quantizer-file and --engine-file, before anything asks for
 * what stands in such. */
enum tp_code tp_read_facts(const struct tp_options *o, struct tp_err *err);

/* What --engine, --gpu and --gpus say. TP_E_USAGE for what is not known. */
enum tp_code tp_wish_from(const struct tp_options *o, struct tp_wish *wish, struct tp_err *err);

/* The GPU that --gpu names, or the one that is here. TP_E_USAGE, with the list, where there is
 * none. */
enum tp_code tp_chip_from(const struct tp_options *o, const struct tp_chip **chip,
                          struct tp_err *err);

/* The request that --to or --recipe, --set, --include, ... make; options.c saw to it that
 * they go together. A file of importance is not opened yet. */
enum tp_code tp_request_from(const struct tp_options *o, struct tp_request *request,
                             struct tp_err *err);

/* Becomes the signal's number on SIGINT or SIGTERM; a second one kills. */
atomic_int *tp_catch_signals(void);

/* The output's name for a single-file output, NULL for a directory. */
const char *tp_output_file(const char *output);

/* TP_E_USAGE where a single-file output is asked for with what only directories have. */
enum tp_code tp_check_single_file(const struct tp_options *o, struct tp_err *err);
/* The path to write: without trailing slashes, and of a link to a directory what it
 * leads to. Owned by the caller; NULL when there is none (TP_E_USAGE: it leads nowhere). */
char *tp_output_path(const char *output, struct tp_err *err);
/* How the output is named to the user: that path (NULL: there is none), or what was typed where
 * it was a link. */
const char *tp_output_shown(const char *typed, const char *path);

/* Compression level: --zstd, or the default for a name that ends in .zst, else 0. */
#define TP_DEFAULT_ZSTD_LEVEL 1
unsigned tp_output_zstd(const char *output, unsigned level);

#endif
