/*
 * trim.c - see trim.h.
 */
#include "process/trim.h"
#include "heap/child.h"
#include "heap/reclaim.h"

size_t hak_process_trim(size_t keep_bytes) {
    hak_child_rebuild_if_pending();
    return hak_reclaim_pages(hak_heap_attach(), keep_bytes);
}
