"""decide_roll as a table: one line per situation, with what is done or awaited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek_operator.kafka.actions import Elect, Reason, Restart, Wait
from odradek_operator.kafka.observed import Partition, Phase
from odradek_operator.kafka.roll import NothingToRestart, RollBroker, RollView, decide_roll
from operator_tests.worlds import NOW, P, spread

CHANGED = Reason("ConfigChanged", "log.dirs changed")


def view(pending: str, *partitions: Partition, size: int = 6, **values: Any) -> RollView:
    """Six brokers in racks a b c a b c; `pending` names those that need a restart."""
    brokers = {
        b: RollBroker(b, "abc"[b % 3], Phase.READY, CHANGED if str(b) in pending.split() else None,
                      NOW - 100)
        for b in range(size)
    }  # fmt: skip
    defaults: dict[str, Any] = {"controller": 1, "voters": frozenset(range(min(3, size)))}
    return RollView(NOW, brokers, tuple(partitions), **{**defaults, **values})


def broken(found: RollView, broker: int, phase: Phase) -> RollView:
    return replace(
        found, brokers={**found.brokers, broker: replace(found.brokers[broker], phase=phase)}
    )


ALL = "0 1 2 3 4 5"


def say(decision: object) -> str:
    match decision:
        case Restart(brokers, _, unavailable):
            away = f" without {', '.join(map(str, unavailable))}" if unavailable else ""
            return f"restart {' '.join(map(str, brokers))}{away}"
        case Elect(partitions):
            return f"elect {' '.join(map(str, partitions))}"
        case Wait(reason):
            return f"wait: {reason.message}"
        case NothingToRestart():
            return "done"
    raise AssertionError(decision)


TABLE = [
    ("nothing to do", view(""), "done"),
    ("one broker needs it", view("3", P("t-0: 0 1 2 | 0 1 2")), "restart 3"),
    ("the lowest id first", view(ALL, *spread("t", 6, range(6))), "restart 0"),
    ("the active controller last", view("1 4", P("t-0: 1 0 2 | 1 0 2")), "restart 4"),
    ("only the controller left", view("1", P("t-0: 1 0 2 | 1 0 2")), "restart 1"),
    (
        "an ISR that is not whole after a restart",
        view("1", P("t-0: 0 1 2 | 1 2 @1")),
        "wait: t-0 has 2 of 3 replicas in sync; waiting for broker 0",
    ),
    (
        "leaders go back before the next one goes",
        view("1", P("t-0: 0 1 2 | 0 1 2 @1"), P("t-1: 1 2 0 | 0 1 2 @2")),
        "elect t-0 t-1",
    ),
    (
        "leaders are nobody's business if that is not wanted",
        view("3", P("t-0: 0 1 2 | 0 1 2 @1"), preferred_leaders=False),
        "restart 3",
    ),
    (
        "leaders are given back after the last restart too",
        view("", P("t-0: 0 1 2 | 0 1 2 @1")),
        "elect t-0",
    ),
    (
        "a broker that starts",
        broken(view("1"), 0, Phase.STARTING),
        "wait: broker 0 is starting",
    ),
    (
        "two brokers that start are named both",
        broken(broken(view("1"), 0, Phase.STARTING), 3, Phase.STARTING),
        "wait: brokers 0 and 3 are starting",
    ),
    (
        "a broker that crashes with the new settings: the others stay as they are",
        broken(view("1"), 0, Phase.CRASHED),
        "wait: broker 0 is crashed",
    ),
    (
        "a broker that crashes with old settings: perhaps that cures it",
        broken(view("0 1"), 0, Phase.CRASHED),
        "restart 0",
    ),
    (
        "one replica: the roll goes on and says what is away",
        view("3", P("lonely-0: 3 | 3")),
        "restart 3 without lonely-0",
    ),
    (
        "one replica and min ISR 2, the old dead-lock of others",
        view("3", P("lonely-0: 3 | 3 min=2")),
        "restart 3 without lonely-0",
    ),
    (
        "as many in-sync replicas as replicas: writes are away, records are not",
        view("0", P("t-0: 0 1 | 0 1 min=2"), controller=2),
        "restart 0 without t-0",
    ),
    (
        "the pending broker itself is out of sync: the others have to stay",
        view("0 3", P("t-0: 0 1 3 | 1 3 @1"), preferred_leaders=False, controller=2),
        "restart 0",
    ),
    (
        "and it stays too when its return is what the partition waits for",
        view("0 3", P("t-0: 0 1 3 | 1 @1"), controller=2),
        "wait: broker 0 cannot restart yet: t-0 has in-sync replicas on 1 and needs 2 without "
        "broker 0",
    ),
    ("no controller", view("0", controller=-1), "wait: the cluster has no active controller"),
    (
        "a voter that lags",
        view("0", lagging_voters=frozenset({2}), controller=1),
        "wait: broker 0 cannot restart yet: other voters of the metadata quorum are lagging",
    ),
    ("one voter of one", view("0", size=1, controller=0), "restart 0"),
    (
        "a rack at a time: 0 and 3 share no partition",
        view(ALL, P("t-0: 0 1 2 | 0 1 2"), P("t-1: 3 4 5 | 3 4 5"), max_unavailable=2),
        "restart 0 3",
    ),
    (
        "a rack at a time, but 0 and 3 share a partition",
        view("0 3", P("t-0: 0 3 2 | 0 3 2"), max_unavailable=2),
        "restart 0",
    ),
    (
        "two racks never go together",
        view("0 4", P("t-0: 0 1 2 | 0 1 2"), max_unavailable=2),
        "restart 0",
    ),
    (
        "the larger group first",
        view("0 2 5", P("t-0: 0 1 2 | 0 1 2"), max_unavailable=2),
        "restart 2 5",
    ),
    (
        "a replica on a broker that is no more is not waited for",
        view("0", P("t-0: 0 1 2 9 | 0 1 2")),
        "restart 0",
    ),
    (
        "ready, but not for long enough",
        view("0", min_ready_seconds=101),
        "wait: brokers 0, 1, 2, 3, 4 and 1 more have been ready for less than 101 s",
    ),
]


@pytest.mark.parametrize(("found", "expected"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_table(found: RollView, expected: str) -> None:
    assert say(decide_roll(found)) == expected


def test_a_partition_that_moves_counts_without_its_new_replicas() -> None:
    moving = replace(P("t-0: 0 1 2 3 | 0 1 2"), adding=frozenset({3}), removing=frozenset({0}))
    assert say(decide_roll(view("3", moving))) == "restart 3"
    assert say(decide_roll(view("2", moving))) == "restart 2"


def test_the_reason_says_why() -> None:
    decision = decide_roll(view("3", P("t-0: 0 1 2 | 0 1 2")))
    assert isinstance(decision, Restart)
    assert decision.reason.message == "broker 3: log.dirs changed"
