/*
 * cxx_runtime.c - see cxx_runtime.h. Throwing goes by the steps that a compiler generates for
 * `throw std::bad_alloc()` (Itanium C++ ABI, "Exception handling", 2.4.1 to 2.4.3), which every runtime has.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api/cxx_runtime.h"
#include "os/fatal.h"
#include <dlfcn.h>

/* Weak: a program linked with -static has no loader to ask. */
extern __typeof(dlsym) dlsym __attribute__((weak));

typedef void *(*allocate_function)(size_t bytes);
typedef void (*throw_function)(void *object, void *type, void (*destroy)(void *));

extern __typeof(hak_cxx_new_handler) weak_get_new_handler __asm__("_ZSt15get_new_handlerv")
    __attribute__((weak));
extern void *weak_allocate(size_t) __asm__("__cxa_allocate_exception") __attribute__((weak));
extern void weak_throw(void *, void *, void (*)(void *)) __asm__("__cxa_throw") __attribute__((weak));
extern char weak_type[] __asm__("_ZTISt9bad_alloc") __attribute__((weak));
extern char weak_vtable[] __asm__("_ZTVSt9bad_alloc") __attribute__((weak));

static const char *const runtimes[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"};

/* The name in a runtime that some library has loaded for itself; its dependencies are searched too. */
static void *local_symbol(const char *name) {
    /* By look-up: a direct reference makes the linker warn about dlopen in each program linked with -static.
     */
    __typeof(&dlopen) open_runtime = dlsym(RTLD_DEFAULT, "dlopen");
    __typeof(&dlclose) close_runtime = dlsym(RTLD_DEFAULT, "dlclose");
    if (open_runtime == NULL || close_runtime == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < HAK_COUNT_OF(runtimes); i++) {
        void *runtime = open_runtime(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        if (runtime == NULL) {
            continue;
        }
        void *found = dlsym(runtime, name);
        /* Whoever calls operator new holds the runtime, so it stays without this handle. */
        (void)close_runtime(runtime);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

void *hak_cxx_symbol(void *weak, const char *name) {
    if (weak != NULL || dlsym == NULL) {
        return weak;
    }
    void *found = dlsym(RTLD_DEFAULT, name);
    return found != NULL ? found : local_symbol(name);
}

hak_new_handler hak_cxx_new_handler(void) {
    __typeof(&hak_cxx_new_handler) get = hak_cxx_symbol(weak_get_new_handler, "_ZSt15get_new_handlerv");
    return get != NULL ? get() : NULL;
}

/* Makes and throws the object; returns when the runtime lacks a part of that. */
static void throw_by_hand(void) {
    allocate_function allocate = hak_cxx_symbol(weak_allocate, "__cxa_allocate_exception");
    throw_function throw_object = hak_cxx_symbol(weak_throw, "__cxa_throw");
    void *type = hak_cxx_symbol(weak_type, "_ZTISt9bad_alloc");
    void **vtable = hak_cxx_symbol(weak_vtable, "_ZTVSt9bad_alloc");
    if (allocate == NULL || throw_object == NULL || type == NULL || vtable == NULL) {
        return;
    }
    /*
     * std::bad_alloc is the address of its virtual functions, which start at the table's third entry, and
     * nothing else; so it needs no destructor.
     */
    void **object = allocate(sizeof *object);
    *object = &vtable[2];
    throw_object(object, type, NULL);
}

HAK_COLD void hak_cxx_throw_bad_alloc(void) {
    throw_by_hand();
    hak_fatal_text("operator new: out of memory, and no C++ runtime to throw std::bad_alloc");
}
