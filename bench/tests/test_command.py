"""Commands of one's own under bench/compare, instruction counts, and two commits against each other."""

import os
import shutil
import subprocess
import sys
import unittest

import support
from runner import instr

FEW = ("--rounds", "2", "--target", "0.01", "--no-noise-check")


def compiled(name: str, source: str, *flags: str) -> str:
    """A program made of one C file; the flags stand behind it."""
    path = os.path.join(support.folder(name), name)
    compiler = (os.environ.get("CC") or "cc").split()
    subprocess.run(
        [*compiler, "-fno-builtin-malloc", "-o", path, "-x", "c", "-", *flags], input=source.encode(), check=True
    )
    return path


class Commands(unittest.TestCase):
    def compare(self, *command: str, options=(), **more) -> tuple:
        fake = support.fake_allocator("slow200", "FAKE_NS=200")
        run = support.compare(
            *FEW, f"--alloc=fake={fake}", "--only", "glibc,fake", *options, command=command, **more
        )
        return run, run.results()["rows"][0]["failures"]

    def test_a_command_is_compared(self):
        run, failures = self.compare("/bin/ls", "/")
        self.assertEqual((run.code, failures), (0, {}), run.err)
        self.assertIn("fake", run.out)
        self.assertRegex(run.out, r"\nNeighbours: (in )?\d+ runs")

    def test_the_exit_code_may_be_any_but_must_be_equal(self):
        _, failures = self.compare("/bin/sh", "-c", "exit 7")
        self.assertEqual(failures, {})
        run, failures = self.compare("/bin/sh", "-c", 'case "$LD_PRELOAD" in *slow*) exit 3;; esac')
        self.assertEqual(run.code, 1)
        self.assertIn("ends with exit 3, elsewhere exit 0: compared with glibc", failures["fake"])

    def test_the_output_must_be_equal_unless_told(self):
        script = 'case "$LD_PRELOAD" in *slow*) echo more;; *) echo less words;; esac'
        _, failures = self.compare("/bin/sh", "-c", script)
        self.assertIn("its output differs", failures["fake"])
        _, failures = self.compare("/bin/sh", "-c", script, options=["--ignore-output"])
        self.assertEqual(failures, {})

    def test_processes_that_escape_the_allocator_are_noticed(self):
        _, failures = self.compare("/bin/sh", "-c", "LD_PRELOAD=${LD_PRELOAD##*:} /bin/true; true")
        self.assertIn("not in effect: malloc comes from", failures["fake"])

    def test_a_program_at_a_fixed_address_is_compared(self):
        # Its own copy of malloc's address is a stub in the executable, not a malloc of its own.
        source = (
            "#include <stdlib.h>\nvoid *(*volatile get)(size_t) = malloc;\nint main(void) { free(get(9)); }\n"
        )
        _, failures = self.compare(compiled("fixed", source, "-no-pie", "-fno-pie"))
        self.assertEqual(failures, {})

    def test_a_static_program_is_no_result(self):
        _, failures = self.compare(os.path.join(support.BUILD, "launch"))
        self.assertIn("no proof", failures["glibc"])

    def test_a_crash_a_hang_and_a_missing_program_are_told(self):
        _, failures = self.compare("/bin/sh", "-c", "kill -SEGV $$")
        self.assertIn("crashed with SIGSEGV", failures["fake"])
        _, failures = self.compare("/bin/sleep", "100", options=["--limit", "0.3"])
        self.assertIn("hung", failures["fake"])
        _, failures = self.compare("/nowhere/program")
        self.assertIn("cannot be started: No such file", failures["fake"])

    def test_nothing_of_a_killed_command_is_left(self):
        mark = f"{os.getpid()}"
        self.compare("/bin/sh", "-c", f"sleep 98.{mark} & sleep 99.{mark}", options=["--limit", "0.3"])
        seen = subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertNotIn(f".{mark}", seen)

    def test_standard_input_comes_from_a_file(self):
        path = os.path.join(support.folder("stdin"), "text")
        with open(path, "w", encoding="utf-8") as file:
            file.write("words\n")
        _, failures = self.compare("/bin/grep", "words", options=["--stdin", path])
        self.assertEqual(failures, {})

    def test_a_program_linked_with_an_allocator_of_its_own_is_compared_with_libc_too(self):
        own = support.fake_allocator("own")
        source = "#include <stdlib.h>\nint main(void) { return malloc(10) == NULL; }\n"
        _, failures = self.compare(compiled("linked", source, "-x", "none", own))
        self.assertEqual(failures, {})

    def test_a_peak_of_two_megabytes_is_seen_as_such(self):
        run, _ = self.compare("/bin/true")
        self.assertLess(run.results()["rows"][0]["usage"]["glibc"]["peak_rss_kib"], 4096)



class RealPrograms(unittest.TestCase):
    ROWS = ("--set", "real", "--rounds", "2", "--no-noise-check")

    @unittest.skipUnless(shutil.which("sqlite3") and shutil.which("jq"), "sqlite3 or jq is not installed")
    def test_each_program_is_a_row_with_time_and_memory(self):
        fake = support.fake_allocator("slow200", "FAKE_NS=200")
        run = support.compare(
            *self.ROWS, "--rows", "sqlite3,jq", f"--alloc=fake={fake}", "--only", "glibc,fake"
        )
        rows = {row["name"]: row for row in run.results()["rows"]}
        self.assertEqual((run.code, sorted(rows)), (0, ["jq", "sqlite3"]), run.err)
        for row in rows.values():
            self.assertEqual(row["failures"], {})
        self.assertGreater(rows["sqlite3"]["samples"]["fake"][0]["peak_rss_kib"], 1024)

    def test_what_is_not_installed_is_named(self):
        empty = support.folder("programs")
        for name in ("python3", "cc"):
            os.symlink(shutil.which(name), os.path.join(empty, name))
        run = support.compare(*self.ROWS, "--list", env={"PATH": empty})
        self.assertIn("missing: sqlite3 (sqlite3; 'make bench-deps-real' installs the set's programs)", run.out)
        self.assertIn("python3 ", run.out)


