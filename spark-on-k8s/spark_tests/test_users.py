"""A pipeline that logs in as a KafkaUser over TLS, with ACLs: denied without them, works with them.

Its credentials are in files that the driver and the executors read; Spark never sees them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from odradek_api.base import API_VERSION
from odradek_api.parse import parse
from odradek_api.pipeline.job import NotReadyError, SpecError, read_job
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.local.secrets import LocalSecrets
from odradek_operator.local.users import LocalUserSecrets
from odradek_operator.reconcile.users import act_on_user, assess_users
from odradek_operator.security.entrance import ClientListener, Entrance
from odradek_operator.security.pki import Subject, Usage, days, issue, new_ca
from odradek_operator.security.users import DesiredUser, build_user
from odradek_spark import credentials
from odradek_testkit.engines import RunningBroker
from odradek_testkit.pipelines import Pipelines
from odradek_testkit.ports import free_ports
from odradek_testkit.secured import secured_settings
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.spark

JSON = {"type": "json", "schema": "id INT NOT NULL"}
FAILED = 1  # exit code of a driver that may be started again


@dataclass
class World:
    pipelines: Pipelines  # by the listener where everybody may do everything
    entrance: Entrance
    admin: KafkaAdmin
    secrets: LocalUserSecrets
    state: Path

    def user(self, acls: list[Any], rotation: str = "") -> DesiredUser:
        """Makes the user etl as it is declared here."""
        spec = {"cluster": {"name": "main"}, "acls": acls}
        metadata = {"name": "etl", "annotations": {"odradek.dev/rotate": rotation}}
        document = {"apiVersion": API_VERSION, "kind": "KafkaUser", "metadata": metadata}
        resource = parse({**document, "spec": spec})
        assert resource is not None
        wanted = build_user(resource)

        def settled() -> bool:
            (one,) = assess_users([wanted], {}, self.entrance, self.admin, self.secrets)
            assert act_on_user(one, self.admin, self.secrets) == []
            return not one.lines

        wait_until(settled, "the user is as declared")
        return wanted

    def run(self, spark: Any, **spec: Any) -> Any:
        job = self.job(**spec)
        job.run_in(spark)
        return job.status

    def job(self, **spec: Any) -> Any:
        from odradek_spark.jobs.run import JobRun

        document = self.pipelines.document(**spec)
        document["spec"] = {**document["spec"], "kafka": {}, "user": {"name": "etl"}}
        document["spec"]["cluster"] = {"name": "main"}
        document["checkpoint"] = f"{self.state}/checkpoint-{spec['sources'][0]['topics'][0]}"
        document["users"] = {"etl": str(self.state / "secrets" / "default" / "etl")}
        return JobRun(read_job(json.dumps(document).encode()))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("secured")
    now, address = time.time(), Subject("localhost", ips=("127.0.0.1",))
    ca = new_ca("cluster", now, days(2))
    server = issue(ca, address, Usage.SERVER, now, days(1))
    (directory / "server.pem").write_bytes(server.key_pem + server.certificate_pem)
    own, clients = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = secured_settings(own, clients) | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
    }
    listener = ClientListener("clients", "scram-sha-512", "SASL_SSL", clients)
    entrance = Entrance((listener,), ca.certificate_pem)
    with RunningBroker(settings), KafkaAdmin(own) as admin:
        secrets = LocalUserSecrets(directory)
        yield World(Pipelines(own, directory), entrance, admin, secrets, directory)


def allow(topic: str, *operations: str) -> dict[str, Any]:
    return {"resource": {"type": "topic", "name": topic}, "operations": list(operations)}


def test_a_pipeline_has_the_rights_of_its_user(
    world: World, spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without an ACL the error says which one; after a rotation the next run goes on."""
    pipelines = world.pipelines
    source, sink = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, [{"id": n} for n in range(20)])
    spec: Any = {
        "sources": [{"topics": [source], "format": JSON}],
        "sink": {"topic": {"name": sink}},
    }
    world.user([])
    with pytest.raises(SpecError) as refused:
        world.run(spark, **spec)
    entry = f"{{resource: {{type: topic, name: {source}}}, operations: [read]}}"
    assert entry in str(refused.value)
    assert refused.value.field == "spec.sources[0].topics[0]"
    rights = [allow(source, "read"), allow(sink, "write")]
    world.user(rights)
    status = world.run(spark, **spec)
    assert status.state == "Completed", status
    assert [row["id"] for row in pipelines.values(sink)] == list(range(20))
    before = world.secrets.find("default/etl")
    world.user(rights, rotation="1")
    after = world.secrets.find("default/etl")
    assert before is not None
    assert after is not None
    assert before.data["password"] != after.data["password"]
    pipelines.produce(source, [{"id": n} for n in range(20, 30)])
    status = world.run(spark, **spec)
    assert status.state == "Completed", status
    assert [row["id"] for row in pipelines.values(sink)] == list(range(30))
    printed = "".join(capfd.readouterr())
    for secret in (before, after):
        assert secret.data["password"].decode() not in printed


