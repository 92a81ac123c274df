"""One line per key and period, with a count of the rest."""

import logging

import pytest

from odradek_broker.runtime.rate_limited_log import RateLimitedLog


def test_the_first_is_logged_and_the_rest_counted(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(logging.getLogger("test"), period_ms=60_000)
    for number in range(100):
        limited.warning("full", 1_000.0 + number, "refused %s", f"10.0.0.{number}")
    limited.error("other", 1_001.0, "something else")
    limited.warning("full", 61_100.0, "refused %s", "10.0.0.200")
    limited.warning("full", 61_200.0, "refused %s", "10.0.0.201")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "refused 10.0.0.0"),
        ("ERROR", "something else"),
        ("WARNING", "refused 10.0.0.200 (and 99 more like it in the last 60 s)"),
    ]


def test_nothing_is_added_if_nothing_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    limited = RateLimitedLog(logging.getLogger("test"), period_ms=1_000)
    limited.info("k", 0.0, "first")
    limited.info("k", 5_000.0, "second")
    assert [record.getMessage() for record in caplog.records] == ["first", "second"]
