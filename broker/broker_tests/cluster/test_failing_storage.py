"""Disks of brokers fill up, fail or disappear: other brokers lead, and no client waits long."""

from __future__ import annotations

import os
import shutil
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from odradek_testkit.cluster import Cluster, ClusterNode
from odradek_testkit.load import Load
from odradek_testkit.ports import free_ports
from odradek_testkit.small_disk import SmallDisk

# Detection, fencing and elections take a second or two; waiting for replica.lag.time.max.ms (30 s)
# would be the bug. The rest of the limit is for a machine that is busy with other tests.
FAILOVER_S = 12.0
VALUE = os.urandom(100_000)


def readiness(node: ClusterNode) -> tuple[int, str]:
    return asked(node, "readyz")


def asked(node: ClusterNode, what: str) -> tuple[int, str]:
    url = f"http://{node.settings['odradek.admin.listener']}/{what}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def with_admin_port(node: ClusterNode) -> ClusterNode:
    node.settings["odradek.admin.listener"] = f"127.0.0.1:{free_ports(1)[0]}"
    return node


def wait_for_end(
    cluster: Cluster, node: ClusterNode, deadline_s: float = FAILOVER_S
) -> tuple[int, str]:
    """The exit code of a process that ends by itself, and its last line."""
    process = node.process
    assert process is not None
    cluster.wait_until(lambda: process.poll() is not None, f"{node.name} ends", deadline_s)
    node.process = None
    assert process.returncode is not None
    return process.returncode, node.log().rstrip().splitlines()[-1]


def led_by(cluster: Cluster, topic: str, node_id: int) -> list[int]:
    """Partitions that this broker leads, or is in sync with."""
    return [
        index
        for index, partition in cluster.partitions(topic).items()
        if partition.leader_id == node_id or node_id in partition.isr_nodes
    ]


class Ballast:
    """Large records to a topic, in the background, until `stop` is called."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self.delivered = 0
        self._settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 2}
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Ballast:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        producer = Producer({**self._settings, "queue.buffering.max.messages": 20})
        number = 0

        def delivered(error: object, _: object) -> None:
            self.delivered += error is None

        while not self._stop.is_set():
            try:
                partition = number % self._partitions
                producer.produce(self._topic, VALUE, partition=partition, on_delivery=delivered)
                number += 1
            except BufferError:
                pass
            producer.poll(0.02)
        producer.purge()


def test_low_space_moves_leadership_to_other_brokers(tmp_path: Path, topic: str) -> None:
    """1. one of three brokers has a small disk, and it fills up; 2. producers never wait longer
    than for a failover, because the broker lets others lead; it is not ready and says why; 3. the
    disk is enlarged: the same process becomes ready again, and nothing is lost."""
    with SmallDisk(tmp_path / "small", megabytes=40) as disk:
        cluster = Cluster(3, directory=tmp_path / "cluster")
        node = with_admin_port(cluster.nodes[1])
        node.settings["log.dirs"] = str(disk.path / "data")
        with cluster:
            cluster.create_topic(topic, partitions=3, config={"min.insync.replicas": "2"})
            ballast_topic = topic + "-ballast"
            cluster.create_topic(ballast_topic, partitions=3)
            with Load(cluster, topic, partitions=3) as load:
                load.wait_for_acks(100)
                assert readiness(node)[0] == 200
                with Ballast(cluster, ballast_topic, 3) as ballast:
                    cluster.wait_until(lambda: not led_by(cluster, topic, 1), "broker 1 is fenced")
                    load.wait_for_every_partition(FAILOVER_S)
                    status, text = readiness(node)
                    assert status == 503
                    assert "other brokers lead while space is low" in text
                    assert asked(node, "healthz")[0] == 200
                    more = ballast.delivered + 200  # 20 MB, on a disk that is full at 38
                    cluster.wait_until(lambda: ballast.delivered > more, "others go on")
                    assert disk.free_bytes() > 0, "the metadata log needs some"
                load.wait_for_every_partition(FAILOVER_S)
                disk.resize(400)
                cluster.wait_until(lambda: readiness(node)[0] == 200, "broker 1 is back")
                cluster.wait_in_sync(topic)
                cluster.wait_in_sync(ballast_topic)
                load.wait_for_every_partition()
            assert load.check() > 300


def test_low_space_where_some_partitions_have_one_replica(tmp_path: Path, topic: str) -> None:
    """1. a broker with a small disk leads a topic without other replicas; 2. that topic fills the
    disk; 3. other brokers lead the partitions that they have replicas of, so that acks=all works
    there, and the broker serves readers of its own topic; 4. with free space it accepts writes."""
    with SmallDisk(tmp_path / "small", megabytes=40) as disk:
        cluster = Cluster(3, directory=tmp_path / "cluster")
        node = with_admin_port(cluster.nodes[1])
        node.settings["log.dirs"] = str(disk.path / "data")
        with cluster:
            cluster.create_topic(topic, partitions=3, config={"min.insync.replicas": "2"})
            alone = topic + "-alone"
            new = NewTopic(alone, 1, replica_assignment=[[1]])
            admin = cluster.admin()
            admin.create_topics([new])[alone].result(30)
            with Load(cluster, topic, partitions=3) as load, Ballast(cluster, alone, 1) as ballast:
                assert 1 in {p.leader_id for p in cluster.partitions(topic).values()}
                cluster.wait_until(
                    lambda: 1 not in {p.leader_id for p in cluster.partitions(topic).values()},
                    "others lead",
                )
                load.wait_for_every_partition(FAILOVER_S)
                cluster.wait_until(lambda: cluster.leader(alone, 0) == 1, "readers are served")
                assert count_records(cluster, alone) >= ballast.delivered
                cluster.wait_until(lambda: readiness(node)[0] == 200, "it serves what it can")
                disk.resize(400)
                more = ballast.delivered + 50
                cluster.wait_until(lambda: ballast.delivered > more, "producers go on")
                cluster.wait_in_sync(topic)
            assert load.check() > 300


def count_records(cluster: Cluster, topic: str) -> int:
    """Read from the beginning to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "count",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    count = 0
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic}: only {count} records"
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return count
    finally:
        consumer.close()


