#!/usr/bin/env python3
"""Every shell script passes shellcheck."""
import shutil
import subprocess
import sys

from common import Skipped, main

FOLDERS = (".ci", "tests", "bench")


def is_shell(path):
    if not path.is_file():
        return False
    if path.suffix == ".sh":
        return True
    with path.open("rb") as file:
        first = file.readline(64)
    return first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"/bash", b"env bash"))


def check(root):
    tool = shutil.which("shellcheck")
    if tool is None:
        raise Skipped("shellcheck is not installed")
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))]
    scripts = [str(path.relative_to(root)) for path in paths if "out" not in path.parts and is_shell(path)]
    if not scripts:
        return []
    told = subprocess.run(
        [tool, "--format=gcc", *scripts], cwd=root, capture_output=True, text=True, check=False
    )
    return (told.stdout + told.stderr).splitlines()


if __name__ == "__main__":
    sys.exit(main(check))
