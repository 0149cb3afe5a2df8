"""Rounds over allocators: the samples.

A round runs every allocator once, in an order shuffled anew, so that whatever drifts on the machine hits all
of them. A run that shared its core, or whose CPUs were far apart, is repeated when its round is through.
Iterations are found before the rounds and are the same for all; the runs that find them, and one more of every
allocator, are the warm-up and are dropped. A failure takes its allocator out of the row, never the row or the run
down.
"""

import json
import os
import random
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional

from . import launch
from .allocators import Allocator
from .rows import Row, floor_row

GROWTH_AT_MOST = 50
FLOOR_NAME = "floor"
ROOM_AT_LEAST = 0.8  # of the best room seen; with less a run is disturbed
DISTANCE_AT_MOST = 2.0  # times the least distance seen; with more a run of several threads is
EXTRA_ROUNDS = 1.5  # of repeats in a row at most: beside 9 rounds, a sixth more


@dataclass(frozen=True)
class Settings:
    build: str  # folder with launch and the bench programs
    rounds: int = 7
    target_s: float = 0.15  # a run should last this long
    row_cap_s: float = 12.0  # a row should not take longer: iterations shrink for it
    limit_s: float = 30.0  # a run that takes longer is killed
    shuffle_seed: int = 1


@dataclass
class Sample:
    """One run: what the program timed, what the kernel counted for it."""

    ops: int
    wall_s: float
    cpu_s: float
    usage: dict
    metrics: Dict[str, dict] = field(default_factory=dict)
    points: list = field(default_factory=list)

    @property
    def room(self) -> float:
        """How many additions a core did at a time before or after the run, whichever is less (tools/room.h)."""
        return self.usage["room"]

    @property
    def distance_ns(self) -> float:
        """A round trip between two CPUs before or after the run, whichever is more (tools/distance.h); 0: unknown."""
        return self.usage["distance_ns"]

    def value(self, key: str, clock: str) -> Optional[float]:
        if key == "time":
            return (self.cpu_s if clock == "cpu" else self.wall_s) * 1e9 / self.ops
        if key == "peak_rss":
            return self.usage["peak_rss_kib"] / 1024.0
        metric = self.metrics.get(key)
        return None if metric is None else metric["value"]


@dataclass
class RowSamples:
    row: Row
    iterations: int = 0
    samples: Dict[str, List[Sample]] = field(default_factory=dict)  # by allocator
    failures: Dict[str, str] = field(default_factory=dict)  # by allocator: why it has no (more) samples
    repeated: int = 0  # of the samples: their first run was disturbed
    is_complete: bool = False


class RunFailed(Exception):
    """One run gave no result; the text says why."""


def name_of(allocator: Optional[Allocator]) -> str:
    return allocator.name if allocator else FLOOR_NAME


@dataclass
class Best:
    """The best that was seen around any run of the session."""

    room: float = 0.0
    distance_ns: float = 0.0  # 0: none was known

    def note(self, sample: Sample) -> None:
        self.room = max(self.room, sample.room)
        if sample.distance_ns != 0:
            self.distance_ns = min(self.distance_ns or sample.distance_ns, sample.distance_ns)


def is_disturbed(row: Row, sample: Sample, best: Best) -> bool:
    """Whether a core was shared that at other times was not, or two CPUs were far apart that at other times were
    near. By these alone: were the time asked too, what is kept would depend on how it came out."""
    is_far = row.is_parallel and sample.distance_ns > DISTANCE_AT_MOST * best.distance_ns
    return is_far or sample.room < ROOM_AT_LEAST * best.room


def parse_result(text: bytes, allocator: Optional[Allocator]) -> dict:
    """The program's JSON line, once it has proved which malloc it used."""
    try:
        result = json.loads(text)
        malloc_from = result["malloc_from"]
        is_usable = result["ops"] > 0 and result["wall_s"] >= 0
    except (ValueError, KeyError, TypeError):
        raise RunFailed("the program's result cannot be read") from None
    if not is_usable:
        raise RunFailed("the program did nothing")
    if allocator is not None and not allocator.is_in_effect(malloc_from):
        raise RunFailed(f"not in effect: malloc comes from {malloc_from or 'an unknown object'}")
    return result


