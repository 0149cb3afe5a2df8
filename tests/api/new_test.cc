/*
 * new_test.cc - the twenty operators new and delete: they share malloc's heap, align, fail and loop as C++
 * says.
 */
#include "support/target.h"
#include "support/test.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace {

constexpr size_t sizes[] = {0, 1, 16, 100, 1024, 5000, 32768, 40000, 200000, 1 << 20, 3 << 20};
constexpr size_t impossible[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 4096, size_t(1) << 62};

/* Sizes are kept from the optimiser, which may compute with calls that it knows. */
size_t opaque(size_t value) {
    __asm__ volatile("" : "+r"(value));
    return value;
}

/* Compilers may leave out a new whose result nobody looks at. */
void *volatile sink;

void assert_usable(void *block, size_t bytes, size_t alignment) {
    block = launder(block); /* compilers think they know its alignment */
    assert_non_null(block);
    assert_int_equal(reinterpret_cast<uintptr_t>(block) % alignment, 0);
    assert_true(malloc_usable_size(block) >= bytes);
    std::memset(block, 0xA5, bytes);
    if (hak_is_there()) {
        assert_true(hak_owns(block));
    }
}

void plain_forms_allocate_and_free(void **) {
    for (size_t bytes : sizes) {
        void *one = ::operator new(opaque(bytes));
        void *array = ::operator new[](opaque(bytes));
        assert_usable(one, bytes, 16);
        assert_usable(array, bytes, 16);
        assert_ptr_not_equal(one, array);
        ::operator delete(one);
        ::operator delete[](array);
        one = ::operator new(opaque(bytes), std::nothrow);
        array = ::operator new[](opaque(bytes), std::nothrow);
        assert_usable(one, bytes, 16);
        assert_usable(array, bytes, 16);
        ::operator delete(one, std::nothrow);
        ::operator delete[](array, std::nothrow);
        one = ::operator new(opaque(bytes));
        array = ::operator new[](opaque(bytes));
        ::operator delete(one, bytes);
        ::operator delete[](array, bytes);
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
    ::operator delete(nullptr, size_t(8));
}

void aligned_forms_allocate_and_free(void **) {
    for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
        const auto align = std::align_val_t(alignment);
        for (size_t bytes : sizes) {
            void *one = ::operator new(opaque(bytes), align);
            void *array = ::operator new[](opaque(bytes), align);
            assert_usable(one, bytes, alignment);
            assert_usable(array, bytes, alignment);
            ::operator delete(one, align);
            ::operator delete[](array, align);
            one = ::operator new(opaque(bytes), align, std::nothrow);
            array = ::operator new[](opaque(bytes), align, std::nothrow);
            assert_usable(one, bytes, alignment);
            assert_usable(array, bytes, alignment);
            ::operator delete(one, align, std::nothrow);
            ::operator delete[](array, align, std::nothrow);
            one = ::operator new(opaque(bytes), align);
            array = ::operator new[](opaque(bytes), align);
            ::operator delete(one, bytes, align);
            ::operator delete[](array, bytes, align);
        }
    }
}

template <typename Call> bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void failure_throws_bad_alloc(void **) {
    const auto align = std::align_val_t(64);
    for (size_t bytes : impossible) {
        assert_true(throws_bad_alloc([=] { sink = ::operator new(opaque(bytes)); }));
        assert_true(throws_bad_alloc([=] { sink = ::operator new[](opaque(bytes)); }));
        if (bytes + 63 > bytes || hak_is_there()) { /* libstdc++'s own wraps around here */
            assert_true(throws_bad_alloc([=] { sink = ::operator new(opaque(bytes), align); }));
            assert_true(throws_bad_alloc([=] { sink = ::operator new[](opaque(bytes), align); }));
        }
    }
}

