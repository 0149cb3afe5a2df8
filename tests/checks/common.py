"""What the checks share: C sources split into code and comments, and the way a check reports.

A check is a function from a source tree (a pathlib.Path) to the list of its violations, each a line of text that
starts with FILE:LINE where there is one.
"""
import bisect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.S
)


class Skipped(Exception):
    """Raised by a check that cannot run here; the text says why."""


class Source:
    """One C file. `code` is the text with comments and literals blanked, every line where it was."""

    def __init__(self, root, path):
        self.name = str(path.relative_to(root))
        self.text = path.read_text(encoding="utf-8")
        self.comments = []  # (first line, last line, text)
        self._starts = [0] + [found.end() for found in re.finditer("\n", self.text)]
        self.code = TOKEN.sub(self._blank, self.text)
        self.lines = self.code.split("\n")

    def _blank(self, found):
        if found.group("comment"):
            self.comments.append((self.line_of(found.start()), self.line_of(found.end() - 1), found.group()))
        return re.sub(r"[^\n]", " ", found.group())

    def line_of(self, offset):
        """The number of the line, from 1, that the character at this offset stands in."""
        return bisect.bisect_right(self._starts, offset)


def files_below(root, *folders):
    """Every file below the folders, in a stable order, but for what the benchmarks wrote."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "out" not in path.parts:
                yield path


def c_sources(root, *folders):
    """Every C and C++ file below the folders, in a stable order."""
    for path in files_below(root, *folders):
        if path.suffix in (".c", ".h", ".cc"):
            yield Source(root, path)


# A definition as clang-format lays it out: starts in column 0 and ends with a brace alone in column 0.
FUNCTION = re.compile(r"^(?P<head>[A-Za-z_][^;{}#]*\))\s*\{\n.*?^\}$", re.M | re.S)
NAME = re.compile(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)$")


def functions_of(source):
    """(name, first line, last line, code) of each function that the source defines."""
    for found in FUNCTION.finditer(source.code):
        named = NAME.search(found.group("head"))
        if named:
            first, last = source.line_of(found.start()), source.line_of(found.end() - 1)
            yield named.group(1), first, last, found.group()


def main(check):
    """The command line of one check: prints the violations of the tree given, or of this one."""
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    try:
        violations = check(root)
    except Skipped as reason:
        print(f"skipped: {check.__module__}: {reason}")
        return 0
    for violation in violations:
        print(violation)
    return 1 if violations else 0
