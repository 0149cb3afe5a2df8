"""report.html: one self-contained page with the figures of one run."""

import os
from html import escape
from typing import Dict, List

from . import charts, table, units

VERDICT_WORDS = {"wins": ("win", "wins against"), "loses": ("loss", "loses to"), "tie": ("soft", "ties with")}


def _style() -> str:
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "style.css"), encoding="utf-8"
    ) as file:
        return file.read()


def _verdict(line: dict) -> str:
    verdict = line["verdict"]
    if not verdict or verdict["verdict"] not in VERDICT_WORDS:
        return ""
    kind, words = VERDICT_WORDS[verdict["verdict"]]
    by = f" {verdict['ratio']:.2f}\u00d7" if verdict["ratio"] is not None and kind != "soft" else ""
    return f'<span class="{kind}">{words} {escape(verdict["against"])}{by}</span>'


def _notes(results: dict) -> List[str]:
    notes = []
    if results["is_partial"]:
        notes.append(
            '<p class="note warn">Partial: this run was stopped; only the rows below were measured.</p>'
        )
    noise = results["noise"]
    if noise is None:
        notes.append(
            '<p class="note warn">The noise check did not run: whether these figures can be trusted is '
            "not known.</p>"
        )
    else:
        kind = "" if noise["is_passed"] else " warn"
        text = " ".join(escape(line.strip()) for line in table.noise_lines(noise))
        notes.append(f'<p class="note{kind}">{text}</p>')
    neighbours = table.neighbour_lines(results.get("neighbours"))
    if neighbours:
        notes.append(f'<p class="note">{escape(" ".join(map(str.strip, neighbours)))}</p>')
    failures = table.failure_lines(results)[1:-1]
    if failures:
        notes.append(
            '<div class="note"><b class="bad">Failures</b><br>'
            + "<br>".join(map(escape, failures))
            + "</div>"
        )
    return notes


def _tiles(results: dict) -> str:
    tally, parts = results["tally"], []
    if len(results["names"]) > 1:
        for key, label in (("wins", "wins"), ("tie", "ties"), ("loses", "losses")):
            parts.append(
                f'<div class="tile"><b>{tally[key]}</b>{label}<br><small>lines, against the best other'
                "</small></div>"
            )
    for key, label in (("time", "time"), ("rss", "peak RSS")):
        ratios = results["means"][key]["ratios"]
        others = {n: v for n, v in ratios.items() if n != results["baseline"]}
        if others:
            name, count = min(others, key=others.get), results["means"][key]["rows"]
            parts.append(
                f'<div class="tile"><b>{1 / others[name]:.2f}\u00d7</b>{label} of {escape(name)},<br>'
                f"<small>the best other by geometric mean of {count} rows</small></div>"
            )
    return f'<div class="tiles">{"".join(parts)}</div>' if parts else ""


def _bar_cards(results: dict) -> str:
    cards = []
    for row in results["rows"]:
        for i, line in enumerate(row["lines"]):
            label = f"{row['name']} {line['label']}".strip() + (" (one run)" if row["is_single"] else "")
            drawing = charts.bars(label, line, results["names"], row["failures"], table.failure_word)
            cards.append(
                f'<div class="card"><h3>{escape(label)} '
                f"<span>{_verdict(line)}</span></h3>"
                f"{drawing}</div>"
            )
            if row.get("floor") and i == 0:
                floor = row["floor"]
                cards[-1] = cards[-1][:-6] + (
                    f'<small>floor {units.show(floor["median"], "ns")}; {escape(results["baseline"])} '
                    f'takes {floor["ratio"]:.2f} times as long</small></div>'
                )
    return f'<div class="grid">{"".join(cards)}</div>'


def _scatter(results: dict) -> str:
    time, rss = (results["means"][k]["ratios"] for k in ("time", "rss"))
    if sum(n in time and n in rss for n in results["names"]) < 2:
        return ""
    return (
        "<h2>Time against memory</h2><p class='soft'>Geometric means over all rows that every allocator "
        "finished; the memory over those that reach 16 MiB. Left is faster, down is smaller.</p>"
        "<div class='card'>" + charts.scatter(time, rss, results["names"], results["baseline"]) + "</div>"
    )


def _idle(results: dict) -> str:
    parts = []
    for row in results["rows"]:
        if row["points"]:
            parts.append(
                "<h2>Memory given back while idle</h2><p class='soft'>100 MB of 500-byte blocks freed at "
                "0 s; nothing runs afterwards. One run.</p><div class='card'>"
                + charts.lines(row["points"], results["names"], "seconds since the last free", "RSS, MiB")
                + "</div>"
            )
    return "".join(parts)


