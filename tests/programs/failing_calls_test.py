#!/usr/bin/env python3
"""Real programs whose memory calls fail, in turn, or whose address space is limited: each ends with the right output, or says it is out of memory.

suite: limit 900 s
tests/plugins/failing_calls.c makes the n-th call that hakmem itself makes fail, once or from then on. hakmem says
nothing, nothing crashes, the heap is sound at exit. munmap, mremap and madvise have ways around them: where only
these fail, and where an mmap that failed works again, the program must not even notice. (Not perl: it writes to a
block that it was not given.)
"""
import errno
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("TEST_ROOT", ".")).resolve()
DATA = ROOT / "tests/programs/data"
PLUGIN = pathlib.Path(os.environ["TEST_PLAIN"]) / "plugins/failing_calls.so"
LIBRARY = os.environ["TEST_SO"]
SCRATCH = pathlib.Path(os.environ["TMPDIR"])
IS_LONG = int(os.environ.get("TEST_SCALE", "1")) > 1
LIMIT_S = 60
FOR_EVER = 10**9
IS_OUT_OF_MEMORY = re.compile(r"out of memory|memoryerror|memory allocation|cannot allocate memory|nomem", re.I)

ERRORS = {
    "mmap": [errno.ENOMEM, errno.EAGAIN, errno.EPERM],
    "munmap": [errno.ENOMEM, errno.EINVAL],
    "mremap": [errno.ENOMEM, errno.EINVAL, errno.EAGAIN, errno.EFAULT],
    "mprotect": [errno.ENOMEM, errno.EACCES],
    "madvise": [errno.EINVAL, errno.EAGAIN, errno.ENOMEM, errno.EIO],
}
UNNOTICED = {"munmap", "mremap", "madvise"}


class Program:
    def __init__(self, name, command, stdin=None):
        self.name, self.command, self.stdin = name, command, stdin
        self.expected = self.run({}).stdout

    def run(self, changes, limit_mib=None):
        def limit():
            if limit_mib is not None:
                resource.setrlimit(resource.RLIMIT_AS, (limit_mib << 20, limit_mib << 20))

        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "HAKMEM_", "PYTHON"))}
        environment.update(changes, PYTHONHASHSEED="0", HOME=str(SCRATCH), GIT_CONFIG_NOSYSTEM="1")
        return subprocess.run(
            self.command,
            env=environment,
            input=self.stdin,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            cwd=SCRATCH,
            preexec_fn=limit,
        )


def programs():
    """Those that are installed; the others are named."""
    workload = (DATA / "out_of_memory.sql").read_bytes()
    wanted = {
        "python3": ([os.path.realpath(sys.executable), "-I", "-S", str(DATA / "out_of_memory.py")], None),
        "sqlite3": (["sqlite3", "-batch", ":memory:"], workload),
        "git": (["git", "-C", str(SCRATCH / "repository"), "log", "--stat", "-p", "--no-color"], None),
    }
    for name, (command, stdin) in wanted.items():
        if shutil.which(command[0]) is None:
            print(f"skipped: {name}: is not installed")
            continue
        if name == "git":
            make_repository(SCRATCH / "repository")
        yield Program(name, command, stdin)


def make_repository(folder):
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    folder.mkdir()
    for command in (["init", "-q"], ["config", "gc.auto", "0"]):
        subprocess.run(git + command, check=True)
    for number in range(10):
        (folder / f"file{number % 7}").write_text("line\n" * (number * 50 + 1), encoding="utf-8")
        subprocess.run(git + ["add", "-A"], check=True)
        subprocess.run(git + ["commit", "-qm", f"change {number}"], check=True)


def complaint(program, done, report, must_succeed):
    """What is wrong with the end of a run; empty when nothing is."""
    stderr = done.stderr.decode(errors="replace")
    if "hakmem" in stderr:
        return "hakmem has something to say"
    if any(" verify 0" not in line for line in report):
        return "the heap is damaged"
    if done.returncode == 0:
        return "" if done.stdout == program.expected else "wrong output"
    if must_succeed:
        return f"status {done.returncode}"
    if done.returncode < 0 and done.returncode != -signal.SIGABRT:
        return f"killed by {signal.Signals(-done.returncode).name}"
    return "" if IS_OUT_OF_MEMORY.search(stderr) else f"status {done.returncode}, but not a word about memory"


def run_plan(program, call, error, first, count):
    """Returns how many calls failed and what is wrong."""
    path = SCRATCH / "report"
    path.unlink(missing_ok=True)
    plan = {
        "LD_PRELOAD": f"{PLUGIN}:{LIBRARY}",
        "TEST_FAIL": f"{call} {error} {first} {count} {path}",
    }
    must_succeed = call in UNNOTICED or (call == "mmap" and program.name == "python3" and count < FOR_EVER and first > 60)
    try:
        done = program.run(plan)
    except subprocess.TimeoutExpired:
        return 1, f"still running after {LIMIT_S} s", ""
    report = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    failed = sum(int(line.split()[1]) for line in report)
    if not report:
        failed = 1  # ended without its destructors: a call did fail
    wrong = complaint(program, done, report, must_succeed)
    return failed, wrong, done.stderr.decode(errors="replace")[-600:] + "".join(report)


def fail_each(program, call, error, counts):
    """Every n, in growing strides, until the program makes fewer calls; says how many runs went wrong."""
    runs = wrong_runs = 0
    for count in counts:
        first = 1
        while True:
            failed, wrong, text = run_plan(program, call, error, first, count)
            if wrong:
                wrong_runs += 1
                print(f"FAILED: {program.name}: {call} fails with {errno.errorcode[error]} from {first}, {count}: {wrong}")
                print(text)
            if failed == 0:
                break
            runs += 1
            first += 1 if first < (12 if IS_LONG else 2) else first // (4 if IS_LONG else 1)
    print(f"{program.name}: {call}, {errno.errorcode[error]}: {runs} runs", flush=True)
    return runs, wrong_runs


def run_limited(program):
    """The same under `ulimit -v`, from where the program hardly starts to where it has enough. True when all is well."""
    is_well = True
    for limit_mib in (24, 32, 40, 56, 80, 120, 1024):
        done = program.run({"LD_PRELOAD": LIBRARY}, limit_mib)
        wrong = complaint(program, done, [], limit_mib == 1024)
        if wrong:
            is_well = False
            print(f"FAILED: {program.name}: under a limit of {limit_mib} MiB: {wrong}")
            print(done.stderr.decode(errors="replace")[-600:])
    return is_well


def main():
    passed = failed = 0
    for program in programs():
        if program.run({"LD_PRELOAD": LIBRARY}).stdout != program.expected or not program.expected:
            print(f"FAILED: {program.name} on hakmem differs without any failure")
            failed += 1
            continue
        if run_limited(program):
            passed += 1
        else:
            failed += 1
        reached = 0
        for call, errors in ERRORS.items():
            for error in errors if IS_LONG else errors[:1]:
                runs, wrong_runs = fail_each(program, call, error, (1, 20, FOR_EVER) if IS_LONG else (20, FOR_EVER))
                failed += wrong_runs != 0
                passed += wrong_runs == 0
                reached += runs
        if reached < 10:
            print(f"FAILED: {program.name}: only {reached} runs had a failing call")
            failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