class Runner:
    """Runs bench programs under allocators. `on_run(row, allocator, what)`, names, is told of each run."""

    def __init__(self, settings: Settings, on_run: Callable[[str, str, str], None]):
        self.settings = settings
        self.on_run = on_run
        self.random = random.Random(settings.shuffle_seed)
        self.best = Best()  # of all runs so far

    def run_once(self, row: Row, allocator: Optional[Allocator], iterations: int) -> Sample:
        """One run; raises RunFailed. Without an allocator (the floor) none is preloaded nor asked for."""
        build = self.settings.build
        command = [os.path.join(build, row.program), "--json", *row.arguments(iterations)]
        env = (
            allocator.environment(os.environ)
            if allocator
            else {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        )
        limit = self.settings.limit_s + (row.seconds or 0)
        outcome = launch.run(os.path.join(build, "launch"), command, env, limit)
        try:
            reason = outcome.failure()
            if reason is not None:
                raise RunFailed(reason)
            result = parse_result(outcome.read_output(), allocator)
        finally:
            outcome.close()
        return Sample(
            result["ops"],
            result["wall_s"],
            result["cpu_s"],
            outcome.usage,
            result["metrics"],
            result["points"],
        )

    def take_sample(self, row: Row, allocator: Optional[Allocator], iterations: int) -> Sample:
        """One run whose surroundings count; raises RunFailed."""
        sample = self.run_once(row, allocator, iterations)
        self.best.note(sample)
        return sample

    def find_iterations(self, row: Row, allocator: Optional[Allocator]) -> int:
        """Iterations with which a run lasts about the target: grown run by run, or cut down at once."""
        iterations = row.iterations
        for _ in range(12):
            took = self.take_sample(row, allocator, iterations).wall_s
            growth = self.settings.target_s / max(took, 1e-6)
            if growth < 0.5:
                return max(1, int(iterations * growth))
            if growth < 1.33:
                break
            iterations = int(iterations * min(GROWTH_AT_MOST, growth)) + 1
        return iterations

    def warm_up(self, row: Row, allocators: List[Allocator], result: RowSamples) -> None:
        """Finds the iterations, runs every allocator once, and fits the row into its time."""
        result.iterations = row.iterations
        is_grown = not row.is_grown
        cost_s, fastest_s = 0.0, float("inf")
        for allocator in allocators:
            self.on_run(row.name, allocator.name, "warm-up")
            try:
                if not is_grown:
                    result.iterations = self.find_iterations(row, allocator)
                    is_grown = True
                sample = self.take_sample(row, allocator, result.iterations)
            except RunFailed as failed:
                result.failures[allocator.name] = f"{failed} (in the warm-up)"
                continue
            cost_s += sample.usage["wall_s"]
            fastest_s = min(fastest_s, max(sample.wall_s, 1e-6))
        whole_s = cost_s * self.settings.rounds
        if row.is_grown and whole_s > self.settings.row_cap_s:
            # The fastest run must stay long enough to be measured at all.
            shrink = max(self.settings.row_cap_s / whole_s, min(1.0, self.settings.target_s / 3 / fastest_s))
            result.iterations = max(1, int(result.iterations * shrink))

    def run_round(
        self, row: Row, order: List[Optional[Allocator]], result: RowSamples, number: int, what: str
    ) -> List[Optional[Allocator]]:
        """Runs these, each in place of the sample that it already has of this round; returns the disturbed."""
        for allocator in order:
            name = name_of(allocator)
            self.on_run(row.name, name, what)
            try:
                sample = self.take_sample(row if allocator else floor_row(row), allocator, result.iterations)
            except RunFailed as failed:
                result.failures[name] = f"{failed} (in round {number})"
                continue
            result.samples.setdefault(name, [])[number - 1 :] = [sample]
        going_on = [a for a in order if name_of(a) not in result.failures]
        return [a for a in going_on if is_disturbed(row, result.samples[name_of(a)][-1], self.best)]

    def run_rounds(self, row: Row, allocators: List[Allocator], result: RowSamples) -> None:
        rounds = 1 if row.is_single else self.settings.rounds
        everyone: List[Optional[Allocator]] = [*allocators, None] if row.floor else list(allocators)
        repeats_left = int(EXTRA_ROUNDS * len(everyone)) if row.is_timed else 0
        for number in range(1, rounds + 1):
            order = [a for a in everyone if name_of(a) not in result.failures]
            self.random.shuffle(order)
            what = f"round {number}/{rounds}"
            disturbed = self.run_round(row, order, result, number, what)[:repeats_left]
            result.repeated += len(disturbed)
            while disturbed:
                repeats_left -= len(disturbed)
                disturbed = self.run_round(row, disturbed, result, number, f"{what} again")[:repeats_left]

    def measure(self, row: Row, allocators: List[Allocator], result: RowSamples) -> None:
        """Fills `result`, which keeps what there is when this is interrupted."""
        if row.is_single:
            result.iterations = row.iterations
        else:
            self.warm_up(row, allocators, result)
        self.run_rounds(row, allocators, result)
        result.is_complete = True
