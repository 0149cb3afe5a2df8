"""The same rounds for a command of the user's: `bench/compare -- ./myprog args`.

The command's exit code and output must be equal under all allocators; the witness library proves which malloc
each of its processes used. A short command is run several times in a row for one sample.
"""

import hashlib
import os
from dataclasses import dataclass
from typing import Dict, List, Tuple

from . import launch
from .allocators import Allocator, c_library
from .measure import RowSamples, Runner, RunFailed, Sample
from .rows import Row

REPEAT_AT_MOST = 1000


@dataclass(frozen=True)
class Behaviour:
    """What must be equal: the exit code and a digest of standard output."""

    status: str
    value: int
    digest: str
    size: int

    def difference(self, other: "Behaviour", is_output_compared: bool) -> str:
        """How this differs from what another allocator's run did, "" if it does not."""
        if (self.status, self.value) != (other.status, other.value):
            return f"ends with {self.status} {self.value}, elsewhere {other.status} {other.value}"
        if is_output_compared and (self.digest, self.size) != (other.digest, other.size):
            return f"its output differs ({self.size} bytes, elsewhere {other.size})"
        return ""


def command_row(command: List[str]) -> Row:
    name = os.path.basename(command[0])
    return Row(name if len(name) <= 19 else name[:16] + "...", command[0], 1, 1, sets="")


class CommandRunner(Runner):
    """A Runner whose iterations are starts of one command."""

    def __init__(self, settings, on_run, command: List[str], stdin: str, is_output_compared: bool):
        super().__init__(settings, on_run)
        self.command = command
        self.stdin = stdin
        self.is_output_compared = is_output_compared
        self.behaviours: Dict[Tuple[str, int], Behaviour] = {}  # by allocator and repeats

    def run_once(self, row: Row, allocator: Allocator, iterations: int) -> Sample:
        preload: Tuple[str, ...] = (os.path.abspath(os.path.join(self.settings.build, "witness.so")),)
        if allocator.path is None:
            # Else a program that is linked with an allocator of its own (redis with jemalloc) would use that.
            preload = tuple(filter(None, (c_library(),))) + preload
        lines = os.memfd_create("witness")
        try:
            env = allocator.environment(os.environ, preload)
            env["BENCH_WITNESS"] = f"/proc/{os.getpid()}/fd/{lines}"
            launcher = os.path.join(self.settings.build, "launch")
            outcome = launch.run(launcher, self.command, env, self.settings.limit_s, iterations, self.stdin)
            testimony = os.pread(lines, os.fstat(lines).st_size, 0).decode(errors="replace")
        finally:
            os.close(lines)
        try:
            if outcome.status != "exit":
                raise RunFailed(outcome.failure())
            check_testimony(testimony, allocator)
            self.check_behaviour(outcome, allocator, iterations)
        finally:
            outcome.close()
        usage = outcome.usage
        # A command that fails stops the repeats: what counts is how often it ran.
        return Sample(usage["runs"], usage["wall_s"], usage["user_s"] + usage["system_s"], usage)

    def check_behaviour(self, outcome: launch.Outcome, allocator: Allocator, iterations: int) -> None:
        digest = hashlib.sha256()
        size = 0
        for chunk in outcome.output_chunks():
            digest.update(chunk)
            size += len(chunk)
        now = Behaviour(outcome.status, outcome.value, digest.hexdigest(), size)
        for (name, repeats), before in self.behaviours.items():
            if repeats == iterations:
                difference = now.difference(before, self.is_output_compared)
                if difference:
                    raise RunFailed(f"{difference}: compared with {name}")
        self.behaviours.setdefault((allocator.name, iterations), now)

    def find_iterations(self, row: Row, allocator: Allocator) -> int:
        return min(REPEAT_AT_MOST, super().find_iterations(row, allocator))


def check_testimony(testimony: str, allocator: Allocator) -> None:
    """Raises unless at least one process spoke and all used this allocator."""
    objects = {line.partition(" ")[2] for line in testimony.splitlines()}
    if not objects:
        raise RunFailed("no proof: no process loaded the preload (a static or setuid program?)")
    for malloc_object in sorted(objects):
        if not allocator.is_in_effect(malloc_object):
            raise RunFailed(f"not in effect: malloc comes from {malloc_object}")
