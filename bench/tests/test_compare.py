"""bench/compare as people use it, on fake allocators whose truth is known, and on what goes wrong."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import support
from runner import results as files

# Short runs.
SHORT = ("--rows", "tiny_hot", "--target", "0.02", "--clock", "cpu")


def slow(factor: float) -> str:
    """A malloc that takes this factor longer than slow(1) by its process's clocks."""
    ns = int(300 * factor)
    return support.fake_allocator(f"slow{ns}", f"FAKE_NS={ns}")


def fakes(**paths: str) -> list:
    return [f"--alloc={name}={path}" for name, path in paths.items()] + ["--only", ",".join(paths)]


def real(*names: str) -> list:
    """Fake allocators whose processes have the true clocks."""
    return fakes(**{name: support.fake_allocator(name) for name in names})


def line_of(run: support.Run, idx: int = 0) -> dict:
    return run.results()["rows"][0]["lines"][idx]


class Verdicts(unittest.TestCase):
    def test_an_allocator_slower_by_half_is_found(self):
        run = support.compare(*SHORT, *fakes(one=slow(1), half=slow(1.5)))
        self.assertEqual(run.code, 0, run.err)
        found = line_of(run)["against_baseline"]["half"]
        self.assertEqual(found["verdict"], "more")
        self.assertTrue(1.35 < found["ratio"] < 1.65, found)
        self.assertEqual(line_of(run)["best"], "one")
        self.assertEqual(line_of(run)["tied"], [])
        self.assertIn("win", run.out)

    def test_an_allocator_slower_by_a_tenth_is_found(self):
        for _ in range(3):  # one in a hundred differs by definition of the test
            found = line_of(support.compare(*SHORT, "--rounds", "15", *fakes(one=slow(1), tenth=slow(1.1))))
            found = found["against_baseline"]["tenth"]
            if found["verdict"] == "more" and 1.05 < found["ratio"] < 1.15:
                return
        self.fail(found)

    def test_equal_allocators_tie(self):
        for _ in range(3):  # one in a hundred is called different by definition of the test
            line = line_of(support.compare(*SHORT, *fakes(one=slow(1), same=slow(1))))
            if line["against_baseline"]["same"]["verdict"] == "tie" and len(line["tied"]) == 1:
                return
        self.fail(line)

    def test_single_runs_get_no_verdict(self):
        run = support.compare("--set", "bench", "--rows", "latency bulk", *real("one", "other"))
        self.assertEqual(line_of(run)["against_baseline"]["other"]["verdict"], "unknown")
        self.assertIn("latency bulk p50 ~", run.out)


