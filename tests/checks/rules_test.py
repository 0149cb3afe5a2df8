#!/usr/bin/env python3
"""Runs every check on this tree and on the libraries that were built in it."""
# suite: limit 120 s
import importlib
import subprocess
import sys

from common import ROOT, Skipped

CHECKS = ("layers", "atomics", "format", "size", "shell", "documents", "exports", "linkage")


def main():
    passed = failed = skipped = 0
    for name in CHECKS:
        try:
            violations = importlib.import_module(name).check(ROOT)
        except Skipped as reason:
            print(f"skipped: {name}: {reason}")
            skipped += 1
            continue
        except subprocess.CalledProcessError as error:
            violations = [f"{' '.join(error.cmd)}: {error.stderr}"]
        for violation in violations:
            print(f"{name}: {violation}")
        passed += not violations
        failed += bool(violations)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
