"""Which failed attempts may be repeated.

A request that was not sent can always be repeated. After a lost connection it is unknown whether
the broker carried the request out, so only requests that change nothing are sent again.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_protocol.client.errors import (
    AnswerTimeoutError,
    BrokerError,
    ClientError,
    DisconnectedError,
    UnreachableError,
)
from odradek_protocol.client.routes import Route
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

READ_ONLY = frozenset({
    ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH,
    ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.FETCH,
})  # fmt: skip


def may_repeat(error: ClientError, route: Route, api: ApiKey) -> bool:
    if isinstance(error, BrokerError):  # of a look-up; of the request itself, see moved_error
        return error.code in route.moved
    if isinstance(error, UnreachableError):
        return route.can_move
    if isinstance(error, (DisconnectedError, AnswerTimeoutError)):
        return route.can_move and api in READ_ONLY
    return False


def moved_error(answer: Struct, moved: frozenset[int]) -> BrokerError | None:
    """The first error in the answer, at any depth, that means "ask another broker"."""
    if not moved:
        return None
    for found in _structs(answer):
        fields = vars(found)
        if fields.get("error_code", 0) in moved:
            return BrokerError(fields["error_code"], fields.get("error_message"))
    return None


def _structs(value: Struct) -> Iterator[Struct]:
    yield value
    for field in vars(value).values():
        if isinstance(field, Struct):
            yield from _structs(field)
        elif isinstance(field, list):
            for item in field:
                if not isinstance(item, Struct):
                    break  # an array of numbers or strings
                yield from _structs(item)
