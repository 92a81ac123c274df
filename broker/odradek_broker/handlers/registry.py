"""The table of APIs, one line each: the handler module and who may send the request, and when.

ApiVersions advertises exactly the APIs for clients. The APIs between brokers and controllers are
served on the listener of the quorum only. If that is the inter-broker listener, they are not
advertised, as on Apache Kafka's broker listeners. A listener of controller.listener.names serves
and advertises the APIs that Kafka's controllers have (`controller=True`), and no others.

A handler module has `API_KEY`, `VERSIONS` and one of
- `handle(ctx, request) -> Struct` (or `async def`, if it awaits something): the request comes
  decoded, the response is encoded in the version of the request;
- `serve(ctx, frame, body_at)`: the hot path (Produce, Fetch), which decodes the request itself,
  answers through `ctx.respond` and creates no coroutine.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

from odradek_broker.handlers.access_rules import RULES
from odradek_broker.handlers.api_table import ApiTable
from odradek_broker.handlers.authorization import guarded
from odradek_broker.handlers.handler import FOR_CLIENTS, Access, Handler
from odradek_broker.runtime.metrics import Metrics

CLIENTS: Final = FOR_CLIENTS
# The active controller decides these; another broker forwards them in an Envelope (forwarding.py).
CONTROLLER: Final = Access(controller=True, forwardable=True)
# Every broker answers these from its own metadata, also on the listener of a controller.
BOTH: Final = Access(controller=True)
# Between brokers and controllers. Served while the broker is starting, because the quorum and the
# controller may need them before this broker can be ready.
BROKERS: Final = Access(internal=True, controller=True, early=True, urgent=True)
# Carries the request of a client, so it is not urgent.
ENVELOPE: Final = Access(internal=True, controller=True, early=True)
# For clients, but brokers send them too while this one is starting (Fetch: of the metadata log).
EARLY: Final = Access(controller=True, early=True)

APIS: Final[dict[str, Access]] = {
    "add_offsets_to_txn": CLIENTS,
    "add_partitions_to_txn": CLIENTS,
    "add_raft_voter": CONTROLLER,
    "allocate_producer_ids": BROKERS,
    "alter_client_quotas": CONTROLLER,
    "alter_configs": CONTROLLER,
    "alter_partition": BROKERS,
    "alter_partition_reassignments": CONTROLLER,
    "alter_replica_log_dirs": CLIENTS,
    "alter_share_group_offsets": CLIENTS,
    "alter_user_scram_credentials": CONTROLLER,
    "api_versions": EARLY,
    "assign_replicas_to_dirs": BROKERS,
    "begin_quorum_epoch": BROKERS,
    "broker_heartbeat": BROKERS,
    "broker_registration": BROKERS,
    "consumer_group_describe": CLIENTS,
    "consumer_group_heartbeat": CLIENTS,
    "create_acls": CONTROLLER,
    "create_delegation_token": CONTROLLER,
    "create_partitions": CONTROLLER,
    "create_topics": CONTROLLER,
    "delete_acls": CONTROLLER,
    "delete_groups": CLIENTS,
    "delete_records": CLIENTS,
    "delete_share_group_offsets": CLIENTS,
    "delete_share_group_state": CLIENTS,
    "delete_topics": CONTROLLER,
    "describe_acls": BOTH,
    "describe_client_quotas": CLIENTS,
    "describe_cluster": BOTH,
    "describe_configs": BOTH,
    "describe_delegation_token": BOTH,
    "describe_groups": CLIENTS,
    "describe_log_dirs": CLIENTS,
    "describe_producers": CLIENTS,
    "describe_quorum": CONTROLLER,
    "describe_share_group_offsets": CLIENTS,
    "describe_topic_partitions": CLIENTS,
    "describe_transactions": CLIENTS,
    "describe_user_scram_credentials": BOTH,
    "elect_leaders": CONTROLLER,
    "end_quorum_epoch": BROKERS,
    "end_txn": CLIENTS,
    "envelope": ENVELOPE,
    "expire_delegation_token": CONTROLLER,
    "fetch": EARLY,
    "fetch_snapshot": BROKERS,
    "find_coordinator": CLIENTS,
    "get_telemetry_subscriptions": CLIENTS,
    "heartbeat": CLIENTS,
    "incremental_alter_configs": CONTROLLER,
    "init_producer_id": CLIENTS,
    "initialize_share_group_state": CLIENTS,
    "join_group": CLIENTS,
    "leave_group": CLIENTS,
    "list_config_resources": CLIENTS,
    "list_groups": CLIENTS,
    "list_offsets": CLIENTS,
    "list_partition_reassignments": BOTH,
    "list_transactions": CLIENTS,
    "metadata": CLIENTS,
    "offset_commit": CLIENTS,
    "offset_delete": CLIENTS,
    "offset_fetch": CLIENTS,
    "offset_for_leader_epoch": CLIENTS,
    "produce": CLIENTS,
    "push_telemetry": CLIENTS,
    "read_share_group_state": CLIENTS,
    "read_share_group_state_summary": CLIENTS,
    "remove_raft_voter": CONTROLLER,
    "renew_delegation_token": CONTROLLER,
    "sasl_authenticate": EARLY,
    "sasl_handshake": EARLY,
    "share_acknowledge": CLIENTS,
    "share_fetch": CLIENTS,
    "share_group_describe": CLIENTS,
    "share_group_heartbeat": CLIENTS,
    "streams_group_describe": CLIENTS,
    "streams_group_heartbeat": CLIENTS,
    "sync_group": CLIENTS,
    "txn_offset_commit": CLIENTS,
    "unregister_broker": CONTROLLER,
    "update_features": CONTROLLER,
    "update_raft_voter": BROKERS,
    "vote": BROKERS,
    "write_share_group_state": CLIENTS,
    "write_txn_markers": CLIENTS,
}


def handler_modules() -> dict[str, ModuleType]:
    """Every module of the table, imported, by its name."""
    return {name: import_module(f"odradek_broker.handlers.{name}") for name in APIS}


def build_apis(metrics: Metrics) -> ApiTable:
    return ApiTable([_handler(name, module, metrics) for name, module in handler_modules().items()])


def _handler(name: str, module: ModuleType, metrics: Metrics) -> Handler:
    api_name = "".join(part.capitalize() for part in name.split("_"))
    contents = vars(module)
    handle = contents.get("handle")
    return Handler(
        api_key=module.API_KEY,
        name=api_name,
        versions=module.VERSIONS,
        metrics=metrics.request(api_name),
        handle=guarded(RULES[name], handle) if handle else None,
        serve=contents.get("serve"),
        access=APIS[name],
    )
