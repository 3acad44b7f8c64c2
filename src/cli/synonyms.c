/* What other programs call our commands and options: data only. An error names ours. */
#include "cli/option_table.h"

#include <string.h>

static const struct tp_synonym command_words[] = {
    {"quantize", "convert", NULL}, {"quantise", "convert", NULL}, {"pack", "convert", NULL},
    {"repack", "convert", NULL}, {"inspect", "dump", NULL}, {"info", "dump", NULL},
    {"show", "dump", NULL}, {"cat", "dump", NULL}, {"ls", "dump", NULL},
    {"list", "formats", NULL}, {"check", "verify", NULL}, {"validate", "verify", NULL},
    {"recommend", "suggest", NULL}, {"dequantize", "unpack", NULL}, {"dequant", "unpack", NULL},
    {"hash", "digest", NULL}, {"join", "merge", NULL},
    {"serve", NULL, "an engine serves what convert writes, and convert prints the command for it"},
    {NULL, NULL, NULL},
};

static const struct tp_synonym option_words[] = {
    {"format", "to", NULL}, {"scheme", "to", NULL}, {"method", "to", NULL},
    {"quantization", "to", NULL}, {"type", "to", NULL}, {"out", "output", NULL},
    {"outdir", "output", NULL}, {"output-dir", "output", NULL}, {"outfile", "output", NULL},
    {"dest", "output", NULL}, {"ignore", "exclude", NULL}, {"skip", "exclude", NULL},
    {"imatrix", "importance", NULL}, {"overwrite", "force", NULL}, {"threads", "jobs", NULL},
    {"workers", "jobs", NULL}, {"memory", "max-memory", NULL},
    {"tensor-parallel-size", "gpus", NULL}, {"tp", "gpus", NULL},
    {"group-size", "set", "--set group=N; 'tilepack formats FORMAT' lists what may be set"},
    {"dtype", "to", "--to FORMAT says what is written; 'tilepack formats' lists the formats"},
    {NULL, NULL, NULL},
};

static const struct tp_synonym *find_synonym(const struct tp_synonym *row, const char *typed)
{
    while (row->typed && strcmp(row->typed, typed) != 0)
        row++;
    return row->typed ? row : NULL;
}

const struct tp_synonym *tp_command_synonym(const char *typed)
{
    return find_synonym(command_words, typed);
}

const struct tp_synonym *tp_option_synonym(const char *typed)
{
    return find_synonym(option_words, typed);
}
