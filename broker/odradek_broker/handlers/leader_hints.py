"""The current leader (KIP-951), in responses of Produce and Fetch: a client that has sent its
request to another broker need not refresh its metadata first.
"""

from collections.abc import Iterable
from uuid import UUID

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.primitives import NodeEndpoint

LEADER_ERRORS = frozenset([ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch])

LeaderHint = tuple[int, int]  # (leader id, leader epoch)


def current_leader(ctx: RequestContext, topic: str | bytes, partition: int) -> LeaderHint | None:
    """The leader in the newest metadata; `topic` is a name or a topic id."""
    image = ctx.broker.partitions.image
    if isinstance(topic, str):
        known = image.topics.get(topic)
    else:
        known = image.topics_by_id.get(UUID(bytes=topic))
    registration = known.partitions.get(partition) if known is not None else None
    if registration is None:
        return None
    return registration.leader, registration.leader_epoch


def endpoints(ctx: RequestContext, hints: Iterable[LeaderHint | None]) -> list[NodeEndpoint]:
    """The endpoints of those leaders on the listener that the client uses."""
    image = ctx.broker.partitions.image
    found = []
    for leader in {hint[0] for hint in hints if hint is not None}:
        broker = image.brokers.get(BrokerId(leader))
        endpoint = broker.endpoints.get(ctx.listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
