"""Which runs are repeated, and what is kept: rounds over runs whose room, distance and time are made up."""

import os
import sys
import unittest

import support
from runner import analysis, launch, measure, table
from runner.allocators import Allocator
from runner.rows import Line, Row

LAUNCHER = os.path.join(support.BUILD, "launch")
QUIET, SHARED = 3.7, 2.2  # rooms
NEAR, FAR = 90.0, 400.0  # distances
ROW = Row("row", "program", 1, 1, is_grown=False)
PARALLEL = Row("row", "program", 1, 1, is_grown=False, threads=2)
NAMES = ["one", "two", "three", "four"]


class Scripted(measure.Runner):
    """Runs whose room is made up: `room(name, n)` for the n-th run of an allocator, the warm-up being its first.
    A run takes 1 s, or what `wall_s(name, n)` says, and its CPUs are near, or as far as `distance(name, n)` says."""

    def __init__(self, room, wall_s=lambda name, n: 1.0, distance=lambda name, n: NEAR, rounds: int = 3):
        super().__init__(measure.Settings("", rounds=rounds), lambda *_: None)
        self.room, self.wall_s, self.distance = room, wall_s, distance
        self.ran = []  # names, the warm-up included

    def run_once(self, row, allocator, iterations):
        name = measure.name_of(allocator)
        self.ran.append(name)
        assert len(self.ran) < 100, "repeats without end"
        n = self.ran.count(name)
        wall_s = self.wall_s(name, n)
        if wall_s is None:
            raise measure.RunFailed("made up")
        around = {"room": self.room(name, n), "distance_ns": self.distance(name, n)}
        usage = {**around, "wall_s": wall_s, **dict.fromkeys(analysis.USAGE_KEYS, 1)}
        return measure.Sample(1, wall_s, wall_s, usage)

    def rows(self, row: Row = ROW) -> measure.RowSamples:
        result = measure.RowSamples(row)
        self.measure(row, [Allocator(n, None, "") for n in NAMES], result)
        return result


def figures(result: measure.RowSamples, best: measure.Best) -> tuple:
    """The row as it stands in the results, and what the runner says about the neighbours."""
    row = analysis.row_data(result, NAMES, None, "one", "wall", 0.01, best)
    return row, analysis.neighbours([row], best)


