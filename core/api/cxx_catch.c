/*
 * cxx_catch.c - see cxx_catch.h. One frame in assembly whose personality routine, asked by the unwinder, says
 * that it catches everything and continues behind the call with the exception's address (Itanium C++ ABI,
 * "Exception handling", level 1: 1.6 and 1.5.3). The unwinder is libgcc's or LLVM's, whichever the C++
 * runtime uses.
 */
#include "api/cxx_catch.h"
#include "api/cxx_runtime.h"
#include "base/atomic.h"
#include <stdint.h>
#include <unwind.h>

typedef void (*set_register_function)(struct _Unwind_Context *, int, _Unwind_Word);
typedef void (*set_address_function)(struct _Unwind_Context *, _Unwind_Ptr);

extern __typeof(_Unwind_SetGR) _Unwind_SetGR __attribute__((weak));
extern __typeof(_Unwind_SetIP) _Unwind_SetIP __attribute__((weak));
extern void *weak_begin_catch(void *) __asm__("__cxa_begin_catch") __attribute__((weak));
extern void weak_end_catch(void) __asm__("__cxa_end_catch") __attribute__((weak));

/*
 * Calls function(context); returns NULL, or the exception object when hak_cxx_personality() has landed the
 * unwinder at hak_cxx_landing.
 */
void *hak_cxx_call(void (*function)(void *), void *context) __attribute__((visibility("hidden")));
extern char hak_cxx_landing[] __attribute__((visibility("hidden")));

_Unwind_Reason_Code hak_cxx_personality(int version, _Unwind_Action actions, uint64_t exception_class,
                                        struct _Unwind_Exception *exception, struct _Unwind_Context *context)
    __attribute__((used, visibility("hidden")));

#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl hak_cxx_call, hak_cxx_landing\n"
        ".hidden hak_cxx_call, hak_cxx_landing\n"
        ".type hak_cxx_call, @function\n"
        "hak_cxx_call:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x1b, hak_cxx_personality\n" /* 0x1b: signed 4 bytes, relative to themselves */
        "    endbr64\n"
        "    subq $8, %rsp\n"
        ".cfi_def_cfa_offset 16\n"
        "    movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    call *%rax\n"
        "    xorl %eax, %eax\n"
        "hak_cxx_landing:\n" /* rax: NULL, or the exception */
        "    endbr64\n"
        "    addq $8, %rsp\n"
        ".cfi_def_cfa_offset 8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size hak_cxx_call, . - hak_cxx_call\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl hak_cxx_call, hak_cxx_landing\n"
        ".hidden hak_cxx_call, hak_cxx_landing\n"
        ".type hak_cxx_call, %function\n"
        "hak_cxx_call:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x1b, hak_cxx_personality\n" /* 0x1b: signed 4 bytes, relative to themselves */
        "    stp x29, x30, [sp, #-16]!\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset 29, -16\n"
        ".cfi_offset 30, -8\n"
        "    mov x29, sp\n"
        "    mov x9, x0\n"
        "    mov x0, x1\n"
        "    blr x9\n"
        "    mov x0, #0\n"
        "hak_cxx_landing:\n" /* x0: NULL, or the exception */
        "    ldp x29, x30, [sp], #16\n"
        ".cfi_def_cfa_offset 0\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size hak_cxx_call, . - hak_cxx_call\n");
#else
#error "cxx_catch.c needs hak_cxx_call in this architecture's assembly"
#endif

/*
 * The unwinder's functions, for the personality routine, which runs while an exception is under way and had
 * better look nothing up. Stored before each call; every thread stores the same.
 */
static _Atomic(set_register_function) set_register;
static _Atomic(set_address_function) set_address;

_Unwind_Reason_Code hak_cxx_personality(int version, _Unwind_Action actions, uint64_t exception_class,
                                        struct _Unwind_Exception *exception,
                                        struct _Unwind_Context *context) {
    (void)version;
    (void)exception_class;
    if (actions & _UA_FORCE_UNWIND) {
        return _URC_CONTINUE_UNWIND;
    }
    if (actions & _UA_SEARCH_PHASE) {
        return _URC_HANDLER_FOUND;
    }
    /* relaxed: this thread stored both before it made the call */
    set_register_function set_gr = hak_atomic_load_relaxed(&set_register);
    set_address_function set_ip = hak_atomic_load_relaxed(&set_address); /* relaxed: as above */
    set_gr(context, __builtin_eh_return_data_regno(0), (_Unwind_Word)(uintptr_t)exception);
    set_ip(context, (_Unwind_Ptr)(uintptr_t)hak_cxx_landing);
    return _URC_INSTALL_CONTEXT;
}

bool hak_cxx_call_caught(void (*function)(void *context), void *context) {
    set_register_function set_gr = hak_cxx_symbol(_Unwind_SetGR, "_Unwind_SetGR");
    set_address_function set_ip = hak_cxx_symbol(_Unwind_SetIP, "_Unwind_SetIP");
    void *(*begin_catch)(void *) = hak_cxx_symbol(weak_begin_catch, "__cxa_begin_catch");
    void (*end_catch)(void) = hak_cxx_symbol(weak_end_catch, "__cxa_end_catch");
    if (set_gr == NULL || set_ip == NULL || begin_catch == NULL || end_catch == NULL) {
        function(context);
        return true;
    }
    hak_atomic_store_relaxed(&set_register, set_gr); /* relaxed: see hak_cxx_personality() */
    hak_atomic_store_relaxed(&set_address, set_ip);  /* relaxed: the same */
    void *exception = hak_cxx_call(function, context);
    if (exception == NULL) {
        return true;
    }
    begin_catch(exception);
    end_catch();
    return false;
}
