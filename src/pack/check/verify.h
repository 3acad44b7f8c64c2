/* Verifying: is a checkpoint whole, and is it what its source gives?
 *
 * Differences are collected in a report and are no errors; what cannot be read or
 * is no checkpoint at all is one. Prints nothing.
 */
#ifndef TP_PACK_VERIFY_H
#define TP_PACK_VERIFY_H

#include "pack/check/verify_values.h"
#include "pack/run/device.h"

/* One thing that is not as it should be. `file` and `tensor` may be NULL. */
struct tp_problem {
    char *file, *tensor, *what;
};

struct tp_verify_report {
    bool by_tilepack;  /* false: only the structure could be checked */
    size_t shards, others, tensors, packed; /* others: further files of the manifest */
    size_t hashed, padded; /* files, tensors with padding */
    size_t digests;                 /* files whose SHA-256 was compared, without the note of one
                                       that differs */
    uint64_t bytes;                 /* of all files that were read */
    struct tp_problem *problems;
    size_t problem_count, problem_capacity;
    struct tp_problem *notes; /* what a user may do: files added, another README.md */
    size_t note_count, note_capacity;
    struct tp_unit_result *units; /* --against, in the order of the plan */
    size_t unit_count;
    size_t kept;                  /* --against: tensors compared that were copied */
    char device[TP_DEVICES_WHY];  /* --against: where it was derived, and why; or "" */
};

struct tp_verify_options {
    unsigned jobs;
    bool strict; /* what would be a note is a problem */
    const char *importance; /* the file that the conversion was made with, or NULL */
    const char *device; /* where weights are derived, as tp_devices_choose() takes it; NULL: CPU */
    atomic_int *stop; /* as in tp_run_options; or NULL */
    void (*progress)(void *arg, uint64_t bytes, const char *item); /* or NULL */
    void (*total)(void *arg, uint64_t bytes); /* all that tp_verify_against() reports; or NULL */
    void *progress_arg;                       /* of both */
};

/* Checks an open checkpoint by itself: hashes of its files, manifest, descriptors,
 * layouts, layout words, padding, eightfold scales. Every byte is read once, and once more
 * where the manifest has its SHA-256. A
 * checkpoint of another tool is right when it could be opened. `weights` is filled
 * in (to be closed by the caller); its failure is a difference if a hash is wrong
 * too, and otherwise the error that is returned. */
enum tp_code tp_verify(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                       const struct tp_verify_options *options, struct tp_verify_report *report,
                       struct tp_err *err);

/* Makes the recorded plan again on `source`, compares every byte it gives with the
 * stored tensors, and the values of every packed weight with the source's. A device makes the
 * bytes; they are compared and decoded by the CPU, in the same boxes, so that the report does
 * not depend on it. */
enum tp_code tp_verify_against(const struct tp_side *stored, const struct tp_side *source,
                               const struct tp_verify_options *options,
                               struct tp_verify_report *report, struct tp_err *err);

void tp_verify_report_close(struct tp_verify_report *report); /* legal on {0} and twice */

/* Adds a problem; printf'ed. Not thread-safe. */
enum tp_code tp_verify_problem(struct tp_verify_report *report, const char *file,
                               const char *tensor, struct tp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
