"""Apache Kafka's own scripts against three brokers: the quorum, reassignments, elections."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from odradek_broker.controller.seat import VOTERS_SECONDS
from odradek_broker.controller.voters import AUTO_JOIN
from odradek_broker.log.dir_identity import uuid_to_text
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import kafka_tool
from odradek_testkit.load import Load

pytestmark = pytest.mark.java


def script(cluster: Cluster, main_class: str, *args: str) -> str:
    done = kafka_tool(main_class, "--bootstrap-server", cluster.bootstrap, *args)
    return done.stdout


def test_scripts_of_a_cluster(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """One story, because a JVM takes a second to start and a cluster four."""
    cluster.create_topic(topic)
    quorum_and_versions(cluster)
    with Load(cluster, topic, per_second=200) as load:
        reassignment(cluster, topic, tmp_path)
        leader_election(cluster, topic)
        under_replicated(cluster, topic)
        load.wait_for_every_partition()
    load.check()


def quorum_and_versions(cluster: Cluster) -> None:
    command = "org.apache.kafka.tools.MetadataQuorumCommand"
    status = script(cluster, command, "describe", "--status")
    said = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert int(said["LeaderId"]) == cluster.controller()
    assert int(said["HighWatermark"]) > 0
    assert said["CurrentVoters"].count('"id"') == 3 or said["CurrentVoters"].count(",") == 2
    replication = script(cluster, command, "describe", "--replication").splitlines()
    nodes = {int(line.split()[0]): line for line in replication[1:]}
    assert sorted(nodes) == [1, 2, 3]
    assert "Leader" in nodes[cluster.controller()]
    assert sum("Follower" in line for line in nodes.values()) == 2

    versions = script(cluster, "org.apache.kafka.tools.BrokerApiVersionsCommand")
    for node_id, node in cluster.nodes.items():
        assert f"{node.address} (id: {node_id} rack:" in versions
    assert "UNSUPPORTED" not in versions.split("Produce(0)")[1].split("\n")[0]


def test_voters_by_hand(cluster: Cluster, tmp_path: Path) -> None:
    """1. an operator removes a voter; 2. the controller does not take it in again, and neither
    does the next one; 3. the operator adds it again, from its server.properties."""
    command = "org.apache.kafka.tools.MetadataQuorumCommand"
    away = next(node_id for node_id in (3, 2) if node_id != cluster.controller())
    (key,) = [v for v in cluster.quorum().current_voters if v.replica_id == away]
    directory_id = uuid_to_text(key.replica_directory_id)
    said = script(cluster, command, "remove-controller", "--controller-id", str(away),
                  "--controller-directory-id", directory_id)  # fmt: skip
    assert f"KRaft controller {away} with directory id {directory_id}" in said

    def voters() -> list[int]:
        return sorted(v.replica_id for v in cluster.quorum().current_voters)

    others = [node_id for node_id in (1, 2, 3) if node_id != away]
    assert voters() == others
    cluster.stop(cluster.controller())  # whose successor looks after the voters too
    cluster.start([node.node_id for node in cluster.nodes.values() if not node.running])
    several_looks = time.monotonic() + 4 * VOTERS_SECONDS
    while time.monotonic() < several_looks:
        assert voters() == others
        time.sleep(0.1)

    node = cluster.nodes[away]
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"process.roles=controller\nnode.id={away}\nlog.dirs={node.data_dir}\n"
        f"listeners=PLAINTEXT://{node.address}\ncontroller.listener.names=PLAINTEXT\n"
        f"controller.quorum.bootstrap.servers={cluster.bootstrap}\n"
    )
    said = script(cluster, command, "--command-config", str(properties), "add-controller")
    assert f"Added controller {away} with directory id {directory_id}" in said
    assert voters() == [1, 2, 3]
    said = script(cluster, "kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers",
                  "--entity-name", str(away))  # fmt: skip
    assert AUTO_JOIN not in said


def reassignment(cluster: Cluster, topic: str, directory: Path) -> None:
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    wanted = directory / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = script(cluster, command, "--topics-to-move-json-file", str(wanted),
                  "--broker-list", "1,2,3", "--generate")  # fmt: skip
    proposal = json.loads(said.split("Proposed partition reassignment configuration\n")[1])
    for move in proposal["partitions"]:
        move["replicas"] = move["replicas"][:2]
        move["log_dirs"] = move["log_dirs"][:2]
    plan = directory / "plan.json"
    plan.write_text(json.dumps(proposal))
    said = script(cluster, command, "--reassignment-json-file", str(plan), "--execute",
                  "--throttle", "50000000")  # fmt: skip
    assert "Successfully started partition reassignments" in said
    moves = {move["partition"]: move["replicas"] for move in proposal["partitions"]}
    cluster.wait_until(
        lambda: {n: p.replica_nodes for n, p in cluster.partitions(topic).items()} == moves
    )
    said = script(cluster, command, "--reassignment-json-file", str(plan), "--verify")
    assert said.count("is completed") == 3, said
    assert "No partition reassignments found." in script(cluster, command, "--list")


def leader_election(cluster: Cluster, topic: str) -> None:
    """A broker stops and starts: others lead its partitions until an election is requested."""
    preferred = cluster.partitions(topic)[0].replica_nodes[0]
    cluster.stop(preferred)
    cluster.start([preferred])
    cluster.wait_in_sync(topic)
    said = script(cluster, "org.apache.kafka.tools.LeaderElectionCommand",
                  "--election-type", "preferred", "--all-topic-partitions")  # fmt: skip
    assert f"{topic}-0" in said
    cluster.wait_until(lambda: cluster.leader(topic, 0) == preferred)


def under_replicated(cluster: Cluster, topic: str) -> None:
    command = ("org.apache.kafka.tools.TopicCommand", "--describe", "--under-replicated-partitions")
    assert script(cluster, *command).strip() == ""
    replicas = cluster.partitions(topic)[0].replica_nodes
    away = next(r for r in replicas if r != cluster.controller())
    cluster.kill(away)
    cluster.wait_until(lambda: not cluster.all_in_sync(topic))
    assert f"Topic: {topic}\tPartition: 0" in script(cluster, *command)
    cluster.start([away])
    cluster.wait_in_sync(topic)
