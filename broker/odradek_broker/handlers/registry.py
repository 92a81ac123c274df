"""The table of APIs: what is in it is offered by ApiVersions, and nothing else is.

Except what brokers and controllers ask each other (`INTERNAL_MODULES`): that is served where other
brokers connect, and advertised nowhere, as by Apache Kafka's broker listeners.

A handler module has `API_KEY`, `VERSIONS` and one of
- `handle(ctx, request) -> Struct` (or `async def`, if it awaits something): the request comes
  decoded, the answer is encoded for it in the version that the client asked in;
- `serve(ctx, frame, body_at)`: the hot path (Produce, Fetch), which decodes, answers through
  `ctx.respond` and builds no coroutine.
"""

from types import ModuleType

from odradek_broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
    write_txn_markers,
)
from odradek_broker.handlers.handler import Handler
from odradek_broker.runtime.metrics import Metrics

MODULES: tuple[ModuleType, ...] = (
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
    write_txn_markers,
    list_transactions,
    end_txn,
    describe_transactions,
    describe_producers,
    add_partitions_to_txn,
    add_offsets_to_txn,
)

# What only brokers and controllers ask: Apache Kafka advertises it on controller listeners alone.
INTERNAL_MODULES: tuple[ModuleType, ...] = (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    end_quorum_epoch,
    envelope,
    fetch_snapshot,
    update_raft_voter,
    vote,
)

# Decided by the active controller, so other brokers may forward them here (forwarding.py).
CONTROLLER_MODULES: tuple[ModuleType, ...] = (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    remove_raft_voter,
    unregister_broker,
    update_features,
)


def build_handlers(metrics: Metrics) -> dict[int, Handler]:
    handlers = {}
    for module in MODULES:
        name = "".join(part.capitalize() for part in module.__name__.split(".")[-1].split("_"))
        handlers[module.API_KEY] = Handler(
            api_key=module.API_KEY,
            name=name,
            versions=module.VERSIONS,
            metrics=metrics.request(name),
            handle=getattr(module, "handle", None),
            serve=getattr(module, "serve", None),
            internal=module in INTERNAL_MODULES,
        )
    assert len(handlers) == len(MODULES), "two handlers for one API key"
    envelope.accept({m.API_KEY: (m.VERSIONS, m.handle) for m in CONTROLLER_MODULES})
    api_versions.offer(
        {k: handler.versions for k, handler in handlers.items() if not handler.internal}
    )
    return handlers
