"""The terminal table, 80 columns.

`*` marks the best of a line, `=` what cannot be told from the best. A cell of a failed allocator says what
happened; the reasons stand below the table.
"""

from typing import List, Optional

from . import units

WIDTH = 80
LABEL_WIDTH = 20
VERDICT_WIDTH = 10
CELL_WIDTH_AT_LEAST = 8
MARK_LEGEND = "* best   = no significant difference from the best   ~ one run, no interval"
FAILURE_WORDS = (
    ("hung", "hangs"),
    ("crashed", "crash"),
    ("not in effect", "wrong"),
    ("no proof", "no proof"),
    ("exit code", "fails"),
    ("ends with", "differs"),
    ("its output", "differs"),
)


def failure_word(reason: str) -> str:
    for start, word in FAILURE_WORDS:
        if reason.startswith(start):
            return word
    return "fails"


def cell(line: dict, name: str, failures: dict) -> str:
    """The value and its mark; a failed allocator's word even if some rounds gave values."""
    if name in failures:
        return failure_word(failures[name]) + "!"
    if name not in line["stats"]:
        return "-"
    mark = "*" if name == line["best"] and len(line["stats"]) > 1 else "=" if name in line["tied"] else " "
    return units.show(line["stats"][name]["median"], line["unit"]) + mark


def verdict_cell(line: dict) -> str:
    verdict = line["verdict"]
    if verdict is None or verdict["verdict"] == "tie":
        return "tie" if verdict else ""
    word = {"wins": "win", "loses": "loss", "unknown": "?"}[verdict["verdict"]]
    return word if verdict["ratio"] is None else f"{units.digits(verdict['ratio'])} {word}"


def labels(row: dict) -> List[str]:
    """One label a line: the row's name first, then the indented names of its other figures."""
    mark = " ~" if row["is_single"] else ""
    first = row["lines"][0]["label"]
    found = [f"{row['name']} {first}".rstrip() + mark]
    return found + ["  " + line["label"] for line in row["lines"][1:]]


def _blocks(names: List[str], baseline: str) -> List[List[str]]:
    """The columns of each block of the table: the baseline in each, as many others as fit."""
    room = (WIDTH - LABEL_WIDTH - VERDICT_WIDTH) // CELL_WIDTH_AT_LEAST
    others = [n for n in names if n != baseline]
    if not others:
        return [[baseline]]
    step = room - 1
    return [[baseline] + others[i : i + step] for i in range(0, len(others), step)]


def _text_row(label: str, cells: List[str], last: str, cell_width: int) -> str:
    text = label[:LABEL_WIDTH].ljust(LABEL_WIDTH) + "".join(c.rjust(cell_width) for c in cells)
    return (text + last.rjust(VERDICT_WIDTH)).rstrip()


def _cell_width(columns: List[str]) -> int:
    return (WIDTH - LABEL_WIDTH - VERDICT_WIDTH) // max(5, len(columns))


def _header(title: str, columns: List[str], last: str) -> List[str]:
    width = _cell_width(columns)
    names = [n if len(n) < width else n[: width - 2] + "." for n in columns]
    return [_text_row(title, [n + " " for n in names], last, width), "-" * WIDTH]


def main_table(results: dict) -> List[str]:
    baseline = results["baseline"]
    text: List[str] = []
    for columns in _blocks(results["names"], baseline):
        width = _cell_width(columns)
        text += _header("time of one op", columns, f"{baseline[:7]} is")
        for row in results["rows"]:
            for label, line in zip(labels(row), row["lines"]):
                cells = [cell(line, n, row["failures"]) for n in columns]
                text.append(_text_row(label, cells, verdict_cell(line), width))
        text.append("")
    return text


def rss_table(results: dict) -> List[str]:
    from_mib = results["means"]["rss"]["from_mib"]
    rows = [
        r
        for r in results["rows"]
        if max((s["median"] for s in r["rss"]["stats"].values()), default=0) >= from_mib
    ]
    text: List[str] = []
    for columns in _blocks(results["names"], results["baseline"]) if rows else []:
        width = _cell_width(columns)
        text += _header(f"peak RSS ({from_mib:.0f} M up)", columns, f"{results['baseline'][:7]} is")
        for row in rows:
            cells = [cell(row["rss"], n, row["failures"]) for n in columns]
            label = row["name"] + (" ~" if row["is_single"] else "")
            text.append(_text_row(label, cells, verdict_cell(row["rss"]), width))
        text.append("")
    return text


