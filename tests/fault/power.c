/* The log, and its replay. Nodes (files and directories) are numbered; a number is
 * never used again, as an inode of a removed file may still be open.
 */
#include "power.h"

#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_NODES = 4096, MAX_FDS = 4096, MAX_ENTRIES = 256, BLOCK = 512 };

enum kind { WRITE, EXTEND, TRUNCATE, SYNC, ADD, DROP, MOVE, EXCHANGE };

struct event {
    enum kind kind;
    int node; /* the file, or the directory whose entries change */
    int child;
    char *name, *other;
    uint8_t *data;
    size_t size;
    off_t offset;
};

struct node {
    bool directory;
    uint8_t *start; /* contents when the log began */
    size_t start_size;
};

struct entry {
    char *name;
    int node;
};

/* Names of one directory at some moment. */
struct names {
    struct entry items[MAX_ENTRIES];
    int count;
};

static char root_path[4096];
static struct node nodes[MAX_NODES];
static int node_count;
static struct names now[MAX_NODES];   /* of directories, as the program sees them */
static struct names start[MAX_NODES]; /* the same when the log began */
static int node_of_fd[MAX_FDS];
static struct event *events;
static size_t event_count, event_room;

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static int find(const struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i].name, name) == 0)
            return i;
    return -1;
}

static void set(struct names *names, const char *name, int node)
{
    int i = find(names, name);
    if (i < 0) {
        i = names->count++;
        if (i == MAX_ENTRIES)
            abort();
        names->items[i].name = must(strdup(name));
    }
    names->items[i].node = node;
}

static void drop(struct names *names, const char *name)
{
    int i = find(names, name);
    if (i < 0)
        return;
    free(names->items[i].name);
    names->items[i] = names->items[--names->count];
}

static void clear(struct names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->items[i].name);
    names->count = 0;
}

static int new_node(bool directory)
{
    if (node_count == MAX_NODES)
        abort();
    nodes[node_count] = (struct node){.directory = directory};
    return node_count++;
}

/* Directory and name of a path below the root; false for one that is elsewhere. */
static bool locate(const char *path, int *directory, const char **name)
{
    size_t size = strlen(root_path);
    if (strncmp(path, root_path, size) != 0 || path[size] != '/')
        return false;
    *directory = 0;
    for (path += size + 1;; ) {
        const char *slash = strchr(path, '/');
        if (!slash)
            break;
        char part[256];
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        int i = find(&now[*directory], part);
        if (i < 0)
            return false;
        *directory = now[*directory].items[i].node;
        path = slash + 1;
    }
    *name = path;
    return true;
}

static struct event *add_event(enum kind kind, int node)
{
    if (event_count == event_room) {
        event_room = event_room ? 2 * event_room : 256;
        events = must(realloc(events, event_room * sizeof *events));
    }
    struct event *event = &events[event_count++];
    *event = (struct event){.kind = kind, .node = node, .child = -1};
    return event;
}

static void load(const char *path, int directory)
{
    struct tree_file *files;
    size_t count = tree_list(path, &files);
    for (size_t i = 0; i < count; i++) {
        int node = new_node(files[i].directory);
        set(&now[directory], files[i].name, node);
        set(&start[directory], files[i].name, node);
        nodes[node].start = files[i].data;
        nodes[node].start_size = files[i].size;
        files[i].data = NULL;
        if (files[i].directory) {
            char below[4096];
            snprintf(below, sizeof below, "%s/%s", path, files[i].name);
            load(below, node);
        }
    }
    tree_free(files, count);
}

void power_start(const char *root)
{
    snprintf(root_path, sizeof root_path, "%s", root);
    for (int i = 0; i < MAX_FDS; i++)
        node_of_fd[i] = -1;
    new_node(true);
    load(root, 0);
}

size_t power_events(void) { return event_count; }

