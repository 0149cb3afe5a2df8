"""bench/ab: two commits of hakmem against each other, interleaved, with a verdict for each row.

Each commit is exported to a folder of its own below build/ab (git archive: the work tree and the index stay
as they are), built there with its own Makefile, and preloaded under its name. A commit built once is built no
more.
"""

import argparse
import io
import os
import subprocess
import sys
import tarfile
from typing import List

from . import allocators, rows, session, table, units
from .cli import SETS
from .measure import Settings

WORKING_TREE = "."
VERDICTS = {"less": "faster", "more": "slower", "tie": "tie", "unknown": "no interval"}


class BuildError(Exception):
    """A commit cannot be had or built."""


def resolve(top: str, revision: str) -> str:
    done = subprocess.run(
        ["git", "-C", top, "rev-parse", "--verify", "--quiet", revision + "^{commit}"],
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{revision}: no such commit")
    return done.stdout.decode().strip()


def export(top: str, commit: str, folder: str) -> None:
    archive = subprocess.run(
        ["git", "-C", top, "archive", "--format=tar", commit], stdout=subprocess.PIPE, check=True
    )
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder)


def build(top: str, revision: str) -> str:
    """The path of libhakmem.so of this revision; "." is the work tree as it is."""
    folder = top
    if revision != WORKING_TREE:
        commit = resolve(top, revision)
        folder = os.path.join(top, "build", "ab", commit)
        if os.path.exists(os.path.join(folder, "libhakmem.so")):
            return os.path.join(folder, "libhakmem.so")
        export(top, commit, folder)
    session.say(f"building {revision} ...")
    make = subprocess.run(
        ["make", "-C", folder, "libhakmem.so"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    library = os.path.join(folder, "libhakmem.so")
    if make.returncode != 0 or not os.path.exists(library):
        tail = "\n".join(make.stdout.decode(errors="replace").splitlines()[-15:])
        raise BuildError(f"{revision} does not build:\n{tail}")
    return library


def verdicts(results: dict) -> str:
    """One line for each figure: B against A."""
    names = results["names"]
    a, b = names[0], names[1]
    text = [
        f"{'':24}{a[:12]:>13}{b[:12]:>13}{'ratio':>8}  {'95 % interval':15} {b[:12]} is",
        "-" * table.WIDTH,
    ]
    counts: dict = {}
    for row in results["rows"]:
        for label, line in zip(table.labels(row), row["lines"]):
            versus = line["against_baseline"].get(b)
            cells = [table.cell(line, n, row["failures"]).rstrip("*= ") for n in (a, b)]
            if versus is None:
                text.append(f"{label[:24]:24}{cells[0]:>13}{cells[1]:>13}")
                continue
            ratio = f"{versus['ratio']:.3f}" if versus["ratio"] is not None else "-"
            span = f"{versus['low']:.3f} to {versus['high']:.3f}" if versus["low"] is not None else ""
            word = VERDICTS[versus["verdict"]] if line["unit"] == "ns" else versus["verdict"]
            counts[word] = counts.get(word, 0) + 1
            text.append(f"{label[:24]:24}{cells[0]:>13}{cells[1]:>13}{ratio:>8}  {span:15} {word}")
    text.append("")
    for key, label in (("time", "time"), ("rss", "peak RSS")):
        mean = results["means"][key]
        if b in mean["ratios"]:
            text.append(f"geometric mean of {label} over {mean['rows']} rows: {mean['ratios'][b]:.3f}")
    text.append(", ".join(f"{n} {word}" for word, n in sorted(counts.items())))
    return "\n".join(text + table.trust_lines(results)) + "\n"


def make_parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="bench/ab", description="Compares two commits of hakmem; '.' is the work tree."
    )
    p.add_argument("rev1", help="the commit to compare with")
    p.add_argument("rev2", help="the commit that is judged")
    p.add_argument("--set", choices=sorted(SETS), default="quick", help="which rows (default: quick)")
    p.add_argument("--rows", metavar="PATTERN,...", help="only rows whose name, or its first word, matches")
    p.add_argument(
        "--rounds", type=int, default=11, help="measured runs of each commit in each row (default: 11)"
    )
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what 'time' is (default: wall)")
    p.add_argument(
        "--alpha", type=float, default=0.01, help="p below which a difference counts (default: 0.01)"
    )
    return p


def make_plan(options, top: str) -> session.Plan:
    libraries = [(r, build(top, r)) for r in (options.rev1, options.rev2)]
    named = []
    for number, (revision, path) in zip("AB", libraries):
        name = revision if options.rev1 != options.rev2 else f"{revision} {number}"
        named.append(
            allocators.Allocator(
                "work tree" if name == WORKING_TREE else name, allocators.check_library(name, path), revision
            )
        )
    chosen = rows.select(options.set, options.rows.split(",") if options.rows else None)
    if not chosen:
        raise BuildError(f"no row of the set '{options.set}' matches '{options.rows}'")
    _, target_s, cap_s = SETS[options.set]
    programs = os.environ.get("BENCH_BUILD") or os.path.join(top, "build", "bench")
    return session.Plan(
        top,
        chosen,
        named,
        [],
        named[0].name,
        Settings(programs, max(2, options.rounds), target_s, cap_s),
        options.clock,
        options.alpha,
        True,
        os.environ.get("CC") or "cc",
        f"{named[0].name} against {named[1].name}",
    )


def main(argv: List[str], top: str) -> int:
    options = make_parser().parse_args(argv)
    try:
        plan = make_plan(options, top)
    except (BuildError, allocators.AllocatorError) as error:
        session.say(f"bench/ab: {error}")
        return 2
    results, status = session.measure_results(plan)
    if results is None:
        return status
    sys.stdout.write(verdicts(results) + f"This took {units.duration(results['took_s'])}.\n")
    sys.stdout.flush()
    session.write_results(results, os.path.join(top, "bench", "out", "ab"))
    return status
