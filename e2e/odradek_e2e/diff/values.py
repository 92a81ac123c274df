"""Which values make sense in which field, and which odd ones are worth trying. No I/O.

`pool(round, api, field)` gives (sane, odd) choices; the generator mostly takes sane ones. Fields
go by kio's names; a line for one API ("find_coordinator.key") precedes the general one ("key").
Values that would stop the broker or change it for the rest of the run (its own unregistration,
feature levels, settings of internal topics) are in neither list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from odradek_e2e.diff.names import Names, Ref
from odradek_testkit.raw_requests import batch

NOW_MS = 1_700_000_000_000
UNKNOWN_ID = UUID(int=0x0D0D0D0D0D0D4D0DBD0D0D0D0D0D0D0D)
PARTITIONS = 2
CHANGES_TOPICS = frozenset((
    "create_topics", "delete_topics", "create_partitions", "alter_configs", "delete_records",
    "incremental_alter_configs", "alter_partition_reassignments", "write_txn_markers",
))  # fmt: skip
CONTROLLER = CHANGES_TOPICS - {"delete_records", "write_txn_markers"} | {
    "elect_leaders", "add_raft_voter", "update_features",
}  # fmt: skip
SUBSCRIPTION = b"\0\0" + b"\0\0\0\x01" + b"\0\x01a" + b"\xff\xff\xff\xff"

Pool = tuple[list[Any], list[Any]]


@dataclass
class Round:
    """The names that the requests of one round use; `names` has the ids learned so far."""

    number: int
    names: Names

    @property
    def topics(self) -> list[str]:
        return [f"r{self.number}-a", f"r{self.number}-b"]

    @property
    def doomed(self) -> list[str]:
        return [f"r{self.number}-{name}" for name in ("c", "d", "e")]

    @property
    def groups(self) -> list[str]:
        return [f"r{self.number}-g", f"r{self.number}-h"]

    @property
    def consumer_groups(self) -> list[str]:
        return [f"r{self.number}-new"]

    @property
    def transactional_ids(self) -> list[str]:
        return [f"r{self.number}-t"]

    def topic_ids(self) -> list[Ref]:
        return [Ref(f"topic {name}") for name in self.topics]

    def learned(self, field: str) -> list[Ref]:
        """The ids of the last answers, the newest one twice."""
        found = [Ref(name) for name in self.names.values if name.startswith(f"{field} ")][-3:]
        return found + found[-1:]


def records(round_: Round) -> Pool:
    good = batch(b"value", now_ms=NOW_MS + round_.number)
    odd = [
        None,
        b"",
        good[:30],
        good + good,
        batch(b"x", crc=0),
        batch(b"x", count=2),
        batch(b"x", magic=1),
        batch(b"x", last_offset_delta=5),
        batch(b"x", now_ms=-1),
        batch(b"x", now_ms=NOW_MS * 1000),
        batch(b"x", attributes=0x10),
        batch(b"x", attributes=0x20),
        batch(b"x", producer_id=5, producer_epoch=0, base_sequence=3),
    ]
    return [good, batch(b"another", now_ms=NOW_MS)], odd


def pool(round_: Round, api: str, field: str) -> Pool | None:
    """(sane, odd) values of a field, or None if any value of its type will do."""
    tables = (_of_api(round_), _names(round_, api), _clients(round_, api), _admin(api))
    for table in tables:
        for key in (f"{api}.{field}", field):
            if key in table:
                return table[key]
    return None


def _topic_names(round_: Round, api: str) -> Pool:
    odd = ["unknown", "", ".", "a/b", "x" * 250]
    if api in CHANGES_TOPICS:
        return round_.doomed, odd
    return round_.topics, [*odd, *round_.doomed, "__consumer_offsets", "__cluster_metadata"]


def _of_api(round_: Round) -> dict[str, Pool]:
    """Fields whose meaning depends on the API."""
    names, nobody = _topic_names(round_, "create_topics")
    groups = (round_.groups, ["", "unknown", *round_.topics])
    transactional = (round_.transactional_ids, ["", "unknown"])
    config_names = (
        ["retention.ms", "cleanup.policy", "flush.ms", "max.message.bytes", "segment.ms"],
        ["", "nope", "compression.type", "min.insync.replicas"],
    )
    return {
        "find_coordinator.key": groups,
        "find_coordinator.coordinator_keys": ([*round_.groups, *round_.transactional_ids], [""]),
        "find_coordinator.key_type": ([0, 1], [2, 3, -1]),
        "join_group.name": (["range", "roundrobin"], [""]),
        "join_group.protocol_type": (["consumer"], ["", "connect"]),
        "create_topics.name": (names, [*nobody, *config_names[0]]),
        "alter_configs.name": config_names,
        "incremental_alter_configs.name": config_names,
        "alter_configs.resource_name": (names, [*nobody, "1", "99"]),
        "incremental_alter_configs.resource_name": (names, [*nobody, "1", "99"]),
        "alter_configs.resource_type": ([2], [0, 1, 3, 99, -1]),
        "incremental_alter_configs.resource_type": ([2], [0, 1, 3, 99, -1]),
        "describe_configs.resource_name": (round_.topics, ["unknown", "", "a/b", "99", "x"]),
        "describe_configs.resource_type": ([2], [0, 1, 3, 4, 8, 99, -1]),
        "describe_user_scram_credentials.name": (["alice"], [""]),
        "describe_log_dirs.topic": (round_.topics, ["unknown", "", "a/b"]),
        "write_txn_markers.producer_id": ([5, *round_.learned("producer_id")], [-1]),
        "write_txn_markers.coordinator_epoch": ([0], [-1, 7]),
        "write_txn_markers.transaction_version": ([0, 1, 2], [5, -1]),
        "consumer_group_heartbeat.group_id": (round_.consumer_groups, [*round_.groups, ""]),
        "consumer_group_heartbeat.member_id": (["AAAAAAAAAAAAAAAAAAAAAQ"], ["", "ghost"]),
        "consumer_group_heartbeat.member_epoch": ([0, 1, 2], [-1, -2, -3, 77]),
        "consumer_group_heartbeat.rebalance_timeout": ([30_000, -1], [0, -2]),
        "consumer_group_heartbeat.partitions": ([0, 1], [7, -1]),
        "consumer_group_describe.group_ids": (
            [*round_.consumer_groups, *round_.groups], ["", "unknown"],
        ),
        "offset_fetch.member_id": ([None], ["", "ghost"]),
        "offset_fetch.member_epoch": ([-1], [0, 77]),
        "init_producer_id.producer_id": ([-1], [*round_.learned("producer_id"), 5, -2]),
        "init_producer_id.producer_epoch": ([-1], [0, 1, 77]),
        "list_transactions.state_filters": (["Ongoing", "Empty"], ["nope", ""]),
        "describe_transactions.transactional_ids": transactional,
        "describe_client_quotas.entity_type": (["user", "client-id", "ip"], ["", "nope"]),
        "describe_acls.operation": ([1, 2, 3], [0, 99]),
        "unregister_broker.broker_id": ([99], [-1]),
        "update_features.feature": (["nope"], [""]),
        "add_offsets_to_txn.group_id": groups,
        "add_partitions_to_txn.verify_only": ([False], [True]),
        "create_partitions.count": ([3, 4], [0, -1, 1, 2]),
        "list_config_resources.resource_types": ([2, 4], [0, 8, 16, 32, 99, -1]),
        "elect_leaders.topic_partitions": ([], []),
        "remove_raft_voter.voter_id": ([99], [-1]),
        "add_raft_voter.voter_id": ([99], [-1]),
    }  # fmt: skip


def _names(round_: Round, api: str) -> dict[str, Pool]:
    """Topics, partitions, groups, members, transactions, producers: the subject of a request."""
    topic_names = _topic_names(round_, api)
    members = round_.learned("member_id") if api != "leave_group" else []
    producers = round_.learned("producer_id")
    partitions = list(range(PARTITIONS))
    return {
        "name": topic_names,
        "topic": topic_names,
        "topic_name": topic_names,
        "topic_names": topic_names,
        "topic_id": (round_.topic_ids(), [UNKNOWN_ID, None]),
        "partition": (partitions, [-1, 7, 2**31 - 1]),
        "index": (partitions, [-1, 7, 2**31 - 1]),
        "partition_index": (partitions, [-1, 7, 2**31 - 1]),
        "partition_indexes": (partitions, [-1, 7]),
        "partitions": (partitions, [-1, 7]),
        "group_id": (round_.groups, ["", "unknown", *round_.consumer_groups]),
        "groups": (round_.groups, ["", "unknown", *round_.consumer_groups]),
        "groups_names": (round_.groups[1:], ["", "unknown"]),
        "group_instance_id": ([None, None, None], ["static", ""]),
        "instance_id": ([None, None, None], ["static", ""]),
        "member_id": (members or [""], ["", "ghost", *round_.learned("member_id")]),
        "transactional_id": (round_.transactional_ids, ["", "unknown"]),
        "v3_and_below_transactional_id": (round_.transactional_ids, ["", "unknown"]),
        "transactional_id_pattern": ([None, ".*"], ["(", "r.*-t"]),
        "producer_id": (producers or [-1], [-1, 5]),
        "v3_and_below_producer_id": (producers or [-1], [-1, 5]),
        "producer_id_filters": (producers or [5], [-1]),
        "producer_epoch": ([0, 1], [-1, 77, -2]),
        "v3_and_below_producer_epoch": ([0, 1], [-1, 77, -2]),
        "subscribed_topic_names": (round_.topics, ["unknown", "", "a/b"]),
        "path": ([Ref("log dir")], ["", "/nowhere", "relative"]),
    }  # fmt: skip


def _clients(round_: Round, api: str) -> dict[str, Pool]:
    """Values of producers, consumers and members of groups."""
    return {
        "generation_id": ([1, 2, -1], [0, 77, -2]),
        "generation_id_or_member_epoch": ([-1, 1], [0, 77, -2]),
        "member_epoch": ([-1], [0, 1, 77]),
        "session_timeout": ([30_000, 10_000], [0, -1, 1, 10**9]),
        "rebalance_timeout": ([200, 300], [0, -1]),
        "protocol_type": (["consumer", None], ["", "connect"]),
        "protocol_name": (["range", None], ["", "roundrobin"]),
        "metadata": ([SUBSCRIPTION], [b"", b"\xff"]),
        "assignment": ([b"yours", b""], [b"\xff" * 9]),
        "transaction_timeout": ([60_000], [0, -1, 10**9]),
        "replica_id": ([-1], [-2, -3, 99]),
        "replica_epoch": ([-1], [0, 99]),
        "max_wait": ([0, 10], [-1, 500]),
        "min_bytes": ([0, 1], [-1, 10**9]),
        "max_bytes": ([1 << 20], [0, -1, 10]),
        "partition_max_bytes": ([1 << 20, 100], [0, -1, 10]),
        "session_id": ([0], [*round_.learned("session_id"), 12345, -1]),
        "session_epoch": ([-1], [0, 1, 77]),
        "fetch_offset": ([0, 1], [-1, 999, -2]),
        "log_start_offset": ([-1], [0, 5]),
        "current_leader_epoch": ([-1, 0], [77, -2]),
        "leader_epoch": ([0, -1], [77, -2]),
        "last_fetched_epoch": ([-1], [0, 77]),
        "isolation_level": ([0, 1], [2, -1]),
        "rack_id": ([""], ["zone-a"]),
        "timestamp": ([-1, -2, -3, NOW_MS], [-4, -5, -6, -7, 0, 2**62]),
        "committed_offset": ([0, 5], [-1, -2, 2**62]),
        "committed_leader_epoch": ([-1, 0], [77]),
        "committed_metadata": (["note", ""], [None, "x" * 5000]),
        "retention_time": ([-1], [1000]),
        "acks": ([-1, 1], [0, 2, -2]),
        # Kafka's controller refuses a request that waited in its queue longer than its timeout of
        # 0 ms; ours has no queue.
        "timeout": ([5_000], [0, -1] if api not in CONTROLLER else [60_000]),
        "records": records(round_),
        "offset": ([0, 1], [-1, -2, 999]),
        "subscribed_topic_regex": ([None], ["", "r.*", "(", "a"]),
        "server_assignor": ([None, "uniform"], ["range", "nope", ""]),
        "client_software_name": (["diff"], ["", "no way", "-x"]),
        "client_software_version": (["1.0"], ["", "no way"]),
    }  # fmt: skip


def _admin(api: str) -> dict[str, Pool]:
    """Values of administrators and brokers."""
    return {
        "num_partitions": ([2], [0, -1, -2, 10_001]),
        "replication_factor": ([1, -1], [0, 2, -2]),
        "broker_ids": ([1], [99, -1]),
        "replicas": ([1], [99, -1]),
        "value": (["1000", "compact", "delete"], [None, "", "x", "-1", "9" * 30]),
        "config_operation": ([0, 1], [2, 3, 9, -1]),
        "configuration_keys": (["retention.ms", "cleanup.policy"], ["nope", ""]),
        "election_type": ([0], [1, 2, -1]),
        "endpoint_type": ([1], [0, 2, 3, -1]),
        "response_partition_limit": ([2000, 1], [0, -1]),
        "states_filter": (["Stable", "Empty"], ["", "nope", "stable"]),
        "types_filter": (["classic", "consumer"], ["", "nope", "Share"]),
        "duration_filter": ([-1], [0, 1000, -5]),
        "upgrade_type": ([1], [0, 2, 3, 9]),
        "max_version_level": ([1], [0, -1, 99]),
        "validate_only": ([True], [False]) if api == "update_features" else ([False], [True]),
        "allow_auto_topic_creation": ([False], [True]),
        "resource_type_filter": ([1, 2], [0, 3, 99]),
        "cluster_id": ([None], ["nope", ""]),
        "match_type": ([0, 1, 2], [3, -1]),
        # Kafka's broker fails on an owner with a name and without a type.
        "owner_principal_type": (["User"], []),
        "owner_principal_name": ([None, "ann", "bob"], [""]),
        "principal_type": (["User"], ["Group", ""]),
        "principal_name": (["ann", "bob"], [""]),
        "host": (["127.0.0.1"], [""]),
        "port": ([9], [0]),
    }  # fmt: skip
