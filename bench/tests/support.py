"""What the tests of bench/ share: paths, fake allocators built once, bench/compare as a child process."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.realpath(__file__))
BENCH = os.path.dirname(TESTS)
TOP = os.path.dirname(BENCH)
BUILD = os.environ.get("BENCH_BUILD") or os.path.join(TOP, "build", "bench")
HAKMEM = os.path.join(TOP, "libhakmem.so")

sys.path.insert(0, BENCH)

_folder = tempfile.mkdtemp(prefix="bench-test-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
_built = {}


def folder(name: str) -> str:
    """A fresh folder that goes away at the end."""
    return tempfile.mkdtemp(prefix=name + "-", dir=_folder)


def fake_allocator(name: str, *macros: str, source: str = "fake_alloc.c") -> str:
    """A fake allocator, compiled on first use."""
    if name not in _built:
        path = os.path.join(_folder, name + ".so")
        compiler = (os.environ.get("CC") or "cc").split()
        subprocess.run(
            [
                *compiler,
                "-std=c17",
                "-D_GNU_SOURCE",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fno-builtin-malloc",
                "-shared",
                "-fPIC",
                *(f"-D{m}" for m in macros),
                "-o",
                path,
                os.path.join(TESTS, source),
            ],
            check=True,
        )
        _built[name] = path
    return _built[name]


class Run:
    """A finished bench/compare."""

    def __init__(self, code: int, out: str, err: str, folder_path: str):
        self.code, self.out, self.err, self.folder = code, out, err, folder_path

    def results(self) -> dict:
        with open(os.path.join(self.folder, "results.json"), encoding="utf-8") as file:
            return json.load(file)


def compare(*arguments: str, command=(), timeout_s: float = 60, env=None) -> Run:
    out = folder("out")
    argv = [
        sys.executable,
        os.path.join(BENCH, "compare"),
        "--out",
        out,
        *arguments,
        *(["--", *command] if command else []),
    ]
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode(), out)
