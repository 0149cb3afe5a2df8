/*
 * invalid_pointer.c - free of an address inside a block, or between blocks.
 *
 * Such a pointer is "invalid"; the size of the block that it points into may be named or not.
 */
#include "fault.h"

static size_t block_bytes; /* of the case */
static char *block;
static size_t room;

static const char *function_called = "free";

static void free_invalid(void *pointer) {
    expect(function_called, "invalid pointer", pointer, room);
    expect(function_called, "invalid pointer", pointer, 0);
    free(launder(pointer));
}

static void at_1(void) {
    free_invalid(block + 1);
}

static void at_8(void) {
    free_invalid(block + 8);
}

static void at_16(void) {
    /* In a block of 16 bytes that is the next one: live here. */
    char *next = must(malloc(block_bytes));
    free_invalid(room > 16 ? block + 16 : next + 15);
}

static void at_the_middle(void) {
    free_invalid(block + room / 2);
}

static void at_the_last_byte(void) {
    free_invalid(block + room - 1);
}

static void at_the_last_16_bytes(void) {
    free_invalid(room > 16 ? block + room - 16 : block + 1);
}

static void one_before(void) {
    /* Of several blocks the highest has one of its size before it; a large one has whatever stands there. */
    for (unsigned i = 0; i < 8; i++) {
        char *other = must(malloc(block_bytes));
        block = other > block ? other : block;
    }
    expect("free", "pointer not from this heap", block - 1, 0);
    free_invalid(block - 1);
}

/* Somewhere behind the last block that malloc gave, 8 bytes off any block's start. */
static void behind_its_end(void) {
    expect("free", "pointer not from this heap", block + room + 8, 0);
    free_invalid(block + room + 8);
}

static void by_realloc(void) {
    function_called = "realloc";
    expect("realloc", "invalid pointer", block + 8, room);
    expect("realloc", "invalid pointer", block + 8, 0);
    (void)!realloc(launder(block + 8), 100);
}

static void by_malloc_usable_size(void) {
    expect("malloc_usable_size", "invalid pointer", block + 8, room);
    expect("malloc_usable_size", "invalid pointer", block + 8, 0);
    (void)!malloc_usable_size(launder(block + 8));
}

static void *thread_frees_inside(void *unused) {
    (void)unused;
    free_invalid(block + 8);
    return NULL;
}

static void by_another_thread(void) {
    on_thread(thread_frees_inside, NULL);
}

/* Blocks enough that some start in later 64 KiB units of a slab or SuperSlab than the first. */
static void in_a_later_unit(void) {
    char *last = block;
    for (unsigned i = 0; i < 100; i++) {
        last = must(malloc(block_bytes));
        for (size_t offset = 16; offset < room; offset += 16) {
            if (((uintptr_t)(last + offset) & 0xffff) == 0) {
                free_invalid(last + offset); /* in its block, at the very start of a unit */
            }
        }
    }
    free_invalid(last + 8); /* no block of this size spans units */
}

static const struct fault_case cases[] = {
    {"at_1", at_1},
    {"at_8", at_8},
    {"at_16", at_16},
    {"at_the_middle", at_the_middle},
    {"at_the_last_byte", at_the_last_byte},
    {"at_the_last_16_bytes", at_the_last_16_bytes},
    {"one_before", one_before},
    {"behind_its_end", behind_its_end},
    {"by_realloc", by_realloc},
    {"by_malloc_usable_size", by_malloc_usable_size},
    {"by_another_thread", by_another_thread},
    {"in_a_later_unit", in_a_later_unit},
};

static void prepare(size_t bytes) {
    block_bytes = bytes;
    block = must(malloc(bytes));
    room = malloc_usable_size(block);
}

int main(int argc, char **argv) {
    return fault_main(argc, argv, "_", cases, COUNT_OF(cases), prepare);
}