void failure_of_nothrow_forms_returns_null(void **) {
    const auto align = std::align_val_t(64);
    for (size_t bytes : impossible) {
        sink = ::operator new(opaque(bytes), std::nothrow);
        assert_null(sink);
        sink = ::operator new[](opaque(bytes), std::nothrow);
        assert_null(sink);
        if (bytes + 63 > bytes || hak_is_there()) {
            sink = ::operator new(opaque(bytes), align, std::nothrow);
            assert_null(sink);
            sink = ::operator new[](opaque(bytes), align, std::nothrow);
            assert_null(sink);
        }
    }
}

void an_alignment_that_is_no_power_of_two_fails(void **) {
    const auto align = std::align_val_t(opaque(24));
    if (!hak_is_there()) {
        SKIP_BECAUSE("undefined behaviour, and not hakmem's");
    }
    assert_true(throws_bad_alloc([=] { sink = ::operator new(opaque(100), align); }));
    assert_true(throws_bad_alloc([=] { sink = ::operator new[](opaque(100), align); }));
    sink = ::operator new(opaque(100), align, std::nothrow);
    assert_null(sink);
    sink = ::operator new[](opaque(100), align, std::nothrow);
    assert_null(sink);
}

/* No address space beyond what there is, or as much as there may be. */
void limit_address_space(bool is_limited) {
    rlimit limit{};
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = is_limited ? 1 : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

unsigned handler_calls;

void make_room() {
    handler_calls++;
    limit_address_space(false);
}

void new_tries_again_when_the_handler_made_room(void **) {
    const auto align = std::align_val_t(64);
    const size_t bytes = opaque(200 * MIB);
    for (int form = 0; form < 4; form++) {
        handler_calls = 0;
        std::set_new_handler(make_room);
        limit_address_space(true);
        void *block = form == 0   ? ::operator new(bytes)
                      : form == 1 ? ::operator new(bytes, align)
                      : form == 2 ? ::operator new(bytes, std::nothrow)
                                  : ::operator new(bytes, align, std::nothrow);
        limit_address_space(false);
        std::set_new_handler(nullptr);
        assert_int_equal(handler_calls, 1);
        assert_non_null(block);
        ::operator delete(block);
    }
}

void give_up_on_third_call() {
    if (++handler_calls == 3) {
        std::set_new_handler(nullptr);
    }
}

void new_handler_is_called_until_it_gives_up(void **) {
    const auto align = std::align_val_t(64);
    for (int form = 0; form < 8; form++) {
        handler_calls = 0;
        std::set_new_handler(give_up_on_third_call);
        const size_t bytes = opaque(SIZE_MAX / 2 + 1);
        bool failed = throws_bad_alloc([=] {
            void *block = form == 0   ? ::operator new(bytes)
                          : form == 1 ? ::operator new[](bytes)
                          : form == 2 ? ::operator new(bytes, align)
                          : form == 3 ? ::operator new[](bytes, align)
                          : form == 4 ? ::operator new(bytes, std::nothrow)
                          : form == 5 ? ::operator new[](bytes, std::nothrow)
                          : form == 6 ? ::operator new(bytes, align, std::nothrow)
                                      : ::operator new[](bytes, align, std::nothrow);
            sink = block;
            assert_null(sink);
        });
        assert_int_equal(failed, form < 4);
        assert_int_equal(handler_calls, 3);
    }
    std::set_new_handler(nullptr);
}

void *ballast;
constexpr size_t ballast_bytes = size_t(1) << 30;

void drop_ballast() {
    handler_calls++;
    munmap(ballast, ballast_bytes);
    std::set_new_handler(nullptr);
}

/* The handler makes room, and new must then succeed: under a limit that only the ballast exceeds. */
void new_succeeds_once_the_handler_made_room(void **) {
    struct rlimit old_limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &old_limit), 0);
    ballast = mmap(nullptr, ballast_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(ballast != MAP_FAILED);
    struct rlimit limit = old_limit;
    limit.rlim_cur = ballast_bytes + ballast_bytes / 2;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    handler_calls = 0;
    std::set_new_handler(drop_ballast);
    void *block = nullptr;
    bool failed = throws_bad_alloc([&] { block = ::operator new(opaque(ballast_bytes)); });
    assert_int_equal(setrlimit(RLIMIT_AS, &old_limit), 0);
    assert_false(failed);
    assert_int_equal(handler_calls, 1);
    assert_non_null(block);
    ::operator delete(block);
}

