/*
 * cxx_catch.h - calling a function of the program's that may throw, from C.
 *
 * The nothrow forms of operator new owe NULL to a caller whose new-handler, or whose own operator new, throws
 * std::bad_alloc, and C has no catch: see cxx_catch.c.
 */
#ifndef HAK_API_CXX_CATCH_H
#define HAK_API_CXX_CATCH_H

#include "base/compiler.h"

/*
 * Calls function(context). False when it threw: the exception is caught and gone. Thread cancellation passes
 * through, and so does an exception where the architecture (neither x86-64 nor aarch64) or the runtime gives
 * no way to catch it.
 */
bool hak_cxx_call_caught(void (*function)(void *context), void *context);

#endif
