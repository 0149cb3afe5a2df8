#!/usr/bin/env python3
"""Changes the library mechanically, one place at a time, and sees which test notices.

usage: tests/mutation/mutate.py [--seed N] [--count N] [--next N] [--until STAGE] [--only TEXT] [--again] [--report]

A seeded sample of `count` mutants of core/ that compile, and whose machine code differs from the original's, is run
against the suites of `make test`, those first that are quick; the first suite that fails has killed the mutant. What
was found is kept in build/mutation/state.json after each mutant, so that a run can be cut off and taken up again;
--next ends it after N mutants. --until STAGE leaves the later stages to another run. --report writes REPORT.md from
what is known and runs nothing. equivalent.txt says of survivors why no test can tell them.
"""
import argparse
import collections
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "checks")]
from common import Source, c_sources  # noqa: E402
from operators import OPERATORS, Mutant, mutants_of  # noqa: E402

SCRATCH = ROOT / "build/mutation"
TREE = SCRATCH / "tree"
STATE = SCRATCH / "state.json"
STARTED = SCRATCH / "started"  # the digest of the tree that was built and run without a mutant
REPORT = HERE / "REPORT.md"
EQUIVALENT = HERE / "equivalent.txt"
BUILD_LIMIT_S = 600
FILE_BYTES_MAX = 1 << 30

# (name, prefixes of suites, flavours; None: every flavour). The last one is all that `make test` runs.
STAGES = [
    ("debug", ("unit", "api", "misuse", "model"), ("debug", "")),
    ("release", ("unit", "api", "misuse", "process", "stress"), ("release", "debug")),
    ("all", ("",), None),
]


def run(command, limit_s=BUILD_LIMIT_S, **options):
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=limit_s, check=False, **options)


