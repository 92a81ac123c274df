"""A local runtime driven pass by pass, for tests: real manifests, real broker processes.

with Local(tmp_path, brokers=3) as local:
    local.topic("orders", partitions=3)
    local.settle()                      # passes until all is as the manifests say
    local.spec["config"] = {"num.partitions": 4}
    local.settle()
    local.done                          # every action that was carried out, in words
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from odradek_operator.kafka.observed import Kafka
from odradek_operator.local.runtime import ClusterReport, LocalRuntime, Report

API = "odradek.dev/v1alpha1"
KEY = "default/main"
DEADLINE_S = 90.0


class Local:
    def __init__(self, directory: Path, **spec: Any) -> None:
        self.directory = directory
        self.manifests = directory / "manifests"
        self.state = directory / "state"
        self.spec: dict[str, Any] = {"racks": {"names": ["a", "b", "c"]}, **spec}
        self.annotations: dict[str, str] = {}
        self.topics: dict[str, dict[str, Any]] = {}
        self.done: list[str] = []
        self._written: Any = None
        self.runtime = LocalRuntime([self.manifests], self.state)
        self._dead: list[LocalRuntime] = []

    def topic(self, name: str, **spec: Any) -> None:
        self.topics[name] = {"cluster": {"name": "main"}, **spec}

    def write(self) -> None:
        documents = [
            {
                "apiVersion": API, "kind": "KafkaCluster",
                "metadata": {"name": "main", "annotations": self.annotations}, "spec": self.spec,
            },
            *(
                {"apiVersion": API, "kind": "Topic", "metadata": {"name": n}, "spec": spec}
                for n, spec in self.topics.items()
            ),
        ]  # fmt: skip
        if documents != self._written:
            self._written = yaml.safe_load(yaml.safe_dump(documents))
            self.manifests.mkdir(parents=True, exist_ok=True)
            (self.manifests / "all.yaml").write_text(yaml.safe_dump_all(documents))

    # -- passes ------------------------------------------------------------------------------------

    def step(self) -> Report:
        self.write()
        report = self.runtime.one_pass()
        for line in report.clusters[KEY].plan if KEY in report.clusters else []:
            if not line.startswith("wait") and self.done[-1:] != [line]:
                self.done.append(line)
        return report

    def until(self, true: Callable[[Report], bool], deadline_s: float = DEADLINE_S) -> Report:
        give_up = time.monotonic() + deadline_s
        while not true(report := self.step()):
            assert time.monotonic() < give_up, self.words(report)
            time.sleep(0.05)
        return report

    def settle(self, deadline_s: float = DEADLINE_S) -> ClusterReport:
        self.step()  # what changed is seen before "settled" is believed
        return self.until(lambda report: report.settled, deadline_s).clusters[KEY]

    def words(self, report: Report) -> str:
        cluster = report.clusters.get(KEY)
        said = [*report.problems, *(cluster.plan + cluster.failures if cluster else [])]
        return "\n".join(["not settled:", *said, "done so far:", *self.done])

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = DEADLINE_S
    ) -> float:
        """For a Load: what it waits for may need passes."""
        began = time.monotonic()
        self.until(lambda _: condition(), deadline_s)
        return time.monotonic() - began

    def die(self) -> None:
        """As if the runtime had been killed: nobody stops the brokers; another one comes."""
        self._dead.append(self.runtime)
        self.runtime.release()
        self.runtime = LocalRuntime([self.manifests], self.state).acquire()

    # -- the cluster -------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return self.runtime.clusters[KEY].platform.bootstrap()

    def kafka(self) -> Kafka:
        return self.runtime.clusters[KEY].admin.observe(topic_settings={"retention.ms"})

    def kill(self, broker: int) -> int:
        pid = self.runtime.report.clusters[KEY].pids[broker]
        os.kill(pid, signal.SIGKILL)
        return pid

    def __enter__(self) -> Self:
        self.runtime.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for runtime in (self.runtime, *self._dead):  # a test does not wait for goodbyes
            for cluster in runtime.clusters.values():
                cluster.platform.kill_all()
        self.runtime.release()
        if kind is None:
            shutil.rmtree(self.state, ignore_errors=True)
