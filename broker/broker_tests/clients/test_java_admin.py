"""Apache Kafka's own admin scripts against our broker: kafka-topics, kafka-configs and the rest.

A JVM takes about a second to start, so each test tells a whole story with few of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek_testkit.clients import create_topic, numbered, produce, wait_until
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import Server, kafka_tool

pytestmark = pytest.mark.java


def topics(broker: Server, *args: str, check: bool = True) -> str:
    done = kafka_tool(
        "org.apache.kafka.tools.TopicCommand",
        *for_java(broker),
        *args,
        check=check,
    )
    return done.stdout + (done.stderr if not check else "")


def configs(broker: Server, *args: str, check: bool = True) -> str:
    done = kafka_tool("kafka.admin.ConfigCommand", *for_java(broker), *args, check=check)
    return done.stdout + (done.stderr if not check else "")


def test_kafka_topics(broker: Server, topic: str) -> None:
    created = topics(broker, "--create", "--topic", topic, "--partitions", "2",
                     "--replication-factor", "1", "--config", "retention.ms=86400000")  # fmt: skip
    assert f"Created topic {topic}." in created
    again = topics(broker, "--create", "--topic", topic, check=False)
    assert f"Topic '{topic}' already exists." in again
    assert topic in topics(broker, "--list").split()

    topics(broker, "--alter", "--topic", topic, "--partitions", "4")
    described = topics(broker, "--describe", "--topic", topic)
    head, *partitions = described.splitlines()
    assert "PartitionCount: 4" in head
    assert "ReplicationFactor: 1" in head
    assert "retention.ms=86400000" in head
    assert [line.split("Partition: ")[1].split()[0] for line in partitions] == list("0123")
    assert all("Leader: 1\tReplicas: 1\tIsr: 1" in line for line in partitions)
    assert topics(broker, "--describe", "--under-replicated-partitions").strip() == ""

    topics(broker, "--delete", "--topic", topic)
    gone = topics(broker, "--describe", "--topic", topic, check=False)
    assert f"Topic '{topic}' does not exist" in gone


def test_kafka_topics_names_what_it_refuses(broker: Server, topic: str) -> None:
    too_many = topics(broker, "--create", "--topic", topic, "--replication-factor", "3",
                      check=False)  # fmt: skip
    assert "InvalidReplicationFactorException" in too_many
    bad_config = topics(broker, "--create", "--topic", topic, "--config", "retention.ms=soon",
                        check=False)  # fmt: skip
    assert "retention.ms" in bad_config


def test_kafka_configs_of_a_topic(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    configs(broker, *entity, "--alter", "--add-config",
            "retention.ms=111,cleanup.policy=[delete,compact]")  # fmt: skip
    described = configs(broker, *entity, "--describe")
    assert "retention.ms=111" in described
    assert "cleanup.policy=delete,compact" in described
    configs(broker, *entity, "--alter", "--delete-config", "retention.ms")
    everything = configs(broker, *entity, "--describe", "--all")
    assert "retention.ms=604800000" in everything
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in everything
    refused = configs(broker, *entity, "--alter", "--add-config", "no.such.config=1", check=False)
    assert "no.such.config" in refused


def test_kafka_configs_of_brokers(broker: Server) -> None:
    """A cluster-wide default, a value of one broker over it, and both removed again."""
    one = ("--entity-type", "brokers", "--entity-name", "1")
    default = ("--entity-type", "brokers", "--entity-default")
    configs(broker, *default, "--alter", "--add-config", "log.retention.ms=7200000")
    configs(broker, *one, "--alter", "--add-config", "log.cleaner.threads=2")
    assert "log.retention.ms=7200000" in configs(broker, *default, "--describe")
    described = configs(broker, *one, "--describe", "--all")
    assert "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in described
    refused = configs(broker, *one, "--alter", "--add-config", "node.id=7", check=False)
    assert "node.id" in refused
    configs(broker, *one, "--alter", "--delete-config", "log.cleaner.threads")
    configs(broker, *default, "--alter", "--delete-config", "log.retention.ms")
    assert "log.cleaner.threads" not in configs(broker, *one, "--describe")


def test_kafka_configs_of_a_group(broker: Server, topic: str) -> None:
    entity = ("--entity-type", "groups", "--entity-name", topic)
    added = "consumer.session.timeout.ms=50000"
    done = configs(broker, *entity, "--alter", "--add-config", added)
    assert f"Completed updating config for group {topic}." in done
    assert added in configs(broker, "--entity-type", "groups", "--describe")
    refused = configs(
        broker, *entity, "--alter", "--add-config", "consumer.session.timeout.ms=5", check=False
    )
    assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in refused


def test_offsets_delete_records_and_log_dirs(broker: Server, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic, partitions=2)
    produce(broker, topic, numbered(100, size=1_000))

    def offsets(*args: str) -> list[str]:
        done = kafka_tool(
            "org.apache.kafka.tools.GetOffsetShell", *for_java(broker),
            "--topic", topic, *args,
        )  # fmt: skip
        return done.stdout.split()

    assert offsets() == [f"{topic}:0:100", f"{topic}:1:0"]
    wanted = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 30}]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    done = kafka_tool(
        "org.apache.kafka.tools.DeleteRecordsCommand", *for_java(broker),
        "--offset-json-file", str(wanted),
    )  # fmt: skip
    assert "low_watermark: 30" in done.stdout
    assert offsets("--time", "earliest") == [f"{topic}:0:30", f"{topic}:1:0"]

    done = kafka_tool(
        "org.apache.kafka.tools.LogDirsCommand", *for_java(broker),
        "--describe", "--topic-list", topic,
    )  # fmt: skip
    answer = json.loads(done.stdout.splitlines()[-1])
    (directory,) = answer["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(broker.data_dir)
    assert directory["error"] is None
    sizes = {p["partition"]: p["size"] for p in directory["partitions"]}
    assert sizes[f"{topic}-0"] > 100_000
    assert sizes[f"{topic}-1"] == 0


def test_cluster_id_api_versions_and_features(broker: Server) -> None:
    done = kafka_tool("org.apache.kafka.tools.ClusterTool", "cluster-id", *for_java(broker))
    meta = (broker.data_dir / "meta.properties").read_text()
    cluster_id = done.stdout.split("Cluster ID: ")[1].strip()
    assert f"cluster.id={cluster_id}" in meta

    done = kafka_tool(
        "org.apache.kafka.tools.ClusterTool", "list-endpoints", *for_java(broker),
    )  # fmt: skip
    host, port = broker.bootstrap.split(":")
    assert done.stdout.splitlines()[-1].split()[:3] == ["1", host, port]

    done = kafka_tool("org.apache.kafka.tools.BrokerApiVersionsCommand", *for_java(broker))
    assert f"{broker.bootstrap} (id: 1 rack: null isFenced: false)" in done.stdout
    assert "Produce(0): 0 to 13 [usable: 13]" in done.stdout
    assert "Fetch(1): 4 to 18 [usable: 18]" in done.stdout

    done = kafka_tool("org.apache.kafka.tools.FeatureCommand", *for_java(broker), "describe")
    assert "Feature: metadata.version" in done.stdout


def test_topic_deletion_frees_the_directory(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, numbered(10))
    assert (broker.data_dir / f"{topic}-0").is_dir()
    topics(broker, "--delete", "--topic", topic)
    wait_until(lambda: not (broker.data_dir / f"{topic}-0").exists())


def test_kafka_configs_of_scram_users(broker: Server, topic: str) -> None:
    user = ("--entity-type", "users", "--entity-name", topic)
    added = "SCRAM-SHA-512=[iterations=8192,password=alice-secret]"
    done = configs(broker, *user, "--alter", "--add-config", added)
    assert f"Completed updating config for user {topic}." in done
    configs(broker, *user, "--alter", "--add-config", "SCRAM-SHA-256=[password=alice-secret]")
    described = configs(broker, *user, "--describe")
    assert "SCRAM-SHA-512=iterations=8192" in described
    assert "SCRAM-SHA-256=iterations=4096" in described
    configs(broker, *user, "--alter", "--delete-config", "SCRAM-SHA-512")
    left = configs(broker, *user, "--describe")
    assert "SCRAM-SHA-512" not in left
    assert "SCRAM-SHA-256=iterations=4096" in left


def test_the_password_of_a_new_user_is_not_logged(broker: Server, topic: str) -> None:
    user = ("--entity-type", "users", "--entity-name", topic)
    configs(broker, *user, "--alter", "--add-config", "SCRAM-SHA-512=[password=alice-secret]")
    assert "alice-secret" not in broker.log()


def test_kafka_configs_of_quotas(broker: Server, topic: str) -> None:
    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    quota = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=50"
    done = configs(broker, *user, "--entity-name", topic, *client, "--entity-name", "app",
                   "--alter", "--add-config", quota)  # fmt: skip
    assert f"Completed updating config for user {topic}." in done
    described = configs(broker, *user, "--entity-name", topic, *client, "--describe")
    assert f"Quota configs for user-principal '{topic}', client-id 'app' are" in described
    assert "producer_byte_rate=1048576" in described
    configs(broker, *client, "--entity-default", "--alter", "--add-config",
            "controller_mutation_rate=3.5")  # fmt: skip
    assert "controller_mutation_rate=3.5" in configs(broker, *client, "--describe")
    address = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
    configs(broker, *address, "--alter", "--add-config", "connection_creation_rate=7")
    assert "connection_creation_rate=7" in configs(broker, *address, "--describe")
    refused = configs(broker, *user, "--entity-name", topic, "--alter", "--add-config",
                      "producer_byte_rate=-1", check=False)  # fmt: skip
    assert "must be greater than 0" in refused
    configs(broker, *address, "--alter", "--delete-config", "connection_creation_rate")
    assert "10.9.8.7" not in configs(broker, *address, "--describe")
    configs(broker, *client, "--entity-default", "--alter", "--delete-config",
            "controller_mutation_rate")  # fmt: skip