def test_out_of_space_ends_the_broker_until_there_is_room(tmp_path: Path, topic: str) -> None:
    """1. a file of another program takes all space of one of three brokers; 2. the broker exits
    with 75, and others lead at once; 3. started again it waits and is not ready; 4. with free
    space it becomes ready, and nothing is lost."""
    with SmallDisk(tmp_path / "small", megabytes=40) as disk:
        cluster = Cluster(3, directory=tmp_path / "cluster")
        node = with_admin_port(cluster.nodes[1])
        node.settings["log.dirs"] = str(disk.path / "data")
        node.settings["odradek.log.dir.reserve.bytes"] = "0"
        with cluster:
            cluster.create_topic(topic, partitions=3, config={"min.insync.replicas": "2"})
            with Load(cluster, topic, partitions=3) as load:
                load.wait_for_acks(100)
                disk.fill()
                code, line = wait_for_end(cluster, node)
                assert code == 75
                assert "no log directory is left (out of space)" in line
                assert str(disk.path) in line
                assert "No space left on device" in line
                cluster.wait_until(lambda: not led_by(cluster, topic, 1), "others lead", FAILOVER_S)
                load.wait_for_every_partition(FAILOVER_S)
                starting = threading.Thread(target=node.start)
                starting.start()
                cluster.wait_until(lambda: "waiting for room" in readiness(node)[1], "it waits")
                assert asked(node, "healthz")[0] == 200, "a restart would not help"
                assert starting.is_alive()
                disk.make_room()
                starting.join(30)
                assert not starting.is_alive()
                cluster.wait_in_sync(topic)
                load.wait_for_every_partition()
            assert load.check() > 200


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_directory_that_is_removed(how: str, tmp_path: Path, topic: str) -> None:
    """The broker notices it even without writes: it exits with 74, and others lead."""
    cluster = Cluster(3, directory=tmp_path / "cluster")
    node = cluster.nodes[1]
    with ExitStack() as stack, cluster:
        cluster.create_topic(topic, partitions=3)
        if how == "deleted":
            shutil.rmtree(node.data_dir)
        else:  # an empty file system is mounted over it
            stack.enter_context(SmallDisk(node.data_dir, megabytes=1))
        code, line = wait_for_end(cluster, node)
        assert code == 74, line
        assert str(node.data_dir) in line
        assert "deleted or replaced" in line or "No such file" in line
        cluster.wait_until(lambda: not led_by(cluster, topic, 1), "others lead", FAILOVER_S)


