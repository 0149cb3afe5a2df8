/*
 * cxx_runtime.h - what operator new asks of the C++ runtime, although this library is C and needs none.
 *
 * Used only when memory has run out. Nothing is linked: names of the runtime are found when they are needed,
 * because libstdc++ may arrive after hakmem and out of its sight (a python extension, loaded RTLD_LOCAL).
 */
#ifndef HAK_API_CXX_RUNTIME_H
#define HAK_API_CXX_RUNTIME_H

#include "base/compiler.h"

typedef void (*hak_new_handler)(void);

/*
 * The address of a name of the C++ runtime: `weak`, a weak reference to it, if that was bound when the
 * runtime was linked or loaded; else what the loader knows by the name; else NULL.
 */
void *hak_cxx_symbol(void *weak, const char *name);

/* The program's new-handler, or NULL when it has set none or there is no C++ runtime. */
hak_new_handler hak_cxx_new_handler(void);

/* Throws std::bad_alloc; a fatal line when there is no C++ runtime to throw it with. */
HAK_NORETURN void hak_cxx_throw_bad_alloc(void);

#endif