void power_end(void)
{
    for (size_t i = 0; i < event_count; i++) {
        free(events[i].name);
        free(events[i].other);
        free(events[i].data);
    }
    for (int i = 0; i < node_count; i++) {
        free(nodes[i].start);
        clear(&now[i]);
        clear(&start[i]);
    }
    event_count = 0;
    node_count = 0;
}

/* ------------------------------------------------------------------- the log -- */

void power_open(int fd, const char *path, int flags)
{
    int directory;
    const char *name;
    if (fd >= MAX_FDS)
        abort();
    node_of_fd[fd] = strcmp(path, root_path) == 0 ? 0 : -1;
    if (!locate(path, &directory, &name))
        return;
    int i = find(&now[directory], name);
    int node = i >= 0 ? now[directory].items[i].node : new_node(false);
    if (i < 0) {
        set(&now[directory], name, node);
        struct event *event = add_event(ADD, directory);
        event->name = must(strdup(name));
        event->child = node;
    }
    if (flags & O_TRUNC)
        add_event(TRUNCATE, node);
    node_of_fd[fd] = node;
}

void power_close(int fd)
{
    if (fd >= 0 && fd < MAX_FDS)
        node_of_fd[fd] = -1;
}

void power_write(int fd, const void *data, size_t size, off_t offset)
{
    if (node_of_fd[fd] < 0)
        return;
    struct event *event = add_event(WRITE, node_of_fd[fd]);
    event->data = must(malloc(size));
    memcpy(event->data, data, size);
    event->size = size;
    event->offset = offset;
}

void power_extend(int fd, off_t size)
{
    if (node_of_fd[fd] >= 0)
        add_event(EXTEND, node_of_fd[fd])->offset = size;
}

void power_truncate(int fd, off_t size)
{
    if (node_of_fd[fd] >= 0)
        add_event(TRUNCATE, node_of_fd[fd])->offset = size;
}

void power_fsync(int fd)
{
    if (node_of_fd[fd] >= 0)
        add_event(SYNC, node_of_fd[fd]);
}

/* From one directory to another: either may be on the disk before the other. */
static void move(int from, const char *from_name, int to, const char *to_name)
{
    int node = now[from].items[find(&now[from], from_name)].node;
    struct event *event = add_event(ADD, to);
    event->name = must(strdup(to_name));
    event->child = node;
    add_event(DROP, from)->name = must(strdup(from_name));
    drop(&now[from], from_name);
    set(&now[to], to_name, node);
}

void power_rename(const char *from, const char *to, bool exchange)
{
    int a, b;
    const char *from_name, *to_name;
    if (!locate(from, &a, &from_name) || !locate(to, &b, &to_name))
        return;
    if (a != b && exchange)
        abort();
    if (a != b) {
        move(a, from_name, b, to_name);
        return;
    }
    struct event *event = add_event(exchange ? EXCHANGE : MOVE, a);
    event->name = must(strdup(from_name));
    event->other = must(strdup(to_name));
    int node = now[a].items[find(&now[a], from_name)].node;
    if (exchange) {
        int other = now[a].items[find(&now[a], to_name)].node;
        set(&now[a], from_name, other);
    } else {
        drop(&now[a], from_name);
    }
    set(&now[a], to_name, node);
}

void power_mkdir(const char *path)
{
    int directory;
    const char *name;
    if (!locate(path, &directory, &name))
        return;
    struct event *event = add_event(ADD, directory);
    event->child = new_node(true);
    event->name = must(strdup(name));
    set(&now[directory], name, event->child);
}

void power_remove(const char *path)
{
    int directory;
    const char *name;
    if (!locate(path, &directory, &name))
        return;
    add_event(DROP, directory)->name = must(strdup(name));
    drop(&now[directory], name);
}

/* ---------------------------------------------------------------- the replay -- */

static uint64_t random_state;

static uint64_t roll(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % below;
}

