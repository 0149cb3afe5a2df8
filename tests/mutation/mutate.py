#!/usr/bin/env python3
"""Changes the library mechanically, one place at a time, and sees which test notices.

usage: tests/mutation/mutate.py [--seed N] [--count N] [--minutes N] [--until STAGE] [--only TEXT] [--with SUITES] [--again] [--report]

A seeded sample of `count` mutants of core/ that compile, and whose machine code differs from the original's, is run
against the suites of `make test`, those first that are quick and likely to notice; the first that fails has killed the
mutant. What was found is kept in results.json after each mutant, so that a run can be cut off and taken up again; --minutes
ends it when so many are over. --until STAGE leaves the later stages to another run; a survivor goes on where it came to. --with
runs survivors against some suites alone. --report writes REPORT.md from what is known
and runs nothing. equivalent.txt says of survivors why no test can tell them.
"""
import argparse
import collections
import hashlib
import json
import resource
import sys
import time

from operators import OPERATORS, mutants_of  # first: it finds the checks' common.py
from common import c_sources
import report
import suites
import tree

STATE = tree.ROOT / "tests/mutation/results.json"
FILE_BYTES_MAX = 1 << 30
TOLD_APART_BY = ("libhakmem-debug.so", "build/archive/libhakmem.a", "model")  # what stages_for() looks at


def sample(state):
    """Every mutant: those drawn before as far as they still stand in core/, then the others, operators by turns, in an
    order that the seed decides and that edits elsewhere do not change."""
    by_operator = collections.defaultdict(dict)
    for source in c_sources(tree.TREE, "core"):
        seen = collections.Counter()
        for mutant in mutants_of(source):
            key = mutant.key(source.text)
            seen[key] += 1
            by_operator[mutant.operator][key if seen[key] == 1 else f"{key} ~ {seen[key]}"] = mutant
    mutants = {key: mutant for known in by_operator.values() for key, mutant in known.items()}
    for key in [key for key in state["mutants"] if key not in mutants]:
        del state["mutants"][key]
    yield from ((key, mutants[key]) for key in list(state["mutants"]))
    drawn = set(state["mutants"]) | set(state["discarded"])

    def place(key):
        return hashlib.sha256(f"{state['seed']} {key}".encode()).digest()

    queues = [collections.deque(sorted(set(by_operator[operator]) - drawn, key=place)) for operator in OPERATORS]
    while any(queues):
        for queue in queues:
            if queue:
                key = queue.popleft()
                yield key, mutants[key]


def load_state(seed):
    if STATE.exists():
        state = json.loads(STATE.read_text())
        if state["seed"] == seed:
            return state
    return {"seed": seed, "left_out": [], "seconds": {}, "discarded": {}, "mutants": {}}


def save_state(state):
    partial = STATE.with_suffix(".new")
    partial.write_text(json.dumps(state, indent=1) + "\n")
    partial.replace(STATE)


# ---- the tree without a mutant ------------------------------------------------------------------------------


def run_clean(tests, state, until):
    """Every suite once: how long it takes, and what fails anyhow and can tell nothing."""
    state["left_out"] = []
    for stage in suites.STAGES:
        wanted = suites.suites_of(tests, stage, state["seconds"])
        failed = tree.make([*suites.targets_of(stage, wanted), *TOLD_APART_BY])
        if failed is not None:
            sys.exit(failed)
        tree.remember_clean()
        for suite in wanted:
            if suite.title not in state["seconds"] or suite.title in state["left_out"]:
                result = tests.run_suite(suite, 1)
                state["seconds"][suite.title] = round(result.seconds, 2)
                if result.failed and suites.fails(tests, suite) is not None:
                    state["left_out"].append(suite.title)
        if stage[0] == until:
            break
    print(f"left out, because they fail without a mutant: {state['left_out']}", flush=True)
    save_state(state)
    with tree.STARTED.open("a") as started:
        started.write(f"{tree.digest()} {until}\n")


# ---- one mutant ---------------------------------------------------------------------------------------------


