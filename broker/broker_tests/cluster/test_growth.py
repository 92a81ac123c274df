"""From one broker to three: voters are added by the controller, and a lost one is replaced."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from odradek_protocol.ids import METADATA_TOPIC
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ask import DESCRIBE_QUORUM, Questions
from odradek_testkit.cluster import ClusterNode
from odradek_testkit.ports import free_ports

DEADLINE_S = 40.0


class Growing:
    """Brokers that are started one after the other; the first is a cluster of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: list[ClusterNode] = []
        self._questions = Questions()

    def add(self) -> ClusterNode:
        node_id = len(self.nodes) + 1
        (port,) = free_ports(1)
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        if self.nodes:
            settings["controller.quorum.bootstrap.servers"] = self.nodes[0].address
            settings["odradek.cluster.id"] = self.cluster_id
        node = ClusterNode(node_id, settings, self.directory / str(node_id))
        node.start(DEADLINE_S)
        self.nodes.append(node)
        return node

    @property
    def cluster_id(self) -> str:
        """As the disk of the newest broker has it."""
        meta = (self.nodes[-1].data_dir / "meta.properties").read_text()
        return meta.partition("cluster.id=")[2].partition("\n")[0]

    def quorum(self, node: ClusterNode) -> Struct:
        topics = [Struct(topic_name=METADATA_TOPIC, partitions=[Struct(partition_index=0)])]
        answer = self._questions.ask(node.address, DESCRIBE_QUORUM, 2, Struct(topics=topics))
        partition: Struct = answer.topics[0].partitions[0]
        return partition

    def voters(self) -> list[int]:
        return sorted(v.replica_id for v in self.quorum(self.running[-1]).current_voters)

    @property
    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.running]

    def end(self) -> None:
        self._questions.close()
        for node in self.running:
            node.kill()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    cluster = Growing(tmp_path)
    try:
        yield cluster
    finally:
        cluster.end()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


def test_from_one_to_three_and_a_lost_disk(growing: Growing) -> None:
    """1. one broker is the only voter; 2. a second broker changes nothing, with a third all vote;
    3. the first broker, which formed the cluster, dies and the others continue; 4. it comes back
    without its disk and becomes a voter again, with another directory id."""
    growing.add()
    assert growing.voters() == [1]
    growing.add()
    assert growing.voters() == [1]
    growing.add()
    wait_until(lambda: growing.voters() == [1, 2, 3], "three voters")

    first = growing.nodes[0]
    old = {v.replica_id: v.replica_directory_id for v in growing.quorum(first).current_voters}
    first.kill()
    wait_until(lambda: growing.quorum(growing.nodes[1]).leader_id in (2, 3), "another leader")

    shutil.rmtree(first.data_dir)
    servers = ",".join(node.address for node in growing.nodes[1:])
    first.settings["controller.quorum.bootstrap.servers"] = servers
    first.settings["odradek.cluster.id"] = growing.cluster_id
    first.start(DEADLINE_S)

    def replaced() -> bool:
        quorum = growing.quorum(growing.nodes[1])
        voters = {v.replica_id: v.replica_directory_id for v in quorum.current_voters}
        return voters.keys() == {1, 2, 3} and voters[1] != old[1]

    wait_until(replaced, "the empty disk votes")


def test_kafka_python_sees_the_quorum(growing: Growing) -> None:
    node = growing.add()
    client = KafkaAdminClient(bootstrap_servers=node.address)
    try:
        described = client.describe_metadata_quorum()
    finally:
        client.close()
    (partition,) = described["topics"][0]["partitions"]
    assert partition["leader_id"] == 1
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [1]
    assert [n["node_id"] for n in described["nodes"]] == [1]
