"""From samples to figures: lines with verdicts, geometric means, the noise check.

Everything returned is plain data (dict, list, str, float), as it stands in results.json; tables and
reports are made from that alone, so that a saved result prints like a fresh one.
"""

from typing import Dict, List, Optional

from . import stats
from .measure import FLOOR_NAME, Best, RowSamples, is_disturbed
from .rows import Line

RSS_MEAN_FROM_MIB = 16.0
NOISE_ALPHA = 0.05
NOISE_CHANCE = 0.01
NOISE_BIAS = 0.02
NOISE_RESOLUTION = 0.10
RSS_LINE = Line("peak_rss", "peak RSS", "MiB")
USAGE_KEYS = (
    "peak_rss_kib",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "user_s",
    "system_s",
)


def line_data(
    line: Line, values: Dict[str, List[float]], names: List[str], baseline: str, alpha: float
) -> dict:
    """One line: per allocator its statistics, compared with the baseline and with the best."""
    present = [n for n in names if values.get(n)]
    data = {
        "key": line.key,
        "label": line.label,
        "unit": line.unit,
        "stats": {},
        "against_baseline": {},
        "best": None,
        "tied": [],
        "verdict": None,
    }
    for name in present:
        reach = stats.interval(values[name])
        data["stats"][name] = {
            "median": stats.median(values[name]),
            "cv": stats.variation(values[name]),
            "n": len(values[name]),
            "low": reach and reach[0],
            "high": reach and reach[1],
        }
        if name != baseline and values.get(baseline):
            data["against_baseline"][name] = vars(stats.compare(values[name], values[baseline], alpha))
    if present:
        best = min(present, key=lambda n: stats.median(values[n]))
        data["best"] = best
        data["tied"] = [
            n for n in present if n != best and stats.compare(values[n], values[best], alpha).verdict == "tie"
        ]
    peers = [n for n in present if n != baseline]
    if peers and values.get(baseline):
        best_peer = min(peers, key=lambda n: stats.median(values[n]))
        compared = stats.compare(values[baseline], values[best_peer], alpha)
        words = {"less": "wins", "more": "loses", "tie": "tie", "unknown": "unknown"}
        data["verdict"] = {**vars(compared), "against": best_peer, "verdict": words[compared.verdict]}
    return data


def row_data(
    samples: RowSamples,
    names: List[str],
    twin: Optional[str],
    baseline: str,
    clock: str,
    alpha: float,
    best: Best,
) -> dict:
    row = samples.row
    everyone = names + ([twin] if twin else [])

    def values(key: str) -> Dict[str, List[float]]:
        found = {
            n: [s.value(key, clock) for s in samples.samples.get(n, [])] for n in everyone + [FLOOR_NAME]
        }
        return {n: v for n, v in found.items() if v and None not in v}

    times = values("time")
    data = {
        "name": row.name,
        "program": row.program,
        "arguments": row.arguments(samples.iterations),
        "iterations": samples.iterations,
        "threads": row.threads,
        "group": row.group,
        "is_single": row.is_single,
        "is_in_mean": row.is_in_mean,
        "is_complete": samples.is_complete,
        "failures": dict(samples.failures),
        "lines": [line_data(line, values(line.key), names, baseline, alpha) for line in row.lines],
        "rss": line_data(RSS_LINE, values("peak_rss"), names, baseline, alpha),
        "ops_per_s": {n: 1e9 / stats.median(v) for n, v in times.items() if n in names and min(v) > 0},
        "usage": {
            n: {key: stats.median([s.usage[key] for s in samples.samples[n]]) for key in USAGE_KEYS}
            for n in names
            if samples.samples.get(n)
        },
        "points": {
            n: samples.samples[n][0].points
            for n in names
            if samples.samples.get(n) and samples.samples[n][0].points
        },
        "samples": {
            n: [
                {
                    "ops": s.ops,
                    "wall_s": s.wall_s,
                    "cpu_s": s.cpu_s,
                    **s.usage,
                    "metrics": {k: m["value"] for k, m in s.metrics.items()},
                }
                for s in runs
            ]
            for n, runs in samples.samples.items()
        },
    }
    if row.is_timed:
        data["repeated"] = samples.repeated
        data["disturbed"] = {
            n: sum(is_disturbed(row, s, best) for s in runs) for n, runs in samples.samples.items()
        }
    if twin and times.get(twin) and times.get(baseline) and not row.is_single:
        data["twin"] = vars(stats.compare(times[twin], times[baseline], NOISE_ALPHA))
    if times.get(FLOOR_NAME) and times.get(baseline):
        data["floor"] = {
            "median": stats.median(times[FLOOR_NAME]),
            "ratio": stats.median(times[baseline]) / stats.median(times[FLOOR_NAME]),
        }
    return data


