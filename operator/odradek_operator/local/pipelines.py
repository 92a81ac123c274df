"""The SparkPipelines of a local runtime: each starts when its clusters and topics are ready.

A pass starts new pipelines, restarts changed ones from their checkpoint, and stops removed ones.
The report of a pipeline says what it is waiting for. A scheduled pipeline runs when a run becomes
due after this runtime first read it; earlier runs are not made up for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odradek_api.base import RESTART_ANNOTATION, Resource
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.pipeline.job import Job, users_of
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.pipeline.status import JobStatus
from odradek_api.topic import TopicStatus
from odradek_operator.local.pipeline_processes import LocalPipeline, spark_missing
from odradek_operator.local.secrets import secret_of
from odradek_operator.spark.runs import which_run
from odradek_operator.spark.waiting import waits_for

Pipeline = Resource[SparkPipelineSpec]


def _starts_again(before: Pipeline, now: Pipeline) -> bool:
    asked = [one.annotations.get(RESTART_ANNOTATION) for one in (before, now)]
    return before.spec != now.spec or asked[0] != asked[1]


class PipelineReport(msgspec.Struct, rename="camel"):
    waits: str = ""  # the pending condition; empty if it is or was running
    idle: bool = False  # it is not meant to run now: suspended, or its next run is not due
    pid: int | None = None
    restarts: int = 0
    status: JobStatus | None = None


class LocalPipelines:
    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._wanted: dict[str, tuple[Pipeline, Path]] = {}
        self._running: dict[str, tuple[Pipeline, LocalPipeline]] = {}
        self._seen_s: dict[str, float] = {}
        self._runs: dict[str, str] = {}  # pipeline → its last run

    def update(self, pipelines: list[Pipeline], directory: Path) -> None:
        """`directory`: of the manifests; relative paths in a spec are resolved against it."""
        self._wanted = {p.key: (p, directory) for p in pipelines}
        now_s = time.time()
        self._seen_s = {key: self._seen_s.get(key, now_s) for key in self._wanted}
        for key, (before, process) in list(self._running.items()):
            now = self._wanted.get(key)
            if now is None or _starts_again(before, now[0]) or now[0].spec.suspend:
                process.stop()
                del self._running[key]

    def one_pass(
        self,
        clusters: Mapping[str, KafkaClusterStatus],
        topics: Mapping[str, Mapping[str, TopicStatus]],
        users: Mapping[str, KafkaUserStatus],
    ) -> dict[str, PipelineReport]:
        return {
            key: self._one(key, pipeline, directory, clusters, topics, users)
            for key, (pipeline, directory) in self._wanted.items()
        }

    def _one(
        self,
        key: str,
        pipeline: Pipeline,
        directory: Path,
        clusters: Mapping[str, KafkaClusterStatus],
        topics: Mapping[str, Mapping[str, TopicStatus]],
        users: Mapping[str, KafkaUserStatus],
    ) -> PipelineReport:
        known = self._running.get(key)
        at_work = known is not None and known[1].ended is None
        last = self._runs.get(key, "")
        run = which_run(pipeline.spec, self._seen_s[key], last, time.time(), at_work=at_work)
        if run.name is None or (run.name and run.name == last and not at_work):
            status = known[1].status() if known else None
            waits = f"the next run starts at {run.next}"
            return PipelineReport(waits=waits, idle=True, status=status)
        if known is None or run.name != last:
            if waits := spark_missing() or waits_for(pipeline, clusters, topics, users):
                return PipelineReport(waits=waits, idle=pipeline.spec.suspend)
            addresses = {name: status.bootstrap_servers for name, status in clusters.items()}
            where = self._state_dir / f"pipeline.{pipeline.namespace}.{pipeline.name}"
            process = LocalPipeline(where, pipeline.spec.restart_policy)
            process.start(
                Job(
                    name=pipeline.name,
                    namespace=pipeline.namespace,
                    spec=pipeline.spec,
                    clusters=addresses,
                    users=self._user_directories(pipeline, users),
                    directory=str(directory),
                )
            )
            self._running[key], self._runs[key] = (pipeline, process), run.name
        process = self._running[key][1]
        process.supervise(time.monotonic())
        status = process.status()
        return PipelineReport(pid=process.pid, restarts=process.restarts, status=status)

    def _user_directories(
        self, pipeline: Pipeline, users: Mapping[str, KafkaUserStatus]
    ) -> dict[str, str]:
        """KafkaUser → the directory of its Secret, whose files have mode 0600."""
        found = {}
        for name in users_of(pipeline.spec):
            secrets, own = secret_of(self._state_dir, users[f"{pipeline.namespace}/{name}"].secret)
            found[name] = str(secrets.directory / own)
        return found

    def stop(self) -> None:
        for _, process in self._running.values():
            process.stop()
        self._running.clear()
