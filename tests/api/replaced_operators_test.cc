/*
 * replaced_operators_test.cc - a program that replaces two or four of C++'s operators, as the standard lets
 * it: the others, which it leaves alone, are defined by those.
 */
#include "api/own_operators.h"
#include "support/target.h"
#include "support/test.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

long live_blocks;
long null_deletes;
long live_aligned_blocks;
bool is_out_of_memory;

void *allocate_own(size_t bytes, size_t alignment) {
    void *block = nullptr;
    if (is_out_of_memory || posix_memalign(&block, alignment, bytes + LEAD_BYTES) != 0) {
        throw std::bad_alloc();
    }
    return static_cast<char *>(block) + LEAD_BYTES;
}

void free_own(void *block) {
    std::free(static_cast<char *>(block) - LEAD_BYTES);
}

} // namespace

void *operator new(size_t bytes) {
    void *block = allocate_own(bytes, 16);
    live_blocks++;
    return block;
}

void operator delete(void *block) noexcept {
    if (block == nullptr) {
        null_deletes++;
        return;
    }
    live_blocks--;
    free_own(block);
}

void *operator new(size_t bytes, std::align_val_t alignment) {
    void *block = allocate_own(bytes, static_cast<size_t>(alignment));
    live_aligned_blocks++;
    return block;
}

void operator delete(void *block, std::align_val_t) noexcept {
    if (block != nullptr) {
        live_aligned_blocks--;
        free_own(block);
    }
}

namespace {

void the_other_forms_call_the_replaced_ones(void **) {
    for (size_t bytes : sizes) {
        void *blocks[] = {
            ::operator new(opaque(bytes)),
            ::operator new[](opaque(bytes)),
            ::operator new(opaque(bytes), std::nothrow),
            ::operator new[](opaque(bytes), std::nothrow),
            ::operator new(opaque(bytes)),
            ::operator new[](opaque(bytes)),
        };
        assert_int_equal(live_blocks, 6);
        ::operator delete(opaque(blocks[0]));
        ::operator delete[](opaque(blocks[1]));
        ::operator delete(opaque(blocks[2]), std::nothrow);
        ::operator delete[](opaque(blocks[3]), std::nothrow);
        ::operator delete(opaque(blocks[4]), bytes);
        ::operator delete[](opaque(blocks[5]), bytes);
        assert_int_equal(live_blocks, 0);
    }
    assert_int_equal(live_aligned_blocks, 0);
}

/* Blocks of every kind of size lie in the thread's caches, and the first calls have been. */
void they_do_so_however_many_blocks_the_allocator_has_at_hand(void **) {
    static void *blocks[2000];
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            blocks[i] = opaque(std::malloc(sizes[i % COUNT_OF(sizes)] + LEAD_BYTES));
        }
        for (void *block : blocks) {
            std::free(block);
        }
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            blocks[i] = ::operator new[](opaque(sizes[i % COUNT_OF(sizes)]));
        }
        assert_int_equal(live_blocks, COUNT_OF(blocks));
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            if (i % 3 == 0) {
                ::operator delete[](opaque(blocks[i]));
            } else if (i % 3 == 1) {
                ::operator delete(opaque(blocks[i]), sizes[i % COUNT_OF(sizes)]);
            } else {
                ::operator delete[](opaque(blocks[i]), sizes[i % COUNT_OF(sizes)]);
            }
        }
        assert_int_equal(live_blocks, 0);
    }
}

void null_comes_to_the_replaced_one_as_well(void **) {
    null_deletes = 0;
    ::operator delete[](opaque(static_cast<void *>(nullptr)));
    ::operator delete(opaque(static_cast<void *>(nullptr)), size_t(8));
    ::operator delete[](opaque(static_cast<void *>(nullptr)), size_t(8));
    assert_int_equal(null_deletes, 3);
}

void the_other_aligned_forms_do_so_too(void **) {
    const auto align = std::align_val_t(64);
    for (size_t bytes : sizes) {
        void *blocks[] = {
            ::operator new(opaque(bytes), align),
            ::operator new[](opaque(bytes), align),
            ::operator new(opaque(bytes), align, std::nothrow),
            ::operator new[](opaque(bytes), align, std::nothrow),
            ::operator new(opaque(bytes), align),
            ::operator new[](opaque(bytes), align),
        };
        assert_int_equal(live_aligned_blocks, 6);
        for (void *block : blocks) {
            assert_int_equal(reinterpret_cast<uintptr_t>(block) % 64, 0);
        }
        ::operator delete(opaque(blocks[0]), align);
        ::operator delete[](opaque(blocks[1]), align);
        ::operator delete(opaque(blocks[2]), align, std::nothrow);
        ::operator delete[](opaque(blocks[3]), align, std::nothrow);
        ::operator delete(opaque(blocks[4]), bytes, align);
        ::operator delete[](opaque(blocks[5]), bytes, align);
        assert_int_equal(live_aligned_blocks, 0);
    }
    assert_int_equal(live_blocks, 0);
}

void the_nothrow_forms_catch_what_the_replaced_ones_throw(void **) {
    const auto align = std::align_val_t(64);
    is_out_of_memory = true;
    assert_null(::operator new(opaque(size_t(100)), std::nothrow));
    assert_null(::operator new[](opaque(size_t(100)), std::nothrow));
    assert_null(::operator new(opaque(size_t(100)), align, std::nothrow));
    assert_null(::operator new[](opaque(size_t(100)), align, std::nothrow));
    unsigned thrown = 0;
    try {
        opaque(::operator new[](opaque(size_t(100))));
    } catch (const std::bad_alloc &) {
        thrown++;
    }
    try {
        opaque(::operator new[](opaque(size_t(100)), align));
    } catch (const std::bad_alloc &) {
        thrown++;
    }
    is_out_of_memory = false;
    assert_int_equal(thrown, 2);
    assert_int_equal(live_blocks + live_aligned_blocks, 0);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_other_forms_call_the_replaced_ones),
        cmocka_unit_test(they_do_so_however_many_blocks_the_allocator_has_at_hand),
        cmocka_unit_test(null_comes_to_the_replaced_one_as_well),
        cmocka_unit_test(the_other_aligned_forms_do_so_too),
        cmocka_unit_test(the_nothrow_forms_catch_what_the_replaced_ones_throw),
    };
    return cmocka_run_group_tests_name("replaced operators", tests, nullptr, heap_is_sound);
}
