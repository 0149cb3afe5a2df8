#!/usr/bin/env python3
"""The shape of the hit paths: malloc, free, aligned requests and their C++ names, as they were compiled.

Follows each gate from its entry, no conditional jump taken, to its return: that is the path of a hit. On it there
is no call, no jump backwards, no push and no frame, and no more instructions than were counted when it was written.
Each begins a cache line, but for those of aligned requests.
A free asks for the block's first line, which the next malloc of it is to find; nothing else asks for any.
What a hit costs is one straight line; whatever a compiler or an edit adds shows here. x86-64 alone.

Nor does the loop that moves a cache's entries call the C library or use a string instruction, whose speed depends on
how far apart the entries lie, however much a compiler may like to make one of it.

suite: limit 60 s
"""

import os
import platform
import re
import subprocess
import sys

LIBRARY = os.path.join(os.environ["TEST_ROOT"], "libhakmem.so")

# Instructions of a hit, its return included. malloc and free of 64 bytes together are the pair of bench/instr.
MOST = {
    "malloc": 17,
    "free": 31,
    "_Znwm": 17,
    "_Znam": 17,
    "_ZdlPv": 31,
    "_ZdaPv": 31,
    "_ZdlPvm": 31,
    "_ZdaPvm": 31,
}
# The same of blocks that are to be aligned, which need not begin a cache line.
MOST_ALIGNED = {
    "aligned_alloc": 34,
    "posix_memalign": 36,
    "_ZnwmSt11align_val_t": 35,
}
MOVES = "hak_block_refs_move"
FREES = ("free", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm")
LINE_BYTES = 64
FORBIDDEN = re.compile(r"(call|push|pop|enter|leave|loop|rep|lock|xchg|cmpxchg|mfence)")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")


def entries(*options):
    """Name -> address of the library's functions."""
    out = subprocess.run(["nm", "--defined-only", *options, LIBRARY], capture_output=True, text=True, check=True)
    rows = (line.split() for line in out.stdout.splitlines())
    return {name.split("@")[0]: int(address, 16) for address, _, name in rows}


def instructions(start):
    """(address, mnemonic, operands) from `start` on, as many as a gate could have."""
    out = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", f"--start-address={start}", f"--stop-address={start + 512}", LIBRARY],
        capture_output=True, text=True, check=True)
    found = []
    for line in out.stdout.splitlines():
        match = LINE.match(line)
        if match:
            found.append((int(match[1], 16), match[2], match[3]))
    return found


def hit_path(start):
    """The instructions of a hit, or a complaint."""
    path = []
    for address, mnemonic, operands in instructions(start):
        if mnemonic.startswith(("nop", "endbr", "cs", "data16", "xchg")) and not path:
            continue
        path.append((address, mnemonic, operands))
        if FORBIDDEN.match(mnemonic) and not mnemonic.startswith("ret"):
            return path, f"{mnemonic} {operands} at {address:x}"
        if mnemonic.startswith("ret"):
            return path, None
        if mnemonic.startswith("j"):
            target = re.match(r"([0-9a-f]+)", operands)
            if mnemonic == "jmp":
                return path, f"a jump at {address:x}: the hit path does not end in a return"
            if target and int(target[1], 16) <= address:
                return path, f"a jump backwards at {address:x}"
        if re.search(r"%rsp", operands):
            return path, f"the stack is used at {address:x}"
    return path, "no return within 512 bytes"


def moves_complaint():
    """What the loop that moves entries has that it should not, or None."""
    start = entries().get(MOVES)
    if start is None:
        return f"no function {MOVES}"
    for address, mnemonic, operands in instructions(start):
        if mnemonic.startswith("ret"):
            return None
        if FORBIDDEN.match(mnemonic) or mnemonic == "jmp":
            return f"{mnemonic} {operands} at {address:x}"
    return "no return within 512 bytes"


def main():
    if platform.machine() != "x86_64":
        print("skipped: gates: the shape is known for x86-64 alone\n0 passed, 0 failed, 1 skipped")
        return 0
    addresses = entries("-D")
    failed = 0
    for name, most in (MOST | MOST_ALIGNED).items():
        path, complaint = hit_path(addresses[name])
        if complaint is None and len(path) > most:
            complaint = f"{len(path)} instructions, {most} are enough"
        if complaint is None and name in MOST and addresses[name] % LINE_BYTES != 0:
            complaint = f"begins at {addresses[name]:x}, within a cache line"
        if complaint is None and not any("%fs:" in operands for _, _, operands in path):
            complaint = "returns without the thread's caches: that is no hit"
        prefetched = [operands for _, mnemonic, operands in path if mnemonic.startswith("prefetch")]
        if complaint is None and prefetched != (["(%rdi)"] if name in FREES else []):
            complaint = f"prefetches {prefetched or 'nothing'}"
        if complaint is not None:
            failed += 1
            print(f"{name}: {complaint}")
            for address, mnemonic, operands in path:
                print(f"    {address:x} {mnemonic} {operands}")
    complaint = moves_complaint()
    if complaint is not None:
        failed += 1
        print(f"{MOVES}: {complaint}")
    print(f"{len(MOST) + len(MOST_ALIGNED) + 1 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
