"""A pipeline that counts a topic's records by key and ten seconds, and its counts so far.

    pipeline = WindowPipeline(bootstrap, directory, Counted("orders", "customer", "_timestamp", …))
    pipeline.start()                       # Spark is up
    pipeline.counting()                    # and has done its first batch
    pipeline.counts()                      # Counter({(1763337600, "c3"): 250, …})

The shared half of two demonstrations: `odradek pipeline demo` makes the records itself,
`odradek local demo` counts those of its writer. A window is written again whenever it grows, so
the last count of it is valid.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek_cli.errors import CliError

PARTITIONS = 3
WINDOW_S = 10
START_S, FINISH_S = 600.0, 300.0  # ten seconds on an idle machine, minutes on a busy one
LOOK_S = 0.3

Window = tuple[int, str]  # begin in seconds, key


def window(at_s: float, key: str) -> Window:
    return int(at_s // WINDOW_S) * WINDOW_S, key


def difference(found: Counter[Window], wanted: Counter[Window]) -> str:
    """A sentence about the first window whose count is wrong; empty if there is none."""
    wrong = sorted(w for w in found.keys() | wanted.keys() if found[w] != wanted[w])
    if not wrong:
        return ""
    begin, key = wrong[0]
    return (
        f"{len(wrong)} windows differ: the first, of {key} at {begin}, has {found[wrong[0]]} "
        f"instead of {wanted[wrong[0]]}"
    )


@dataclass(frozen=True)
class Counted:
    topic: str
    key: str  # a column of the schema
    at: str  # SQL expression: the time of the record
    schema: str
    into: str  # the topic of the counts

    def specification(self) -> dict[str, Any]:
        read = {"type": "json", "schema": self.schema}
        return {
            "cluster": {"name": "demo"},
            "sources": [{"name": "records", "topics": [self.topic], "format": read}],
            "steps": [
                {
                    "name": "timed",
                    "sql": f"SELECT {self.key}, {self.at} AS at FROM records",
                    "watermark": {"column": "at", "delay": "10 minutes"},
                },
                {
                    "sql": f"SELECT unix_seconds(window.start) AS begin, {self.key} AS key, "
                    "count(*) AS records "
                    f"FROM timed GROUP BY window(at, '{WINDOW_S} seconds'), {self.key}"
                },
            ],
            "sink": {"topic": {"name": self.into, "key": "key"}, "outputMode": "update"},
            "trigger": "1 second",
            "restartPolicy": {"type": "OnFailure", "intervalSeconds": 1},
        }


class WindowPipeline:
    def __init__(self, bootstrap: str, directory: Path, counted: Counted) -> None:
        from odradek_operator.local.pipeline_processes import LocalPipeline, spark_missing

        if missing := spark_missing():
            raise CliError(missing)
        self._bootstrap = bootstrap
        self._counted = counted
        self._job = _job(bootstrap, counted)
        self._pipeline = LocalPipeline(directory, self._job.spec.restart_policy)

    @property
    def restarts(self) -> int:
        return self._pipeline.restarts

    def start(self) -> None:
        """Returns when Spark has started and its query waits for records; both topics exist."""
        self._pipeline.start(self._job)
        self.wait(START_S, self._running, "Spark did not start")

    def counting(self) -> None:
        """Returns when the first batch is done: from then on it keeps up with the topic."""
        self.wait(START_S, lambda: self.rows() > 0, "no batch was done")

    def _running(self) -> bool:
        said = self.look()
        return said is not None and said.state == "Running"

    def look(self) -> Any:
        """The status of the driver; call it regularly, because it also restarts a failed driver."""
        self._pipeline.supervise(time.monotonic())
        return self._pipeline.status()

    def rows(self) -> int:
        """How many records it has read since its driver started."""
        said = self.look()
        return said.queries["main"].rows if said and "main" in said.queries else 0

    def wait(self, patience_s: float, done: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            self.look()
            if self._pipeline.ended is not None or time.monotonic() > deadline:
                said = self._pipeline.status()
                words = said.message if said and said.message else self._pipeline.last_words(5)
                raise CliError(f"{problem}: {words}")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        self._pipeline.stop()

    def counts(self) -> Counter[Window]:
        """The last count of every window, read from the beginning of the topic."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "odradek-demo",
                             "enable.auto.commit": False, "enable.partition.eof": True,
                             "log_level": 0})  # fmt: skip
        found: Counter[Window] = Counter()
        into = self._counted.into
        try:
            consumer.assign([TopicPartition(into, p, 0) for p in range(PARTITIONS)])
            ends, deadline = 0, time.monotonic() + 30
            while ends < PARTITIONS and time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is not None:
                    ends += 1
                    continue
                one = json.loads(message.value() or b"{}")
                found[int(one["begin"]), one["key"]] = int(one["records"])
        finally:
            consumer.close()
        return found


def make_topics(bootstrap: str, *names: str) -> None:
    """Makes new topics: one that an earlier demo has filled would spoil the counts."""
    from odradek_cli.client import connect, raise_first
    from odradek_protocol.client.admin.topics import NewTopic, create_topics

    with connect(bootstrap) as client:
        known = client.metadata().topics
        if any(name in known for name in names):
            raise CliError(f"there is a topic {' or '.join(names)} already: delete it first")
        raise_first("topic", create_topics(client, [NewTopic(n, PARTITIONS) for n in names]))


def _job(bootstrap: str, counted: Counted) -> Any:
    from odradek_api.pipeline.job import read_job

    document = {"name": "window-counts", "namespace": "demo", "spec": counted.specification(),
                "clusters": {"demo/demo": bootstrap}}  # fmt: skip
    return read_job(json.dumps(document).encode())