class Instructions(unittest.TestCase):
    def test_sections_become_instructions_a_pair(self):
        sections = [
            "libc local pair 64 100",
            "empty local pair 16 100",
            "libc remote malloc 64 10",
            "libc remote free 64 10",
            "empty remote malloc 16 10",
            "empty remote free 16 10",
        ]
        totals = {2: 6000, 4: 1000, 6: 300, 8: 500, 10: 50, 12: 50, 3: 99}
        counts = instr.without_loop(instr.per_pair(sections, totals))
        self.assertEqual(counts, {("local", 64): 60 - (10 - 2), ("remote", 64): 80 - (10 - 2)})

    def test_a_missing_dump_is_an_error(self):
        with self.assertRaises(instr.InstrError):
            instr.per_pair(["libc local pair 64 100"], {})

    def test_a_count_that_grew_is_a_regression(self):
        saved = {("local", 64): 50.0, ("local", 16): 50.0, ("batch", 16): 50.0}
        self.assertEqual(
            instr.compare({("local", 64): 52.0, ("local", 16): 50.5, ("batch", 16): 40.0}, saved),
            ["less: batch 16 bytes: 50.0 -> 40.0", "more: local 64 bytes: 50.0 -> 52.0"],
        )

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_counts_repeat_exactly_and_can_be_checked(self):
        saved = os.path.join(support.folder("instr"), "counts.json")
        command = [sys.executable, os.path.join(support.BENCH, "instr"), "--only", "glibc"]
        subprocess.run([*command, "--save", saved], stdout=subprocess.PIPE, check=True)
        done = subprocess.run([*command, "--check", saved], stdout=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        self.assertIn(b"no change", done.stdout)
        counts = instr.from_json(saved)["glibc"]
        self.assertTrue(20 < counts[("local", 64)] < 400, counts)


class Commits(unittest.TestCase):
    def repository(self) -> str:
        """Three commits that each build a libhakmem.so: 300 ns a malloc, the same again, 450 ns."""
        top = support.folder("repository")

        def git(*arguments: str) -> None:
            subprocess.run(
                ["git", "-C", top, "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
            )

        git("init", "-q")
        shutil.copy(os.path.join(support.TESTS, "fake_alloc.c"), top)
        for number, ns in enumerate((300, 300, 450)):
            with open(os.path.join(top, "Makefile"), "w", encoding="utf-8") as file:
                file.write(
                    f"# {number}\nlibhakmem.so: fake_alloc.c\n\t$(CC) -D_GNU_SOURCE -DFAKE_NS={ns} "
                    "-O2 -fno-builtin-malloc -shared -fPIC -o $@ $<\n"
                )
            git("add", "Makefile", "fake_alloc.c")
            git("commit", "-q", "-m", str(number))
            git("tag", "-f", ("a", "b", "c")[number])
        with open(os.path.join(top, "Makefile"), "w", encoding="utf-8") as file:
            file.write("libhakmem.so:\n\tfalse\n")
        git("commit", "-q", "-a", "-m", "broken")
        git("tag", "broken")
        return top

    def ab(self, top: str, *arguments: str) -> subprocess.CompletedProcess:
        program = (
            f"import sys; sys.path.insert(0, {support.BENCH!r}); sys.dont_write_bytecode = True\n"
            f"from runner import ab; sys.exit(ab.main(sys.argv[1:], {top!r}))"
        )
        return subprocess.run(
            [
                sys.executable,
                "-c",
                program,
                *arguments,
                "--rows",
                "tiny_hot",
                "--clock",
                "cpu",
                "--rounds",
                "6",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
            env={**os.environ, "BENCH_BUILD": support.BUILD},
        )

    def test_two_commits_get_a_verdict_for_each_row(self):
        top = self.repository()
        done = self.ab(top, "a", "c")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertRegex(done.stdout.decode(), r"tiny_hot .* 1\.[3-6]\d\d .* slower\n")
        self.assertRegex(done.stdout.decode(), r"\nNeighbours: (in )?\d+ runs")
        self.assertRegex(self.ab(top, "c", "a").stdout.decode(), r"tiny_hot .* faster\n")
        texts = []
        for _ in range(3):  # one in a hundred is called different by definition of the test
            texts.append(self.ab(top, "a", "b").stdout.decode())
            if " tie\n" in texts[-1]:
                break
        self.assertIn(" tie\n", texts[-1])
        status = subprocess.run(
            ["git", "-C", top, "status", "--porcelain", "--untracked-files=no"],
            stdout=subprocess.PIPE,
            check=True,
        )
        self.assertEqual(status.stdout, b"")
        for arguments, reason in (
            (("a", "nosuch"), b"nosuch: no such commit"),
            (("a", "broken"), b"broken does not build"),
        ):
            done = self.ab(top, *arguments)
            self.assertEqual((done.returncode, reason in done.stderr), (2, True), done.stderr)


if __name__ == "__main__":
    unittest.main()
