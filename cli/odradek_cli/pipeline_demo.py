"""Windowed counts under load: a pipeline counts what is produced meanwhile, and is checked.

    with WindowedCounts(bootstrap, directory) as counts:
        …                                  # restart brokers, kill some
        verdict = counts.finish()          # stops producing, waits, compares
    print(verdict)     # 12,000 visits produced, 12,000 counted in 84 windows: equal; 0 restarts

Used by `make run` and `odradek pipeline demo`. Visits go to one topic, counts by page and ten
seconds to another; a window is written again whenever it grows, so the last word on it counts.
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

VISITS, COUNTS = "odradek-demo-visits", "odradek-demo-page-views"
PARTITIONS = 3
PAGES = ("/", "/docs", "/blog", "/about")
WINDOW_S = 10
START_S, FINISH_S = 180.0, 180.0  # Spark needs some ten seconds on an idle machine

Window = tuple[int, str]  # begin in seconds, page


@dataclass(frozen=True)
class Verdict:
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


def specification() -> dict[str, Any]:
    return {
        "cluster": {"name": "demo"},
        "sources": [
            {
                "name": "visits",
                "topics": [VISITS],
                "format": {"type": "json", "schema": "page STRING NOT NULL, at DOUBLE NOT NULL"},
            }
        ],
        "steps": [
            {
                "name": "timed",
                "sql": "SELECT page, timestamp_millis(CAST(at * 1000 AS BIGINT)) AS at FROM visits",
                "watermark": {"column": "at", "delay": "10 minutes"},
            },
            {
                "sql": "SELECT unix_seconds(window.start) AS begin, page, count(*) AS views "
                f"FROM timed GROUP BY window(at, '{WINDOW_S} seconds'), page"
            },
        ],
        "sink": {"topic": {"name": COUNTS, "key": "page"}, "outputMode": "update"},
        "trigger": "1 second",
        "restartPolicy": {"type": "OnFailure", "intervalSeconds": 1},
    }


class WindowedCounts:
    def __init__(self, bootstrap: str, directory: Path, rate: float = 200.0) -> None:
        from odradek_operator.cluster.local.pipelines import LocalPipeline, spark_missing

        if missing := spark_missing():
            raise CliError(missing)
        self.bootstrap = bootstrap
        self.produced: Counter[Window] = Counter()
        self._rate = rate
        self._stop = threading.Event()
        self._directory = directory
        self._job = _job(bootstrap)
        self._pipeline = LocalPipeline(directory, self._job.spec.restart_policy)
        self._producing = threading.Thread(target=self._produce, name="visits", daemon=True)
        self._failure = ""

    def __enter__(self) -> Self:
        """Returns when the first batch is done: from now on it counts live."""
        _make_topics(self.bootstrap)
        self._pipeline.start(self._job)
        self._producing.start()
        try:
            self._wait(START_S, lambda: self._rows() > 0, "no batch was done")
        except CliError:
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

    @property
    def restarts(self) -> int:
        return self._pipeline.restarts

    def look(self) -> Any:
        """What the driver says; call it now and then, it also restarts one that failed."""
        return self._pipeline.look(time.monotonic())

    def finish(self) -> Verdict:
        """No more visits; everything that was produced has to be counted, once."""
        self._stop.set()
        self._producing.join()
        began = time.monotonic()
        problem = self._failure
        with contextlib.suppress(CliError):
            self._wait(FINISH_S, lambda: counts(self.bootstrap) == self.produced, "")
        found = counts(self.bootstrap)
        if found != self.produced and not problem:
            wrong = sorted((found - self.produced) + (self.produced - found))
            problem = f"{len(wrong)} windows differ, the first is {wrong[0] if wrong else '?'}"
        return Verdict(
            produced=self.produced.total(),
            counted=found.total(),
            windows=len(found),
            equal=found == self.produced and not self._failure,
            restarts=self.restarts,
            seconds=time.monotonic() - began,
            problem=problem,
        )

    def _rows(self) -> int:
        said = self.look()
        return said.queries["main"].rows if said and "main" in said.queries else 0

    def _wait(self, patience_s: float, done: Any, problem: str) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            self.look()
            if self._pipeline.ended is not None or time.monotonic() > deadline:
                said = self._pipeline.status()
                words = said.message if said and said.message else self._pipeline.last_words(5)
                raise CliError(f"{problem}: {words}; see {self._pipeline.output}")
            time.sleep(0.3)

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
                self.produced[int(at // WINDOW_S) * WINDOW_S, page] += 1
                n += 1
            producer.poll(0)
            self._stop.wait(0.02)
        if producer.flush(FINISH_S):
            self._failure = "not all visits were acknowledged"


def counts(bootstrap: str) -> Counter[Window]:
    """The last word on every window, from the topic's beginning."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "odradek-demo",
                         "enable.auto.commit": False, "enable.partition.eof": True,
                         "log_level": 0})  # fmt: skip
    found: Counter[Window] = Counter()
    try:
        consumer.assign([TopicPartition(COUNTS, p, 0) for p in range(PARTITIONS)])
        ends, deadline = 0, time.monotonic() + 30
        while ends < PARTITIONS and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ends += 1
                continue
            one = json.loads(message.value() or b"{}")
            found[int(one["begin"]), one["page"]] = int(one["views"])
    finally:
        consumer.close()
    return found


def _job(bootstrap: str) -> Any:
    from odradek_pipeline.job import read_job

    document = {"name": "page-views", "namespace": "demo", "spec": specification(),
                "clusters": {"demo/demo": bootstrap}}  # fmt: skip
    return read_job(json.dumps(document).encode())


def _make_topics(bootstrap: str) -> None:
    """New ones: what an earlier demo counted is not ours."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    there = admin.list_topics(timeout=30).topics
    if VISITS in there or COUNTS in there:
        raise CliError(f"topic {VISITS} or {COUNTS} is there already: delete both first")
    for future in admin.create_topics([NewTopic(n, PARTITIONS) for n in (VISITS, COUNTS)]).values():
        future.result(30)
