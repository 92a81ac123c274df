"""What all Kinds share: the base of their types, resources, rules and the sentences of refusals.

A spec is a frozen msgspec Struct in snake_case; in YAML its fields are camelCase. The same types
give the parser (parse.py) and the OpenAPI schema of the CRDs (crd.py), so that the API server,
`odradek plan` and the local runtime refuse the same manifests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

GROUP = "odradek.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

RESTART_ANNOTATION = f"{GROUP}/restart"  # any new value: restart all brokers, one step at a time
LOCAL_PORT_ANNOTATION = f"{GROUP}/local-port"  # first port of the local runtime

Quantity = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")]
NonEmpty = Annotated[str, Meta(min_length=1)]
Factor = Annotated[int, Meta(ge=1, le=100)]
Port = Annotated[int, Meta(ge=1, le=65535)]
DnsLabel = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
# Kafka's settings: any name, any scalar. The schema keeps what it does not know.
_KEEP = {"x-kubernetes-preserve-unknown-fields": True}
Settings = Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)]
FreeForm = Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)]
AS_SET = {"x-kubernetes-list-type": "set"}  # the API server refuses what is named twice

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTP", 1)}

S = TypeVar("S")


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of everything under `spec`: a field that is not known is refused by its name."""


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of everything under `status`: fields that say nothing are left out."""


class Condition(Status, frozen=True, kw_only=True):
    """KEP-1623. `status` is "True", "False" or "Unknown"; `reason` a word, `message` a sentence."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


@dataclass(frozen=True)
class Rule:
    """One CEL rule of a CRD and the same thing in Python, for those who have no API server.

    `holds(new, old)`: old is None when the resource is new. A rule with `oldSelf` in its CEL text
    is only about changes.
    """

    cel: str  # empty: the schema itself says it to the API server
    message: str
    field: str  # where it is about, relative to spec: "replication.factor"
    holds: Callable[[Any, Any | None], bool]


@dataclass(frozen=True)
class Resource(Generic[S]):
    """A parsed manifest. `source` says where it came from: "cluster.yaml", "default/main"."""

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
    """Why a manifest is refused: which resource, which field, and a sentence for a person."""

    source: str
    subject: str  # "KafkaCluster default/main"
    field: str  # "spec.replication.factor"; empty if it is about the whole
    message: str

    def __str__(self) -> str:
        about = f"{self.field}: " if self.field else ""
        where = f"{self.source}: " if self.source else ""
        who = f"{self.subject}: " if self.subject else ""
        return f"{where}{who}{about}{self.message}"


class InvalidManifestError(Exception):
    """One or more problems; nothing of what was given is used."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def quantity_bytes(text: str) -> int:
    """ "10Gi" → 10737418240."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]?i?)", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a quantity such as 10Gi")
    return int(float(match[1]) * _UNITS[match[2]])


def settings_text(settings: Mapping[str, Any]) -> dict[str, str]:
    """Kafka's settings as Kafka writes them: true, 60000, a,b."""
    return {name: _setting_text(value) for name, value in settings.items()}


def _setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(_setting_text, value))
    return str(value)
