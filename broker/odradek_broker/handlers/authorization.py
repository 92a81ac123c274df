"""Authorization of requests: the checks of handlers and of the rules in `access_rules.py`.

Without an authorizer everything is allowed and nothing here is called but `guarded`, once per
request. Produce and Fetch check topics in `topic_access.py`.
"""

from collections.abc import Awaitable, Callable, Iterable
from logging import DEBUG
from typing import Any, Final, TypeVar, cast

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.handler import Handle
from odradek_broker.model.acl import CLUSTER_NAME, SUPPORTED_OPERATIONS, operations_bits
from odradek_broker.security.authorizer import Client, RequestLog, logger
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

T = TypeVar("T")
OFFSETS: Final = (8, 9)  # OffsetCommit and OffsetFetch name topics by id
IDS_SINCE: Final = 10
Call = Callable[[Struct], Awaitable[Struct]]  # the handler, for the rest of the request
Rule = Callable[["Check", Struct, Call], Awaitable[Struct]]

# The texts of Apache Kafka.
MESSAGES: Final = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
}
CODE_OF: Final = {
    AclResource.TOPIC: ErrorCode.topic_authorization_failed,
    AclResource.GROUP: ErrorCode.group_authorization_failed,
    AclResource.CLUSTER: ErrorCode.cluster_authorization_failed,
    AclResource.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}


class Check:
    """The checks of one request. Decisions are fresh: none is kept across an await."""

    __slots__ = ("_authorizer", "_client", "_log", "ctx")

    def __init__(self, ctx: RequestContext) -> None:
        assert ctx.broker.authorizer is not None
        self.ctx = ctx
        self._authorizer = ctx.broker.authorizer
        self._client = Client(ctx.principal, ctx.client_host)
        self._log = RequestLog(_kafka_name(ctx))

    def allows(
        self,
        operation: AclOperation,
        resource_type: AclResource,
        name: str = CLUSTER_NAME,
        *,
        log_denied: bool = True,
    ) -> bool:
        decisions = self._authorizer.decisions(self._client, operation, resource_type)
        decision = decisions.about(name)
        if decision.allowed or log_denied:
            self._log.add(decisions, name, decision)
        return decision.allowed

    def require(
        self, operation: AclOperation, resource_type: AclResource, name: str = CLUSTER_NAME
    ) -> None:
        if not self.allows(operation, resource_type, name):
            raise denied(resource_type)

    def allows_any(self, operation: AclOperation, resource_type: AclResource) -> bool:
        return self._authorizer.allowed_for_any(self._client, operation, resource_type)

    def split(
        self,
        operation: AclOperation,
        resource_type: AclResource,
        items: Iterable[T],
        name_of: Callable[[T], str | None],
    ) -> tuple[list[T], list[T]]:
        """The items that the client may use, and the others. An item without a name (an id that
        no topic has) counts as allowed: its handler refuses it."""
        allowed: list[T] = []
        others: list[T] = []
        known: dict[str, bool] = {}
        for item in items:
            name = name_of(item)
            if name is not None and name not in known:
                known[name] = self.allows(operation, resource_type, name)
            (allowed if name is None or known[name] else others).append(item)
        return allowed, others

    def answer(self, **fields: object) -> Struct:
        """A response with those of the fields that this API has."""
        known = api.response_fields(self.ctx.api_key, self.ctx.api_version)
        return Struct(**{name: value for name, value in fields.items() if name in known})

    def topic_name(self, topic: Struct) -> str | None:
        """The name of a topic in a request, which may have its id instead."""
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is None:
            ids_only = self.ctx.api_key in OFFSETS and self.ctx.api_version >= IDS_SINCE
            return None if ids_only else cast("str | None", topic.name)
        found = self.ctx.broker.metadata.image.topics_by_id.get(topic_id)
        return None if found is None else found.name

    def operations(self, resource_type: AclResource, name: str = CLUSTER_NAME) -> int:
        return self._authorizer.authorized_operations(self._client, resource_type, name)


def denied(resource_type: AclResource) -> KafkaError:
    code = CODE_OF[resource_type]
    return KafkaError(code, MESSAGES[code])


def guarded(rule: Rule, handle: Handle) -> Handle:
    """The handler of an API behind its rule."""

    def checked(ctx: RequestContext, request: Struct) -> Struct | Awaitable[Struct]:
        if ctx.broker.authorizer is None:
            return handle(ctx, request)

        async def call(asked: Struct) -> Struct:
            outcome = handle(ctx, asked)
            return outcome if isinstance(outcome, Struct) else await cast("Any", outcome)

        return rule(Check(ctx), request, call)

    return checked


def operations_of(ctx: RequestContext, resource_type: AclResource, name: str = CLUSTER_NAME) -> int:
    """The bits of `*_authorized_operations` in a response."""
    if ctx.broker.authorizer is None:
        return operations_bits(SUPPORTED_OPERATIONS[resource_type])
    return Check(ctx).operations(resource_type, name)


def cluster_operations(ctx: RequestContext) -> int:
    """0 for clients that may not describe the cluster."""
    if ctx.broker.authorizer is not None and not Check(ctx).allows(
        AclOperation.DESCRIBE, AclResource.CLUSTER
    ):
        return 0
    return operations_of(ctx, AclResource.CLUSTER)


def without(request: Struct, **changes: object) -> Struct:
    """The request with some of its fields replaced."""
    return Struct(**{**request.__dict__, **changes})


def _kafka_name(ctx: RequestContext) -> str:
    return ctx.broker.apis.handlers[ctx.api_key].kafka_name


def may_write_in(ctx: RequestContext, transactional_id: str) -> bool:
    return _allows(ctx, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)


def may(
    ctx: RequestContext, operation: AclOperation, resource_type: AclResource, name: str
) -> bool:
    """Without an authorizer everything is allowed."""
    return ctx.broker.authorizer is None or _allows(ctx, operation, resource_type, name)


def is_of_cluster(ctx: RequestContext) -> bool:
    """Whether a broker or controller sent it."""
    return _allows(ctx, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME)


def _allows(
    ctx: RequestContext, operation: AclOperation, resource_type: AclResource, name: str
) -> bool:
    authorizer = ctx.broker.authorizer
    assert authorizer is not None
    client = Client(ctx.principal, ctx.client_host)
    decisions = authorizer.decisions(client, operation, resource_type)
    decision = decisions.about(name)
    if not decision.allowed or logger.isEnabledFor(DEBUG):
        decisions.log(name, decision, _kafka_name(ctx))
    return decision.allowed
