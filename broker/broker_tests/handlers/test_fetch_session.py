"""Fetch sessions (KIP-227): the rules of ids and epochs, and eviction."""

from collections.abc import Iterable
from random import Random
from typing import cast

import pytest

from odradek_broker.handlers.fetch_session import (
    EVICT_AFTER_MS,
    FetchSession,
    FetchSessions,
    partitions_of,
)
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.fetch import FetchPartition, FetchPartitionResult, FetchRequest

# Per topic (partition, offset to fetch from), and the partitions to forget.
Topics = Iterable[tuple[str, list[tuple[int, int]]]]
Forgotten = Iterable[tuple[str, list[int]]]
TWO: Topics = (("t", [(0, 0), (1, 0)]),)


def request(
    session_id: int = 0, epoch: int = 0, topics: Topics = (), forgotten: Forgotten = ()
) -> FetchRequest:
    return FetchRequest(
        -1, -1, 500, 1, 1 << 20, 0, session_id, epoch,
        [(name, None, [ask(i, offset) for i, offset in parts]) for name, parts in topics],
        [(name, None, list(indexes)) for name, indexes in forgotten],
        "", None,
    )  # fmt: skip


def ask(index: int, offset: int) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, -1, 1 << 20)


def try_to_open(
    sessions: FetchSessions, topics: Topics = TWO, privileged: bool = False, now_ms: float = 0.0
) -> FetchSession | None:
    return sessions.open(partitions_of(request(topics=topics)), privileged, False, now_ms)


def open_session(
    sessions: FetchSessions, topics: Topics = TWO, privileged: bool = False, now_ms: float = 0.0
) -> FetchSession:
    session = try_to_open(sessions, topics, privileged, now_ms)
    assert session is not None
    return session


def test_an_incremental_request_changes_adds_and_forgets_partitions() -> None:
    sessions = FetchSessions(10, Random(1))
    session = open_session(sessions)
    resumed = sessions.resume(
        request(session.id, 1, [("t", [(1, 42)]), ("u", [(0, 7)])], [("t", [0])]), False, 1.0
    )
    assert resumed is session
    offsets = {key: entry.asked.fetch_offset for key, entry in session.partitions.items()}
    assert offsets == {("t", 1): 42, ("u", 0): 7}


def test_epochs_must_follow_each_other() -> None:
    sessions = FetchSessions(10, Random(1))
    session = open_session(sessions)
    sessions.resume(request(session.id, 1), False, 1.0)
    for wrong in (1, 3):
        with pytest.raises(KafkaError) as refused:
            sessions.resume(request(session.id, wrong), False, 1.0)
        assert refused.value.code == ErrorCode.invalid_fetch_session_epoch
    sessions.resume(request(session.id, 2), False, 1.0)


def test_the_epoch_wraps_to_one_not_to_zero() -> None:
    session = FetchSession(5, False, False, {})
    session.epoch = 2**31 - 1
    session.advance()
    assert session.epoch == 1


def test_unknown_session_and_changed_kind_of_topic_names_are_refused() -> None:
    sessions = FetchSessions(10, Random(1))
    session = open_session(sessions)
    with pytest.raises(KafkaError) as refused:
        sessions.resume(request(session.id + 1, 1), False, 1.0)
    assert refused.value.code == ErrorCode.fetch_session_id_not_found
    with pytest.raises(KafkaError) as refused:
        sessions.resume(request(session.id, 1), True, 1.0)
    assert refused.value.code == ErrorCode.fetch_session_topic_id_error


def test_a_full_cache_gives_no_session_until_one_is_unused() -> None:
    sessions = FetchSessions(2, Random(1))
    first = open_session(sessions, now_ms=0.0)
    open_session(sessions, now_ms=10.0)
    assert try_to_open(sessions, now_ms=20.0) is None
    sessions.resume(request(first.id, 1), False, 30.0)
    # The second session is now the least recently used, and unused for long enough to be evicted.
    assert try_to_open(sessions, now_ms=11.0 + EVICT_AFTER_MS) is not None
    sessions.resume(request(first.id, 2), False, 40.0)
    assert len(sessions) == 2


