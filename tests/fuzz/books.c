/*
 * books.c - check_books() of requests.h: what hakmem says about itself, against the model.
 */
#include "conf/options.h"
#include "fuzz/kernel.h"
#include "fuzz/own.h"
#include "fuzz/requests.h"
#include "fuzz/shadow.h"
#include "fuzz/waiting.h"

#include <stdlib.h>
#include <string.h>

#define MAPPED_BYTES_MAX ((size_t)64 << 20) /* with nothing live, after a trim */
/* Address space for each byte of a quarantine's bound, and the bound under guard sampling. */
#define CLOSED_TIMES          64u
#define SAMPLED_QUARANTINE_MB 4u
#define TEXT_BYTES_MAX        4096u

static struct hak_stats stats;

static void read_stats(void) {
    stats.version = HAK_STATS_VERSION;
    stats.struct_bytes = sizeof stats;
    FUZZ_CHECK(hak_stats_get(&stats) == 0);
}

static void check_stats(void) {
    size_t live_blocks = 0;
    size_t live_bytes = 0;
    read_stats();
    for (unsigned i = 0; i < HAK_STATS_CLASSES; i++) {
        const struct hak_class_stats *one = &stats.classes[i];
        FUZZ_CHECK(one->capacity_blocks == one->live_blocks + one->cached_blocks + one->free_blocks);
        live_blocks += one->live_blocks;
        live_bytes += one->live_blocks * one->block_bytes;
    }
    FUZZ_CHECK(stats.live_blocks == shadow_sums.blocks);
    FUZZ_CHECK(stats.live_bytes == shadow_sums.counted_bytes);
    FUZZ_CHECK(stats.large_live_blocks == shadow_sums.blocks - live_blocks);
    FUZZ_CHECK(stats.large_live_bytes == shadow_sums.counted_bytes - live_bytes);
    FUZZ_CHECK(stats.live_bytes + stats.cached_bytes + stats.free_bytes + stats.metadata_bytes <=
               stats.mapped_bytes);
    FUZZ_CHECK(stats.superslabs_empty <= stats.superslabs);
}

static void check_mallinfo(void) {
    struct mallinfo2 wide = own_mallinfo2();
    struct mallinfo narrow = own_mallinfo();
    FUZZ_CHECK(wide.arena == wide.uordblks + wide.fordblks);
    FUZZ_CHECK(wide.uordblks + wide.hblkhd == shadow_sums.counted_bytes);
    FUZZ_CHECK((size_t)narrow.hblks == wide.hblks && (size_t)narrow.hblkhd == wide.hblkhd);
}

static void check_texts(void) {
    char text[TEXT_BYTES_MAX];
    char *xml = NULL;
    size_t xml_bytes = 0;
    kernel_capture(text, sizeof text);
    own_malloc_stats();
    kernel_capture(NULL, 0);
    FUZZ_CHECK(strncmp(text, "Arena 0:\n", 9) == 0 && strstr(text, "\nmmap bytes") != NULL);
    FILE *stream = open_memstream(&xml, &xml_bytes);
    FUZZ_CHECK(stream != NULL);
    FUZZ_CHECK(own_malloc_info(0, stream) == 0);
    FUZZ_CHECK(fclose(stream) == 0);
    FUZZ_CHECK(strncmp(xml, "<malloc version=", 16) == 0 && strstr(xml, "</malloc>\n") != NULL);
    free(xml);
}

static int count_block(void *block, size_t usable_bytes, void *context) {
    struct shadow_sums *sums = context;
    sums->blocks++;
    sums->usable_bytes += usable_bytes;
    sums->addresses += (uintptr_t)block * usable_bytes;
    return 0;
}

static int stop_at_first(void *block, size_t usable_bytes, void *context) {
    (void)block;
    (void)usable_bytes;
    ++*(unsigned *)context;
    return 42;
}

static void check_walk(void) {
    struct shadow_sums sums = {.blocks = 0};
    unsigned visits = 0;
    FUZZ_CHECK(hak_heap_walk(count_block, &sums) == 0);
    FUZZ_CHECK(sums.blocks == shadow_sums.blocks && sums.usable_bytes == shadow_sums.usable_bytes);
    FUZZ_CHECK(sums.addresses == shadow_sums.addresses);
    FUZZ_CHECK(hak_heap_walk(stop_at_first, &visits) == (shadow_sums.blocks == 0 ? 0 : 42));
    FUZZ_CHECK(visits == (shadow_sums.blocks == 0 ? 0 : 1));
}

static void check_verify(void) {
    char why[128] = "";
    if (hak_verify(why, sizeof why) != 0) {
        fuzz_failed(why, "hak_verify", 0);
    }
}

static unsigned quarantine_mb(void) {
    return fuzz_is_checked()    ? hak_options.check_quarantine_mb
           : fuzz_is_sampling() ? SAMPLED_QUARANTINE_MB
                                : 0;
}

void check_books(unsigned which) {
    waiting_check_all();
    if (which >= CHECK_BOOKS_EXACT) {
        FUZZ_CHECK(shadow_sums.blocks == 0);
        check_stats();
        check_verify();
        size_t mapped_bytes_max = MAPPED_BYTES_MAX + kernel_lost_bytes();
        mapped_bytes_max += CLOSED_TIMES * ((size_t)quarantine_mb() << 20);
        if (which == CHECK_BOOKS_MAPPED && stats.mapped_bytes >= mapped_bytes_max) {
            own_malloc_stats();
            fprintf(stderr,
                    "mapped %zu metadata %zu free %zu cached %zu, %zu SuperSlabs, %zu empty, %zu heaps, lost "
                    "%zu\n",
                    stats.mapped_bytes, stats.metadata_bytes, stats.free_bytes, stats.cached_bytes,
                    stats.superslabs, stats.superslabs_empty, stats.heaps, kernel_lost_bytes());
        }
        FUZZ_CHECK(which != CHECK_BOOKS_MAPPED || stats.mapped_bytes < mapped_bytes_max);
        return;
    }
    if ((which & 1) != 0) {
        check_stats();
    }
    if ((which & 2) != 0) {
        check_mallinfo();
    }
    if ((which & 4) != 0) {
        check_walk();
    }
    if ((which & 9) == 9) {
        check_texts();
    }
    check_verify();
}
