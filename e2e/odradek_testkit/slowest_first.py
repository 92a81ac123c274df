"""Parallel runs begin with the files that take longest, so that all processes end together.

    pytest -n 6 --dist loadfile       # pytest_plugin.py gives xdist this scheduler

A file stays in one process: what its tests share is started once. Files that share a JVM go to few
processes, because each of them would start one. One process prefers files that only compute: the
others mostly wait for brokers that they started. The times are those of the last run, kept in
pytest's cache; a file that is not there has a guess by its directory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from xdist.scheduler import LoadFileScheduling

CACHE_KEY = "odradek/seconds"

# These start processes. Anything else takes a second, and most of it only computes.
GUESSES_S = {
    "spark-on-k8s/": 20.0,
    "broker/broker_tests/cluster/": 15.0,
    "cli/cli_tests/": 15.0,
    "operator/operator_tests/local/": 15.0,
    "e2e/e2e_tests/testing/": 10.0,
    "broker/broker_tests/security/": 5.0,
    "broker/broker_tests/clients/": 4.0,
}
GUESS_S = 1.0

# Files whose tests share a JVM of their process, and how many processes run them: a session of
# Spark takes 1 GB and 3 s of CPU to start, the JVM of Apache Kafka's tools 1 s.
SHARE_A_JVM = {
    re.compile(r"^spark-on-k8s/"): 2,
    re.compile(r"/test_java_\w+\.py$"): 2,
}


def guess_s(file: str) -> float:
    return next((s for prefix, s in GUESSES_S.items() if file.startswith(prefix)), GUESS_S)


class SlowestFirst(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """xdist's `loadfile`; a process that has nothing left to do gets the slowest file."""

    def __init__(self, config: Any, log: Any, seconds: Mapping[str, float]) -> None:
        super().__init__(config, log)
        self._seconds = seconds
        self._with_jvm: dict[re.Pattern[str], list[Any]] = {kind: [] for kind in SHARE_A_JVM}
        self._computes: Any = None  # the process that prefers files without processes

    def _assign_work_unit(self, node: Any) -> None:
        self._computes = self._computes or node
        file = max(self.workqueue, key=lambda file: self._order(file, node))
        for kind, nodes in self._with_jvm.items():
            if kind.search(file) and node not in nodes:
                nodes.append(node)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _order(self, file: str, node: Any) -> tuple[bool, bool, float]:
        guess = guess_s(file)
        preferred = node is self._computes and guess == GUESS_S
        return not self._is_for_others(file, node), preferred, self._seconds.get(file, guess)

    def _is_for_others(self, file: str, node: Any) -> bool:
        """Enough other processes have the JVM of this file; used if there is nothing else left."""
        return any(
            kind.search(file) and node not in nodes and len(nodes) >= SHARE_A_JVM[kind]
            for kind, nodes in self._with_jvm.items()
        )


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
