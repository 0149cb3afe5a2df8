"""The live line: what runs, how far it is, how long it still takes.

On a terminal one line is rewritten; elsewhere each finished row is one line.
"""

import sys
import time
from typing import List

from . import units
from .rows import Row

START_COST_S = 0.02  # a process start, before and after what the program times


class Progress:
    def __init__(
        self, rows: List[Row], allocator_count: int, rounds: int, target_s: float, stream=sys.stderr
    ):
        self.stream = stream
        self.is_live = stream.isatty()
        # Relative weights only: the time that rows took so far gives the scale.
        self.weights = [
            (row.seconds or 0.6) if row.is_single else (rounds + 2) * (target_s * 1.5 + START_COST_S)
            for row in rows
        ]
        self.weights = [w * allocator_count for w in self.weights]
        self.begin_s = time.monotonic()
        self.row_idx = 0
        self.row_begin_s = self.begin_s
        self.last_drawn_s = 0.0

    def left_s(self) -> float:
        now = time.monotonic()
        done = sum(self.weights[: self.row_idx])
        scale = (self.row_begin_s - self.begin_s) / done if done > 0 else 1.0
        running = self.weights[self.row_idx] * scale if self.row_idx < len(self.weights) else 0.0
        later = sum(self.weights[self.row_idx + 1 :]) * scale
        return max(0.0, running - (now - self.row_begin_s)) + later

    def on_run(self, row_name: str, allocator: str, what: str) -> None:
        now = time.monotonic()
        if not self.is_live or now - self.last_drawn_s < 0.1:
            return
        self.last_drawn_s = now
        share = 100 * self.row_idx // max(1, len(self.weights))
        text = f"[{share:3d} %] {row_name}, {allocator}, {what}; about {units.duration(self.left_s())} left"
        self.stream.write("\r\x1b[K" + text[:79])
        self.stream.flush()

    def row_done(self, row_name: str, note: str) -> None:
        took = time.monotonic() - self.row_begin_s
        self.row_idx += 1
        self.row_begin_s = time.monotonic()
        if not self.is_live:
            left = units.duration(self.left_s()) if self.row_idx < len(self.weights) else "nothing"
            self.stream.write(
                f"[{self.row_idx}/{len(self.weights)}] {row_name}: {took:.1f} s{note}; {left} left\n"
            )
            self.stream.flush()
        elif note:
            self.stream.write(f"\r\x1b[K{row_name}{note}\n")

    def close(self) -> None:
        if self.is_live:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
