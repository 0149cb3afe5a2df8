/*
 * cgroup.c - see cgroup.h.
 *
 * /proc/self/cgroup has a line "number:controllers:path" for each hierarchy: version 2 is the one without
 * controllers, in version 1 the memory controller has a hierarchy of its own. Inside a container the path is
 * often that of the host, of which only the end, or nothing, is mounted: so each shorter path is asked as
 * well, down to the mount's own directory, and the lowest limit counts.
 */
#include "os/cgroup.h"
#include "base/text.h"
#include "os/os.h"
#include <string.h>

#define PATH_BYTES  512u
#define PLACE_BYTES 1024u /* of a file in the group that has such a path */
#define FILE_BYTES  4096u
#define NO_LIMIT    UINT64_MAX
/* Version 1 says "none" by a number near the highest. */
#define LIMIT_BYTES_MAX (UINT64_C(1) << 60)

/* Where a hierarchy's limits stand. */
struct hierarchy {
    const char *mount;
    const char *file;
    char path[PATH_BYTES]; /* of the process's group in it; "" when there is none */
};

/* Reads a file whose path has three parts, as text. False when there is none, or the path is too long. */
static HAK_AT_START bool read_text(const char *root, const char *middle, const char *end, char *out,
                                   size_t out_bytes) {
    char path[PLACE_BYTES];
    struct text text = hak_text_over(path, sizeof path - 1);
    hak_text_string(&text, root);
    hak_text_string(&text, middle);
    hak_text_string(&text, end);
    size_t used_bytes = 0;
    path[text.used_bytes] = '\0';
    if (text.used_bytes == text.capacity_bytes ||
        hak_os_read_file(path, out, out_bytes - 1, &used_bytes) != 0) {
        return false;
    }
    out[used_bytes] = '\0';
    return true;
}

static HAK_AT_START uint64_t limit_at(const char *root, const struct hierarchy *hierarchy) {
    char place[PLACE_BYTES];
    char number[32];
    struct text text = hak_text_over(place, sizeof place - 1);
    hak_text_string(&text, hierarchy->mount);
    hak_text_string(&text, hierarchy->path);
    place[text.used_bytes] = '\0';
    uint64_t value = 0;
    if (!read_text(root, place, hierarchy->file, number, sizeof number) || number[0] < '0' ||
        number[0] > '9') {
        return NO_LIMIT; /* "max" among others */
    }
    for (const char *c = number; *c >= '0' && *c <= '9' && value < LIMIT_BYTES_MAX; c++) {
        value = value * 10 + (uint64_t)(*c - '0');
    }
    return value < LIMIT_BYTES_MAX ? value : NO_LIMIT;
}

/* The lowest of the group's limit and those of the groups that it lies in. Shortens the path. */
static HAK_AT_START uint64_t lowest_limit(const char *root, struct hierarchy *hierarchy) {
    uint64_t lowest = NO_LIMIT;
    for (;;) {
        uint64_t limit = limit_at(root, hierarchy);
        lowest = limit < lowest ? limit : lowest;
        char *slash = strrchr(hierarchy->path, '/');
        if (slash == NULL) {
            return lowest; /* that was the mount's own directory */
        }
        *slash = '\0';
    }
}

static HAK_AT_START bool names_memory(const char *controllers, const char *end) {
    static const char memory[] = "memory";
    for (const char *c = controllers; c < end; c++) {
        const char *comma = memchr(c, ',', (size_t)(end - c));
        size_t bytes = (size_t)((comma != NULL ? comma : end) - c);
        if (bytes == sizeof memory - 1 && memcmp(c, memory, bytes) == 0) {
            return true;
        }
        c += bytes;
    }
    return false;
}

/* Fills in the paths that the lines tell. */
static HAK_AT_START void read_lines(char *lines, struct hierarchy *first, struct hierarchy *second) {
    for (char *line = lines, *next; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL || strlen(path) > PATH_BYTES) {
            continue;
        }
        bool is_second = path == controllers + 1;
        if (is_second || names_memory(controllers + 1, path)) {
            memcpy(is_second ? second->path : first->path, path + 1, strlen(path));
        }
    }
}

HAK_AT_START uint64_t hak_cgroup_limit_bytes(const char *root) {
    struct hierarchy first = {.mount = "/sys/fs/cgroup/memory", .file = "/memory.limit_in_bytes", .path = ""};
    struct hierarchy second = {.mount = "/sys/fs/cgroup", .file = "/memory.max", .path = ""};
    char lines[FILE_BYTES];
    if (!read_text(root, "/proc/self/cgroup", "", lines, sizeof lines)) {
        return 0;
    }
    read_lines(lines, &first, &second);
    uint64_t limit = first.path[0] != '\0' ? lowest_limit(root, &first) : lowest_limit(root, &second);
    return limit != NO_LIMIT ? limit : 0;
}
