"""A cluster of real broker processes on loopback, and the faults of each of them.

    with Cluster(3) as cluster:                       # node ids 1, 2, 3 in racks a, b, c
        cluster.create_topic("orders", partitions=6)  # replication factor 3
        leader = cluster.leader("orders", 0)
        cluster.kill(leader)                          # kill -9; also pause, resume, stop, start
        cluster.wait_until(lambda: cluster.leader("orders", 0) != leader)

Each broker keeps its port over restarts, as a pod keeps its name (ports.py). The first three
brokers are the voters of the metadata quorum. Requests go to the running brokers, one after
another, until one of them answers. At the end only processes that were started here are ended, by
pid; a broker that died by itself fails the test.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewTopic

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import METADATA_TOPIC
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ask import DESCRIBE_QUORUM, METADATA, Questions
from odradek_testkit.engines import OWN_DIRECTORY, RunningBroker
from odradek_testkit.ports import free_ports
from odradek_testkit.waiting import wait_until

RACKS = ("a", "b", "c")
VOTERS_MAX = 3
CLUSTER_ID = "b2RyYWRlay1jbHVzdGVyMQ"
DEADLINE_S = 60.0
POLL_S = 0.02


class ClusterNode(RunningBroker):
    """One broker of a cluster, with an address that stays the same over restarts."""

    def __init__(self, node_id: int, settings: Mapping[str, str], directory: Path) -> None:
        super().__init__({"node.id": str(node_id), **settings}, directory=directory)
        self.name = f"broker {node_id}"
        self.node_id = node_id
        self.paused = False
        self.address = settings["listeners"].removeprefix("PLAINTEXT://")

    @property
    def running(self) -> bool:
        return self.process is not None and not self.paused

    def pause(self) -> None:
        """SIGSTOP: the process keeps its memory, files and connections, and does not run."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        super().kill()
        self.paused = False


