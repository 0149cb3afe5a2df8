#!/usr/bin/env python3
"""Who may include whom in core/, and who may talk to the kernel.

1. A file of core/FLOOR/ includes files of its own floor and of floors below; the order is FLOORS in the Makefile.
2. Headers do not include each other in a circle.
3. Only core/os/os_linux.c and core/os/memory_linux.c make system calls.
"""
import re
import sys

from common import c_sources, main

KERNEL_FILES = ("core/os/os_linux.c", "core/os/memory_linux.c")
# A call, not a member (->read) and not the tail of a longer name.
SYSTEM_CALL = re.compile(
    r"(?<![\w.>])(mmap|mmap64|munmap|madvise|mremap|mprotect|mincore|mlock|munlock|brk|sbrk|syscall|futex|prctl|"
    r"write|writev|read|pread|open|openat|close|fork|vfork|clone|pthread_create|sched_yield|nanosleep|usleep|sleep)"
    r"\s*\("
)


def floors(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    return re.search(r"^FLOORS := (.*)$", makefile, re.M).group(1).split()


def cycle_through(start, edges):
    """A list of headers that leads from start back to it, or None."""
    stack, seen = [(start, [start])], set()
    while stack:
        here, path = stack.pop()
        for there in sorted(edges.get(here, ())):
            if there == start:
                return path + [start]
            if there not in seen:
                seen.add(there)
                stack.append((there, path + [there]))
    return None


def check(root):
    order = floors(root)
    violations = []
    edges = {}
    for source in c_sources(root, "core"):
        own = source.name.split("/")[1]
        if own not in order:
            violations.append(f"{source.name}:1: the folder {own} is no floor in the Makefile's FLOORS")
            continue
        for number, line in enumerate(source.text.split("\n"), 1):
            found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not found or found.group(1) == "hakmem.h":
                continue
            target = found.group(1)
            floor = target.split("/")[0]
            if floor not in order or not (root / "core" / target).is_file():
                violations.append(f'{source.name}:{number}: includes "{target}", which is no FLOOR/file of core/')
            elif order.index(floor) > order.index(own):
                violations.append(f'{source.name}:{number}: floor {own} includes "{target}" from a floor above it')
            elif source.name.endswith(".h"):
                edges.setdefault(source.name[len("core/") :], set()).add(target)
        if source.name not in KERNEL_FILES:
            for found in SYSTEM_CALL.finditer(source.code):
                violations.append(
                    f"{source.name}:{source.line_of(found.start())}: calls {found.group(1)}(); "
                    f"only {' and '.join(KERNEL_FILES)} talk to the kernel"
                )
    reported = set()
    for start in sorted(edges):
        cycle = cycle_through(start, edges)
        if cycle and not reported & set(cycle):
            reported |= set(cycle)
            violations.append(f"core/{start}:1: headers include each other in a circle: {' -> '.join(cycle)}")
    return violations


if __name__ == "__main__":
    sys.exit(main(check))
