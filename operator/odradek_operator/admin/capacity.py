"""The retention of the topics, which `kafka/balance/capacity.py` needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek_operator.kafka.balance.capacity import Retention
from odradek_protocol.client import ClientError, KafkaClient
from odradek_protocol.client.admin import configs
from odradek_protocol.client.admin.configs import ResourceType

CHUNK = 500  # topics in one request
NAMES = {"retention.ms", "retention.bytes", "segment.bytes", "cleanup.policy"}


def retentions(client: KafkaClient, topics: Iterable[str]) -> dict[str, Retention]:
    """Of topics that can be described."""
    found = {}
    for part in _parts(sorted(topics)):
        answers = configs.describe_configs(client, ResourceType.TOPIC, part, NAMES)
        for topic, answer in answers.items():
            if isinstance(answer, ClientError):
                continue
            values = {name: entry.value for name, entry in answer.items() if entry.value}
            policy = values.get("cleanup.policy", "delete")
            found[topic] = Retention(
                float(values.get("retention.ms", Retention.ms)),
                float(values.get("retention.bytes", Retention.bytes)),
                float(values.get("segment.bytes", Retention.segment_bytes)),
                "delete" not in policy,
            )
    return found


def _parts(names: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), CHUNK):
        yield names[at : at + CHUNK]
