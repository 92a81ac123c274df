"""Expected differences, each with its reason. The tool prints how often each occurred.

A line matches if the API's name, the field's path and both values match; `...` matches anything. A
difference that matches no line is unexpected and fails the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import EllipsisType
from typing import Any, NamedTuple

from odradek_e2e.diff.compare import Difference
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, read_header

Fits = EllipsisType | object

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
CODEC_MASK, CODEC_MAX = 7, 4
NOT_SAID = -(2**31)  # authorized operations that were not determined
NAME_OF_COPY_MAX = 255 - len("-0") - len(".") - 32 - len("-future")


def any_two(_: Any, __: Any) -> bool:
    return True


def always(_: Struct) -> bool:
    return True


class Expected(NamedTuple):
    """A difference that is intended or accepted, and the reason."""

    api: str
    field: str  # "" = the outcome as a whole; "*" = any field
    apache: Fits
    embedded: Fits
    reason: str
    when: Callable[[Any], bool] = always  # of the request
    both: Callable[[Any, Any], bool] = any_two  # of Apache's value and ours


def nothing(value: Any) -> bool:
    return value is None


def not_found(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("Group ") and value.endswith(" not found.")


def answered(value: Any) -> bool:
    return isinstance(value, dict)


def a_setting(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("Unknown topic config", "Invalid value"))


def apache_has_more(apache: Any, embedded: Any) -> bool:
    return isinstance(apache, list) and all(item in apache for item in embedded or [])


def unwritten_groups(apache: Any, embedded: Any) -> bool:
    """Ours has more groups, but only with members that joined: Kafka lists groups as of the last
    record that is committed, and a join alone writes none. Kafka's own are the empty ones."""
    if not isinstance(apache, list) or not isinstance(embedded, list):
        return False
    ours = [one for one in embedded if one not in apache]
    kafkas = [one for one in apache if one not in embedded]
    return all(one["protocol_type"] for one in ours) and not any(
        one["protocol_type"] for one in kafkas
    )


def unread_fetch(request: Any) -> bool:
    sizes = [p.partition_max_bytes for t in request.topics for p in t.partitions]
    return (
        request.isolation_level not in (0, 1)
        or min([request.max_bytes, *sizes]) < 0
        or any(getattr(topic, "topic_id", "") is None for topic in request.topics)
    )


def no_consumer(request: Any) -> bool:
    state = getattr(request, "replica_state", None)
    replica = state.replica_id if state is not None else getattr(request, "replica_id", -1)
    return bool(replica != -1)


def odd_epoch(request: Any) -> bool:
    return any(p.leader_epoch < -1 for t in request.topics for p in t.partitions)


def no_transactions(request: Any) -> bool:
    return not request.transactions


def null_records(request: Any) -> bool:
    return any(p.records is None for t in request.topic_data for p in t.partition_data)


def no_resource(request: Any) -> bool:
    """Some resource has no name, or one that no topic can have."""
    names = [resource.resource_name for resource in request.resources]
    return any(TOPIC_NAME.fullmatch(name or "") is None for name in names)


def long_name(request: Any) -> bool:
    """Some topic has a name with which the directory of a copy would exceed 255 characters."""
    names = [topic.name for directory in request.dirs for topic in directory.topics]
    return any(len(name) > NAME_OF_COPY_MAX for name in names)


def last_cursor(request: Any) -> bool:
    cursor = request.cursor
    return bool(cursor and cursor.partition_index > 2**31 - 1 - request.response_partition_limit)


def no_partitions(request: Any) -> bool:
    return not request.topic_partitions


def unread_list(request: Any) -> bool:
    return getattr(request, "isolation_level", 0) not in (0, 1)


def internal_offsets(request: Any) -> bool:
    return any(topic.name.startswith("__") for topic in request.topics)


def without_producer_id(request: Any) -> bool:
    """Some batch has the transactional bit and no producer id."""
    return any(
        p.records and len(p.records) >= HEADER_BYTES and _is_transaction_of_nobody(p.records)
        for t in request.topic_data
        for p in t.partition_data
    )


def _is_transaction_of_nobody(records: Any) -> bool:
    header = read_header(bytes(records), 0)
    return bool(header.attributes & TRANSACTIONAL_BIT and header.producer_id < 0)


def unknown_codec(request: Any) -> bool:
    """Some batch names a compression that does not exist."""
    return any(
        p.records and len(p.records) >= HEADER_BYTES and _codec(p.records) > CODEC_MAX
        for t in request.topic_data
        for p in t.partition_data
    )