struct own_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void an_exception_of_the_handler_passes_through(void **) {
    std::set_new_handler([] { throw std::bad_alloc(); });
    sink = ::operator new(opaque(SIZE_MAX), std::nothrow);
    assert_null(sink);
    assert_true(throws_bad_alloc([] { sink = ::operator new(opaque(SIZE_MAX)); }));
    bool caught = false;
    std::set_new_handler([]() -> void {
        std::set_new_handler(nullptr);
        throw std::bad_array_new_length();
    });
    try {
        sink = ::operator new(opaque(SIZE_MAX));
    } catch (const std::bad_array_new_length &) {
        caught = true;
    } catch (const std::bad_alloc &) {
    }
    std::set_new_handler(nullptr);
    assert_true(caught);
}

void a_negative_array_length_still_throws_bad_array_new_length(void **) {
    bool caught = false;
    try {
        volatile long count = -1;
        int *array = new int[size_t(count)];
        delete[] array;
    } catch (const std::bad_array_new_length &) {
        caught = true;
    } catch (const std::bad_alloc &) {
#ifdef __clang__ /* asks operator new for SIZE_MAX bytes instead */
        caught = true;
#endif
    }
    assert_true(caught);
}

void the_standard_library_runs_on_it(void **) {
    std::vector<std::string> words;
    for (int i = 0; i < 20000; i++) {
        words.push_back(std::string(size_t(i % 200), char('a' + i % 26)));
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&words] {
            auto copy = std::make_shared<std::vector<std::string>>(words);
            CHECK(copy->at(199).size() == 199);
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    struct alignas(256) wide {
        char bytes[256];
    };
    auto wides = std::make_unique<wide[]>(10);
    assert_int_equal(reinterpret_cast<uintptr_t>(wides.get()) % 256, 0);
    assert_int_equal(words[19999].size(), 199);
}

std::atomic<int> destroyed;

/* Frees when its thread ends, and allocates once more on that way. */
struct late_freeing {
    std::vector<std::string> words{1000, std::string(100, 'w')};
    ~late_freeing() {
        words.resize(3000, std::string(200, 'x'));
        destroyed++;
    }
};

void thread_local_objects_free_when_their_thread_ends(void **) {
    std::vector<std::thread> threads;
    destroyed = 0;
    for (int i = 0; i < 16; i++) {
        threads.emplace_back([] {
            thread_local late_freeing object;
            CHECK(object.words[999].size() == 100);
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    assert_int_equal(destroyed.load(), 16);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_forms_allocate_and_free),
        cmocka_unit_test(aligned_forms_allocate_and_free),
        cmocka_unit_test(failure_throws_bad_alloc),
        cmocka_unit_test(an_alignment_that_is_no_power_of_two_fails),
        cmocka_unit_test(new_tries_again_when_the_handler_made_room),
        cmocka_unit_test(failure_of_nothrow_forms_returns_null),
        cmocka_unit_test(new_handler_is_called_until_it_gives_up),
        cmocka_unit_test(new_succeeds_once_the_handler_made_room),
        cmocka_unit_test(an_exception_of_the_handler_passes_through),
        cmocka_unit_test(a_negative_array_length_still_throws_bad_array_new_length),
        cmocka_unit_test(the_standard_library_runs_on_it),
        cmocka_unit_test(thread_local_objects_free_when_their_thread_ends),
    };
    return cmocka_run_group_tests_name("new", tests, nullptr, heap_is_sound);
}
