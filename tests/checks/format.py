#!/usr/bin/env python3
"""Every C and C++ file stands as clang-format leaves it (.clang-format); `make format` puts it so."""
import re
import shutil
import subprocess
import sys

from common import Skipped, c_sources, main


def check(root):
    tool = shutil.which("clang-format")
    if tool is None:
        raise Skipped("clang-format is not installed")
    files = [source.name for source in c_sources(root, "core", "include", "tests", "bench")]
    told = subprocess.run(
        [tool, "--dry-run", "-Werror", *files], cwd=root, capture_output=True, text=True, check=False
    )
    places = dict.fromkeys(re.findall(r"^(\S+?:\d+):\d+: error", told.stderr, re.M))
    violations = [f"{place}: not as clang-format leaves it" for place in places]
    if told.returncode != 0 and not violations:
        violations.append(f"clang-format: {told.stderr.strip()}")
    return violations


if __name__ == "__main__":
    sys.exit(main(check))
