"""One member's share session with one broker (KIP-932): which requests it sends. Does no I/O.

    session = ShareSession("orders", member_id)
    answer = call(session.fetch(wanted, limits))     # a request per fetch, with the session's epoch
    taken = session.take(answer)                     # records that are locked for this member
    session.acknowledge(place, offset, AcknowledgeType.ACCEPT)
    call(session.final())                            # ends it: what is left is released

Acknowledgements are sent with the next fetch. A fetch names only the partitions that were added or
removed since the last one. A session that the broker does not know any more (its connection was
closed) begins again with `reset`: the locks are gone, and so is what was not acknowledged yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from odradek_protocol.client.errors import NONE, BrokerError, error_in
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.record_batch import HEADER_BYTES, read_header
from odradek_protocol.share_codes import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    RECORD_LIMIT,
    AcknowledgeType,
)

if TYPE_CHECKING:
    from odradek_protocol.records.records import Record


class Place(NamedTuple):
    topic_id: UUID
    partition: int


class Acquired(NamedTuple):
    """A record that is locked for this member."""

    place: Place
    record: Record
    delivery_count: int


@dataclass(frozen=True)
class FetchLimits:
    max_wait_ms: int = 500
    max_records: int = 500  # locked by one fetch
    max_bytes: int = 50 * 1024 * 1024


@dataclass
class Taken:
    """The content of a response to a fetch."""

    records: list[Acquired] = field(default_factory=list)
    errors: dict[Place, BrokerError] = field(default_factory=dict)
    # Acknowledgements that were refused: their records are delivered again.
    refused: dict[Place, BrokerError] = field(default_factory=dict)


class ShareSession:
    """Invariant: every lock that the broker gave is in `_locked`, or its end is in `_ended`."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = INITIAL_EPOCH  # of the next request
        self._partitions: set[Place] = set()  # that the broker knows
        self._locked: dict[Place, set[int]] = {}  # delivered, not acknowledged
        self._ended: dict[Place, dict[int, AcknowledgeType]] = {}  # to be sent
        self.sent: frozenset[Place] = frozenset()  # acknowledgements were in the last request

    @property
    def is_open(self) -> bool:
        return self._epoch != INITIAL_EPOCH

    def reset(self) -> None:
        self._epoch = INITIAL_EPOCH
        self._partitions.clear()
        self._locked.clear()
        self._ended.clear()

    def fetch(self, wanted: set[Place], limits: FetchLimits) -> Struct:
        ended = self._take_ended()
        named = (wanted - self._partitions) | set(ended)
        forgotten = self._partitions - wanted
        self._partitions = set(wanted)
        return Struct(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._next_epoch(),
            max_wait=limits.max_wait_ms,
            min_bytes=1,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=RECORD_LIMIT,
            is_renew_ack=False,
            topics=_topics(named, ended),
            forgotten_topics_data=[
                Struct(topic_id=topic_id, partitions=[p.partition for p in places])
                for topic_id, places in _by_topic(forgotten)
            ],
        )

    def take(self, answer: Struct) -> Taken:
        taken = Taken()
        for topic in answer.responses:
            for p in topic.partitions:
                place = Place(topic.topic_id, p.partition_index)
                if (error := error_in(p)) is not None:
                    taken.errors[place] = error
                if p.acknowledge_error_code != NONE:
                    taken.refused[place] = BrokerError(
                        p.acknowledge_error_code, p.acknowledge_error_message
                    )
                taken.records += self._lock(place, p)
        return taken

    def acknowledge(self, place: Place, offset: int, kind: AcknowledgeType) -> bool:
        """False if the session has begun again since the record was delivered."""
        if offset not in self._locked.get(place, ()):
            return False
        self._locked[place].discard(offset)
        self._ended.setdefault(place, {})[offset] = kind
        return True

    def final(self) -> Struct:
        """ShareAcknowledge with the pending acknowledgements; releases other locks and ends it."""
        for place, offsets in self._locked.items():
            released = dict.fromkeys(offsets, AcknowledgeType.RELEASE)
            self._ended.setdefault(place, {}).update(released)
        ended = self._take_ended()
        self.reset()
        return Struct(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH,
            is_renew_ack=False,
            topics=_topics(set(ended), ended),
        )

    def _next_epoch(self) -> int:
        epoch = self._epoch
        self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return epoch

    def _take_ended(self) -> dict[Place, dict[int, AcknowledgeType]]:
        ended, self._ended = self._ended, {}
        self.sent = frozenset(ended)
        return ended

    def _lock(self, place: Place, found: Struct) -> list[Acquired]:
        """The acquired records. The batches may have others too: those are not this member's."""
        from odradek_protocol.records.records import (
            read_records,  # imported here: only readers of records need the codecs
        )

        counts = {
            offset: run.delivery_count
            for run in found.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        if not counts:
            return []
        records: list[Acquired] = []
        covered = 0  # the offset after the last whole batch
        for batch in _batches_in(found.records or b""):
            header = read_header(batch)
            covered = header.next_offset
            if not header.is_control:
                records += [
                    Acquired(place, record, counts[record.offset])
                    for record in read_records(batch)
                    if record.offset in counts
                ]
        present = {one.record.offset for one in records}
        self._locked.setdefault(place, set()).update(present)
        # Compaction leaves gaps, and markers of transactions take offsets.
        absent = {
            offset: AcknowledgeType.GAP if offset < covered else AcknowledgeType.RELEASE
            for offset in counts.keys() - present
        }
        if absent:
            self._ended.setdefault(place, {}).update(absent)
        return records


def _batches_in(data: bytes) -> Iterator[memoryview]:
    """Whole batches only: the last one may be cut at max_bytes."""
    from odradek_protocol.records.records import MAGIC

    view, at = memoryview(data), 0
    while len(view) - at >= HEADER_BYTES:
        header = read_header(view, at)
        if header.magic != MAGIC:
            raise DecodeError(f"record format v{header.magic}: only v{MAGIC} can be read")
        if at + header.size > len(view):
            return
        yield view[at : at + header.size]
        at += header.size


def _topics(
    places: Iterable[Place], ended: dict[Place, dict[int, AcknowledgeType]]
) -> list[Struct]:
    return [
        Struct(
            topic_id=topic_id,
            partitions=[
                Struct(
                    partition_index=place.partition,
                    acknowledgement_batches=_batches(ended.get(place, {})),
                )
                for place in found
            ],
        )
        for topic_id, found in _by_topic(places)
    ]


def _by_topic(places: Iterable[Place]) -> list[tuple[UUID, list[Place]]]:
    grouped: dict[UUID, list[Place]] = {}
    for place in sorted(places):
        grouped.setdefault(place.topic_id, []).append(place)
    return list(grouped.items())


def _batches(ended: dict[int, AcknowledgeType]) -> list[Struct]:
    """Adjacent offsets of the same type as one batch."""
    batches: list[Struct] = []
    for offset, kind in sorted(ended.items()):
        last = batches[-1] if batches else None
        if last and last.last_offset == offset - 1 and last.acknowledge_types == [kind]:
            last.last_offset = offset
        else:
            batches.append(
                Struct(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            )
    return batches
