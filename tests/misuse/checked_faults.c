/*
 * checked_faults.c - what checked mode alone finds: writes outside a block and after free, and what its
 * reports say.
 *
 * A case states the first lines of its report, then fragments that must follow in this order, each after
 * "...".
 */
#include "fault.h"

#include <dlfcn.h>

static size_t block_bytes; /* of the case */

#define MARK 0x41

/* States the second line: how many bytes, the first how far from where. */
static void expect_damage(const char *how_many, size_t distance, const char *from, const void *at) {
    char line[256];
    snprintf(line, sizeof line, "  %s not as left, the first %zu bytes %s: 0x%jx holds 0x%x\n", how_many,
             distance, from, (uintmax_t)(uintptr_t)at, MARK);
    say(line);
}

static void expect_stacks(bool is_freed) {
    say("...  noticed here\n...    #0 \n");
    say("...  allocated by thread 1\n...    #0 \n...misuse/checked_faults+0x\n");
    if (is_freed) {
        say("...  freed by thread 1\n...    #0 \n...misuse/checked_faults+0x\n");
    }
}

static void write_at(char *at) {
    *(volatile char *)launder(at) = MARK;
}

static void overflow_by_1(void) {
    char *block = must(malloc(block_bytes));
    write_at(block + block_bytes);
    expect("free", "write past the end of", block, block_bytes);
    expect_damage("1 byte is", 0, "past the end", block + block_bytes);
    expect_stacks(false);
    free(block);
}

static void overflow_by_3_after_5(void) {
    char *block = must(malloc(block_bytes));
    for (size_t i = 5; i < 8; i++) {
        write_at(block + block_bytes + i);
    }
    expect("free", "write past the end of", block, block_bytes);
    expect_damage("3 bytes are", 5, "past the end", block + block_bytes + 5);
    free(block);
}

static void overflow_of_calloc(void) {
    char *block = must(calloc(1, block_bytes));
    write_at(block + block_bytes);
    expect("free", "write past the end of", block, block_bytes);
    free(block);
}

static void overflow_of_memalign(void) {
    char *block = must(memalign(64, block_bytes));
    write_at(block + block_bytes);
    expect("free", "write past the end of", block, block_bytes);
    free(block);
}

static void overflow_found_by_realloc(void) {
    char *block = must(malloc(block_bytes));
    write_at(block + block_bytes);
    expect("realloc", "write past the end of", block, block_bytes);
    expect_damage("1 byte is", 0, "past the end", block + block_bytes);
    (void)!realloc(launder(block), 2 * block_bytes);
}

static void overflow_found_by_realloc_to_its_size(void) {
    char *block = must(malloc(block_bytes));
    write_at(block + block_bytes);
    expect("realloc", "write past the end of", block, block_bytes);
    expect_damage("1 byte is", 0, "past the end", block + block_bytes);
    (void)!realloc(launder(block), block_bytes);
}

static void overflow_after_realloc(void) {
    char *block = must(realloc(must(malloc(8)), block_bytes));
    write_at(block + block_bytes);
    expect("free", "write past the end of", block, block_bytes);
    free(block);
}

static void overflow_found_at_exit(void) {
    char *block = must(malloc(block_bytes));
    write_at(block + block_bytes);
    expect("exit", "write past the end of", block, block_bytes);
    expect_damage("1 byte is", 0, "past the end", block + block_bytes);
    expect_stacks(false);
    exit(0);
}

static void *allocate_on_thread(void *slot) {
    *(void **)slot = must(malloc(block_bytes));
    return NULL;
}

static void overflow_of_another_threads(void) {
    char *block = NULL;
    on_thread(allocate_on_thread, &block);
    write_at(block + block_bytes);
    expect("free", "write past the end of", block, block_bytes);
    say("...  allocated by thread 2\n");
    free(block);
}

static void write_after_free_found_at_exit(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    write_at(block + block_bytes / 2);
    expect("exit", "write after free to", block, block_bytes);
    expect_damage("1 byte is", block_bytes / 2, "inside", block + block_bytes / 2);
    expect_stacks(true);
    exit(0);
}

