/*
 * own_operators.h - what programs have in common that replace some of C++'s operators.
 */
#ifndef TESTS_API_OWN_OPERATORS_H
#define TESTS_API_OWN_OPERATORS_H

#include <cstddef>

/* That the sized forms are not among them is the point. */
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

namespace {

constexpr size_t LEAD_BYTES = 64; /* before each block of the program's own operators: free() would abort */

const size_t sizes[] = {1, 40, 1000, 40000};

/* Compilers may leave out a pair of new and delete, and know what they think of alignment. */
template <typename T> T opaque(T value) {
    T volatile hidden = value;
    return hidden;
}

} // namespace

#endif
