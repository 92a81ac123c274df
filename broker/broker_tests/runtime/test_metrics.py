"""Histograms of request times."""

import pytest

from odradek_broker.runtime.metrics import BUCKETS, Histogram


@pytest.mark.parametrize("micros", [-1, 0, 1, 900, 4095, 4096, 4097, 2**25 - 1, 2**25, 2**40])
def test_the_bucket_of_a_duration_is_its_bit_length(micros: int) -> None:
    histogram = Histogram()
    histogram.observe_us(micros)
    assert histogram.buckets.index(1) == min(micros.bit_length(), BUCKETS - 1)
    assert (histogram.count, histogram.total_us) == (1, micros)
