"""The kinds of groups that this broker coordinates: the one place where they are registered."""

from collections.abc import Callable
from random import Random

from odradek_broker.group.config import GroupConfig
from odradek_broker.group.consumer.requests import CONSUMER
from odradek_broker.group.metrics import GroupMetrics
from odradek_broker.group.shard import CLASSIC, GroupKind, GroupShard
from odradek_broker.group.share.requests import SHARE
from odradek_broker.group.streams.requests import STREAMS

GROUP_KINDS: tuple[GroupKind, ...] = (CLASSIC, CONSUMER, SHARE, STREAMS)


def new_shard(
    config: Callable[[], GroupConfig], rng: Random, metrics: GroupMetrics | None = None
) -> GroupShard:
    """An empty shard for all kinds of groups."""
    return GroupShard(config, rng, metrics or GroupMetrics(), GROUP_KINDS)
