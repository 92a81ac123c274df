"""Windowed counts under load: a pipeline counts records, and the counts are checked.

    with WindowedCounts(bootstrap, directory) as counts:
        …                                  # restart brokers, kill some
        verdict = counts.finish()          # stops producing, waits, compares
    print(verdict)     # 12,000 visits produced, 12,000 counted in 84 windows: equal; 0 restarts

`odradek pipeline demo`. Visits go to one topic, counts by page and ten seconds to another.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek_cli.errors import CliError
from odradek_cli.window_counts import (
    FINISH_S,
    Counted,
    Window,
    WindowPipeline,
    difference,
    make_topics,
    window,
)

VISITS, COUNTS = "odradek-demo-visits", "odradek-demo-page-views"
PAGES = ("/", "/docs", "/blog", "/about")
COUNTED = Counted(
    topic=VISITS,
    key="page",
    at="timestamp_millis(CAST(at * 1000 AS BIGINT))",
    schema="page STRING NOT NULL, at DOUBLE NOT NULL",
    into=COUNTS,
)


@dataclass(frozen=True)
class DemoResult:
    produced: int
    counted: int
    windows: int
    equal: bool
    restarts: int
    seconds: float  # from the last record to the last count
    problem: str = ""

    def __str__(self) -> str:
        said = "equal" if self.equal else f"NOT equal{': ' if self.problem else ''}{self.problem}"
        return (
            f"{self.produced:,} visits produced, {self.counted:,} counted in {self.windows} "
            f"windows: {said}; {self.restarts} restarts of the pipeline; complete "
            f"{self.seconds:.1f} s after the last visit"
        )


class WindowedCounts:
    def __init__(self, bootstrap: str, directory: Path, rate: float = 200.0) -> None:
        self.bootstrap = bootstrap
        self.produced: Counter[Window] = Counter()
        self._rate = rate
        self._stop = threading.Event()
        self._pipeline = WindowPipeline(bootstrap, directory, COUNTED)
        self._producing = threading.Thread(target=self._produce, name="visits", daemon=True)
        self._failure = ""

    def __enter__(self) -> Self:
        """Returns when the first batch is done: from then on it keeps up with the topic."""
        make_topics(self.bootstrap, VISITS, COUNTS)
        try:
            self._pipeline.start()
            self._producing.start()
            self._pipeline.counting()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._producing.is_alive():
            self._producing.join()
        self._pipeline.stop()

    def look(self) -> Any:
        """The status of the driver; call it regularly, because it also restarts a failed driver."""
        return self._pipeline.look()

    def finish(self) -> DemoResult:
        """Stops producing; every visit has to be counted exactly once."""
        self._stop.set()
        self._producing.join()
        began = time.monotonic()
        with contextlib.suppress(CliError):
            self._pipeline.wait(FINISH_S, lambda: self._pipeline.counts() == self.produced, "")
        seconds = time.monotonic() - began
        found = self._pipeline.counts()
        return DemoResult(
            produced=self.produced.total(),
            counted=found.total(),
            windows=len(found),
            equal=found == self.produced and not self._failure,
            restarts=self._pipeline.restarts,
            seconds=seconds,
            problem=self._failure or difference(found, self.produced),
        )

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 20,
             "message.timeout.ms": int(FINISH_S * 1000), "log_level": 0}
        )  # fmt: skip

        def acknowledged(error: Any, _: Any) -> None:
            if error is not None:
                self._failure = f"a visit was not acknowledged: {error.str()}"

        n, began = 0, time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate)
            while n < due:
                page, at = PAGES[n % len(PAGES)], round(time.time(), 3)
                visit = json.dumps({"page": page, "at": at})
                producer.produce(VISITS, visit, key=str(n), on_delivery=acknowledged)
                self.produced[window(at, page)] += 1
                n += 1
            producer.poll(0)
            self._stop.wait(0.02)
        if producer.flush(FINISH_S):
            self._failure = "not all visits were acknowledged"
