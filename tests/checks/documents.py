#!/usr/bin/env python3
"""Every document is the Markdown that it means to be: a title, headings, closed fences, links to files that are there.

A formatter for C once ran over one; every other check passed, and nobody could read it.
"""
import re
import sys

from common import files_below, main

FOLDERS = ("core", "include", "tests", "bench")
HEADING = re.compile(r"#{1,6} \S")
HEADING_MEANT = re.compile(r"\s*#{1,6}\s*[^\s#]")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def documents(root):
    yield from sorted(root.glob("*.md"))
    yield from (path for path in files_below(root, *FOLDERS) if path.suffix == ".md")


def violations_of(root, path):
    name = path.relative_to(root)
    lines = path.read_text(encoding="utf-8").split("\n")
    if not lines[0].startswith("# "):
        yield f"{name}:1: no title: a document begins with '# '"
    open_line = 0
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("```"):
            open_line = 0 if open_line else number
        elif not open_line:
            if HEADING_MEANT.match(line) and not HEADING.match(line):
                yield f"{name}:{number}: not a heading: it begins in column 1, with a blank after '#'"
            for target in LINK.findall(line):
                if ":" not in target and not (path.parent / target).exists():
                    yield f"{name}:{number}: link to {target}, which is not there"
    if open_line:
        yield f"{name}:{open_line}: a fence that is never closed"


def check(root):
    return [violation for path in documents(root) for violation in violations_of(root, path)]


if __name__ == "__main__":
    sys.exit(main(check))
