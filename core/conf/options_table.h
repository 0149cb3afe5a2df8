/*
 * options_table.h - every option of hakmem, one row each. The struct, the parser, HAKMEM_HELP=1 and the
 * README's table all come from these rows.
 *
 *   FLAG(NAME, field, default, help)                                   0 or 1
 *   NUMBER(NAME, field, default, minimum, maximum, "unit", help)       decimal digits
 *   LIST(NAME, field, count, default, minimum, maximum, "unit", help)  NAME0, NAME1, ... one number each
 *   CHOICE(NAME, field, default, "word|word|...", help)                the field is the word's index
 *   PATH(NAME, field, help)                                            "-" or 1: stderr; 0: off
 *
 * The environment variable is HAKMEM_NAME. An empty value counts as unset. Help is at most 95 characters, to
 * keep a line of HAKMEM_HELP=1 readable.
 */
#ifndef HAK_CONF_OPTIONS_TABLE_H
#define HAK_CONF_OPTIONS_TABLE_H

#include "base/config.h"

/* The words of TINY_PROFILE and of DEEPBIND, in the order of their rows. */
enum hak_profile { HAK_PROFILE_DEFAULT, HAK_PROFILE_CONSERVATIVE, HAK_PROFILE_THROUGHPUT };
enum hak_deepbind { HAK_DEEPBIND_CLEAR, HAK_DEEPBIND_KEEP };

/* The words of THP, in the order of its row. */
enum hak_thp { HAK_THP_AUTO, HAK_THP_NEVER, HAK_THP_ALWAYS };

/* The values of SS_PREFAULT. */
enum hak_prefault { HAK_PREFAULT_OFF, HAK_PREFAULT_POPULATE, HAK_PREFAULT_TOUCH };

#define HAK_PREWARM_BLOCKS_MAX 256
#define HAK_REFILL_BLOCKS_MAX  256

