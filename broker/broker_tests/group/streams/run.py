"""One run of a streams group: members that come, go, die and lose answers, at a coordinator that
fails over. No broker, no clock: the production shard, and members as models.

A member processes an active task from the answer that gives it until the answer that takes it. What
must hold, in every step and at the end:

    no two members process a task           a process has a task once, in one role
    after a while without faults the group  shares differ by one, copies are on other processes
    is stable, every task is processed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Any

from broker_tests.group.consumer.support import image_of
from broker_tests.group.support import GROUP, Bench
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.streams import requests
from odradek_broker.group.streams.config import StreamsGroupConfig
from odradek_broker.group.streams.group import STABLE, StreamsGroup
from odradek_broker.group.streams.tasks import Task, each, of_structs, structs_of
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

TOPICS = {"in": 5, "app-by-word": 3, "app-log": 3}
TASKS = [Task("0", n) for n in range(5)] + [Task("1", n) for n in range(3)]
STATEFUL = [task for task in TASKS if task.subtopology == "1"]
SESSION_MS, REBALANCE_MS, BEAT_MS = 6_000, 4_000, 1_000
SILENT_MS_MAX = 1_500  # of a member that lives
STEPS, QUIET_ROUNDS = 150, 25
PROCESSES = ("p1", "p2", "p3")
MEMBERS_MAX = 5


class RunError(Exception):
    """An invariant does not hold."""


def topology() -> Struct:
    def topic(name: str) -> Struct:
        return Struct(name=name, partitions=0, replication_factor=0, topic_configs=[])

    first = Struct(
        subtopology_id="0", source_topics=["in"], source_topic_regex=[], state_changelog_topics=[],
        repartition_sink_topics=["app-by-word"], repartition_source_topics=[],
        copartition_groups=[],
    )  # fmt: skip
    by_word = topic("app-by-word")
    by_word.partitions = 3
    second = Struct(
        subtopology_id="1", source_topics=[], source_topic_regex=[],
        state_changelog_topics=[topic("app-log")], repartition_sink_topics=[],
        repartition_source_topics=[by_word], copartition_groups=[],
    )  # fmt: skip
    return Struct(epoch=0, subtopologies=[first, second])


@dataclass
class Member:
    """A thread of Kafka Streams. `owned` is what it works on; `asked` what it was last told."""

    member_id: str
    process_id: str
    epoch: int = 0
    owned: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    asked: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    to_report: bool = True
    beat_ms: float = 0.0

    def active(self) -> set[Task]:
        return set(each(self.owned.get("active_tasks", {})))


ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


class StreamsRun:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.standbys = self.rng.choice((0, 1, 2))
        config = StreamsGroupConfig(
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=BEAT_MS,
            num_standby_replicas=self.standbys,
            initial_rebalance_delay_ms=self.rng.choice((0, 3_000)),
            assignment_interval_ms=self.rng.choice((0, 2_000)),
        )
        self.bench = Bench(GroupConfig(streams=config), seed)
        self.image = image_of(TOPICS)
        self.bench.shard.image = self.image
        self.members: list[Member] = []
        self._born = 0
        self.handovers = 0

    def run(self) -> str | None:
        """The invariant that failed; None if all held."""
        try:
            for _ in range(STEPS):
                self._step()
                self._check()
            self._quiet()
        except (RunError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    # --- faults -----------------------------------------------------------------------------------

    def _step(self) -> None:
        drawn = self.rng.random()
        alive = self.members
        for member in alive:
            if self.bench.now_ms - member.beat_ms > SILENT_MS_MAX:
                self._beat(member)
        if drawn < 0.1 and len(alive) < MEMBERS_MAX:
            self._born += 1
            member = Member(f"m{self._born}", self.rng.choice(PROCESSES))
            self.members.append(member)
            self._beat(member)
        elif drawn < 0.13 and alive:
            self._leave(self.rng.choice(alive))
        elif drawn < 0.16 and alive:
            alive.remove(self.rng.choice(alive))  # it dies
        elif drawn < 0.19:
            self._fail_over()
        elif drawn < 0.21:
            grown = {**TOPICS, "other": self.rng.randint(1, 9)}
            self.image = self.bench.shard.image = image_of(grown, self.image.offset + 1)
        elif alive:
            self._beat(self.rng.choice(alive), lost=self.rng.random() < 0.1)
        self.bench.pass_time(self.rng.choice((0, 50, 300)))

    def _fail_over(self) -> None:
        before = self.bench.shard.groups.get(GROUP)
        self.bench.fail_over()
        self.bench.shard.image = self.image
        after = self.bench.shard.groups.get(GROUP)
        if not isinstance(before, StreamsGroup):
            return
        assert isinstance(after, StreamsGroup)
        for name in ("group_epoch", "target_epoch", "members", "target", "topology"):
            if getattr(before, name) != getattr(after, name):
                raise RunError(f"a new coordinator does not know {name}")

    # --- requests ---------------------------------------------------------------------------------

    def _beat(self, member: Member, *, lost: bool = False) -> None:
        joins = member.epoch == 0
        full = joins or member.to_report
        member.beat_ms = self.bench.now_ms
        owned = {role: structs_of(member.owned.get(role, {})) if full else None for role in ROLES}
        answer = self._ask(member, topology() if joins else None, owned)
        if isinstance(answer, KafkaError):
            # It is fenced: it gives everything up, and joins again.
            member.epoch, member.owned, member.asked, member.to_report = 0, {}, {}, True
            return
        if lost:
            member.to_report = True
            return
        member.epoch, member.to_report = answer.member_epoch, False
        if answer.active_tasks is not None:
            told = {role: of_structs(getattr(answer, role)) for role in ROLES}
            lost_tasks = member.active() - set(each(told["active_tasks"]))
            self.handovers += len(lost_tasks)
            # It stops what it lost, before the next heartbeat tells so.
            member.owned = member.asked = told
            member.to_report = True

    def _ask(self, member: Member, sent: Struct | None, owned: dict[str, Any]) -> Any:
        request = Struct(
            group_id=GROUP, member_id=member.member_id, member_epoch=member.epoch,
            endpoint_information_epoch=0, instance_id=None, rack_id=None,
            rebalance_timeout=REBALANCE_MS if sent is not None else -1, topology=sent,
            process_id=member.process_id if sent is not None else None, user_endpoint=None,
            client_tags=None, task_offsets=None, task_end_offsets=None,
            shutdown_application=False, **owned,
        )  # fmt: skip
        name = member.member_id
        self.bench.decide(
            name,
            lambda shard, now: requests.group_heartbeat(shard, now, request, "client", "/host"),
        )
        answer = self.bench.last(name)
        return answer if isinstance(answer, KafkaError) else answer.response

    def _leave(self, member: Member) -> None:
        self.members.remove(member)
        if member.epoch:
            member.epoch = -1
            self._ask(member, None, dict.fromkeys(ROLES))

    # --- what must hold ---------------------------------------------------------------------------

    def _group(self) -> StreamsGroup | None:
        group = self.bench.shard.groups.get(GROUP)
        return group if isinstance(group, StreamsGroup) else None

    def _check(self) -> None:
        group = self._group()
        if group is not None:
            group.validate()
        at: dict[Task, str] = {}
        for member in self.members:
            for task in member.active():
                other = at.setdefault(task, member.member_id)
                if other != member.member_id:
                    raise RunError(f"{task} is processed by {other} and {member.member_id}")

    def _quiet(self) -> None:
        """No faults any more: everybody sends heartbeats until nothing changes."""
        if not self.members:
            self.members.append(Member("last", "p1"))
        for _ in range(QUIET_ROUNDS):
            for member in self.members:
                self._beat(member)
                self._check()
            self.bench.pass_time(BEAT_MS)
        group = self._group()
        if group is None or group.state_name != STABLE:
            raise RunError(f"the group is {group.state_name if group else 'gone'} in the end")
        if group.members.keys() != {one.member_id for one in self.members}:
            raise RunError(f"members {sorted(group.members)} are not those that live")
        self._check_assignment()

    def _check_assignment(self) -> None:
        share = ceil(len(TASKS) / len(self.members))
        processed: set[Task] = set()
        for member in self.members:
            processed |= member.active()
            if len(member.active()) > share:
                raise RunError(f"{member.member_id} has {len(member.active())}, not {share}")
        if processed != set(TASKS):
            raise RunError(f"nobody processes {sorted(set(TASKS) - processed)}")
        processes = {one.process_id for one in self.members}
        for task in STATEFUL:
            active = next(one.process_id for one in self.members if task in one.active())
            copies = [
                one.process_id
                for one in self.members
                if task in set(each(one.owned.get("standby_tasks", {})))
            ]
            wanted = min(self.standbys, len(processes) - 1)
            if len(set(copies) - {active}) != wanted or len(copies) != wanted:
                raise RunError(f"{task} is at {active}; copies at {copies}, {wanted} expected")


def failure_of(seed: int) -> str | None:
    return StreamsRun(seed).run()