/* Fills the quarantine of 32 MB with later blocks. */
static void write_after_free_found_when_it_leaves(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    write_at(block + 1);
    expect("free", "write after free to", block, block_bytes);
    for (unsigned i = 0; i < 3000; i++) {
        free(launder(must(malloc(20000))));
    }
}

static void double_free(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    expect("free", "double free of", block, block_bytes);
    expect_stacks(true);
    free(launder(block));
}

static void double_free_after_it_left(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    for (unsigned i = 0; i < 3000; i++) {
        free(launder(must(malloc(block_bytes < 8000 ? 20000 : 3000))));
    }
    expect("free", "double free of", block, block_bytes);
    expect_stacks(true);
    free(launder(block));
}

static void realloc_of_freed(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    expect("realloc", "use of freed block", block, block_bytes);
    expect_stacks(true);
    (void)!realloc(launder(block), 10);
}

static void realloc_to_nothing_of_freed(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    expect("realloc", "double free of", block, block_bytes);
    expect_stacks(true);
    (void)!realloc(launder(block), 0);
}

static void usable_size_of_freed(void) {
    char *block = must(malloc(block_bytes));
    free(launder(block));
    expect("malloc_usable_size", "use of freed block", block, block_bytes);
    (void)!malloc_usable_size(launder(block));
}

static void interior(void) {
    char line[128];
    char *block = must(malloc(block_bytes));
    expect("free", "invalid pointer", block + 8, block_bytes);
    snprintf(line, sizeof line, "  it points 8 bytes into the block 0x%jx of %zu bytes\n",
             (uintmax_t)(uintptr_t)block, block_bytes);
    say(line);
    expect_stacks(false);
    free(launder(block + 8));
}

static const struct fault_case cases[] = {
    {"overflow_by_1", overflow_by_1},
    {"overflow_by_3_after_5", overflow_by_3_after_5},
    {"overflow_of_calloc", overflow_of_calloc},
    {"overflow_of_memalign", overflow_of_memalign},
    {"overflow_found_by_realloc", overflow_found_by_realloc},
    {"overflow_found_by_realloc_to_its_size", overflow_found_by_realloc_to_its_size},
    {"overflow_after_realloc", overflow_after_realloc},
    {"overflow_found_at_exit", overflow_found_at_exit},
    {"overflow_of_another_threads", overflow_of_another_threads},
    {"write_after_free_found_at_exit", write_after_free_found_at_exit},
    {"write_after_free_found_when_it_leaves", write_after_free_found_when_it_leaves},
    {"double_free", double_free},
    {"double_free_after_it_left", double_free_after_it_left},
    {"realloc_of_freed", realloc_of_freed},
    {"realloc_to_nothing_of_freed", realloc_to_nothing_of_freed},
    {"usable_size_of_freed", usable_size_of_freed},
    {"interior", interior},
};

/* ---- faults of blocks between guard pages ---- */

/* In the same 64 KiB as the block's start, where nothing is that a program can have got. */
static void free_before_a_guarded_block(void) {
    char *block = must(malloc(100001));
    expect("free", "invalid pointer", block - 16, 0);
    free(launder(block - 16));
}

static void realloc_before_a_guarded_block(void) {
    char *block = must(malloc(100001));
    expect("realloc", "invalid pointer", block - 16, 0);
    (void)!realloc(launder(block - 16), 10);
}

static void usable_size_before_a_guarded_block(void) {
    char *block = must(malloc(100001));
    expect("malloc_usable_size", "invalid pointer", block - 16, 0);
    (void)!malloc_usable_size(launder(block - 16));
}

static void underflow_by_1(void) {
    char *block = must(malloc(100001));
    write_at(block - 1);
    expect("free", "write before the start of", block, 100001);
    expect_damage("1 byte is", 1, "before the start", block - 1);
    expect_stacks(false);
    free(block);
}

static void overflow_before_the_guard_page(void) {
    char *block = must(malloc(100001));
    write_at(block + 100001);
    expect("free", "write past the end of", block, 100001);
    expect_damage("1 byte is", 0, "past the end", block + 100001);
    free(block);
}

