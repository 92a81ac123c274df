"""The same requests of streams groups, good and bad, to our broker and to Apache Kafka get the same
answers: a script of single steps, and generated topologies and heartbeats."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from odradek_protocol.messages.struct import Struct
from odradek_testkit import ask
from odradek_testkit.clients import create_topic
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

METADATA, FIND, LIST, DESCRIBE_GROUPS, DELETE_GROUPS, DESCRIBE_CONSUMER = 3, 10, 16, 15, 42, 69
COMMIT, FETCH_OFFSETS, JOIN, CONSUMER_BEAT = 8, 9, 11, 68
BEAT, DESCRIBE = 88, 89
NOT_READY = (14, 16)  # a coordinator that loads its partition, or has not heard of it yet
DELAYED = 5
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "1",
}
DEADLINE_S = 60.0
TOPICS = {"two": 2, "three": 3, "four": 4, "also-two": 2}
GENERATED = 60
MISSING = "Internal topics are missing: "


def topic(name: str, partitions: int = 0, **configs: str) -> Struct:
    pairs = [Struct(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return Struct(name=name, partitions=partitions, replication_factor=1, topic_configs=pairs)


def subtopology(name: str, *sources: str, **parts: Any) -> Struct:
    fields: dict[str, Any] = {
        "source_topic_regex": [], "state_changelog_topics": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "copartition_groups": [],
    }  # fmt: skip
    return Struct(subtopology_id=name, source_topics=list(sources), **{**fields, **parts})


def together(sources: list[int], repartitioned: list[int]) -> Struct:
    return Struct(
        source_topics=sources, source_topic_regex=[], repartition_source_topics=repartitioned
    )


def topology(*parts: Struct, epoch: int = 0) -> Struct:
    return Struct(epoch=epoch, subtopologies=list(parts))


PLAIN = topology(subtopology("0", "two"))


class Run:
    """Asks one broker, and keeps what it said."""

    def __init__(self, server: Server) -> None:
        self._address = server.bootstrap
        self._questions = ask.Questions()
        self.said: list[tuple[str, Any]] = []

    def ask(self, label: str, api_key: int, version: int, **fields: Any) -> Any:
        give_up = time.monotonic() + DEADLINE_S
        while _is_loading(answer := self.quietly(api_key, version, **fields)):
            assert time.monotonic() < give_up, vars(answer)
        self.said.append((label, _comparable(answer)))
        return answer

    def quietly(self, api_key: int, version: int, **fields: Any) -> Any:
        return self._questions.ask(self._address, api_key, version, Struct(**fields))

    def beat(self, label: str | None, group: str, member: str = "m", **changes: Any) -> Any:
        joins = changes.get("member_epoch", 0) == 0
        fields: dict[str, Any] = {
            "group_id": group, "member_id": member, "member_epoch": 0,
            "endpoint_information_epoch": 0, "instance_id": None, "rack_id": None,
            "rebalance_timeout": 30_000 if joins else -1, "topology": PLAIN if joins else None,
            "active_tasks": [] if joins else None, "standby_tasks": [] if joins else None,
            "warmup_tasks": [] if joins else None, "process_id": f"p-{member}" if joins else None,
            "user_endpoint": None, "client_tags": None, "task_offsets": None,
            "task_end_offsets": None, "shutdown_application": False,
        }  # fmt: skip
        fields.update(changes)
        if label is None:
            return self.quietly(BEAT, 0, **fields)
        return self.ask(f"beat {label}", BEAT, 0, **fields)

    def describe(self, label: str, group: str) -> None:
        asked = {"group_ids": [group], "include_authorized_operations": False}
        self.ask(f"describe {label}", DESCRIBE, 0, **asked)

    def until_topics_exist(self, group: str, epoch: int) -> int:
        """Heartbeats until nothing is missing any more; the member's epoch."""
        give_up = time.monotonic() + DEADLINE_S
        while True:
            answer = self.beat(None, group, member_epoch=epoch)
            epoch = answer.member_epoch or epoch
            if not answer.status:
                return int(epoch)
            assert time.monotonic() < give_up, vars(answer)

    def close(self) -> None:
        self._questions.close()


def _comparable(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _comparable(one) for name, one in sorted(vars(value).items())}
    if isinstance(value, list | tuple):
        return sorted((_comparable(one) for one in value), key=repr)
    if isinstance(value, str) and value.startswith(MISSING):
        return MISSING + ", ".join(sorted(value.removeprefix(MISSING).split(", ")))
    return value


def _is_loading(answer: Any) -> bool:
    if isinstance(answer, Struct):
        fields = vars(answer)
        return fields.get("error_code") in NOT_READY or _is_loading(list(fields.values()))
    return isinstance(answer, list | tuple) and any(map(_is_loading, answer))


