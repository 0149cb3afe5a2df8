/*
 * options.h - the settings of this process, as every floor above reads them.
 *
 * hak_options holds the defaults from the first instruction on (malloc is called before any constructor). Its
 * OS pages hold nothing else and are among those that the loader makes read-only; hak_options_start() opens
 * them while the program has one thread, if there is something to set. The rows are in options_table.h.
 */
#ifndef HAK_CONF_OPTIONS_H
#define HAK_CONF_OPTIONS_H

#include "base/compiler.h"
#include "conf/options_table.h"
#include <stdint.h>

/* The largest OS page of the architecture, so that the struct never shares one. */
#if defined(__x86_64__)
#define HAK_OPTIONS_ALIGN_BYTES 4096
#else
#define HAK_OPTIONS_ALIGN_BYTES 65536
#endif

#define HAK_BASE_FLOOR_KIB    1024u /* where no container sets a limit */
#define HAK_PINNED_PAGES      1536u /* on up to seven processors, */
#define HAK_PARKED_SHARDS     4u    /* likewise; at most */
#define HAK_PARKED_SHARDS_MAX 32u
#define HAK_LASTING_MB        256u /* where HAKMEM_RETAIN_MB is what it is by default */

#define HAK_OPTION_PATH_BYTES 1024u /* with the terminating zero */

#define HAK_OPTION_FLAG_FIELD(name, field, initial, help)                    bool field;
#define HAK_OPTION_NUMBER_FIELD(name, field, initial, min, max, unit, help)  uint32_t field;
#define HAK_OPTION_LIST_FIELD(name, field, n, initial, min, max, unit, help) uint32_t field[n];
#define HAK_OPTION_CHOICE_FIELD(name, field, initial, words, help)           uint32_t field;
#define HAK_OPTION_PATH_FIELD(name, field, help)                             char field[HAK_OPTION_PATH_BYTES];

/* Owner: hak_options_start(); const afterwards. Units are those of the rows. A path that is "" is off. */
struct hak_options {
    HAK_OPTION_TABLE(HAK_OPTION_FLAG_FIELD, HAK_OPTION_NUMBER_FIELD, HAK_OPTION_LIST_FIELD,
                     HAK_OPTION_CHOICE_FIELD, HAK_OPTION_PATH_FIELD)
    /* These have no row. */
    uint32_t base_floor_kib; /* of free memory that may always stay, of slabs and of large blocks each */
    uint32_t pinned_pages;   /* of 4 KiB, that foreign blocks in caches may pin in all (heap/homeward.h) */
    uint32_t parked_shards;  /* of page runs freed last (large/parked.h); a power of two */
    uint32_t lasting_mb;     /* what retain_mb becomes where costly cycles go on and on; no less than that */
} __attribute__((aligned(HAK_OPTIONS_ALIGN_BYTES)));

extern struct hak_options hak_options;

/*
 * Sets hak_options from the HAKMEM_ names of an environment vector (NULL: none), with defaults for so many
 * processors, and bounds them, as below, by the container's memory limit. Unknown names and bad values get
 * one line each on stderr and change nothing. Under AT_SECURE the environment is left alone. Once, while
 * there is one thread; they are read-only for good then.
 */
void hak_options_start(char *const *environment, uint64_t limit_bytes, unsigned processors);

/*
 * The settings of an environment into any struct that holds the defaults, with warnings to any descriptor,
 * AT_SECURE or not. The defaults are those for so many processors: what threads keep because they will want
 * it again, proved cycles and pinned pages, goes with how many of them run at a time. The table has it for up
 * to seven; it is twice as much from eight on, three times from twelve, at most 16 times.
 */
void hak_options_parse(struct hak_options *options, char *const *environment, unsigned processors,
                       int warnings_fd);

/*
 * Bounds what may be kept free by the container's memory limit (0: none): proved cycles keep at most a
 * sixteenth of it, empty SuperSlabs a thirty-second, foreign blocks in caches pin a 64th, and what may always
 * stay is a 128th, half of it for slabs and half for large blocks.
 */
void hak_options_bound(struct hak_options *options, uint64_t limit_bytes);

/* Writes the table of all options to the descriptor. */
HAK_COLD void hak_options_help(int fd);

/* The text that stands for stderr in a path option. */
#define HAK_OPTION_PATH_STDERR "-"

_Static_assert(sizeof(struct hak_options) == HAK_OPTIONS_ALIGN_BYTES, "the options fill one largest OS page");

#endif
