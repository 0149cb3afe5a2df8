/*
 * fault.c - see fault.h. Looks the word up again under the lock, where words and records agree.
 */
#include "large/fault.h"
#include "large/extent.h"
#include "large/freed_mark.h"
#include "large/mapping.h"
#include "large/retain.h"

/* What stands at a pointer: at most one of the two is not 0. */
struct finding {
    size_t freed_bytes;  /* of the free block that starts there */
    size_t around_bytes; /* of the live block that it points into */
};

/* Lock held. */
static struct finding find(const void *p) {
    struct finding found = {0};
    hak_word word = hak_registry_word(p);
    enum hak_unit_kind kind = hak_word_kind(word);
    if (kind == HAK_KIND_EXTENT) {
        found.freed_bytes = hak_extent_freed_bytes_at(hak_word_address(word), p);
        found.around_bytes = hak_extent_live_bytes_around(hak_word_address(word), p);
        return found;
    }
    /* Marks stay in the units of a range that is used again for the inside of a block. */
    const struct hak_mapping *around = hak_mapping_around(p);
    if (around != NULL) {
        found.around_bytes = around->bytes;
    } else if (kind == HAK_KIND_LARGE_FREED) {
        found.freed_bytes = hak_freed_mark_bytes(hak_word_number(word), (uintptr_t)p & (HAK_UNIT_BYTES - 1));
    }
    return found;
}

HAK_COLD void hak_large_fault(const char *function, enum hak_fault fault_of_freed, const void *p) {
    hak_lock_acquire(&hak_large_lock);
    struct finding found = find(p);
    hak_lock_release(&hak_large_lock);
    if (found.freed_bytes != 0) {
        hak_fatal_pointer(function, fault_of_freed, p, found.freed_bytes);
    }
    hak_fatal_pointer(function, HAK_FAULT_INVALID_POINTER, p, found.around_bytes);
}
