"""Client quotas: read and change the limits of users, client ids and IP addresses."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Controller
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

# Entity type ("user", "client-id", "ip") → name; None is the default of the type.
Entity = Mapping[str, str | None]


def list_quotas(client: KafkaClient) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Every entity that has quotas, with their values by name."""
    request = Struct(components=[], strict=False)
    answer = client.call(AnyBroker(), ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    raise_error_in(answer)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


def alter_quotas(client: KafkaClient, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Sets quotas of one entity; None removes one. All changes are made, or none."""
    entry = Struct(
        entity=[Struct(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            Struct(key=key, value=limit or 0.0, remove=limit is None)
            for key, limit in changes.items()
        ],
    )
    request = Struct(entries=[entry], validate_only=False)
    answer = client.call(Controller(), ApiKey.ALTER_CLIENT_QUOTAS, request)
    for one in answer.entries:
        raise_error_in(one)
