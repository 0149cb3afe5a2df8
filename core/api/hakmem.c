/*
 * hakmem.c - the hak_ names of hakmem.h.
 */
#include "hakmem.h"
#include "base/bits.h"
#include "heap/defrag.h"
#include "heap/front.h"
#include "heap/reclaim.h"
#include "heap/requests.h"
#include "process/stats.h"
#include "process/verify.h"
#include "process/walk.h"
#include <errno.h>

HAK_API int hak_version(void) {
    return HAK_VERSION_MAJOR * 10000 + HAK_VERSION_MINOR * 100 + HAK_VERSION_PATCH;
}

HAK_API void *hak_malloc(size_t bytes) {
    return hak_alloc_gate(bytes);
}

HAK_API void *hak_calloc(size_t count, size_t bytes) {
    return hak_calloc_gate(count, bytes);
}

HAK_API void *hak_realloc(void *block, size_t bytes) {
    return hak_request_realloc("hak_realloc", block, bytes);
}

HAK_API void *hak_aligned_alloc(size_t alignment, size_t bytes) {
    if (!hak_is_pow2(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return hak_request_aligned(alignment, bytes);
}

HAK_API void hak_free(void *block) {
    hak_free_gate(block, "hak_free");
}

HAK_API size_t hak_usable_size(const void *block) {
    return hak_request_usable("hak_usable_size", block);
}

HAK_API size_t hak_good_size(size_t bytes) {
    return hak_request_good_size(bytes);
}

HAK_API bool hak_owns(const void *pointer) {
    return hak_request_owns(pointer);
}

HAK_API HAK_COLD bool hak_defrag_hint(const void *block) {
    return hak_defrag_helps(block);
}

HAK_API HAK_COLD bool hak_trim(size_t keep_bytes) {
    return hak_reclaim_pages(keep_bytes) != 0;
}

HAK_API HAK_COLD int hak_stats_get(struct hak_stats *stats) {
    if (stats->version != HAK_STATS_VERSION || stats->struct_bytes != sizeof *stats) {
        return EINVAL;
    }
    hak_stats_collect(stats);
    stats->resident_bytes = hak_stats_resident_bytes();
    return 0;
}

HAK_API HAK_COLD int hak_verify(char *why, size_t why_bytes) {
    const char *broken = hak_process_verify();
    if (why_bytes != 0) {
        size_t used = 0;
        for (; broken != NULL && broken[used] != '\0' && used + 1 < why_bytes; used++) {
            why[used] = broken[used];
        }
        why[used] = '\0';
    }
    return broken == NULL ? 0 : -1;
}

HAK_API HAK_COLD int hak_heap_walk(hak_block_visitor visitor, void *context) {
    return hak_process_walk(visitor, context);
}