/* Nobody can write there: the kernel stops it, and the report comes from the handler of the signal. */
static void segv_write_into_the_guard_page(void) {
    char line[128];
    char *block = must(malloc(100000));
    snprintf(line, sizeof line, "SIGSEGV: write 20 bytes past the end of 0x%jx, 100000-byte block\n",
             (uintmax_t)(uintptr_t)block);
    say(line);
    expect_stacks(false);
    write_at(block + 100020);
}

/* All that belongs to the block's mapping is near to it: whole units of 64 KiB. */
static void segv_write_to_the_end_of_the_last_unit(void) {
    char line[128];
    char *block = must(malloc(100000));
    uintptr_t last = ((uintptr_t)block + 100000) | 0xFFFF;
    snprintf(line, sizeof line, "SIGSEGV: write %zu bytes past the end of 0x%jx, 100000-byte block\n",
             (size_t)(last - (uintptr_t)block - 100000), (uintmax_t)(uintptr_t)block);
    say(line);
    write_at((char *)last);
}

static void segv_read_before_the_first_page(void) {
    char line[128];
    char *block = must(malloc(100000));
    snprintf(line, sizeof line, "SIGSEGV: read 5000 bytes before the start of 0x%jx, 100000-byte block\n",
             (uintmax_t)(uintptr_t)block);
    say(line);
    (void)*(volatile char *)launder(block - 5000);
}

static void segv_write_to_freed(void) {
    char line[128];
    char *block = must(malloc(3u << 20));
    free(launder(block));
    snprintf(line, sizeof line, "SIGSEGV: write 7 bytes into freed 0x%jx, 3145728-byte block\n",
             (uintmax_t)(uintptr_t)block);
    say(line);
    expect_stacks(true);
    write_at(block + 7);
}

/* ---- claims ---- */

typedef void *new_aligned(size_t, size_t);
typedef void free_like_2(void *, size_t);
typedef void free_like_3(void *, size_t, size_t);

/* A function of C++ by its mangled name, which every build of the library has: this is a C program. */
#define NAMED(type, symbol) ((type *)(uintptr_t)must(dlsym(RTLD_DEFAULT, symbol)))

static void wrong_size(const char *function, const char *symbol) {
    void *block = must(malloc(100));
    expect(function, "wrong size for", block, 100);
    expect_stacks(false);
    NAMED(free_like_2, symbol)(launder(block), 96);
}

static void wrong_size_of_delete(void) {
    wrong_size("operator delete", "_ZdlPvm");
}

static void wrong_size_of_delete_array(void) {
    wrong_size("operator delete[]", "_ZdaPvm");
}

static void wrong_size_of_free_sized(void) {
    wrong_size("free_sized", "free_sized");
}

static void wrong_alignment_of_delete(void) {
    void *block = must(NAMED(new_aligned, "_ZnwmSt11align_val_t")(100, 64));
    expect("operator delete", "wrong alignment for", block, 100);
    NAMED(free_like_2, "_ZdlPvSt11align_val_t")(launder(block), 128);
}

static void wrong_alignment_of_free_aligned_sized(void) {
    void *block = must(aligned_alloc(256, 512));
    expect("free_aligned_sized", "wrong alignment for", block, 512);
    NAMED(free_like_3, "free_aligned_sized")(launder(block), 64, 512);
}

static void right_claims(void) {
    NAMED(free_like_2, "_ZdlPvm")(must(malloc(100)), 100);
    NAMED(free_like_2, "_ZdaPvm")(must(calloc(10, 10)), 100);
    NAMED(free_like_2, "free_sized")(must(realloc(must(malloc(10)), 100)), 100);
    NAMED(free_like_2, "free_sized")(must(malloc(200000)), 200000);
    NAMED(free_like_2, "_ZdlPvSt11align_val_t")(must(NAMED(new_aligned, "_ZnwmSt11align_val_t")(100, 8)), 8);
    NAMED(free_like_3, "_ZdlPvmSt11align_val_t")
    (must(NAMED(new_aligned, "_ZnwmSt11align_val_t")(100, 64)), 100, 64);
    NAMED(free_like_3, "free_aligned_sized")(must(aligned_alloc(8192, 8192)), 8192, 8192);
    say("sound\n");
    exit(0);
}