def play(server: Server) -> list[tuple[str, Any]]:
    for name, partitions in TOPICS.items():
        create_topic(server, name, partitions=partitions)
    run = Run(server)
    try:
        give_up = time.monotonic() + DEADLINE_S
        while run.quietly(FIND, 6, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code:
            assert time.monotonic() < give_up
        _refusals(run)
        _membership(run)
        _topics_of_an_application(run)
        _other_protocols(run)
        _generated(run, random.Random(11))
        return run.said
    finally:
        run.close()


def _refusals(run: Run) -> None:
    refused: dict[str, dict[str, Any]] = {
        "no member": {"member_id": ""},
        "blank member": {"member_id": "  "},
        "no group": {"group_id": ""},
        "blank rack": {"rack_id": ""},
        "no rebalance timeout": {"rebalance_timeout": -1},
        "no active": {"active_tasks": None},
        "active": {"active_tasks": [Struct(subtopology_id="0", partitions=[0])]},
        "standby": {"standby_tasks": [Struct(subtopology_id="0", partitions=[0])]},
        "warmup": {"warmup_tasks": [Struct(subtopology_id="0", partitions=[0])]},
        "no topology": {"topology": None},
        "static": {"instance_id": "i"},
        "offsets": {"task_offsets": []},
        "end offsets": {"task_end_offsets": []},
        "regex": {"topology": topology(subtopology("0", "two", source_topic_regex=["a.*"]))},
        "changelog with partitions": {
            "topology": topology(subtopology("0", "two", state_changelog_topics=[topic("c", 3)]))
        },
        "internal topic": {"topology": topology(subtopology("0", "__consumer_offsets"))},
        "invalid topic": {"topology": topology(subtopology("0", "a b", "ü"))},
        "unknown group": {"member_epoch": 3, "group_id": "nobody"},
        "unknown group leaves": {"member_epoch": -1, "group_id": "nobody"},
        "static leave": {"member_epoch": -2},
        "epoch": {"member_epoch": -3},
        "topology later": {"member_epoch": 4, "topology": PLAIN},
        "one role": {"member_epoch": 4, "active_tasks": []},
    }
    for label, changes in refused.items():
        run.beat(label, "refused", **changes)


def _membership(run: Run) -> None:
    epoch = run.beat("joins", "g").member_epoch
    run.beat("stays", "g", member_epoch=epoch)
    run.beat("future", "g", member_epoch=epoch + 1)
    run.beat("past", "g", member_epoch=epoch - 1)
    run.beat("joins again", "g")
    run.beat("stranger", "g", "x", member_epoch=epoch)
    run.beat("another topology", "g", "x", topology=topology(subtopology("0", "three")))
    run.beat("another epoch", "g", "x", topology=topology(subtopology("0", "two"), epoch=1))
    bad = [Struct(subtopology_id="0", partitions=[2])]
    run.beat(
        "task out of range", "g", member_epoch=epoch, active_tasks=bad, standby_tasks=[],
        warmup_tasks=[],
    )  # fmt: skip
    bad = [Struct(subtopology_id="7", partitions=[0])]
    run.beat(
        "unknown subtopology", "g", member_epoch=epoch, active_tasks=bad, standby_tasks=[],
        warmup_tasks=[],
    )  # fmt: skip
    run.describe("stable", "g")
    second = run.beat("a second joins", "g", "n").member_epoch
    first = run.beat("the first gives back", "g", member_epoch=epoch)
    run.describe("reconciling", "g")
    kept = first.active_tasks
    epoch = run.beat(
        "gave back", "g", member_epoch=first.member_epoch, active_tasks=kept, standby_tasks=[],
        warmup_tasks=[],
    ).member_epoch  # fmt: skip
    run.beat("the second takes", "g", "n", member_epoch=second)
    run.describe("stable again", "g")
    endpoint = Struct(host="here", port=8080)
    run.beat("endpoint", "g", member_epoch=epoch, user_endpoint=endpoint)
    run.beat("tags", "g", member_epoch=epoch, client_tags=[Struct(key="zone", value="a")])
    run.beat("the second leaves", "g", "n", member_epoch=-1)
    run.beat("shutdown", "g", member_epoch=epoch, shutdown_application=True)
    run.ask("list", LIST, 5, states_filter=[], types_filter=["streams"])
    run.ask("as classic", DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False)
    run.ask(
        "as consumer", DESCRIBE_CONSUMER, 1, group_ids=["g"], include_authorized_operations=False
    )
    run.ask("delete with members", DELETE_GROUPS, 2, groups_names=["g"])
    run.beat("leaves", "g", member_epoch=-1)
    run.describe("empty", "g")
    run.ask("delete", DELETE_GROUPS, 2, groups_names=["g"])
    run.describe("deleted", "g")


def _topics_of_an_application(run: Run) -> None:
    """Internal topics are created; then a group is ready."""
    counting = topology(
        subtopology("0", "three", repartition_sink_topics=["app-by-word"]),
        subtopology(
            "1", state_changelog_topics=[topic("app-store", cleanup_policy="compact")],
            repartition_source_topics=[topic("app-by-word", segment_bytes="2000000")],
        ),
    )  # fmt: skip
    epoch = run.beat("missing topics", "app", topology=counting).member_epoch
    run.describe("not ready", "app")
    run.until_topics_exist("app", epoch)
    asked = [Struct(topic_id=None, name=name) for name in ("app-by-word", "app-store")]
    found = run.quietly(
        METADATA, 13, topics=asked, allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )  # fmt: skip
    run.said.append(("created", sorted((t.name, len(t.partitions)) for t in found.topics)))
    run.said.append(("state", _state(run, "app")))
    run.beat(
        "missing sources", "late", topology=topology(subtopology("0", "b", "a", "two", "c", "d"))
    )
    run.describe("missing sources", "late")


def _state(run: Run, group: str) -> tuple[str, Any]:
    answer = run.quietly(DESCRIBE, 0, group_ids=[group], include_authorized_operations=False)
    described = answer.groups[0]
    return described.group_state, _comparable(described.topology)


def _other_protocols(run: Run) -> None:
    """Offsets of members, and members of other protocols."""
    epoch = run.beat("joins", "offsets").member_epoch

    def commit(label: str, member: str, generation: int, name: str = "two") -> None:
        partition = Struct(
            partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=""
        )
        run.ask(
            f"commit {label}", COMMIT, 9, group_id="offsets",
            generation_id_or_member_epoch=generation, member_id=member, group_instance_id=None,
            topics=[Struct(name=name, partitions=[partition])],
        )  # fmt: skip

    commit("member", "m", epoch)
    commit("future", "m", epoch + 1)
    commit("stranger", "x", epoch)
    commit("admin", "", -1)
    run.beat("a setting changes", "offsets", member_epoch=epoch, rack_id="r")
    commit("older, kept", "m", epoch)
    commit("older, other topic", "m", epoch, "four")
    for member, at in ((None, -1), ("m", epoch), ("x", epoch), ("m", epoch + 9)):
        run.ask(
            f"fetch offsets {member} {at}", FETCH_OFFSETS, 9, require_stable=False,
            groups=[Struct(group_id="offsets", member_id=member, member_epoch=at,
                           topics=[Struct(name="two", partition_indexes=[0])])],
        )  # fmt: skip
    run.ask(
        "a consumer joins", CONSUMER_BEAT, 1, group_id="offsets", member_id="c", member_epoch=0,
        instance_id=None, rack_id=None, rebalance_timeout=1000, subscribed_topic_names=["two"],
        subscribed_topic_regex=None, server_assignor=None, topic_partitions=[],
    )  # fmt: skip
    joined = {
        "session_timeout": 10_000, "rebalance_timeout": 10_000, "group_instance_id": None,
        "protocol_type": "consumer", "reason": None,
        "protocols": [Struct(name="range", metadata=b"")],
    }  # fmt: skip
    run.ask("a classic member joins", JOIN, 9, group_id="offsets", member_id="", **joined)


def _generated(run: Run, rng: random.Random) -> None:
    """Topologies of two subtopologies over existing and new topics; many are refused."""
    names = [*TOPICS, "app-by-word", "new"]
    for number in range(GENERATED):
        group = f"made-{number}"
        sources = rng.sample(names, rng.randint(0, 2))
        repartitioned = [
            topic(f"{group}-r{n}", rng.choice((0, 0, 2, 3))) for n in range(rng.randint(0, 2))
        ]
        sinks = [one.name for one in repartitioned if rng.random() < 0.8]
        copartitioned = [together(
            list(range(rng.randint(0, len(sources)))),
            list(range(rng.randint(0, len(repartitioned)))),
        )] if rng.random() < 0.6 and sources else []  # fmt: skip
        made = topology(
            subtopology("0", *rng.sample(names[:4], 1), repartition_sink_topics=sinks),
            subtopology(
                "1", *sources, repartition_source_topics=repartitioned,
                copartition_groups=copartitioned,
                state_changelog_topics=[topic(f"{group}-c")] if rng.random() < 0.5 else [],
            ),
            epoch=rng.choice((0, 0, 3)),
        )  # fmt: skip
        answer = run.beat(None, group, topology=made)
        run.said.append((f"generated {number} {made}", _generally(answer)))


UNKNOWN_SERVER_ERROR, INVALID_TOPOLOGY = -1, 130


def _generally(answer: Any) -> Any:
    """Kafka fails without a reason on topologies that ours calls invalid; of several mistakes it
    names the one that its hash maps have first."""
    code = answer.error_code
    if code == UNKNOWN_SERVER_ERROR:
        code = INVALID_TOPOLOGY
    statuses = sorted(one.status_code for one in answer.status or ())
    tasks = None if answer.active_tasks is None else _comparable(answer.active_tasks)
    return int(code), answer.member_epoch, statuses, tasks


def test_both_say_the_same() -> None:
    with RunningApacheKafka(SETTINGS) as apache:
        expected = play(apache)
    with RunningBroker(SETTINGS) as ours:
        found = play(ours)
    assert [label for label, _ in found] == [label for label, _ in expected]
    different = [
        f"{label}\n  ours:   {mine}\n  apache: {theirs}"
        for (label, mine), (_, theirs) in zip(found, expected, strict=True)
        if mine != theirs
    ]
    assert not different, "\n".join(different)