class Failures(unittest.TestCase):
    def fails(self, name: str, *macros: str, extra=()) -> tuple:
        run = support.compare(
            *SHORT, "--rounds", "2", *extra, *fakes(good=slow(0.1), bad=support.fake_allocator(name, *macros))
        )
        row = run.results()["rows"][0]
        self.assertEqual(run.code, 1, run.out + run.err)
        self.assertEqual(len(row["samples"]["good"]), 2)
        self.assertTrue(row["is_complete"])
        return run, row["failures"]["bad"]

    def test_a_crash_is_told_and_the_rest_goes_on(self):
        run, reason = self.fails("crash", "FAKE_CRASH_AFTER=500")
        self.assertIn("crashed with SIGABRT", reason)
        self.assertIn("crash!", run.out)
        self.assertIn("tiny_hot, bad: crashed with SIGABRT", run.out)

    def test_a_hang_is_killed_at_the_limit(self):
        run, reason = self.fails("hang", "FAKE_HANG_AFTER=500", extra=("--limit", "1.5"))
        self.assertIn("hung: no end after 1.5 s", reason)
        self.assertIn("hangs!", run.out)

    def test_a_cheat_is_told(self):
        _, reason = self.fails("twice", "FAKE_TWICE=40")
        self.assertIn("damaged block", reason)

    def test_a_library_without_malloc_is_no_glibc_result(self):
        run = support.compare(
            *SHORT,
            "--rounds",
            "2",
            "--no-noise-check",
            *fakes(good=slow(0.1), none=support.fake_allocator("none", source="no_alloc.c")),
        )
        self.assertEqual(run.code, 1)
        self.assertIn("not in effect: malloc comes from", run.results()["rows"][0]["failures"]["none"])
        self.assertIn("wrong!", run.out)

    def test_when_nothing_works_the_report_still_stands(self):
        run = support.compare(
            *SHORT, "--rounds", "2", *fakes(bad=support.fake_allocator("crash", "FAKE_CRASH_AFTER=500"))
        )
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("crash!", run.out)
        self.assertTrue(os.path.exists(os.path.join(run.folder, "report.html")))

    def test_bad_arguments_end_with_2_and_a_reason(self):
        for arguments, reason in (
            (["--alloc", "x=/nowhere.so"], "/nowhere.so: No such file"),
            (["--alloc", f"x={support.TESTS}/run"], "not a shared library"),
            (["--alloc", "x"], "NAME=PATH"),
            (["--only", "nosuch"], "not found: nosuch"),
            (["--rows", "nosuch"], "no row of the set"),
            (["--only", "glibc", "--baseline", "other"], "not among"),
            (["--show", "/nowhere.json"], "/nowhere.json: No such file"),
            (["--ignore-output"], "for a command of your own"),
        ):
            run = support.compare(*arguments)
            self.assertEqual((run.code, reason in run.err), (2, True), run.err)

    def test_ctrl_c_keeps_what_is_there_and_says_so(self):
        out = support.folder("interrupted")
        child = subprocess.Popen(
            [
                sys.executable,
                os.path.join(support.BENCH, "compare"),
                "--out",
                out,
                "--rows",
                "tiny_hot,batch",
                "--only",
                "glibc",
                "--target",
                "0.05",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # Who started the tests in the background may have them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.assertTrue(any(line.startswith(b"[1/") for line in iter(child.stderr.readline, b"")))
        time.sleep(0.05)
        os.killpg(child.pid, signal.SIGINT)
        text, errors = (stream.decode() for stream in child.communicate(timeout=120))
        self.assertEqual(child.returncode, 130, errors)
        self.assertNotIn("Traceback", errors)
        self.assertIn("PARTIAL", text)
        results = files.load(os.path.join(out, "results.json"))
        self.assertTrue(results["is_partial"])
        self.assertEqual(results["rows"][0]["name"], "tiny_hot")
        self.assertTrue(results["rows"][0]["is_complete"])

    def test_a_full_disk_is_told_and_leaves_the_old_file(self):
        folder = support.folder("full")
        path = os.path.join(folder, "results.json")
        files.write_file(path, "old")
        os.symlink("/dev/full", path + ".new")
        said = []
        written = files.write_all(
            folder, {"results.json": lambda: "new", "results.csv": lambda: "a,b"}, said.append
        )
        self.assertEqual(written, [os.path.join(folder, "results.csv")])
        self.assertIn("No space left on device", said[0])
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_a_folder_that_cannot_be_made_does_not_lose_the_table(self):
        blocked = os.path.join(support.folder("blocked"), "file")
        files.write_file(blocked, "")
        run = support.compare(
            *SHORT, "--rounds", "2", "--only", "glibc", "--out", os.path.join(blocked, "out")
        )
        self.assertEqual(run.code, 0)
        self.assertIn("tiny_hot", run.out)
        self.assertIn("cannot make", run.err)


class Output(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_done = support.compare(
            "--rows",
            "tiny_hot,startup,random_mixed 256",
            "--rounds",
            "3",
            "--target",
            "0.005",
            *real("one", "two", "three"),
        )

    def test_the_table_fits_80_columns(self):
        table = self.run_done.out[self.run_done.out.index("time of one op") :]
        self.assertLessEqual(max(len(l) for l in table.splitlines() if "Noise check" not in l), 80)

    def test_the_header_names_the_machine(self):
        for word in (
            "CPU",
            "cores",
            "kernel",
            "THP mode",
            "governor",
            "C library",
            "compiler",
            "commit",
            "load before",
        ):
            self.assertIn(f"\n{word}", "\n" + self.run_done.out)

    def test_the_csv_has_a_line_for_each_figure(self):
        with open(os.path.join(self.run_done.folder, "results.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 3 * (2 + 2 + 2 + 4))  # allocators x (three rows of two figures, startup's four)
        self.assertEqual({r["allocator"] for r in rows}, {"one", "two", "three"})
        self.assertTrue(all(0 <= int(r["runs_disturbed"]) <= int(r["runs"]) for r in rows))

    def test_the_floor_and_the_noise_check_are_printed(self):
        self.assertIn("random_mixed 256     floor", self.run_done.out)
        self.assertIn("Noise check (the same allocator under two names, 4 rows)", self.run_done.out)

    def test_what_is_known_of_the_neighbours_is_in_every_file(self):
        results = self.run_done.results()
        said = results["neighbours"]
        rows = results["rows"]
        self.assertEqual(said["runs"], 3 * (4 * 4 + 1))  # rounds x (rows x (allocators, one twice) + a floor)
        rooms = [s["room"] for r in rows for runs in r["samples"].values() for s in runs]
        self.assertEqual(len(rooms), said["runs"])
        self.assertGreaterEqual(said["best_room"], max(rooms))
        known = [s["distance_ns"] for r in rows for runs in r["samples"].values() for s in runs if s["distance_ns"]]
        self.assertLessEqual(said["best_distance_ns"], min(known, default=0))
        self.assertIn("\nNeighbours: ", self.run_done.out)
        for name in ("report.html", "results.md"):
            with open(os.path.join(self.run_done.folder, name), encoding="utf-8") as file:
                self.assertIn("Neighbours: ", file.read())

    def test_a_result_saved_before_there_were_rooms_prints(self):
        saved = self.run_done.results()
        del saved["neighbours"]
        for row in saved["rows"]:
            del row["repeated"], row["disturbed"]
            for sample in (s for runs in row["samples"].values() for s in runs):
                del sample["room"], sample["distance_ns"]
        path = os.path.join(support.folder("before"), "results.json")
        files.write_file(path, json.dumps(saved))
        for option in ("--show", "--markdown", "--html"):
            run = support.compare(option, path)
            self.assertEqual(run.code, 0, run.err)
            self.assertIn("Noise check", run.out)
            self.assertNotIn("Neighbours", run.out)

    def test_a_saved_result_prints_again(self):
        saved = os.path.join(self.run_done.folder, "results.json")
        again = support.compare("--show", saved).out
        at = again.index("time of one op")
        self.assertIn(again[at:], self.run_done.out)
        self.assertIn("## Where one loses", support.compare("--markdown", saved).out)

    def test_the_report_is_one_well_formed_file(self):
        from html.parser import HTMLParser

        open_tags = []

        class Parser(HTMLParser):
            def handle_starttag(self, tag, attrs):
                if tag not in ("meta", "br", "rect", "line", "circle", "polyline"):
                    open_tags.append(tag)
                for name, _ in attrs:
                    assert name not in ("src", "href"), "refers to another file"

            def handle_endtag(self, tag):
                if tag not in ("rect", "line", "circle", "polyline"):
                    assert open_tags.pop() == tag, tag

        with open(os.path.join(self.run_done.folder, "report.html"), encoding="utf-8") as file:
            page = file.read()
        Parser().feed(page)
        self.assertEqual(open_tags, [])
        self.assertIn("<svg", page)
        self.assertNotIn("://", page)


if __name__ == "__main__":
    unittest.main()
