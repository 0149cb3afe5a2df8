#!/usr/bin/env python3
"""Weakens each acquire and each release of core/ in turn and sees which scenario fails.

usage: tests/model/weaken.py [--check]

A weakened place is one half of an order made relaxed: the acquire or the release. The scenarios in which the place is a
step are explored again, the short ones first, until one fails. What no scenario needs must have its reason in
redundant.txt. Writes WEAKENED.md; with --check only says what is amiss, a table of other places too.
"""
import collections
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "checks"))
from common import Source, functions_of  # noqa: E402

CHECKER = ROOT / "build/model/modelcheck"
TABLE = HERE / "WEAKENED.md"
REDUNDANT = HERE / "redundant.txt"
LIMIT_S = 60
PARTS = {"acquire": ["acquire"], "release": ["release"], "acq_rel": ["acquire", "release"]}
SITE = re.compile(r"^site (\S+):(\d+) (\S+) (\w+) (\S+)$", re.M)
VERDICT = re.compile(r"^(\S+) +(\d+) executions.*?[\d.]+ s: (.*)\n?(?:    (.*))?", re.M)


def run(*arguments):
    told = subprocess.run([CHECKER, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout


def function_at(path, line, known):
    if path not in known:
        known[path] = list(functions_of(Source(ROOT, ROOT / path)))
    for name, first, last, _ in known[path]:
        if first <= line <= last:
            return name
    return "?"


def first_failure(site, part, scenarios):
    for name in scenarios:
        told = run("--limit", str(LIMIT_S), "--weaken", f"{site[0]}:{site[1]}:{part}", name)
        for found in VERDICT.finditer(told):
            if found.group(1) == name and found.group(3) == "FAILED":
                return name, found.group(4)
    return None


def reasons():
    """(file, function, what, part) -> why nothing fails; a line with the four and one or more indented ones."""
    found, key = {}, None
    for line in REDUNDANT.read_text().splitlines():
        if line.startswith(" ") and key:
            found[key] = (found[key] + " " + line.strip()).strip()
        elif line and not line.startswith("#"):
            key = tuple(line.split())
            found[key] = ""
    return found


def main():
    told = run("--sites")
    executions = {found.group(1): int(found.group(2)) for found in VERDICT.finditer(told)}
    sites = collections.OrderedDict()
    for file, line, what, order, scenario in SITE.findall(told):
        if file.startswith("core/"):
            site = sites.setdefault((file, int(line)), (what, order, set()))
            if scenario != "-" and not scenario.startswith("litmus"):
                site[2].add(scenario)
    why, known, rows, amiss = reasons(), {}, [], []
    for site, (what, order, scenarios) in sorted(sites.items()):
        function = function_at(site[0], site[1], known)
        for part in PARTS[order]:
            key = (site[0], function, what, part)
            # By executions, not by time: the table is the same on every machine.
            failure = first_failure(site, part, sorted(scenarios, key=lambda name: (executions.get(name, 0), name)))
            if failure is not None:
                text = re.sub(r"0x[0-9a-f]+", "…", failure[1] or "")
                verdict = f"`{failure[0]}`: {text}"
                if key in why:
                    amiss.append(f"{site[0]}:{site[1]} {part}: fails, and is said to be redundant")
            elif key in why:
                verdict = "redundant: " + why[key]
            else:
                verdict = "NOTHING FAILS" if scenarios else "NO STEP OF ANY SCENARIO"
                amiss.append(f"{site[0]}:{site[1]} {function}() {what} {part}: {verdict.lower()}")
            rows.append(f"| `{site[0]}` {function}() | {what}, {part} | {verdict} |")
            print(f"{site[0]}:{site[1]} {function}() {what} {part}: {verdict}", flush=True)
    if "--check" in sys.argv:
        places = [row.split(" | ")[:2] for row in TABLE.read_text().splitlines() if row.startswith("| `")]
        if places != [row.split(" | ")[:2] for row in rows]:
            amiss.append("WEAKENED.md has other places: make model-weaken")
    else:
        head = [
            "# What each acquire and release is for",
            "",
            "Made by `make model-weaken`; not to be edited. Each half of each order is made relaxed, alone; the scenario",
            "that fails first and how it fails. What fails nowhere is redundant, with the reason (redundant.txt).",
            "",
            "| place | order | without it |",
            "|---|---|---|",
        ]
        TABLE.write_text("\n".join(head + rows) + "\n")
    for line in amiss:
        print(f"amiss: {line}")
    print(f"{len(rows) - len(amiss)} passed, {len(amiss)} failed, 0 skipped")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main())
