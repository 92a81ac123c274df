"""The driver's side of the exactly-once sink: takes the writers over, splits each batch.

The number of writers of a batch must not change while it is in flight, because a part that was
written has to be the same part when the batch is repeated. It is in the checkpoint:

    <checkpoint>/odradek-writers.json            {"writers": 4}
    <checkpoint>/odradek-writers-<sink>.json     of one of several sinks
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.outputs import MAIN, Output
from odradek_spark import credentials
from odradek_spark.config import librdkafka_config
from odradek_spark.sinks.batch_marks import (
    WRITERS,
    Checkpoint,
    MarkLostError,
    Part,
    prefix,
)
from odradek_spark.sinks.exactly_once import Target, claim, write_part

if TYPE_CHECKING:
    import pyarrow

WRITTEN = "written BIGINT"  # rows by a task
WRITERS_FILE = "odradek-writers"


class CheckpointFiles(Protocol):
    def read(self, path: str) -> str | None: ...
    def write(self, path: str, text: str) -> None: ...
    def names(self, path: str) -> list[str]: ...


class ExactlyOnceSink:
    """Called by foreachBatch, one batch after the other."""

    def __init__(self, job: Job, files: CheckpointFiles, output: Output, identity: str) -> None:
        self.rows_out = 0  # written by this driver
        self._files, self._identity = files, identity
        self._at = f"{job.checkpoint_location}/{output.query}"
        name = "" if output.query == MAIN else f"-{output.query}"
        self._record = f"{job.checkpoint_location}/{WRITERS_FILE}{name}.json"
        self._driver = uuid.uuid4().hex
        self._target = _target(job, output)
        self._writers = 0  # set by start
        self._repeated: tuple[int, int] | None = None  # batch in flight, its writers

    def start(self, writers: int) -> None:
        """Before the query starts: from here on an older driver can write nothing."""
        text = self._files.read(self._record)
        recorded = int(json.loads(text)["writers"]) if text else 0
        last = self._last("commits")
        in_flight = self._last("offsets") > last
        if recorded and in_flight:
            self._repeated = (last + 1, recorded)
        try:
            for first, end, marked in ((0, recorded, True), (recorded, writers, False)):
                known = Checkpoint(
                    identity=self._identity, last_batch=last, in_flight=in_flight, marked=marked
                )
                claim(self._target, range(first, end), known, self._driver)
        except MarkLostError as error:
            advice = (
                f"set a new spec.checkpoint, or delete {self._record} to accept that this batch "
                "may be written twice"
            )
            raise SpecError("spec.checkpoint", f"{error}; {advice}") from None
        self._writers = writers
        if self._repeated is None:
            self._files.write(self._record, json.dumps({"writers": writers}))

    def __call__(self, frame: DataFrame, batch: int) -> None:
        writers = self._writers
        if self._repeated is not None:
            if self._repeated[0] == batch:
                writers = self._repeated[1]
            else:
                self._files.write(self._record, json.dumps({"writers": writers}))
                self._repeated = None
        offsets = self._files.read(f"{self._at}/offsets/{batch}") or ""
        part = Part(
            batch=batch,
            input=hashlib.sha256(offsets.encode()).hexdigest()[:16],
            checkpoint=self._identity,
            driver=self._driver,
        )
        written = split(frame, writers).mapInArrow(partial(_task, self._target, part), WRITTEN)
        self.rows_out += sum(row.written for row in written.collect())

    def _last(self, kind: str) -> int:
        """The newest batch in the checkpoint's log; -1 if there is none."""
        names = self._files.names(f"{self._at}/{kind}")
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def split(frame: DataFrame, writers: int) -> DataFrame:
    """Partition n of the result is the part of writer n; records of a key are in one part.

    Spark does not merge or split partitions whose number was given, so the hash alone decides.
    """
    if writers == 1:
        return frame.repartition(1)
    return frame.repartition(writers, f.coalesce(f.col("key"), f.col("value")))


def writers_of(job: Job, output: Output, frame: DataFrame) -> int:
    """Refuses several writers for rows that may differ when a batch is repeated."""
    assert output.sink.topic is not None
    given = output.sink.topic.writers
    why = _differs(job, frame)
    if why and (given or 1) > 1:
        message = (
            f"{why} a repeated batch may differ, and parts of both would be written: set 1, which "
            "writes each batch in one transaction"
        )
        raise SpecError(f"spec.{output.at}.topic.writers", message)
    return given or (1 if why else WRITERS)


def _differs(job: Job, frame: DataFrame) -> str:
    plan: Any = frame._jdf.queryExecution().analyzed()
    if not plan.deterministic():
        return "the steps use a function such as rand() or uuid():"
    spec = job.spec
    if spec.lookups:
        return "the rows of lookups change:"
    if any(
        d is not None for d in [*(s.dedup for s in spec.sources), *(s.dedup for s in spec.steps)]
    ):
        return "dedup keeps whichever record comes first:"
    return ""


def _target(job: Job, output: Output) -> Target:
    sink = output.sink
    assert sink.topic is not None
    config, directory = executors_config(job, output)
    own = prefix(job.namespace, job.name, output.query)
    return Target(config, directory, sink.topic.name, own)


def executors_config(job: Job, output: Output) -> tuple[dict[str, str], str]:
    """Settings for clients in executors, and the directory where these find the credentials:
    they read them themselves, so that they are not sent there."""
    sink = output.sink
    config = librdkafka_config(job, output.at, sink.cluster, sink.kafka, sink.user)
    directory = job.user_directory(output.at, sink.user)
    if directory:
        secret = credentials.librdkafka(output.at, directory)
        config = {n: v for n, v in config.items() if n == "bootstrap.servers" or n not in secret}
    return config, directory


def _task(
    target: Target, part: Part, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Columns reach Python as Arrow, which costs a fraction of pickled rows."""
    import pyarrow

    context = TaskContext.get()
    assert context is not None
    rows = chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches
    )
    written = write_part(target, context.partitionId(), part, rows)
    yield pyarrow.RecordBatch.from_pydict({"written": pyarrow.array([written], pyarrow.int64())})
