"""Reads the destination from its first record, compares, and finds where groups go on reading.

A group's offset in the source becomes "after n records" and that becomes an offset in the
destination. Offsets differ between the two: the source may begin later than 0 and have gaps, and
the destination has markers of the copying transactions in between.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from odradek_cli.errors import CliError
from odradek_cli.migrate.clusters import MigrationSide
from odradek_cli.migrate.copy import FETCH_DEADLINE_S, POLL_RECORDS, migration_id, reader
from odradek_cli.migrate.state import START, PartitionState, Place, chained, offset_of, place_of

SETTLE_DEADLINE_S = 60.0  # for the markers of our own last transaction


@dataclass
class Checked:
    """Contents of a partition of the destination."""

    count: int = 0
    digest: bytes = START
    end: int = 0  # the offset after the last record and its marker
    wanted: set[int] = field(default_factory=set)  # "after n records", for groups
    offsets: dict[int, int] = field(default_factory=dict)  # n → the offset of record n

    def take(self, message: Message) -> None:
        if self.count in self.wanted:
            self.offsets[self.count] = offset_of(message)
        self.digest = chained(self.digest, message)
        self.count += 1

    def offset_after(self, count: int) -> int:
        return self.offsets.get(count, self.end)


def check(
    source: MigrationSide,
    destination: MigrationSide,
    states: dict[Place, PartitionState],
    wanted: dict[Place, set[int]],
) -> dict[Place, Checked]:
    """Reads all of the destination's partitions to their ends."""
    if not destination.settled(states, SETTLE_DEADLINE_S):
        raise CliError(
            "the destination has a transaction that stays open: stop all other producers there"
        )
    checked = {place: Checked(wanted=wanted.get(place, set())) for place in states}
    starts, ends = destination.starts(states), destination.ends(states)

    def take(place: Place, message: Message) -> None:
        checked[place].take(message)

    read_range(destination, migration_id(source), starts, ends, take)
    for place, end in ends.items():
        checked[place].end = end
    return checked


def differences(states: dict[Place, PartitionState], checked: dict[Place, Checked]) -> list[str]:
    """A sentence per partition that does not hold what was read from the source."""
    found = []
    for (topic, partition), state in sorted(states.items()):
        is_there = checked[topic, partition]
        if is_there.count != state.count:
            found.append(
                f"{topic}:{partition} has {is_there.count} records, "
                f"{state.count} were read from the source"
            )
        elif is_there.digest != state.digest:
            found.append(f"{topic}:{partition}: the checksums differ")
    return found


def counts_before(
    source: MigrationSide,
    states: dict[Place, PartitionState],
    committed: dict[Place, list[int]],
) -> dict[Place, dict[int, int]]:
    """Per partition and offset of a group: how many of the copied records lie before it.

    The source's records are read from the lowest such offset on, which is little for groups that
    keep up. Records that retention has removed meanwhile are before all of these offsets.
    """
    places = {place: sorted(set(offsets)) for place, offsets in committed.items()}
    first = source.starts(places)
    starts = {place: max(offsets[0], first[place]) for place, offsets in places.items()}
    ends = {place: states[place].position for place in places}
    # behind[i]: records at or after offset i and, if there is one, before offset i + 1
    behind = {place: [0] * len(offsets) for place, offsets in places.items()}

    def take(place: Place, message: Message) -> None:
        offset = offset_of(message)
        if offset < ends[place]:
            at = bisect_right(places[place], offset) - 1
            behind[place][at] += 1

    read_range(source, migration_id(source), starts, ends, take)
    return {
        place: {
            offset: states[place].count - sum(behind[place][at:])
            for at, offset in enumerate(offsets)
        }
        for place, offsets in places.items()
    }


def read_range(
    cluster: MigrationSide,
    group: str,
    starts: dict[Place, int],
    ends: dict[Place, int],
    take: Callable[[Place, Message], None],
) -> None:
    """Every committed record from `starts` to `ends`, partitions interleaved."""
    left = {place for place, end in ends.items() if starts[place] < end}
    if not left:
        return
    consumer: Consumer = reader(cluster, group)
    try:
        consumer.assign([TopicPartition(t, p, starts[t, p]) for t, p in left])
        last = time.monotonic()
        while left:
            messages = consumer.consume(POLL_RECORDS, timeout=0.5)
            for message in messages:
                place = place_of(message)
                error = message.error()
                if error is None:
                    take(place, message)
                    reached = offset_of(message) + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = offset_of(message)
                else:
                    raise CliError(f"{place[0]}:{place[1]}: {error.str()}")
                if reached >= ends[place]:
                    left.discard(place)
            if messages:
                last = time.monotonic()
            elif time.monotonic() - last > FETCH_DEADLINE_S:
                raise CliError(f"{cluster.bootstrap} has sent nothing for {FETCH_DEADLINE_S:.0f} s")
    finally:
        consumer.close()
