"""One whole comparison: rows measured one after the other, stopped cleanly by Ctrl-C, turned into results."""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from typing import Callable, List

from . import analysis, machine, markdown, report, results as files, table, units
from .allocators import Allocator
from .measure import Best, RowSamples, Runner, Settings
from .progress import Progress
from .rows import Row

EXIT_OK = 0
EXIT_FAILED_RUNS = 1
EXIT_INTERRUPTED = 130


@dataclasses.dataclass
class Plan:
    """All that is decided before the first run."""

    top: str
    rows: List[Row]
    allocators: List[Allocator]
    missing: List[str]
    baseline: str
    settings: Settings
    clock: str  # wall or cpu
    alpha: float
    has_noise_check: bool
    compiler: str
    title: str
    is_user_command: bool = False


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def frozen(plan: Plan):
    """The plan with copies of all libraries that are not the system's: a build that goes on beside a long run
    must not change what is measured halfway."""
    with tempfile.TemporaryDirectory(prefix="bench-libraries-") as folder:
        copies = []
        for number, allocator in enumerate(plan.allocators):
            path = allocator.path
            if path and not path.startswith("/usr/"):
                os.makedirs(os.path.join(folder, str(number)))
                path = shutil.copy2(path, os.path.join(folder, str(number)))
            copies.append(dataclasses.replace(allocator, path=path))
        yield dataclasses.replace(plan, allocators=copies)


def measure_all(plan: Plan, make_runner: Callable[..., Runner]) -> tuple:
    """The samples of every row, the best that was around a run, and whether the rest of the rows is missing."""
    everyone = list(plan.allocators)
    if plan.has_noise_check:
        everyone.append(next(a for a in everyone if a.name == plan.baseline).twin())
    progress = Progress(plan.rows, len(everyone), plan.settings.rounds, plan.settings.target_s)
    runner = make_runner(plan.settings, progress.on_run)
    measured: List[RowSamples] = []
    try:
        for row in plan.rows:
            measured.append(RowSamples(row))
            # The twin of a single run says nothing: there is no interval to be inside of.
            runner.measure(row, everyone if not row.is_single else plan.allocators, measured[-1])
            failed = ", ".join(f"{n}: {why}" for n, why in measured[-1].failures.items())
            progress.row_done(row.name, f" ({failed})" if failed else "")
        return measured, runner.best, False
    except KeyboardInterrupt:
        return measured, runner.best, True
    finally:
        progress.close()


def shown(plan: Plan) -> List[dict]:
    """The allocators as results name them: libraries of this checkout by their path in it."""
    found = []
    for allocator in plan.allocators:
        path = allocator.path
        if path and path.startswith(plan.top + os.sep):
            path = os.path.relpath(path, plan.top)
        found.append({**dataclasses.asdict(allocator), "path": path})
    return found


def build_results(
    plan: Plan,
    measured: List[RowSamples],
    best: Best,
    is_partial: bool,
    header: dict,
    took_s: float,
) -> dict:
    names = [a.name for a in plan.allocators]
    twin = f"{plan.baseline} again" if plan.has_noise_check else None
    rows = [
        analysis.row_data(m, names, twin, plan.baseline, plan.clock, plan.alpha, best)
        for m in measured
        if m.samples or m.failures
    ]
    return {
        "format": files.FORMAT,
        "title": plan.title,
        "is_partial": is_partial,
        "command": " ".join(shlex.quote(a) for a in [os.path.relpath(sys.argv[0], plan.top), *sys.argv[1:]]),
        "took_s": took_s,
        "machine": header,
        "missing": plan.missing,
        "baseline": plan.baseline,
        "names": names,
        "allocators": shown(plan),
        "settings": {k: v for k, v in dataclasses.asdict(plan.settings).items() if k != "build"},
        "clock": plan.clock,
        "alpha": plan.alpha,
        "is_user_command": plan.is_user_command,
        "rows": rows,
        "means": analysis.means([r for r in rows if r["is_complete"]], names, plan.baseline),
        "noise": analysis.noise(rows),
        "neighbours": analysis.neighbours(rows, best),
        "tally": analysis.tally(rows),
    }


def write_results(results: dict, folder: str) -> None:
    written = files.write_all(
        folder,
        {
            "results.json": lambda: json.dumps(results, indent=1) + "\n",
            "results.csv": lambda: files.as_csv(results),
            "report.html": lambda: report.render(results),
            "results.md": lambda: markdown.render(results),
        },
        say,
    )
    for path in written:
        say(f"wrote {os.path.relpath(path)}")


def measure_results(plan: Plan, make_runner: Callable[..., Runner] = Runner) -> tuple:
    """Prints the header, measures; returns the results (None if there are none) and the exit code."""
    header = machine.describe(plan.top, plan.compiler, plan.clock)
    print(table.render_machine(header, shown(plan)))
    for line in plan.missing:
        print(f"missing: {line}")
    sys.stdout.flush()
    began = time.monotonic()
    try:
        with frozen(plan) as frozen_plan:
            measured, best, is_partial = measure_all(frozen_plan, make_runner)
    except OSError as error:  # no room for the copies, say
        say(f"cannot go on: {error}")
        return None, EXIT_FAILED_RUNS
    took_s = time.monotonic() - began
    load = os.getloadavg()
    header["load after"] = " ".join(f"{v:.2f}" for v in load) + " (1, 5, 15 minutes)"
    results = build_results(plan, measured, best, is_partial, header, took_s)
    if not results["rows"]:
        say("stopped before any row was measured; nothing is written")
        return None, EXIT_INTERRUPTED
    if is_partial:
        return results, EXIT_INTERRUPTED
    return results, EXIT_FAILED_RUNS if any(r["failures"] for r in results["rows"]) else EXIT_OK


def run(plan: Plan, folder: str, make_runner: Callable[..., Runner] = Runner) -> int:
    """Measures, prints the table, writes the files; returns the exit code."""
    results, status = measure_results(plan, make_runner)
    if results is None:
        return status
    try:
        print("\n" + table.render(results) + f"This took {units.duration(results['took_s'])}.", flush=True)
    except OSError as error:
        say(f"cannot print the table: {error.strerror}")
    write_results(results, folder)
    return status
