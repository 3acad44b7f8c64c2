/* The conversion under test: a small checkpoint of two shards, converted with one
 * worker into a directory or a file, with or without something in the way.
 */
#ifndef TEST_FAULT_JOB_H
#define TEST_FAULT_JOB_H

#include "base/error.h"

#include <stdbool.h>

struct scenario {
    const char *name;
    const char *format;
    bool single;  /* one file instead of a directory */
    bool replace; /* something older is there, and --force is given */
    bool stranger; /* of it not all was written by this program: it is kept */
    unsigned zstd; /* level of compression, 0: none */
    bool parts;   /* done as two parts that are merged */
    bool search;    /* scales are searched with a file of importance, and measured */
    bool ends;      /* only killed and cut off: its failing calls are those of others */
};
extern const struct scenario scenarios[];
extern const int scenario_count;

/* Where things are; all below the work directory. */
struct places {
    char source[4096];    /* the checkpoint */
    char importance[4096]; /* of some of its weights */
    char root[4096];      /* holds nothing but the output */
    char output[4096];    /* in root */
    char reference[4096]; /* what an undisturbed conversion makes */
    char old[4096];       /* what was there before */
};

/* Makes the work directory's source, reference and old content. */
void job_prepare(const char *work, const struct scenario *scenario, struct places *places);
/* Empties the root, then puts the old content in if the scenario has some. */
void job_reset(const struct scenario *scenario, const struct places *places);
/* The whole conversion, from opening the source to closing it. */
enum tp_code job_run(const struct scenario *scenario, const struct places *places, unsigned jobs,
                     struct tp_err *err);

/* What is there under the final name: */
enum outcome {
    OUTCOME_NOTHING,
    OUTCOME_OLD,      /* untouched */
    OUTCOME_COMPLETE, /* equal to the reference, but maybe for journals */
    OUTCOME_TORN,     /* anything else; *why says what */
};
enum outcome job_outcome(const struct scenario *scenario, const struct places *places,
                         const char **why);
/* Whether the old content is whole, under its name or one of those that it may have later. */
bool job_keeps_old(const struct places *places);
/* NULL when the root holds exactly the reference and nothing else, but what a stranger's content
 * has become. */
const char *job_difference(const struct scenario *scenario, const struct places *places);

#endif
