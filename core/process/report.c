/*
 * report.c - see report.h: when, and where to.
 *
 * Many programs close stderr in their last handler (GNU coreutils), before a library's destructor runs;
 * others close every descriptor they know of and open their own files under those numbers. So stderr is
 * duplicated at start, and written to at exit only if the descriptor still leads to the same file. What is
 * found at exit goes there too. A duplicate that was made for that alone is closed in the child of a fork,
 * which may be a daemon whose starter waits until nobody has stderr any more; and guard sampling, which is
 * for all processes of a system, makes none.
 */
#include "process/report.h"
#include "base/atomic.h"
#include "base/text.h"
#include "check/leaks.h"
#include "conf/options.h"
#include "os/fatal.h"
#include "os/line.h"
#include "os/os.h"
#include "process/front_table.h"
#include "process/heap_table.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define WARNING_BYTES_MAX      (HAK_OPTION_PATH_BYTES + 96u)
#define EXPANDED_PATH_BYTES    (HAK_OPTION_PATH_BYTES + 256u)
#define PROCESS_ID_PLACEHOLDER "%p"

/* Const after start, but for the child of a fork. */
static struct {
    bool is_known;           /* it was open then */
    int fd;                  /* the duplicate; STDERR_FILENO: there is none */
    struct hak_os_file file; /* what stderr was at start */
} kept_stderr = {.fd = STDERR_FILENO};

static _Atomic bool is_ending;

static bool wants_leaks(void) {
    return hak_options.check && hak_options.check_leaks != 0;
}

static bool wants_report(void) {
    return hak_options.stats || hak_options.warm_pool_stats || hak_options.tiny_front_metrics ||
           hak_options.tiny_front_dump[0] != '\0' || wants_leaks();
}

static bool is_kept_file(int fd) {
    struct hak_os_file file;
    return hak_os_identify(fd, &file) == 0 && file.device == kept_stderr.file.device &&
           file.inode == kept_stderr.file.inode;
}

/* A descriptor of what was stderr at start, or -1 when the program has closed them all. */
static int find_stderr(void) {
    if (!kept_stderr.is_known) {
        return -1;
    }
    if (is_kept_file(kept_stderr.fd)) {
        return kept_stderr.fd;
    }
    return is_kept_file(STDERR_FILENO) ? STDERR_FILENO : -1;
}

/* While the program runs its stderr is where it wants it. At exit it may have closed that, and have data
 * under the number; or have made its log of it, which will do where nothing else is left. */
static int find_fatal_fd(void) {
    if (!hak_atomic_load_relaxed(&is_ending)) { /* relaxed: as where it is set */
        return STDERR_FILENO;
    }
    int fd = find_stderr();
    return fd < 0 && hak_os_is_for_text(STDERR_FILENO) ? STDERR_FILENO : fd;
}

void hak_report_prepare(void) {
    bool is_duplicated = wants_report() || hak_options.check;
    if (!is_duplicated && hak_options.guard_sample == 0) {
        return;
    }
    kept_stderr.is_known = hak_os_identify(STDERR_FILENO, &kept_stderr.file) == 0;
    if (is_duplicated && kept_stderr.is_known && hak_os_duplicate(STDERR_FILENO, &kept_stderr.fd) != 0) {
        kept_stderr.fd = STDERR_FILENO;
    }
    hak_fatal_find_fd = find_fatal_fd;
}

void hak_report_child_begin(void) {
    if (kept_stderr.fd != STDERR_FILENO && !wants_report()) {
        if (is_kept_file(kept_stderr.fd)) { /* and no file of the program's by now */
            hak_os_close(kept_stderr.fd);
        }
        kept_stderr.fd = STDERR_FILENO;
    }
}

/* Puts the process id where the path says %p. False when the result does not fit. */
static bool expand_path(const char *path, char expanded[EXPANDED_PATH_BYTES]) {
    struct text text = hak_text_over(expanded, EXPANDED_PATH_BYTES - 1);
    for (const char *c = path; *c != '\0'; c++) {
        if (strncmp(c, PROCESS_ID_PLACEHOLDER, sizeof PROCESS_ID_PLACEHOLDER - 1) == 0) {
            hak_text_decimal(&text, hak_os_process_id());
            c += sizeof PROCESS_ID_PLACEHOLDER - 2;
        } else {
            hak_text_char(&text, *c);
        }
    }
    expanded[text.used_bytes] = '\0';
    return text.used_bytes < text.capacity_bytes;
}

static void warn_unwritable(int stderr_fd, int error) {
    char buffer[WARNING_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "hakmem: HAKMEM_TINY_FRONT_DUMP: cannot open ");
    hak_text_string(&line, hak_options.tiny_front_dump);
    hak_text_string(&line, ": errno ");
    hak_text_decimal(&line, (uint64_t)error);
    hak_line_write(&line, stderr_fd);
}

static HAK_COLD void dump_front(int stderr_fd) {
    char path[EXPANDED_PATH_BYTES];
    int fd;
    if (strcmp(hak_options.tiny_front_dump, HAK_OPTION_PATH_STDERR) == 0) {
        hak_front_dump(stderr_fd);
        return;
    }
    int error = expand_path(hak_options.tiny_front_dump, path) ? hak_os_open_report(path, &fd) : ENAMETOOLONG;
    if (error != 0) {
        warn_unwritable(stderr_fd, error);
        return;
    }
    hak_front_dump(fd);
    hak_os_close(fd);
}

void hak_report_begin_end(void) {
    hak_atomic_store_relaxed(&is_ending, true); /* relaxed: other threads may still die as before */
}

void hak_report_write(void) {
    if (!wants_report()) {
        return;
    }
    int stderr_fd = find_stderr(); /* -1: the writes fail, and nobody is there to be told */
    if (hak_options.stats) {
        hak_heap_table(stderr_fd);
    }
    if (hak_options.warm_pool_stats) {
        hak_warm_pool_table(stderr_fd);
    }
    if (hak_options.tiny_front_metrics) {
        hak_front_table(stderr_fd);
    }
    if (hak_options.tiny_front_dump[0] != '\0') {
        dump_front(stderr_fd);
    }
    if (wants_leaks()) {
        hak_leaks_write(stderr_fd, hak_options.check_leaks);
    }
}
