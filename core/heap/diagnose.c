/*
 * diagnose.c - see diagnose.h.
 */
#include "heap/diagnose.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "large/large.h"
#include "slab/guests.h"
#include "slab/superslab.h"

struct hak_foreign hak_foreign;

/* Marks of freed blocks outlive their memory, and the system may have given its address to libc's malloc. */
static bool may_be_foreign(const void *pointer) {
    return hak_foreign.free != NULL && !hak_superslab_covers(pointer);
}

bool hak_is_large(const void *pointer, hak_word word) {
    enum hak_unit_kind kind = hak_word_kind(word);
    return kind == HAK_KIND_EXTENT || kind == HAK_KIND_MAPPED ||
           (kind == HAK_KIND_LARGE_FREED && !may_be_foreign(pointer));
}

/* Inner units of a large block, and of a sampled one, have no words, or marks of what was there before. */
static void die_if_inside_large(const char *function, const void *pointer) {
    size_t block_bytes = 0;
    if (hak_keeps_records()) {
        hak_checked_die_if_invalid(function, pointer);
    }
    if (hak_registry_covers(pointer) && hak_large_find(pointer, &block_bytes) != NULL) {
        hak_fatal_pointer(function, HAK_FAULT_INVALID_POINTER, pointer, block_bytes);
    }
}

/* A pointer to no unit of ours. */
static void die_of_unknown(const char *function, const void *pointer) {
    die_if_inside_large(function, pointer);
    hak_fatal_pointer(function, HAK_FAULT_NOT_OURS, pointer, 0);
}

/* A pointer into a unit whose slab was retired. */
HAK_NORETURN static void die_of_retired(const char *function, const void *pointer, hak_word word,
                                        enum hak_fault freed_fault) {
    die_if_inside_large(function, pointer);
    uint64_t number = hak_word_number(word);
    bool is_start = hak_freed_is_block_start(number, pointer);
    hak_fatal_pointer(function, is_start ? freed_fault : HAK_FAULT_INVALID_POINTER, pointer,
                      hak_freed_block_bytes(number));
}

bool hak_place_class(const struct block_place *place, unsigned *class_idx) {
    if (!place->is_exact) {
        return false;
    }
    const hak_header *header = hak_place_header(place);
    /* relaxed: as in hak_place_is_live() */
    return hak_header_is_live(header, hak_atomic_load_relaxed(header), place->row->class_idx, class_idx);
}

/* The size of the block of a slab that the pointer points to or into: a live guest's, or the class's. */
static size_t bytes_around(const struct block_place *place) {
    const hak_header *header = hak_place_header(place);
    while (hak_atomic_load_relaxed(header) == HAK_HEADER_TAIL) { /* relaxed: for a message */
        header--;
    }
    unsigned class_idx;
    unsigned value = hak_atomic_load_relaxed(header); /* relaxed: as above */
    bool is_live = hak_header_is_live(header, value, place->row->class_idx, &class_idx);
    return hak_class_block_bytes[is_live ? class_idx : place->row->class_idx];
}

HAK_NORETURN static void die_of_header(const char *function, const void *pointer,
                                       const struct block_place *place, unsigned header,
                                       enum hak_fault freed_fault) {
    enum hak_fault fault = HAK_FAULT_HEADER_DAMAGED;
    if (header == HAK_HEADER_FREE || header == HAK_HEADER_CACHED || header == HAK_HEADER_CACHED_ZERO) {
        fault = freed_fault;
    } else if (header == HAK_HEADER_NEVER || header == HAK_HEADER_TAIL) {
        fault = HAK_FAULT_INVALID_POINTER;
    }
    hak_fatal_pointer(function, fault, pointer, bytes_around(place));
}

hak_header *hak_live_header_or_die(const char *function, const void *pointer, enum hak_fault freed_fault,
                                   unsigned *class_idx) {
    hak_word word = hak_registry_word(pointer);
    enum hak_unit_kind kind = hak_word_kind(word);
    if (kind == HAK_KIND_SLAB_FREED && !may_be_foreign(pointer)) {
        die_of_retired(function, pointer, word, freed_fault);
    }
    if (kind != HAK_KIND_SLAB) {
        if (kind == HAK_KIND_GUARDED || hak_foreign.free != NULL) {
            return NULL;
        }
        die_of_unknown(function, pointer);
    }
    struct block_place place = hak_place_in(word, pointer);
    if (!place.is_exact) {
        hak_fatal_pointer(function, HAK_FAULT_INVALID_POINTER, pointer, bytes_around(&place));
    }
    unsigned header =
        hak_atomic_load_relaxed(hak_place_header(&place)); /* relaxed: as in hak_place_is_live() */
    if (!hak_header_is_live(hak_place_header(&place), header, place.row->class_idx, class_idx)) {
        /* Another thread frees the block at this moment, and has retired its slab: the header is no longer
         * its. */
        hak_word word_now = hak_registry_word(pointer);
        if (hak_word_kind(word_now) == HAK_KIND_SLAB_FREED) {
            die_of_retired(function, pointer, word_now, freed_fault);
        }
        die_of_header(function, pointer, &place, header, freed_fault);
    }
    return hak_place_header(&place);
}
