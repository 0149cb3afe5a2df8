/*
 * checked.c - see checked.h.
 */
#include "heap/checked.h"
#include "base/bits.h"
#include "check/crash.h"
#include "check/guarded.h"
#include "check/own_code.h"
#include "check/quarantine.h"
#include "check/records.h"
#include "check/report.h"
#include "check/slots.h"
#include "check/zones.h"
#include "conf/option_warnings.h"
#include "conf/options.h"
#include "heap/child.h"
#include "heap/diagnose.h"
#include "heap/front.h"
#include "heap/heap.h"
#include "heap/reclaim.h"
#include "heap/requests.h"
#include "large/large.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MIB_SHIFT 20

#define SAMPLED_QUARANTINE_BYTES ((size_t)4 * 1024 * 1024) /* some 1000 closed blocks */
#define GUARDED_LIVE_MAX         16384u /* two kernel mappings each, of 65 530 that a process may have */
#define CATCH_EVERY              64u    /* guarded allocations: a look at who handles SIGSEGV */

/* A quarantined block between guard pages holds no memory, but address space, and kernel memory for its
 * mapping. */
#define CLOSED_BLOCK_BYTES(bytes) (hak_os_page_bytes() + (bytes) / 64)
#define RECORD_BYTES              (2 * sizeof(struct hak_record)) /* its table is half full */

void hak_checked_start(unsigned mode) {
    size_t quarantine_bytes = mode == HAK_FRONT_CHECKED ? (size_t)hak_options.check_quarantine_mb << MIB_SHIFT
                                                        : SAMPLED_QUARANTINE_BYTES;
    hak_trace_prepare(hak_options.check_frames, mode == HAK_FRONT_SAMPLED);
    if (hak_own_code.has_other_malloc) {
        hak_warn_other_malloc(mode == HAK_FRONT_CHECKED ? "CHECK" : "GUARD_SAMPLE", STDERR_FILENO);
    }
    hak_records_prepare();
    hak_quarantine_prepare((struct hak_held){quarantine_bytes, hak_os_mapped_limit() / HAK_SPACE_PARTS});
    hak_fatal_explain = hak_report_explain;
    if (!hak_own_code.has_other_malloc) { /* it may be a sanitizer's, whose sigaction() is not ready yet */
        hak_crash_catch();
    }
    hak_front_set_modes(hak_front_modes() | mode, 0);
}

static uint32_t thread_number(void) {
    return hak_tls.heap != NULL ? hak_tls.heap->id : 0;
}

/* ---- allocation ---- */

/* After each guarded allocation: the program may have taken the signal since. */
static void catch_now_and_then(void) {
    static _Atomic unsigned count;
    /* relaxed: a rhythm */
    if (hak_atomic_add_relaxed(&count, 1) % CATCH_EVERY == 0) {
        hak_crash_catch();
    }
}

/* What a request for pages between guards came to. */
static void *note_guarded(void *block, struct hak_record *record) {
    record->kind = block != NULL ? HAK_RECORD_GUARDED : HAK_RECORD_INLINE;
    if (block != NULL) {
        catch_now_and_then();
    }
    return block;
}

/* Memory for a block and the least red zone; NULL when there is none. Sets the record's kind. */
static void *obtain(size_t bytes, size_t align, struct hak_record *record) {
    size_t class_bytes = hak_request_class_bytes(align, bytes + HAK_ZONE_BYTES_MIN);
    if (class_bytes != 0) {
        return hak_alloc_plain(class_bytes);
    }
    void *block =
        hak_guarded_live() < GUARDED_LIVE_MAX ? hak_guarded_alloc(bytes, record->align_shift) : NULL;
    if (note_guarded(block, record) != NULL) {
        return block;
    }
    bool is_zero;
    return hak_large_alloc(bytes + HAK_ZONE_BYTES_MIN, align, &is_zero);
}

static void dispose(const struct hak_record *record, const char *function) {
    if (record->kind == HAK_RECORD_GUARDED) {
        hak_guarded_unmap(record);
    } else {
        hak_free_plain((void *)record->address, function);
    }
}

