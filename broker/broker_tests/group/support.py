"""A shard with a log in memory, and members that send it requests: no broker, clock or asyncio."""

from collections.abc import Callable
from random import Random
from typing import Any

from broker_tests.coordinator.support import ShardLog
from odradek_broker.coordinator.host import ShardHost
from odradek_broker.coordinator.loading import batches_of, replay_batch
from odradek_broker.coordinator.result import CoordinatorResult, Moment, Producer
from odradek_broker.group import classic_requests, offset_requests
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.classic_join import Join
from odradek_broker.group.classic_member import Protocol
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.kinds import new_shard
from odradek_broker.group.offset_requests import CommitRequest
from odradek_broker.group.shard import GroupShard
from odradek_broker.log.control import build_marker
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

WALL_MS = 1_700_000_000_000
GROUP = "g"
SUBSCRIPTION = b"\0\0" + b"\0\0\0\x01" + b"\0\x01a" + b"\xff\xff\xff\xff"


class Bench:
    """`answers` has the responses to each request, by the name with which it was sent."""

    def __init__(self, config: GroupConfig | None = None, seed: int = 1) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.rng = Random(seed)
        self.log = ShardLog()
        self.now_ms = 0.0
        self.answers: dict[str, list[Any]] = {}
        self.host = self._host()

    def _host(self) -> ShardHost[GroupShard]:
        shard = new_shard(lambda: self.config, self.rng)
        return ShardHost(shard, self.log)

    @property
    def shard(self) -> GroupShard:
        return self.host.shard

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + int(self.now_ms))

    def decide(
        self, name: str, decision: Callable[[GroupShard, Moment], CoordinatorResult[Any]]
    ) -> None:
        responses = self.answers.setdefault(name, [])
        try:
            result = decision(self.shard, self.now)
            self.host.settle(result, responses.append, self.now)
        except KafkaError as error:
            responses.append(error)
        self.host.committed(self.log.end)
        self.shard.validate()

    def last(self, name: str) -> Any:
        return self.answers[name][-1]

    def pass_time(self, ms: float) -> None:
        """Timers fire when they are due, not later."""
        until = self.now_ms + ms
        while self.shard.next_deadline_ms() <= until:
            self.now_ms = max(self.now_ms, self.shard.next_deadline_ms())
            self.host.settle(self.shard.expire(self.now), None, self.now)
            self.host.committed(self.log.end)
            self.shard.validate()
        self.now_ms = until

    def fail_over(self) -> GroupShard:
        """Another broker loads the shard from the log; returns the old shard."""
        old = self.shard
        self.host.fail(KafkaError(ErrorCode.not_coordinator))
        self.host = self._host()
        for chunk in self.log.batches:
            for header, batch in batches_of(chunk):
                replay_batch(self.shard, header, batch)
        self.host.last_offset = self.log.end - 1
        self.host.high_watermark = self.log.end
        self.host.settle(self.shard.loaded(1, EMPTY_IMAGE, self.now), None, self.now)
        self.host.committed(self.log.end)
        self.shard.validate()
        return old

    # --- requests -------------------------------------------------------------------------------

    def join(self, name: str, member_id: str = "", **changed: Any) -> None:
        request = Join(
            **{
                "group_id": GROUP,
                "member_id": member_id,
                "group_instance_id": None,
                "client_id": name,
                "client_host": "/127.0.0.1",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 20_000,
                "protocol_type": "consumer",
                "protocols": (Protocol("range", SUBSCRIPTION),),
                "version": 3,
                **changed,
            }
        )
        self.decide(name, lambda shard, now: classic_requests.join_group(shard, now, request))

    def sync(
        self,
        name: str,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
    ) -> None:
        request = Struct(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=None,
            generation_id=generation,
            protocol_type=None,
            protocol_name=None,
            assignments=[Struct(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        self.decide(name, lambda shard, now: classic_requests.sync_group(shard, now, request))

    def beat(self, name: str, member_id: str, generation: int) -> None:
        request = Struct(
            group_id=GROUP, member_id=member_id, group_instance_id=None, generation_id=generation
        )
        self.decide(name, lambda shard, now: classic_requests.heartbeat(shard, now, request))

    def leave(self, name: str, member_id: str) -> None:
        members = [(member_id, None)]
        self.decide(
            name, lambda shard, now: classic_requests.leave_group(shard, now, GROUP, members)
        )

    def commit(self, name: str, offset: int, *, topic: str = "a", **fields: Any) -> None:
        producer: Producer | None = fields.pop("producer", None)
        request = CommitRequest(
            **{
                "group_id": GROUP,
                "member_id": "",
                "group_instance_id": None,
                "generation": -1,
                "offsets": [((topic, 0), offset, -1, "")],
                "transactional": producer is not None,
                **fields,
            }
        )
        responses = self.answers.setdefault(name, [])
        try:
            result = offset_requests.commit(self.shard, self.now, request)
            self.host.settle(result, responses.append, self.now, producer)
        except KafkaError as error:
            responses.append(error)
        self.host.committed(self.log.end)
        self.shard.validate()

    def marker(self, producer: Producer, *, committed: bool) -> None:
        batch = build_marker(producer.id, producer.epoch, EndTxnMarker(committed, 0), WALL_MS)
        offset = self.log.append(batch)
        self.shard.replay_end_transaction(producer.id, committed=committed)
        self.host.appended(offset, lambda _: None, None)
        self.host.committed(self.log.end)
        self.shard.validate()

    def offset(self, *, topic: str = "a", stable: bool = False) -> Any:
        (found,) = offset_requests.fetch(self.shard, GROUP, [(topic, 0)], require_stable=stable)
        if found.error:
            return found.error
        return found.value.offset if found.value else None
