"""What is run: the rows of the table, by set.

A row is one bench program with one set of arguments; a line is one figure of a row. The sets: `quick`,
`bench` (all programs), `full` (the same, longer, more thread counts), `scale` (1..N threads) and `medley`
(workloads drawn at random).
"""

import fnmatch
import os
from dataclasses import dataclass, replace
from typing import List, Optional, Tuple


@dataclass(frozen=True)
class Line:
    """One figure: `key` is "time" (of one op) or a metric that the program prints."""

    key: str
    label: str  # appended to the row's name; "" for the row's main line
    unit: str


TIME = (Line("time", "", "ns"),)


@dataclass(frozen=True)
class Row:
    name: str
    program: str
    iterations: int
    working_set: int
    seed: int = 42
    threads: Optional[int] = None  # None: the program has no --threads
    mode: Optional[str] = None
    seconds: Optional[int] = None  # how long the program sleeps
    lines: Tuple[Line, ...] = TIME
    sets: str = "bf"  # q, b, f, s, m
    is_grown: bool = True  # iterations grow until a run is long enough
    is_single: bool = False  # one run: no interval
    is_in_mean: bool = True  # counts in the geometric mean of the times
    floor: Optional[str] = None  # mode of the floor program that runs the same loop
    group: Optional[str] = None  # rows of one group differ in their threads: the scaling chart

    @property
    def is_timed(self) -> bool:
        """Whether a figure of it is a time, which a busy neighbour changes; memory it does not."""
        return any(line.unit == "ns" for line in self.lines)

    @property
    def is_parallel(self) -> bool:
        """Whether it has several threads: what passes between their CPUs, if anything does, is part of its time."""
        return self.threads is not None and self.threads > 1

    def arguments(self, iterations: int) -> List[str]:
        args = [str(iterations), str(self.working_set), str(self.seed)]
        if self.threads is not None:
            args.append(f"--threads={self.threads}")
        if self.mode is not None:
            args.append(f"--mode={self.mode}")
        if self.seconds is not None:
            args.append(f"--seconds={self.seconds}")
        return args


SURVIVORS = ("redis", "defrag", "phases", "slabcache", "arenas", "requests", "threads", "loader")  # its modes


def core_count() -> int:
    return len(os.sched_getaffinity(0))


def _thread_counts(cores: int) -> List[int]:
    """1, 2, 4, ... and the number of cores."""
    counts = {1, cores}
    step = 2
    while step < cores:
        counts.add(step)
        step *= 2
    return sorted(counts)


def _plural(threads: int) -> str:
    return f"{threads}T"


def _history(cores: int) -> List[Row]:
    rows = [
        Row(f"random_mixed {name}", "random_mixed", 1000000, ws, sets=sets, floor="random_mixed")
        for name, ws, sets in (
            ("256", 256, "qbf"),
            ("4096", 4096, "qbf"),
            ("65536", 65536, "qbf"),
            ("1M", 1000000, "bf"),
        )
    ]
    rows.append(Row("tiny_hot", "tiny_hot", 1000000, 16, sets="qbf"))
    rows.append(Row("tiny_hot untouched", "tiny_hot", 1000000, 16, mode="untouched"))
    for threads in _thread_counts(cores):
        sets = "qbfs" if threads in (1, cores) else "fs"
        rows.append(
            Row(
                f"mid_mt_gap {_plural(threads)}",
                "mid_mt_gap",
                1000000,
                256,
                threads=threads,
                sets=sets,
                group="mid_mt_gap",
            )
        )
    for threads in sorted({1, 2, 4, *_thread_counts(cores)}):
        sets = "qbf" if threads == 4 else "bf"
        rows.append(
            Row(
                f"larson {_plural(threads)}",
                "larson",
                1000000,
                1024,
                12345,
                threads=threads,
                sets=sets + ("s" if threads <= cores else ""),
                group="larson",
                floor="larson" if threads in (1, 4) else None,
            )
        )
    return rows


