"""How descriptors are shared, for every limit."""

from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.runtime.descriptors import (
    PROCESS_FILES,
    SEGMENT_FILES_MAX,
    STORAGE_FILES,
    share,
)


@given(limit=st.integers(160, 1 << 20))
def test_the_shares_never_exceed_the_limit(limit: int) -> None:
    shares = share(limit)
    used = shares.segment_files + shares.connections + shares.brokers
    assert used + PROCESS_FILES + STORAGE_FILES <= limit
    assert shares.segment_files <= SEGMENT_FILES_MAX
    assert shares.connections <= limit - shares.reserve
    assert shares.kept >= shares.reserve


def test_usual_limits() -> None:
    small, usual, large = share(256), share(1024), share(1_048_576)
    assert (small.segment_files, small.connections) == (64, 64)
    assert (usual.segment_files, usual.connections) == (400, 400)
    assert large.segment_files == SEGMENT_FILES_MAX
    assert large.connections > 1_000_000


def test_far_too_few_is_still_a_number() -> None:
    assert share(64).connections == 8
