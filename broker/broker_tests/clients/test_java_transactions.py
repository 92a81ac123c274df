"""Apache Kafka's own client and scripts on our transactions: an epoch per transaction, the tools
that look at them, the records of `__transaction_state`."""

from __future__ import annotations

import re

import pytest

from broker_tests.clients.test_transactions import committed, ready, stable_end, state_of
from odradek_broker.coordinator.hashing import partition_for
from odradek_protocol.error_codes import ErrorCode
from odradek_testkit.clients import consume, create_topic, wait_until
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import Server, kafka_tool, on_apache
from odradek_testkit.raw_requests import connect

pytestmark = pytest.mark.java

TOOLS = "org.apache.kafka.tools"


def transactions(broker: Server, *args: str) -> str:
    command = f"{TOOLS}.TransactionsCommand"
    return kafka_tool(command, *for_java(broker), *args).stdout


def described(broker: Server, transactional_id: str) -> dict[str, str]:
    lines = transactions(broker, "describe", "--transactional-id", transactional_id).splitlines()
    names, values = (re.split(r"\s*\t\s*", line.strip()) for line in lines[:2])
    return dict(zip(names, values, strict=False))


def test_a_java_producer_has_an_epoch_per_transaction(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    kafka_tool(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "3000",
        "--record-size", "100", "--throughput", "3000",
        *for_java(broker),
        "--transactional-id", "perf", "--transaction-duration-ms", "100",
    )  # fmt: skip
    assert len(consume(broker, topic, 3000, isolation_level="read_committed")) == 3000
    state = described(broker, "perf")
    assert state["TransactionState"] == "CompleteCommit"
    assert int(state["ProducerEpoch"]) >= 3  # one more for each transaction: version 2 is in use


def test_the_scripts_see_an_open_transaction_and_abort_it(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    with connect(broker) as connection:
        producer = ready(connection, f"id-{topic}")
        assert producer.send(topic, "x") is ErrorCode.none
        listed = transactions(broker, "list", "--transactional-id-pattern", f"id-{topic[:5]}.*")
        assert re.search(rf"id-{topic}\s+\d+\s+{producer.producer_id}\s+Ongoing", listed)
        state = described(broker, f"id-{topic}")
        assert state["TransactionState"] == "Ongoing"
        assert state["TopicPartitions"] == f"{topic}-0"
        where = ("--topic", topic, "--partition", "0")
        seen = transactions(broker, "describe-producers", *where).splitlines()
        row = dict(zip(seen[0].split(), seen[1].split(), strict=False))
        assert (row["ProducerId"], row["CurrentTransactionStartOffset"]) == (
            str(producer.producer_id),
            "0",
        )
        assert stable_end(broker, topic) == 0
        transactions(broker, "abort", *where, "--start-offset", "0")
        wait_until(lambda: stable_end(broker, topic) == 2)
        hanging = transactions(broker, "find-hanging", "--broker-id", "1")
        assert topic not in hanging
    assert committed(broker, topic, 0) == []


@pytest.mark.skipif(on_apache(), reason="reads our files")
def test_the_dump_tool_reads_our_transaction_log(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    transactional_id = f"id-{topic}"
    with connect(broker) as connection:
        producer = ready(connection, transactional_id)
        assert producer.send(topic, "x") is ErrorCode.none
        assert producer.end(commit=True) is ErrorCode.none
        wait_until(lambda: state_of(producer) == "CompleteCommit")
    where = broker.data_dir / f"__transaction_state-{partition_for(transactional_id, 50)}"
    dumped = kafka_tool(
        f"{TOOLS}.DumpLogSegments", "--transaction-log-decoder",
        "--files", str(where / "00000000000000000000.log"),
    ).stdout  # fmt: skip
    # Other tests' transactional ids may be in the same partition.
    own = "\n".join(line for line in dumped.splitlines() if transactional_id in line)
    found = re.findall(r"payload: .*?state=(\w+)", own) or re.findall(
        r'"transactionStatus":(\d+)', own
    )
    assert found in (["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"], ["0", "1", "2", "4"])
    assert f"{topic}" in dumped
