/*
 * replaced_array_operators_test.cc - a program that replaces the array forms of new and delete alone: what is
 * defined by them calls them, and the plain forms, sized ones too, stay the allocator's.
 */
#include "api/own_operators.h"
#include "support/target.h"
#include "support/test.h"

#include <cstdlib>
#include <new>

namespace {

long live_arrays;

} // namespace

void *operator new[](size_t bytes) {
    void *block = std::malloc(bytes + LEAD_BYTES);
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    live_arrays++;
    return static_cast<char *>(block) + LEAD_BYTES;
}

void operator delete[](void *block) noexcept {
    if (block != nullptr) {
        live_arrays--;
        std::free(static_cast<char *>(block) - LEAD_BYTES);
    }
}

namespace {

constexpr unsigned ROUNDS = 1000; /* more than it takes until blocks are cached */

void array_forms_call_the_replaced_ones(void **) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (size_t bytes : sizes) {
            void *blocks[] = {::operator new[](opaque(bytes)), ::operator new[](opaque(bytes), std::nothrow),
                              ::operator new[](opaque(bytes))};
            assert_int_equal(live_arrays, 3);
            ::operator delete[](opaque(blocks[0]));
            ::operator delete[](opaque(blocks[1]), std::nothrow);
            ::operator delete[](opaque(blocks[2]), bytes);
            assert_int_equal(live_arrays, 0);
        }
    }
}

void plain_forms_do_not(void **) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (size_t bytes : sizes) {
            void *blocks[] = {::operator new(opaque(bytes)), ::operator new(opaque(bytes), std::nothrow),
                              std::malloc(opaque(bytes))};
            assert_int_equal(live_arrays, 0);
            ::operator delete(opaque(blocks[0]), bytes);
            ::operator delete(opaque(blocks[1]));
            ::operator delete(opaque(blocks[2]), bytes);
            assert_int_equal(live_arrays, 0);
        }
    }
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(array_forms_call_the_replaced_ones),
        cmocka_unit_test(plain_forms_do_not),
    };
    return cmocka_run_group_tests_name("replaced array operators", tests, nullptr, heap_is_sound);
}
