"""The states of all partitions and replicas, as the active controller sees them, in JSON.

    GET /v1/controller/partitions?topic=orders&state=OfflinePartition&limit=100
    GET /v1/controller/replicas?topic=orders&replica=3

    {"controller": 1, "epoch": 7, "counts": {"OnlinePartition": 12, "OfflinePartition": 1},
     "transitions": 31, "illegal_transitions": 0, "found": 1, "items": [
       {"topic": "orders", "topic_id": "…", "partition": 4, "state": "OfflinePartition",
        "since": "2026-05-04T10:11:12.345+00:00", "transitions": 3}]}

Read-only. `since` is the time of the last transition, or when this controller became active;
`transitions` of an item counts those since it did. A topic that is being deleted has no name any
more. Other brokers than the active controller answer 404 with its node id.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from odradek_broker.controller.context import ControllerContext
from odradek_broker.controller.partition_states import PartitionKey
from odradek_broker.controller.replica_states import PartitionAndReplica
from odradek_broker.controller.state_machine import StateMachine, Stay
from odradek_broker.log.dir_identity import uuid_to_text

# A cluster can have tens of thousands of replicas; listing them all would block the event loop.
ITEMS_MAX = 1_000

Json = dict[str, Any]


def partitions(context: ControllerContext, query: Mapping[str, str]) -> Json:
    return _describe(context, context.partitions, query)


def replicas(context: ControllerContext, query: Mapping[str, str]) -> Json:
    return _describe(context, context.replicas, query)


def _describe(
    context: ControllerContext, machine: StateMachine[Any, Any], query: Mapping[str, str]
) -> Json:
    limit = min(int(query.get("limit", ITEMS_MAX)), ITEMS_MAX)
    found = list(_matching(context, machine, query))
    found.sort(key=lambda entry: entry[0])
    return {
        "counts": {state.value: count for state, count in machine.count().items()},
        "transitions": machine.transitions,
        "illegal_transitions": machine.illegal_transitions,
        "found": len(found),
        "items": [_item(*entry) for entry in found[:limit]],
    }


def _matching(
    context: ControllerContext, machine: StateMachine[Any, Any], query: Mapping[str, str]
) -> Iterator[tuple[tuple[str, PartitionKey | PartitionAndReplica], Stay[Any]]]:
    topics = context.image.topics_by_id
    for key, stay in machine.stays().items():
        topic = topics.get(key.topic_id)
        name = topic.name if topic is not None else ""
        if query.get("topic", name) != name or query.get("state", stay.state.value) != (
            stay.state.value
        ):
            continue
        if isinstance(key, PartitionAndReplica) and query.get("replica", str(key.replica)) != (
            str(key.replica)
        ):
            continue
        yield (name, key), stay


def _item(where: tuple[str, PartitionKey | PartitionAndReplica], stay: Stay[Any]) -> Json:
    name, key = where
    item: Json = {
        "topic": name or None,
        "topic_id": uuid_to_text(key.topic_id),
        "partition": key.partition,
    }
    if isinstance(key, PartitionAndReplica):
        item["replica"] = key.replica
    item["state"] = stay.state.value
    item["since"] = datetime.fromtimestamp(stay.since_ms / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    item["transitions"] = stay.transitions
    return item
