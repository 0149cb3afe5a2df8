#!/usr/bin/env python3
"""Keeps the fuzzing corpus: what the repository has as tests/fuzz/corpus/TARGET.hex, one input a line.

usage: corpus.py unpack TARGET FOLDER          puts each input into a file of FOLDER
       corpus.py pack BUILD TARGET...          minimises BUILD/corpus/TARGET with each target's release program and
                                               writes what is left, the smallest inputs first, up to TARGET_BYTES_MAX
"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
TARGET_BYTES_MAX = 90_000  # of a file


def unpack(target, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for line in (CORPUS / f"{target}.hex").read_text(encoding="ascii").splitlines():
        data = bytes.fromhex(line)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(build, target):
    build = pathlib.Path(build)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [build / "release" / f"fuzz-{target}", "-merge=1", "-max_len=256", folder, build / "corpus" / target],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        inputs = sorted((path.read_bytes() for path in pathlib.Path(folder).iterdir()), key=lambda data: (len(data), data))
    lines, used = [], 0
    for data in inputs:
        used += 2 * len(data) + 1
        if used > TARGET_BYTES_MAX:
            break
        lines.append(data.hex())
    (CORPUS / f"{target}.hex").write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"{target}: {len(lines)} of {len(inputs)} inputs kept")


def main():
    action, *arguments = sys.argv[1:] or [""]
    if action == "unpack" and len(arguments) == 2:
        unpack(*arguments)
    elif action == "pack" and len(arguments) >= 2:
        for target in arguments[1:]:
            pack(arguments[0], target)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
