#!/usr/bin/env python3
"""Shows that every check fails on what it is there to find, and on nothing else.

Each case puts one file, or one small library, into a scratch tree that is otherwise clean, and expects the check to
name it; `None` expects silence, for what a check must let pass.
"""
# suite: limit 120 s
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import exports
from common import ROOT, Skipped

CC = os.environ.get("CC", "gcc").split()

ATOMICS_HEAD = """#include "base/atomic.h"
static _Atomic int word;
static int reader(void) {
    return hak_atomic_load_acquire(&word); /* acquire: pairs with the store in writer() */
}
static void writer(void) {
    /* release: pairs with the load in reader() */
    hak_atomic_store_release(&word, 1);
}
int use(void);
int use(void) {
    writer();
    return reader();
}
"""


def atomics(body):
    return ATOMICS_HEAD + f"int planted(void);\nint planted(void) {{\n{body}\n    return 0;\n}}\n"


# (what, check, path of the planted file, its text, what the check must say or None)
FILES = [
    ("an include of a floor above", "layers", "core/base/planted.c", '#include "os/os.h"\n', "floor base includes"),
    ("an include of the own floor", "layers", "core/os/planted.c", '#include "os/os.h"\n', None),
    ("an include of a floor below", "layers", "core/heap/planted.c", '#include "os/os.h"\n', None),
    ("a folder that is no floor", "layers", "core/attic/planted.c", "int planted;\n", "attic is no floor"),
    ("an include by a path of its own", "layers", "core/os/planted.c", '#include "os.h"\n', "no FLOOR/file"),
    ("a header that includes itself", "layers", "core/os/planted.h", '#include "os/planted.h"\n', "in a circle"),
    ("a system call", "layers", "core/heap/planted.c", "void f(void) { munmap(0, 1); }\n", "calls munmap()"),
    ("a system call in a comment", "layers", "core/heap/planted.c", "/* as munmap(0, 1) does */\n", None),
    ("a member named like one", "layers", "core/heap/planted.c", "int f(void) { return x->read(1); }\n", None),
    (
        "partners that name each other",
        "atomics",
        "core/heap/planted.c",
        atomics("    /* relaxed: a statistic */\n    (void)hak_atomic_load_relaxed(&word);"),
        None,
    ),
    (
        "one comment over a run",
        "atomics",
        "core/heap/planted.c",
        atomics(
            "    /* relaxed: statistics */\n    (void)hak_atomic_load_relaxed(&word);\n"
            "    (void)hak_atomic_load_relaxed(&word);"
        ),
        None,
    ),
    (
        "a comment above that a statement cuts off",
        "atomics",
        "core/heap/planted.c",
        atomics("    /* relaxed: a statistic */\n    use();\n    (void)hak_atomic_load_relaxed(&word);"),
        'without a comment that says "relaxed: why"',
    ),
    (
        "a relaxed access without a reason",
        "atomics",
        "core/heap/planted.c",
        atomics("    (void)hak_atomic_load_relaxed(&word); /* a statistic */"),
        'without a comment that says "relaxed: why"',
    ),
    (
        "an acquire without a partner",
        "atomics",
        "core/heap/planted.c",
        atomics("    (void)hak_atomic_load_acquire(&word); /* relaxed: no */"),
        'acquire without a comment that says "pairs with',
    ),
    (
        "a partner without a name",
        "atomics",
        "core/heap/planted.c",
        atomics("    (void)hak_atomic_load_acquire(&word); /* pairs with the writer */"),
        "not named as f()",
    ),
    (
        "a partner that does not exist",
        "atomics",
        "core/heap/planted.c",
        atomics("    (void)hak_atomic_load_acquire(&word); /* pairs with the store in gone() */"),
        "gone(), which is no function",
    ),
    (
        "a partner that releases nothing",
        "atomics",
        "core/heap/planted.c",
        atomics("    (void)hak_atomic_load_acquire(&word); /* pairs with the store in reader() */"),
        "holds no other half",
    ),
    (
        "a raw atomic function",
        "atomics",
        "core/heap/planted.c",
        atomics("    (void)atomic_load(&word);"),
        "atomic_load outside",
    ),
    (
        "an atomic builtin",
        "atomics",
        "core/heap/planted.c",
        "int f(int *p) { return __atomic_load_n(p, 0); }\n",
        "__atomic_load_n outside",
    ),
    ("a volatile", "atomics", "core/heap/planted.c", "extern volatile int x;\n", "volatile outside"),
    (
        "an atomic read by plain C",
        "atomics",
        "core/heap/planted.c",
        atomics("    if (word) {\n        return 1;\n    }"),
        "implicit use of sequentially-consistent",
    ),
    ("bad layout in core", "format", "core/heap/planted.c", "int  f ( void );\n", "planted.c:1: not as"),
    ("bad layout in tests", "format", "tests/unit/planted.c", "int  f ( void );\n", "planted.c:1: not as"),
    ("a file of 451 lines", "size", "core/heap/planted.c", "int x;\n" * 451, "the file has 451 lines"),
    ("a file of 450 lines", "size", "core/heap/planted.c", "int x;\n" * 450, None),
    (
        "a function of 81 lines",
        "size",
        "core/heap/planted.c",
        "static int\nplanted(int a,\n        int b) {\n" + "    a++;\n" * 77 + "}\n",
        "planted() has 81 lines",
    ),
    (
        "a function of 80 lines",
        "size",
        "core/heap/planted.c",
        "static int\nplanted(int a,\n        int b) {\n" + "    a++;\n" * 76 + "}\n",
        None,
    ),
    ("a script with an unquoted name", "shell", "tests/build/planted.sh", "#!/bin/sh\nrm $1\n", "SC2086"),
    ("a document without a title", "documents", "README.md", "#hakmem\n", "no title"),
    ("a heading that is none", "documents", "bench/PLANTED.md", "# A\n\n    ##Two\n", "not a heading"),
    ("a link to nothing", "documents", "core/PLANTED.md", "# A\n\n[b](b.md)\n", "link to b.md"),
    ("a fence left open", "documents", "tests/PLANTED.md", "# A\n\n```\nmake\n", "never closed"),
]