def means_table(results: dict) -> List[str]:
    text: List[str] = []
    for columns in _blocks(results["names"], results["baseline"]):
        width = _cell_width(columns)
        head = _header(f"relative to {results['baseline']}"[:LABEL_WIDTH], columns, "")
        for key, label in (("time", "time"), ("rss", "peak RSS")):
            mean = results["means"][key]
            if mean["rows"]:
                cells = [f"{mean['ratios'][n]:.3f} " if n in mean["ratios"] else "-" for n in columns]
                head.append(_text_row(f"{label}, {mean['rows']} rows", cells, "", width))
        text += head + [""] if len(head) > 2 else []
    return ["Geometric means (below 1 is better than " + results["baseline"] + "):"] + text if text else []


def floor_lines(results: dict) -> List[str]:
    rows = [r for r in results["rows"] if r.get("floor")]
    if not rows:
        return []
    text = ["Above the floor (the same loop over inline stacks without checks):"]
    for row in rows:
        floor = row["floor"]
        text.append(
            f"  {row['name']:<20} floor {units.show(floor['median'], 'ns'):>8}, "
            f"{results['baseline']} takes {floor['ratio']:.2f} times as long"
        )
    return text + [""]


def failure_lines(results: dict) -> List[str]:
    text = []
    for row in results["rows"]:
        for name, reason in row["failures"].items():
            text.append(f"  {row['name']}, {name}: {reason}")
        if not row["is_complete"]:
            text.append(f"  {row['name']}: not finished")
    return ["Failures:"] + text + [""] if text else []


def noise_lines(noise: Optional[dict]) -> List[str]:
    if noise is None:
        return ["Noise check: did not run; whether these figures can be trusted is not known."]
    text = [
        f"Noise check (the same allocator under two names, {noise['rows']} rows): "
        + ("passed." if noise["is_passed"] else "FAILED: THESE FIGURES ARE NOT TO BE TRUSTED.")
    ]
    text += ["  " + reason for reason in noise["reasons"]]
    text.append(
        f"  {len(noise['differing'])} rows differ at 5 % (about {0.05 * noise['rows']:.1f} would by chance), "
        f"{abs(noise['bias'] - 1) * 100:.1f} % over all;"
    )
    text.append(f"  the median row could tell a difference of {noise['resolution'] * 100:.1f} %.")
    return text


def neighbour_lines(neighbours: Optional[dict]) -> List[str]:
    if neighbours is None:  # no time was measured, or the file is older than the question
        return []
    runs, repeated, disturbed = (neighbours[k] for k in ("runs", "repeated", "disturbed"))
    best = f"room {neighbours['best_room']:.2f}"
    if neighbours.get("best_distance_ns"):  # some files are older than it, and one CPU has none
        best += f", distance {neighbours['best_distance_ns']:.0f} ns"
    if repeated == disturbed == 0:
        return [f"Neighbours: in {runs} runs no core was seen to be shared, or far", f"  ({best} at best)."]
    return [
        f"Neighbours: {repeated} runs of {runs} were repeated because a core was shared, or far,",
        f"  {disturbed} of those kept still were ({best} at best).",
    ]


def summary_line(results: dict) -> str:
    counts = results["tally"]
    return (
        f"{results['baseline']} against the best other allocator, line by line: {counts['wins']} wins, "
        f"{counts['tie']} ties, {counts['loses']} losses."
    )


def trust_lines(results: dict) -> List[str]:
    """What the run found out about itself."""
    return noise_lines(results["noise"]) + neighbour_lines(results.get("neighbours"))


def render(results: dict) -> str:
    text = []
    if results["is_partial"]:
        text += ["PARTIAL: this run was stopped; the rows below are those that it finished.", ""]
    text += main_table(results) + [MARK_LEGEND, ""] + rss_table(results) + means_table(results)
    text += floor_lines(results) + failure_lines(results)
    if len(results["names"]) > 1:
        text.append(summary_line(results))
    return "\n".join(text + trust_lines(results)) + "\n"


def render_machine(machine: dict, allocators: List[dict]) -> str:
    text = [f"{key:<12} {value}" for key, value in machine.items()]
    for allocator in allocators:
        where = f" ({allocator['path']})" if allocator["path"] else ""
        text.append(f"{allocator['name']:<12} {allocator['version']}{where}")
    return "\n".join(text) + "\n"
