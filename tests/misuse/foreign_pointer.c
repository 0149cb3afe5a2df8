/*
 * foreign_pointer.c - free, realloc and malloc_usable_size of what never was a block.
 */
#include "fault.h"

#include <sys/mman.h>

static char in_data[64] = "data";
static char in_bss[1 << 16];
static const char in_text[64] = "constant";

static void *on_stack(void) {
    static char *volatile address;
    char local[64];
    address = local;
    return launder(address);
}

static void *data(void) {
    return in_data;
}

static void *bss(void) {
    return in_bss + 32768;
}

static void *text(void) {
    return (void *)(uintptr_t)in_text;
}

static void *code(void) {
    return (void *)((uintptr_t)code & ~(uintptr_t)15);
}

static void *mapped(void) {
    void *range = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return range == MAP_FAILED ? must(NULL) : range;
}

static void *mapped_without_access(void) {
    void *range = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return range == MAP_FAILED ? must(NULL) : range;
}

/* No block starts 8 bytes off, whoever gets the range next. */
static void *unmapped(void) {
    char *range = mapped();
    munmap(range, 4 << 20);
    return range + 8;
}

static void *at_2_mib_boundary(void) {
    char *range = mapped();
    return (void *)(((uintptr_t)range + (2u << 20) - 1) & ~(uintptr_t)((2u << 20) - 1));
}

static void *environment(void) {
    return must(getenv("PATH"));
}

static void *null_plus_16(void) {
    return (void *)16;
}

static void *null_plus_1(void) {
    return (void *)1;
}

static void *page_zero_end(void) {
    return (void *)4096;
}

static void *kernel(void) {
    return (void *)0xffff888000000010u;
}

static void *vsyscall(void) {
    return (void *)0xffffffffff600000u;
}

static void *all_ones(void) {
    return (void *)UINTPTR_MAX;
}

static void *minus_16(void) {
    return (void *)(UINTPTR_MAX - 15);
}

static void *non_canonical(void) {
    return (void *)0x8000000000000010u;
}

static void *first_beyond_user_space(void) {
    return (void *)0x800000000000u;
}

static void *last_of_user_space(void) {
    return (void *)0x7ffffffffff0u;
}

static void *tagged_block(void) {
    return (void *)((uintptr_t)must(malloc(64)) | (uintptr_t)0xA5 << 56);
}

static void *tagged_large_block(void) {
    return (void *)((uintptr_t)must(malloc(3u << 20)) | (uintptr_t)1 << 63);
}

static void *poison(void) {
    return (void *)0x5a5a5a5a5a5a5a50u;
}

static const struct {
    const char *name;
    void *(*make)(void);
} pointers[] = {
    {"stack", on_stack},
    {"data", data},
    {"bss", bss},
    {"constants", text},
    {"code", code},
    {"mmap", mapped},
    {"mmap_without_access", mapped_without_access},
    {"unmapped", unmapped},
    {"mmap_at_2_mib_boundary", at_2_mib_boundary},
    {"environment", environment},
    {"null_plus_16", null_plus_16},
    {"null_plus_1", null_plus_1},
    {"page_zero_end", page_zero_end},
    {"kernel", kernel},
    {"vsyscall", vsyscall},
    {"all_ones", all_ones},
    {"minus_16", minus_16},
    {"non_canonical", non_canonical},
    {"first_beyond_user_space", first_beyond_user_space},
    {"last_of_user_space", last_of_user_space},
    {"tagged_block", tagged_block},
    {"tagged_large_block", tagged_large_block},
    {"poison", poison},
};

static const char *const functions[] = {"free", "realloc", "malloc_usable_size"};

static void commit(const char *function, void *pointer) {
    expect(function, "pointer not from this heap", pointer, 0);
    if (function[0] == 'f') {
        free(launder(pointer));
    } else if (function[0] == 'r') {
        (void)!realloc(launder(pointer), 200);
    } else {
        (void)!malloc_usable_size(launder(pointer));
    }
}

int main(int argc, char **argv) {
    fault_setup();
    (void)must(malloc(100)); /* the heap exists */
    for (size_t i = 0; i < COUNT_OF(pointers) * COUNT_OF(functions); i++) {
        const char *function = functions[i % COUNT_OF(functions)];
        char name[80];
        snprintf(name, sizeof name, "%s_of_%s", function, pointers[i / COUNT_OF(functions)].name);
        if (argc < 2) {
            say(name);
            say("\n");
        } else if (strcmp(argv[1], name) == 0) {
            commit(function, pointers[i / COUNT_OF(functions)].make());
            return fault_survived();
        }
    }
    return argc < 2 ? 0 : 6;
}