def _mean_over(rows: List[dict], pick, names: List[str], baseline: str) -> dict:
    """Geometric means of ratios to the baseline, over the rows that every counted allocator finished.

    An allocator that finished less than half of the rows is not counted: it would leave hardly any row to the
    rest.
    """
    counted = [n for n in names if 2 * sum(n in pick(r)["stats"] for r in rows) >= len(rows)]
    if not rows or baseline not in counted:
        return {"rows": 0, "of": len(rows), "ratios": {}}
    used = [pick(r)["stats"] for r in rows if all(n in pick(r)["stats"] for n in counted)]
    used = [s for s in used if all(s[n]["median"] > 0 for n in counted)]
    ratios = {n: [s[n]["median"] / s[baseline]["median"] for s in used] for n in counted}
    return {
        "rows": len(used),
        "of": len(rows),
        "ratios": {n: stats.geometric_mean(v) for n, v in ratios.items()} if used else {},
    }


def means(rows: List[dict], names: List[str], baseline: str) -> dict:
    timed = [r for r in rows if r["is_in_mean"] and r["lines"] and r["lines"][0]["key"] == "time"]
    heavy = [
        r
        for r in rows
        if max((s["median"] for s in r["rss"]["stats"].values()), default=0) >= RSS_MEAN_FROM_MIB
    ]
    return {
        "time": _mean_over(timed, lambda r: r["lines"][0], names, baseline),
        "rss": {**_mean_over(heavy, lambda r: r["rss"], names, baseline), "from_mib": RSS_MEAN_FROM_MIB},
    }


def noise(rows: List[dict]) -> Optional[dict]:
    """What the same allocator under two names showed; None when it did not run.

    Fails when more rows differ at 5 % than chance explains (less than 1 in 100), when the two names differ by
    more than 2 % over all rows, or when the median row's interval is so wide that a difference of 10 % would
    not have been seen: the smallest that it would have is the run's `resolution`.
    """
    pairs = [(r["name"], r["twin"]) for r in rows if r.get("twin") and r["twin"]["low"] is not None]
    if not pairs:
        return None
    differing = [name for name, t in pairs if t["p"] < NOISE_ALPHA]
    chance = stats.binomial_tail(len(pairs), NOISE_ALPHA, len(differing)) if differing else 1.0
    bias = stats.geometric_mean([t["ratio"] for _, t in pairs])
    resolution = stats.median([(t["high"] / t["low"]) ** 0.5 - 1.0 for _, t in pairs])
    reasons = []
    if chance < NOISE_CHANCE:
        reasons.append(f"{len(differing)} of {len(pairs)} rows call the same allocator different")
    if abs(bias - 1.0) > NOISE_BIAS:
        reasons.append(f"the same allocator differs by {abs(bias - 1.0) * 100:.1f} % over all rows")
    if resolution > NOISE_RESOLUTION:
        reasons.append(f"a difference of {resolution * 100:.0f} % would not be seen in every second row")
    return {
        "rows": len(pairs),
        "differing": differing,
        "bias": bias,
        "resolution": resolution,
        "is_passed": not reasons,
        "reasons": reasons,
    }


def neighbours(rows: List[dict], best: Best) -> Optional[dict]:
    """How many of the runs kept were repeated, and how many are disturbed: by the best of the whole session, which
    was not known yet when the first were run. None without timed rows."""
    timed = [r for r in rows if "disturbed" in r]
    if not timed:
        return None
    return {
        "runs": sum(len(runs) for r in timed for runs in r["samples"].values()),
        "repeated": sum(r["repeated"] for r in timed),
        "disturbed": sum(sum(r["disturbed"].values()) for r in timed),
        "best_room": best.room,
        "best_distance_ns": best.distance_ns,
    }


def tally(rows: List[dict]) -> Dict[str, int]:
    """How many lines the baseline wins, ties and loses against the best peer."""
    counts = {"wins": 0, "tie": 0, "loses": 0}
    for row in rows:
        for line in row["lines"]:
            verdict = line["verdict"] and line["verdict"]["verdict"]
            if verdict in counts:
                counts[verdict] += 1
    return counts
