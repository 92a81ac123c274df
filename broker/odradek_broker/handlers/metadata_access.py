"""Which topics a Metadata request may see and create.

Topics that the client may not describe look as if they could not exist: they are left out of a
request for all, and refused without an id if named, whether they exist or not. Ids are no secret:
asked for by its id, a topic is refused with it and without its name.
"""

from collections.abc import Iterable

from odradek_broker.handlers.authorization import Check
from odradek_broker.handlers.cluster_view import is_internal
from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.image import TopicImage
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

TOPIC, CLUSTER = AclResource.TOPIC, AclResource.CLUSTER
DENIED = ErrorCode.topic_authorization_failed


class MetadataAccess:
    def __init__(self, ctx: RequestContext) -> None:
        self._check = Check(ctx)

    def describable(self, topics: Iterable[TopicImage]) -> list[Struct | TopicImage]:
        return [topic for topic in topics if self._describes(topic.name, named=False)]

    def by_id(self, topics: Iterable[Struct | TopicImage]) -> list[Struct | TopicImage]:
        return [
            Struct(error_code=DENIED, name=None, topic_id=topic.id, partitions=[])
            if isinstance(topic, TopicImage) and not self._describes(topic.name, named=True)
            else topic
            for topic in topics
        ]

    def by_name(
        self, names: Iterable[str], *, creates: bool
    ) -> tuple[dict[str, None], list[Struct]]:
        """The names that may be looked up (and created), and the answers about the others."""
        allowed: dict[str, None] = {}
        hidden = []
        existing = self._check.ctx.broker.controller.image.topics
        for name in names:
            if not self._describes(name, named=True):
                hidden.append(Struct(error_code=DENIED, name=name, partitions=[]))
            elif creates and name not in existing and not self._may_create(name):
                hidden.append(
                    Struct(
                        error_code=DENIED, name=name, is_internal=is_internal(name), partitions=[]
                    )
                )
            else:
                allowed[name] = None
        return allowed, hidden

    def _describes(self, name: str, *, named: bool) -> bool:
        return self._check.allows(AclOperation.DESCRIBE, TOPIC, name, log_denied=named)

    def _may_create(self, name: str) -> bool:
        create = AclOperation.CREATE
        return self._check.allows(create, CLUSTER, log_denied=False) or self._check.allows(
            create, TOPIC, name
        )