/* There is no memory for the record of a block that nobody has seen yet. */
static void undo(const struct hak_record *record) {
    if (record->kind == HAK_RECORD_GUARDED) {
        hak_guarded_close(record); /* or it would count as open for ever */
    }
    dispose(record, "malloc");
}

static void fill_new(const struct hak_record *record, bool is_zeroed) {
    struct hak_zones zones = hak_zones_of(record);
    hak_zones_fill_red(&zones);
    if (!is_zeroed) {
        memset(zones.block, HAK_FILL_NEW, record->bytes);
    } else if (record->kind == HAK_RECORD_INLINE) {
        memset(zones.block, 0, record->bytes);
    }
}

void *hak_checked_alloc(size_t bytes, size_t align, bool is_zeroed) {
    struct hak_record record = {.bytes = bytes, .allocated = hak_trace_take()};
    record.align_shift = (uint8_t)hak_log2(align);
    record.state = HAK_RECORD_LIVE;
    int saved_errno = errno;
    (void)hak_heap_attach();
    for (unsigned attempt = 0; attempt < 2 && bytes < HAK_BLOCK_BYTES_MAX - HAK_ZONE_BYTES_MIN; attempt++) {
        if (attempt != 0) {
            hak_reclaim_everything(hak_heap_attach());
        }
        record.kind = HAK_RECORD_INLINE;
        void *block = obtain(bytes, align, &record);
        if (block == NULL) {
            continue;
        }
        record.address = (uintptr_t)block;
        record.allocating_thread = thread_number();
        fill_new(&record, is_zeroed);
        if (hak_records_enter(&record)) {
            errno = saved_errno; /* the first attempt may have failed */
            return block;
        }
        undo(&record);
    }
    errno = ENOMEM;
    return NULL;
}

static void *obtain_slot(size_t bytes, struct hak_record *record) {
    void *block = hak_slot_is_for(bytes, record->align_shift) ? hak_slot_open(bytes, record->align_shift)
                                                              : hak_guarded_alloc(bytes, record->align_shift);
    return note_guarded(block, record);
}

void *hak_checked_alloc_guarded(size_t bytes, unsigned align_shift) {
    struct hak_record record = {
        .bytes = bytes, .align_shift = (uint8_t)align_shift, .state = HAK_RECORD_LIVE};
    void *block = obtain_slot(bytes, &record);
    if (block == NULL) {
        return NULL;
    }
    record.address = (uintptr_t)block;
    record.allocated = hak_trace_take();
    record.allocating_thread = thread_number();
    fill_new(&record, true);
    if (!hak_records_enter(&record)) {
        undo(&record);
        return NULL;
    }
    return block;
}

/* ---- quarantine ---- */

/* The header says what the rest of the heap should think: a quarantined block of a slab is not live. */
static void mark_inline(const void *block, bool is_live) {
    struct block_place place = hak_place_in(hak_registry_word(block), block);
    if (place.is_exact) {
        unsigned live = HAK_HEADER_LIVE + place.row->class_idx;
        /* relaxed: the block is this thread's */
        hak_atomic_store_relaxed(hak_place_header(&place), (uint8_t)(is_live ? live : HAK_HEADER_CACHED));
    }
}

/* A block that leaves: looked at once more, then its memory goes. */
static void release(void *block, const char *function) {
    struct hak_record record;
    struct hak_finding finding;
    if (!hak_records_get(block, &record)) {
        return;
    }
    if (hak_finding_in(&record, &finding)) {
        hak_finding_die(function, &finding);
    }
    hak_record_quarantined_to_released(block);
    if (record.kind == HAK_RECORD_INLINE) {
        mark_inline(block, true);
    }
    dispose(&record, function);
}

static void release_surplus(const char *function, bool to_be_emptied) {
    void *block;
    while ((block = hak_quarantine_pop(to_be_emptied)) != NULL) {
        release(block, function);
    }
}

void hak_checked_empty_quarantine(void) {
    release_surplus("malloc", true);
}

