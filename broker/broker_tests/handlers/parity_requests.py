"""Steps of the parity tests: one labelled request each."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek_protocol.messages.struct import Struct

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[int, str, str | None]


class Step(NamedTuple):
    label: str
    api_key: int
    version: int
    request: Struct
    reads: bool = False  # Apache Kafka may need a moment until a read shows the last write


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> Struct:
    return Struct(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replication_factor,
        assignments=[Struct(partition_index=i, broker_ids=list(b)) for i, b in assignments],
        configs=[Struct(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(label: str, *topics: Struct, version: int = 7, validate_only: bool = False) -> Step:
    request = Struct(topics=list(topics), timeout=10_000, validate_only=validate_only)
    return Step(f"create {label}", 19, version, request)


def grow(
    label: str,
    *topics: tuple[str, int, list[list[int]] | None],
    version: int = 3,
    validate_only: bool = False,
) -> Step:
    asked = [
        Struct(name=n, count=c, assignments=a and [Struct(broker_ids=b) for b in a])
        for n, c, a in topics
    ]
    request = Struct(topics=asked, timeout=10_000, validate_only=validate_only)
    return Step(f"grow {label}", 37, version, request)


def delete(label: str, version: int, *topics: str | UUID | None) -> Step:
    if version < 6:
        return Step(
            f"delete {label}", 20, version, Struct(topic_names=list(topics), timeout=10_000)
        )
    asked = [
        Struct(name=None, topic_id=t) if isinstance(t, UUID) else Struct(name=t, topic_id=None)
        for t in topics
    ]
    return Step(f"delete {label}", 20, version, Struct(topics=asked, timeout=10_000))


def change(label: str, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Step:
    resource = Struct(
        resource_type=kind,
        resource_name=name,
        configs=[Struct(name=k, config_operation=o, value=v) for o, k, v in changes],
    )
    request = Struct(resources=[resource], validate_only=validate_only)
    return Step(f"change {label}", 44, 1, request)


def replace(label: str, kind: int, name: str, **configs: str | None) -> Step:
    resource = Struct(
        resource_type=kind,
        resource_name=name,
        configs=[Struct(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )
    request = Struct(resources=[resource], validate_only=False)
    return Step(f"replace {label}", 33, 2, request)


def describe(
    label: str, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> Step:
    resource = Struct(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = Struct(resources=[resource], include_synonyms=synonyms, include_documentation=False)
    return Step(f"describe {label}", 32, version, request, reads=True)


def metadata(label: str, version: int, *names: str, auto: bool = False) -> Step:
    request = Struct(
        topics=[Struct(name=name, topic_id=None) for name in names],
        allow_auto_topic_creation=auto,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    return Step(f"metadata {label} v{version}", 3, version, request, reads=True)


def page(label: str, names: Sequence[str], limit: int = 2000, cursor: Struct | None = None) -> Step:
    request = Struct(
        topics=[Struct(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return Step(f"page {label}", 75, 0, request, reads=True)


def cursor(name: str, partition: int) -> Struct:
    return Struct(topic_name=name, partition_index=partition)


def read(label: str, api_key: int, version: int, **fields: object) -> Step:
    return Step(label, api_key, version, Struct(**fields), reads=True)
