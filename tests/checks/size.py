#!/usr/bin/env python3
"""Files and functions stay small enough to read at one go.

The aim is 400 lines a file and 60 a function of core/; what is above is named, and in core/ and include/ what is far
above is a violation.
"""
import sys

from common import c_sources, functions_of, main

FILE_AIM, FILE_MAX = 400, 450
FUNCTION_AIM, FUNCTION_MAX = 60, 80


def judge(place, what, lines, aim, most):
    """The violation as a list, empty when there is none; every length above the aim is printed."""
    text = f"{place}: {what} has {lines} lines, the aim is {aim}"
    if lines > aim:
        print(f"warning: {text}")
    return [text] if lines > most else []


def check(root):
    violations = []
    for source in c_sources(root, "core", "include"):
        lines = source.text.count("\n")
        violations += judge(f"{source.name}:1", "the file", lines, FILE_AIM, FILE_MAX)
        for name, first, last, _ in functions_of(source):
            lines = last - first + 1
            violations += judge(f"{source.name}:{first}", f"{name}()", lines, FUNCTION_AIM, FUNCTION_MAX)
    for source in c_sources(root, "tests", "bench"):
        judge(f"{source.name}:1", "the file", source.text.count("\n"), FILE_AIM, FILE_MAX)
    return violations


if __name__ == "__main__":
    sys.exit(main(check))