static void usable_size_of_nothing(void) {
    say(malloc_usable_size(launder(NULL)) == 0 ? "sound\n" : "nothing has a size\n");
    exit(0);
}

/* ---- no fault: what memory holds ---- */

static void new_memory_is_filled(void) {
    static const size_t sizes[] = {1, 24, 1000, 30000, 100000, 3u << 20};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        unsigned char *block = must(malloc(sizes[i]));
        unsigned char *zeroed = must(calloc(1, sizes[i]));
        for (size_t k = 0; k < sizes[i]; k++) {
            if (block[k] != 0xCD || zeroed[k] != 0) {
                say("a byte is not as promised\n");
                _exit(7);
            }
        }
        free(block);
        free(zeroed);
    }
    say("sound\n");
    exit(0);
}

static void freed_memory_is_filled(void) {
    unsigned char *block = must(malloc(500));
    memset(block, 1, 500);
    free(launder(block));
    for (size_t k = 0; k < 500; k++) {
        if (((volatile unsigned char *)block)[k] != 0xDF) {
            say("a byte is not as promised\n");
            _exit(7);
        }
    }
    say("sound\n");
    exit(0);
}

static const struct fault_case others[] = {
    {"underflow_by_1", underflow_by_1},
    {"free_before_a_guarded_block", free_before_a_guarded_block},
    {"realloc_before_a_guarded_block", realloc_before_a_guarded_block},
    {"usable_size_before_a_guarded_block", usable_size_before_a_guarded_block},
    {"overflow_before_the_guard_page", overflow_before_the_guard_page},
    {"segv_write_into_the_guard_page", segv_write_into_the_guard_page},
    {"segv_write_to_the_end_of_the_last_unit", segv_write_to_the_end_of_the_last_unit},
    {"segv_read_before_the_first_page", segv_read_before_the_first_page},
    {"segv_write_to_freed", segv_write_to_freed},
    {"wrong_size_of_delete", wrong_size_of_delete},
    {"wrong_size_of_delete_array", wrong_size_of_delete_array},
    {"wrong_size_of_free_sized", wrong_size_of_free_sized},
    {"wrong_alignment_of_delete", wrong_alignment_of_delete},
    {"wrong_alignment_of_free_aligned_sized", wrong_alignment_of_free_aligned_sized},
    {"sound_usable_size_of_nothing", usable_size_of_nothing},
    {"sound_right_claims", right_claims},
    {"sound_new_memory_is_filled", new_memory_is_filled},
    {"sound_freed_memory_is_filled", freed_memory_is_filled},
};

static const size_t sizes[] = {1, 16, 24, 1000, 5000, 30000};

int main(int argc, char **argv) {
    fault_setup();
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        if (argc < 2) {
            say(others[i].name);
            say("\n");
        } else if (strcmp(argv[1], others[i].name) == 0) {
            others[i].commit();
            return fault_survived();
        }
    }
    for (size_t i = 0; i < COUNT_OF(cases) * COUNT_OF(sizes); i++) {
        const struct fault_case *chosen = &cases[i / COUNT_OF(sizes)];
        char name[80];
        block_bytes = sizes[i % COUNT_OF(sizes)];
        snprintf(name, sizeof name, "%s_of_%zu", chosen->name, block_bytes);
        bool is_too_small =
            block_bytes < 16 && (strncmp(chosen->name, "interior", 8) == 0 ||
                                 strcmp(chosen->name, "write_after_free_found_when_it_leaves") == 0);
        if (is_too_small) {
            continue;
        }
        if (argc < 2) {
            say(name);
            say("\n");
        } else if (strcmp(argv[1], name) == 0) {
            chosen->commit();
            return fault_survived();
        }
    }
    return argc < 2 ? 0 : 6;
}
