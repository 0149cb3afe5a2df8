"""Result files: results.json with everything, results.csv with one line a figure.

A file that cannot be written (a full disk) is reported and does not take the others, nor the table, with it.
Each is written beside its place and moved there whole: a reader never sees half of one.
"""

import csv
import io
import json
import os
from typing import Callable, List

FORMAT = 1  # fields that files of before lack are read with get()


class ResultsError(Exception):
    """A results file that cannot be read."""


def as_csv(results: dict) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "row",
            "figure",
            "unit",
            "allocator",
            "median",
            "cv",
            "runs",
            "ratio_to_" + results["baseline"],
            "ratio_low",
            "ratio_high",
            "p",
            "verdict",
            "is_best",
            "is_tied",
            "failure",
            "runs_disturbed",
        ]
    )
    for row in results["rows"]:
        for line in [*row["lines"], row["rss"]]:
            for name in results["names"]:
                stat = line["stats"].get(name)
                versus = line["against_baseline"].get(name, {})
                figures = [stat["median"], stat["cv"], stat["n"]] if stat else ["", "", 0]
                writer.writerow(
                    [
                        row["name"],
                        line["label"] or "time",
                        line["unit"],
                        name,
                        *figures,
                        *[versus.get(k, "") for k in ("ratio", "low", "high", "p", "verdict")],
                        int(name == line["best"]),
                        int(name in line["tied"]),
                        row["failures"].get(name, ""),
                        row.get("disturbed", {}).get(name, ""),
                    ]
                )
    return out.getvalue()


def write_file(path: str, text: str) -> None:
    """Writes all of it or raises OSError and leaves what was there."""
    beside = path + ".new"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        try:
            os.unlink(beside)
        except OSError:
            pass  # the first error is the one to tell
        raise


def write_all(folder: str, files: dict, complain: Callable[[str], None]) -> List[str]:
    """Writes {name: text maker} into the folder; returns the paths written."""
    written = []
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        complain(f"cannot make {folder}: {error.strerror}; no files are written")
        return written
    for name, make in files.items():
        path = os.path.join(folder, name)
        try:
            write_file(path, make())
            written.append(path)
        except OSError as error:
            complain(f"cannot write {path}: {error.strerror}; the table above holds its figures")
    return written


def load(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise ResultsError(f"{path}: not a results file") from None
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise ResultsError(f"{path}: not a results file of format {FORMAT}")
    return results