static void apply_names(struct names *names, const struct event *event)
{
    int from = find(names, event->name);
    int to = event->other ? find(names, event->other) : -1;
    int moved = from >= 0 ? names->items[from].node : -1;
    int other = to >= 0 ? names->items[to].node : -1;
    if (event->kind == ADD)
        set(names, event->name, event->child);
    else if (event->kind == DROP)
        drop(names, event->name);
    else if (moved >= 0) {
        if (event->kind == EXCHANGE && other >= 0)
            set(names, event->name, other);
        else
            drop(names, event->name);
        set(names, event->other, moved);
    }
}

static bool is_of(const struct event *event, int node, bool data)
{
    return event->node == node && event->kind != SYNC &&
           data == (event->kind == WRITE || event->kind == EXTEND || event->kind == TRUNCATE);
}

/* Events up to the last fsync of the node are certain. */
static size_t certain(int node, size_t limit)
{
    size_t sure = 0;
    for (size_t i = 0; i < limit; i++)
        if (events[i].node == node && events[i].kind == SYNC)
            sure = i;
    return sure;
}

struct contents {
    uint8_t *data;
    size_t size, room;
};

static void resize(struct contents *c, size_t size)
{
    if (size > c->room) {
        c->data = must(realloc(c->data, size));
        c->room = size;
    }
    if (size > c->size)
        memset(c->data + c->size, 0, size - c->size);
    c->size = size;
}

/* A write block by block: there, not there, or garbage. */
static void write_uncertain(struct contents *c, const struct event *event)
{
    for (size_t at = 0; at < event->size; at += BLOCK) {
        size_t part = event->size - at < BLOCK ? event->size - at : BLOCK;
        size_t end = (size_t)event->offset + at + part;
        uint64_t luck = roll(8);
        if (luck < 4)
            continue;
        if (end > c->size)
            resize(c, end);
        for (size_t i = 0; i < part; i++)
            c->data[(size_t)event->offset + at + i] =
                luck == 7 ? (uint8_t)roll(256) : event->data[at + i];
    }
}

static void write_file(int node, const char *path, size_t limit)
{
    struct contents c = {0};
    size_t sure = certain(node, limit);
    resize(&c, nodes[node].start_size);
    if (c.size)
        memcpy(c.data, nodes[node].start, c.size);
    for (size_t i = 0; i < limit; i++) {
        const struct event *event = &events[i];
        if (!is_of(event, node, true) || (i >= sure && event->kind != WRITE && roll(2)))
            continue;
        if (event->kind == EXTEND && c.size < (size_t)event->offset)
            resize(&c, (size_t)event->offset);
        else if (event->kind == TRUNCATE)
            resize(&c, (size_t)event->offset);
        else if (event->kind == WRITE && i >= sure)
            write_uncertain(&c, event);
        else if (event->kind == WRITE) {
            size_t end = (size_t)event->offset + event->size;
            if (end > c.size)
                resize(&c, end);
            memcpy(c.data + event->offset, event->data, event->size);
        }
    }
    tree_write(path, c.data, c.size);
    free(c.data);
}

static void write_directory(int node, const char *path, size_t limit)
{
    struct names names = {.count = 0};
    size_t sure = certain(node, limit), later = 0;
    for (size_t i = sure; i < limit; i++)
        later += is_of(&events[i], node, false);
    size_t lucky = roll(later + 1);
    for (int i = 0; i < start[node].count; i++)
        set(&names, start[node].items[i].name, start[node].items[i].node);
    for (size_t i = 0; i < limit; i++)
        if (is_of(&events[i], node, false) && (i < sure || lucky-- > 0))
            apply_names(&names, &events[i]);
        else if (is_of(&events[i], node, false))
            break;
    for (int i = 0; i < names.count; i++) {
        char below[4096];
        snprintf(below, sizeof below, "%s/%s", path, names.items[i].name);
        if (!nodes[names.items[i].node].directory) {
            write_file(names.items[i].node, below, limit);
            continue;
        }
        if (mkdir(below, 0777))
            abort();
        write_directory(names.items[i].node, below, limit);
    }
    clear(&names);
}

void power_cut(size_t limit, uint64_t seed)
{
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + limit;
    tree_clear(root_path);
    write_directory(0, root_path, limit);
}
