/* The progress line: one line on stderr, redrawn in place at most ten times a
 * second by a thread of its own, cleared at the end; where there is no terminal that
 * can clear a line, a whole one each ten seconds. --progress chooses.
 *
 * Under --quiet and --progress none tp_progress_start() returns NULL, which every
 * function here accepts.
 *
 * With --progress-fd another program reads it, wherever stderr goes: in place of the line a
 * JSON object {"command","done","total","item"} and a newline, as often, and once at the
 * end, unless its reader is a second behind.
 * If the reader has gone the work goes on.
 */
#ifndef TP_CLI_PROGRESS_H
#define TP_CLI_PROGRESS_H

#include "cli/options.h"

struct tp_progress;

/* Starts the line "VERB  done / total  percent  GB/s  ETA  item". total is in
 * bytes; 0 = not known. Only one line may be active at a time. */
struct tp_progress *tp_progress_start(const struct tp_options *o, const char *verb,
                                      uint64_t total);

/* Counts `bytes` done; `item` (copied, may be NULL) is what is worked on now.
 * From any thread; made to be handed out as a callback: void (*)(void *, ...). */
void tp_progress_add(void *progress, uint64_t bytes, const char *item);

/* How many bytes there are in all, where that is known after the start only. A callback, too. */
void tp_progress_total(void *progress, uint64_t bytes);

/* Bytes that were done before: once, at the beginning of the work. They count as done, but not
 * for the speed. */
void tp_progress_skip(struct tp_progress *progress, uint64_t bytes);

/* Nothing was left to do: what was found is complete. */
void tp_progress_complete(struct tp_progress *progress);

/* Clears the line, ends the thread, frees. */
void tp_progress_end(struct tp_progress *progress);

/* Around any other output to the terminal: takes the line away and holds it back
 * until it may be drawn again. Not to be nested; cheap when no line is active. */
void tp_progress_pause(void);
void tp_progress_resume(void);

#endif
