"""The same requests about share groups, good and bad, to our broker and to Apache Kafka get the
same answers: a script of single steps, and generated acknowledgements."""

from __future__ import annotations

import random
import time
from base64 import urlsafe_b64encode
from typing import Any
from uuid import UUID

import pytest

from odradek_protocol.messages.struct import Struct
from odradek_testkit import ask
from odradek_testkit.clients import create_topic, produce
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

FIND, LIST, DESCRIBE_GROUPS, DELETE_GROUPS, DESCRIBE_CONSUMER = 10, 16, 15, 42, 69
BEAT, DESCRIBE, FETCH, ACKNOWLEDGE, INIT, READ, WRITE, DELETE_STATE, SUMMARY = (
    *range(76, 80), *range(83, 88),
)  # fmt: skip
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92
METADATA = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.share.assignment.interval.ms": "0",
}
MEMBER = "6f8f3f0e-0000-4000-8000-000000000001"
DEADLINE_S = 60.0
RECORDS = 60


class Run:
    """Sends requests to one broker and keeps its answers, with ids made comparable."""

    def __init__(self, server: Server) -> None:
        self._address = server.bootstrap
        self._questions = ask.Questions()
        self.said: list[tuple[str, Any]] = []
        self.topic_id = UUID(int=0)

    def ask(self, label: str, api_key: int, version: int, **fields: Any) -> Any:
        give_up = time.monotonic() + DEADLINE_S
        while _is_loading(answer := self.quietly(api_key, version, **fields)):
            assert time.monotonic() < give_up, answer
        self.said.append((label, self._comparable(answer)))
        return answer

    def quietly(self, api_key: int, version: int, **fields: Any) -> Any:
        return self._questions.ask(self._address, api_key, version, Struct(**fields))

    def close(self) -> None:
        self._questions.close()

    def _comparable(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return {
                name: self._comparable(one)
                for name, one in sorted(vars(value).items())
                if name not in ("records", "port", "create_timestamp", "write_timestamp")
            }
        if isinstance(value, list | tuple):
            # The order of topics and groups follows hash maps in Kafka.
            return sorted((self._comparable(one) for one in value), key=repr)
        if isinstance(value, str):
            return value.replace(_text(self.topic_id), "TOPIC")
        return "TOPIC" if value == self.topic_id else value


def _is_loading(answer: Any) -> bool:
    """A coordinator may still load its partition after it was found: repeats the request."""
    if isinstance(answer, Struct):
        fields = vars(answer)
        return fields.get("error_code") == COORDINATOR_LOAD_IN_PROGRESS or _is_loading(
            list(fields.values())
        )
    return isinstance(answer, list | tuple) and any(map(_is_loading, answer))


def _text(topic_id: UUID) -> str:
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def play(server: Server) -> list[tuple[str, Any]]:
    create_topic(server, "queue")
    run = Run(server)
    try:
        wanted = [Struct(topic_id=None, name="queue")]
        found = run.quietly(
            METADATA, 13, topics=wanted, allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        run.topic_id = found.topics[0].topic_id
        _coordinators(run)
        _members(run)
        _sessions(run)
        produce(server, "queue", [b"%d" % n for n in range(RECORDS)])
        _acknowledgements(run)
        _operators(run)
        _state(run)
        return run.said
    finally:
        run.close()


def _coordinators(run: Run) -> None:
    topic = _text(run.topic_id)
    keys = [f"g:{topic}:0", "bad", "a:b:c", f":{topic}:0", f"g:{topic}:x", f"g:{topic}:99"]
    give_up = time.monotonic() + DEADLINE_S
    for kind, asked in ((0, ["g"]), (2, keys)):
        while True:
            answer = run.quietly(FIND, 6, key_type=kind, coordinator_keys=asked)
            if all(one.error_code != 15 for one in answer.coordinators):
                break
            assert time.monotonic() < give_up, answer
        run.ask(f"find {kind}", FIND, 6, key_type=kind, coordinator_keys=asked)


def _beat(run: Run, label: str, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": "g", "member_id": MEMBER, "member_epoch": 0, "rack_id": None,
        "subscribed_topic_names": ["queue"],
    }  # fmt: skip
    return run.ask(f"heartbeat {label}", BEAT, 1, **{**fields, **changes})


def _members(run: Run) -> None:
    _beat(run, "no topics", subscribed_topic_names=None)
    _beat(run, "no member", member_id="")
    _beat(run, "no group", group_id="")
    _beat(run, "no rack", rack_id="")
    _beat(run, "unknown group", member_epoch=3)
    _beat(run, "unknown group leaves", member_epoch=-1)
    _beat(run, "static leave", member_epoch=-2)
    epoch = _beat(run, "joins").member_epoch
    give_up = time.monotonic() + DEADLINE_S
    stay = {"group_id": "g", "member_id": MEMBER, "rack_id": None, "subscribed_topic_names": None}
    while True:
        answer = run.quietly(BEAT, 1, member_epoch=epoch, **stay)
        epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        assert time.monotonic() < give_up, answer
    _beat(run, "stays", member_epoch=epoch, subscribed_topic_names=None)
    _beat(run, "future epoch", member_epoch=epoch + 1, subscribed_topic_names=None)
    _beat(run, "other member", member_id="x", member_epoch=epoch, subscribed_topic_names=None)
    for group in ("g", "unknown", ""):
        described = {"group_ids": [group], "include_authorized_operations": False}
        run.ask(f"describe {group}", DESCRIBE, 1, **described)
    run.ask("list", LIST, 5, states_filter=[], types_filter=["share"])
    run.ask("as classic", DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False)
    run.ask(
        "as consumer", DESCRIBE_CONSUMER, 1, group_ids=["g"], include_authorized_operations=False
    )
    run.ask("delete with members", DELETE_GROUPS, 2, groups_names=["g"])


def _fetch(run: Run, label: str, epoch: int, partitions: tuple[int, ...] = (), **more: Any) -> Any:
    topics = [Struct(partition_index=i, acknowledgement_batches=[]) for i in partitions]
    fields: dict[str, Any] = {
        "group_id": "g", "member_id": MEMBER, "share_session_epoch": epoch, "max_wait": 0,
        "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
        "share_acquire_mode": 0, "is_renew_ack": False, "forgotten_topics_data": [],
        "topics": [Struct(topic_id=run.topic_id, partitions=topics)] if partitions else [],
    }  # fmt: skip
    return run.ask(f"fetch {label}", FETCH, 2, **{**fields, **more})


def _sessions(run: Run) -> None:
    _fetch(run, "unknown session", 5)
    _fetch(run, "closes unknown session", -1)
    _fetch(run, "no member", 0, member_id=None)
    _fetch(run, "no group", 0, group_id=None)
    _fetch(run, "renews and fetches", 0, is_renew_ack=True)
    # Kafka needs a moment to load the partition; without waiting it may leave it out.
    _fetch(run, "opens", 0, (0,), max_wait=1_000)
    _fetch(run, "wrong epoch", 7)
    _fetch(run, "unknown partition", 1, (55,))
    _fetch(
        run, "forgets", 2,
        forgotten_topics_data=[Struct(topic_id=run.topic_id, partitions=[55])],
    )  # fmt: skip
    early = [Struct(first_offset=0, last_offset=0, acknowledge_types=[1])]
    partition = Struct(partition_index=0, acknowledgement_batches=early)
    _fetch(
        run, "acknowledges at once", 0,
        topics=[Struct(topic_id=run.topic_id, partitions=[partition])],
    )  # fmt: skip


def _acknowledgements(run: Run) -> None:
    """Fetches all records three times, with random acknowledgements in between, half invalid."""
    rng = random.Random(1)
    give_up = time.monotonic() + DEADLINE_S
    fetched = run.quietly(
        FETCH, 2, group_id="g", member_id=MEMBER, share_session_epoch=3, max_wait=5_000,
        min_bytes=1, max_bytes=1 << 20, max_records=500, batch_size=500, share_acquire_mode=0,
        is_renew_ack=False, forgotten_topics_data=[], topics=[],
    )  # fmt: skip
    assert fetched.responses, fetched
    epoch = 4
    for number in range(60):
        batches = []
        at = rng.randrange(RECORDS)
        for _ in range(rng.choice((1, 1, 2, 3))):
            size = rng.choice((1, 1, 2, 5))
            kinds = [rng.choice((0, 1, 1, 2, 2, 3, 4, 9)) for _ in range(size)]
            types = rng.choice((kinds, kinds[:1], kinds[:1]))
            batches.append(
                Struct(first_offset=at, last_offset=at + size - 1, acknowledge_types=types)
            )
            at += size + rng.choice((0, 0, 2, -1))
        partition = Struct(partition_index=0, acknowledgement_batches=batches)
        answer = run.quietly(
            ACKNOWLEDGE, 2, group_id="g", member_id=MEMBER, share_session_epoch=epoch,
            is_renew_ack=rng.random() < 0.3,
            topics=[Struct(topic_id=run.topic_id, partitions=[partition])],
        )  # fmt: skip
        (one,) = answer.responses[0].partitions
        run.said.append((f"acknowledge {number} {batches}", one.error_code))
        epoch += 1
        if number % 20 == 19:
            _offsets(run, f"after {number}", "g")
            again = run.quietly(
                FETCH, 2, group_id="g", member_id=MEMBER, share_session_epoch=epoch, max_wait=0,
                min_bytes=0, max_bytes=1 << 20, max_records=500, batch_size=500,
                share_acquire_mode=0, is_renew_ack=False, forgotten_topics_data=[], topics=[],
            )  # fmt: skip
            epoch += 1
            counts = {
                offset: part.delivery_count
                for topic in again.responses
                for partition in topic.partitions
                for part in partition.acquired_records
                for offset in range(part.first_offset, part.last_offset + 1)
            }
            run.said.append((f"delivered again {number}", counts))
    assert time.monotonic() < give_up
    _fetch(run, "closes", -1)
    _fetch(run, "closed", epoch)


def _offsets(run: Run, label: str, group: str, topics: list[Struct] | None = None) -> None:
    groups = [Struct(group_id=group, topics=topics)]
    run.ask(f"offsets {label}", DESCRIBE_OFFSETS, 1, groups=groups)


def _alter(run: Run, label: str, group: str, *asked: tuple[str, int, int]) -> None:
    topics = [
        Struct(topic_name=name, partitions=[Struct(partition_index=i, start_offset=offset)])
        for name, i, offset in asked
    ]
    run.ask(f"alter {label}", ALTER_OFFSETS, 0, group_id=group, topics=topics)


def _operators(run: Run) -> None:
    _alter(run, "with members", "g", ("queue", 0, 2))
    run.ask(
        "delete offsets with members", DELETE_OFFSETS, 0, group_id="g",
        topics=[Struct(topic_name="queue")],
    )  # fmt: skip
    _beat(run, "leaves", member_epoch=-1, subscribed_topic_names=None)
    _alter(run, "known and unknown", "g", ("queue", 0, 2), ("missing", 0, 2))
    _offsets(run, "after alter", "g")
    names = [Struct(topic_name="queue"), Struct(topic_name="missing")]
    run.ask("delete offsets", DELETE_OFFSETS, 0, group_id="g", topics=names)
    _offsets(run, "after delete", "g")
    run.ask("delete", DELETE_GROUPS, 2, groups_names=["g"])
    run.ask("delete again", DELETE_GROUPS, 2, groups_names=["g"])


def _state(run: Run) -> None:
    def asked(label: str, api_key: int, version: int, **fields: Any) -> None:
        partition = Struct(**{"partition": 0, **fields})
        topics = [Struct(topic_id=run.topic_id, partitions=[partition])]
        run.ask(f"state {label}", api_key, version, group_id="x", topics=topics)

    def write(label: str, epochs: tuple[int, int], start: int, *batches: tuple[int, ...]) -> None:
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        asked(
            label, WRITE, 1, state_epoch=epochs[0], leader_epoch=epochs[1], start_offset=start,
            delivery_complete_count=1,
            state_batches=[Struct(**dict(zip(names, batch, strict=True))) for batch in batches],
        )  # fmt: skip

    asked("read nothing", READ, 0, leader_epoch=0)
    asked("summary of nothing", SUMMARY, 1, leader_epoch=0)
    write("write nothing", (0, 0), 0)
    asked("delete nothing", DELETE_STATE, 0)
    asked("negative partition", READ, 0, partition=-1, leader_epoch=0)
    asked("unknown partition", INIT, 0, partition=99, state_epoch=1, start_offset=0)
    asked("initialize", INIT, 0, state_epoch=5, start_offset=11)
    asked("older epoch", INIT, 0, state_epoch=4, start_offset=10)
    asked("read", READ, 0, leader_epoch=3)
    asked("older leader reads", READ, 0, leader_epoch=2)
    write("write", (5, 3), 11, (12, 15, 0, 1))
    write("writes over it", (5, 3), -1, (14, 18, 2, 2))
    asked("read both", READ, 0, leader_epoch=3)
    write("older state", (4, 3), 11)
    write("older leader", (5, 2), 11)
    write("start moves", (5, 4), 13)
    asked("read the rest", READ, 0, leader_epoch=4)
    asked("summary", SUMMARY, 1, leader_epoch=-1)
    asked("moved", INIT, 0, state_epoch=9, start_offset=3)
    asked("read moved", READ, 0, leader_epoch=4)
    asked("delete", DELETE_STATE, 0)
    asked("read deleted", READ, 0, leader_epoch=4)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "TIMEOUT_S", 30.0)


@pytest.mark.usefixtures("patience")
def test_share_requests_get_the_same_answers() -> None:
    with RunningBroker(SETTINGS) as ours:
        mine = play(ours)
    with RunningApacheKafka(SETTINGS) as apache:
        theirs = play(apache)
    assert [label for label, _ in mine] == [label for label, _ in theirs]
    different = [
        f"{label}\n  Apache {his}\n  ours   {own}"
        for (label, own), (_, his) in zip(mine, theirs, strict=True)
        if own != his
    ]
    assert not different, "\n".join(different)
