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
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import yaml

from odradek_cli.processes import BROKER_MODULE, ChildProcess
from odradek_operator.kafka.observed import ObservedKafka
from odradek_operator.local import processes
from odradek_operator.local.processes import spawn as plain_spawn
from odradek_operator.local.runtime import ClusterReport, LocalRuntime, Report
from odradek_testkit.launching import launcher

API = "odradek.dev/v1alpha1"
KEY = "default/main"
DEADLINE_S = 90.0
LOG_LINES = 5  # of each broker, when a wait of a test has failed


Spawn: TypeAlias = Callable[[Sequence[str], Path], ChildProcess]


def spawn(words: Sequence[str], output: Path) -> ChildProcess:
    """As the runtime's own, but brokers are forks of a process that has imported them: 0.2 s of CPU
    instead of 0.5 s each."""
    if list(words[1:3]) != ["-m", BROKER_MODULE]:
        return plain_spawn(words, output)
    return launcher().start({"broker": list(words[3:])}, output, {}, pipe=False)


class Local:
    spawn: Spawn = staticmethod(spawn)

    def __init__(self, directory: Path, **spec: Any) -> None:
        self.directory = directory
        self.manifests = directory / "manifests"
        self.state = directory / "state"
        self.spec: dict[str, Any] = {"racks": {"names": ["a", "b", "c"]}, **spec}
        self.annotations: dict[str, str] = {}
        self.topics: dict[str, dict[str, Any]] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.rebalances: dict[str, dict[str, Any]] = {}
        self.rebalance_annotations: dict[str, dict[str, str]] = {}
        self.user_annotations: dict[str, dict[str, str]] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.pipelines: dict[str, dict[str, Any]] = {}
        self.done: list[str] = []
        self._written: Any = None
        self.runtime = LocalRuntime([self.manifests], self.state)
        self._dead: list[LocalRuntime] = []

    def topic(self, name: str, **spec: Any) -> None:
        self.topics[name] = {"cluster": {"name": "main"}, **spec}

    def user(self, name: str, **spec: Any) -> None:
        self.users[name] = {"cluster": {"name": "main"}, **spec}

    def pipeline(self, name: str, **spec: Any) -> None:
        self.pipelines[name] = {"cluster": {"name": "main"}, **spec}

    def rebalance(self, name: str, **spec: Any) -> None:
        self.rebalances[name] = {"cluster": {"name": "main"}, **spec}

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
            *(
                {
                    "apiVersion": API, "kind": "KafkaUser", "spec": spec,
                    "metadata": {"name": n, "annotations": self.user_annotations.get(n, {})},
                }
                for n, spec in self.users.items()
            ),
            *(
                {
                    "apiVersion": API, "kind": "KafkaRebalance", "spec": spec,
                    "metadata": {"name": n, "annotations": self.rebalance_annotations.get(n, {})},
                }
                for n, spec in self.rebalances.items()
            ),
            *(
                {"apiVersion": API, "kind": "SparkPipeline", "metadata": {"name": n}, "spec": spec}
                for n, spec in self.pipelines.items()
            ),
            *(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": n}, "stringData": data}
                for n, data in self.secrets.items()
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
        self.step()  # observe the change before "settled" counts
        return self.until(lambda report: report.settled, deadline_s).clusters[KEY]

    def words(self, report: Report) -> str:
        cluster = report.clusters.get(KEY)
        said = [*report.problems, *(cluster.plan + cluster.failures if cluster else [])]
        printed = [
            f"{log.parent.name}: {line}"
            for log in sorted(self.state.glob("*/broker-*/server.out"))
            for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        ]
        return "\n".join(
            ["not settled:", *said, "done so far:", *self.done, "printed last:", *printed]
        )

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = DEADLINE_S
    ) -> float:
        """For a Load: makes passes while it waits, because the condition may need them."""
        began = time.monotonic()
        self.until(lambda _: condition(), deadline_s)
        return time.monotonic() - began

    def die(self) -> None:
        """As if the runtime had been killed: the brokers keep running, and a new runtime starts."""
        self._dead.append(self.runtime)
        self.runtime.release()
        self.runtime = LocalRuntime([self.manifests], self.state).acquire()

    # -- the cluster -------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Addresses for clients: of running brokers, or of the listener with TLS for clients."""
        found = self.runtime.clusters[KEY]
        if found.resource.spec.secured and found.status is not None:
            return found.status.bootstrap_servers
        return found.platform.bootstrap()

    def kafka(self) -> ObservedKafka:
        return self.runtime.clusters[KEY].admin.observe(topic_settings={"retention.ms"})

    def kill(self, broker: int) -> int:
        pid = self.runtime.report.clusters[KEY].pids[broker]
        os.kill(pid, signal.SIGKILL)
        return pid

    def __enter__(self) -> Self:
        self.runtime.acquire()
        processes.spawn = self.spawn  # type: ignore[assignment]  # it has what the runtime uses
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        processes.spawn = plain_spawn
        # SIGKILL: a test does not wait for controlled shutdowns.
        nodes = [
            node
            for runtime in (self.runtime, *self._dead)
            for cluster in runtime.clusters.values()
            for node in (*cluster.platform._brokers.values(), cluster.registry._process)
        ]
        self.runtime.pipelines.stop()
        for node in nodes:
            node.kill()
        for node in nodes:
            node.wait()
        self.runtime.release()
        if kind is None:
            shutil.rmtree(self.state, ignore_errors=True)


class PlainLocal(Local):
    """Its brokers are started as for a user."""

    spawn: Spawn = staticmethod(plain_spawn)
