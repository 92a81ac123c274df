"""Parallel runs begin with the files that take longest, so that all processes end together.

    pytest -n 6 --dist loadfile       # pytest_plugin.py gives xdist this scheduler

A file stays in one process: what its tests share is started once. The times are those of the last
run, kept in pytest's cache; a file that is not there has a guess by its directory. Files that start
Spark are among the slowest; only some of them run at the same time, because each takes the memory
of a JVM or two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from xdist.scheduler import LoadFileScheduling

CACHE_KEY = "odradek/seconds"

# Most of these start processes. The first prefix that fits counts; anything else takes a second.
GUESSES_S = {
    "spark-on-k8s/": 20.0,
    "broker/broker_tests/cluster/": 15.0,
    "cli/cli_tests/": 15.0,
    "operator/operator_tests/local/": 15.0,
    "e2e/e2e_tests/testing/": 10.0,
    "broker/broker_tests/security/": 5.0,
    "broker/broker_tests/sim/": 5.0,
    "broker/broker_tests/clients/": 4.0,
}
GUESS_S = 1.0

# Files whose tests start Spark one after the other, and how many of them run at a time.
SPARK = ("spark-on-k8s/", "cli/cli_tests/test_pipeline.py")
SPARK_AT_A_TIME = 2


def guess_s(file: str) -> float:
    return next((s for prefix, s in GUESSES_S.items() if file.startswith(prefix)), GUESS_S)


class SlowestFirst(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """xdist's `loadfile`; a process that has nothing left to do gets the slowest file."""

    def __init__(self, config: Any, log: Any, seconds: Mapping[str, float]) -> None:
        super().__init__(config, log)
        self._seconds = seconds

    def _assign_work_unit(self, node: Any) -> None:
        given = [file for work in self.assigned_work.values() for file in unfinished(work)]
        full = sum(file.startswith(SPARK) for file in given) >= SPARK_AT_A_TIME

        def order(file: str) -> tuple[bool, float]:
            later = full and file.startswith(SPARK)
            return not later, self._seconds.get(file, guess_s(file))

        self.workqueue.move_to_end(max(self.workqueue, key=order), last=False)
        super()._assign_work_unit(node)


def unfinished(work: Mapping[str, Mapping[str, bool]]) -> list[str]:
    """The files of a process that have tests to run; `work` is file → test → whether done."""
    return [file for file, tests in work.items() if not all(tests.values())]


class Seconds:
    """Adds up how long the tests of each file took: a plugin of the process that distributes."""

    def __init__(self, before: Mapping[str, float]) -> None:
        self._before = before
        self._measured: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._measured[report.nodeid.split("::")[0]] += report.duration

    def all(self) -> dict[str, float]:
        """Rounded; with the files of earlier runs that this one left out."""
        return {**self._before, **{f: round(s, 2) for f, s in sorted(self._measured.items())}}