def _codec(records: Any) -> int:
    return int(read_header(bytes(records), 0).attributes & CODEC_MASK)


def reads_internal_topic(request: Any) -> bool:
    return any((getattr(t, "topic", None) or "").startswith("__") for t in request.topics)


def same_when_merged(apache: Any, embedded: Any) -> bool:
    return bool(_by_topic(apache) == _by_topic(embedded))


def _by_topic(topics: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for topic in topics or []:
        key = f"{topic['topic']} {topic['topic_id']}"
        found.setdefault(key, []).extend(map(repr, topic["partitions"]))
    return {key: sorted(partitions) for key, partitions in found.items()}


def several_features(request: Any) -> bool:
    return len(request.feature_updates) > 1


def odd_operation(request: Any) -> bool:
    operations = [c.config_operation for r in request.resources for c in r.configs]
    return any(operation not in range(4) for operation in operations)


# APIs of share and streams groups: their answers depend on sessions and on time, which single
# requests do not keep equal. `broker_tests/handlers/test_share_parity.py` and
# `test_streams_parity.py` compare them in sequences.
IN_SEQUENCES = frozenset((*range(76, 80), *range(83, 93)))

ELR = "Kafka keeps min.insync.replicas at cluster level (eligible leader replicas)"
NOT_UTF8 = "strings that are not UTF-8 close the connection (SKIPPED.md)"
ACLS = "Kafka closes the connection on values unknown to its parser; ours: SECURITY_DISABLED"
UNREAD = "odd isolation levels, sizes below 0, the zero id; Kafka: UNKNOWN_SERVER_ERROR for all"
REPEATED = "Kafka repeats a topic of which one partition is unknown; clients merge the two"
NO_PRODUCER_ID = "a transactional batch without a producer id is INVALID_RECORD (SKIPPED.md)"
NO_CONSUMER = "a fetch with the id of a broker that does not exist gets another error code"
ODD_EPOCH = "an epoch below -1 is invalid; Kafka answers with it"
PHANTOM = "a refused request leaves an empty group in Kafka's memory until a restart"
UNWRITTEN = "Kafka does not list a group that a member joined before the next record is committed"
NO_ANSWER = "Kafka never answers this request"
TWO_ERRORS = "the request has two errors, and the engines report different ones"
NO_ELECTION = "an unknown election type is refused even if there is nothing to elect"
NO_TIME = "a damaged timeout is negative, so Kafka's controller refuses the request as expired"
FIRST_WRONG = "of several wrong settings, Kafka names the first in a hash map"
OPERATION = "an unknown operation is INVALID_REQUEST; Kafka: UNKNOWN_SERVER_ERROR (SKIPPED.md)"
STATIC_QUORUM = "Kafka's test server has kraft.version 0, where voters cannot change"
OUR_WORDS = "the text of a message is our own"
MARKERS = "if one marker cannot be written, Kafka: UNKNOWN_SERVER_ERROR or no answer"
FIRST_FEATURE = "of several wrong features, Kafka names the first in a hash map"
FEATURES = "no ELR feature"
LOG_DIRS = "internal topics hold our own records; users' records are compared through Fetch"
AHEAD = "records that only Kafka took before: " + NO_PRODUCER_ID
LONG_NAME = "Kafka does not move replicas of topics with long names; ours shortens the directory"
CURSOR = "a cursor near 2^31 overflows in Kafka, which then answers with a negative one"
CODEC = "a batch of an unknown codec is refused by itself; Kafka: UNKNOWN_SERVER_ERROR for all"
QUORUM = "each engine describes its own quorum: listener, directory, epoch, offsets"
MESSAGE = "responses[].error_message"
SIZE = "results[].topics[].partitions[].partition_size"
CODE = "partitions[].error_code"
ELECTED = "replica_election_results[].partition_result[]"
PRODUCED = "responses[].partition_responses[]"

TABLE: tuple[Expected, ...] = (
    Expected("api_versions", "api_keys", ..., ..., "compared as `advertised`"),
    Expected("api_versions", "finalized_features", ..., ..., FEATURES),
    Expected("api_versions", "finalized_features[].name", ..., ..., FEATURES),
    Expected("api_versions", "finalized_features[].max_version_level", ..., ..., FEATURES),
    Expected("api_versions", "finalized_features[].min_version_level", ..., ..., FEATURES),
    Expected("api_versions", "supported_features", ..., ..., FEATURES),
    Expected("describe_configs", "results[].configs[].documentation", ..., ..., OUR_WORDS),
    Expected("describe_configs", "results[].configs[].config_source", 3, 5, ELR),
    Expected("malformed negative_length", "", answered, "closed", NOT_UTF8),
    Expected("create_acls", "", "closed", answered, ACLS),
    Expected("delete_acls", "", "closed", answered, ACLS),
    Expected("describe_acls", "", "closed", answered, ACLS),
    Expected("describe_log_dirs", SIZE, ..., ..., LOG_DIRS),
    Expected("describe_configs", "results[].configs[].synonyms", ..., ..., ELR),
    Expected("list_groups", "groups", ..., ..., PHANTOM, both=apache_has_more),
    Expected("list_groups", "groups", ..., ..., UNWRITTEN, both=unwritten_groups),
    Expected("join_group", "error_code", 23, 25, PHANTOM),
    Expected("offset_commit", f"topics[].{CODE}", 25, 22, PHANTOM),
    Expected("offset_delete", "error_code", 0, 69, PHANTOM),
    Expected("offset_delete", "topics", ..., [], PHANTOM),
    Expected("describe_groups", "groups[].group_state", "Empty", "Dead", PHANTOM),
    Expected("describe_groups", "groups[].error_code", 0, 69, PHANTOM),
    Expected("describe_groups", "groups[].error_message", nothing, not_found, PHANTOM),
    Expected("describe_groups", "groups[].authorized_operations", ..., NOT_SAID, PHANTOM),
    Expected("alter_configs", "", "silence", answered, NO_ANSWER),
    Expected("fetch", "*", ..., ..., UNREAD, unread_fetch),
    Expected("fetch", "responses", ..., ..., REPEATED, both=same_when_merged),
    Expected("produce", f"{PRODUCED}.error_code", 0, 87, NO_PRODUCER_ID, without_producer_id),
    Expected("produce", f"{PRODUCED}.base_offset", ..., -1, NO_PRODUCER_ID, without_producer_id),
    Expected("fetch", "*", ..., ..., NO_CONSUMER, no_consumer),
    Expected("offset_for_leader_epoch", "*", ..., ..., ODD_EPOCH, odd_epoch),
    Expected("add_partitions_to_txn", "", "silence", answered, NO_ANSWER, no_transactions),
    Expected("produce", "", "silence", answered, NO_ANSWER, null_records),
    Expected("incremental_alter_configs", "*", ..., ..., TWO_ERRORS, no_resource),
    Expected("alter_replica_log_dirs", f"results[].{CODE}", 17, ..., LONG_NAME, long_name),
    *(
        Expected("describe_topic_partitions", field, ..., ..., CURSOR, last_cursor)
        for field in ("next_cursor", "topics")
    ),
    *(
        Expected("produce", f"{PRODUCED}.{field}", -1, ..., CODEC, unknown_codec)
        for field in ("base_offset", "error_code", "log_start_offset")
    ),
    *(
        Expected(
            "fetch", f"responses[].partitions[].{field}", ..., ..., LOG_DIRS, reads_internal_topic
        )
        for field in ("high_watermark", "last_stable_offset", "records", "records[]")
    ),
    Expected("describe_quorum", "nodes[].listeners[].name", "CONTROLLER", ..., QUORUM),
    *(
        Expected("describe_quorum", f"topics[].partitions[].{field}", ..., ..., QUORUM)
        for field in ("current_voters[].replica_directory_id", "high_watermark", "leader_epoch")
    ),
    Expected("elect_leaders", "error_code", 0, 42, NO_ELECTION, no_partitions),
    *(
        Expected("malformed negative_length", f"topics[].partitions[].{field}", -1, ..., UNREAD)
        for field in ("error_code", "leader_epoch", "offset", "timestamp")
    ),
    Expected("malformed negative_length", f"{ELECTED}.error_code", 7, ..., NO_TIME),
    Expected("malformed negative_length", f"{ELECTED}.error_message", nothing, ..., NO_TIME),
    Expected("list_offsets", "*", ..., ..., UNREAD, unread_list),
    *(
        Expected(
            "list_offsets", f"topics[].partitions[].{field}", ..., ..., LOG_DIRS, internal_offsets
        )
        for field in ("offset", "timestamp")
    ),
    Expected("create_topics", "topics[].error_message", a_setting, a_setting, FIRST_WRONG),
    Expected("update_features", "error_message", ..., ..., FIRST_FEATURE, several_features),
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
            and line.both(difference.apache, difference.embedded)
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
