"""Medians, Welch's t-test and confidence intervals, without any package.

Ratios are compared on a logarithmic scale: a time twice as long and one half as long are then equally far
from a tie, and the interval of the difference of means is the interval of the ratio.
"""

import math
from dataclasses import dataclass
from typing import Optional, Sequence

CONFIDENCE = 0.95


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """The sample variance (n - 1)."""
    centre = mean(values)
    return math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def variation(values: Sequence[float]) -> Optional[float]:
    """The coefficient of variation, None where it does not exist."""
    if len(values) < 2 or mean(values) == 0:
        return None
    return math.sqrt(variance(values)) / abs(mean(values))


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(mean([math.log(v) for v in values]))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c = 1.0
    d = 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + term / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            return value
    return value


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The fraction converges fast only on one side of the mean; the symmetry gives the other.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def t_two_sided(t: float, freedom: float) -> float:
    """The probability of a |t| at least this large if there is no difference."""
    return incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def t_quantile(confidence: float, freedom: float) -> float:
    """The t that |t| stays below with this probability, by bisection."""
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > 1.0 - confidence:
        high *= 2.0
    for _ in range(70):
        middle = (low + high) / 2.0
        if t_two_sided(middle, freedom) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Welch:
    """The difference of two means. `low` to `high` is its 95 % interval."""

    difference: float
    low: float
    high: float
    p: float


def welch(a: Sequence[float], b: Sequence[float]) -> Optional[Welch]:
    """Welch's t-test of mean(a) - mean(b); None with fewer than two values on a side."""
    if len(a) < 2 or len(b) < 2:
        return None
    difference = mean(a) - mean(b)
    va, vb = variance(a) / len(a), variance(b) / len(b)
    error = math.sqrt(va + vb)
    # Constant figures (page counts, address space) have no error: what differs at all, differs.
    if error <= 1e-12 * max(abs(mean(a)), abs(mean(b))):
        same = abs(difference) <= 1e-9 * max(abs(mean(a)), abs(mean(b)), 1e-300)
        return Welch(difference, difference, difference, 1.0 if same else 0.0)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    reach = t_quantile(CONFIDENCE, freedom) * error
    return Welch(difference, difference - reach, difference + reach, t_two_sided(difference / error, freedom))


@dataclass(frozen=True)
class Comparison:
    """a against b: the ratio of the medians, the 95 % interval of the ratio, and whether it can be told from
    1.

    `verdict` is "less", "more", "tie", or "unknown" with fewer than two values a side.
    """

    ratio: Optional[float]
    low: Optional[float]
    high: Optional[float]
    p: Optional[float]
    verdict: str


def compare(a: Sequence[float], b: Sequence[float], alpha: float) -> Comparison:
    ratio = median(a) / median(b) if median(b) > 0 else None
    is_positive = min(a) > 0 and min(b) > 0
    test = welch([math.log(v) for v in a], [math.log(v) for v in b]) if is_positive else welch(a, b)
    if test is None:
        return Comparison(ratio, None, None, None, "unknown")
    verdict = "tie" if test.p >= alpha else "less" if test.difference < 0 else "more"
    low, high = (math.exp(test.low), math.exp(test.high)) if is_positive else (None, None)
    return Comparison(ratio, low, high, test.p, verdict)


def interval(values: Sequence[float]) -> Optional[tuple]:
    """The 95 % interval of the mean of one group, None with fewer than two values."""
    if len(values) < 2:
        return None
    reach = t_quantile(CONFIDENCE, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return mean(values) - reach, mean(values) + reach


def binomial_tail(trials: int, chance: float, at_least: int) -> float:
    """The probability of at least this many successes."""
    return math.fsum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(at_least, trials + 1)
    )
