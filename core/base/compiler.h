/*
 * compiler.h - what the code asks of the compiler, under one name each.
 */
#ifndef HAK_BASE_COMPILER_H
#define HAK_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A gate begins a cache line, and the shared library's lie at the same place in each build (layout.ld): where
 * they lay by chance, the same code took up to 1.5 times as long.
 */
#define HAK_GATE __attribute__((aligned(64), section(".text.hak_gate")))
/* The same for the operators of C++. */
#define HAK_GATE_CXX __attribute__((aligned(64), section(".text.hak_gate_cxx")))

#define HAK_API      __attribute__((visibility("default")))
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD     __attribute__((noinline, cold))
#define HAK_INLINE   static inline
/* For the allocation and free gates alone: they are two calls' whole bodies and gcc must not outline them. */
#define HAK_ALWAYS_INLINE static inline __attribute__((always_inline))
/* What each process runs once, when it starts. Left to itself gcc puts it among what is rarely run, whose
 * pages a trivial process should not have (layout.ld). */
#define HAK_AT_START __attribute__((section(".text.startup")))
/* A big zeroed table of which few pages are ever touched: it lies behind all small variables, see layout.ld.
 */
#define HAK_TABLE __attribute__((section(".bss.hak_table")))
/*
 * What every thread reads and hardly any writes lies together in the shared library, apart from all that is
 * written often: a read would wait for the line to come back from whoever wrote beside it. What threads
 * contend for has a line of its own.
 */
#define HAK_READ_MOSTLY __attribute__((section(".data.hak_read_mostly")))
#define HAK_CONTENDED   __attribute__((section(".data.hak_contended"), aligned(64)))
#define HAK_NORETURN    __attribute__((noreturn))
#define HAK_TLS         __thread __attribute__((tls_model("initial-exec")))

/* Called with a range of address space; a result other than 0 ends the visit. */
typedef int (*hak_range_visitor)(void *address, size_t bytes, void *context);

/*
 * The value, in a register by now and not to be computed again: it is there when it is needed, and gcc 12
 * makes one instruction of it where it would make two (measured on the gates, x86-64).
 */
HAK_ALWAYS_INLINE uintptr_t hak_in_register(uintptr_t value) {
    __asm__("" : "+r"(value));
    return value;
}

/*
 * The compiler forgets what it read from memory. What changes there next is then added to in place, one
 * instruction on x86-64 in place of two.
 */
HAK_ALWAYS_INLINE void hak_read_anew(void) {
#if defined(__x86_64__)
    __asm__("" ::: "memory");
#endif
}

/* A signal handler of this thread sees what was stored before this, if it sees what was stored after it. */
HAK_ALWAYS_INLINE void hak_keep_order(void) {
    __asm__("" ::: "memory");
}

#define HAK_LIKELY(x)   __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define HAK_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
