/*
 * own_code.c - see own_code.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* Dl_info */
#endif
#include "check/own_code.h"
#include "check/libc.h"
#include "check/object.h"
#include "os/os.h"
#include <elf.h>
#include <link.h>
#include <string.h>

struct hak_own_code hak_own_code;

/* A program at a fixed address that takes malloc's gives an entry of its own for it, a symbol without a
 * definition: that leads to the first library that has one. */
static bool is_other_malloc(uintptr_t low, uintptr_t high) {
    Dl_info object;
    const ElfW(Sym) *symbol = NULL;
    uintptr_t address = (uintptr_t)hak_check_libc.malloc;
    return hak_check_libc.dladdr1 != NULL && (address < low || address >= high) &&
           hak_check_libc.dladdr1((const void *)address, &object, (void **)&symbol, HAK_DLADDR_SYMBOL) != 0 &&
           symbol != NULL && symbol->st_shndx != SHN_UNDEF;
}

void hak_own_code_find(void) {
    Dl_info own;
    if (hak_check_libc.dladdr == NULL ||
        hak_check_libc.dladdr((const void *)(uintptr_t)hak_own_code_find, &own) == 0 ||
        memcmp(own.dli_fbase, ELFMAG, SELFMAG) != 0) {
        return;
    }
    uintptr_t base = (uintptr_t)own.dli_fbase;
    uintptr_t end = hak_object_end(base);
    if (hak_os_program_entry() < base || hak_os_program_entry() >= end) {
        hak_own_code.low = base;
        hak_own_code.high = end;
        hak_own_code.has_other_malloc = is_other_malloc(base, end);
    }
}
