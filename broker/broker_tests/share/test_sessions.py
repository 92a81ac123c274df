"""Share sessions: epochs, the limit, replacement, turns. And the settings of a group."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek_broker.share.config import ShareConfig
from odradek_broker.share.sessions import ShareSessions
from odradek_broker.share.state import Key
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.share_codes import EPOCH_MAX, FINAL_EPOCH

KEYS = [Key("g", UUID(int=7), index) for index in range(3)]


def code(sessions: ShareSessions, epoch: int, member: str = "m") -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        sessions.find("g", member, epoch)
    return refused.value.code


def test_each_request_has_the_next_epoch() -> None:
    sessions = ShareSessions()
    assert code(sessions, 1) is ErrorCode.share_session_not_found
    session = sessions.open("g", "m", 10)
    assert sessions.find("g", "m", 1) is session
    assert code(sessions, 1) is ErrorCode.invalid_share_session_epoch
    session.epoch = EPOCH_MAX
    sessions.find("g", "m", EPOCH_MAX)
    assert session.epoch == 1
    assert sessions.find("g", "m", FINAL_EPOCH) is session
    assert sessions.close(session)
    assert not sessions.close(session)
    assert not sessions.has_group("g")


def test_a_session_that_was_replaced_is_not_closed_by_its_old_connection() -> None:
    sessions = ShareSessions()
    old = sessions.open("g", "m", 1)
    new = sessions.open("g", "m", 1)
    assert not sessions.close(old)
    assert sessions.is_open(new)


def test_the_number_of_sessions_is_limited() -> None:
    sessions = ShareSessions()
    sessions.open("g", "a", 1)
    with pytest.raises(KafkaError) as refused:
        sessions.open("g", "b", 1)
    assert refused.value.code is ErrorCode.share_session_limit_reached


def test_the_number_of_partitions_is_limited() -> None:
    """The attack: a member adds partitions of topics that do not exist, more with each request.
    Its session ends; others have their room again."""
    sessions = ShareSessions(partitions_max=10)
    other = sessions.open("g", "other", 2)
    sessions.change(other, KEYS, [])
    session = sessions.open("g", "m", 2)
    sessions.change(session, (Key("g", UUID(int=8), n) for n in range(7)), [])
    with pytest.raises(KafkaError) as refused:
        sessions.change(session, [Key("g", UUID(int=9), 0)], [])
    assert refused.value.code is ErrorCode.share_session_limit_reached
    assert not sessions.is_open(session)
    assert sessions._partitions == len(KEYS)
    sessions.change(other, [], KEYS[:1])
    again = sessions.open("g", "other", 2)  # replaces it
    sessions.change(again, KEYS[:1], [])
    assert sessions._partitions == 1
    assert sessions.close(again)
    assert sessions._partitions == 0


def test_every_partition_is_first_in_turn() -> None:
    sessions = ShareSessions()
    session = sessions.open("g", "m", 1)
    sessions.change(session, KEYS, [])
    assert [session.in_turn()[0] for _ in range(4)] == [*KEYS, KEYS[0]]
    sessions.change(session, [], KEYS[:2])
    assert session.in_turn() == KEYS[2:]


@pytest.mark.parametrize(
    ("text", "age_ms"),
    [("latest", None), ("earliest", None), ("by_duration:P1DT2H3M4.5S", 93_784_500)],
)
def test_the_age_of_the_first_records(text: str, age_ms: int | None) -> None:
    assert ShareConfig(auto_offset_reset=text).reset_age_ms == age_ms