def test_a_mirror_logs_in_as_its_users(world: World, spark: Any) -> None:
    pipelines = world.pipelines
    source = pipelines.topic(1)
    pipelines.topic(1, f"copy-{source}")
    pipelines.produce(source, [{"id": 1}])
    world.user([allow(source, "read"), allow(f"copy-{source}", "write")])
    spec: Any = {
        "sources": [{"topics": [source], "format": {"type": "raw"}}],
        "sink": {"mirror": {"prefix": "copy-"}},
        "mode": "batch",
    }
    status = world.run(spark, **spec)
    assert status.state == "Completed", status
    assert pipelines.values(f"copy-{source}") == [{"id": 1}]


def test_transactions_have_rights_of_their_own(world: World, spark: Any) -> None:
    """The refusal names the entries of spec.acls; with exactly these the topic is written."""
    pipelines = world.pipelines
    source, sink = pipelines.topic(1), pipelines.topic(2)
    pipelines.produce(source, [{"id": n} for n in range(20)])
    spec: Any = {
        "sources": [{"topics": [source], "format": JSON}],
        "sink": {"topic": {"name": sink, "key": "id", "delivery": "exactlyOnce"}},
        "checkpoint": str(world.state / "transactions"),
    }
    topics = [allow(source, "read"), allow(sink, "write", "read")]
    world.user(topics)
    with pytest.raises(SpecError) as refused:
        world.run(spark, **spec)
    assert refused.value.field == "spec.sink.topic"
    entries = re.findall(r"\{resource: \{.*?\}, operations: \[.*?\]\}", str(refused.value))
    assert len(entries) == 2, refused.value
    world.user([*topics, *map(yaml.safe_load, entries)])
    status = world.run(spark, **spec)
    assert status.state == "Completed", status
    assert sorted(row["id"] for row in pipelines.values(sink)) == list(range(20))


def test_a_consumer_group_has_a_right_of_its_own(world: World, spark: Any) -> None:
    """The refusal names the entry; with it the offsets are committed."""
    pipelines = world.pipelines
    source, group = pipelines.topic(1), "group-of-a-pipeline"
    pipelines.produce(source, [{"id": n} for n in range(3)])
    spec: Any = {
        "sources": [{"topics": [source], "format": JSON}],
        "sink": {"table": {"path": str(world.state / "table-of-group")}},
        "consumerGroup": group,
        "checkpoint": str(world.state / "with-a-group"),
    }
    world.user([allow(source, "read")])
    with pytest.raises(NotReadyError) as refused:
        world.run(spark, **spec)
    assert refused.value.field == "spec.consumerGroup"
    (entry,) = re.findall(r"\{resource: \{.*?\}, operations: \[.*?\]\}", str(refused.value))
    world.user([allow(source, "read"), yaml.safe_load(entry)])
    status = world.run(spark, **spec)
    assert status.state == "Completed", status
    consumer = Consumer({"bootstrap.servers": pipelines.bootstrap, "group.id": group})
    (place,) = consumer.committed([TopicPartition(source, 0)], 60)
    consumer.close()
    assert place.offset == 3


def test_a_missing_right_may_be_granted_later(world: World, spark: Any) -> None:
    """The driver ends with the code that lets it start again, and the status names the entry: for
    a topic that the user may not even see, for one that it may only read, and for a mirror."""
    pipelines = world.pipelines
    source, sink = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, [{"id": 1}])
    read: Any = {"sources": [{"topics": [source], "format": JSON}]}
    copy = {**read, "sink": {"topic": {"name": sink}}, "mode": "batch"}
    raw = {"sources": [{"topics": [source], "format": {"type": "raw"}}], "mode": "batch"}
    mirror = {**raw, "sink": {"mirror": {"prefix": "mirror-"}}}
    for spec, rights, missing in (
        (copy, [], f"name: {source}}}, operations: [read]"),
        (
            copy,
            [allow(source, "read"), allow(sink, "read")],
            f"name: {sink}}}, operations: [write]",
        ),
        (mirror, [allow(source, "read")], f"name: mirror-{source}}}, operations: [create, write]"),
    ):
        world.user(rights)
        job = world.job(**spec)
        try:
            code = job.run_in(spark)
        except NotReadyError as error:
            code, said = FAILED, str(error)
        else:
            said = job.status.message
        assert code == FAILED
        assert missing in said, said


def test_clients_of_a_new_revision_are_new(tmp_path: Path) -> None:
    """Spark keeps clients by their options, so the options change with the credentials."""
    secrets = LocalSecrets(tmp_path, "default")
    content = {"librdkafka.conf": b"sasl.mechanism=SCRAM-SHA-512\n", "client.properties": b"a=b\n"}
    secrets.write("etl", content)
    directory = str(secrets.directory / "etl")
    first = credentials.java("sources[0]", directory)
    assert credentials.java("sources[0]", directory) == first
    secrets.write("etl", content)
    second = credentials.java("sources[0]", directory)
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == {credentials.REVISION}
    assert credentials.revision(str(tmp_path / "none")) == 0
