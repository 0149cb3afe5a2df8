#!/usr/bin/env python3
"""Every shell script passes shellcheck."""
import shutil
import subprocess
import sys

from common import Skipped, files_below, main

FOLDERS = (".ci", "tests", "bench")


def is_shell(path):
    if path.suffix == ".sh":
        return True
    with path.open("rb") as file:
        first = file.readline(64)
    return first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"/bash", b"env bash"))


def check(root):
    tool = shutil.which("shellcheck")
    if tool is None:
        raise Skipped("shellcheck is not installed")
    scripts = [str(path.relative_to(root)) for path in files_below(root, *FOLDERS) if is_shell(path)]
    if not scripts:
        return []
    told = subprocess.run(
        [tool, "--format=gcc", *scripts], cwd=root, capture_output=True, text=True, check=False
    )
    return (told.stdout + told.stderr).splitlines()


if __name__ == "__main__":
    sys.exit(main(check))
