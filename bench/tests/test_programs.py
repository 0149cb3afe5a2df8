"""Every bench program, in every mode, with small parameters, on glibc and on hakmem."""

import json
import os
import re
import subprocess
import unittest

import support
from runner import rows

SMALL = ["1000", "32", "7"]
# program: the options of each of its variants
VARIANTS = {
    "random_mixed": [[]],
    "tiny_hot": [["--mode=touched"], ["--mode=untouched"]],
    "mid_mt_gap": [["--threads=1"], ["--threads=3"], ["--mode=buffers", "--threads=1"], ["--mode=buffers", "--threads=3"]],
    "larson": [["--threads=1"], ["--threads=4"]],
    "thread_churn": [["--threads=2"]],
    "batch": [["--mode=fifo"], ["--mode=lifo"], ["--mode=random"]],
    "prodcons": [
        ["--mode=balanced", "--threads=2"],
        ["--mode=balanced", "--threads=3"],
        ["--mode=bursty", "--threads=2"],
        ["--mode=bursty", "--threads=4"],
        ["--mode=fan", "--threads=3"],
    ],
    "shared": [["--mode=small", "--threads=2"], ["--mode=mid", "--threads=3"]],
    "realloc_grow": [["--mode=small"]],
    "calloc_large": [[]],
    "large": [["--mode=mid"]],
    "fragment": [[]],
    "survivors": [[f"--mode={mode}"] for mode in rows.SURVIVORS],
    "idle_return": [["--seconds=0"]],
    "idle_threads": [[]],
    "startup": [[]],
    "false_sharing": [["--mode=active"], ["--mode=passive"]],
    "latency": [["--mode=quiet"], ["--mode=busy"], ["--mode=bulk"]],
    "medley": [[]],
    "floor": [["--mode=random_mixed"], ["--mode=larson", "--threads=2"]],
}
# Where a thousand iterations would be long.
FEW = {
    "realloc_grow --mode=huge": ["1", "1", "7"],
    "large --mode=huge": ["5", "2", "7"],
    "startup": ["5", "100", "7"],
    "thread_churn": ["20", "32", "7"],
    "large --mode=mid": ["50", "8", "7"],
    "calloc_large": ["50", "4", "7"],
    "idle_threads": ["2", "8", "7"],
    "survivors": ["1", "4096", "7"],
    "medley": ["300", "8", "7"],
    "false_sharing": ["200", "33", "7"],
}


def run(program: str, *arguments: str, preload: str = "") -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if preload:
        env["LD_PRELOAD"] = preload
    return subprocess.run(
        [os.path.join(support.BUILD, program), *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )


class Programs(unittest.TestCase):
    def run_all(self, preload: str, malloc_object: str):
        cases = [(p, v) for p, variants in VARIANTS.items() for v in variants]
        cases += [("realloc_grow", ["--mode=huge"]), ("large", ["--mode=huge"])]
        for program, options in cases:
            numbers = FEW.get(" ".join([program, *options]), FEW.get(program, SMALL))
            with self.subTest(program=program, options=options):
                done = run(program, *numbers, "--json", *options, preload=preload)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                result = json.loads(done.stdout)
                self.assertGreater(result["ops"], 0)
                self.assertGreater(result["wall_s"], 0)
                self.assertIn(malloc_object, result["malloc_from"])
                self.assertEqual(result["seed"], 7)

    def test_every_program_runs_on_glibc(self):
        self.run_all("", "libc.so")

    @unittest.skipUnless(os.path.exists(support.HAKMEM), "libhakmem.so is not built")
    def test_every_program_runs_on_hakmem(self):
        self.run_all(support.HAKMEM, "libhakmem.so")

    def test_every_row_is_of_a_program_tested_here(self):
        self.assertEqual({r.program for r in rows.all_rows(4)} - set(VARIANTS), set())

    def test_the_historic_line_is_printed(self):
        done = run("random_mixed", "2000", "64", "42")
        self.assertRegex(
            done.stdout.decode(), r"^Throughput = \d+ ops/s \[iter=2000 ws=64 seed=42\] time=\d+\.\d+s\n$"
        )

    def test_the_same_seed_gives_the_same_work(self):
        first, second = (json.loads(run("fragment", "20000", "200", "5", "--json").stdout) for _ in range(2))
        self.assertEqual(first["metrics"]["live"], second["metrics"]["live"])

    def test_the_seeds_of_medley_draw_each_way_of_use(self):
        drawn = {"way": set(), "make": set(), "threads": set()}
        for row in rows.select("medley", None):
            done = run("medley", "2000", "1", str(row.seed), "--json")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            metrics = json.loads(done.stdout)["metrics"]
            for name, values in drawn.items():
                values.add(metrics[name]["value"])
        self.assertEqual(drawn, {"way": set(range(7)), "make": set(range(3)), "threads": {1, 2, 4}})

    def test_what_a_program_does_not_take_is_refused(self):
        for arguments in (["1000", "32", "7", "9"], ["--threads=2"], ["x"], ["0"], ["--mode=fifo"], ["-5"]):
            done = run("random_mixed", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(b"usage: random_mixed", done.stderr)

    def test_help_names_the_options(self):
        self.assertIn(b"--mode=fifo|lifo|random", run("batch", "--help").stdout)

    def test_a_block_handed_out_twice_is_noticed(self):
        cheat = support.fake_allocator("twice", "FAKE_TWICE=40")
        for program in ("random_mixed", "larson", "shared", "mid_mt_gap", "batch", "fragment", "tiny_hot", "medley"):
            done = run(program, "5000", "64", "7", preload=cheat)
            self.assertEqual(done.returncode, 3, f"{program}: {done.stdout.decode()}{done.stderr.decode()}")
            self.assertIn(b"damaged block", done.stderr)

    def test_no_memory_is_told(self):
        done = run("random_mixed", "5000", "64", "7", preload=support.fake_allocator("empty", "FAKE_NULL_AFTER=100"))
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"no memory", done.stderr)

    def test_idle_return_reads_the_rss_over_time(self):
        result = json.loads(run("idle_return", "20000", "500", "7", "--seconds=1", "--json").stdout)
        times = [t for t, _ in result["points"]]
        self.assertEqual(times, sorted(times))
        self.assertGreaterEqual(times[-1], 1.0)
        self.assertGreater(result["metrics"]["rss_full"]["value"], 20000 * 500 / 2**20)

    def test_the_histogram_of_latency(self):
        done = subprocess.run(
            [os.path.join(support.BUILD, "histogram_test")], stdout=subprocess.PIPE, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def test_every_program_has_help(self):
        for program in VARIANTS:
            self.assertTrue(re.search(rb"^usage: ", run(program, "--help").stdout), program)


if __name__ == "__main__":
    unittest.main()
