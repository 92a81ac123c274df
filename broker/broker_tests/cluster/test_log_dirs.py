"""Replicas move between the directories of their brokers, under load and through kill -9."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek_protocol.messages.struct import Struct
from odradek_testkit.ask import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import kafka_tool
from odradek_testkit.load import Load

BALLAST_BYTES = 30_000_000


class Dirs:
    """Two directories per broker, and what is in them."""

    def __init__(self, directory: Path, size: int, **settings: str) -> None:
        self.cluster = Cluster(size, directory=directory / "cluster", settings=settings)
        self.paths: dict[int, list[str]] = {}
        for node in self.cluster.nodes.values():
            paths = [str(node.data_dir), f"{node.data_dir}-2"]
            node.settings["log.dirs"] = ",".join(paths)
            self.paths[node.node_id] = paths

    def described(self, node_id: int, topic: str) -> dict[tuple[int, bool], tuple[str, int]]:
        """(partition, is future) → (directory, offset lag)."""
        answer = self.cluster.ask(node_id, DESCRIBE_LOG_DIRS, 4, Struct(topics=None))
        return {
            (p.partition_index, p.is_future_key): (directory.log_dir, p.offset_lag)
            for directory in answer.results
            for found in directory.topics
            if found.name == topic
            for p in found.partitions
        }

    def homes(self, node_id: int, topic: str) -> dict[int, str]:
        found = self.described(node_id, topic)
        return {partition: path for (partition, future), (path, _) in found.items() if not future}

    def other(self, node_id: int, path: str) -> str:
        return next(one for one in self.paths[node_id] if one != path)

    def move(self, node_id: int, topic: str, partition: int, path: str) -> int:
        topics = [Struct(name=topic, partitions=[partition])]
        request = Struct(dirs=[Struct(path=path, topics=topics)])
        answer = self.cluster.ask(node_id, ALTER_REPLICA_LOG_DIRS, 2, request)
        return int(answer.results[0].partitions[0].error_code)


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    """Enough records that copying them takes a while."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2, "linger.ms": 50})
    value = os.urandom(100_000)
    for number in range(BALLAST_BYTES // len(value)):
        producer.produce(topic, b"%010d" % 0 + value, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_moves_under_load_and_kill(tmp_path: Path, topic: str) -> None:
    """1. a producer writes all the time; 2. every replica moves to the other directory, slowly;
    3. one broker is killed in the middle; 4. all arrive, and nothing is lost; 5. one moves back,
    and that move is cancelled."""
    rate = {"replica.alter.log.dirs.io.max.bytes.per.second": "5000000"}
    dirs = Dirs(tmp_path, 3, **rate)
    with dirs.cluster as cluster:
        cluster.create_topic(topic, partitions=2, config={"min.insync.replicas": "2"})
        ballast = topic + "-ballast"
        cluster.create_topic(ballast, partitions=2)
        fill(cluster, ballast, 2)
        before = {
            (name, node_id): dirs.homes(node_id, name)
            for name in (topic, ballast)
            for node_id in cluster.nodes
        }
        with Load(cluster, topic, partitions=2) as load:
            load.wait_for_acks(200)
            for (name, node_id), homes in before.items():
                for partition, home in homes.items():
                    assert dirs.move(node_id, name, partition, dirs.other(node_id, home)) == 0
            future = [key for key in dirs.described(1, ballast) if key[1]]
            assert future, "copied too fast to be seen"
            cluster.kill(1)
            cluster.start([1])

            def arrived() -> bool:
                for (name, node_id), homes in before.items():
                    wanted = {(p, False): dirs.other(node_id, h) for p, h in homes.items()}
                    found = dirs.described(node_id, name)
                    if {key: path for key, (path, _) in found.items()} != wanted:
                        return False
                return True

            cluster.wait_until(arrived, "all replicas in their new directories", 60)
            load.wait_for_every_partition()
            for node_id in cluster.nodes:  # and once more through a crash
                cluster.kill(node_id)
                cluster.start([node_id])
            cluster.wait_in_sync(topic)
            assert arrived()
            load.wait_for_every_partition()

            home = dirs.homes(2, ballast)[0]
            assert dirs.move(2, ballast, 0, dirs.other(2, home)) == 0
            assert (0, True) in dirs.described(2, ballast)
            assert dirs.move(2, ballast, 0, home) == 0
            assert dirs.described(2, ballast)[0, False][0] == home
            assert (0, True) not in dirs.described(2, ballast)
            load.wait_for_every_partition()
        assert load.check() > 1_000


@pytest.mark.java
def test_kafka_reassign_partitions_with_log_dirs(tmp_path: Path, topic: str) -> None:
    """To another directory of the same broker, and to a chosen directory of another broker."""
    dirs = Dirs(tmp_path, 3)
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    with dirs.cluster as cluster:
        cluster.create_topic(topic, partitions=1, replication_factor=2)
        with Load(cluster, topic, partitions=1) as load:
            load.wait_for_acks(200)
            stays, goes = cluster.partitions(topic)[0].replica_nodes
            (comes,) = {1, 2, 3} - {stays, goes}
            wanted = {
                stays: dirs.other(stays, dirs.homes(stays, topic)[0]),
                comes: dirs.paths[comes][1],
            }
            plan = tmp_path / "plan.json"
            replicas, paths = list(wanted), list(wanted.values())
            move = {"topic": topic, "partition": 0, "replicas": replicas, "log_dirs": paths}
            plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
            where = ("--bootstrap-server", cluster.bootstrap)
            files = ("--reassignment-json-file", str(plan))
            said = kafka_tool(command, *where, *files, "--execute").stdout
            assert said.count("Successfully started moving log directory to") == 2, said
            said = ""

            def done() -> bool:
                nonlocal said
                said = kafka_tool(command, *where, *files, "--verify").stdout
                return said.count("completed successfully") + said.count("is completed") == 3

            cluster.wait_until(done, "the reassignment")
            assert "still" not in said, said
            for node_id, path in wanted.items():
                assert dirs.homes(node_id, topic) == {0: path}
            load.wait_for_every_partition()
        load.check()
