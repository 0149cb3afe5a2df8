/*
 * throws.cc - a C++ library that a C program opens late: C++ failures of new must work in it all the same.
 */
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace {
unsigned handler_calls;
void *volatile sink;

void give_up_on_second_call() {
    if (++handler_calls == 2) {
        std::set_new_handler(nullptr);
    }
}
} // namespace

/* How many of the four throwing forms threw std::bad_alloc for a size that cannot be. */
extern "C" int throws_count(void) {
    volatile std::size_t bytes = SIZE_MAX / 2 + 1;
    int count = 0;
    for (int form = 0; form < 4; form++) {
        try {
            sink = form == 0   ? ::operator new(bytes)
                   : form == 1 ? ::operator new[](bytes)
                   : form == 2 ? ::operator new(bytes, std::align_val_t(64))
                               : ::operator new[](bytes, std::align_val_t(64));
        } catch (const std::bad_alloc &) {
            count++;
        }
    }
    return count;
}

extern "C" unsigned throws_handler_calls(void) {
    volatile std::size_t bytes = SIZE_MAX / 2 + 1;
    handler_calls = 0;
    std::set_new_handler(give_up_on_second_call);
    sink = ::operator new(bytes, std::nothrow);
    return sink == nullptr ? handler_calls : 0;
}

/* An ordinary load of strings; returns the number of characters. */
extern "C" std::size_t throws_work(void) {
    std::vector<std::string> words;
    std::size_t characters = 0;
    for (std::size_t i = 0; i < 1000; i++) {
        words.emplace_back(i % 100, 'x');
    }
    for (const auto &word : words) {
        characters += word.size();
    }
    return characters;
}
