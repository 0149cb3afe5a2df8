"""bench/instr: instructions of malloc and free for each size and pattern, counted by callgrind.

The counts repeat exactly for the same binaries, whatever else the machine does: they are the regression check
that timings cannot be. What is counted lies inside malloc and free: the same loop over two functions of one
instruction each is counted too and subtracted, but for these two instructions.
"""

import argparse
import glob
import json
import os
import shutil
import subprocess
import tempfile
from typing import Dict, List, Optional, Tuple

from . import allocators, results as files, session

EMPTY_INSTRUCTIONS = 1.0  # of each of the empty functions
PATTERNS = ("local", "batch", "remote")
TOLERANCE = 0.02
LIMIT_S = 300
EXIT_REGRESSION = 1

Key = Tuple[str, int]  # pattern, size


class InstrError(Exception):
    """The counts cannot be had; the text says why."""


def section_totals(folder: str) -> Dict[int, int]:
    """Instructions by number of the dump."""
    totals = {}
    for path in glob.glob(os.path.join(folder, "callgrind.*")):
        part, total = None, None
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("part: "):
                    part = int(line[6:])
                elif line.startswith(("summary: ", "totals: ")):
                    total = int(line.split()[1])
        if part is not None and total is not None:
            totals[part] = total
    return totals


def per_pair(sections: List[str], totals: Dict[int, int]) -> Dict[str, Dict[Key, float]]:
    """Instructions a pair, loop included, by allocator (libc, empty) and key.

    Two marks enclose each section, so that the dumps with even numbers are the sections, in their order.
    """
    sums: Dict[Tuple[str, Key], Dict[str, List[float]]] = {}
    for i, line in enumerate(sections):
        allocator, pattern, part, size, pairs = line.split()
        if 2 * (i + 1) not in totals:
            raise InstrError("callgrind wrote fewer dumps than the program has sections")
        if pattern in PATTERNS:
            parts = sums.setdefault((allocator, (pattern, int(size))), {})
            parts.setdefault(part, []).append(totals[2 * (i + 1)] / int(pairs))
    found: Dict[str, Dict[Key, float]] = {}
    for (allocator, key), parts in sums.items():
        found.setdefault(allocator, {})[key] = sum(sum(v) / len(v) for v in parts.values())
    return found


def without_loop(found: Dict[str, Dict[Key, float]]) -> Dict[Key, float]:
    """What malloc and free take: the loop over the empty functions, without those, is subtracted."""
    loops = {pattern: value - 2 * EMPTY_INSTRUCTIONS for (pattern, _), value in found["empty"].items()}
    return {key: value - loops[key[0]] for key, value in found["libc"].items()}


