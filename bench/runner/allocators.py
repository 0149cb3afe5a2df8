"""Which allocators there are on this machine, and the proof that one is in effect in a run."""

import glob
import os
import subprocess
import time
from dataclasses import dataclass
from typing import List, Optional, Tuple

LIBRARY_FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")

# name, file patterns (the newest file wins), Debian package pattern
PEERS = (
    ("jemalloc", ("libjemalloc.so.[0-9]*",), "libjemalloc2"),
    ("mimalloc", ("libmimalloc.so.[0-9]*",), "libmimalloc2.0"),
    ("tcmalloc", ("libtcmalloc_minimal.so.[0-9]*",), "libtcmalloc-minimal4"),
)


@dataclass(frozen=True)
class Allocator:
    """`path` is the library to preload, None for the C library's own malloc."""

    name: str
    path: Optional[str]
    version: str
    twin_of: Optional[str] = None

    def twin(self) -> "Allocator":
        """The same allocator under a second name, for the noise check."""
        return Allocator(self.name + " again", self.path, self.version, self.name)

    def environment(self, base: dict, extra_preload: Tuple[str, ...] = ()) -> dict:
        env = dict(base)
        preload = ([self.path] if self.path else []) + list(extra_preload)
        env.pop("LD_PRELOAD", None)
        if preload:
            env["LD_PRELOAD"] = ":".join(preload)
        return env

    def is_in_effect(self, malloc_object: str) -> bool:
        """Whether the object that a process found its malloc in is this allocator's."""
        if self.path is None:
            return os.path.basename(malloc_object).startswith(("libc.so", "libc-", "ld-musl", "libc.musl"))
        try:
            return os.path.samefile(malloc_object, self.path)
        except OSError:
            return False


class AllocatorError(Exception):
    """An allocator that was asked for by name cannot be used."""


def output_of(*command: str) -> str:
    """The standard output of a helper, "" when it is missing or fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def libc_version() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (OSError, ValueError):
        return "unknown"


def c_library() -> Optional[str]:
    """The file of the C library that this process runs on; None where that is the loader too (musl)."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith(("libc.so", "libc-")):
                return "/" + path
    return None


def _find_library(patterns: Tuple[str, ...]) -> Optional[str]:
    for folder in LIBRARY_FOLDERS:
        for pattern in patterns:
            found = [p for p in glob.glob(os.path.join(folder, pattern)) if os.path.isfile(p)]
            if found:
                return max((os.path.realpath(p) for p in found), key=os.path.basename)
    return None


def check_library(name: str, path: str) -> str:
    """The absolute path of a shared library of this machine's word size; raises if it is none."""
    full = os.path.realpath(path)
    try:
        with open(full, "rb") as file:
            head = file.read(20)
    except OSError as error:
        raise AllocatorError(f"{name}: {path}: {error.strerror}") from None
    if len(head) < 20 or head[:4] != b"\x7fELF" or int.from_bytes(head[16:18], "little") != 3:
        raise AllocatorError(f"{name}: {path}: not a shared library")
    if ":" in full or " " in full:
        raise AllocatorError(f"{name}: {full}: LD_PRELOAD cannot hold a path with a colon or a space")
    return full


def hakmem_version(top: str) -> str:
    commit = output_of("git", "-C", top, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown commit"
    changed = output_of("git", "-C", top, "status", "--porcelain", "--untracked-files=no")
    return commit + (" with local changes" if changed else "")


def file_date(path: str) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(path).st_mtime))


def find_all(top: str) -> Tuple[List[Allocator], List[str]]:
    """All allocators on this machine, hakmem first, and one line for each that is missing."""
    found: List[Allocator] = []
    missing: List[str] = []
    for name, file, target in (
        ("hakmem", "libhakmem.so", "make"),
        ("hakmem-debug", "libhakmem-debug.so", "make debug"),
    ):
        path = os.path.join(top, file)
        if not os.path.exists(path):
            missing.append(f"{name}: {file} is not built; '{target}' builds it")
            continue
        try:
            full = check_library(name, path)
            found.append(Allocator(name, full, f"{hakmem_version(top)}, file of {file_date(full)}"))
        except AllocatorError as error:  # half built, say
            missing.append(str(error))
    found.append(Allocator("glibc", None, libc_version()))
    for name, patterns, package in PEERS:
        path = _find_library(patterns)
        if path is None:
            missing.append(f"{name}: no {patterns[0]} found; 'make bench-deps' installs {package}")
            continue
        version = output_of("dpkg-query", "-W", "-f=${Version}", package) or os.path.basename(path)
        found.append(Allocator(name, path, version))
    return found, missing


def named(text: str) -> Allocator:
    """An allocator from the command line's NAME=PATH."""
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise AllocatorError(f"--alloc takes NAME=PATH.so, not '{text}'")
    full = check_library(name, path)
    return Allocator(name, full, f"file of {file_date(full)}")


def choose(
    found: List[Allocator], added: List[Allocator], only: Optional[List[str]], is_debug_wanted: bool
) -> List[Allocator]:
    """What this run compares: those named by `only`, else all but the debug flavour, and all added ones."""
    everything = added + [a for a in found if a.name not in {b.name for b in added}]
    if only is None:
        return [a for a in everything if a.name != "hakmem-debug" or is_debug_wanted]
    by_name = {a.name: a for a in everything}
    unknown = [name for name in only if name not in by_name]
    if unknown:
        raise AllocatorError(f"not found: {', '.join(unknown)} (there are: {', '.join(by_name)})")
    return [by_name[name] for name in only]
