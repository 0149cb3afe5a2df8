/*
 * object.h - where a shared object or program that is loaded lies. Any thread.
 */
#ifndef HAK_CHECK_OBJECT_H
#define HAK_CHECK_OBJECT_H

#include "base/compiler.h"

/* The end of the last segment of the object that is loaded at `base`, where its ELF header is. */
uintptr_t hak_object_end(uintptr_t base);

#endif
