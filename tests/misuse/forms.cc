/*
 * forms.cc - each fault through each form of free that C and C++ have, by its own and by other threads.
 *
 * A case is FORM_FAULT_THREAD_SIZE: the form that is given the wrong pointer, what the pointer is, whose
 * block it is or was, and the block's size. Blocks come from the form's counterpart: malloc, new, new[] or
 * their aligned forms.
 */
#include "fault.h"

#include <new>

namespace {

constexpr std::align_val_t alignment{64};

void *get_malloc(size_t bytes) {
    return malloc(bytes);
}
void *get_new(size_t bytes) {
    return ::operator new(bytes);
}
void *get_new_array(size_t bytes) {
    return ::operator new[](bytes);
}
void *get_new_aligned(size_t bytes) {
    return ::operator new(bytes, alignment);
}
void *get_new_array_aligned(size_t bytes) {
    return ::operator new[](bytes, alignment);
}

void give_free(void *pointer, size_t) {
    free(pointer);
}
void give_realloc(void *pointer, size_t bytes) {
    (void)!realloc(pointer, bytes * 2);
}
void give_usable_size(void *pointer, size_t) {
    (void)!malloc_usable_size(pointer);
}
void give_delete(void *pointer, size_t) {
    ::operator delete(pointer);
}
void give_delete_array(void *pointer, size_t) {
    ::operator delete[](pointer);
}
void give_delete_nothrow(void *pointer, size_t) {
    ::operator delete(pointer, std::nothrow);
}
void give_delete_sized(void *pointer, size_t bytes) {
    ::operator delete(pointer, bytes);
}
void give_delete_array_sized(void *pointer, size_t bytes) {
    ::operator delete[](pointer, bytes);
}
void give_delete_aligned(void *pointer, size_t) {
    ::operator delete(pointer, alignment);
}
void give_delete_array_sized_aligned(void *pointer, size_t bytes) {
    ::operator delete[](pointer, bytes, alignment);
}

struct form {
    const char *name;
    const char *function; /* in the line */
    void *(*get)(size_t bytes);
    void (*give)(void *pointer, size_t bytes);
    bool is_question; /* a freed block is then one in use, not one freed twice */
};

constexpr form forms[] = {
    {"free", "free", get_malloc, give_free, false},
    {"realloc", "realloc", get_malloc, give_realloc, true},
    {"malloc_usable_size", "malloc_usable_size", get_malloc, give_usable_size, true},
    {"delete", "operator delete", get_new, give_delete, false},
    {"delete_array", "operator delete[]", get_new_array, give_delete_array, false},
    {"delete_nothrow", "operator delete", get_new, give_delete_nothrow, false},
    {"delete_sized", "operator delete", get_new, give_delete_sized, false},
    {"delete_array_sized", "operator delete[]", get_new_array, give_delete_array_sized, false},
    {"delete_aligned", "operator delete", get_new_aligned, give_delete_aligned, false},
    {"delete_array_sized_aligned", "operator delete[]", get_new_array_aligned,
     give_delete_array_sized_aligned, false},
};

/* ---- the case ---- */

const form *chosen;
size_t block_bytes;
char *block;
size_t room;
char in_data[64] = "data";

const char *freed_text() {
    return chosen->is_question ? "use of freed block" : "double free of";
}

void expect_invalid(void *pointer) {
    expect(chosen->function, "invalid pointer", pointer, room);
    expect(chosen->function, "invalid pointer", pointer, 0);
}

void *freed() {
    free(launder(block));
    expect(chosen->function, freed_text(), block, room);
    return block;
}

void *inside() {
    expect_invalid(block + room / 2);
    return block + room / 2;
}

void *unaligned() {
    expect_invalid(block + 1);
    return block + 1;
}

/*
 * What follows a live block must not be live itself, or its free would be legal: where two blocks of ours lie
 * end to end, the second is freed first.
 */
void *one_past() {
    char *others[8];
    for (char *&other : others) {
        other = static_cast<char *>(must(chosen->get(block_bytes)));
    }
    for (char *lower : others) {
        for (char *upper : others) {
            if (lower + room == upper) {
                free(launder(upper));
                expect(chosen->function, freed_text(), upper, room);
                return upper;
            }
        }
    }
    expect_invalid(block + room);
    expect(chosen->function, "pointer not from this heap", block + room, 0);
    return block + room;
}

void *stack() {
    static char *volatile address;
    char local[64];
    address = local + 32;
    expect(chosen->function, "pointer not from this heap", address, 0);
    return launder(address);
}

void *data() {
    expect(chosen->function, "pointer not from this heap", in_data, 0);
    return in_data;
}

struct fault {
    const char *name;
    void *(*make)();
};

constexpr fault faults[] = {
    {"freed", freed},       {"inside", inside}, {"unaligned", unaligned},
    {"one_past", one_past}, {"stack", stack},   {"data", data},
};

/* ---- threads ---- */

void *allocate(void *) {
    block = static_cast<char *>(must(chosen->get(block_bytes)));
    room = malloc_usable_size(block);
    return nullptr;
}

void *commit(void *argument) {
    void *pointer = static_cast<const fault *>(argument)->make();
    chosen->give(launder(pointer), block_bytes);
    return nullptr;
}

void by_its_thread(const fault &what) {
    (void)allocate(nullptr);
    (void)commit(const_cast<fault *>(&what));
}

void by_another_thread(const fault &what) {
    (void)allocate(nullptr);
    on_thread(commit, const_cast<fault *>(&what));
}

void after_its_thread(const fault &what) {
    on_thread(allocate, nullptr);
    (void)commit(const_cast<fault *>(&what));
}

struct relation {
    const char *name;
    void (*run)(const fault &what);
};

constexpr relation relations[] = {
    {"by_its_thread", by_its_thread},
    {"by_another_thread", by_another_thread},
    {"after_its_thread", after_its_thread},
};

/* Runs the case of that name, or lists it. True when it came back from its fault. */
bool visit(const char *wanted, const form &form, const fault &fault, const relation &relation,
           const fault_size &size) {
    char name[128];
    snprintf(name, sizeof name, "%s_%s_%s_%s", form.name, fault.name, relation.name, size.name);
    if (wanted == nullptr) {
        say(name);
        say("\n");
        return false;
    }
    if (strcmp(wanted, name) != 0) {
        return false;
    }
    chosen = &form;
    block_bytes = size.bytes;
    relation.run(fault);
    return true;
}

} // namespace

int main(int argc, char **argv) {
    fault_setup();
    const char *wanted = argc < 2 ? nullptr : argv[1];
    for (const form &form : forms) {
        for (const fault &fault : faults) {
            for (const relation &relation : relations) {
                for (const fault_size &size : fault_sizes) {
                    if (visit(wanted, form, fault, relation, size)) {
                        int status = fault_survived();
                        fault_aftermath(size.bytes);
                        return status;
                    }
                }
            }
        }
    }
    return wanted == nullptr ? 0 : 6;
}
