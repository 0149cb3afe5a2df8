"""The command line of bench/compare."""

import argparse
import os
import sys
from typing import List, Optional

from . import allocators, command, markdown, real, report, results as files, rows, session, table
from .measure import Settings

EXIT_USAGE = 2
REAL = "real"

# set: rounds, seconds a run, seconds a row at most
SETS = {"quick": (7, 0.05, 5.0), "bench": (9, 0.15, 12.0), "full": (11, 0.5, 90.0), "scale": (9, 0.15, 12.0)}
SETS["medley"] = (7, 0.1, 6.0)
SETS["real"] = (7, 0.0, 0.0)  # one run of each program is a sample


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _rounds(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError("at least 2, or there is no interval")
    return value


def make_parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="bench/compare",
        usage="bench/compare [options] [-- command args...]",
        description="Compares allocators on the bench programs, or on a command of your own after '--'.",
    )
    p.add_argument(
        "--set", choices=sorted(SETS), default="bench", help="which rows, how long (default: bench)"
    )
    p.add_argument("--rows", metavar="PATTERN,...", help="only rows whose name, or its first word, matches")
    p.add_argument("--list", action="store_true", help="print the rows and the allocators found, and end")
    p.add_argument("--alloc", metavar="NAME=PATH.so", action="append", default=[], help="one more allocator")
    p.add_argument("--only", metavar="NAME,...", help="only these allocators, in this order")
    p.add_argument("--debug", action="store_true", help="hakmem's debug flavour too")
    p.add_argument("--baseline", metavar="NAME", help="compare with this one (default: hakmem, or the first)")
    p.add_argument("--rounds", type=_rounds, help="measured runs of each allocator in each row")
    p.add_argument("--target", type=_positive, metavar="SECONDS", help="how long a run should last")
    p.add_argument(
        "--limit",
        type=_positive,
        metavar="SECONDS",
        default=30.0,
        help="a run that takes longer is killed (default: 30)",
    )
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what 'time' is (default: wall)")
    p.add_argument(
        "--alpha", type=_positive, default=0.01, help="p below which a difference counts (default: 0.01)"
    )
    p.add_argument(
        "--no-noise-check", action="store_true", help="do not run the baseline under a second name"
    )
    p.add_argument(
        "--shuffle-seed", type=int, default=1, metavar="N", help="seed of the order inside the rounds"
    )
    p.add_argument("--stdin", metavar="FILE", default="/dev/null", help="standard input of your command")
    p.add_argument(
        "--ignore-output", action="store_true", help="your command may print something else each time"
    )
    p.add_argument("--out", metavar="FOLDER", help="where the result files go (default: bench/out)")
    p.add_argument(
        "--show", metavar="RESULTS.json", help="print a saved result's table again, measure nothing"
    )
    p.add_argument("--markdown", metavar="RESULTS.json", help="print a saved result as a page of Markdown")
    p.add_argument("--html", metavar="RESULTS.json", help="print a saved result's HTML report")
    return p


def split_command(argv: List[str]) -> tuple:
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def print_saved(options) -> Optional[int]:
    """Handles --show, --markdown and --html; None when none of them was given."""
    for path, render in (
        (options.show, None),
        (options.markdown, markdown.render),
        (options.html, report.render),
    ):
        if path is None:
            continue
        saved = files.load(path)
        if render is None:
            sys.stdout.write(
                table.render_machine(saved["machine"], saved["allocators"]) + "\n" + table.render(saved)
            )
        else:
            sys.stdout.write(render(saved))
        return 0
    return None


def print_list(chosen_rows, found, missing) -> None:
    for row in chosen_rows:
        arguments = "" if row.sets == "" else " " + " ".join(row.arguments(row.iterations))
        print(f"{row.name:<22} {row.program}{arguments}")
    print()
    for a in found:
        print(f"{a.name:<22} {a.version} {a.path or '(the C library itself)'}")
    for line in missing:
        print(f"missing: {line}")


