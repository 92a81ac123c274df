"""The active controller of a simulated node: the production decisions over the simulated quorum.

Does what controller/service.py does with futures: decide, append to the metadata log, replay,
and respond when it is committed. Records travel by number (`Records`): their encoding is not
what is tested here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek_broker.controller.active import ActiveController, PeriodicTask, Term
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.model.principal import Principal
from odradek_broker.raft.types import ClientAppend
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset
from odradek_protocol.messages.struct import Struct

if TYPE_CHECKING:
    from broker_tests.sim.cluster_node import ClusterNode

TICK_MS = 40
CLUSTER_ID = "cluster"
Reply = Callable[[Struct], None]


class Records:
    """The records, by the number that the metadata logs have in place of their bytes."""

    def __init__(self) -> None:
        self._batches: list[Sequence[MetadataRecord]] = []

    def put(self, records: Sequence[MetadataRecord]) -> bytes:
        self._batches.append(records)
        return b"%d" % (len(self._batches) - 1)

    def get(self, data: bytes) -> Sequence[MetadataRecord]:
        return self._batches[int(data)]


class _Waiting(NamedTuple):
    last_offset: Offset
    reply: Reply
    response: Struct


class SimController:
    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.active: ActiveController | None = None
        self._predecessor: BrokerId | None = None
        self._waiting: deque[_Waiting] = deque()

    def became_leader(self, epoch: LeaderEpoch) -> None:
        node = self._node
        self.active = ActiveController(
            Term(epoch, node.metadata.image, node.clock.monotonic_ms()),
            node.settings,
            node.controller_rng,
            CLUSTER_ID,
            wall_ms=lambda: node.world.now_ms,
        )
        node.world.record(f"{node.node_id} is the controller in {epoch}")
        active = self.active
        records = active.first_records()
        try:
            if records:
                self._append(active, records)
        except KafkaError:
            return  # deposed while paused
        self._tick(active)
        if self._predecessor is not None:
            self.lost_contact(self._predecessor)
            self._predecessor = None

    def leader_changed(self, leader_id: int | None) -> None:
        if leader_id is not None and leader_id != self._node.node_id:
            self._predecessor = BrokerId(leader_id)

    def lost_contact(self, broker_id: int) -> None:
        if self.active is not None:
            self.active.lost_contact(BrokerId(broker_id), self._node.clock.monotonic_ms())

    def lost_leadership(self) -> None:
        self.active = None
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.reply(Struct(error_code=ErrorCode.not_controller))

    def committed(self, delta: MetadataDelta, _: LeaderEpoch) -> None:
        if self.active is not None:
            self.active.committed(delta)

    def answer_up_to(self, applied: Offset) -> None:
        while self._waiting and self._waiting[0].last_offset < applied:
            one = self._waiting.popleft()
            one.reply(one.response)

    def _tick(self, active: ActiveController) -> None:
        node = self._node
        if self.active is not active:
            return
        try:
            for task in PeriodicTask:
                result = active.decide_periodic(task, node.clock.monotonic_ms())
                if records := result.all_records():
                    self._append(active, records)
        except KafkaError:
            return  # deposed; LostLeadership follows
        node.world.after_on(node.node_id, TICK_MS, self._tick, active)

    # ------------------------------------------------------------ requests

    def handle(
        self, kind: str, request: Struct, reply: Reply, client: Principal | None = None
    ) -> None:
        node = self._node
        active = self.active
        if active is None:
            reply(Struct(error_code=ErrorCode.not_controller))
            return
        try:
            result = self._decide(active, kind, request, client)
            if result.records:
                self._append(active, result.records)
        except KafkaError as error:
            reply(Struct(error_code=error.code))
            return
        # A decision without records may depend on records that will never be committed.
        last_offset = active.latest.offset
        if last_offset <= node.metadata.image.offset:
            reply(result.response)
            return
        self._waiting.append(_Waiting(last_offset, reply, result.response))

    def _decide(
        self, active: ActiveController, kind: str, request: Struct, client: Principal | None
    ) -> ControllerResult[Struct]:
        if kind in ("register_broker", "heartbeat"):
            next_offset = self._node.log_end_offset
            now_ms = self._node.clock.monotonic_ms()
            decided: ControllerResult[Struct] = getattr(active, kind)(request, next_offset, now_ms)
        elif client is not None:
            decided = getattr(active, kind)(request, client)
        else:
            decided = getattr(active, kind)(request)
        return decided

    def _append(self, active: ActiveController, records: Sequence[MetadataRecord]) -> None:
        """A controller that was deposed while it was paused notices that here."""
        node = self._node
        if not node.can_append():
            raise KafkaError(ErrorCode.not_controller)
        last_offset = node.log_end_offset + len(records) - 1
        data = node.records.put(records)
        node.give(ClientAppend(active.epoch, len(records), data))
        if self.active is not active:
            raise KafkaError(ErrorCode.not_controller)
        assert node.log_end_offset == last_offset + 1, "neither appended nor refused"
        active.replay(records, last_offset)
