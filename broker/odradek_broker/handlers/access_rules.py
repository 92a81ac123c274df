"""The rights that each API needs: one line per API, as Apache Kafka's brokers and controllers
check it. A test holds it complete: an API without a line does not start.

`cluster(OPERATION)` is a right for the request as a whole. Other rules refuse or hide parts of a
request (topics, groups, …), listed next to them. The hot path (Produce, Fetch) and Metadata check
inside their handlers, because a wrapper would cost more than the check.
"""

from typing import Final

from odradek_broker.handlers import access_groups as groups
from odradek_broker.handlers import access_shares as shares
from odradek_broker.handlers import access_streams as streams
from odradek_broker.handlers import access_topics as topics
from odradek_broker.handlers.access_topics import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    per_topic,
)
from odradek_broker.handlers.authorization import CODE_OF, MESSAGES, Call, Check, Rule, denied
from odradek_broker.handlers.authorization import without as changed
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.messages.struct import Struct

DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def cluster(operation: AclOperation, items: str = "", results: str = "") -> Rule:
    """A right on the cluster. A response without an error of its own has it in each of `results`,
    one per item of the request."""

    async def rule(check: Check, request: Struct, call: Call) -> Struct:
        if check.allows(operation, CLUSTER):
            return await call(request)
        error = denied(CLUSTER)
        if items:
            one = Struct(error_code=error.code, error_message=error.message)
            return Struct(**{results: [one for _ in getattr(request, items)]})
        raise error

    return rule


async def open_to_all(_: Check, request: Struct, call: Call) -> Struct:
    return await call(request)


