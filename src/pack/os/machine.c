/* Memory of the machine and of cgroups. What cannot be read is no limit. */
#include "pack/os/machine.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The beginning of ROOT/NAME; "" where it cannot be read. */
static void read_begin(const char *root, const char *name, char *text, size_t size)
{
    char path[2 * PATH_MAX];
    ssize_t length = 0;
    snprintf(path, sizeof path, "%s/%s", root, name);
    int fd = tp_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0) {
        length = tp_os.pread(fd, text, size - 1, 0);
        tp_os.close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
}

/* The least limit of the cgroup PATH and of those above it, each of which has a folder of files. */
static uint64_t min_limit(const char *root, const char *folder, char *path, const char *file)
{
    uint64_t min = UINT64_MAX;
    for (;;) {
        char name[2 * PATH_MAX], text[64];
        snprintf(name, sizeof name, "%s%s/%s", folder, path, file);
        read_begin(root, name, text, sizeof text);
        if (*text >= '0' && *text <= '9') /* else "max" */
            min = tp_min_u64(min, strtoull(text, NULL, 10));
        char *slash = strrchr(path, '/');
        if (!slash)
            return min;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; version 2 has no controllers there. */
static uint64_t cgroup_limit(const char *root)
{
    char text[PATH_MAX], *rest = text;
    uint64_t min = UINT64_MAX;
    read_begin(root, "proc/self/cgroup", text, sizeof text);
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (!controllers[1])
            min = tp_min_u64(min, min_limit(root, "sys/fs/cgroup", path, "memory.max"));
        else if (strstr(controllers, "memory"))
            min = tp_min_u64(min, min_limit(root, "sys/fs/cgroup/memory", path,
                                            "memory.limit_in_bytes"));
    }
    return min;
}

uint64_t tp_machine_memory(const char *root)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    return tp_min_u64(all, cgroup_limit(root));
}

bool tp_machine_gpu(const char *root, char *name, size_t size)
{
    static const char folder[] = "proc/driver/nvidia/gpus";
    char path[PATH_MAX], file[2 * PATH_MAX], text[1024] = "";
    struct tp_os_list list = {0};
    struct tp_err ignored = {0};
    snprintf(path, sizeof path, "%s/%s", root, folder);
    if (tp_os_list(path, &list, &ignored) == TP_OK && list.count) {
        snprintf(file, sizeof file, "%s/%s/information", folder, list.names[0]);
        read_begin(root, file, text, sizeof text);
    }
    tp_os_list_free(&list);
    if (strncmp(text, "Model:", strlen("Model:")) != 0)
        return false;
    const char *model = text + strlen("Model:");
    model += strspn(model, " \t");
    snprintf(name, size, "%.*s", (int)strcspn(model, "\n"), model);
    return *name != '\0';
}