def _patterns(cores: int) -> List[Row]:
    many = max(2, cores)
    faults = Line("faults_per_op", "faults", "faults")
    rows = [
        Row(f"batch {mode}", "batch", 1000000, 10000, mode=mode, sets="qbf" if mode == "random" else "bf")
        for mode in ("fifo", "lifo", "random")
    ]
    for threads in sorted({2, *_thread_counts(cores)} - {1}):
        rows.append(
            Row(
                f"prodcons balanced {_plural(threads)}" if threads != many else "prodcons balanced",
                "prodcons",
                500000,
                1024,
                threads=threads,
                mode="balanced",
                group="prodcons",
                sets="qbfs" if threads == many else "fs",
            )
        )
    rows += [
        Row("prodcons bursty", "prodcons", 500000, 10000, threads=many, mode="bursty"),
        Row("prodcons 1:N", "prodcons", 500000, 1024, threads=max(3, cores), mode="fan"),
        Row("shared small", "shared", 500000, 20000, threads=many, mode="small"),
        Row("shared mid", "shared", 300000, 20000, threads=many, mode="mid"),
    ]
    for threads in _thread_counts(cores):
        rows.append(
            Row(
                "thread_churn" if threads == many else f"thread_churn {_plural(threads)}",
                "thread_churn",
                500,
                100,
                threads=threads,
                group="thread_churn",
                sets="qbfs" if threads == many else "fs",
            )
        )
    rows += [
        Row("realloc_grow", "realloc_grow", 100000, 64, mode="small", sets="qbf"),
        Row(
            "realloc_grow huge",
            "realloc_grow",
            4,
            1,
            mode="huge",
            is_grown=False,
            lines=TIME + (Line("realloc", "realloc", "ns"), Line("realloc_faults", "faults", "faults")),
        ),
        Row("buffers", "mid_mt_gap", 200000, 1, threads=many, mode="buffers"),
        Row("calloc_large", "calloc_large", 1000, 8, sets="qbf", lines=TIME + (faults,)),
        Row("large 5-25M", "large", 100, 8, mode="huge", sets="qbf", lines=TIME + (faults,)),
        Row("large 64K-1M", "large", 2000, 64, mode="mid", lines=TIME + (faults,)),
    ]
    return rows


# Rows whose time is not the point.
_NO_TIME = {"is_grown": False, "is_in_mean": False}


def _memory() -> List[Row]:
    freed = Line("rss_freed", "freed", "MiB")
    after_2s = Line("rss_after_2s", "2 s later", "MiB")
    after_14s = Line("rss_after_14s", "14 s later", "MiB")
    idle = Row("idle_return", "idle_return", 200000, 500, is_single=True, **_NO_TIME)
    per_thread = Line("rss_per_thread", "RSS", "KiB")
    per_live = Line("rss_per_live", "RSS/live", "x")
    of_child = (Line("child_rss", "RSS", "MiB"), Line("child_vsz", "VSZ", "MiB"))
    return [
        Row("fragment", "fragment", 1000000, 40000, is_grown=False, lines=TIME + (per_live,)),
        *(
            Row(f"survivors {mode}", "survivors", 1, 65536, mode=mode, lines=(per_live,), **_NO_TIME)
            for mode in SURVIVORS
        ),
        replace(idle, seconds=2, sets="qb", lines=(freed, after_2s)),
        replace(idle, seconds=14, sets="f", lines=(freed, after_2s, after_14s)),
        Row("idle_threads", "idle_threads", 1, 64, lines=(per_thread,), sets="qbf", **_NO_TIME),
        Row("startup", "startup", 100, 100, sets="qbf", lines=TIME + of_child),
    ]


def _sharing_and_latency(cores: int) -> List[Row]:
    many = max(2, cores)
    percentiles = (
        Line("p50", "p50", "ns"),
        Line("p99_9", "p99.9", "ns"),
        Line("p99_99", "p99.99", "ns"),
        Line("longest", "max", "ns"),
    )
    bulk = Row(
        "latency bulk", "latency", 1, 524288, mode="bulk", is_single=True, lines=percentiles, **_NO_TIME
    )
    return [
        Row("false_shar. active", "false_sharing", 20000, 1000, threads=many, mode="active"),
        Row("false_shar. passive", "false_sharing", 20000, 1000, threads=many, mode="passive"),
        Row("latency busy", "latency", 1500000, 4096, mode="busy", lines=percentiles, **_NO_TIME),
        replace(bulk, sets="b"),
        replace(bulk, sets="f", working_set=2147483),  # 1 GiB
    ]


def _medley() -> List[Row]:
    """The first seeds there are, none left out and none put in."""
    return [Row(f"medley {seed}", "medley", 500, 64, seed, sets="m") for seed in range(1, 61)]


def all_rows(cores: Optional[int] = None) -> List[Row]:
    cores = cores or core_count()
    return _history(cores) + _patterns(cores) + _memory() + _sharing_and_latency(cores) + _medley()


def matching(rows: List[Row], patterns: Optional[List[str]]) -> List[Row]:
    """Those whose name, its first word, or program matches one of the patterns (all if None)."""
    if patterns is None:
        return rows
    return [
        r
        for r in rows
        if any(
            fnmatch.fnmatchcase(r.name, p) or fnmatch.fnmatchcase(r.name.split()[0], p) or r.program == p
            for p in patterns
        )
    ]


def select(set_name: str, patterns: Optional[List[str]], cores: Optional[int] = None) -> List[Row]:
    """The rows of a set of bench programs that match."""
    letter = set_name[0]
    return matching([row for row in all_rows(cores) if letter in row.sets], patterns)


def floor_row(row: Row) -> Row:
    """The floor's run of the same loop."""
    return replace(
        row,
        name=f"floor {row.name}",
        program="floor",
        mode=row.floor,
        lines=TIME,
        threads=row.threads or 1,
        floor=None,
        group=None,
    )