def rows_of(options, top: str) -> tuple:
    """The rows asked for, and a line for each program of the set that is not installed."""
    patterns = options.rows.split(",") if options.rows else None
    if options.set != REAL:
        return rows.select(options.set, patterns), []
    found, missing = real.find(top)
    return rows.matching(found, patterns), missing if patterns is None else []


def check_build(build: str, programs: List[str]) -> None:
    for name in programs:
        if not os.path.exists(os.path.join(build, name)):
            raise allocators.AllocatorError(
                f"{os.path.join(build, name)} is not built; 'make bench-programs' builds it"
            )


def make_plan(options, user_command: Optional[List[str]], top: str) -> session.Plan:
    build = os.path.abspath(os.environ.get("BENCH_BUILD") or os.path.join(top, "build", "bench"))
    rounds, target_s, cap_s = SETS[options.set]
    found, missing = allocators.find_all(top)
    added = [allocators.named(text) for text in options.alloc]
    chosen = allocators.choose(
        found,
        added,
        options.only.split(",") if options.only else None,
        options.debug or options.set == "full",
    )
    names = [a.name for a in chosen]
    if len(set(names)) != len(names):
        raise allocators.AllocatorError(f"one name twice: {', '.join(names)}")
    baseline = options.baseline or ("hakmem" if "hakmem" in names else names[0])
    if baseline not in names:
        raise allocators.AllocatorError(f"the baseline '{baseline}' is not among {', '.join(names)}")
    if user_command is not None:
        chosen_rows = [command.command_row(user_command)]
        check_build(build, ["launch", "witness.so"])
    else:
        chosen_rows, absent = rows_of(options, top)
        missing += absent
        if not chosen_rows:
            raise allocators.AllocatorError(f"no row of the set '{options.set}' matches '{options.rows}'")
        programs = ["witness.so"] if options.set == REAL else sorted({r.program for r in chosen_rows}) + ["floor"]
        check_build(build, ["launch", *programs])
    is_missing_told = options.only is None
    title = "programs that people run" if options.set == REAL else f"the {options.set} set"
    settings = Settings(
        build,
        options.rounds or rounds,
        options.target or target_s,
        cap_s,
        options.limit,
        options.shuffle_seed,
    )
    return session.Plan(
        top,
        chosen_rows,
        chosen,
        missing if is_missing_told else [],
        baseline,
        settings,
        options.clock,
        options.alpha,
        not options.no_noise_check,
        os.environ.get("CC") or "cc",
        " ".join(user_command) if user_command else title,
        user_command is not None or options.set == REAL,
    )


def check_user_command(options, user_command: Optional[List[str]]) -> Optional[str]:
    if user_command is not None and not user_command:
        return "nothing follows '--'"
    if user_command is None and (options.ignore_output or options.stdin != "/dev/null"):
        return "--stdin and --ignore-output are for a command of your own, after '--'"
    if user_command is not None and (options.rows or options.list):
        return "--rows and --list are for the bench programs, not for a command of your own"
    if not os.access(options.stdin, os.R_OK):
        return f"{options.stdin}: cannot be read"
    return None


def main(argv: List[str], top: str) -> int:
    arguments, user_command = split_command(argv)
    options = make_parser().parse_args(arguments)
    problem = check_user_command(options, user_command)
    if problem:
        session.say(f"bench/compare: {problem}")
        return EXIT_USAGE
    try:
        saved = print_saved(options)
        if saved is not None:
            return saved
        if options.list:
            found, missing = allocators.find_all(top)
            chosen_rows, absent = rows_of(options, top)
            print_list(chosen_rows, found, missing + absent)
            return 0
        plan = make_plan(options, user_command, top)
    except (allocators.AllocatorError, files.ResultsError) as error:
        session.say(f"bench/compare: {error}")
        return EXIT_USAGE
    folder = os.path.abspath(options.out or os.path.join(top, "bench", "out"))
    if user_command is None and options.set == REAL:
        return session.run(plan, folder, lambda settings, on_run: real.RealRunner(settings, on_run, top))
    if user_command is None:
        return session.run(plan, folder)
    return session.run(
        plan,
        folder,
        lambda settings, on_run: command.CommandRunner(
            settings, on_run, user_command, options.stdin, not options.ignore_output
        ),
    )
