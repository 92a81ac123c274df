"""A proposal carried out on real clusters of both engines, while clients write.

All data is on two of four brokers. Afterwards all four have their share, nothing is lost, and no
throttle is left. Prints the deviation of bytes per broker before and after.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from odradek_operator.admin.balance import Rebalance, observe, way_back
from odradek_operator.admin.throttles import log_sizes
from odradek_operator.kafka.balance.execution import Stage, place
from odradek_operator.kafka.observed import LogSizes
from odradek_protocol.client import KafkaClient
from odradek_testkit.load import Load
from operator_tests.local.skewed import (
    BROKERS,
    DEADLINE_S,
    ENGINES,
    PARTITIONS,
    deviation,
    propose,
    skewed_cluster,
    throttled,
)

GROWTH_S = 3.0  # bytes that brokers receive are counted for so long


def carry_out(rebalance: Rebalance) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not (now := rebalance.step()).finished:
        assert time.monotonic() < give_up, now
        time.sleep(0.05)  # between two observations


def bytes_in_deviation(client: KafkaClient) -> float:
    """The same of bytes that the brokers received from producers and leaders meanwhile."""
    first = log_sizes(client)
    time.sleep(GROWTH_S)  # what is measured is the growth in this time
    now = log_sizes(client)

    def used(sizes: LogSizes, broker: int) -> int:
        return sum(sum(d.replica_bytes.values()) for d in sizes.brokers[broker])

    grown = [used(now, b) - used(first, b) for b in BROKERS]
    return statistics.pstdev(grown) / statistics.mean(grown)


def p99_ms(load: Load, began: float, ended: float) -> float:
    """Of acknowledgements of records that were sent between these times."""
    sent = [w for w in load.history.acked() if began <= w.sent_at_s <= ended]
    took = sorted(w.done_at_s - w.sent_at_s for w in sent)
    return 1000 * took[len(took) * 99 // 100] if took else 0.0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_skewed_cluster_is_balanced_while_clients_write(tmp_path: Path, engine: str) -> None:
    with skewed_cluster(tmp_path, engine) as local:
        with KafkaClient(local.bootstrap) as client:
            with Load(local, "orders", partitions=PARTITIONS, per_second=300) as load:
                load.wait_for_acks(100)
                quiet = time.monotonic()
                in_before = bytes_in_deviation(client)
                began = time.monotonic()
                seen, proposal = propose(client)
                found = time.monotonic() - began
                assert proposal.moves
                assert proposal.problems == []
                moving = time.monotonic()
                carry_out(Rebalance(client, proposal))
                moved = time.monotonic()
                load.wait_for_acks(100)
                in_after = bytes_in_deviation(client)
                ended = time.monotonic()
            after, again = propose(client)
            left = throttled(client)
        load.check()
        assert [write.error for write in load.history.errors()] == []
    before, now = deviation(seen), deviation(after)
    print(
        f"\n{engine}: proposal after {found:.1f} s, moved within {moved - moving:.1f} s; deviation "
        f"of bytes on disk {before:.0%} → {now:.0%}, of bytes in {in_before:.0%} → {in_after:.0%}; "
        f"{len(proposal.moves)} partitions, {proposal.bytes / 1e6:.0f} MB moved; p99 of "
        f"acknowledgements before {p99_ms(load, quiet, began):.0f} ms, during the moves "
        f"{p99_ms(load, moving, moved):.0f} ms, afterwards {p99_ms(load, moved, ended):.0f} ms; "
        f"{len(list(load.history.acked()))} acknowledged, 0 lost"
    )
    assert before > 0.9
    assert now < 0.2
    assert in_before > 0.9
    assert in_after < 0.5  # a sample of a few seconds
    assert left == []
    assert again.bytes < proposal.bytes / 10


def test_cancel_keeps_or_moves_back_and_removes_the_throttle(tmp_path: Path) -> None:
    """1. moves begin at a throttle under which they cannot end  2. the process that carries them
    out is gone  3. another one stops the moves: the old replicas are there  4. the proposal is
    carried out, and undone by its way back."""
    with skewed_cluster(tmp_path) as local, KafkaClient(local.bootstrap) as client:
        _, proposal = propose(client, throttle=1_000)
        now = Rebalance(client, proposal).step()
        assert now.count(Stage.PENDING) == len(proposal.moves)
        # A step holds while a broker is late: it is repeated, as by the command.
        local.until(lambda _: Rebalance(client, proposal).step().count(Stage.MOVING) > 0)
        assert throttled(client)

        now = Rebalance(client, proposal).stop()
        assert now.count(Stage.MOVING) == 0
        assert throttled(client) == []
        held = {p.id: p.replicas for p in observe(client, sample_s=0).partitions}
        for move in proposal.moves:
            if now.stages[place(move)] is Stage.PENDING:
                assert held[place(move)] == move.before

        carry_out(Rebalance(client, proposal, throttle=50e6))
        done = Rebalance(client, proposal).look()
        assert done.count(Stage.DONE) == len(proposal.moves)
        back = way_back(proposal, done)
        undo = Rebalance(client, proposal, throttle=50e6)
        undo.moves = back
        carry_out(undo)
        now = Rebalance(client, proposal).look()
        assert now.count(Stage.PENDING) == len(proposal.moves)
        assert throttled(client) == []
