"""The report's pictures, as inline SVG text.

Colours are CSS variables of the page, so that one picture serves light and dark. Every picture names its
series beside the marks; colour alone tells nothing.
"""

from html import escape
from typing import Callable, Dict, List, Tuple

from . import units

BAR_STEP = 22
NAME_WIDTH = 86
BAR_WIDTH = 150
VALUE_WIDTH = 100
CLIP_AT = 6.0  # bars longer than this many times the best are cut, and marked
LABEL_STEP = 15


def colour(names: List[str], name: str) -> str:
    """Known allocators keep their colour in every report; others take what follows."""
    known = ["hakmem", "glibc", "jemalloc", "mimalloc", "tcmalloc", "hakmem-debug"]
    if name in known:
        return f"var(--c{known.index(name)})"
    others = [n for n in names if n not in known]
    return f"var(--c{6 + others.index(name) % 4})"


def text(x: float, y: float, content: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(content)}</text>'


def segment(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def svg(width: float, height: float, label: str, parts: List[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        f'aria-label="{escape(label, True)}">' + "".join(parts) + "</svg>"
    )


def bars(
    row_label: str, line: dict, names: List[str], failures: Dict[str, str], word: Callable[[str], str]
) -> str:
    """One figure of one row: a bar for each allocator, the 95 % interval over its end."""
    values = {n: s["median"] for n, s in line["stats"].items()}
    best = min(values.values(), default=0)
    longest = max([v for v in values.values() if best == 0 or v <= CLIP_AT * best], default=0)
    scale = BAR_WIDTH / longest if longest > 0 else 0
    parts = []
    for i, name in enumerate(names):
        y = i * BAR_STEP
        parts.append(
            text(
                NAME_WIDTH - 8,
                y + 15,
                name if len(name) < 13 else name[:11] + ".",
                "end",
                "strong" if name == line["best"] else "",
            )
        )
        if name in failures or name not in values:
            parts.append(
                text(
                    NAME_WIDTH + 2,
                    y + 15,
                    word(failures[name]) if name in failures else "no figure",
                    "start",
                    "bad",
                )
            )
            continue
        is_cut = values[name] > longest
        width = BAR_WIDTH * 1.12 if is_cut else values[name] * scale
        parts.append(
            f'<rect x="{NAME_WIDTH}" y="{y + 4}" width="{max(width, 1):.1f}" height="14" rx="2" '
            f'fill="{colour(names, name)}"/>'
        )
        end = NAME_WIDTH + width
        stat = line["stats"][name]
        if stat["low"] is not None and not is_cut:
            low, high = (NAME_WIDTH + min(max(stat[k], 0) * scale, BAR_WIDTH * 1.12) for k in ("low", "high"))
            for kind in ("halo", "whisker"):
                parts += [
                    segment(low, y + 11, high, y + 11, kind),
                    segment(low, y + 7, low, y + 15, kind),
                    segment(high, y + 7, high, y + 15, kind),
                ]
            end = max(end, high)
        mark = " best" if name == line["best"] and len(values) > 1 else " tie" if name in line["tied"] else ""
        shown = ("\u203a " if is_cut else "") + units.show(values[name], line["unit"]) + mark
        parts.append(text(end + 6, y + 15, shown, "start", "strong" if mark == " best" else ""))
    return svg(NAME_WIDTH + BAR_WIDTH + VALUE_WIDTH, len(names) * BAR_STEP + 2, row_label, parts)


def ticks(top: float) -> List[float]:
    """About five round steps from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10.0**12
    for exponent in range(-6, 12):
        for base in (1, 2, 2.5, 5):
            if top / (base * 10.0**exponent) <= 5.0:
                step = min(step, base * 10.0**exponent)
    count = int(-(-top // step))
    return [step * i for i in range(count + 1)]


def _number(value: float) -> str:
    return f"{value:g}"


class Plot:
    """Axes from zero in a box of width by height, with room for direct labels at the right."""

    LEFT, TOP, RIGHT, BOTTOM = 58, 12, 190, 44

    def __init__(
        self,
        width: int,
        height: int,
        x_top: float,
        y_top: float,
        x_name: str,
        y_name: str,
        x_ticks: List[float] = (),
    ):
        self.width, self.height = width, height
        self.xs, self.ys = list(x_ticks) or ticks(x_top), ticks(y_top)
        self.x_top, self.y_top = max(self.xs[-1], x_top if x_ticks else 0), self.ys[-1]
        self.parts: List[str] = []
        for x in self.xs:
            self.parts += [
                segment(self.x(x), self.TOP, self.x(x), self.y(0), "grid"),
                text(self.x(x), self.y(0) + 17, _number(x), "middle", "tick"),
            ]
        for y in self.ys:
            self.parts += [
                segment(self.x(0), self.y(y), self.x(self.x_top), self.y(y), "grid"),
                text(self.x(0) - 7, self.y(y) + 4, _number(y), "end", "tick"),
            ]
        middle = self.TOP + (height - self.TOP - self.BOTTOM) / 2
        self.parts += [
            text(self.x(self.x_top / 2), height - 6, x_name, "middle", "axis"),
            f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle" class="axis">'
            f"{escape(y_name)}</text>",
        ]

    def x(self, value: float) -> float:
        return self.LEFT + value / self.x_top * (self.width - self.LEFT - self.RIGHT)

    def y(self, value: float) -> float:
        return self.height - self.BOTTOM - value / self.y_top * (self.height - self.TOP - self.BOTTOM)

    def labels(self, wanted: List[Tuple[float, float, str, str]]) -> None:
        """(x, y, text, colour) in pixels: names in the right margin, each tied to its mark by a line.

        Names that would overlap move down; where that runs out of the picture, all move up as far as needed.
        """
        at: List[float] = []
        ordered = sorted(wanted, key=lambda w: w[1])
        for _, y, _, _ in ordered:
            at.append(max(y, at[-1] + LABEL_STEP if at else y))
        limit = self.height - 8
        for i in range(len(at) - 1, -1, -1):
            at[i] = min(at[i], limit)
            limit = at[i] - LABEL_STEP
        left = self.width - self.RIGHT + 14
        for (x, y, content, fill), to in zip(ordered, at):
            self.parts.append(segment(x, y, left - 3, to, "leader"))
            self.parts.append(
                f'<rect x="{left:.1f}" y="{to - 4:.1f}" width="8" height="8" rx="2" fill="{fill}"/>'
            )
            self.parts.append(text(left + 13, to + 4, content))

    def render(self, label: str) -> str:
        return svg(self.width, self.height, label, self.parts)


def scatter(
    ratios_time: Dict[str, float], ratios_rss: Dict[str, float], names: List[str], baseline: str
) -> str:
    """Time against peak RSS, both as geometric means relative to the baseline; lower left is better."""
    shown = [n for n in names if n in ratios_time and n in ratios_rss]
    plot = Plot(
        720,
        380,
        max(ratios_time[n] for n in shown) * 1.05,
        max(ratios_rss[n] for n in shown) * 1.05,
        f"time, relative to {baseline} (less is better)",
        f"peak RSS, relative to {baseline}",
    )
    plot.parts += [
        segment(plot.x(1), plot.TOP, plot.x(1), plot.y(0), "one"),
        segment(plot.x(0), plot.y(1), plot.x(plot.x_top), plot.y(1), "one"),
    ]
    wanted, dots = [], []
    for name in shown:
        x, y = plot.x(ratios_time[name]), plot.y(ratios_rss[name])
        fill = colour(names, name)
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{fill}" class="dot"/>')
        wanted.append((x, y, f"{name} {ratios_time[name]:.2f} / {ratios_rss[name]:.2f}", fill))
    plot.labels(wanted)
    plot.parts += dots  # over the lines of the labels
    return plot.render("time against peak RSS")


def lines(
    series: Dict[str, List[Tuple[float, float]]],
    names: List[str],
    x_name: str,
    y_name: str,
    x_ticks: List[float] = (),
) -> str:
    """One line for each allocator, named at its end."""
    points = [p for s in series.values() for p in s]
    plot = Plot(720, 330, max(p[0] for p in points), max(p[1] for p in points), x_name, y_name, x_ticks)
    wanted = []
    for name, data in series.items():
        fill = colour(names, name)
        path = " ".join(f"{plot.x(x):.1f},{plot.y(y):.1f}" for x, y in data)
        plot.parts.append(f'<polyline points="{path}" fill="none" stroke="{fill}" stroke-width="2"/>')
        plot.parts += [
            f'<circle cx="{plot.x(x):.1f}" cy="{plot.y(y):.1f}" r="3" fill="{fill}"/>' for x, y in data
        ]
        wanted.append((plot.x(data[-1][0]), plot.y(data[-1][1]), name, fill))
    plot.labels(wanted)
    return plot.render(y_name)
