"""Kafka's records of streams groups in `__consumer_offsets`: types 17 and 19 to 23.

17 group     epoch, hash of the topics, validated topology epoch, settings of the assignment
19 member    identity, topology epoch, process      22 tasks that a member has, and gives back
20 target    epoch and time of the assignment       23 topology
21 target of a member
"""

from collections.abc import Iterable, Mapping
from typing import Any

from odradek_broker.coordinator.record_schema import F
from odradek_broker.group.member_records import MemberRecord, RecordCodec, tombstone
from odradek_broker.group.streams.member import (
    NO_TAGS,
    MemberState,
    StreamsMember,
    UserEndpoint,
)
from odradek_broker.group.streams.tasks import (
    Epochs,
    OwnedTasks,
    Tasks,
    of_structs,
    structs_of,
)
from odradek_broker.group.streams.topology import Topology
from odradek_protocol.messages.struct import Struct

GROUP, MEMBER, TARGET, TARGET_MEMBER, CURRENT_MEMBER, TOPOLOGY = 17, 19, 20, 21, 22, 23
OF_MEMBER = frozenset((MEMBER, TARGET_MEMBER, CURRENT_MEMBER))

_NAMES = {
    GROUP: "StreamsGroupMetadata",
    MEMBER: "StreamsGroupMemberMetadata",
    TARGET: "StreamsGroupTargetAssignmentMetadata",
    TARGET_MEMBER: "StreamsGroupTargetAssignmentMember",
    CURRENT_MEMBER: "StreamsGroupCurrentMemberAssignment",
    TOPOLOGY: "StreamsGroupTopology",
}
_PAIR = (F("key", "string"), F("value", "string"))
_TASKS = (F("subtopology_id", "string"), F("partitions", "int32", is_array=True))
_TASKS_WITH_EPOCHS = (
    *_TASKS,
    F("assignment_epochs", "int32", is_array=True, nullable=True, tag=0, default=None),
)
_TOPIC = (
    F("name", "string"),
    F("partitions", "int32"),
    F("replication_factor", "int16"),
    F("topic_configs", "TopicConfig", items=_PAIR),
)


def _tasks(names: Iterable[str], fields: tuple[F, ...]) -> tuple[F, ...]:
    return tuple(F(name, "TaskIds", items=fields) for name in names)


_ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
_REVOKED = tuple(f"{name}_pending_revocation" for name in _ROLES)
_FIELDS: Mapping[int, tuple[F, ...]] = {
    GROUP: (
        F("epoch", "int32"),
        F("metadata_hash", "int64"),
        F("validated_topology_epoch", "int32", tag=0, default=-1),
        F("last_assignment_configs", "Config", items=_PAIR, nullable=True, tag=1, default=None),
    ),
    MEMBER: (
        F("instance_id", "string", nullable=True),
        F("rack_id", "string", nullable=True),
        F("client_id", "string"),
        F("client_host", "string"),
        F("rebalance_timeout_ms", "int32", default=-1),
        F("topology_epoch", "int32"),
        F("process_id", "string"),
        F(
            "user_endpoint",
            "Endpoint",
            items=(F("host", "string"), F("port", "uint16")),
            single=True,
            nullable=True,
        ),
        F("client_tags", "KeyValue", items=_PAIR),
    ),
    TARGET: (F("assignment_epoch", "int32"), F("assignment_timestamp", "int64", tag=0)),
    TARGET_MEMBER: _tasks(_ROLES, _TASKS),
    CURRENT_MEMBER: (
        F("member_epoch", "int32"),
        F("previous_member_epoch", "int32"),
        F("state", "int8"),
        *_tasks((*_ROLES, *_REVOKED), _TASKS_WITH_EPOCHS),
    ),
    TOPOLOGY: (
        F("epoch", "int32"),
        F(
            "subtopologies",
            "Subtopology",
            items=(
                F("subtopology_id", "string"),
                F("source_topics", "string", is_array=True),
                F("source_topic_regex", "string", is_array=True),
                F("state_changelog_topics", "TopicInfo", items=_TOPIC),
                F("repartition_sink_topics", "string", is_array=True),
                F("repartition_source_topics", "TopicInfo", items=_TOPIC),
                F(
                    "copartition_groups",
                    "CopartitionGroup",
                    items=tuple(
                        F(name, "int16", is_array=True)
                        for name in (
                            "source_topics",
                            "source_topic_regex",
                            "repartition_source_topics",
                        )
                    ),
                ),
            ),
        ),
    ),
}
_CODEC = RecordCodec(_NAMES, _FIELDS, OF_MEMBER)
KEYS = _CODEC.keys
encode, decode = _CODEC.encode, _CODEC.decode


