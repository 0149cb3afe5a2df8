/*
 * start.c - what happens when the library is loaded, and when the process ends.
 *
 * malloc works before this: the first allocation sets up what it needs. The constructor adds what needs a C
 * library that is up: options, fork handlers. Nothing stays open; without options nothing is printed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif
#include "check/libc.h"
#include "conf/option_warnings.h"
#include "conf/options.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "heap/sampled.h"
#include "large/retain.h"
#include "os/cgroup.h"
#include "os/os.h"
#include "process/background.h"
#include "process/fork.h"
#include "process/report.h"
#include "slab/chance.h"
#include <unistd.h>

/* Whether an option asks for what is done or counted only while every operation takes the slow path. */
static bool needs_metering(void) {
    return hak_options.zero_on_free || hak_options.warm_pool_stats || hak_options.tiny_front_metrics ||
           hak_options.tiny_front_dump[0] != '\0';
}

/* What main() gets. */
struct arguments {
    int argc;
    char **argv;
    char **environment;
    bool is_for_libc; /* the C library's constructors were not called yet, and get it */
};

static HAK_AT_START void start(struct arguments arguments) {
    (void)hak_os_page_shift();
    hak_options_start(arguments.environment, hak_cgroup_limit_bytes(""), hak_os_processors());
    if (hak_options.base_floor_kib <
        HAK_BASE_FLOOR_KIB) { /* else leave a page of data that nobody needs yet alone */
        hak_retain_bound_floor((size_t)hak_options.base_floor_kib * 1024);
    }
    if (hak_options.randomize) {
        hak_chance_start();
    }
    hak_fork_register();
    hak_report_prepare();
    if (arguments.is_for_libc && (hak_options.check || hak_options.guard_sample != 0)) {
        hak_check_note_arguments(arguments.argc, arguments.argv, arguments.environment);
    }
    if (hak_options.check || hak_options.check_leaks != 0) {
        hak_warn_without_effect(&hak_options, STDERR_FILENO);
    }
    if (hak_options.check) {
        hak_checked_start(HAK_FRONT_CHECKED);
    } else if (hak_options.guard_sample != 0) {
        hak_sampled_start();
    }
    if (hak_options.background) {
        hak_background_start();
    }
    if (hak_tls.heap != NULL) {
        hak_heap_prewarm(hak_tls.heap); /* another library's constructor allocated before this one */
    }
    if (needs_metering()) {
        hak_front_set_modes(hak_front_modes() | HAK_FRONT_METERED, 0);
    }
}

/* glibc hands constructors what main() gets. Ours is the first of all there, when environ is not yet set. */
#ifdef __GLIBC__
__attribute__((constructor(101))) static HAK_AT_START void hak_process_start(int argc, char **argv,
                                                                             char **environment) {
    bool is_for_libc = environ == NULL;
    if (is_for_libc) { /* it would stay so if something opened a library: see check/libc.h */
        environ = environment;
    }
    start((struct arguments){argc, argv, environment, is_for_libc});
}
#else
__attribute__((constructor(101))) static HAK_AT_START void hak_process_start(void) {
    start((struct arguments){0, NULL, environ, false});
}
#endif

__attribute__((destructor)) static void hak_process_end(void) {
    hak_report_begin_end();
    if (hak_keeps_records()) {
        hak_checked_end();
    }
    hak_report_write();
}
