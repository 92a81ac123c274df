"""A member's share session: epochs, changes of partitions, acknowledgements, gaps, cut batches."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek_protocol.client.share_session import FetchLimits, Place, ShareSession
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.records import Record, build_batch
from odradek_protocol.share_codes import EPOCH_MAX, FINAL_EPOCH, AcknowledgeType

ACCEPT, RELEASE, GAP = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.GAP
TOPIC = UUID(int=7)
ONE, TWO = Place(TOPIC, 0), Place(TOPIC, 1)
LIMITS = FetchLimits(max_records=100)


def batch(*offsets: int, control: bool = False) -> bytes:
    return build_batch([Record(n, 0, None, b"%d" % n) for n in offsets], control=control)


def answer(records: bytes, *acquired: tuple[int, int], **fields: object) -> Struct:
    partition = Struct(
        partition_index=0,
        error_code=0,
        error_message=None,
        acknowledge_error_code=0,
        acknowledge_error_message=None,
        records=records,
        acquired_records=[
            Struct(first_offset=first, last_offset=last, delivery_count=2)
            for first, last in acquired
        ],
    )
    vars(partition).update(fields)
    return Struct(responses=[Struct(topic_id=TOPIC, partitions=[partition])])


def acknowledged(request: Struct) -> list[tuple[int, int, list[int]]]:
    return [
        (one.first_offset, one.last_offset, one.acknowledge_types)
        for topic in request.topics
        for partition in topic.partitions
        for one in partition.acknowledgement_batches
    ]


def named(request: Struct) -> list[int]:
    return [one.partition_index for topic in request.topics for one in topic.partitions]


@pytest.fixture
def session() -> ShareSession:
    """An open session with one partition."""
    session = ShareSession("g", "m")
    session.fetch({ONE}, LIMITS)
    return session


def test_requests_name_changes_only() -> None:
    session = ShareSession("g", "m")
    first = session.fetch({ONE}, LIMITS)
    assert (first.share_session_epoch, named(first)) == (0, [0])
    second = session.fetch({ONE, TWO}, LIMITS)
    assert (second.share_session_epoch, named(second)) == (1, [1])
    third = session.fetch({TWO}, LIMITS)
    assert (third.share_session_epoch, named(third)) == (2, [])
    (forgotten,) = third.forgotten_topics_data
    assert (forgotten.topic_id, forgotten.partitions) == (TOPIC, [0])


def test_the_epoch_after_the_largest_is_one(session: ShareSession) -> None:
    session._epoch = EPOCH_MAX
    assert session.fetch({ONE}, LIMITS).share_session_epoch == EPOCH_MAX
    assert session.fetch({ONE}, LIMITS).share_session_epoch == 1


def test_acknowledgements_go_with_the_next_fetch(session: ShareSession) -> None:
    taken = session.take(answer(batch(5, 6, 7, 8), (5, 8)))
    assert [one.record.offset for one in taken.records] == [5, 6, 7, 8]
    assert {one.delivery_count for one in taken.records} == {2}
    for offset, kind in ((5, ACCEPT), (6, ACCEPT), (7, RELEASE)):
        assert session.acknowledge(ONE, offset, kind)
    request = session.fetch({ONE}, LIMITS)
    assert acknowledged(request) == [(5, 6, [ACCEPT]), (7, 7, [RELEASE])]
    assert session.sent == {ONE}
    assert acknowledged(session.fetch({ONE}, LIMITS)) == []
    assert not session.acknowledge(ONE, 5, ACCEPT), "only once"


def test_the_end_releases_what_was_not_acknowledged(session: ShareSession) -> None:
    session.take(answer(batch(0, 1, 2), (0, 2)))
    session.acknowledge(ONE, 0, ACCEPT)
    request = session.final()
    assert request.share_session_epoch == FINAL_EPOCH
    assert acknowledged(request) == [(0, 0, [ACCEPT]), (1, 2, [RELEASE])]
    assert not session.is_open


def test_records_of_others_in_the_same_batch_are_left_out(session: ShareSession) -> None:
    taken = session.take(answer(batch(0, 1, 2, 3), (1, 2)))
    assert [one.record.offset for one in taken.records] == [1, 2]
    assert not session.acknowledge(ONE, 0, ACCEPT)


def test_offsets_without_a_record_are_gaps(session: ShareSession) -> None:
    """1 and 2 were removed by compaction, 4 is a marker of a transaction."""
    taken = session.take(answer(batch(0, 3) + batch(4, control=True), (0, 4)))
    assert [one.record.offset for one in taken.records] == [0, 3]
    assert acknowledged(session.fetch({ONE}, LIMITS)) == [(1, 2, [GAP]), (4, 4, [GAP])]


def test_records_that_were_cut_off_are_released(session: ShareSession) -> None:
    """A gap would archive them: they would be lost."""
    taken = session.take(answer(batch(0, 1) + batch(2, 3)[:-1], (0, 3)))
    assert [one.record.offset for one in taken.records] == [0, 1]
    assert acknowledged(session.fetch({ONE}, LIMITS)) == [(2, 3, [RELEASE])]


def test_a_session_that_begins_again_has_no_locks(session: ShareSession) -> None:
    session.take(answer(batch(0), (0, 0)))
    session.reset()
    assert not session.acknowledge(ONE, 0, ACCEPT)
    request = session.fetch({ONE}, LIMITS)
    assert (request.share_session_epoch, named(request)) == (0, [0])
    assert acknowledged(request) == []


def test_errors_are_distinguished(session: ShareSession) -> None:
    taken = session.take(answer(b"", error_code=6, acknowledge_error_code=121))
    assert {place: error.name for place, error in taken.errors.items()} == {
        ONE: "NOT_LEADER_OR_FOLLOWER"
    }
    assert {place: error.name for place, error in taken.refused.items()} == {
        ONE: "INVALID_RECORD_STATE"
    }


def test_old_record_formats_are_refused(session: ShareSession) -> None:
    old = bytearray(batch(0))
    old[16] = 1
    with pytest.raises(DecodeError, match="record format v1"):
        session.take(answer(bytes(old), (0, 0)))
