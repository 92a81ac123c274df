"""The statistics, compared with results that were computed by hand."""

import pytest

from odradek_bench.stats import compare, quantile, summarize


def test_a_summary_is_the_median_and_the_extremes() -> None:
    summary = summarize([50, 10, 12])
    assert (summary.median, summary.low, summary.high, summary.rounds) == (12, 10, 50, 3)
    assert summary.spread == pytest.approx(40 / 12)


def test_one_round_has_no_spread() -> None:
    assert summarize([7.0]).spread == 0


def test_a_ratio_is_that_of_the_medians_and_its_range_that_of_the_pairs() -> None:
    ratio = compare(ours=[20, 24, 90], theirs=[10, 12, 50])
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 1.8, 2.0)


def test_one_outlier_does_not_move_the_ratio() -> None:
    ratio = compare(ours=[20, 20, 2000], theirs=[10, 10, 10])
    assert ratio is not None
    assert ratio.median == 2.0
    assert ratio.high == 200.0


def test_nothing_is_compared_with_zero() -> None:
    assert compare([1.0], [0.0]) is None


def test_one_pair_is_enough() -> None:
    ratio = compare([3.0], [2.0])
    assert ratio is not None
    assert ratio.low == ratio.median == ratio.high == 1.5


@pytest.mark.parametrize(
    ("fraction", "value"), [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000), (0.0001, 1)]
)
def test_quantiles_are_values_that_were_seen(fraction: float, value: int) -> None:
    assert quantile(list(range(1000, 0, -1)), fraction) == value