def count(build: str, allocator: allocators.Allocator) -> Dict[Key, float]:
    """One run under callgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise InstrError("valgrind is not installed; 'make bench-deps' installs it")
    with tempfile.TemporaryDirectory(prefix="bench-instr-") as folder:
        command = [
            valgrind,
            "--tool=callgrind",
            "--dump-before=instr_mark",
            "-q",
            f"--callgrind-out-file={folder}/callgrind",
            os.path.join(build, "instr"),
        ]
        try:
            done = subprocess.run(
                command,
                env=allocator.environment(os.environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InstrError(f"no end after {LIMIT_S} s under callgrind") from None
        lines = done.stdout.decode(errors="replace").splitlines()
        if done.returncode != 0 or not lines:
            said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise InstrError(f"failed under callgrind with status {done.returncode}: {said}")
        if not allocator.is_in_effect(lines[0].partition(" ")[2]):
            raise InstrError(f"not in effect: malloc comes from {lines[0].partition(' ')[2]}")
        return without_loop(per_pair(lines[1:], section_totals(folder)))


def render(counts: Dict[str, Dict[Key, float]]) -> str:
    """A table for each pattern: sizes down, allocators across."""
    names = list(counts)
    titles = {
        "local": "local: 4 blocks at a time, the hit path",
        "batch": "batch: 4000 blocks, last in first out",
        "remote": "remote: 4000 blocks, freed by another thread",
    }
    width = max(10, *(len(n) + 2 for n in names))
    text = []
    for pattern in PATTERNS:
        text += [
            f"instructions a pair, {titles[pattern]}",
            "bytes".rjust(8) + "".join(n.rjust(width) for n in names),
        ]
        for size in sorted({s for c in counts.values() for p, s in c if p == pattern}):
            cells = [f"{c[(pattern, size)]:.1f}" if (pattern, size) in c else "-" for c in counts.values()]
            text.append(f"{size:8d}" + "".join(v.rjust(width) for v in cells))
        text.append("")
    return "\n".join(text)


def compare(now: Dict[Key, float], saved: Dict[Key, float]) -> List[str]:
    """One line for each key whose count left the tolerance; regressions begin with "more"."""
    changes = []
    for key, before in sorted(saved.items()):
        if key in now and abs(now[key] - before) > max(1.0, TOLERANCE * abs(before)):
            word = "more" if now[key] > before else "less"
            changes.append(f"{word}: {key[0]} {key[1]} bytes: {before:.1f} -> {now[key]:.1f}")
    return changes


def as_json(counts: Dict[str, Dict[Key, float]]) -> str:
    plain = {name: {f"{p} {s}": round(v, 2) for (p, s), v in sorted(c.items())} for name, c in counts.items()}
    return json.dumps(plain, indent=1) + "\n"


def from_json(path: str) -> Dict[str, Dict[Key, float]]:
    try:
        with open(path, encoding="utf-8") as file:
            plain = json.load(file)
        return {
            name: {(k.split()[0], int(k.split()[1])): v for k, v in c.items()} for name, c in plain.items()
        }
    except OSError as error:
        raise InstrError(f"{path}: {error.strerror}") from None
    except (ValueError, AttributeError, IndexError):
        raise InstrError(f"{path}: not a file of counts") from None


def check(counts: Dict[str, Dict[Key, float]], path: str) -> int:
    """Compares with saved counts; an allocator that is new, or not counted now, is left out of it."""
    status = 0
    for name, saved in from_json(path).items():
        if name not in counts:
            continue
        changes = compare(counts[name], saved)
        print(
            f"{name} against {os.path.relpath(path)}: "
            + ("no change" if not changes else f"{len(changes)} changed")
        )
        for change in changes:
            print(f"  {change}")
            status = EXIT_REGRESSION if change.startswith("more") else status
    return status


def make_parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="bench/instr", description="Counts the instructions of malloc and free.")
    p.add_argument("--alloc", metavar="NAME=PATH.so", action="append", default=[], help="one more allocator")
    p.add_argument("--only", metavar="NAME,...", help="only these allocators")
    p.add_argument("--save", metavar="FILE", help="write the counts there, to check against later")
    p.add_argument(
        "--check", metavar="FILE", help="exit 1 if a count is more than 2 %% (and 1 instruction) above it"
    )
    return p


def main(argv: List[str], top: str) -> int:
    options = make_parser().parse_args(argv)
    build = os.environ.get("BENCH_BUILD") or os.path.join(top, "build", "bench")
    counts: Dict[str, Dict[Key, float]] = {}
    failed: Optional[str] = None
    try:
        found, missing = allocators.find_all(top)
        chosen = allocators.choose(
            found,
            [allocators.named(t) for t in options.alloc],
            options.only.split(",") if options.only else None,
            False,
        )
        for line in missing if options.only is None else []:
            print(f"missing: {line}")
        for allocator in chosen:
            try:
                counts[allocator.name] = count(build, allocator)
            except InstrError as error:
                failed = f"{allocator.name}: {error}"
                session.say(failed)
        if not counts:
            return EXIT_REGRESSION
        print(render(counts))
        if options.save:
            files.write_file(options.save, as_json(counts))
        status = check(counts, options.check) if options.check else 0
    except (allocators.AllocatorError, InstrError) as error:
        session.say(f"bench/instr: {error}")
        return 2
    except OSError as error:
        session.say(f"bench/instr: cannot write {options.save}: {error.strerror}")
        return 2
    return status or (EXIT_REGRESSION if failed else 0)
