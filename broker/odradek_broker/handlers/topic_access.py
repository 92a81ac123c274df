"""The checks of a produce or fetch request on its topics. Hot path.

Without an authorizer nothing here is called. With one, a connection remembers what its client may
do with topics until an ACL changes (`RequestContext.topic_decisions`), so a check is the look-up
of a name.
"""

from logging import DEBUG
from uuid import UUID

from odradek_broker.handlers.context import RequestContext
from odradek_broker.security.authorizer import RequestLog, logger
from odradek_protocol.acl_codes import AclOperation


class TopicAccess:
    """Valid as long as the request does not wait."""

    __slots__ = ("_ctx", "_decisions", "_log", "_logs_all")

    def __init__(self, ctx: RequestContext, operation: AclOperation) -> None:
        authorizer = ctx.broker.authorizer
        assert authorizer is not None
        self._ctx = ctx
        self._decisions = ctx.topic_decisions(authorizer, operation)
        self._log: RequestLog | None = None  # most requests need none
        self._logs_all = logger.isEnabledFor(DEBUG)

    def allows(self, topic: str | bytes, index: int) -> bool:
        """`topic` is a name or an id. An id that no topic has is left to the handler to refuse."""
        if isinstance(topic, bytes):
            name = self._name_of(topic, index)
            if name is None:
                return True
        else:
            name = topic
        decision = self._decisions.about(name)
        if not decision.allowed or self._logs_all:
            if self._log is None:
                handler = self._ctx.broker.apis.handlers[self._ctx.api_key]
                self._log = RequestLog(handler.kafka_name)
            self._log.add(self._decisions, name, decision)
        return decision.allowed

    def _name_of(self, topic_id: bytes, index: int) -> str | None:
        broker = self._ctx.broker
        partition = broker.partitions.by_id.get((topic_id, index))
        if partition is not None:
            return partition.topic_partition.topic
        known = broker.metadata.image.topics_by_id.get(UUID(bytes=topic_id))
        return None if known is None else known.name
