#!/usr/bin/env python3
"""python3, bash and ls are hardly larger on hakmem than on the C library's malloc.

suite: limit 60 s, flavours release

The resident size, medians of several runs: it swings by some 100 KiB with the addresses that libraries get.
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

RUNS = 21
EXTRA_KIB_MAX = 1024
# python3 frees most of what it had before it ends: it says itself what it holds at work.
PYTHON = """
import os
line = next(line for line in open("/proc/self/smaps_rollup") if line.startswith("Rss:"))
open(os.environ["TEST_RSS_FILE"], "a").write(line.split()[1])
os._exit(0)
"""
PROGRAMS = [
    ("python3", [sys.executable, "-c", PYTHON]),
    ("bash", ["bash", "-c", "for i in {1..2000}; do a[i]=$i; done; echo ${#a[@]}"]),
    ("ls", ["ls", "-l", "/usr/bin"]),
]


def resident_kib(command, libraries, file):
    file.unlink(missing_ok=True)
    environment = {**os.environ, "LD_PRELOAD": " ".join(libraries), "TEST_RSS_FILE": str(file)}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return int(file.read_text().split()[-1])


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    plugin = os.environ["TEST_PLAIN"] + "/plugins/rss_at_exit.so"
    file = pathlib.Path(os.environ["TMPDIR"]) / "rss"
    for name, command in PROGRAMS:
        if shutil.which(command[0]) is None:
            print(f"skipped: {name}: not installed")
            counts["skipped"] += 1
            continue
        runs = [
            (resident_kib(command, [plugin], file), resident_kib(command, [plugin, os.environ["TEST_SO"]], file))
            for _ in range(RUNS)
        ]
        libc, own = (statistics.median(run[i] for run in runs) for i in (0, 1))
        is_small = own <= libc + EXTRA_KIB_MAX
        print(f"{'' if is_small else 'FAILED: '}{name}: libc {libc} KiB, hakmem {own} KiB, {own - libc:+} KiB")
        counts["passed" if is_small else "failed"] += 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
