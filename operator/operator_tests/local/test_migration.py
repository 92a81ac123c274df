"""An open cluster becomes a secured one and an open one again, under load, without an interruption.

1. Three open brokers; a client writes with acks=all, anonymously.
2. A listener with TLS is added: three rolls, after which the brokers talk over mTLS.
3. A user is added; a second client logs in with its password, while the first one goes on.
4. The open listener is closed: one roll. Anonymous clients are refused.
5. The open listener is opened again, and the one with TLS removed: everything is as at first.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from odradek_operator.kafka.links import addresses
from odradek_protocol.client import ClientError, ClientSettings, KafkaClient
from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.secured import add_user, librdkafka
from operator_tests.local.test_under_load import TOPIC, costs, judge

# Eight rolls of three brokers, some of them JVMs.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

TLS = {"name": "clients", "port": 9095, "tls": True, "authentication": {"type": "scram-sha-512"}}
PLAIN = {"name": "plaintext", "port": 9092}
ENGINES = ["embedded", pytest.param("apache", marks=pytest.mark.java)]
SETTLE_S = 600.0
TO_TLS, TO_OPEN = "TLS between brokers", "no TLS between brokers"
WORDS = (
    "nodes listen on the new listener, too",
    "nodes use the new listener",
    "nodes close the old listener to each other",
)


def three_rolls(target: str) -> list[str]:
    return [f"step {n} of 3 to {target}: {text}" for n, text in enumerate(WORDS, 1)]


def rolls(local: Local) -> list[str]:
    """The reasons of the restarts since the last call, without those that follow each other."""
    done = [line.partition(": ")[2] for line in local.done if line.startswith("restart")]
    local.done.clear()
    return [one for one, _ in groupby(done)]


def names(local: Local) -> set[str]:
    """The listeners of all nodes that run."""
    running = local.runtime.clusters[KEY].platform.running()
    return {name for settings in running.values() for name in addresses(settings)}


def anonymous(address: str) -> dict[str, str]:
    return {"bootstrap.servers": address}


def writer(local: Local, topic: str, login: dict[str, str]) -> Load:
    """With Apache Kafka one request at a time: with more, librdkafka duplicates records in any roll
    of a busy machine (broker_tests/cluster/test_producer_epochs.py shows how)."""
    in_flight = 1 if local.spec.get("engine") == "apache" else 5
    settings = {"max.in.flight.requests.per.connection": in_flight}
    return Load(local, topic, partitions=6, per_second=100, settings=settings, security=login)


@pytest.mark.parametrize("engine", ENGINES)
def test_open_to_secured_and_back(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=3, engine=engine) as local:
        for topic in ("before", "orders", "after"):
            local.topic(topic, **TOPIC)
        local.settle(SETTLE_S)
        first, open_address = names(local), local.bootstrap
        add_tls(local, open_address)
        change_of_clients(local)
        remove_tls(local, open_address)
        assert names(local) == first
        assert local.bootstrap == open_address


def add_tls(local: Local, open_address: str) -> None:
    load = writer(local, "before", anonymous(open_address))
    local.done.clear()
    with load:
        load.wait_for_acks(100)
        local.spec["listeners"] = [PLAIN, TLS]
        local.write()
        plan = local.runtime.plan().clusters[KEY].plan
        assert any(three_rolls(TO_TLS)[0] in line for line in plan), plan
        assert f"wait: afterwards: {three_rolls(TO_TLS)[2]}" in plan
        local.settle(SETTLE_S)
        assert rolls(local) == three_rolls(TO_TLS)
        load.wait_for_acks(100)
    judge(load)
    assert {"PLAINTEXT", "CLIENTS", "REPLICATION"} <= names(local)
    assert "CONTROLLER" not in names(local), "nodes reach the quorum over TLS only"
    print(f"\nTLS added in three rolls; {costs(load)}")


def change_of_clients(local: Local) -> None:
    """A user's client goes on while the open listener is closed and opened again."""
    add_user(local, "orders")
    status = local.runtime.report.clusters[KEY].status
    found = {one.name: one.bootstrap_servers for one in status.listeners}
    login = {**librdkafka(local), "bootstrap.servers": found["clients"]}
    with writer(local, "orders", login) as load:
        load.wait_for_acks(100)
        local.spec |= {"listeners": [TLS], "security": "strict"}
        local.settle(SETTLE_S)
        with pytest.raises(ClientError):
            KafkaClient(found["plaintext"], ClientSettings(deadline_s=3)).metadata()
        local.spec |= {"listeners": [PLAIN, TLS], "security": "open"}
        local.settle(SETTLE_S)
        load.wait_for_acks(100)
    judge(load)
    assert not any("step" in reason for reason in rolls(local))
    print(f"\nclosed and opened again; {costs(load)}")


def remove_tls(local: Local, open_address: str) -> None:
    load = writer(local, "after", anonymous(open_address))
    with load:
        load.wait_for_acks(100)
        local.spec["listeners"] = [PLAIN]
        local.settle(SETTLE_S)
        reasons = rolls(local)
        assert reasons == three_rolls(TO_OPEN)[-len(reasons) :]
        assert len(reasons) >= 2
        load.wait_for_acks(100)
    judge(load)
    print(f"\nTLS removed in {len(reasons)} rolls; {costs(load)}")
