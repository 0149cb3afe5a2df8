#!/usr/bin/env python3
"""Every atomic access says with whom it pairs, or why it needs no partner.

The rules, for each hak_atomic_* call in core/ (base/atomic.h, which defines them, aside):
1. `_acquire`, `_release` and `_acq_rel`: a comment says "pairs with ... in f()". Each f named so is a function of
   core/ that holds the other half: an acquire for a release, a release for an acquire. Several partners, in one
   file or several, are joined by "and" or commas: "pairs with the store in f() and g()".
2. `_relaxed`: a comment says "relaxed: why".
3. The comment stands where the reader's eye is: directly above the statement, or inside or at the end of one of
   the statement's own lines. One comment above serves a whole run of statements, up to the first line that holds
   no atomic access of the order that the comment speaks of.
4. Nothing outside base/atomic.h uses <stdatomic.h>'s functions, __atomic or __sync builtins, or volatile, and no
   _Atomic object is read or written by plain C, which would be seq_cst (clang finds these; skipped without it).
"""
import re
import shutil
import subprocess
import sys

from common import c_sources, functions_of, main

WRAPPERS = "core/base/atomic.h"
ACCESS = re.compile(r"\bhak_atomic_\w+?_(relaxed|acquire|release|acq_rel)\s*\(")
RAW = re.compile(
    r"\b(atomic_(?:load|store|exchange|fetch|compare|init|thread_fence|signal_fence|flag|is_lock)\w*"
    r"|__atomic_\w+|__sync_\w+|volatile)\b"
)
PARTNERS = re.compile(r"pairs with\b(.*)", re.S)
CALL_NAME = re.compile(r"\b(\w+)\(\)")
OTHER_HALVES = {
    "acquire": {"release", "acq_rel"},
    "release": {"acquire", "acq_rel"},
    "acq_rel": {"acquire", "release", "acq_rel"},
}
# A line that ends so ends the statement before or starts a new one behind it.
STATEMENT_END = re.compile(r"[;{}:]\s*$")


def says(comment, order):
    if order == "relaxed":
        return re.search(r"\brelaxed:", comment) is not None
    return PARTNERS.search(comment) is not None


class Places:
    """Where the comments and statements of one file stand."""

    def __init__(self, source):
        self.source = source
        self.comments_on = {}  # line -> comments that touch it
        for comment in source.comments:
            for line in range(comment[0], comment[1] + 1):
                self.comments_on.setdefault(line, []).append(comment)
        self.orders_on = {}  # line -> orders of the accesses on it
        for found in ACCESS.finditer(source.code):
            self.orders_on.setdefault(source.line_of(found.start()), set()).add(found.group(1))

    def code(self, line):
        return self.source.lines[line - 1].strip() if 1 <= line <= len(self.source.lines) else ""

    def statement(self, line):
        """The first and last line of the statement that the line is part of."""
        first, last = line, line
        while self.code(first - 1) and not STATEMENT_END.search(self.code(first - 1)):
            if self.code(first - 1).startswith("#"):
                break
            first -= 1
        while not STATEMENT_END.search(self.code(last)) and last < len(self.source.lines):
            last += 1
        return first, last

    def is_comment_alone(self, line):
        return not self.code(line) and line in self.comments_on

    def comments_above(self, line):
        found = []
        while self.is_comment_alone(line - 1):
            line -= 1
            found += [comment for comment in self.comments_on[line] if comment not in found]
        return found

    def comments_for(self, line, order):
        """The comments that rule 3 lets speak for an access on this line."""
        first, last = self.statement(line)
        found = [comment for at in range(first, last + 1) for comment in self.comments_on.get(at, [])]
        found += self.comments_above(first)
        # The run above: statements that hold the same order, back to the comment over the first of them.
        while not self.comments_above(first) and first > 1 and self.code(first - 1):
            above_first, above_last = self.statement(first - 1)
            if not any(order in self.orders_on.get(at, ()) for at in range(above_first, above_last + 1)):
                break
            found += self.comments_above(above_first)
            first = above_first
        return [text for _, _, text in found]


def half_of(body):
    """The orders that occur in a function, fences of a partner in an inline helper not counted."""
    return {found.group(1) for found in ACCESS.finditer(body)} - {"relaxed"}


def violations_of_access(places, line, order, halves):
    comments = [text for text in places.comments_for(line, order) if says(text, order)]
    where = f"{places.source.name}:{line}"
    if not comments:
        wanted = '"relaxed: why"' if order == "relaxed" else '"pairs with ... in f()"'
        return [f"{where}: {order} without a comment that says {wanted}"]
    if order == "relaxed":
        return []
    names = [name for text in comments for name in CALL_NAME.findall(PARTNERS.search(text).group(1))]
    if not names:
        return [f"{where}: {order} pairs with a partner that is not named as f()"]
    found = [f"{where}: pairs with {name}(), which is no function of core/" for name in names if name not in halves]
    known = [name for name in names if name in halves]
    if known and not any(halves[name] & OTHER_HALVES[order] for name in known):
        found.append(f"{where}: {order} pairs with {known[0]}(), which holds no other half of it")
    return found


def implicit_accesses(root):
    """What clang says of _Atomic objects used by plain C."""
    clang = shutil.which("clang")
    if clang is None:
        print("skipped: atomics: accesses by plain C: clang is not installed")
        return []
    files = [str(path.relative_to(root)) for path in sorted((root / "core").glob("*/*.c"))]
    flags = "-std=gnu17 -fsyntax-only -Icore -Iinclude -w -Wno-everything -Watomic-implicit-seq-cst"
    told = subprocess.run(
        [clang, *flags.replace("-w ", "").split(), "-DHAKMEM_BUILD_RELEASE=1", *files],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    pattern = re.compile(r"^(core/\S+?:\d+):\d+: (?:warning|error|fatal error): (.*)$", re.M)
    return sorted({f"{place}: {text}" for place, text in pattern.findall(told.stderr)})


def check(root):
    sources = [source for source in c_sources(root, "core") if source.name != WRAPPERS]
    halves = {}
    for source in sources:
        for name, _, _, body in functions_of(source):
            halves.setdefault(name, set()).update(half_of(body))
    violations = []
    for source in sources:
        places = Places(source)
        for found in ACCESS.finditer(source.code):
            violations += violations_of_access(places, source.line_of(found.start()), found.group(1), halves)
        for found in RAW.finditer(source.code):
            line = source.line_of(found.start())
            violations.append(f"{source.name}:{line}: {found.group(1)} outside {WRAPPERS}")
    return violations + implicit_accesses(root)


if __name__ == "__main__":
    sys.exit(main(check))