class TwoDirs:
    """Three brokers; the first has a second directory, on a disk of its own. Under load."""

    def __init__(self, disk: SmallDisk, tmp_path: Path, topic: str, partitions: int) -> None:
        self.cluster = Cluster(3, directory=tmp_path / "cluster")
        self.node = self.cluster.nodes[1]
        good = str(self.node.data_dir)
        self.node.settings["log.dirs"] = f"{good},{disk.path}/data"
        self.node.settings["metadata.log.dir"] = good
        self.node.settings["odradek.log.dir.reserve.bytes"] = "0"
        self._disk, self._topic, self._partitions = disk, topic, partitions

    def create_topic(self) -> None:
        config = {"min.insync.replicas": "2"}
        self.cluster.create_topic(self._topic, self._partitions, config=config)

    def fill(self) -> set[int]:
        """The partitions in the directory that is out of space, when others lead them."""
        hosted = {path.name for path in (self._disk.path / "data").iterdir()}
        affected = {i for i in range(self._partitions) if f"{self._topic}-{i}" in hosted}
        assert 0 < len(affected) < self._partitions
        self._disk.fill()
        self.cluster.wait_until(
            lambda: affected.isdisjoint(led_by(self.cluster, self._topic, 1)), "out of these ISRs"
        )
        return affected


def test_one_of_two_directories_fails(tmp_path: Path, topic: str) -> None:
    """1. a follower's directory is out of space; 2. the partitions in it are acknowledged again
    after a moment, not after replica.lag.time.max.ms; 3. no replica leaves and joins an ISR
    repeatedly: the metadata log hardly grows; 4. the broker keeps running."""
    partitions = 6
    with SmallDisk(tmp_path / "small", megabytes=40) as disk:
        dirs = TwoDirs(disk, tmp_path, topic, partitions)
        with dirs.cluster as cluster:
            dirs.create_topic()
            with Load(cluster, topic, partitions=partitions) as load:
                load.wait_for_acks(100)
                before = end_of_metadata(cluster)
                affected = dirs.fill()
                load.wait_for_every_partition(FAILOVER_S)
                load.wait_for_acks(3_000)
                assert len(led_by(cluster, topic, 1)) == partitions - len(affected)
                grown = end_of_metadata(cluster) - before
                assert grown <= 6 * partitions, f"{grown} for {len(affected)} partitions"
            assert load.check() > 3_000


@pytest.mark.long
def test_one_of_two_directories_comes_back(tmp_path: Path, topic: str) -> None:
    """A directory was out of space and has had room for ten seconds: the broker shuts down
    cleanly, and has all records after a restart."""
    partitions = 6
    with SmallDisk(tmp_path / "small", megabytes=40) as disk:
        dirs = TwoDirs(disk, tmp_path, topic, partitions)
        with dirs.cluster as cluster:
            dirs.create_topic()
            with Load(cluster, topic, partitions=partitions) as load:
                load.wait_for_acks(100)
                dirs.fill()
                disk.make_room()
                code, line = wait_for_end(cluster, dirs.node, 40)
                assert code == 75
                assert "has room again" in line
                load.wait_for_every_partition(FAILOVER_S)
                dirs.node.start()
                cluster.wait_in_sync(topic)
                load.wait_for_every_partition()
            assert load.check() > 300


def end_of_metadata(cluster: Cluster) -> int:
    return max(int(voter.log_end_offset) for voter in cluster.quorum().current_voters)
