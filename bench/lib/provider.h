// Which loaded object defines the function that a name resolves to in this process.
//
// Does: look the name up as the dynamic linker does. In an executable that is not position-independent and
// takes the function's address, that yields a stub inside the executable; then the objects behind it
// are asked in the linker's order, and the first that defines the name itself is the answer.
// Does not: tell which function an already bound call goes to, when a library was loaded with a scope of its
// own. Called by: the bench programs (report.c) and the witness.
#ifndef BENCH_LIB_PROVIDER_H
#define BENCH_LIB_PROVIDER_H

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// The object of `list` (or one after it) that defines `function`, "" if there is none.
static inline const char *provider_behind(struct link_map *list, const char *function) {
    for (struct link_map *map = list; map != NULL; map = map->l_next) {
        void *handle = map->l_name[0] != '\0' ? dlopen(map->l_name, RTLD_NOLOAD | RTLD_LAZY) : NULL;
        if (handle == NULL) {
            continue;
        }
        void *address = dlsym(handle, function);
        Dl_info info;
        bool is_own =
            address != NULL && dladdr(address, &info) != 0 && strcmp(info.dli_fname, map->l_name) == 0;
        dlclose(handle);
        if (is_own) {
            return map->l_name;
        }
    }
    return "";
}

static inline const char *provider_of(const char *function) {
    void *address = dlsym(RTLD_DEFAULT, function);
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    struct link_map *map = NULL;
    if (address == NULL || dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 ||
        dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0) {
        return "";
    }
    bool is_stub = symbol != NULL && symbol->st_shndx == SHN_UNDEF;
    return is_stub ? provider_behind(map->l_next, function) : info.dli_fname;
}

#endif