static bool is_in_slab(const void *block) {
    return hak_word_kind(hak_registry_word(block)) == HAK_KIND_SLAB;
}

/*
 * The block is FREEING, and found sound. One of the large floor, which is there only because the kernel gives
 * no more mappings, does not wait: to the rest of the heap it would be live.
 */
static void quarantine(const struct hak_record *record, const char *function) {
    void *block = (void *)record->address;
    if (hak_slot_record(block) != NULL) {
        hak_slot_shut(record);
        hak_record_freeing_to_quarantined(block);
        hak_slot_give_back(block); /* a queue of its own */
        return;
    }
    struct hak_zones zones = hak_zones_of(record);
    size_t bytes = (size_t)(zones.behind - zones.block);
    struct hak_held held = {.bytes = bytes + RECORD_BYTES};
    if (record->kind == HAK_RECORD_GUARDED) {
        hak_guarded_close(record);
        held.bytes = CLOSED_BLOCK_BYTES(bytes);
        held.space_bytes = hak_guarded_range(record).mapping_bytes;
    } else {
        memset(zones.block, HAK_FILL_FREED, bytes);
        mark_inline(block, false);
    }
    hak_record_freeing_to_quarantined(block);
    bool may_wait = record->kind == HAK_RECORD_GUARDED || is_in_slab(block);
    if (!may_wait || !hak_quarantine_push(block, held)) {
        release(block, function);
    }
    release_surplus(function, false);
}

/* ---- freeing ---- */

/* Whether the record is of an earlier block: its address was handed out again by somebody who keeps none. */
static bool is_stale(const struct hak_record *record) {
    const void *block = (const void *)record->address;
    return record->state == HAK_RECORD_RELEASED && hak_owns_plain(block);
}

/* The record of the block that starts there; false if it has none of its own. */
static bool get_own_record(const void *block, struct hak_record *record) {
    return hak_records_get(block, record) && !is_stale(record);
}

/* A pointer into a block that has a record: named with the size that the program asked for. Or to what lies
 * around one between guard pages. */
void hak_checked_die_if_invalid(const char *function, const void *pointer) {
    struct hak_record record;
    if (hak_owns_plain(pointer)) {
        return;
    }
    if (hak_report_find(pointer, &record) && record.address != (uintptr_t)pointer) {
        hak_fatal_pointer(function, HAK_FAULT_INVALID_POINTER, pointer, record.bytes);
    }
    if (hak_word_kind(hak_registry_word(pointer)) == HAK_KIND_GUARDED) {
        hak_fatal_pointer(function, HAK_FAULT_INVALID_POINTER, pointer, 0);
    }
}

static void check_claim(const char *function, const struct hak_record *record, struct hak_claim claim) {
    struct hak_finding finding = {.record = *record};
    size_t align = (size_t)1 << record->align_shift;
    if (claim.bytes != HAK_CLAIMS_NO_SIZE && claim.bytes != record->bytes) {
        finding.fault = HAK_FAULT_WRONG_SIZE;
        hak_finding_die(function, &finding);
    }
    if (claim.align != 0 && claim.align != align &&
        (claim.align > HAK_ALIGN_BYTES || align > HAK_ALIGN_BYTES)) {
        finding.fault = HAK_FAULT_WRONG_ALIGNMENT;
        hak_finding_die(function, &finding);
    }
}

void hak_checked_free(void *block, const char *function, struct hak_claim claim) {
    struct hak_record record;
    struct hak_finding finding;
    if (block == NULL) {
        return;
    }
    hak_child_rebuild_if_pending();
    if (!hak_record_live_to_freeing(block, hak_trace_take(), thread_number(), &record)) {
        if (record.address != 0 && !is_stale(&record)) {
            hak_fatal_pointer(function, HAK_FAULT_DOUBLE_FREE, block, record.bytes);
        }
        hak_checked_die_if_invalid(function, block);
        hak_free_plain(block, function);
        return;
    }
    if (hak_finding_in(&record, &finding)) {
        hak_finding_die(function, &finding);
    }
    if (hak_options.check_claims) {
        check_claim(function, &record, claim);
    }
    quarantine(&record, function);
}

