"""Compares two outcomes of one request field by field. No I/O.

Fields that vary from run to run (times, addresses, disk sizes) are left out; ids are compared by
name (`names`); lists are sorted first, because Kafka's order is that of hash maps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek_e2e.diff.engines import Outcome
from odradek_e2e.diff.names import Names
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.record_batch import HEADER, HEADER_BYTES

IGNORED = frozenset((
    "throttle_time", "throttle_time_ms", "cluster_id", "host", "port", "log_dir", "total_bytes",
    "usable_bytes", "finalized_features_epoch", "log_append_time", "transaction_start_time_ms",
    "transaction_start_time", "last_timestamp", "last_fetch_timestamp", "last_caught_up_timestamp",
    "issue_timestamp", "expiry_timestamp", "max_timestamp", "hmac",
    "log_end_offset", "coordinator_epoch", "client_host", "session_id", "broker_epoch",
))  # fmt: skip

# The fields that identify an item of a list; its other fields are compared.
KEYS = (
    "name", "topic", "topic_name", "topic_id", "partition", "partition_index", "index", "group_id",
    "key", "resource_type", "resource_name", "transactional_id", "member_id", "api_key", "path",
)  # fmt: skip


class Difference(NamedTuple):
    """A field that the two engines answered differently."""

    field: str  # "topics[].error_code"; "" for the outcome as a whole
    apache: Any
    embedded: Any


def compare(apache: Outcome, embedded: Outcome, names: tuple[Names, Names]) -> list[Difference]:
    """`names` are Apache's and ours."""
    if apache.kind != embedded.kind:
        return [Difference("", said(apache, names[0]), said(embedded, names[1]))]
    found: list[Difference] = []
    _walk("", plain(apache.answer, names[0]), plain(embedded.answer, names[1]), found)
    return found


def said(outcome: Outcome, names: Names) -> Any:
    return plain(outcome.answer, names) if outcome.kind == "answer" else outcome.kind


def plain(value: Any, names: Names, field: str = "") -> Any:
    """Dicts, lists and plain values, with names for ids and without varying fields."""
    if isinstance(value, Struct):
        return {
            name: plain(one, names, name)
            for name, one in sorted(vars(value).items())
            if name not in IGNORED
        }
    if isinstance(value, (list, tuple)):
        items = [plain(one, names, field) for one in value]
        return sorted(items, key=_order)
    if isinstance(value, bytes):
        return _batches(value) if field == "records" else value
    if isinstance(value, bool):
        return value
    return names.name_of(int(value) if isinstance(value, int) else value, field)


def _order(item: Any) -> str:
    if isinstance(item, dict):
        return repr([str(item[key]) for key in KEYS if key in item]) + repr(item)
    return repr(item)


def _batches(records: bytes) -> list[str]:
    """The headers of batches without producer id and checksum, which differ with the ids."""
    found, at = [], 0
    while at + HEADER_BYTES <= len(records):
        head = HEADER.unpack_from(records, at)
        at += 12 + max(head[1], 49)
        if at <= len(records):
            found.append(f"offset {head[0]} length {head[1]} {head[5:9]} {head[10:]}")
    return found  # the rest may be part of a batch: Kafka cuts at the byte limit


def _walk(path: str, apache: Any, embedded: Any, found: list[Difference]) -> None:
    if isinstance(apache, dict) and isinstance(embedded, dict):
        for name in apache.keys() | embedded.keys():
            below = f"{path}.{name}" if path else name
            _walk(below, apache.get(name), embedded.get(name), found)
    elif isinstance(apache, list) and isinstance(embedded, list) and len(apache) == len(embedded):
        for one, other in zip(apache, embedded, strict=True):
            _walk(f"{path}[]", one, other, found)
    elif apache != embedded:
        found.append(Difference(path, apache, embedded))
