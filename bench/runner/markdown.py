"""A saved run as a page of Markdown: what bench/RESULTS.md is made of.

Losses get a section of their own before the table, so that nobody has to look for them.
"""

from typing import List

from . import table, units


def _losses(results: dict) -> List[str]:
    baseline = results["baseline"]
    found = []
    for row in results["rows"]:
        for line in [*row["lines"], row["rss"]]:
            verdict = line["verdict"]
            if verdict and verdict["verdict"] == "loses":
                ours, best = (
                    units.show(line["stats"][n]["median"], line["unit"])
                    for n in (baseline, verdict["against"])
                )
                by = f"{verdict['ratio']:.2f} times" if verdict["ratio"] is not None else "more than"
                if (
                    line["key"] == "peak_rss"
                    and line["stats"][baseline]["median"] < results["means"]["rss"]["from_mib"]
                ):
                    continue  # below what the RSS table shows
                found.append(
                    (
                        verdict["ratio"] or 0,
                        f"- {row['name']} {line['label'] or 'time'}: {ours}, {by} "
                        f"{verdict['against']} ({best})",
                    )
                )
    return [text for _, text in sorted(found, reverse=True)] or ["None."]


def render(results: dict) -> str:
    baseline = results["baseline"]
    machine = [f"| {key} | {value} |" for key, value in results["machine"].items()]
    machine += [
        f"| {a['name']} | {a['version']}{' (' + a['path'] + ')' if a['path'] else ''} |"
        for a in results["allocators"]
    ]
    parts = [
        f"# Results: {results['title']}",
        "",
        f"Made by `{results['command']}` in {units.duration(results['took_s'])}; "
        f"{results['settings']['rounds']} rounds, a difference counts at p < {results['alpha']}. "
        "How to read it: [README.md](README.md).",
        "",
        "| what | value |",
        "|---|---|",
        *machine,
        "",
    ]
    parts += [f"missing: {line}" for line in results["missing"]]
    if results["names"][1:]:
        parts += ["", f"## Where {baseline} loses against the best other allocator", "", *_losses(results)]
    parts += ["", "## Table", "", "```", table.render(results).rstrip(), "```", ""]
    return "\n".join(parts)