GOOD_LINK = "-shared -fPIC -O2 -Wl,-soname,libhakmem.so.0 -Wl,-z,now,-z,relro,-z,nodelete,-z,noexecstack".split()
GOOD_LINK.append(f"-Wl,-T,{ROOT}/core/layout.ld")
COLD = "__attribute__((cold)) int cold(void) { return getpid(); }\n"
TLS = COLD.replace("{", "{{").replace("}", "}}")
TLS += "__thread int t[{}] __attribute__((tls_model(\"{}\")));\nint f(int i) {{ return t[i] + getpid(); }}\n"
PLAIN = COLD + "int f(void) { return getpid(); }\n"

# (what, C text, change of the link flags, what the check must say or None)
LINKS = [
    ("what hakmem is linked like", PLAIN, lambda flags: flags, None),
    ("448 bytes of TLS", TLS.format(112, "initial-exec"), lambda flags: flags, None),
    ("452 bytes of TLS", TLS.format(113, "initial-exec"), lambda flags: flags, "452 bytes of TLS"),
    ("TLS found by calls", TLS.format(1, "global-dynamic"), lambda flags: flags, "by calls"),
    (
        "a second library needed",
        COLD + "double cos(double);\ndouble f(double x) { return cos(x); }\n",
        lambda flags: flags + ["-Wl,--no-as-needed", "-lm"],
        "needs libm.so.6",
    ),
    ("lazy binding", PLAIN, lambda flags: [f.replace("-z,now,", "-z,lazy,") for f in flags], "bound lazily"),
    ("no RELRO", PLAIN, lambda flags: [f.replace(",relro", ",norelro") for f in flags], "relocated data"),
    ("an unloadable library", PLAIN, lambda flags: [f.replace(",-z,nodelete", "") for f in flags], "unloaded"),
    ("an executable stack", PLAIN, lambda flags: [f.replace("noexec", "exec") for f in flags], "executable stack"),
    ("cold code among the other", PLAIN, lambda flags: flags[:-1], "rarely run code"),
    ("another soname", PLAIN, lambda flags: [f.replace("libhakmem.so.0", "x.so") for f in flags], "soname"),
]