def _scaling(results: dict) -> str:
    groups: Dict[str, Dict[str, list]] = {}
    for row in results["rows"]:
        if row["group"] and row["threads"]:
            for name, speed in row["ops_per_s"].items():
                groups.setdefault(row["group"], {}).setdefault(name, []).append((row["threads"], speed / 1e6))
    parts = []
    for group, series in groups.items():
        counts = sorted({x for s in series.values() for x, _ in s})
        if len(counts) > 1:
            ordered = {n: sorted(s) for n, s in series.items()}
            parts.append(
                f"<div class='card'><h3>{escape(group)}</h3>"
                + charts.lines(ordered, results["names"], "threads", "million ops/s", [0, *counts])
                + "</div>"
            )
    return "<h2>Scaling over threads</h2>" + "".join(parts) if parts else ""


def _figures_table(results: dict) -> str:
    head = "".join(
        f"<th>{h}</th>"
        for h in (
            "row",
            "allocator",
            "median",
            "CV",
            "runs",
            "ratio",
            "95 % interval",
            "p",
            "against " + escape(results["baseline"]),
            "peak RSS",
            "faults",
            "switches",
            "CPU",
        )
    )
    body = []
    for row in results["rows"]:
        for line in row["lines"]:
            for name in results["names"]:
                if name in line["stats"]:
                    body.append(_figures_row(results, row, line, name))
    return (
        f'<h2>All figures</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(body)}</tbody></table></div>'
    )


def _figures_row(results: dict, row: dict, line: dict, name: str) -> str:
    stat, usage = line["stats"][name], row["usage"][name]
    versus = line["against_baseline"].get(name)
    words = {"less": "less", "more": "more", "tie": "tie", "unknown": "no interval"}
    ratio = f"{versus['ratio']:.3f}" if versus and versus["ratio"] is not None else ""
    span = f"{versus['low']:.3f} \u2013 {versus['high']:.3f}" if versus and versus["low"] is not None else ""
    p = (
        ("&lt; 0.001" if versus["p"] < 0.001 else f"{versus['p']:.3f}")
        if versus and versus["p"] is not None
        else ""
    )
    cells = [
        escape(f"{row['name']} {line['label']}".strip()),
        escape(name),
        units.show(stat["median"], line["unit"]),
        f"{stat['cv'] * 100:.1f} %" if stat["cv"] is not None else "",
        str(stat["n"]),
        ratio,
        span,
        p,
        words[versus["verdict"]] if versus else "",
        units.show(usage["peak_rss_kib"], "KiB"),
        units.digits(usage["minor_faults"] + usage["major_faults"]),
        units.digits(usage["voluntary_switches"] + usage["involuntary_switches"]),
        f"{usage['user_s'] + usage['system_s']:.2f} s",
    ]
    is_best = ' class="best"' if name == line["best"] else ""
    return "<tr>" + "".join(f"<td{is_best if i == 2 else ''}>{c}</td>" for i, c in enumerate(cells)) + "</tr>"


def _machine(results: dict) -> str:
    items = {**results["machine"], "command": results["command"], "took": units.duration(results["took_s"])}
    for a in results["allocators"]:
        items[a["name"]] = a["version"] + (f" ({a['path']})" if a["path"] else "")
    for line in results["missing"]:
        name, _, rest = line.partition(": ")
        items[name] = "missing: " + rest
    pairs = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in items.items())
    return f"<h2>Machine and allocators</h2><dl>{pairs}</dl>"


def render(results: dict) -> str:
    settings = results["settings"]
    intro = (
        f"Less is better everywhere. Bars are medians of {settings['rounds']} interleaved rounds, the line "
        f"over a bar's end is the 95 % interval of the mean. A tie is a difference from the best that is not "
        f"significant (Welch's t-test, p \u2265 {results['alpha']}). \u203a marks a bar that was cut. On the "
        f"right: {escape(results['baseline'])} against the best other."
    )
    machine = results["machine"]
    body = [
        f"<h1>{escape(results['baseline'])} and others: {escape(results['title'])}</h1>",
        f'<p class="soft">{escape(machine["date"])} \u00b7 {escape(machine["CPU"])} \u00b7 commit '
        f'{escape(machine["commit"])} \u00b7 <code>{escape(results["command"])}</code></p>',
        *_notes(results),
        _tiles(results),
        "<h2>Rows</h2>",
        f'<p class="soft">{intro}</p>',
        _bar_cards(results),
        _scatter(results),
        _idle(results),
        _scaling(results),
        _machine(results),
        _figures_table(results),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escape(results["title"])}: allocators compared</title>'
        f"<style>{_style()}</style></head><body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )
