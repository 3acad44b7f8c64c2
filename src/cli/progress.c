/* The progress line. Workers add to an atomic counter; one thread draws: a line that is redrawn
 * on a terminal that can clear one, else whole lines, one in ten seconds, or JSON on a descriptor
 * that another program has asked for. The work never waits for that program: if it does not read,
 * it misses some of the objects.
 * Invariant: the thread that holds `draw` owns the terminal's last line, and leaves it
 * empty or complete. */
#include "cli/progress.h"

#include "cli/print_text.h"
#include "cli/human.h"
#include "cli/writer.h"
#include "pack/os/clock.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#ifndef TP_PLAIN_MS /* tests are in a hurry */
#define TP_PLAIN_MS 10000
#endif

enum { ITEM = 512 /* its object is less than PIPE_BUF */, PERIOD_MS = 100 };
enum { WINDOW = 50 /* samples: the speed of the last 5 s */ };
enum { LAST_MS = 1000 }; /* how long the last object waits for its reader */

struct tp_progress {
    pthread_t thread;
    pthread_mutex_t lock; /* guards item and stop */
    pthread_cond_t wake;
    bool stop, plain;
    char item[ITEM]; /* as it is, its end cut off where it is longer */
    char verb[32];
    int fd; /* of --progress-fd; 0: the line on stderr */
    _Atomic uint64_t done;
    uint64_t skipped; /* of done: was there before */
    _Atomic uint64_t total;
    double began;
    uint64_t sample[WINDOW];
    double when[WINDOW];
    size_t samples;
};

static pthread_mutex_t draw = PTHREAD_MUTEX_INITIALIZER;
static bool shown; /* under draw: the line is on the terminal */

static size_t columns(void)
{
    struct winsize size;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return 80;
}

/* Whether up to PIPE_BUF bytes can be written at once, or the reader has gone. */
static bool takes(int fd, int ms)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    return poll(&one, 1, ms) > 0;
}

/* The terminal may be slow or stopped, but its bytes are not worth an error, and no wait. */
static void put(const char *text, size_t size)
{
    while (size && takes(STDERR_FILENO, 0)) {
        ssize_t n = write(STDERR_FILENO, text, size);
        if (n <= 0)
            return;
        text += n;
        size -= (size_t)n;
    }
}

static void clear_line(void)
{
    if (shown)
        put("\r\033[K", 4);
    shown = false;
}

void tp_progress_pause(void)
{
    pthread_mutex_lock(&draw);
    clear_line();
}

void tp_progress_resume(void)
{
    pthread_mutex_unlock(&draw);
}

/* Bytes per second over the window, 0 while unknown. */
static double speed(struct tp_progress *p, uint64_t done, double at)
{
    size_t slot = p->samples % WINDOW;
    double begin = p->samples < WINDOW ? p->began : p->when[slot];
    uint64_t first = p->samples < WINDOW ? p->skipped : p->sample[slot];
    p->sample[slot] = done;
    p->when[slot] = at;
    p->samples++;
    return at - begin > 0.05 && done >= first ? (double)(done - first) / (at - begin) : 0;
}

static void take_item(struct tp_progress *p, char item[ITEM])
{
    pthread_mutex_lock(&p->lock);
    memcpy(item, p->item, ITEM);
    pthread_mutex_unlock(&p->lock);
}

/* What may go to a terminal, each byte a column. */
static void show_item(struct tp_progress *p, char item[ITEM])
{
    take_item(p, item);
    for (char *c = item; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E)
            *c = '?';
}

/* Text of at most `width` columns; a name that does not fit loses its middle. */
static size_t compose(struct tp_progress *p, char *line, size_t size, size_t width)
{
    char a[TP_HUMAN], b[TP_HUMAN], rate_text[TP_HUMAN], eta[TP_HUMAN] = "", item[ITEM];
    uint64_t done = atomic_load(&p->done), total = atomic_load(&p->total);
    double at = tp_now(), rate = speed(p, done, at);
    int used;
    show_item(p, item);
    tp_human_bytes(rate_text, (uint64_t)rate);
    if (total) {
        if (done > total)
            done = total;
        if (rate > 0)
            tp_human_seconds(eta, (double)(total - done) / rate);
        used = snprintf(line, size, "%s  %s / %s  %3u%%  %s/s  ETA %s", p->verb,
                        tp_human_bytes(a, done), tp_human_bytes(b, total),
                        (unsigned)((double)done * 100 / (double)total), rate_text,
                        *eta ? eta : "-");
    } else {
        used = snprintf(line, size, "%s  %s  %s/s", p->verb, tp_human_bytes(a, done), rate_text);
    }
    size_t length = (size_t)used < width ? (size_t)used : width;
    size_t name = strlen(item), capacity = width > length + 2 ? width - length - 2 : 0;
    if (!name || capacity < 8)
        return length;
    if (name <= capacity)
        return length + (size_t)snprintf(line + length, size - length, "  %s", item);
    size_t head = (capacity - 3) / 3;
    return length + (size_t)snprintf(line + length, size - length, "  %.*s...%s", (int)head,
                                     item, item + name - (capacity - 3 - head));
}

