"""The follower's and the leader's state of a fetch session agree, whatever happens."""

from random import Random

import pytest

from odradek_broker.handlers.fetch_session import FetchSessions, partitions_of
from odradek_broker.replication import session as follower_session
from odradek_broker.replication.session import FollowerSession, Key, SessionRequest
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.fetch import FetchPartition, FetchRequest


def asked(index: int, offset: int) -> FetchPartition:
    return FetchPartition(index, 1, offset, 0, 0, 1 << 20)


def on_the_wire(request: SessionRequest) -> FetchRequest:
    def grouped(items: list[tuple[Key, object]]) -> list[tuple[None, bytes, list[object]]]:
        return [(None, key[0], [item]) for key, item in items]

    return FetchRequest(
        2, 102, 500, 1, 1 << 20, 0, request.session_id, request.epoch,
        grouped(list(request.partitions)),  # type: ignore[arg-type]
        grouped([(key, key[1]) for key in request.forgotten]),  # type: ignore[arg-type]
        "", None,
    )  # fmt: skip


class Leader:
    """The part of the fetch handler that deals with sessions."""

    def __init__(self, rng: Random, slots: int = 10) -> None:
        self.sessions = FetchSessions(slots, rng)
        self.fetched: dict[Key, FetchPartition] = {}

    def serve(self, request: FetchRequest) -> tuple[int, int]:
        """(error code, session id), and what is fetched now."""
        if request.session_epoch == 0:
            if request.session_id:
                self.sessions.close(request.session_id)
            partitions = partitions_of(request)
            session = self.sessions.open(partitions, True, True, 0)
        else:
            try:
                session = self.sessions.resume(request, True, 0)
            except KafkaError as error:
                return error.code, 0
            partitions = session.partitions
        self.fetched = {key: entry.asked for key, entry in partitions.items()}  # type: ignore[misc]
        return 0, session.id if session else 0


@pytest.mark.parametrize("seed", range(30))
def test_the_leader_fetches_exactly_what_is_wanted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    monkeypatch.setattr(follower_session, "PER_REQUEST", rng.choice((1, 2, 500)))
    leader = Leader(rng, slots=rng.choice((0, 10)))
    session = FollowerSession()
    for _ in range(200):
        for _ in range(rng.randrange(4)):
            key = (bytes([rng.randrange(3)]) * 16, rng.randrange(4))
            if rng.random() < 0.3:
                session.forget(key)
            else:
                session.want(key, asked(key[1], rng.randrange(5)))
        if rng.random() < 0.05:
            leader.sessions = FetchSessions(10, rng)  # it restarted
        if rng.random() < 0.05:
            session.reset()
        error = serve_one(session, leader)
        if rng.random() < 0.5:
            continue  # a change comes before all partitions are named
        if not session.is_open:
            error = serve_one(session, leader)  # the leader has no room: all in one request
        while session.is_open and session.has_news and not error:
            error = serve_one(session, leader)
        if not error:
            assert leader.fetched == session.wanted


def serve_one(session: FollowerSession, leader: Leader) -> int:
    request = session.next_request()
    assert len(request.forgotten) <= follower_session.PER_REQUEST
    error, session_id = leader.serve(on_the_wire(request))
    if error:
        session.reset()
    elif request.epoch == 0:
        session.opened(session_id)
    return error


def test_many_partitions_are_named_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_session, "PER_REQUEST", 2)
    session = FollowerSession()
    keys = [(b"t" * 16, index) for index in range(5)]
    for key in keys:
        session.want(key, asked(key[1], 0))
    named = [session.next_request().partitions]
    session.opened(77)
    while session.has_news:
        named.append(session.next_request().partitions)
    assert [[key for key, _ in partitions] for partitions in named] == [
        keys[:2],
        keys[2:4],
        keys[4:],
    ]
    session.want(keys[0], asked(0, 1))
    assert session.want(keys[0], asked(0, 1)), "the leader does not know it yet"


def test_unchanged_partitions_are_not_sent_again() -> None:
    session = FollowerSession()
    key = (b"t" * 16, 0)
    assert session.want(key, asked(0, 5))
    assert session.next_request().partitions == [(key, asked(0, 5))]
    session.opened(77)
    assert not session.want(key, asked(0, 5))
    assert not session.has_news
    assert session.next_request() == SessionRequest(77, 1, [], [], 0)
    assert session.want(key, asked(0, 6))
    assert session.next_request() == SessionRequest(77, 2, [(key, asked(0, 6))], [], 0)
    session.forget(key)
    assert session.next_request() == SessionRequest(77, 3, [], [key], 0)


def test_two_requests_may_be_under_way() -> None:
    session = FollowerSession()
    key = (b"t" * 16, 0)
    session.want(key, asked(0, 5))
    session.next_request()
    session.opened(77)
    assert [session.next_request().epoch for _ in range(3)] == [1, 2, 3]
