"""Differences that are meant. Each line says where, and why; the tool prints how often it was met.

A line matches if the API's name, the field's path and both values fit; `...` fits anything. What
matches no line is unexpected and makes the tool fail.
"""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any, NamedTuple

from odradek_broker.wire.struct import Struct
from odradek_e2e.diff.compare import Difference

Fits = EllipsisType | object


def always(_: Struct) -> bool:
    return True


class Expected(NamedTuple):
    api: str
    field: str  # "" = the outcome as a whole; "*" = any field
    apache: Fits
    embedded: Fits
    reason: str
    when: Callable[[Any], bool] = always  # of the request


def nothing(value: Any) -> bool:
    return value is None


def answered(value: Any) -> bool:
    return isinstance(value, dict)


def a_setting(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("Unknown topic config", "Invalid value"))


def unread_fetch(request: Any) -> bool:
    return request.isolation_level not in (0, 1) or request.max_bytes < 0


def unread_list(request: Any) -> bool:
    return getattr(request, "isolation_level", 0) not in (0, 1)


def odd_operation(request: Any) -> bool:
    operations = [c.config_operation for r in request.resources for c in r.configs]
    return any(operation not in range(4) for operation in operations)


ELR = "Kafka keeps min.insync.replicas at cluster level (eligible leader replicas)"
NOT_UTF8 = "strings that are not UTF-8 close the connection (SKIPPED.md)"
ACLS = "Kafka closes on values that its parser does not know; ours says SECURITY_DISABLED"
UNREAD = "unknown isolation levels and max_bytes below 0 are 0; Kafka: UNKNOWN_SERVER_ERROR"
FIRST_WRONG = "of several wrong settings, Kafka names the first in a hash map"
OPERATION = "an unknown operation is INVALID_REQUEST; Kafka: UNKNOWN_SERVER_ERROR (SKIPPED.md)"
STATIC_QUORUM = "Kafka's test server has kraft.version 0, where voters cannot change"
OUR_WORDS = "our own words"
MARKERS = "Kafka: UNKNOWN_SERVER_ERROR or no answer at all, if one marker cannot be written"
FEATURES = "no share, streams and ELR features"
OFFERED = "not offered: SKIPPED.md, first section"
LOG_DIRS = "records of our own in the internal topics; what users wrote is compared by Fetch"
MESSAGE = "responses[].error_message"
SIZE = "results[].topics[].partitions[].partition_size"
CODE = "partitions[].error_code"
PRODUCED = "responses[].partition_responses[]"

TABLE: tuple[Expected, ...] = (
    Expected("advertised", "*", nothing, ..., "the controller's APIs are on the same listener"),
    Expected("advertised", "*", ..., nothing, OFFERED),
    Expected("api_versions", "api_keys", ..., ..., "compared as `advertised`"),
    Expected("api_versions", "finalized_features", ..., ..., FEATURES),
    Expected("api_versions", "supported_features", ..., ..., FEATURES),
    Expected("describe_configs", "results[].configs[].documentation", ..., ..., OUR_WORDS),
    Expected("describe_configs", "results[].configs[].config_source", 3, 5, ELR),
    Expected("malformed negative_length", "", answered, "closed", NOT_UTF8),
    Expected("create_acls", "", "closed", answered, ACLS),
    Expected("delete_acls", "", "closed", answered, ACLS),
    Expected("describe_acls", "", "closed", answered, ACLS),
    Expected("describe_client_quotas", "*", ..., ..., "no quotas: always empty"),
    Expected("describe_log_dirs", SIZE, ..., ..., LOG_DIRS),
    Expected("fetch", "*", ..., ..., UNREAD, unread_fetch),
    Expected("list_offsets", "*", ..., ..., UNREAD, unread_list),
    Expected("create_topics", "topics[].error_message", a_setting, a_setting, FIRST_WRONG),
    Expected("alter_configs", MESSAGE, a_setting, a_setting, FIRST_WRONG),
    Expected("incremental_alter_configs", MESSAGE, a_setting, a_setting, FIRST_WRONG),
    Expected("incremental_alter_configs", "*", ..., ..., OPERATION, odd_operation),
    Expected(
        "produce", f"{PRODUCED}.record_errors[].batch_index_error_message", ..., ..., OUR_WORDS
    ),
    Expected("produce", f"{PRODUCED}.error_message", ..., ..., OUR_WORDS),
    Expected("add_raft_voter", "*", ..., ..., STATIC_QUORUM),
    Expected("remove_raft_voter", "*", ..., ..., STATIC_QUORUM),
    Expected("write_txn_markers", "", "silence", answered, MARKERS),
    Expected("write_txn_markers", f"markers[].topics[].{CODE}", -1, ..., MARKERS),
)


def reason_for(api: str, difference: Difference, request: Struct | None = None) -> str | None:
    for line in TABLE:
        if (
            line.api in (api, "*")
            and line.field in (difference.field, "*")
            and _fits(line.apache, difference.apache)
            and _fits(line.embedded, difference.embedded)
            and (line.when is always or (request is not None and line.when(request)))
        ):
            return line.reason
    return None


def _fits(wanted: Fits, value: Any) -> bool:
    if wanted is ...:
        return True
    if callable(wanted):
        return bool(wanted(value))
    return bool(wanted == value)