static void redraw(struct tp_progress *p)
{
    char line[600];
    size_t width = columns();
    width = width > 400 ? 400 : width - (width > 1);
    memcpy(line, "\r", 1);
    size_t length = 1 + compose(p, line + 1, sizeof line - 8, width);
    memcpy(line + length, "\033[K", 3);
    pthread_mutex_lock(&draw);
    put(line, length + 3);
    shown = true;
    pthread_mutex_unlock(&draw);
}

/* One JSON object and a newline, in one write: a pipe takes as much whole, or none of it. None
 * where memory is short, or where nobody reads for so long. */
static void write_object(struct tp_progress *p, int ms)
{
    char item[ITEM];
    struct tp_writer w;
    struct tp_text text;
    take_item(p, item);
    tp_writer_open(&w);
    w.compact = true;
    tp_write(&w, tp_str("command", p->verb), tp_num("done", atomic_load(&p->done)),
             tp_num("total", atomic_load(&p->total)), tp_str("item", item));
    char *line = tp_writer_end(&w, &text, NULL) ? NULL : malloc(TP_ESCAPED * text.size + 1);
    if (line && takes(p->fd, ms)) {
        char *end = tp_escape(line, text.data, text.size, true);
        *end++ = '\n';
        ssize_t written = write(p->fd, line, (size_t)(end - line));
        (void)written; /* what nobody reads is missed */
    }
    free(line);
    tp_text_free(&text);
}

/* One whole line for a log. */
static void write_line(struct tp_progress *p)
{
    char line[600] = "tilepack: ";
    size_t head = strlen(line);
    size_t length = head + compose(p, line + head, sizeof line - head - 2, 400);
    line[length] = '\n';
    pthread_mutex_lock(&draw);
    put(line, length + 1);
    pthread_mutex_unlock(&draw);
}

static void *draw_loop(void *arg)
{
    struct tp_progress *p = arg;
    struct timespec until;
    bool stop = false;
    while (!stop) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        long period = p->plain ? TP_PLAIN_MS : PERIOD_MS;
        until.tv_sec += period / 1000;
        until.tv_nsec += period % 1000 * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_nsec -= 1000000000L;
            until.tv_sec++;
        }
        pthread_mutex_lock(&p->lock);
        while (!p->stop && !pthread_cond_timedwait(&p->wake, &p->lock, &until))
            continue; /* woken early: not yet time */
        stop = p->stop;
        pthread_mutex_unlock(&p->lock);
        if (p->fd) /* in this thread, where a reader that is gone is no signal */
            write_object(p, stop ? LAST_MS : 0);
        else if (!stop && p->plain)
            write_line(p);
        else if (!stop)
            redraw(p);
    }
    return NULL;
}

/* The thread blocks every signal, so that handlers run in the main thread. */
static bool start_thread(struct tp_progress *p)
{
    pthread_condattr_t attr;
    sigset_t all, old;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool ok = !pthread_create(&p->thread, NULL, draw_loop, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

static bool can_draw(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

struct tp_progress *tp_progress_start(const struct tp_options *o, const char *verb,
                                      uint64_t total)
{
    bool bar = can_draw();
    if (o->progress && strcmp(o->progress, "auto") != 0)
        bar = !strcmp(o->progress, "bar");
    if (!o->progress_fd && (o->quiet || (o->progress && !strcmp(o->progress, "none"))))
        return NULL;
    struct tp_progress *p = calloc(1, sizeof *p);
    if (!p)
        return NULL; /* the work matters more than the line */
    snprintf(p->verb, sizeof p->verb, "%s", verb);
    p->plain = !bar && !o->progress_fd;
    atomic_init(&p->total, total);
    p->fd = (int)o->progress_fd;
    p->began = tp_now();
    if (start_thread(p))
        return p;
    free(p);
    return NULL;
}

void tp_progress_add(void *progress, uint64_t bytes, const char *item)
{
    struct tp_progress *p = progress;
    if (!p)
        return;
    atomic_fetch_add_explicit(&p->done, bytes, memory_order_relaxed);
    if (!item || pthread_mutex_trylock(&p->lock))
        return; /* another worker names its own; one is as good */
    size_t n = strnlen(item, ITEM - 1);
    while (n && item[n] && ((unsigned char)item[n] & 0xC0) == 0x80) /* no half character */
        n--;
    memcpy(p->item, item, n);
    p->item[n] = 0;
    pthread_mutex_unlock(&p->lock);
}

void tp_progress_total(void *progress, uint64_t bytes)
{
    struct tp_progress *p = progress;
    atomic_store(&p->total, bytes);
}

void tp_progress_skip(struct tp_progress *p, uint64_t bytes)
{
    if (!p)
        return;
    p->skipped = bytes; /* before any work is counted, so that no sample has been taken of it */
    atomic_fetch_add(&p->done, bytes);
}

void tp_progress_complete(struct tp_progress *p)
{
    if (p)
        atomic_store(&p->done, atomic_load(&p->total));
}

void tp_progress_end(struct tp_progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    tp_progress_pause();
    tp_progress_resume();
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
