"""DescribeCluster (60), v0–2: cluster id, brokers, controller.

Broker endpoints only: controllers have no endpoints of their own.
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


def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.api_version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
        return _wrong_endpoint(request.endpoint_type)
    view = ClusterView(ctx)
    brokers = []
    for broker in view.brokers():
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
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=ctx.broker.cluster_id,
        controller_id=view.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


def _wrong_endpoint(endpoint_type: int) -> Struct:
    code = ErrorCode.unsupported_endpoint_type
    message = f"Unsupported endpoint type {endpoint_type}"
    if endpoint_type == CONTROLLER_ENDPOINTS:
        code = ErrorCode.mismatched_endpoint_type
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER"
        )
    return Struct(
        error_code=code,
        error_message=message,
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id="",
        controller_id=-1,
        brokers=[],
        cluster_authorized_operations=OPERATIONS_NOT_ASKED,
    )
