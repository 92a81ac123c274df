"""`odradek transactions`: open transactions, and how they are aborted by force.

With ODRADEK_TEST_ENGINE=apache the same tests run against Apache Kafka.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from cli_tests.conftest import Odradek
from odradek_testkit import engines as harness
from odradek_testkit.engines import Server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"transaction.state.log.num.partitions": "5"}
    with harness.engine()(settings, directory=tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def topic(odradek: Odradek) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    odradek("topics", "create", name)
    return name


def opened(broker: Server, topic: str) -> tuple[str, Producer]:
    """A transaction with one record in it, not ended."""
    name = f"txn-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"uncommitted")
    assert producer.flush(30) == 0
    return name, producer


def test_an_open_transaction_is_seen_and_aborted(
    broker: Server, odradek: Odradek, topic: str
) -> None:
    name, producer = opened(broker, topic)
    listed = json.loads(odradek("transactions", "list", "--json").stdout)
    (mine,) = [one for one in listed if one["transactional_id"] == name]
    assert mine["state"] == "Ongoing"
    only = odradek("transactions", "list", "--state", "Ongoing").stdout
    assert name in only
    (described,) = json.loads(odradek("transactions", "describe", name, "--json").stdout)
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert described["producer_id"] == mine["producer_id"]
    assert f"{topic}-0" in odradek("transactions", "describe", name).stdout
    assert "fenced" in odradek("transactions", "abort", name, "--yes").stdout
    (described,) = json.loads(odradek("transactions", "describe", name, "--json").stdout)
    assert described["state"] in ("Empty", "CompleteAbort", "PrepareAbort")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


def test_a_transaction_is_aborted_in_one_partition(
    broker: Server, odradek: Odradek, topic: str
) -> None:
    name, _producer = opened(broker, topic)
    (described,) = json.loads(odradek("transactions", "describe", name, "--json").stdout)
    producer_id = str(described["producer_id"])
    how = ("transactions", "abort", "--partition", f"{topic}:0", "--yes", "--producer-id")
    assert "knows no producer" in odradek(*how, "987654", code=1).stderr
    done = json.loads(odradek(*how, producer_id, "--json").stdout)
    assert done["aborted"]["start_offset"] == 0
    assert "no transaction open" in odradek(*how, producer_id, code=1).stderr


def test_wrong_use(odradek: Odradek) -> None:
    assert "say which" in odradek("transactions", "abort", code=2).stderr
    unknown = odradek("transactions", "abort", "nobody", code=1).stderr
    assert unknown.startswith("odradek: transactional id nobody: there is no such id")
    assert unknown.count("\n") == 1
