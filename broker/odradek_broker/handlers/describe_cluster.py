"""DescribeCluster (60), v0–2: cluster id, brokers, controller.

On a listener of controller.listener.names it shows the voters, at their endpoints of that listener;
on others the brokers. As in Kafka, a request for the other kind is refused.
"""

from odradek_broker.handlers.authorization import cluster_operations
from odradek_broker.handlers.cluster_view import (
    OPERATIONS_NOT_ASKED,
    ClusterView,
)
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 60
VERSIONS = range(0, 3)

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
ENDPOINTS = {BROKER_ENDPOINTS: "BROKER", CONTROLLER_ENDPOINTS: "CONTROLLER"}


def handle(ctx: RequestContext, request: Struct) -> Struct:
    own_type = BROKER_ENDPOINTS
    if ctx.listener in ctx.broker.settings.listeners.controller_names:
        own_type = CONTROLLER_ENDPOINTS
    asked_type = request.endpoint_type if ctx.api_version >= 1 else BROKER_ENDPOINTS
    if asked_type != own_type:
        return _wrong_endpoint(asked_type, own_type)
    view = ClusterView(ctx)
    shown = view.brokers()
    if own_type == CONTROLLER_ENDPOINTS:
        voters = {voter.id for voter in ctx.broker.quorum.voters}
        shown = [broker for broker in shown if broker.id in voters]
    brokers = []
    for broker in shown:
        if broker.fenced and not request.include_fenced_brokers:
            continue
        endpoint = view.endpoint(broker)
        brokers.append(
            Struct(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    operations = OPERATIONS_NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(ctx)
    return Struct(
        error_code=ErrorCode.none,
        endpoint_type=own_type,
        cluster_id=ctx.broker.cluster_id,
        controller_id=view.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


def _wrong_endpoint(asked_type: int, own_type: int) -> Struct:
    code = ErrorCode.unsupported_endpoint_type
    message = f"Unsupported endpoint type {asked_type}"
    if asked_type in ENDPOINTS:
        code = ErrorCode.mismatched_endpoint_type
        message = (
            f"The request was sent to an endpoint of type {ENDPOINTS[own_type]}, but we wanted an "
            f"endpoint of type {ENDPOINTS[asked_type]}"
        )
    return Struct(
        error_code=code,
        error_message=message,
        endpoint_type=own_type,
        cluster_id="",
        controller_id=-1,
        brokers=[],
        cluster_authorized_operations=OPERATIONS_NOT_ASKED,
    )
