/*
 * object.c - see object.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ElfW */
#endif
#include "check/object.h"
#include <link.h>

uintptr_t hak_object_end(uintptr_t base) {
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + header->e_phoff);
    uintptr_t end = base;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segment[i].p_type == PT_LOAD && base + segment[i].p_vaddr + segment[i].p_memsz > end) {
            end = base + segment[i].p_vaddr + segment[i].p_memsz;
        }
    }
    return end;
}