/* ---- realloc and questions ---- */

size_t hak_checked_usable(const char *function, const void *block) {
    struct hak_record record;
    if (!get_own_record(block, &record)) {
        hak_checked_die_if_invalid(function, block);
        return hak_usable_plain(function, block);
    }
    if (record.state != HAK_RECORD_LIVE) {
        hak_fatal_pointer(function, HAK_FAULT_USE_OF_FREED, block, record.bytes);
    }
    return record.bytes;
}

/*
 * Where there is no memory for another block one that is to be smaller stays: what is cut off becomes red
 * zone, or pages without access. False: the kernel refuses that. While the block is FREEING nobody looks at
 * its zones.
 */
static bool shrink(void *block, size_t bytes) {
    struct hak_record record;
    if (!hak_record_live_to_freeing(block, hak_trace_take(), thread_number(), &record)) {
        return true; /* it has no record: as large as it was, as in ordinary mode */
    }
    bool is_shrunk = record.kind == HAK_RECORD_INLINE || hak_guarded_shrink(&record, bytes);
    if (is_shrunk) {
        record.bytes = bytes;
        struct hak_zones zones = hak_zones_of(&record);
        hak_zones_fill_red(&zones);
    }
    hak_record_freeing_to_live(block, record.bytes);
    return is_shrunk;
}

void *hak_checked_realloc(const char *function, void *block, size_t bytes) {
    if (bytes == 0) {
        hak_checked_free(block, function, HAK_NO_CLAIM);
        return NULL;
    }
    size_t old_bytes = hak_checked_usable(function, block);
    struct hak_record record;
    struct hak_finding finding;
    if (hak_records_get(block, &record) && record.state == HAK_RECORD_LIVE &&
        hak_finding_in(&record, &finding)) {
        hak_finding_die(function, &finding);
    }
    if (bytes == old_bytes) {
        return block; /* programs count on it */
    }
    int saved_errno = errno;
    void *moved = hak_checked_alloc(bytes, HAK_ALIGN_BYTES, false);
    if (moved == NULL) {
        bool stays = bytes < old_bytes && shrink(block, bytes);
        errno = stays ? saved_errno : ENOMEM;
        return stays ? block : NULL;
    }
    memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
    hak_checked_free(block, function, HAK_NO_CLAIM);
    return moved;
}

bool hak_checked_is_live(const void *block, size_t *bytes) {
    struct hak_record record;
    if (!get_own_record(block, &record)) {
        return true;
    }
    *bytes = record.bytes;
    return record.state == HAK_RECORD_LIVE;
}

bool hak_checked_owns(const void *pointer) {
    struct hak_record record;
    if (!get_own_record(pointer, &record)) {
        return hak_owns_plain(pointer);
    }
    return record.state == HAK_RECORD_LIVE;
}

/* ---- the whole heap ---- */

const char *hak_checked_verify(void) {
    struct hak_finding finding;
    if (!hak_finding_anywhere(&finding)) {
        return NULL;
    }
    hak_finding_write("hak_verify", &finding);
    return "checked mode: a block was written to outside its bounds or after it was freed";
}

void hak_checked_end(void) {
    struct hak_finding finding;
    if (hak_finding_anywhere(&finding)) {
        hak_finding_die("exit", &finding);
    }
}

/* A block of a slab that a thread was freeing which is gone is free, however far it had come. */
static bool end_free(const void *block) {
    if (!is_in_slab(block)) {
        return false;
    }
    mark_inline(block, false);
    return true;
}

void hak_checked_child_begin(void) {
    if (hak_keeps_records()) {
        hak_quarantine_forget(is_in_slab);
        hak_records_forget(end_free);
    }
}

void hak_checked_for_each_lock(void (*action)(struct hak_lock *)) {
    if (hak_keeps_records()) {
        action(&hak_crash_lock);
        action(&hak_quarantine_lock);
        hak_records_for_each_lock(action);
    }
}
