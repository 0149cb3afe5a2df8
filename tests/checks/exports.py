#!/usr/bin/env python3
"""The libraries define exactly the names that hakmem promises.

Of the shared ones (libhakmem.so, libhakmem-debug.so): the dynamic symbols. Of the archive: the global symbols of
default visibility, which leave out dlopen and dlmopen; every other global name of it starts with hak_, so that no program that
links it can collide with one.
"""
import re
import subprocess
import sys

from common import Source, main

LIBC = """
    malloc free calloc realloc reallocarray memalign aligned_alloc posix_memalign valloc pvalloc
    malloc_usable_size malloc_trim mallopt mallinfo mallinfo2 malloc_stats malloc_info
    cfree free_sized free_aligned_sized
    __libc_malloc __libc_free __libc_calloc __libc_realloc __libc_memalign __libc_valloc __libc_pvalloc
    __posix_memalign
""".split()
NOTHROW, ALIGN = "RKSt9nothrow_t", "St11align_val_t"
NEW = [f"_Zn{kind}m{rest}" for kind in "wa" for rest in ("", NOTHROW, ALIGN, ALIGN + NOTHROW)]
DELETE = [
    f"_Zd{kind}Pv{rest}" for kind in "la" for rest in ("", "m", NOTHROW, ALIGN, "m" + ALIGN, ALIGN + NOTHROW)
]
SHARED_ONLY = ["dlopen", "dlmopen"]


def public_names(root):
    """The functions that include/hakmem.h declares."""
    code = Source(root, root / "include/hakmem.h").code
    return [name for name in re.findall(r"\b(hak_\w+)\s*\([^;{}]*\)\s*;", code)]


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def differences(library, found, wanted):
    return [f"{library}: exports {name}, which nobody promised" for name in sorted(found - wanted)] + [
        f"{library}: does not export {name}" for name in sorted(wanted - found)
    ]


def check(root):
    wanted = set(LIBC + NEW + DELETE + public_names(root))
    violations = []
    for name in ("libhakmem.so", "libhakmem-debug.so"):
        listed = output_of("nm", "-D", "--defined-only", "--format=posix", str(root / name))
        found = {line.split()[0].split("@")[0] for line in listed.splitlines()}
        violations += differences(name, found, wanted | set(SHARED_ONLY))
    table = output_of("readelf", "-sW", str(root / "libhakmem.a"))
    row = re.compile(r"\b(?:GLOBAL|WEAK)\s+(DEFAULT|HIDDEN|PROTECTED|INTERNAL)\s+(?:ABS|COM|\d+)\s+(\S+)$", re.M)
    symbols = row.findall(table)
    exported = {name for visibility, name in symbols if visibility == "DEFAULT"}
    violations += differences("libhakmem.a", exported, wanted)
    for visibility, name in symbols:
        # gcc's LTO marks each source with a global like lock.c.2cbc66dc, which no C name can meet.
        if visibility != "DEFAULT" and not name.startswith("hak_") and "." not in name:
            violations.append(f"libhakmem.a: the internal name {name} does not start with hak_")
    return violations


if __name__ == "__main__":
    sys.exit(main(check))
