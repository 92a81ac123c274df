"""Custom resources at the API server: reading them, writing their status, and a finalizer.

A status is written as a merge patch of the differences, and not at all if there are none. Metadata
is changed only in the version that was read: on a conflict the next pass starts from the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from odradek_api.base import GROUP, VERSION, Status
from odradek_api.kinds import KINDS
from odradek_operator.kubernetes import names

Document = Mapping[str, Any]

KafkaCluster = create_namespaced_resource(
    GROUP, VERSION, "KafkaCluster", KINDS["KafkaCluster"].plural
)
Topic = create_namespaced_resource(GROUP, VERSION, "Topic", KINDS["Topic"].plural)
KafkaUser = create_namespaced_resource(GROUP, VERSION, "KafkaUser", KINDS["KafkaUser"].plural)
KafkaRebalance = create_namespaced_resource(
    GROUP, VERSION, "KafkaRebalance", KINDS["KafkaRebalance"].plural
)
SparkPipeline = create_namespaced_resource(
    GROUP, VERSION, "SparkPipeline", KINDS["SparkPipeline"].plural
)
SparkApplication = create_namespaced_resource(
    "sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"
)
RESOURCES: dict[str, Any] = {
    "KafkaCluster": KafkaCluster,
    "Topic": Topic,
    "KafkaUser": KafkaUser,
    "KafkaRebalance": KafkaRebalance,
    "SparkPipeline": SparkPipeline,
    "SparkApplication": SparkApplication,
}

FINALIZER = f"{GROUP}/topic"  # keeps a Topic until its topic is deleted from Kafka
USER_FINALIZER = f"{GROUP}/user"  # keeps a KafkaUser until Kafka has nothing of it any more
# Keeps a KafkaRebalance until its moves are stopped and its throttle is removed.
REBALANCE_FINALIZER = f"{GROUP}/rebalance"
NOT_FOUND, CONFLICT = 404, 409

S = TypeVar("S", bound=Status)


def served(client: Client, group_version: str) -> frozenset[str]:
    """Plural names of the resources of an API group; empty if there is none.

    Every authenticated account may ask. lightkube has no call for it; the parts it is made of do.
    """
    inner: Any = client._client
    answer = inner.send(inner._client.build_request("GET", f"/apis/{group_version}"))
    if answer.status_code == NOT_FOUND:
        return frozenset()
    answer.raise_for_status()
    return frozenset(str(one["name"]) for one in answer.json()["resources"])


class ChangedMeanwhileError(Exception):
    """The resource was deleted or changed since it was read, so the pass has to start again."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"{kind} {key} was changed or deleted during the pass")
        self.kind = kind
        self.key = key


def key_of(document: Document) -> str:
    return f"{document['metadata']['namespace']}/{document['metadata']['name']}"


def plain(found: Any) -> dict[str, Any]:
    """A document as the API server sent it."""
    made = dict(found)
    metadata = made.get("metadata")
    made["metadata"] = metadata if isinstance(metadata, Mapping) else found.metadata.to_dict()
    return made


def get(client: Client, kind: str, key: str) -> dict[str, Any] | None:
    namespace, _, name = key.partition("/")
    try:
        return plain(client.get(RESOURCES[kind], name, namespace=namespace))
    except ApiError as error:
        if error.status.code == NOT_FOUND:
            return None
        raise


def read_status(document: Document, kind: type[S]) -> S:
    """The last status; one that cannot be parsed counts as empty."""
    try:
        return msgspec.convert(document.get("status") or {}, kind)
    except msgspec.ValidationError:
        return kind()


def write_status(
    client: Client, document: Document, status: Status | Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the resource after the write, or None if the status did not differ."""
    change = difference(document.get("status") or {}, msgspec.to_builtins(status))
    if not change:
        return None
    kind = RESOURCES[document["kind"]].Status
    return _patch(client, kind, document, {"status": change})


def set_finalizer(
    client: Client, document: Document, *, held: bool, name: str = FINALIZER
) -> dict[str, Any] | None:
    """Adds or removes the finalizer; returns as `write_status`."""
    metadata = document["metadata"]
    before = list(metadata.get("finalizers") or ())
    if (name in before) == held:
        return None
    after = [*before, name] if held else [one for one in before if one != name]
    change = {"finalizers": after, "resourceVersion": metadata["resourceVersion"]}
    return _patch(client, RESOURCES[document["kind"]], document, {"metadata": change})


def _patch(client: Client, kind: Any, document: Document, change: Any) -> dict[str, Any] | None:
    metadata = document["metadata"]
    try:
        found = client.patch(
            kind,
            metadata["name"],
            change,
            namespace=metadata["namespace"],
            patch_type=PatchType.MERGE,
            field_manager=names.FIELD_MANAGER,
        )
    except ApiError as error:
        if error.status.code in (NOT_FOUND, CONFLICT):
            raise ChangedMeanwhileError(document["kind"], key_of(document)) from error
        raise
    return plain(found)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7386) from `before` to `after`; empty if they are equal."""
    change: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                change[name] = inner
        elif value != old:
            change[name] = value
    return change