async def elect_leaders(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(ALTER, CLUSTER):
        return await call(request)
    error = denied(CLUSTER)
    return Struct(
        error_code=error.code,
        replica_election_results=[
            Struct(
                topic=topic.topic,
                partition_result=[
                    Struct(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


async def alter_partition_reassignments(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(ALTER, CLUSTER):
        return await call(request)
    error = denied(CLUSTER)
    return Struct(
        error_code=error.code,
        error_message=error.message,
        responses=[
            Struct(
                name=topic.name,
                partitions=[
                    Struct(
                        partition_index=one.partition_index,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def list_partition_reassignments(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(DESCRIBE, CLUSTER):
        return await call(request)
    error = denied(CLUSTER)
    return Struct(
        error_code=error.code,
        error_message=error.message,
        topics=[
            Struct(
                name=topic.name,
                partitions=[
                    Struct(
                        partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


async def alter_replica_log_dirs(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(ALTER, CLUSTER):
        return await call(request)
    code = denied(CLUSTER).code
    return Struct(
        results=[
            Struct(
                topic_name=topic.name,
                partitions=[
                    Struct(partition_index=index, error_code=code) for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


async def alter_user_scram_credentials(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(ALTER, CLUSTER):
        return await call(request)
    error = denied(CLUSTER)
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return Struct(
        results=[
            Struct(user=user, error_code=error.code, error_message=error.message) for user in users
        ]
    )


async def alter_client_quotas(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(ALTER_CONFIGS, CLUSTER):
        return await call(request)
    error = denied(CLUSTER)
    return Struct(
        entries=[
            Struct(error_code=error.code, error_message=error.message, entity=entry.entity)
            for entry in request.entries
        ]
    )


async def describe_user_scram_credentials(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(DESCRIBE, CLUSTER):
        return await call(request)
    code = denied(CLUSTER).code
    one = Struct(user="", error_code=code, error_message=None, credential_infos=[])
    # as in Kafka, the error does not name the resources
    results = [one for _ in request.users or ()]
    return Struct(error_code=code, error_message=None, results=results)


async def describe_client_quotas(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(DESCRIBE_CONFIGS, CLUSTER):
        return await call(request)
    return Struct(error_code=denied(CLUSTER).code, error_message=None, entries=None)


async def describe_log_dirs(check: Check, request: Struct, call: Call) -> Struct:
    if check.allows(DESCRIBE, CLUSTER):
        return await call(request)
    return Struct(error_code=denied(CLUSTER).code, results=[])


def configs(operation: AclOperation, results: str) -> Rule:
    """Per resource: of a topic or a group its own right, of anything else one on the cluster."""

    async def rule(check: Check, request: Struct, call: Call) -> Struct:
        rest: list[Struct] = []
        refused: list[Struct] = []
        unknown = [r for r in request.resources if r.resource_type not in _CONFIG_TYPES]
        if unknown and operation is DESCRIBE_CONFIGS:
            return await call(request)  # the handler refuses the whole request
        for resource in request.resources:
            kind, name = _config_resource(resource)
            # A type that does not exist is refused by the handler.
            if resource in unknown or check.allows(operation, kind, name):
                rest.append(resource)
            else:
                code = CODE_OF[kind]
                refused.append(
                    Struct(
                        error_code=code,
                        error_message=MESSAGES[code],
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                        **({"configs": []} if results == "results" else {}),
                    )
                )
        if refused and not rest:
            return Struct(**{results: refused})
        response = await call(changed(request, resources=rest))
        setattr(response, results, [*getattr(response, results), *refused])
        return response

    return rule


_CONFIG_TYPES = frozenset(ResourceType)


def _config_resource(resource: Struct) -> tuple[AclResource, str]:
    if resource.resource_type == ResourceType.TOPIC:
        return TOPIC, resource.resource_name
    if resource.resource_type == ResourceType.GROUP:
        return GROUP, resource.resource_name
    return CLUSTER, "kafka-cluster"


async def describe_topic_partitions(check: Check, request: Struct, call: Call) -> Struct:
    """Topics that may not be described are refused if named, and hidden otherwise; a cursor at one
    of them stands for the first partition of the next topic."""
    names = [topic.name for topic in request.topics]
    cursor = request.cursor
    if cursor and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        return await call(request)  # the handler refuses it
    asked = sorted(set(names) or check.ctx.broker.metadata.image.topics)
    if cursor:
        asked = [name for name in asked if name >= cursor.topic_name]
    rest: list[str] = []
    refused: list[str] = []
    for name in asked:
        shown = check.allows(DESCRIBE, TOPIC, name, log_denied=bool(names))
        (rest if shown else refused).append(name)
    answers = [
        Struct(error_code=CODE_OF[TOPIC], name=name, partitions=[]) for name in refused if names
    ]
    if not rest:
        return Struct(topics=answers, next_cursor=None)
    if cursor and cursor.topic_name not in rest:
        cursor = None  # the handler would refuse a cursor outside of the topics
    shown_topics = [Struct(name=name) for name in rest]
    response = await call(changed(request, topics=shown_topics, cursor=cursor))
    for topic in response.topics:
        topic.topic_authorized_operations = check.operations(TOPIC, topic.name)
    response.topics = [*response.topics, *answers]
    return response


RULES: Final[dict[str, Rule]] = {
    "add_offsets_to_txn": topics.add_offsets_to_txn,  # WRITE transactional id, READ group
    "add_partitions_to_txn": topics.add_partitions_to_txn,  # WRITE transactional id, WRITE topics
    "add_raft_voter": cluster(ALTER),
    "allocate_producer_ids": cluster(CLUSTER_ACTION),
    "alter_client_quotas": alter_client_quotas,  # ALTER_CONFIGS cluster
    "alter_configs": configs(ALTER_CONFIGS, "responses"),
    "alter_partition": cluster(CLUSTER_ACTION),
    "alter_partition_reassignments": alter_partition_reassignments,  # ALTER cluster
    "alter_replica_log_dirs": alter_replica_log_dirs,  # ALTER cluster
    "alter_share_group_offsets": shares.alter_offsets,  # READ group, READ topics
    "alter_user_scram_credentials": alter_user_scram_credentials,  # ALTER cluster
    "api_versions": open_to_all,
    "assign_replicas_to_dirs": cluster(CLUSTER_ACTION),
    "begin_quorum_epoch": cluster(CLUSTER_ACTION),
    "broker_heartbeat": cluster(CLUSTER_ACTION),
    "broker_registration": cluster(CLUSTER_ACTION),
    "consumer_group_describe": groups.describe_modern_groups,  # DESCRIBE groups, their topics
    "consumer_group_heartbeat": groups.consumer_member,  # READ group, DESCRIBE topics
    "create_acls": cluster(ALTER, "creations", "results"),
    "create_delegation_token": open_to_all,  # CREATE_TOKENS user: in its module
    "create_partitions": per_topic(ALTER, topics.partitions_refused, results="results"),
    "create_topics": topics.create_topics,  # CREATE cluster or topics
    "delete_acls": cluster(ALTER, "filters", "filter_results"),
    "delete_groups": groups.delete_groups,  # DELETE groups
    "delete_records": per_topic(DELETE, topics.deletions_refused),
    "delete_share_group_offsets": shares.delete_offsets,  # DELETE group, READ topics
    "delete_share_group_state": shares.state,  # CLUSTER_ACTION cluster
    "delete_topics": topics.delete_topics,  # DELETE cluster or topics
    "describe_acls": cluster(DESCRIBE),
    "describe_client_quotas": describe_client_quotas,  # DESCRIBE_CONFIGS cluster
    "describe_cluster": open_to_all,  # the operations it lists need DESCRIBE
    "describe_configs": configs(DESCRIBE_CONFIGS, "results"),
    "describe_delegation_token": open_to_all,  # DESCRIBE token, DESCRIBE_TOKENS user: in its module
    "describe_groups": groups.describe_groups,  # DESCRIBE groups
    "describe_log_dirs": describe_log_dirs,  # DESCRIBE cluster
    "describe_producers": per_topic(READ, topics.producers_refused, name_of=topics.valid_name),
    "describe_quorum": cluster(DESCRIBE),
    "describe_share_group_offsets": shares.describe_offsets,  # DESCRIBE groups, topics
    "describe_topic_partitions": describe_topic_partitions,  # DESCRIBE topics
    "describe_transactions": topics.describe_transactions,  # DESCRIBE transactional ids, topics
    "describe_user_scram_credentials": describe_user_scram_credentials,  # DESCRIBE cluster
    "elect_leaders": elect_leaders,  # ALTER cluster
    "end_quorum_epoch": cluster(CLUSTER_ACTION),
    "end_txn": topics.end_txn,  # WRITE transactional id
    # CLUSTER_ACTION of the broker; then the rule of the request inside
    "envelope": cluster(CLUSTER_ACTION),
    "expire_delegation_token": open_to_all,  # as in Kafka; of the owner and the renewers
    "fetch": open_to_all,  # READ topics, CLUSTER_ACTION of followers: in fetch.py
    "fetch_snapshot": cluster(CLUSTER_ACTION),
    "find_coordinator": groups.find_coordinator,  # DESCRIBE groups or transactional ids
    "get_telemetry_subscriptions": open_to_all,  # as in Kafka
    "heartbeat": groups.member,  # READ group
    "incremental_alter_configs": configs(ALTER_CONFIGS, "responses"),
    "init_producer_id": topics.init_producer_id,  # WRITE transactional id, or IDEMPOTENT_WRITE
    "initialize_share_group_state": shares.state,  # CLUSTER_ACTION cluster
    "join_group": groups.member,  # READ group
    "leave_group": groups.member,  # READ group
    "list_config_resources": cluster(DESCRIBE_CONFIGS),
    "list_groups": groups.list_groups,  # DESCRIBE cluster or groups
    "list_offsets": per_topic(DESCRIBE, topics.offsets_refused),
    "list_partition_reassignments": list_partition_reassignments,  # DESCRIBE cluster
    "list_transactions": topics.list_transactions,  # DESCRIBE transactional ids
    "metadata": open_to_all,  # DESCRIBE topics, CREATE of missing ones: in metadata.py
    "offset_commit": groups.offset_commit,  # READ group, READ topics
    "offset_delete": groups.offset_delete,  # DELETE group, READ topics
    "offset_fetch": groups.offset_fetch,  # DESCRIBE groups, DESCRIBE topics
    "offset_for_leader_epoch": per_topic(
        DESCRIBE, topics.epochs_refused, also=CLUSTER_ACTION, name="topic"
    ),
    "produce": open_to_all,  # WRITE topics and transactional id: in produce.py
    "push_telemetry": open_to_all,  # as in Kafka; needs a subscription that an operator made
    "read_share_group_state": shares.state,  # CLUSTER_ACTION cluster
    "read_share_group_state_summary": shares.state,  # CLUSTER_ACTION cluster
    "remove_raft_voter": cluster(ALTER),
    "renew_delegation_token": open_to_all,  # as in Kafka; of the owner and the renewers
    "sasl_authenticate": open_to_all,  # before the client has a principal
    "sasl_handshake": open_to_all,
    "share_acknowledge": shares.share_member,  # READ group, READ topics
    "share_fetch": shares.share_member,  # READ group, READ topics
    "share_group_describe": groups.describe_modern_groups,  # DESCRIBE groups, their topics
    "share_group_heartbeat": groups.consumer_member,  # READ group, DESCRIBE topics
    "streams_group_describe": streams.describe,  # DESCRIBE groups, their topics
    "streams_group_heartbeat": streams.member,  # READ group, DESCRIBE topics, CREATE some
    "sync_group": groups.member,  # READ group
    "txn_offset_commit": groups.txn_offset_commit,  # WRITE transactional id, READ group, topics
    "unregister_broker": cluster(ALTER),
    "update_features": cluster(ALTER),
    "update_raft_voter": cluster(CLUSTER_ACTION),
    "vote": cluster(CLUSTER_ACTION),
    "write_share_group_state": shares.state,  # CLUSTER_ACTION cluster
    "write_txn_markers": topics.write_txn_markers,  # ALTER or CLUSTER_ACTION cluster
}
