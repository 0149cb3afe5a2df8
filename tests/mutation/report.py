"""REPORT.md from results.json and equivalent.txt."""
import collections
import pathlib

from operators import OPERATORS

HERE = pathlib.Path(__file__).resolve().parent
REPORT = HERE / "REPORT.md"
EQUIVALENT = HERE / "equivalent.txt"


def equivalents():
    """key -> reason, from equivalent.txt: a line with the key, and an indented one with the reason below it."""
    reasons = {}
    key = None
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []:
        if line.startswith(" ") and key is not None:
            reasons[key] = (reasons.get(key, "") + " " + line.strip()).strip()
        elif line and not line.startswith("#"):
            key = line.strip()
    return reasons


def cell(text):
    return text.replace("|", "\\|")


def verdict_on(key, found, reasons):
    if "killed_by" in found:
        return "killed", f"{found['killed_by']}: {found['why']}"
    if key in reasons:
        return "equivalent", reasons[key]
    return "survived", f"passed the stages up to {found['survived']}"


def write(state):
    reasons = equivalents()
    rows, survivors, counts = [], [], collections.Counter()
    by_operator = collections.defaultdict(collections.Counter)
    for key, found in sorted(state["mutants"].items(), key=lambda item: (item[0].split(" ~ ")[0], item[1]["line"])):
        file, operator, before, after = key.split(" ~ ")[:4]
        verdict, detail = verdict_on(key, found, reasons)
        if verdict == "survived":
            survivors.append(f"- `{file}:{found['line']}` {operator}: `{before}` → `{after}`")
        counts[verdict] += 1
        by_operator[operator][verdict] += 1
        change = f"`{cell(before)}` → `{cell(after)}`"
        rows.append(f"| {file}:{found['line']} | {operator} | {change} | {verdict}: {cell(detail)} |")
    discarded = collections.Counter(state["discarded"].values())
    lines = [
        "# Mutants and the tests that kill them",
        "",
        "Made by `make mutation`; not to be edited. The tool and its operators: `README.md` here.",
        "",
        f"Seed {state['seed']}: {len(state['mutants'])} mutants, {counts['killed']} killed, "
        f"{counts['equivalent']} equivalent, {counts['survived']} survived. Not counted: "
        + ", ".join(f"{number} {why}" for why, number in sorted(discarded.items())) + ".",
        "Not asked, since they fail without a mutant in a tree linked without LTO: "
        + (", ".join(f"`{title}`" for title in state["left_out"]) or "none") + ".",
        "",
        "| operator | killed | equivalent | survived |",
        "|---|---|---|---|",
    ]
    for operator in OPERATORS:
        found = by_operator[operator]
        lines.append(f"| {operator} | {found['killed']} | {found['equivalent']} | {found['survived']} |")
    lines += ["", "## Survivors", ""] + (survivors or ["None."])
    lines += ["", "## All", "", "| place | operator | change | verdict |", "|---|---|---|---|"] + rows
    REPORT.write_text("\n".join(lines) + "\n")
