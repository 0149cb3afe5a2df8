/*
 * other_names.c - freed blocks given to the functions other than free; each fault names the function called.
 *
 * Operators delete and functions that not every libc has are found by name: this is a C program.
 */
#include "fault.h"

#include <dlfcn.h>

static size_t block_bytes; /* of the case */
static void *block;
static size_t room;

typedef void free_like(void *);
typedef void free_like_sized(void *, size_t);
typedef void free_like_sized_2(void *, size_t, size_t);

static void *named(const char *symbol) {
    return must(dlsym(RTLD_DEFAULT, symbol));
}

static void call_1(const char *symbol) {
    void *address = named(symbol);
    free_like *function;
    memcpy(&function, &address, sizeof address);
    function(launder(block));
}

static void call_2(const char *symbol, size_t second) {
    void *address = named(symbol);
    free_like_sized *function;
    memcpy(&function, &address, sizeof address);
    function(launder(block), second);
}

static void call_3(const char *symbol, size_t second, size_t third) {
    void *address = named(symbol);
    free_like_sized_2 *function;
    memcpy(&function, &address, sizeof address);
    function(launder(block), second, third);
}

static void realloc_larger(void) {
    expect("realloc", "use of freed block", block, room);
    (void)!realloc(launder(block), block_bytes * 3);
}

static void realloc_smaller(void) {
    expect("realloc", "use of freed block", block, room);
    (void)!realloc(launder(block), 1);
}

static void realloc_same(void) {
    expect("realloc", "use of freed block", block, room);
    (void)!realloc(launder(block), block_bytes);
}

static void realloc_to_0(void) {
    /* That is a free, so it may be called one. */
    expect("realloc", "use of freed block", block, room);
    expect("realloc", "double free of", block, room);
    (void)!realloc(launder(block), 0);
}

static void reallocarray_larger(void) {
    expect("reallocarray", "use of freed block", block, room);
    (void)!reallocarray(launder(block), block_bytes, 3);
}

static void usable_size(void) {
    expect("malloc_usable_size", "use of freed block", block, room);
    (void)!malloc_usable_size(launder(block));
}

static void libc_free(void) {
    expect("free", "double free of", block, room);
    expect("__libc_free", "double free of", block, room);
    call_1("__libc_free");
}

static void cfree_call(void) {
    expect("cfree", "double free of", block, room);
    call_1("cfree");
}

static void free_sized_call(void) {
    expect("free_sized", "double free of", block, room);
    call_2("free_sized", block_bytes);
}

static void free_aligned_sized_call(void) {
    expect("free_aligned_sized", "double free of", block, room);
    call_3("free_aligned_sized", 16, block_bytes);
}

static void delete_one(void) {
    expect("operator delete", "double free of", block, room);
    call_1("_ZdlPv");
}

static void delete_array(void) {
    expect("operator delete[]", "double free of", block, room);
    call_1("_ZdaPv");
}

static void delete_one_sized(void) {
    expect("operator delete", "double free of", block, room);
    call_2("_ZdlPvm", block_bytes);
}

static void delete_array_sized(void) {
    expect("operator delete[]", "double free of", block, room);
    call_2("_ZdaPvm", block_bytes);
}

static void delete_one_aligned(void) {
    expect("operator delete", "double free of", block, room);
    call_2("_ZdlPvSt11align_val_t", 16);
}

static void delete_array_aligned(void) {
    expect("operator delete[]", "double free of", block, room);
    call_2("_ZdaPvSt11align_val_t", 16);
}

static void delete_one_sized_aligned(void) {
    expect("operator delete", "double free of", block, room);
    call_3("_ZdlPvmSt11align_val_t", block_bytes, 16);
}

static void delete_array_sized_aligned(void) {
    expect("operator delete[]", "double free of", block, room);
    call_3("_ZdaPvmSt11align_val_t", block_bytes, 16);
}

static const struct fault_case cases[] = {
    {"realloc_larger", realloc_larger},
    {"realloc_smaller", realloc_smaller},
    {"realloc_same", realloc_same},
    {"realloc_to_0", realloc_to_0},
    {"reallocarray_larger", reallocarray_larger},
    {"malloc_usable_size", usable_size},
    {"libc_free", libc_free},
    {"cfree", cfree_call},
    {"free_sized", free_sized_call},
    {"free_aligned_sized", free_aligned_sized_call},
    {"delete", delete_one},
    {"delete_array", delete_array},
    {"delete_sized", delete_one_sized},
    {"delete_array_sized", delete_array_sized},
    {"delete_aligned", delete_one_aligned},
    {"delete_array_aligned", delete_array_aligned},
    {"delete_sized_aligned", delete_one_sized_aligned},
    {"delete_array_sized_aligned", delete_array_sized_aligned},
};

static void prepare(size_t bytes) {
    block_bytes = bytes;
    block = must(malloc(bytes));
    room = malloc_usable_size(block);
    free(launder(block));
}

int main(int argc, char **argv) {
    return fault_main(argc, argv, "_of_freed_", cases, COUNT_OF(cases), prepare);
}