class Repeats(unittest.TestCase):
    def test_a_disturbed_run_is_repeated_after_its_round_and_replaced(self):
        # The third run of `two` is that of round 2; its time tells the repeat from the run.
        runner = Scripted(lambda name, n: SHARED if (name, n) == ("two", 3) else QUIET, lambda name, n: n)
        result = runner.rows()
        self.assertEqual(len(runner.ran), 4 * 4 + 1)
        self.assertEqual(sorted(runner.ran[8:12]), sorted(NAMES))
        self.assertEqual(runner.ran[12], "two")
        self.assertEqual([s.wall_s for s in result.samples["two"]], [2, 4, 5])
        self.assertEqual([s.wall_s for s in result.samples["one"]], [2, 3, 4])
        _, said = figures(result, runner.best)
        best = {"best_room": QUIET, "best_distance_ns": NEAR}
        self.assertEqual(said, {"runs": 12, "repeated": 1, "disturbed": 0, **best})

    def test_a_run_is_repeated_until_it_is_undisturbed(self):
        runner = Scripted(lambda name, n: SHARED if name == "two" and 3 <= n <= 5 else QUIET, lambda name, n: n)
        result = runner.rows()
        self.assertEqual([s.wall_s for s in result.samples["two"]], [2, 6, 7])
        self.assertEqual(result.repeated, 1)

    def test_the_allowance_of_a_row_ends_it_and_the_last_run_is_kept(self):
        runner = Scripted(lambda name, n: SHARED if name == "two" and n > 1 else QUIET, lambda name, n: n)
        result = runner.rows()
        self.assertEqual(runner.ran.count("two"), 1 + 3 + int(measure.EXTRA_ROUNDS * 4))
        self.assertEqual([s.wall_s for s in result.samples["two"]], [8, 9, 10])
        row, said = figures(result, runner.best)
        self.assertEqual((said["repeated"], said["disturbed"]), (1, 3))
        self.assertEqual(row["disturbed"], {"one": 0, "two": 3, "three": 0, "four": 0})
        self.assertEqual([s["room"] for s in row["samples"]["two"]], [SHARED] * 3)

    def test_the_allowance_holds_when_everything_is_disturbed(self):
        runner = Scripted(lambda name, n: SHARED if n > 1 else QUIET)
        result = runner.rows()
        self.assertEqual(len(runner.ran), 4 + 12 + int(measure.EXTRA_ROUNDS * 4))
        self.assertEqual({len(s) for s in result.samples.values()}, {3})

    def test_each_row_has_an_allowance_of_its_own(self):
        runner = Scripted(lambda name, n: SHARED if len(runner.ran) > 4 else QUIET)
        runner.rows()
        runner.rows()
        self.assertEqual(len(runner.ran), 2 * (4 + 12 + int(measure.EXTRA_ROUNDS * 4)))

    def test_nothing_is_repeated_when_all_rooms_are_alike_whatever_the_times(self):
        for room in (QUIET, SHARED, 1.0):
            runner = Scripted(lambda name, n: room * (0.85 if n == 2 else 1), lambda name, n: 100.0 ** (n % 3))
            _, said = figures(runner.rows(), runner.best)
            self.assertEqual(len(runner.ran), 4 * 4)
            self.assertEqual((said["repeated"], said["disturbed"]), (0, 0))

    def test_the_best_room_is_that_of_the_session(self):
        runner = Scripted(lambda name, n: QUIET if len(runner.ran) <= 16 else SHARED)
        runner.rows()
        self.assertEqual(runner.rows().repeated, 4)

    def test_runs_before_the_best_room_was_seen_are_counted_at_the_end(self):
        runner = Scripted(lambda name, n: SHARED if len(runner.ran) <= 16 else QUIET)
        early, late = runner.rows(), runner.rows()
        self.assertEqual((early.repeated, late.repeated), (0, 0))
        self.assertEqual(figures(early, runner.best)[1]["disturbed"], 12)
        self.assertEqual(figures(late, runner.best)[1]["disturbed"], 0)

    def test_a_row_without_times_is_not_repeated(self):
        row = Row("row", "program", 1, 1, is_grown=False, lines=(Line("rss_freed", "freed", "MiB"),))
        runner = Scripted(lambda name, n: SHARED if n > 1 else QUIET)
        result = runner.rows(row)
        self.assertEqual(len(runner.ran), 4 * 4)
        self.assertIsNone(figures(result, runner.best)[1])

    def test_a_repeat_that_fails_is_a_failure_and_leaves_the_run(self):
        runner = Scripted(
            lambda name, n: SHARED if (name, n) == ("two", 3) else QUIET,
            lambda name, n: None if (name, n) == ("two", 4) else n,
        )
        result = runner.rows()
        self.assertEqual(result.failures, {"two": "made up (in round 2)"})
        self.assertEqual([s.wall_s for s in result.samples["two"]], [2, 3])

    def test_the_floor_is_repeated_too(self):
        row = Row("row", "program", 1, 1, is_grown=False, floor="mode")
        runner = Scripted(lambda name, n: SHARED if (name, n) == ("floor", 1) else QUIET, lambda name, n: n)
        self.assertEqual([s.wall_s for s in runner.rows(row).samples["floor"]], [2, 3, 4])


class Distances(unittest.TestCase):
    def test_a_run_of_two_threads_whose_processors_are_far_apart_is_repeated(self):
        runner = Scripted(
            lambda name, n: QUIET, lambda name, n: n, lambda name, n: FAR if (name, n) == ("two", 3) else NEAR
        )
        result = runner.rows(PARALLEL)
        self.assertEqual([s.wall_s for s in result.samples["two"]], [2, 4, 5])
        self.assertEqual(result.repeated, 1)

    def test_one_thread_is_nowhere_far(self):
        for row in (ROW, Row("row", "program", 1, 1, is_grown=False, threads=1)):
            runner = Scripted(lambda name, n: QUIET, distance=lambda name, n: FAR if n > 1 else NEAR)
            _, said = figures(runner.rows(row), runner.best)
            self.assertEqual((said["repeated"], said["disturbed"]), (0, 0))

    def test_what_is_always_far_is_near(self):
        runner = Scripted(lambda name, n: QUIET, distance=lambda name, n: FAR * (1.9 if n == 2 else 1))
        self.assertEqual(runner.rows(PARALLEL).repeated, 0)

    def test_a_distance_that_is_not_known_is_none(self):
        runner = Scripted(lambda name, n: QUIET, distance=lambda name, n: 0)
        _, said = figures(runner.rows(PARALLEL), runner.best)
        self.assertEqual((said["repeated"], said["disturbed"], said["best_distance_ns"]), (0, 0, 0))
        runner = Scripted(lambda name, n: QUIET, distance=lambda name, n: 0 if name == "one" else NEAR)
        self.assertEqual(runner.rows(PARALLEL).repeated, 0)
        self.assertEqual(runner.best.distance_ns, NEAR)

    def test_far_runs_that_are_kept_are_counted(self):
        runner = Scripted(lambda name, n: QUIET, distance=lambda name, n: FAR if name == "two" and n > 1 else NEAR)
        row, said = figures(runner.rows(PARALLEL), runner.best)
        self.assertEqual(row["disturbed"], {"one": 0, "two": 3, "three": 0, "four": 0})
        self.assertEqual(said["disturbed"], 3)


