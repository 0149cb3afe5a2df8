#!/usr/bin/env python3
"""What the loader reads in the shared libraries: needs libc alone, can be loaded late, keeps nothing writable that
need not be.
"""
import re
import subprocess
import sys

from common import main

# What glibc keeps spare for thread-local data of libraries that dlopen brings in.
TLS_BYTES_MAX = 448

# From here on the kernel aligns the mapping to huge pages, and libc's pages beside it come out worse (heap/heap.c).
SPAN_BYTES_MAX = 2 * 1024 * 1024 - 1


def readelf(option, library):
    return subprocess.run(
        ["readelf", "-W", option, str(library)], capture_output=True, text=True, check=True
    ).stdout


def check_one(library):
    dynamic, segments, symbols = (readelf(option, library) for option in ("-d", "-l", "--dyn-syms"))
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)(.*)", dynamic)).split()
    tls = re.search(r"^\s*TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", segments, re.M)
    stack = re.search(r"^\s*GNU_STACK\s+(?:0x\S+\s+){5}([RWE ]+?)\s+0x", segments, re.M)
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    loads = re.findall(r"^\s*LOAD\s+0x\S+\s+(0x\S+)\s+0x\S+\s+0x\S+\s+(0x\S+)", segments, re.M)
    span = max(int(at, 16) + int(length, 16) for at, length in loads)
    writable_code = re.search(r"^\s*LOAD\s+(?:0x\S+\s+){5}RWE", segments, re.M)
    rules = [
        (needed == ["libc.so.6"], f"needs {', '.join(needed) or 'nothing'}, not libc.so.6 alone"),
        (soname and re.fullmatch(r"libhakmem\.so\.\d+", soname.group(1)), "its soname is not libhakmem.so.N"),
        ("BIND_NOW" in flags or "NOW" in flags, "is bound lazily (-z now)"),
        ("NODELETE" in flags, "can be unloaded (-z nodelete)"),
        ("TEXTREL" not in flags and "(TEXTREL)" not in dynamic, "has relocations in its code"),
        (re.search(r"^\s*GNU_RELRO ", segments, re.M), "its relocated data stays writable (-z relro)"),
        (stack and "E" not in stack.group(1), "asks for an executable stack"),
        (not writable_code, "has a segment that is writable and executable"),
        (
            not tls or int(tls.group(1), 16) <= TLS_BYTES_MAX,
            f"has {int(tls.group(1), 16) if tls else 0} bytes of TLS, the most is {TLS_BYTES_MAX}",
        ),
        (
            # Compilers set such code apart from -O2 on.
            "debug" in library.name or re.search(r"^\s+\d+\s+\.text\.hak_cold\s*$", segments, re.M),
            "maps its rarely run code together with other sections (core/layout.ld)",
        ),
        (
            "debug" in library.name or span <= SPAN_BYTES_MAX,
            f"spans {span} bytes, the most is {SPAN_BYTES_MAX}",
        ),
        ("__tls_get_addr" not in symbols, "finds thread-local data by calls, not by initial-exec offsets"),
    ]
    return [f"{library.name}: {text}" for is_kept, text in rules if not is_kept]


def check(root):
    return check_one(root / "libhakmem.so") + check_one(root / "libhakmem-debug.so")


if __name__ == "__main__":
    sys.exit(main(check))
