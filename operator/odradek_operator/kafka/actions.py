"""The actions of a plan. Every action carries its Reason, which the Event, the log line and
`odradek plan` show.

`Wait` and `Refuse` do nothing: they report a pending condition, or a refused change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek_operator.kafka.placement import is_controller
from odradek_operator.reason import Reason as Reason  # part of every action
from odradek_protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class StartBrokers:
    brokers: tuple[int, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Restart:
    brokers: tuple[int, ...]
    reason: Reason
    # Partitions that cannot be written during the restart: no other replica can take over.
    unavailable: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Elect:
    partitions: tuple[TopicPartition, ...]
    reason: Reason
    subject: str = ""  # "namespace/name" of a KafkaRebalance; empty: the cluster itself


@dataclass(frozen=True, slots=True)
class Reassign:
    moves: Mapping[TopicPartition, tuple[int, ...]]
    reason: Reason
    subject: str = ""  # "namespace/name" of a KafkaRebalance; empty: the cluster itself


@dataclass(frozen=True, slots=True)
class CancelMoves:
    """Partitions keep their old replicas."""

    partitions: tuple[TopicPartition, ...]
    reason: Reason
    subject: str = ""


@dataclass(frozen=True, slots=True)
class MoveDirectories:
    """Replicas move within their brokers: broker → replica → directory."""

    moves: Mapping[int, Mapping[TopicPartition, str]]
    reason: Reason
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limits the replication of these replicas, before they move."""

    brokers: tuple[int, ...]
    rate: int  # bytes per second and broker, in each direction
    topics: Mapping[str, Mapping[str, str]]
    reason: Reason
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Unthrottle:
    brokers: tuple[int, ...]
    topics: tuple[str, ...]
    reason: Reason
    subject: str = ""


@dataclass(frozen=True, slots=True)
class AlterBrokerConfig:
    """For all brokers; None removes a value."""

    changes: Mapping[str, str | None]
    reason: Reason


@dataclass(frozen=True, slots=True)
class AddVoter:
    broker: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    broker: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class StopBroker:
    broker: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    broker: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    """Removes a stopped broker; its volumes only with `delete_volumes`."""

    broker: int
    delete_volumes: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    name: str
    partitions: int  # -1: the broker's default
    replication_factor: int  # -1: the broker's default
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopics:
    topics: tuple[TopicToCreate, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class GrowTopics:
    partitions: Mapping[str, int]
    reason: Reason


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs:
    changes: Mapping[str, Mapping[str, str | None]]
    reason: Reason


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    topics: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    reason: Reason
    brokers: tuple[int, ...] = ()
    partition: TopicPartition | None = None
    since: float = 0.0  # unix seconds, where it is known
    subject: str = ""  # of a KafkaRebalance


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Reason
    subject: str = ""  # "namespace/name" of a Topic; empty: the cluster itself


Action: TypeAlias = (
    StartBrokers
    | Restart
    | Elect
    | Reassign
    | CancelMoves
    | MoveDirectories
    | Throttle
    | Unthrottle
    | AlterBrokerConfig
    | AddVoter
    | RemoveVoter
    | StopBroker
    | UnregisterBroker
    | RemoveBroker
    | CreateTopics
    | GrowTopics
    | AlterTopicConfigs
    | DeleteTopics
    | Wait
    | Refuse
)
Plan: TypeAlias = tuple[Action, ...]
# The actions of a KafkaRebalance; a Wait is not one of them.
Rebalancing: TypeAlias = Elect | Reassign | CancelMoves | MoveDirectories | Throttle | Unthrottle

NAMES_MAX = 5  # names in a sentence; the others are counted


def listed(names: Iterable[object], what: str = "") -> str:
    """ "a, b and 3 more"; for brokers: listed([0, 3], "broker") → "brokers 0 and 3"."""
    all_names = [str(name) for name in names]
    more = len(all_names) - NAMES_MAX
    shown = all_names[:NAMES_MAX] + ([f"{more} more"] if more > 0 else [])
    text = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    if not what:
        return text
    return f"{what}{'s' if len(all_names) > 1 else ''} {text}"


def named(nodes: Iterable[int]) -> str:
    """ "brokers 0 and 3", "controller 10001"; never both kinds in one list."""
    ids = list(nodes)
    return listed(ids, "controller" if ids and is_controller(ids[0]) else "broker")