# (what, how the set of defined names differs, what the check must say or None)
NAMES = [
    ("exactly the promised names", lambda names: names, None),
    ("a name too many", lambda names: names + ["hak_planted"], "exports hak_planted"),
    ("a name too few", lambda names: [n for n in names if n != "posix_memalign"], "does not export posix_memalign"),
    ("an operator too few", lambda names: [n for n in names if n != "_ZnwmSt11align_val_t"], "_ZnwmSt11align_val_t"),
    ("an internal name of anybody's", lambda names: names + ["HIDDEN list_push"], "internal name list_push"),
]


def fresh_tree(scratch, name):
    """A tree that every check of source passes: the order of floors, the rules of layout, and two floors' headers."""
    tree = pathlib.Path(scratch) / re.sub(r"\W+", "-", name)
    for folder in ("core/os", "core/heap", "core/attic", "tests/unit", "tests/build", "include", "bench"):
        (tree / folder).mkdir(parents=True)
    (tree / "core/attic").rmdir()
    shutil.copytree(ROOT / "core/base", tree / "core/base")
    for file in ("Makefile", ".clang-format", "include/hakmem.h", "core/os/os.h"):
        shutil.copy(ROOT / file, tree / file)
    return tree


def compile_c(tree, text, *arguments):
    subprocess.run([*CC, "-w", "-fno-builtin", "-x", "c", "-", *arguments], cwd=tree, input=text, text=True, check=True)


def planted_file(tree, case):
    _, _, path, text, _ = case
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text(text, encoding="utf-8")


def planted_link(tree, case):
    _, text, change, _ = case
    compile_c(tree, text, *change(list(GOOD_LINK)), "-o", "libhakmem.so")
    shutil.copy(tree / "libhakmem.so", tree / "libhakmem-debug.so")


def planted_names(tree, case):
    def text_of(names):
        return "".join(
            f"__attribute__((visibility(\"hidden\"))) void {name.split()[1]}(void) {{}}\n"
            if name.startswith("HIDDEN ")
            else f"void {name}(void) {{}}\n"
            for name in names
        )

    promised = exports.LIBC + exports.NEW + exports.DELETE + exports.public_names(tree)
    names = case[1](promised)
    compile_c(tree, text_of(names + exports.SHARED_ONLY), "-shared", "-fPIC", "-o", "libhakmem.so")
    shutil.copy(tree / "libhakmem.so", tree / "libhakmem-debug.so")
    compile_c(tree, text_of(names), "-c", "-o", "all.o")
    subprocess.run(["ar", "rcs", "libhakmem.a", "all.o"], cwd=tree, check=True)


def verdict(check, tree, expected):
    """"" when the check says what is expected of it, otherwise what went wrong."""
    violations = importlib.import_module(check).check(tree)
    if expected is None:
        return "" if not violations else f"found {violations}"
    if not any(expected in violation for violation in violations):
        return f'nothing says "{expected}", but {violations}'
    return ""


def main():
    passed = failed = skipped = 0
    cases = [(case, case[1], planted_file) for case in FILES]
    cases += [(case, "linkage", planted_link) for case in LINKS]
    cases += [(case, "exports", planted_names) for case in NAMES]
    with tempfile.TemporaryDirectory() as scratch:
        for case, check, plant in cases:
            title = f"{check}: {case[0]}"
            tree = fresh_tree(scratch, title)
            plant(tree, case)
            try:
                wrong = verdict(check, tree, case[-1])
            except Skipped as reason:
                print(f"skipped: {title}: {reason}")
                skipped += 1
                continue
            if wrong:
                print(f"{title}: {wrong}")
            passed += not wrong
            failed += bool(wrong)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
