"""Differences that are meant. Each line says where, and why; the tool prints how often it was met.

A line matches if the API's name, the field's path and both values fit; `...` fits anything. What
matches no line is unexpected and makes the tool fail.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, NamedTuple

from odradek_e2e.diff.compare import Difference

Fits = EllipsisType | object


class Expected(NamedTuple):
    api: str
    field: str  # "" = the outcome as a whole; "*" = any field
    apache: Fits
    embedded: Fits
    reason: str


def nothing(value: Any) -> bool:
    return value is None


def answered(value: Any) -> bool:
    return isinstance(value, dict)


def no_items(value: Any) -> bool:
    return isinstance(value, list) and not value


def a_setting(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("Unknown topic config", "Invalid value"))


ELR = "Kafka keeps min.insync.replicas at cluster level (eligible leader replicas)"
NOT_UTF8 = "strings that are not UTF-8 close the connection (SKIPPED.md)"
ACLS = "Kafka closes on values that its parser does not know; ours says SECURITY_DISABLED"
ISOLATION = "an unknown isolation level is read_uncommitted; Kafka: UNKNOWN_SERVER_ERROR for all"
FIRST_WRONG = "of several wrong settings, Kafka names the first in a hash map"


TABLE: tuple[Expected, ...] = (
    Expected("advertised", "*", nothing, ..., "the controller's APIs are on the same listener"),
    Expected("advertised", "*", ..., nothing, "not offered: SKIPPED.md, first section"),
    Expected("api_versions", "api_keys", ..., ..., "compared as `advertised`"),
    Expected("api_versions", "finalized_features", ..., ..., "no share, streams and ELR features"),
    Expected("api_versions", "supported_features", ..., ..., "no share, streams and ELR features"),
    Expected("describe_configs", "results[].configs[].documentation", ..., ..., "our own words"),
    Expected("describe_configs", "results[].configs[].config_source", 3, 5, ELR),
    Expected("malformed negative_length", "", answered, "closed", NOT_UTF8),
    Expected("create_acls", "", "closed", answered, ACLS),
    Expected("delete_acls", "", "closed", answered, ACLS),
    Expected("describe_acls", "", "closed", answered, ACLS),
    Expected("describe_client_quotas", "*", ..., ..., "no quotas: always empty"),
    Expected(
        "describe_log_dirs", "results[].topics[].partitions[].partition_size", ..., ...,
        "records of our own in the internal topics; what users wrote is compared by Fetch",
    ),
    Expected("fetch", "error_code", -1, 0, ISOLATION),
    Expected("fetch", "responses", no_items, ..., ISOLATION),
    Expected("list_offsets", "topics[].partitions[].error_code", -1, ..., ISOLATION),
    Expected("list_offsets", "topics[].partitions[].offset", -1, ..., ISOLATION),
    Expected("list_offsets", "topics[].partitions[].timestamp", -1, ..., ISOLATION),
    Expected("list_offsets", "topics[].partitions[].leader_epoch", -1, ..., ISOLATION),
    Expected("create_topics", "topics[].error_message", a_setting, a_setting, FIRST_WRONG),
    Expected("alter_configs", "responses[].error_message", a_setting, a_setting, FIRST_WRONG),
    Expected(
        "incremental_alter_configs", "responses[].error_message", a_setting, a_setting, FIRST_WRONG
    ),
    Expected(
        "produce", "responses[].partition_responses[].record_errors[].batch_index_error_message",
        ..., ..., "our own words",
    ),
    Expected(
        "produce", "responses[].partition_responses[].error_message", ..., ..., "our own words"
    ),
)  # fmt: skip


def reason_for(api: str, difference: Difference) -> str | None:
    for line in TABLE:
        if (
            line.api in (api, "*")
            and line.field in (difference.field, "*")
            and _fits(line.apache, difference.apache)
            and _fits(line.embedded, difference.embedded)
        ):
            return line.reason
    return None


def _fits(wanted: Fits, value: Any) -> bool:
    if wanted is ...:
        return True
    if callable(wanted):
        return bool(wanted(value))
    return bool(wanted == value)
