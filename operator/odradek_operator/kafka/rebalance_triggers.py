"""spec.automatic: after which events a KafkaRebalance makes a proposal. Does no I/O.

    status = remember(wanted, status, kafka, now)       # which brokers are away, and since when
    trigger(wanted, status, kafka, members, now)        # Trigger | None

What has to be compared with the present is in the status, so that an operator that was down
meanwhile notices the same events: the brokers that earlier proposals knew, with their racks, and
since when a broker is away. An event has a key; while a proposal for it waits for an approval, and
for RETRY_S after one, it makes no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from odradek_api.base import instant
from odradek_api.kafka_rebalance.spec import Automatic, KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import AwayBroker, KafkaRebalanceStatus, KnownBroker
from odradek_operator.kafka.actions import named
from odradek_operator.kafka.observed import ObservedKafka

RETRY_S = 600.0  # before another proposal for the same event


@dataclass(frozen=True)
class Trigger:
    """Why a proposal is made, and which one."""

    key: str  # "removed:3,4"
    why: str
    mode: str = "full"
    brokers: tuple[int, ...] = ()


def automatic_of(spec: KafkaRebalanceSpec | None) -> Automatic:
    return spec.automatic if spec else Automatic()


def remember(
    spec: KafkaRebalanceSpec | None, status: KafkaRebalanceStatus, kafka: ObservedKafka, now: float
) -> KafkaRebalanceStatus:
    """The status with the brokers that are away now; the first time, with those that are known."""
    if not automatic_of(spec).any:
        if not (status.known or status.away):
            return status
        return msgspec.structs.replace(status, known=[], away=[])
    since = {one.id: one.since for one in status.away}
    away = sorted(kafka.registered.keys() - kafka.live)
    found = [AwayBroker(id=b, since=since.get(b) or instant(now)) for b in away]
    known = status.known
    if not known:  # an empty broker of a cluster that has data is a new one
        holding = _holding(kafka)
        known = _known(kafka, holding or kafka.registered.keys())
    return msgspec.structs.replace(status, away=found, known=known)


def lost_brokers(
    spec: KafkaRebalanceSpec | None, status: KafkaRebalanceStatus, kafka: ObservedKafka, now: float
) -> frozenset[int]:
    """Brokers that have been away for longer than spec.automatic.brokerLossMinutes."""
    minutes = automatic_of(spec).broker_loss_minutes
    if minutes is None:
        return frozenset()
    gone = {b.id for b in status.away if now - seconds_of(b.since) >= 60.0 * minutes}
    return frozenset(gone - kafka.live)


@dataclass(frozen=True)
class Members:
    """Which brokers the KafkaCluster asks for."""

    leaving: Collection[int] = ()  # no longer
    wanted: Collection[int] = ()

    def complete(self, kafka: ObservedKafka) -> bool:
        """All of them serve: new ones come one after the other, and are taken as one event."""
        return set(self.wanted) <= kafka.live


def trigger(
    spec: KafkaRebalanceSpec | None,
    status: KafkaRebalanceStatus,
    kafka: ObservedKafka,
    members: Members,
    now: float,
) -> Trigger | None:
    """The most urgent event, unless its proposal waits for an approval or was made just now.

    `status`: after `remember`.
    """
    for event in _events(spec, status, kafka, members, now):
        if event.key != status.trigger or not status.proposed_at:
            return event
        recent = now - seconds_of(status.proposed_at) < RETRY_S
        return None if recent or status.phase == "Proposed" else event
    return None


def _events(
    spec: KafkaRebalanceSpec | None,
    status: KafkaRebalanceStatus,
    kafka: ObservedKafka,
    members: Members,
    now: float,
) -> Iterable[Trigger]:
    wanted, holding = automatic_of(spec), _holding(kafka)
    known = {b.id: b.rack for b in status.known}
    if gone := sorted(lost_brokers(spec, status, kafka, now) & holding):
        since = {b.id: b.since for b in status.away}
        why = f"{named(gone)} {_is(gone)} away since {since[gone[0]]}, for longer than "
        why += f"{wanted.broker_loss_minutes} min"
        yield Trigger(_key("lost", gone), why, "remove-brokers", tuple(gone))
    if wanted.scale_down and (going := sorted(set(members.leaving) & holding)):
        why = f"{named(going)} {_is(going)} no longer wanted"
        yield Trigger(_key("removed", going), why, "remove-brokers", tuple(going))
    if wanted.racks:
        moved = [b for b, rack in sorted(known.items()) if kafka.registered.get(b, rack) != rack]
        if moved:
            at = [f"{b}:{kafka.registered[b]}" for b in moved]
            why = f"{named(moved)} {_is(moved)} in another rack than before: {', '.join(at)}"
            yield Trigger(f"racks:{','.join(at)}", why)
    if wanted.scale_up and members.complete(kafka):
        there = kafka.live & kafka.registered.keys()
        new = there - known.keys() - set(members.leaving)
        if new and status.phase == "Proposed" and status.mode == "add-brokers":
            new |= set(status.brokers) & there  # one proposal for all of them
        if new:
            ids = sorted(new)
            yield Trigger(_key("added", ids), f"{named(ids)} {_is(ids)} new", "add-brokers",
                          tuple(ids))  # fmt: skip


def taken_into_account(
    event: Trigger | None, mode: str, status: KafkaRebalanceStatus, kafka: ObservedKafka
) -> list[KnownBroker]:
    """The brokers that are known after a proposal; one that is emptied is new when it returns."""
    if not status.known:
        return []
    if mode == "full":
        return _known(kafka, kafka.registered)
    if event is None:
        return status.known
    if mode == "add-brokers":
        return [*status.known, *_known(kafka, event.brokers)]
    return [b for b in status.known if b.id not in event.brokers]


def _known(kafka: ObservedKafka, brokers: Iterable[int]) -> list[KnownBroker]:
    there = sorted(set(brokers) & kafka.registered.keys())
    return [KnownBroker(id=b, rack=kafka.registered[b]) for b in there]


def _holding(kafka: ObservedKafka) -> set[int]:
    return {r for p in kafka.partitions for r in p.replicas}


def _key(what: str, brokers: Iterable[int]) -> str:
    return f"{what}:{','.join(map(str, brokers))}"


def _is(brokers: Collection[int]) -> str:
    return "are" if len(brokers) > 1 else "is"


def seconds_of(text: str) -> float:
    """The reverse of `instant`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
