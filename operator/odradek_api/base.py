"""Types that all Kinds share: spec and status bases, references, resources, rules and problems.

A spec is a frozen msgspec Struct in snake_case; in YAML its fields are camelCase. The same types
define the parser (parse.py) and the OpenAPI schema of the CRDs (crd.py), so that the API server,
`odradek plan` and the local runtime refuse the same manifests.

This module and pipeline/ need msgspec (and cronsim for schedules) and nothing else: they are part
of Spark's image. That is why odradek_api never imports lightkube, and why `quantity_bytes` below
reads only the spellings that the type `Quantity` allows; quantities that come from the API server
are read with lightkube's `parse_quantity` in odradek_operator/kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

GROUP = "odradek.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# Any new value: restart all brokers of a KafkaCluster, one step at a time; or a pipeline's driver.
RESTART_ANNOTATION = f"{GROUP}/restart"
LOCAL_PORT_ANNOTATION = f"{GROUP}/local-port"  # first port of the local runtime
LOCAL_REGISTRY_ANNOTATION = f"{GROUP}/local-schema-registry"  # port of its schema registry

Quantity = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")]
NonEmpty = Annotated[str, Meta(min_length=1)]
Factor = Annotated[int, Meta(ge=1, le=100)]
Port = Annotated[int, Meta(ge=1, le=65535)]
DnsLabel = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
TopicName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]+$", max_length=249)]
# Objects whose keys the schema does not list; the API server keeps unknown keys.
_KEEP = {"x-kubernetes-preserve-unknown-fields": True}
Settings = Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)]  # Kafka's: any name, any scalar
FreeForm = Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)]
AS_SET = {"x-kubernetes-list-type": "set"}  # the API server refuses duplicates

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTP", 1)}

S = TypeVar("S")


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of everything under `spec`: an unknown field is refused by its name."""


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of everything under `status`: fields with their default value are omitted."""


class Condition(Status, frozen=True, kw_only=True):
    """A condition as KEP-1623 defines it."""

    type: Annotated[str, Meta(description="Name of the condition, for example Ready.")]
    status: Annotated[str, Meta(description='"True", "False" or "Unknown".')]
    reason: Annotated[
        str, Meta(description="Machine-readable cause in CamelCase, for example BrokersNotReady.")
    ]
    message: Annotated[str, Meta(description="The cause in a sentence for people.")] = ""
    last_transition_time: Annotated[
        str, Meta(description="When `status` last changed, for example 2026-11-17T02:00:00Z.")
    ] = ""
    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this condition was computed from.")
    ] = 0


class ClusterRef(Spec, frozen=True, kw_only=True):
    """Refers to a KafkaCluster by name and namespace."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=253, description="metadata.name of the KafkaCluster."),
    ]
    namespace: Annotated[
        DnsLabel | None,
        Meta(
            description="Namespace of the KafkaCluster. Default: the namespace of this resource. "
            "A Topic may name another namespace only if that KafkaCluster lists the Topic's "
            "namespace in spec.topicNamespaces."
        ),
    ] = None

    def key(self, namespace: str) -> str:
        """ "namespace/name" of the cluster, for a reference in a resource of `namespace`."""
        return f"{self.namespace or namespace}/{self.name}"


@dataclass(frozen=True)
class Rule:
    """One CEL rule of a CRD and the same check in Python, where there is no API server.

    `holds(new, old)`: old is None when the resource is new. A rule with `oldSelf` in its CEL text
    restricts changes only.
    """

    cel: str  # empty: the schema itself expresses the rule to the API server
    message: str
    field: str  # the field it is about, relative to spec: "replication.factor"
    holds: Callable[[Any, Any | None], bool]


@dataclass(frozen=True)
class Resource(Generic[S]):
    """A parsed manifest. `source` is where it came from: "cluster.yaml", "default/main"."""

    kind: str
    name: str
    spec: S
    namespace: str = "default"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    uid: str = ""
    deleting: bool = False
    source: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Problem:
    """Why a manifest is refused: which resource, which field, and a sentence for people."""

    source: str
    subject: str  # "KafkaCluster default/main"
    field: str  # "spec.replication.factor"; empty if it is about the whole resource
    message: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.source, self.subject, self.field, self.message)))


class InvalidManifestError(Exception):
    """One or more problems; none of the given manifests is used."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def owner_reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """For metadata.ownerReferences: the object is deleted together with its controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def instant(at_s: float) -> str:
    """Unix seconds as Kubernetes writes a time: "2026-11-17T02:00:00Z"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def quantity_bytes(text: str) -> int:
    """A `Quantity` in bytes: "10Gi" → 10737418240."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]?i?)", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a quantity such as 10Gi")
    return int(float(match[1]) * _UNITS[match[2]])


def settings_text(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as Kafka and Spark write them: true, 60000, a,b."""
    return {name: _setting_text(value) for name, value in settings.items()}


def _setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(_setting_text, value))
    return str(value)
