"""Suites for mutants: found by the tree's own tests/run, those first that are likely to notice, two at a time."""
import collections
import concurrent.futures
import importlib.machinery
import importlib.util
import re
import sys

from tree import TREE

SIDE_BY_SIDE = 2
SHORT_SECONDS = 1
FLAVOURS = ("", "debug", "release", "checked")
SECONDS_MIN = 20  # a suite's limit is this, or ten times what it takes without a mutant

# (name, prefixes of suites, flavours; None: every flavour). The last one is all that `make test` runs. Weakened orders
# go to the models first.
MODEL = ("model", ("model",), ("",))
STAGES = [
    ("short", ("unit", "api", "misuse", "process", "stress"), ("debug", "checked")),
    ("debug", ("unit", "api", "misuse", "process", "stress"), ("debug",)),
    MODEL,
    ("release", ("unit", "api", "misuse", "process", "stress", "memory", "fuzz"), ("release", "debug", "checked")),
    ("all", ("",), None),
]
STAGE_NAMES = [stage[0] for stage in STAGES]


def runner():
    """tests/run of the scratch tree as a module: it finds suites and runs them there."""
    loader = importlib.machinery.SourceFileLoader("tests_run", str(TREE / "tests/run"))
    spec = importlib.util.spec_from_loader("tests_run", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tests_run"] = module
    loader.exec_module(module)
    return module


def suites_of(tests, stage, seconds):
    """`seconds` as far as it is known."""
    name, prefixes, flavours = stage
    wanted = [suite for suite in tests.find_suites(list(prefixes), False) if flavours is None or suite.flavour in flavours]
    return [suite for suite in wanted if name != "short" or seconds.get(suite.title, 0) <= SHORT_SECONDS]


def programs():
    """What suites start or load, and what is no suite: it does not depend on the library."""
    for source in sorted((TREE / "tests").glob("*/*.c*")):
        folder, stem = source.parent.name, source.stem
        if folder == "plugins":
            yield f"build/tests/plain/plugins/{stem}.so"
        elif folder in ("api", "memory", "misuse", "process", "stress") and not stem.endswith("_test"):
            yield f"build/tests/plain/{folder}/{stem}"


def targets_of(stage, suites):
    """What the suites need built."""
    if stage[2] is None:
        return ["test-programs"]
    targets = {"libhakmem-debug.so", *programs()}
    for suite in suites:
        program, preload = suite.command()
        if suite.source.suffix not in (".sh", ".py"):
            targets.add(str(program.relative_to(TREE)))
        if preload is not None or suite.flavour in ("release", "checked"):
            targets.add("libhakmem.so" if suite.flavour != "debug" else "libhakmem-debug.so")
        if suite.name.startswith("model/"):
            targets.add("model")
        if suite.name.startswith("fuzz/"):
            targets.update(f"build/fuzz/{suite.flavour}/replay-{target}" for target in ("operations", "options", "pointers"))
    return sorted(targets)


def reason_of(result):
    for pattern in (r"\[  FAILED  \] (?!.*test\(s\)).*", r"^FAILED.*", r"hakmem: .*", r"^not ok.*", r"^\S+: .* not so: .*"):
        found = re.search(pattern, result.output, re.M)
        if found:
            return (f"{result.note}: " if result.note else "") + found.group().replace("[  FAILED  ] ", "")[:120]
    return result.note or "failed"


def likelihood(known, file, seconds):
    """A function of a suite: how many of the known mutants it killed, those of this file first, for its time."""
    kills, near, nearest = collections.Counter(), collections.Counter(), collections.Counter()
    for key, found in known.items():
        if "killed_by" in found:
            kills[found["killed_by"]] += 1
            near[found["killed_by"]] += key.split("/")[:2] == file.split("/")[:2]
            nearest[found["killed_by"]] += key.startswith(file + " ")
    return lambda suite: -(0.2 + kills[suite.title] + 5 * near[suite.title] + 20 * nearest[suite.title]) / (
        0.5 + seconds.get(suite.title, suite.limit_s)
    )


def fails(tests, suite):
    """The failing result, or None. Two of three runs decide, so that a machine that halts for a while is no kill."""
    first = tests.run_suite(suite, 1)
    if not first.failed:
        return None
    suite.limit_s *= 2
    for _ in range(2):
        again = tests.run_suite(suite, 1)
        if again.failed:
            return again
    return None


def first_failure(tests, suites, seconds):
    """(suite, result) of one that fails, or None. Nothing more is started when one has failed."""
    queue = collections.deque(suites)
    failures = []

    def work():
        while queue and not failures:
            suite = queue.popleft()
            suite.limit_s = min(3 * suite.limit_s, max(SECONDS_MIN, int(10 * seconds.get(suite.title, suite.limit_s))))
            result = fails(tests, suite)
            if result is not None:
                failures.append((suite, result))

    beside = [suite for suite in suites if not suite.is_alone]
    for group, width in ((beside, SIDE_BY_SIDE), ([suite for suite in suites if suite.is_alone], 1)):
        queue = collections.deque(group)
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            for done in [pool.submit(work) for _ in range(width)]:
                done.result()
        if failures:
            return failures[0]
    return None