def stages_for(planted, mutant):
    """The stages that can tell the mutant from the original, or why there is nothing to tell."""
    if tree.make(["libhakmem-debug.so"]) is not None:
        return "does not compile"
    stages = suites.STAGES
    if mutant.operator == "order":
        stages = sorted(stages, key=lambda stage: stage is not suites.MODEL)
    if planted.changed_objects("debug"):
        return stages
    # Nothing in the debug flavour; perhaps in what release alone compiles.
    if tree.make(["build/archive/libhakmem.a"]) is not None:
        return "does not compile"
    if planted.changed_objects("archive"):
        return stages
    # This processor may order what C11 does not; the models go by C11.
    if mutant.operator == "order" and tree.make(["model"]) is None and planted.changed_objects("model"):
        return [suites.MODEL]
    return "same machine code"


def judge(tests, mutant, state, arguments, stages, passed):
    """Runs the stages on the mutant that stands in the tree; says who killed it, or how far it came. It came through
    the stage `passed` before."""
    started = time.monotonic()
    done = set(state["left_out"])
    names = [stage[0] for stage in stages]
    last = names[-1]
    if arguments.with_suites:
        stages = [("chosen", tuple(arguments.with_suites.split()), suites.FLAVOURS)]
    elif passed in names:
        begin = names.index(passed) + 1
        for stage in stages[:begin]:
            done.update(suite.title for suite in suites.suites_of(tests, stage, state["seconds"]))
        stages = stages[begin:]
    for stage in stages:
        wanted = [suite for suite in suites.suites_of(tests, stage, state["seconds"]) if suite.title not in done]
        failed = tree.make(suites.targets_of(stage, wanted))
        if failed is not None:
            return {"killed_by": f"building for {stage[0]}", "why": failed}
        wanted.sort(key=suites.likelihood(state["mutants"], mutant.file, state["seconds"]))
        killer = suites.first_failure(tests, wanted, state["seconds"])
        if killer is not None:
            seconds = round(time.monotonic() - started)
            return {"killed_by": killer[0].title, "why": suites.reason_of(killer[1]), "seconds": seconds}
        done.update(suite.title for suite in wanted)
        if not arguments.with_suites:
            passed = suites.STAGE_NAMES[-1] if stage[0] == last else stage[0]
        if stage[0] == arguments.until:
            break
    return {"survived": passed, "seconds": round(time.monotonic() - started)}


def is_open(known, arguments):
    """Whether there is something left to do for a mutant."""
    if known is None:
        return arguments.with_suites is None
    passed = suites.STAGE_NAMES.index(known["survived"]) if "survived" in known else len(suites.STAGE_NAMES)
    last = suites.STAGE_NAMES.index(arguments.until or suites.STAGE_NAMES[-1])
    return "survived" in known and (passed < last or arguments.again or arguments.with_suites is not None)


def work(arguments):
    tree.refresh()
    tests = suites.runner()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    state = load_state(arguments.seed)
    started = tree.STARTED.read_text().splitlines() if tree.STARTED.exists() else []
    if f"{tree.digest()} {arguments.until}" not in started:
        run_clean(tests, state, arguments.until)
    taken = 0
    end = time.monotonic() + 60 * arguments.minutes
    for key, mutant in sample(state):
        if taken == arguments.count or time.monotonic() > end:
            break
        if arguments.only and arguments.only not in key:
            continue
        known = state["mutants"].get(key)
        taken += known is not None
        if not is_open(known, arguments):
            continue
        with tree.Planted(mutant) as planted:
            stages = stages_for(planted, mutant)
            if isinstance(stages, str):
                state["discarded"][key] = stages
                taken -= known is not None
                state["mutants"].pop(key, None)
            else:
                taken += known is None
                passed = None if known is None or (arguments.again and not arguments.with_suites) else known["survived"]
                print(f"{taken}: {mutant.file}:{mutant.line} {mutant.operator}", flush=True)
                found = judge(tests, mutant, state, arguments, stages, passed)
                state["mutants"][key] = {"line": mutant.line, **found}
                print(f"    {found}", flush=True)
        save_state(state)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=1e9, help="no further mutant after so long")
    parser.add_argument("--until", choices=suites.STAGE_NAMES, help="leave out the later stages")
    parser.add_argument("--again", action="store_true", help="survivors once more, from the start")
    parser.add_argument("--only", help="only mutants with this text in their name in results.json")
    parser.add_argument("--with", dest="with_suites", help="survivors against the suites that start so, and no others")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        work(arguments)
    report.write(json.loads(STATE.read_text()))


if __name__ == "__main__":
    main()
