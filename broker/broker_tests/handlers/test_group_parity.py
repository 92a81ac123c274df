"""The same group requests, good and bad, to our broker and to Apache Kafka get the same answers."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from broker_tests.handlers.parity_requests import Step, create, topic
from broker_tests.handlers.test_admin_parity import Client, both_engines
from odradek_protocol.messages.struct import Struct

pytestmark = pytest.mark.java

COMMIT, FETCH, FIND, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST = 8, 9, 10, 11, 12, 13, 14, 15, 16
DELETE_GROUPS, OFFSET_DELETE = 42, 47
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "group.max.size": "2",
}
SUBSCRIPTION = b"\0\0" + b"\0\0\0\x01" + b"\0\x01a" + b"\xff\xff\xff\xff"
RIGHT: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
STABLE_DEADLINE_S = 30.0


class Run:
    """Asks one broker and keeps its answers, with member ids made comparable."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.said: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}

    def name(self, member_id: str, name: str) -> str:
        self._names[member_id] = name
        return member_id

    def ask(self, label: str, api_key: int, version: int, **fields: Any) -> Any:
        answer = self._client.ask(Step(label, api_key, version, Struct(**fields)))
        self.said.append((f"{label} v{version}", answer))
        return answer

    def quietly(self, api_key: int, version: int, **fields: Any) -> Any:
        return self._client.ask(Step("", api_key, version, Struct(**fields)))

    def result(self) -> list[tuple[str, Any]]:
        return [(label, self._comparable(answer)) for label, answer in self.said]

    def _comparable(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._comparable(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._comparable(one) for one in value]
        return self._names.get(value, value) if isinstance(value, str) else value


def join(group: str, member: str = "", **changed: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [Struct(name="range", metadata=SUBSCRIPTION)],
        **changed,
    }


def sync(group: str, member: str, generation: int = 1, **changed: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "assignments": [Struct(member_id=member, assignment=b"yours")],
        **changed,
    }


def beat(group: str, member: str, generation: int = 1, **changed: Any) -> dict[str, Any]:
    return {"group_id": group, "generation_id": generation, "member_id": member, **changed}


def commit(
    group: str,
    member: str = "",
    generation: int = -1,
    *,
    name: str = "a",
    partitions: tuple[int, ...] = (0,),
    metadata: str | None = "m",
    topic_id: UUID | None = None,
) -> dict[str, Any]:
    one = [
        Struct(partition_index=p, committed_offset=5, committed_metadata=metadata)
        for p in partitions
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [Struct(name=name, topic_id=topic_id, partitions=one)],
    }


def old_fetch(group: str, *topics: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "group_id": group,
        "topics": [Struct(name=n, partition_indexes=list(p)) for n, p in topics],
    }


def wait_for_coordinator(run: Run, group: str) -> None:
    deadline = time.monotonic() + STABLE_DEADLINE_S
    while time.monotonic() < deadline:
        found = run.quietly(FIND, 6, key_type=0, coordinator_keys=[group])["coordinators"][0]
        if not found["error_code"]:
            code = run.quietly(BEAT, 4, **beat(group, "nobody"))["error_code"]
            if code not in (14, 15, 16):
                return
        time.sleep(0.1)
    pytest.fail(f"no coordinator for {group}")


def script(run: Run) -> None:
    run.quietly(19, 7, **vars(create("a", topic("a", 2), topic("b", 1)).request))
    for group in ("g", "static", "small", "none", "simple", "big"):
        wait_for_coordinator(run, group)
    run.ask("find, bad type", FIND, 6, key_type=9, coordinator_keys=["g"])
    bad_joins(run)
    member = lifecycle(run)
    offsets_of_a_live_group(run, member)
    operators(run)
    leaving(run, member)
    simple_group(run)
    static_members(run)
    full_group(run)


def bad_joins(run: Run) -> None:
    for version in (0, 5, 9):
        run.ask("join, no group", JOIN, version, **join(""))
        run.ask("join, short session", JOIN, version, **join("g", session_timeout=1))
        run.ask("join, long session", JOIN, version, **join("g", session_timeout=10**9))
        run.ask("join, no protocols", JOIN, version, **join("g", protocols=[]))
        run.ask("join, no type", JOIN, version, **join("g", protocol_type=""))
        run.ask("join, unknown member", JOIN, version, **join("g", "ghost"))
    for version in (0, 3, 5):
        run.ask("sync, no group", SYNC, version, **sync("", "m", **RIGHT))
        run.ask("sync, unknown group", SYNC, version, **sync("none", "m", **RIGHT))
    for version in (0, 4):
        run.ask("heartbeat, no group", BEAT, version, **beat("", "m"))
        run.ask("heartbeat, unknown group", BEAT, version, **beat("none", "m"))
    for version in (0, 2):
        run.ask("leave, no group", LEAVE, version, group_id="", member_id="m")
        run.ask("leave, unknown group", LEAVE, version, group_id="none", member_id="m")
    for version in (3, 5):
        ghost = [Struct(member_id="m")]
        run.ask("leave, no group", LEAVE, version, group_id="", members=ghost)
        run.ask("leave, unknown group", LEAVE, version, group_id="none", members=ghost)


def lifecycle(run: Run) -> str:
    """A group of one, from its first join to Stable."""
    given = run.ask("join, first", JOIN, 9, **join("g"))["member_id"]
    # The answer has the id, which gets its name only now.
    member = run.name(given, "first")
    run.ask("join, with id", JOIN, 9, **join("g", member))
    run.ask("commit while completing", COMMIT, 9, **commit("g", member, 1))
    run.ask("sync, wrong generation", SYNC, 5, **sync("g", member, 7, **RIGHT))
    run.ask("sync, wrong member", SYNC, 5, **sync("g", "ghost", **RIGHT))
    run.ask("sync, no protocol", SYNC, 5, **sync("g", member))
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        run.ask(f"sync, wrong {wrong}", SYNC, 5, **sync("g", member, **{**RIGHT, **wrong}))
    run.ask("sync, wrong instance", SYNC, 5, **sync("g", member, group_instance_id="i", **RIGHT))
    run.ask("join again, completing", JOIN, 9, **join("g", member))
    run.ask("sync", SYNC, 5, **sync("g", member, **RIGHT))
    run.ask("sync again", SYNC, 5, **sync("g", member, **RIGHT))
    run.ask("join, other type", JOIN, 9, **join("g", protocol_type="connect"))
    other = [Struct(name="other", metadata=b"")]
    run.ask("join, other protocol", JOIN, 9, **join("g", protocols=other))
    for version in (0, 4):
        run.ask("heartbeat", BEAT, version, **beat("g", member))
        run.ask("heartbeat, wrong generation", BEAT, version, **beat("g", member, 2))
        run.ask("heartbeat, wrong member", BEAT, version, **beat("g", "ghost"))
    run.ask("heartbeat, wrong instance", BEAT, 4, **beat("g", member, group_instance_id="i"))
    return member


def offsets_of_a_live_group(run: Run, member: str) -> None:
    for version in (2, 5, 8, 9):
        run.ask("commit", COMMIT, version, **commit("g", member, 1, partitions=(0, 1, 9)))
        run.ask("commit, wrong generation", COMMIT, version, **commit("g", member, 3))
        run.ask("commit, wrong member", COMMIT, version, **commit("g", "ghost", 1))
        run.ask("commit, no member", COMMIT, version, **commit("g"))
        run.ask("commit, unknown topic", COMMIT, version, **commit("g", member, 1, name="zz"))
        long = "x" * 4097
        run.ask("commit, long metadata", COMMIT, version, **commit("g", member, 1, metadata=long))
    run.ask("commit, null metadata", COMMIT, 9, **commit("g", member, 1, metadata=None))
    nowhere = UUID(int=7)
    run.ask("commit, unknown id", COMMIT, 10, **commit("g", member, 1, topic_id=nowhere))
    for version in (1, 2, 5, 7):
        run.ask("fetch", FETCH, version, **old_fetch("g", ("a", (0, 1, 9)), ("zz", (0,))))
        run.ask("fetch, unknown group", FETCH, version, **old_fetch("none", ("a", (0,))))
    run.ask("fetch all", FETCH, 7, group_id="g", topics=None)
    asked = [
        Struct(name="a", partition_indexes=[0, 1, 9]),
        Struct(name="zz", partition_indexes=[0]),
    ]
    for version in (8, 9):
        for label, topics in (("some", asked), ("all", None), ("none", [])):
            groups = [Struct(group_id=g, topics=topics) for g in ("g", "none")]
            run.ask(f"fetch {label}", FETCH, version, groups=groups)
    ids = [Struct(topic_id=nowhere, partition_indexes=[0])]
    run.ask("fetch, unknown id", FETCH, 10, groups=[Struct(group_id="g", topics=ids)])
    for group, name in (("g", "a"), ("g", "b"), ("g", "zz"), ("none", "a"), ("", "a")):
        topics = [Struct(name=name, partitions=[Struct(partition_index=0)])]
        label = f"delete offsets of {group or 'no group'}, {name}"
        run.ask(label, OFFSET_DELETE, 0, group_id=group, topics=topics)


def operators(run: Run) -> None:
    for version in (0, 3, 5, 6):
        run.ask("describe", DESCRIBE, version, groups=["g", "none"])
    run.ask("describe, operations", DESCRIBE, 5, groups=["g"], include_authorized_operations=True)
    for version in (0, 3, 4, 5):
        run.ask("list", LIST, version)
    for states in (["Stable"], ["stable"], ["Empty"], ["nonsense"]):
        run.ask(f"list {states}", LIST, 4, states_filter=states)
    for types in (["classic"], ["Consumer"], ["nonsense"]):
        run.ask(f"list {types}", LIST, 5, types_filter=types)
    run.ask("delete groups", DELETE_GROUPS, 2, groups_names=["g", "none", ""])


def leaving(run: Run, member: str) -> None:
    run.ask("leave, wrong member", LEAVE, 0, group_id="g", member_id="ghost")
    ghosts = [
        Struct(member_id="ghost"),
        Struct(member_id=member, group_instance_id="i"),
        Struct(member_id="", group_instance_id="i"),
    ]
    run.ask("leave, wrong members", LEAVE, 5, group_id="g", members=ghosts)
    run.ask("leave", LEAVE, 5, group_id="g", members=[Struct(member_id=member)])
    run.ask("heartbeat of one who left", BEAT, 4, **beat("g", member))
    run.ask("join of one who left", JOIN, 9, **join("g", member))
    run.ask("describe the empty one", DESCRIBE, 5, groups=["g"])
    run.ask("list the empty one", LIST, 5, states_filter=["Empty"])
    topics = [Struct(name="a", partitions=[Struct(partition_index=1)])]
    run.ask("delete an offset", OFFSET_DELETE, 0, group_id="g", topics=topics)
    run.ask("fetch what is left", FETCH, 9, groups=[Struct(group_id="g", topics=None)])
    run.ask("delete the group", DELETE_GROUPS, 2, groups_names=["g"])
    run.ask("describe the deleted one", DESCRIBE, 6, groups=["g"])
    run.ask("fetch the deleted one", FETCH, 9, groups=[Struct(group_id="g", topics=None)])


def simple_group(run: Run) -> None:
    run.ask("commit, unknown group", COMMIT, 9, **commit("simple", "m", 3))
    run.ask("commit without a group", COMMIT, 9, **commit("simple"))
    run.ask("commit, generation of an empty group", COMMIT, 9, **commit("simple", "m", 3))
    run.ask("describe the simple one", DESCRIBE, 5, groups=["simple"])
    run.ask("list the simple one", LIST, 5)
    run.ask("delete the simple one", DELETE_GROUPS, 2, groups_names=["simple"])
    run.ask("list nothing", LIST, 5)
    too_much = commit("big", partitions=(0,) * 300, metadata="x" * 4000)  # for one batch
    run.ask("commit, too much", COMMIT, 9, **too_much)


def static_members(run: Run) -> None:
    first = join("static", group_instance_id="i")
    old = run.name(run.quietly(JOIN, 5, **first)["member_id"], "old")
    run.ask("sync", SYNC, 3, **sync("static", old, group_instance_id="i"))
    again = run.quietly(JOIN, 5, **first)
    new = run.name(again["member_id"], "new")
    assert new != old
    run.said.append(("static member again", again))
    run.ask("sync of the new", SYNC, 3, **sync("static", new, group_instance_id="i"))
    run.ask("heartbeat of the old", BEAT, 4, **beat("static", old, group_instance_id="i"))
    run.ask("heartbeat of the old, no instance", BEAT, 4, **beat("static", old))
    run.ask("heartbeat of the new", BEAT, 4, **beat("static", new, group_instance_id="i"))
    run.ask("join of the old", JOIN, 5, **join("static", old, group_instance_id="i"))
    third = run.quietly(JOIN, 9, **first)
    run.name(third["member_id"], "third")
    run.said.append(("static leader again, may skip", third))
    gone = [Struct(member_id="", group_instance_id="i")]
    run.ask("leave by instance", LEAVE, 5, group_id="static", members=gone)


def full_group(run: Run) -> None:
    """group.max.size is 2: the third member is refused, whether it has an id or not."""
    members = []
    first = run.quietly(JOIN, 9, **join("small", group_instance_id="one"))
    members.append(run.name(first["member_id"], "one"))
    run.quietly(SYNC, 5, **sync("small", members[0], group_instance_id="one"))
    given = run.ask("join, second", JOIN, 9, **join("small"))["member_id"]
    run.name(given, "second")
    third = run.ask("join, third id", JOIN, 9, **join("small"))["member_id"]
    run.name(third, "third id")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    with both_engines(SETTINGS, tmp_path_factory.mktemp("group-parity")) as both:
        yield both


# Differences on purpose, with the reason.
DIFFERENT: dict[str, str] = {}


def test_same_answers(clients: tuple[Client, Client]) -> None:
    runs = [Run(one) for one in clients]
    for run in runs:
        script(run)
    theirs, ours = (run.result() for run in runs)
    assert [label for label, _ in theirs] == [label for label, _ in ours]
    wrong = [
        f"{label}\n  apache  {one}\n  odradek {other}"
        for (label, one), (_, other) in zip(theirs, ours, strict=True)
        if (one != other) != (label in DIFFERENT)
    ]
    assert len(ours) > 100
    assert not wrong, "\n" + "\n".join(wrong)