def runner_of_tests():
    """tests/run of the scratch tree as a module: it finds suites and runs them there."""
    loader = importlib.machinery.SourceFileLoader("tests_run", str(TREE / "tests/run"))
    spec = importlib.util.spec_from_loader("tests_run", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tests_run"] = module
    loader.exec_module(module)
    return module


# ---- the scratch tree ---------------------------------------------------------------------------------------


def refresh_tree():
    """Makes the scratch tree what this one is; files that are the same keep their time, so little is rebuilt."""
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )
    names = {name for name in told.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for target in TREE.rglob("*"):
        name = str(target.relative_to(TREE))
        if target.is_file() and not name.startswith(("build/", "libhakmem")) and name not in names:
            target.unlink()
    # The checks ask git what belongs to the tree.
    if not (TREE / ".git").exists():
        run(["git", "init", "-q"])


def digest_of_tree():
    digest = hashlib.sha256()
    for folder in ("core", "include", "tests", "Makefile"):
        for path in sorted((TREE / folder).rglob("*")) or [TREE / folder]:
            if path.is_file() and path.suffix != ".pyc" and path.name not in (REPORT.name, EQUIVALENT.name):
                digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


# ---- machine code -------------------------------------------------------------------------------------------

CODE_FLAGS = ["-g0", "-fno-lto", "-w", "-o", "-", "-S", "-fno-exceptions"]


def compile_flags(flavour):
    flags = (TREE / f"build/{flavour}/flags").read_text().split()
    flags = flags[flags.index("-std=gnu17") :]
    return [flag for flag in flags if not flag.startswith(("-flto", "-g", "-ffat"))]


def code_of(files):
    """A digest of the machine code that the files compile to, or None when one does not compile."""
    digest = hashlib.sha256()
    for flavour in ("debug", "archive"):
        flags = compile_flags(flavour)
        for file in files:
            told = run(["gcc", *flags, *CODE_FLAGS, file])
            if told.returncode != 0:
                return None
            # Assertions name their line; a mutant keeps lines where they are.
            digest.update(told.stdout.encode())
    return digest.hexdigest()


def compiles_with_warnings(files):
    """Whether the project's own flags, warnings as errors, let the files pass."""
    flags = compile_flags("debug")
    return all(run(["gcc", *flags, "-fsyntax-only", file]).returncode == 0 for file in files)


def users_of(file):
    """The C files whose code a change to this file can change."""
    if file.endswith(".c"):
        return [file]
    users = set()
    for listing in (TREE / "build/debug").rglob("*.d"):
        text = listing.read_text().replace("\\\n", " ")
        words = text.split()
        if file in words:
            users.add(words[1])
    return sorted(users)


# ---- one mutant ---------------------------------------------------------------------------------------------


def targets_of(tests, suites):
    targets = set()
    for suite in suites:
        program, preload = suite.command()
        if suite.source.suffix not in (".sh", ".py"):
            targets.add(str(program.relative_to(TREE)))
        if preload is not None:
            targets.add(str(preload.relative_to(TREE)))
        if suite.name.startswith("model/"):
            targets.add("model")
    return sorted(targets) + ["libhakmem-debug.so"]


def suites_in(tests, prefixes, flavours):
    suites = [
        suite for suite in tests.find_suites(list(prefixes), False)
        if flavours is None or suite.flavour in flavours
    ]
    # What takes the whole machine or minutes comes last.
    return sorted(suites, key=lambda suite: (suite.is_alone, suite.limit_s, suite.name))


def find_unsteady(tests, until):
    """The suites that fail without any mutant, here and now: they can tell nothing."""
    unsteady = []
    for stage in STAGES:
        for suite in suites_in(tests, *stage[1:]):
            if tests.run_suite(suite, 1).failed and tests.run_suite(suite, 1).failed:
                unsteady.append(suite.title)
        if stage[0] == until:
            break
    return unsteady


def run_stage(tests, stage, done):
    """None, or the suite that failed and why. `done` collects what passed."""
    name, prefixes, flavours = stage
    suites = [suite for suite in suites_in(tests, prefixes, flavours) if suite.title not in done]
    targets = ["test-programs"] if flavours is None else targets_of(tests, suites)
    try:
        told = run(["make", "-s", *targets])
    except subprocess.TimeoutExpired:
        return f"{name}: building", "did not end"
    if told.returncode != 0:
        return f"{name}: building", (told.stderr.strip().splitlines() or ["failed"])[0][:160]
    for suite in suites:
        result = tests.run_suite(suite, 1)
        if result.failed:
            return suite.title, reason_of(result)
        done.append(suite.title)
    return None


def reason_of(result):
    for pattern in (r"hakmem: .*", r"\[  FAILED  \] (?!.*test\(s\)).*", r"^FAILED.*", r"^not ok.*"):
        found = re.search(pattern, result.output, re.M)
        if found:
            return (f"{result.note}: " if result.note else "") + found.group()[:120]
    return result.note or "failed"


def judge(tests, left_out, until):
    """Runs the stages on the mutant that stands in the tree; says who killed it, or how far it came."""
    done = list(left_out)
    started = time.monotonic()
    for stage in STAGES:
        killed = run_stage(tests, stage, done)
        if killed is not None:
            return {"killed_by": killed[0], "why": killed[1], "seconds": round(time.monotonic() - started)}
        if stage[0] == until:
            break
    return {"survived": until or STAGES[-1][0], "seconds": round(time.monotonic() - started)}


class Planted:
    """The mutant in the tree while the block runs."""

    def __init__(self, mutant):
        self.path = TREE / mutant.file
        self.text = self.path.read_text(encoding="utf-8")
        self.mutated = self.text[: mutant.start] + mutant.put + self.text[mutant.end :]

    def __enter__(self):
        self.path.write_text(self.mutated, encoding="utf-8")

    def __exit__(self, *_):
        self.path.write_text(self.text, encoding="utf-8")


# ---- the sample ---------------------------------------------------------------------------------------------


def shuffled(seed):
    """Every mutant, operators by turns, in an order that the seed decides."""
    by_operator = collections.defaultdict(list)
    for source in c_sources(TREE, "core"):
        for mutant in mutants_of(source):
            by_operator[mutant.operator].append(mutant)
    rng = random.Random(seed)
    for operator in OPERATORS:
        rng.shuffle(by_operator[operator])
    queues = [collections.deque(by_operator[operator]) for operator in OPERATORS]
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.popleft()


def load_state(seed):
    if STATE.exists():
        state = json.loads(STATE.read_text())
        if state["seed"] == seed:
            return state
    return {"seed": seed, "mutants": {}, "discarded": {}, "left_out": []}


def save_state(state):
    partial = STATE.with_suffix(".new")
    partial.write_text(json.dumps(state, indent=1))
    partial.replace(STATE)


def is_real(mutant, clean):
    """None for a mutant that compiles to something else, or why it is none."""
    users = users_of(mutant.file)
    key = tuple(users)
    if key not in clean:
        clean[key] = code_of(users)
    with Planted(mutant):
        if not compiles_with_warnings(users):
            return "does not compile"
        code = code_of(users)
    if code is None:
        return "does not compile"
    return "same machine code" if code == clean[key] else None


def work(arguments):
    TREE.mkdir(parents=True, exist_ok=True)
    refresh_tree()
    if STARTED.exists() and STARTED.read_text() != digest_of_tree():
        STARTED.unlink()
    tests = runner_of_tests()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    state = load_state(arguments.seed)
    if not STARTED.exists():
        told = run(["make", "-s", "test-programs"], 3600)
        if told.returncode != 0:
            sys.exit(told.stderr)
        state["left_out"] = find_unsteady(tests, arguments.until)
        print(f"left out, because they fail without a mutant: {state['left_out']}", flush=True)
        save_state(state)
        STARTED.write_text(digest_of_tree())
    clean = {}
    taken = ran = 0
    for mutant in shuffled(arguments.seed):
        if taken == arguments.count or ran == arguments.next:
            break
        text = (TREE / mutant.file).read_text(encoding="utf-8")
        key = mutant.key(text)
        if key in state["discarded"] or (arguments.only and arguments.only not in key):
            continue
        known = state["mutants"].get(key)
        if known is None:
            why_not = is_real(mutant, clean)
            if why_not is not None:
                state["discarded"][key] = why_not
                save_state(state)
                continue
        taken += 1
        stages = [stage[0] for stage in STAGES]
        is_open = known is None or (
            "survived" in known
            and (arguments.again or stages.index(known["survived"]) < stages.index(arguments.until or stages[-1]))
        )
        if not is_open or (arguments.operator and mutant.operator != arguments.operator):
            continue
        print(f"{taken}: {mutant.file}:{mutant.line} {mutant.operator}", flush=True)
        with Planted(mutant):
            found = judge(tests, state["left_out"], arguments.until)
        state["mutants"][key] = {"line": mutant.line, **found}
        save_state(state)
        print(f"    {found}", flush=True)
        ran += 1


# ---- the report ---------------------------------------------------------------------------------------------


def equivalents():
    """key -> reason, from equivalent.txt: a line with the key, and an indented one with the reason below it."""
    reasons = {}
    key = None
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []:
        if line.startswith(" ") and key is not None:
            reasons[key] = (reasons.get(key, "") + " " + line.strip()).strip()
        elif line and not line.startswith("#"):
            key = line.strip()
    return reasons


def cell(text):
    return text.replace("|", "\\|")


def report():
    state = json.loads(STATE.read_text())
    reasons = equivalents()
    rows, survivors, counts = [], [], collections.Counter()
    by_operator = collections.defaultdict(collections.Counter)
    for key, found in sorted(state["mutants"].items(), key=lambda item: (item[0].split(" ~ ")[0], item[1]["line"])):
        file, operator, before, after = key.split(" ~ ")
        if "killed_by" in found:
            verdict, detail = "killed", f"{found['killed_by']}: {found['why']}"
        elif key in reasons:
            verdict, detail = "equivalent", reasons[key]
        else:
            verdict, detail = "survived", f"passed the stages up to {found['survived']}"
            survivors.append(f"- `{file}:{found['line']}` {operator}: `{before}` → `{after}`")
        counts[verdict] += 1
        by_operator[operator][verdict] += 1
        rows.append(f"| {file}:{found['line']} | {operator} | `{cell(before)}` → `{cell(after)}` | {verdict}: {cell(detail)} |")
    discarded = collections.Counter(state["discarded"].values())
    lines = [
        "# Mutants and the tests that kill them",
        "",
        "Made by `make mutation`; not to be edited. The tool and its operators: `tests/mutation/mutate.py`.",
        "",
        f"Seed {state['seed']}: {len(state['mutants'])} mutants, {counts['killed']} killed, "
        f"{counts['equivalent']} equivalent, {counts['survived']} survived. Not counted: "
        + ", ".join(f"{number} {why}" for why, number in sorted(discarded.items())) + ".",
        "",
        "| operator | killed | equivalent | survived |",
        "|---|---|---|---|",
    ]
    for operator in OPERATORS:
        found = by_operator[operator]
        lines.append(f"| {operator} | {found['killed']} | {found['equivalent']} | {found['survived']} |")
    lines += ["", "## Survivors", ""] + (survivors or ["None."])
    lines += ["", "## All", "", "| place | operator | change | verdict |", "|---|---|---|---|"] + rows
    REPORT.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--next", type=int, default=-1, help="end after this many mutants")
    parser.add_argument("--until", choices=[stage[0] for stage in STAGES], help="leave out the later stages")
    parser.add_argument("--again", action="store_true", help="survivors once more, from the start")
    parser.add_argument("--operator", choices=OPERATORS, help="only mutants of this operator")
    parser.add_argument("--only", help="only mutants with this text in their line of the state")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        work(arguments)
    report()


if __name__ == "__main__":
    main()