class Cluster:
    """Several brokers as processes; a context manager that starts and ends them."""

    def __init__(
        self,
        size: int = 3,
        *,
        racks: Sequence[str] = RACKS,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix=OWN_DIRECTORY))
        self._questions = Questions()
        ports = free_ports(size)
        voters = ",".join(f"{i}@127.0.0.1:{ports[i - 1]}" for i in range(1, VOTERS_MAX + 1)[:size])
        self.nodes: dict[int, ClusterNode] = {}
        for node_id, port in enumerate(ports, 1):
            own = {
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "broker.rack": racks[(node_id - 1) % len(racks)],
                "controller.quorum.voters": voters,
                "odradek.cluster.id": CLUSTER_ID,
                **(settings or {}),
            }
            self.nodes[node_id] = ClusterNode(node_id, own, self.directory / f"broker-{node_id}")

    # -- processes ---------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def start(self, node_ids: Iterable[int] = ()) -> None:
        """All brokers (or the named ones) at once, because one alone has no quorum."""
        nodes = [self.nodes[node_id] for node_id in node_ids or self.nodes]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: node.start(DEADLINE_S), nodes))

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids or self.nodes:
            self.nodes[node_id].kill()

    def stop(self, *node_ids: int) -> None:
        """SIGTERM to one after the other; each must end cleanly."""
        for node_id in node_ids or self.nodes:
            node = self.nodes[node_id]
            code = node.stop()
            assert code == 0, f"{node.name} did not stop cleanly (exit code {code})\n{node.log()}"

    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.running]

    def __enter__(self) -> Self:
        try:
            self.start()
            voters = min(len(self.nodes), VOTERS_MAX)
            self.wait_until(lambda: len(self.quorum().current_voters) == voters, "all voters")
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        died = self._end_all()
        if kind is None:  # do not hide the test's own failure
            assert not died, died

    def _end_all(self) -> str:
        """Kills every running broker; returns the logs of brokers that had died by themselves."""
        died = ""
        self._questions.close()
        for node in self.nodes.values():
            if node.process is None:
                continue
            code = node.process.poll()
            if code is not None:
                died += f"{node.name} died (exit code {code})\n{node.log()[-4_000:]}\n"
                node.process = None
            else:
                node.kill()
        if self.directory.name.startswith(OWN_DIRECTORY):
            shutil.rmtree(self.directory, ignore_errors=True)
        return died

    # -- requests ----------------------------------------------------------------------------------

    def ask_any(self, api_key: int, version: int, request: Struct) -> Struct:
        """The answer of any running broker; retries until the deadline."""
        give_up = time.monotonic() + DEADLINE_S
        error: Exception | None = None
        while time.monotonic() < give_up:
            for node in self.running():
                try:
                    return self._questions.ask(node.address, api_key, version, request)
                except OSError as failed:
                    error = failed
            time.sleep(0.05)
        raise AssertionError(f"no broker answers: {error}")

    def ask(self, node_id: int, api_key: int, version: int, request: Struct) -> Struct:
        """The answer of one broker."""
        address = self.nodes[node_id].address
        try:
            return self._questions.ask(address, api_key, version, request)
        except OSError:  # the kept connection may be to the previous process
            return self._questions.ask(address, api_key, version, request)

    def metadata(self, *topics: str) -> Struct:
        asked = [Struct(topic_id=None, name=topic) for topic in topics]
        request = Struct(topics=asked or None, allow_auto_topic_creation=False)
        return self.ask_any(METADATA, 12, request)

    def partitions(self, topic: str) -> dict[int, Struct]:
        """Partition → leader_id, replica_nodes, isr_nodes, offline_replicas."""
        (described,) = self.metadata(topic).topics
        return {p.partition_index: p for p in described.partitions}

    def leader(self, topic: str, partition: int) -> int:
        return int(self.partitions(topic)[partition].leader_id)

    def leader_seen_by(self, node_id: int, topic: str, partition: int) -> int:
        """The leader of a partition according to this broker's metadata."""
        described = self._topic_seen_by(node_id, topic)
        found = {p.partition_index: p.leader_id for p in described.partitions}
        return int(found[partition])

    def _topic_seen_by(self, node_id: int, topic: str) -> Struct:
        asked = [Struct(topic_id=None, name=topic)]
        request = Struct(topics=asked, allow_auto_topic_creation=False)
        described: Struct = self.ask(node_id, METADATA, 12, request).topics[0]
        return described

    def quorum(self, *, of: int | None = None) -> Struct:
        """DescribeQuorum of the metadata log, answered by any broker or by broker `of`."""
        topics = [Struct(topic_name=METADATA_TOPIC, partitions=[Struct(partition_index=0)])]
        request = Struct(topics=topics)
        if of is None:
            answer = self.ask_any(DESCRIBE_QUORUM, 2, request)
        else:
            answer = self._questions.ask(self.nodes[of].address, DESCRIBE_QUORUM, 2, request)
        return answer.topics[0].partitions[0] if answer.topics else answer

    def controller(self) -> int:
        """The active controller; waits while the quorum elects one."""
        found = -1

        def elected() -> bool:
            nonlocal found
            found = int(getattr(self.quorum(), "leader_id", -1))
            return found in {node.node_id for node in self.running()}

        self.wait_until(elected, "an active controller")
        return found

    # -- topics ------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def create_topic(
        self,
        topic: str,
        partitions: int = 3,
        replication_factor: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> None:
        new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([new], request_timeout=DEADLINE_S)[topic].result(DEADLINE_S)
        self.wait_until(lambda: self.all_in_sync(topic), f"{topic} in sync everywhere")
        self.wait_until(lambda: self._known_by_all(topic), f"{topic} known by all brokers")

    def _known_by_all(self, topic: str) -> bool:
        """Brokers learn of a topic one after the other, and refuse requests about it before. A
        broker that is cut off from the controller is fenced after a while, and does not count."""
        registered = {broker.node_id for broker in self.metadata(topic).brokers}
        return all(
            self._topic_seen_by(node.node_id, topic).error_code == ErrorCode.none
            for node in self.running()
            if node.node_id in registered
        )

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic], request_timeout=DEADLINE_S)[topic].result(DEADLINE_S)

    def all_in_sync(self, topic: str) -> bool:
        partitions = self.partitions(topic)
        return bool(partitions) and all(
            p.leader_id > 0 and len(p.isr_nodes) == len(p.replica_nodes)
            for p in partitions.values()
        )

    def wait_in_sync(self, topic: str, deadline_s: float = DEADLINE_S) -> None:
        self.wait_until(lambda: self.all_in_sync(topic), f"{topic} in sync", deadline_s)

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = DEADLINE_S
    ) -> float:
        """Polls every 20 ms; the seconds that it took."""
        return wait_until(condition, what, deadline_s, poll_s=POLL_S)

    def logs(self) -> dict[str, str]:
        return {node.name: node.log() for node in self.nodes.values()}


def settled(answers: Mapping[Any, Any]) -> dict[Any, Any]:
    """The results of an admin call, after waiting for all; raises the first error."""
    return {asked: answer.result(DEADLINE_S) for asked, answer in answers.items()}