#define HAK_OPTION_TABLE(FLAG, NUMBER, LIST, CHOICE, PATH)                                                   \
    CHOICE(TINY_PROFILE, tiny_profile, HAK_PROFILE_DEFAULT, "default|conservative|throughput",               \
           "defaults of the other options: conservative is least memory, throughput most speed")             \
    LIST(TINY_PREWARM_C, tiny_prewarm_blocks, HAK_CLASS_COUNT, 0, 0, HAK_PREWARM_BLOCKS_MAX, "blocks",       \
         "put into a thread's cache of that class when the thread first allocates")                          \
    NUMBER(TINY_PREWARM_ALL, tiny_prewarm_all, 0, 0, HAK_PREWARM_BLOCKS_MAX, "blocks",                       \
           "the same for every class without a setting of its own")                                          \
    NUMBER(TINY_REFILL_COUNT, tiny_refill_count, 0, 0, HAK_REFILL_BLOCKS_MAX, "blocks",                      \
           "moved from a slab to an empty cache in one refill; 0 is adaptive")                               \
    NUMBER(SS_PREFAULT, ss_prefault, HAK_PREFAULT_OFF, HAK_PREFAULT_OFF, HAK_PREFAULT_TOUCH, "",             \
           "new SuperSlabs: 0 fault in as used, 1 populated by the kernel, 2 touched page by page")          \
    NUMBER(SS_LRU_COUNT, ss_lru_count, 4, 0, 65536, "SuperSlabs", "empty ones kept for reuse, at most")      \
    NUMBER(SS_LRU_MB, ss_lru_mb, 8, 0, 1048576, "MB", "in empty SuperSlabs kept for reuse, at most")         \
    NUMBER(SS_LRU_MS, ss_lru_ms, 1000, 0, 86400000, "ms", "that an empty SuperSlab is kept, at most")        \
    NUMBER(RETAIN_MB, retain_mb, 64, 0, 1048576, "MB",                                                       \
           "of free memory that cycles want again, at most; if not set 256 where they last")                 \
    NUMBER(PURGE_MS, purge_ms, 0, 0, 86400000, "ms",                                                         \
           "that free memory stays beyond what may be kept before it goes back; 0: it goes at once")         \
    FLAG(BACKGROUND, background, false,                                                                      \
         "a helper thread that gives back in place of the frees, and also when the program does nothing")    \
    CHOICE(THP, thp, HAK_THP_AUTO, "auto|never|always",                                                      \
           "huge pages for SuperSlabs: auto is for blocks up to an OS page, while little is unused")         \
    FLAG(GUESTS, guests, true,                                                                               \
         "blocks of other sizes in the holes between live ones before memory grows: less of it, slower")     \
    FLAG(RANDOMIZE, randomize, false,                                                                        \
         "order of blocks and place of slabs by chance: harder to exploit, slower, more memory")             \
    FLAG(ZERO_ON_FREE, zero_on_free, false, "a freed block is zeroed before free returns; slower")           \
    CHOICE(DEEPBIND, deepbind, HAK_DEEPBIND_CLEAR, "clear|keep",                                             \
           "what dlopen does with RTLD_DEEPBIND; keep hands unknown pointers to libc's free")                \
    FLAG(STATS, stats, false, "a table of the heap for people, on stderr at exit")                           \
    FLAG(WARM_POOL_STATS, warm_pool_stats, false,                                                            \
         "warm pool hits, misses, prefills per class, on stderr at exit")                                    \
    FLAG(TINY_FRONT_METRICS, tiny_front_metrics, false,                                                      \
         "cache hits and misses and what followed them, per class, on stderr at exit")                       \
    PATH(TINY_FRONT_DUMP, tiny_front_dump,                                                                   \
         "the same as CSV into this file, no symbolic link, at exit; %p in it is the process id")            \
    FLAG(CHECK, check, !HAKMEM_BUILD_RELEASE,                                                                \
         "checked mode: red zones, quarantine, call stacks; 1 in the debug flavour")                         \
    NUMBER(CHECK_QUARANTINE_MB, check_quarantine_mb, 32, 0, 1048576, "MB",                                   \
           "of freed blocks that checked mode keeps from use, to find writes to them")                       \
    NUMBER(CHECK_FRAMES, check_frames, 12, 0, 32, "frames", "of a call stack that checked mode keeps")       \
    FLAG(CHECK_CLAIMS, check_claims, true,                                                                   \
         "checked mode holds sizes and alignments that frees state against what was asked for")              \
    NUMBER(CHECK_LEAKS, check_leaks, 0, 0, 10000, "places",                                                  \
           "where what is still allocated at exit came from: listed in checked mode, most bytes first")      \
    NUMBER(GUARD_SAMPLE, guard_sample, 0, 0, 1000000000, "allocations",                                      \
           "of which about one is given a page of its own between guard pages; 0 is none")                   \
    FLAG(HELP, help, false, "this table on stderr at start; the program goes on")

/*
 * What a profile sets instead of the default. An explicit setting wins over it.
 *   X(profile, field, value)
 */
#define HAK_PROFILE_TABLE(X)                                                                                 \
    X(HAK_PROFILE_CONSERVATIVE, tiny_refill_count, 8)                                                        \
    X(HAK_PROFILE_CONSERVATIVE, ss_lru_count, 0)                                                             \
    X(HAK_PROFILE_CONSERVATIVE, ss_lru_mb, 0)                                                                \
    X(HAK_PROFILE_CONSERVATIVE, retain_mb, 0)                                                                \
    X(HAK_PROFILE_THROUGHPUT, ss_lru_count, 32)                                                              \
    X(HAK_PROFILE_THROUGHPUT, ss_lru_mb, 64)                                                                 \
    X(HAK_PROFILE_THROUGHPUT, ss_lru_ms, 10000)                                                              \
    X(HAK_PROFILE_THROUGHPUT, guests, false)                                                                 \
    X(HAK_PROFILE_THROUGHPUT, retain_mb, 512)

#endif