def test_followers_evict_sessions_of_consumers_but_not_each_other() -> None:
    sessions = FetchSessions(1, Random(1))
    consumer = open_session(sessions)
    assert try_to_open(sessions, privileged=True) is not None
    with pytest.raises(KafkaError):
        sessions.resume(request(consumer.id, 1), False, 1.0)
    assert try_to_open(sessions, privileged=True) is None


def test_only_changed_partitions_are_in_the_next_answer() -> None:
    entry = next(iter(partitions_of(request(topics=[("t", [(0, 0)])])).values()))
    quiet = FetchPartitionResult(0, 0, 5, 5, 0, None, -1, b"")
    assert entry.changed(quiet)  # the client does not know the high watermark yet
    entry.remember(quiet)
    assert not entry.changed(quiet)
    assert entry.changed(quiet._replace(high_watermark=6))
    assert entry.changed(quiet._replace(log_start_offset=1))
    assert entry.changed(quiet._replace(records=b"x"))
    failed = quiet._replace(error_code=6)
    assert entry.changed(failed)
    entry.remember(failed)
    assert entry.changed(quiet), "after an error the watermark is sent again"


class Moved:
    """Stands for a partition: the part that a session uses."""

    def __init__(self, index: int) -> None:
        self.topic_id = b""
        self.topic_partition = TopicPartition("t", index)
        self.listeners: set[object] = set()

    def subscribe(self, listener: object, *, follower: bool) -> None:
        assert not follower
        self.listeners.add(listener)

    def unsubscribe(self, listener: object) -> None:
        self.listeners.discard(listener)


def listen(session: FetchSession, index: int, moved: Moved) -> None:
    session.listen(session.partitions["t", index], cast(Partition, moved))


def progress(session: FetchSession, *moved: Moved) -> None:
    session.on_progress([cast(Partition, one) for one in moved])


class Held:
    """A request that is held back."""

    def __init__(self) -> None:
        self.progress: list[object] = []
        self.answered = False

    def on_progress(self, partitions: object) -> None:
        self.progress.append(partitions)

    def answer_now(self) -> None:
        self.answered = True


def test_a_session_notices_progress_between_requests() -> None:
    session = open_session(FetchSessions(1, Random(1)))
    partition = Moved(1)
    listen(session, 1, partition)
    session.fresh.clear()
    progress(session, partition, Moved(9))
    assert list(session.fresh) == [("t", 1)]
    assert not partition.listeners, "a fresh partition is read at the next request anyway"


def test_progress_wakes_a_waiting_request_and_the_next_request_ends_its_wait() -> None:
    sessions = FetchSessions(1, Random(1))
    session = open_session(sessions)
    partition = Moved(1)
    listen(session, 1, partition)
    held = session.waiting = Held()
    progress(session, partition)
    assert len(held.progress) == 1
    assert partition.listeners == {session}
    sessions.resume(request(session.id, 1), False, 1.0)
    assert held.answered


def test_a_closed_session_unsubscribes() -> None:
    sessions = FetchSessions(1, Random(1))
    session = open_session(sessions)
    forgotten, closed = Moved(0), Moved(1)
    listen(session, 0, forgotten)
    listen(session, 1, closed)
    sessions.resume(request(session.id, 1, forgotten=[("t", [0])]), False, 1.0)
    assert (forgotten.listeners, closed.listeners) == (set(), {session})
    sessions.close(session.id)
    assert closed.listeners == set()


def test_the_number_of_partitions_is_limited() -> None:
    """The attack: a consumer adds partitions that do not exist to its session, more with each
    request. Its session ends, and it continues without one; followers are not affected."""
    sessions = FetchSessions(10, Random(1), partitions_max=10)
    other = open_session(sessions)
    session = open_session(sessions)
    named = [("none", [(index, 0) for index in range(6)])]
    sessions.resume(request(session.id, 1, named), False, 0.0)
    with pytest.raises(KafkaError) as refused:
        sessions.resume(request(session.id, 2, [("more", [(0, 0)])]), False, 0.0)
    assert refused.value.code is ErrorCode.fetch_session_id_not_found
    assert sessions._partitions == 2
    sessions.resume(request(other.id, 1, forgotten=[("t", [0])]), False, 0.0)
    assert sessions._partitions == 1
    many = [("t", [(index, 0) for index in range(10)])]
    assert try_to_open(sessions, many) is None
    assert try_to_open(sessions, many, privileged=True) is not None
    sessions.close(other.id)
    assert sessions._partitions == 0
