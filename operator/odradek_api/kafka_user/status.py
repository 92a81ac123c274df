"""The status of a KafkaUser."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from odradek_api.base import Condition, Status


class KafkaUserStatus(Status, frozen=True, kw_only=True):
    """The observed state of the user."""

    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this status was computed from.")
    ] = 0
    conditions: Annotated[list[Condition], Meta(description="Ready.")] = field(default_factory=list)
    principal: Annotated[
        str,
        Meta(
            description="The user's principal in Kafka that this resource manages, for example "
            "User:billing; empty until then."
        ),
    ] = ""
    secret: Annotated[
        str, Meta(description="namespace/name of the Secret with the credentials.")
    ] = ""
    acl_count: Annotated[int, Meta(description="Number of ACLs in Kafka.")] = 0
    certificate_expires: Annotated[
        str, Meta(description="When the certificate expires, for example 2026-11-17T02:00:00Z.")
    ] = ""
