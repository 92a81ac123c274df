"""spec.automatic of a KafkaRebalance on the local runtime, with real brokers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from odradek_api.base import instant
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_protocol.client import KafkaClient
from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.skewed import PARTITIONS, create_topics, throttled
from operator_tests.local.test_rebalances import status

NAME = "default/even"
EVENTS = {"scaleUp": True, "scaleDown": True, "racks": True, "brokerLossMinutes": 5}


def holding(local: Local) -> set[int]:
    return {r for p in local.kafka().partitions for r in p.replicas}


def until_done(local: Local, trigger: str) -> KafkaRebalanceStatus:
    local.until(lambda _: status(local).trigger == trigger and status(local).phase == "Done", 240)
    return status(local)


def make_old(local: Local) -> None:
    """As if the brokers had been away for an hour already."""
    ledger = local.runtime.clusters[KEY].platform.ledger
    entry = ledger.rebalances[NAME]
    long_ago = instant(time.time() - 3600)
    away = [msgspec.structs.replace(b, since=long_ago) for b in entry.status.away]
    entry.status = msgspec.structs.replace(entry.status, away=away)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "engine",
    # long: five JVMs on two cores
    ["embedded", pytest.param("apache", marks=[pytest.mark.long, pytest.mark.java])],
)
def test_brokers_come_are_lost_return_and_leave(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. a broker that is empty from the beginning is a new one  2. a fourth one gets replicas
    3. it hangs for longer than brokerLossMinutes: others get its replicas  4. it returns: it is a
    new one  5. it is no longer wanted: it is emptied by a proposal, then removed. A client writes
    all the time, and nothing is lost."""
    if engine == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=3, engine=engine) as local:
        local.settle(240)
        create_topics(local.bootstrap)
        local.rebalance("even", autoApprove=True, automatic=EVENTS, window="minute")
        assert holding(local) == {0, 1}
        until_done(local, "added:2")
        assert holding(local) == {0, 1, 2}
        with Load(local, "orders", partitions=PARTITIONS, per_second=100) as load:
            local.spec["brokers"] = 4
            done = until_done(local, "added:3")
            assert done.mode == "add-brokers"
            assert done.why == "broker 3 is new"
            assert 3 in holding(local)

            hanging = local.runtime.report.clusters[KEY].pids[3]
            os.kill(hanging, signal.SIGSTOP)
            try:
                local.until(lambda _: [b.id for b in status(local).away] == [3], 120)
                make_old(local)
                done = until_done(local, "lost:3")
                assert done.mode == "remove-brokers"
                assert 3 not in holding(local)
                load.wait_for_acks(20)
            finally:
                os.kill(hanging, signal.SIGCONT)
            until_done(local, "added:3")
            assert 3 in holding(local)

            local.spec["brokers"] = 3
            until_done(local, "removed:3")
            local.until(lambda _: 3 not in local.runtime.report.clusters[KEY].pids, 120)
            assert not any("partitions move off" in line for line in local.done)
            load.wait_for_acks(20)
        load.check()
        with KafkaClient(local.bootstrap) as client:
            assert throttled(client, (0, 1, 2)) == []
