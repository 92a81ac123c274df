"""Errors that production code logs in a simulation are violations."""

from __future__ import annotations

import logging
import traceback
from collections.abc import (
    Callable,
    Iterator,
)
from contextlib import contextmanager
from unittest import mock

from broker_tests.sim.cluster_checker import ClusterChecker
from odradek_broker.partition import leader_state

# Times are about a tenth of production's; so is how long a lost proposal may still be about.
LOST_PROPOSAL_MS = 5_000.0


class _Violations(logging.Handler):
    """Production code must not log at level ERROR in a simulation."""

    def __init__(self, cluster: ClusterChecker, is_expected: Callable[[str], bool]) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster
        self._is_expected = is_expected

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._is_expected(text):
            return
        if record.exc_info and record.exc_info[1] is not None:
            text += ": " + "".join(traceback.format_exception(record.exc_info[1])[-3:])
        self._cluster.fail(text)


@contextmanager
def errors_are_violations(
    cluster: ClusterChecker, is_expected: Callable[[str], bool]
) -> Iterator[None]:
    logger = logging.getLogger("odradek_broker")
    handler = _Violations(cluster, is_expected)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        with mock.patch.object(leader_state, "LOST_PROPOSAL_MS", LOST_PROPOSAL_MS):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
