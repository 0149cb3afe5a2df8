"""The set `real`: programs that people run, each a row, on inputs that lie in the repository.

What is not installed is left out, by name. A program's exit code and output must be equal under all allocators, as
for a command of the user's.
"""

import os
import shlex
import shutil
from dataclasses import dataclass
from typing import Dict, List, Tuple

from .allocators import Allocator
from .command import CommandRunner
from .measure import Runner, Sample
from .rows import Row

DATA = "tests/programs/data"
JQ_PROGRAM = (
    '[range(0; 60000) | {id: ., name: "name \\(.)", tags: [range(0; . % 5)]}] | group_by(.id % 97)'
    ' | map({key: .[0].id, count: length, bytes: (map(.name) | join(",") | length)}) | .[:20]'
)


@dataclass(frozen=True)
class Program:
    """A command, run from the top of the repository; `needs` are the programs that it starts."""

    name: str
    command: Tuple[str, ...]
    needs: Tuple[str, ...] = ()
    stdin: str = "/dev/null"


PROGRAMS = (
    Program("gcc", ("gcc", "-O2", "-c", "-o", "/dev/null", "bench/real/functions.c")),
    Program("g++", ("g++", "-std=c++17", "-fsyntax-only", "bench/real/templates.cc")),
    Program("python3", ("python3", f"{DATA}/workload.py", "2")),
    Program("perl", ("perl", f"{DATA}/workload.pl", "4")),
    Program("lua", ("lua5.4", "bench/real/trees.lua")),
    Program("node", ("node", f"{DATA}/workload.js", "4")),
    Program("jq", ("jq", "-n", JQ_PROGRAM)),
    Program("sqlite3", ("sqlite3", ":memory:"), stdin=f"{DATA}/workload.sql"),
    Program("redis", ("bench/real/store.sh",), ("redis-server", "redis-benchmark", "redis-cli")),
    Program(
        "ghostscript",
        ("gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=ppmraw", "-r100", "-sOutputFile=-", "bench/real/shapes.ps"),
    ),
    Program("z3", ("z3", "bench/real/product.smt2")),
    Program("git", ("git", "log", "-p", "--no-color", "--no-ext-diff", "-n", "60")),
)

# Hash seeds that would make each run another one.
FIXED = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "LC_ALL": "C"}


def _absent(program: Program, top: str) -> str:
    """What the program lacks here, "" if nothing."""
    for name in (program.command[0], *program.needs):
        if shutil.which(os.path.join(top, name) if "/" in name else name) is None:
            return name
    if program.name == "git" and not os.path.exists(os.path.join(top, ".git")):
        return "a git checkout"
    return ""


def find(top: str) -> Tuple[List[Row], List[str]]:
    """The rows of what is installed, and a line for each that is not."""
    found, missing = [], []
    for program in PROGRAMS:
        absent = _absent(program, top)
        if absent:
            missing.append(f"{program.name} ({absent}; 'make bench-deps-real' installs the set's programs)")
        else:
            found.append(Row(program.name, shlex.join(program.command), 1, 1, sets="", is_grown=False))
    return found, missing


class RealRunner(Runner):
    """A Runner that gives each row to a CommandRunner of its own. Changes to the top folder."""

    def __init__(self, settings, on_run, top: str):
        super().__init__(settings, on_run)
        os.chdir(top)
        os.environ.update(FIXED)
        self.commands: Dict[str, CommandRunner] = {
            p.name: CommandRunner(settings, on_run, list(p.command), p.stdin, True) for p in PROGRAMS
        }

    def run_once(self, row: Row, allocator: Allocator, iterations: int) -> Sample:
        return self.commands[row.name].run_once(row, allocator, iterations)