class Told(unittest.TestCase):
    def lines(self, repeated: int, disturbed: int, distance_ns: float = 88.4, runs: int = 340) -> list:
        said = {"runs": runs, "repeated": repeated, "disturbed": disturbed}
        return table.neighbour_lines({**said, "best_room": 3.757, "best_distance_ns": distance_ns})

    def text(self, *said) -> str:
        return " ".join(map(str.strip, self.lines(*said)))

    def test_the_table_says_how_many_runs_were_repeated_and_stayed_disturbed(self):
        self.assertEqual(
            self.text(12, 5),
            "Neighbours: 12 runs of 340 were repeated because a core was shared, or far, "
            "5 of those kept still were (room 3.76, distance 88 ns at best).",
        )
        self.assertIn("in 340 runs no core was seen to be shared, or far", self.text(0, 0))
        self.assertIn("(room 3.76 at best)", self.text(12, 5, 0))
        self.assertIn("5 of those kept", self.text(0, 5))

    def test_what_is_said_fits_80_columns(self):
        for repeated in (0, 1733):
            self.assertLessEqual(max(map(len, self.lines(repeated, repeated, 1888.4, 1733))), 80)

    def test_results_that_know_no_neighbours_say_nothing(self):
        self.assertEqual(table.neighbour_lines(None), [])


class Launcher(unittest.TestCase):
    def launched(self, *command: str) -> tuple:
        outcome = launch.run(LAUNCHER, command, dict(os.environ), 10)
        text = outcome.read_output().decode()
        outcome.close()
        return outcome, text

    def test_it_reports_the_surroundings_for_every_end_of_the_command(self):
        for command, status in ((("/bin/true",), "exit"), (("/nowhere/program",), "no-exec")):
            outcome, _ = self.launched(*command)
            self.assertEqual(outcome.status, status)
            self.assertTrue(1.2 < outcome.usage["room"] <= 4, outcome.usage)
            self.assertTrue(0 <= outcome.usage["distance_ns"] < 1e6, outcome.usage)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one CPU")
    def test_two_processors_have_a_distance_and_one_has_none(self):
        found = []
        for _ in range(20):  # beside other work an answer may not come in time
            outcome, _ = self.launched("/bin/true")
            found.append(outcome.usage["distance_ns"])
        self.assertGreater(max(found), 5)
        cpus = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cpus)})
        try:
            outcome, _ = self.launched("/bin/true")
        finally:
            os.sched_setaffinity(0, cpus)
        self.assertEqual(outcome.usage["distance_ns"], 0)

    def test_the_command_may_run_on_every_cpu_that_the_runner_may(self):
        program = "import os; print(sorted(os.sched_getaffinity(0)))"
        _, text = self.launched(sys.executable, "-c", program)
        self.assertEqual(text.strip(), str(sorted(os.sched_getaffinity(0))))

    def test_a_launcher_that_reports_no_distance_is_told(self):
        old = os.path.join(support.folder("old"), "launch")
        with open(old, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho \'{"status": "exit", "value": 0, "wall_s": 1, "room": 3}\' >&3\n')
        os.chmod(old, 0o755)
        outcome = launch.run(old, ["/bin/true"], dict(os.environ), 10)
        outcome.close()
        self.assertIn("older than this runner", outcome.failure())


if __name__ == "__main__":
    unittest.main()