def member_tombstones(group_id: str, member_id: str) -> list[MemberRecord]:
    return [
        tombstone(kind, group_id, member_id) for kind in (CURRENT_MEMBER, TARGET_MEMBER, MEMBER)
    ]


def group(
    group_id: str, epoch: int, metadata_hash: int, validated: int, configs: Mapping[str, str]
) -> MemberRecord:
    value = Struct(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated,
        last_assignment_configs=_pairs(configs),
    )
    return MemberRecord(GROUP, group_id, "", value)


def topology(group_id: str, value: Topology) -> MemberRecord:
    return MemberRecord(TOPOLOGY, group_id, "", value.struct())


def target(group_id: str, epoch: int, timestamp_ms: int) -> MemberRecord:
    value = Struct(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return MemberRecord(TARGET, group_id, "", value)


def target_member(group_id: str, member_id: str, tasks: Tasks) -> MemberRecord:
    value = Struct(**{name: structs_of(one) for name, one in zip(_ROLES, tasks, strict=True)})
    return MemberRecord(TARGET_MEMBER, group_id, member_id, value)


def tasks_of(value: Any) -> Tasks:
    return Tasks(*(of_structs(getattr(value, name)) for name in _ROLES))


def member(group_id: str, one: StreamsMember) -> MemberRecord:
    endpoint = one.user_endpoint
    value = Struct(
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        client_id=one.client_id,
        client_host=one.client_host,
        rebalance_timeout_ms=one.rebalance_timeout_ms,
        topology_epoch=one.topology_epoch,
        process_id=one.process_id,
        user_endpoint=Struct(host=endpoint.host, port=endpoint.port) if endpoint else None,
        client_tags=_pairs(one.client_tags),
    )
    return MemberRecord(MEMBER, group_id, one.member_id, value)


def described(value: Any) -> dict[str, Any]:
    """The fields of a member in record 19."""
    endpoint = value.user_endpoint
    return {
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "topology_epoch": value.topology_epoch,
        "process_id": value.process_id,
        "user_endpoint": UserEndpoint(endpoint.host, endpoint.port) if endpoint else None,
        "client_tags": {one.key: one.value for one in value.client_tags} or NO_TAGS,
    }


def current_member(group_id: str, one: StreamsMember) -> MemberRecord:
    fields: dict[str, Any] = {}
    for names, tasks in ((_ROLES, one.owned), (_REVOKED, one.revoking)):
        fields[names[0]] = _with_epochs(tasks.active)
        fields[names[1]] = structs_of(tasks.standby)
        fields[names[2]] = structs_of(tasks.warmup)
    value = Struct(
        member_epoch=one.member_epoch,
        previous_member_epoch=one.previous_member_epoch,
        state=int(one.state),
        **fields,
    )
    return MemberRecord(CURRENT_MEMBER, group_id, one.member_id, value)


def placed(value: Any) -> dict[str, Any]:
    """The fields of a member in record 22."""

    def owned(names: tuple[str, ...]) -> OwnedTasks:
        active = {one.subtopology_id: _epochs(one, value.member_epoch)
                  for one in getattr(value, names[0])}  # fmt: skip
        return OwnedTasks(
            active, of_structs(getattr(value, names[1])), of_structs(getattr(value, names[2]))
        )

    return {
        "member_epoch": value.member_epoch,
        "previous_member_epoch": value.previous_member_epoch,
        "state": MemberState(value.state),
        "owned": owned(_ROLES),
        "revoking": owned(_REVOKED),
    }


def _with_epochs(active: Epochs) -> list[Struct]:
    found = []
    for subtopology, epochs in sorted(active.items()):
        numbers = sorted(epochs)
        found.append(
            Struct(
                subtopology_id=subtopology,
                partitions=numbers,
                assignment_epochs=[epochs[number] for number in numbers],
            )
        )
    return found


def _epochs(found: Any, member_epoch: int) -> dict[int, int]:
    """A record of an older Kafka has no epochs: the member's is used."""
    epochs = found.assignment_epochs
    if epochs is None or len(epochs) != len(found.partitions):
        return dict.fromkeys(found.partitions, member_epoch)
    return dict(zip(found.partitions, epochs, strict=True))


def _pairs(values: Mapping[str, str]) -> list[Struct]:
    return [Struct(key=key, value=text) for key, text in sorted(values.items())]
