"""stats.py against known answers."""

import math
import random
import unittest

import support  # noqa: F401  (sets the path)
from runner import analysis, stats, units


def integrate_t_density(up_to: float, freedom: float) -> float:
    """The t density from 0, by Simpson's rule: shares nothing with what it checks."""
    front = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    steps = 2000
    heights = [
        front * (1 + (up_to * i / steps) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(steps + 1)
    ]
    inner = 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
    return (heights[0] + inner + heights[-1]) * up_to / steps / 3


class Distribution(unittest.TestCase):
    def test_t_quantiles_are_those_of_the_printed_tables(self):
        for freedom, two_sided_95, two_sided_99 in (
            (1, 12.706, 63.657),
            (2, 4.303, 9.925),
            (5, 2.571, 4.032),
            (10, 2.228, 3.169),
            (30, 2.042, 2.750),
            (120, 1.980, 2.617),
        ):
            self.assertAlmostEqual(stats.t_quantile(0.95, freedom), two_sided_95, places=3)
            self.assertAlmostEqual(stats.t_quantile(0.99, freedom), two_sided_99, places=3)

    def test_one_degree_of_freedom_is_the_cauchy_distribution(self):
        for t in (0.1, 1.0, 3.0, 50.0):
            self.assertAlmostEqual(stats.t_two_sided(t, 1), 1 - 2 / math.pi * math.atan(t), places=12)

    def test_incomplete_beta_has_its_closed_forms(self):
        for x in (0.05, 0.3, 0.5, 0.9):
            self.assertAlmostEqual(stats.incomplete_beta(1, 1, x), x, places=12)
            self.assertAlmostEqual(stats.incomplete_beta(3, 1, x), x**3, places=12)
            self.assertAlmostEqual(
                stats.incomplete_beta(2, 5, x) + stats.incomplete_beta(5, 2, 1 - x), 1, places=12
            )

    def test_binomial_tail(self):
        self.assertAlmostEqual(stats.binomial_tail(3, 0.5, 2), 0.5)
        self.assertAlmostEqual(stats.binomial_tail(31, 0.05, 0), 1.0)


class Tests(unittest.TestCase):
    def test_welch_agrees_with_hand_calculation_and_integration(self):
        # Means 3 and 6, variances 2.5 and 10, five values each: t = -3 / sqrt(2.5), df = 2.5^2 / 1.0625.
        test = stats.welch([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
        t, freedom = 3 / math.sqrt(2.5), 6.25 / 1.0625
        self.assertAlmostEqual(test.difference, -3.0)
        self.assertAlmostEqual(test.p, 1 - 2 * integrate_t_density(t, freedom), places=9)
        self.assertAlmostEqual(
            integrate_t_density((test.high + 3) / math.sqrt(2.5), freedom), 0.475, places=9
        )

    def test_welch_needs_two_values_a_side(self):
        self.assertIsNone(stats.welch([1.0], [1.0, 2.0]))

    def test_constants_tie_when_equal_and_differ_when_not(self):
        self.assertEqual(stats.compare([5.0] * 3, [5.0] * 3, 0.01).verdict, "tie")
        self.assertEqual(stats.compare([5.0] * 3, [6.0] * 3, 0.01).verdict, "less")
        self.assertEqual(stats.compare([0.0] * 3, [16384.0] * 3, 0.01).verdict, "less")
        self.assertEqual(stats.compare([0.0] * 3, [0.0] * 3, 0.01).verdict, "tie")

    def test_a_known_factor_is_found_inside_its_interval(self):
        rng = random.Random(7)
        a = [1.10 * math.exp(rng.gauss(0, 0.02)) for _ in range(12)]
        b = [math.exp(rng.gauss(0, 0.02)) for _ in range(12)]
        found = stats.compare(a, b, 0.01)
        self.assertEqual(found.verdict, "more")
        self.assertTrue(found.low < 1.10 < found.high)

    def test_ten_percent_noise_does_not_make_a_winner(self):
        rng = random.Random(3)
        wrong = sum(
            stats.compare(
                [math.exp(rng.gauss(0, 0.1)) for _ in range(7)],
                [math.exp(rng.gauss(0, 0.1)) for _ in range(7)],
                0.01,
            ).verdict
            != "tie"
            for _ in range(1000)
        )
        self.assertLess(wrong, 20)  # 10 are expected

    def test_the_interval_holds_the_true_ratio_95_times_in_100(self):
        rng = random.Random(4)
        held = 0
        for _ in range(1000):
            found = stats.compare(
                [1.5 * math.exp(rng.gauss(0, 0.1)) for _ in range(7)],
                [math.exp(rng.gauss(0, 0.03)) for _ in range(7)],
                0.01,
            )
            held += found.low < 1.5 < found.high
        self.assertTrue(930 <= held <= 970, held)


class NoiseCheck(unittest.TestCase):
    """analysis.noise on rows of (ratio to itself, half width of its interval, p)."""

    def noise(self, *twins: tuple) -> dict:
        rows = [
            {"name": str(i), "twin": {"ratio": r, "low": r / (1 + w), "high": r * (1 + w), "p": p}}
            for i, (r, w, p) in enumerate(twins)
        ]
        return analysis.noise(rows)

    def test_a_quiet_run_passes(self):
        found = self.noise(*[(1.001, 0.02, 0.6)] * 29, (1.03, 0.02, 0.03))
        self.assertTrue(found["is_passed"], found)
        self.assertAlmostEqual(found["resolution"], 0.02)

    def test_more_differences_than_chance_explains_fail(self):
        found = self.noise(*[(1.0, 0.02, 0.6)] * 20, *[(1.05, 0.02, 0.001), (0.95, 0.02, 0.001)] * 5)
        self.assertIn("10 of 30 rows", found["reasons"][0])

    def test_a_drift_over_all_rows_fails(self):
        self.assertIn("3.0 % over all", self.noise(*[(1.03, 0.05, 0.2)] * 10)["reasons"][0])

    def test_a_run_that_could_not_see_ten_percent_fails(self):
        self.assertFalse(self.noise(*[(1.0, 0.3, 0.9)] * 10)["is_passed"])

    def test_no_check_is_not_a_passed_check(self):
        self.assertIsNone(analysis.noise([{"name": "a"}]))


class Summaries(unittest.TestCase):
    def test_median_variation_and_geometric_mean(self):
        self.assertEqual(stats.median([3, 1, 2]), 2)
        self.assertEqual(stats.median([4, 1, 2, 3]), 2.5)
        self.assertAlmostEqual(stats.variation([9, 10, 11]), 0.1)
        self.assertIsNone(stats.variation([1]))
        self.assertAlmostEqual(stats.geometric_mean([1, 4]), 2)

    def test_units(self):
        self.assertEqual(units.show(4.912, "ns"), "4.91ns")
        self.assertEqual(units.show(12345, "ns"), "12.3us")
        self.assertEqual(units.show(999.9, "ns"), "1.00us")
        self.assertEqual(units.show(103.4, "MiB"), "103M")
        self.assertEqual(units.show(0, "faults"), "0")
        self.assertEqual(units.duration(125), "2 min 05 s")


if __name__ == "__main__":
    unittest.main()
