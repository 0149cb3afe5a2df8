/*
 * double_free.c - the same block freed twice: at once, after other operations, by and after other threads.
 */
#include "fault.h"

static size_t block_bytes; /* of the case */

#define HELD 24u

/* Neighbours that stay live, so that the memory beneath the block is not put to another use meanwhile. */
static void *neighbours[2 * HELD];

/* As many allocations and frees, of sizes that are far from the block's. */
static void other_operations(unsigned count) {
    void *kept[64] = {NULL};
    for (unsigned i = 0; i < count; i++) {
        void **slot = &kept[(i * 7) % 64];
        free(*slot);
        size_t bytes = (i * 37) % 3000 + 1;
        while (bytes <= block_bytes + block_bytes / 2 + 16 && block_bytes <= bytes + bytes / 2 + 16) {
            bytes += 600;
        }
        *slot = must(malloc(bytes));
    }
    for (unsigned i = 0; i < 64; i++) {
        free(kept[i]);
    }
}

static void *allocate_among_neighbours(void) {
    other_operations(200); /* so that they need no memory of their own later */
    size_t count = block_bytes > 200000 ? 2 : HELD;
    for (size_t i = 0; i < count; i++) {
        neighbours[i] = must(malloc(block_bytes));
    }
    void *block = must(malloc(block_bytes));
    for (size_t i = 0; i < count; i++) {
        neighbours[HELD + i] = must(malloc(block_bytes));
    }
    return block;
}

static void free_again(void *block, size_t room) {
    expect("free", "double free of", block, room);
    free(launder(block));
}

static void at_once(void) {
    void *block = must(malloc(block_bytes));
    size_t room = malloc_usable_size(block);
    free(launder(block));
    free_again(block, room);
}

static void after(unsigned operations) {
    void *block = allocate_among_neighbours();
    size_t room = malloc_usable_size(block);
    free(launder(block));
    other_operations(operations);
    free_again(block, room);
}

static void after_1_operation(void) {
    after(1);
}

static void after_300_operations(void) {
    after(300);
}

static void after_100000_operations(void) {
    after(100000);
}

/* Frees so many blocks of the same size that any cache in front has passed the block on. */
static void after_300_frees_of_its_size(void) {
    enum { COUNT = 300 };
    size_t count = block_bytes > 200000 ? 20 : COUNT;
    void *others[COUNT];
    void *block = must(malloc(block_bytes));
    size_t room = malloc_usable_size(block);
    for (size_t i = 0; i < count; i++) {
        others[i] = must(malloc(block_bytes));
    }
    free(launder(block));
    for (size_t i = 0; i < count; i += 2) {
        free(others[i]);
    }
    free_again(block, room);
}

static void *thread_allocates(void *slot) {
    *(void **)slot = allocate_among_neighbours();
    return NULL;
}

static void *thread_frees(void *block) {
    free(launder(block));
    return NULL;
}

static void after_the_owner_exited(void) {
    void *block = NULL;
    on_thread(thread_allocates, &block);
    size_t room = malloc_usable_size(block);
    free(launder(block));
    free_again(block, room);
}

static void after_the_owner_freed_it_and_exited(void) {
    void *block = NULL;
    on_thread(thread_allocates, &block);
    size_t room = malloc_usable_size(block);
    on_thread(thread_frees, block);
    free_again(block, room);
}

static void by_another_thread(void) {
    void *block = allocate_among_neighbours();
    size_t room = malloc_usable_size(block);
    free(launder(block));
    expect("free", "double free of", block, room);
    on_thread(thread_frees, block);
}

static void *thread_allocates_and_frees(void *slot) {
    void *block = allocate_among_neighbours();
    ((size_t *)slot)[1] = malloc_usable_size(block);
    free(launder(block));
    *(void **)slot = block;
    return NULL;
}

static void freed_by_its_thread_then_by_main(void) {
    void *slot[2] = {NULL, NULL};
    on_thread(thread_allocates_and_frees, slot);
    free_again(slot[0], (size_t)slot[1]);
}

static void after_malloc_trim(void) {
    void *block = allocate_among_neighbours();
    size_t room = malloc_usable_size(block);
    free(launder(block));
    malloc_trim(0);
    free_again(block, room);
}

static void of_a_calloc_block(void) {
    void *block = must(calloc(1, block_bytes));
    size_t room = malloc_usable_size(block);
    free(launder(block));
    free_again(block, room);
}

static void of_an_aligned_block(void) {
    void *block = must(memalign(256, block_bytes));
    size_t room = malloc_usable_size(block);
    free(launder(block));
    free_again(block, room);
}

static void after_realloc_to_0(void) {
    void *block = must(malloc(block_bytes));
    size_t room = malloc_usable_size(block);
    (void)!realloc(launder(block), 0);
    free_again(block, room);
}

static const struct fault_case cases[] = {
    {"at_once", at_once},
    {"after_1_operation", after_1_operation},
    {"after_300_operations", after_300_operations},
    {"after_100000_operations", after_100000_operations},
    {"after_300_frees_of_its_size", after_300_frees_of_its_size},
    {"after_the_owner_exited", after_the_owner_exited},
    {"after_the_owner_freed_it_and_exited", after_the_owner_freed_it_and_exited},
    {"by_another_thread", by_another_thread},
    {"freed_by_its_thread_then_by_main", freed_by_its_thread_then_by_main},
    {"after_malloc_trim", after_malloc_trim},
    {"of_a_calloc_block", of_a_calloc_block},
    {"of_an_aligned_block", of_an_aligned_block},
    {"after_realloc_to_0", after_realloc_to_0},
};

static void prepare(size_t bytes) {
    block_bytes = bytes;
}

int main(int argc, char **argv) {
    return fault_main(argc, argv, "_", cases, COUNT_OF(cases), prepare);
}
