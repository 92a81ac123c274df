"""Which broker a request goes to, and which error codes mean that it was the wrong one.

client.call(Controller(), ApiKey.CREATE_TOPICS, request)
client.call(Coordinator(CoordinatorType.GROUP, "billing"), ApiKey.OFFSET_FETCH, request)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.settings import Address
from odradek_protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient

# The partition's leader changed, or is being elected.
LEADER_MOVED = frozenset({
    ErrorCode.not_leader_or_follower.value,
    ErrorCode.leader_not_available.value,
    ErrorCode.replica_not_available.value,
    ErrorCode.fenced_leader_epoch.value,
    ErrorCode.unknown_leader_epoch.value,
})  # fmt: skip
# DescribeQuorum says NOT_LEADER_OR_FOLLOWER where others say NOT_CONTROLLER.
CONTROLLER_MOVED = frozenset({ErrorCode.not_controller.value, *LEADER_MOVED})
COORDINATOR_MOVED = frozenset({
    ErrorCode.not_coordinator.value,
    ErrorCode.coordinator_not_available.value,
    ErrorCode.coordinator_load_in_progress.value,
    ErrorCode.unstable_offset_commit.value,  # a transaction's markers are being written
})  # fmt: skip


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Route(Protocol):
    @property
    def moved(self) -> frozenset[int]:
        """Error codes after which the broker is looked up again and the request repeated."""
        ...

    @property
    def can_move(self) -> bool:
        """Whether another broker takes over when this one cannot be reached."""
        ...

    def find(self, client: KafkaClient, deadline: Deadline) -> Address: ...

    def forget(self, client: KafkaClient) -> None:
        """Forgets the location: the broker that was found is the wrong one."""
        ...


@dataclass(frozen=True)
class AnyBroker:
    moved: ClassVar[frozenset[int]] = frozenset()
    can_move: ClassVar[bool] = True

    def find(self, client: KafkaClient, deadline: Deadline) -> Address:
        return client.find_any(deadline)

    def forget(self, client: KafkaClient) -> None:
        pass


@dataclass(frozen=True)
class Controller:
    """The broker that metadata names as the controller; brokers also forward such requests."""

    moved: ClassVar[frozenset[int]] = CONTROLLER_MOVED
    can_move: ClassVar[bool] = True

    def find(self, client: KafkaClient, deadline: Deadline) -> Address:
        return client.find_controller(deadline)

    def forget(self, client: KafkaClient) -> None:
        client.forget_brokers()


@dataclass(frozen=True)
class Broker:
    """One broker, by its id."""

    broker_id: int
    moved: ClassVar[frozenset[int]] = frozenset()
    can_move: ClassVar[bool] = False

    def find(self, client: KafkaClient, deadline: Deadline) -> Address:
        return client.find_broker(self.broker_id, deadline)

    def forget(self, client: KafkaClient) -> None:
        client.forget_brokers()


@dataclass(frozen=True)
class Coordinator:
    """The coordinator of a group or of a transactional id."""

    kind: CoordinatorType
    key: str
    moved: ClassVar[frozenset[int]] = COORDINATOR_MOVED
    can_move: ClassVar[bool] = True

    def find(self, client: KafkaClient, deadline: Deadline) -> Address:
        return client.find_coordinator(self.kind, self.key, deadline).address

    def forget(self, client: KafkaClient) -> None:
        client.forget_coordinator(self.kind, self.key)
