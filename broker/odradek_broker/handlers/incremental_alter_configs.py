"""IncrementalAlterConfigs (44), v0–1: changes settings of topics, groups, brokers, loggers,
client metrics.

The controller decides changes of all but loggers. Log levels (resource type
BROKER_LOGGER) are those of this process and are lost when it ends.
"""

from odradek_broker.handlers import broker_loggers
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 44
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    loggers = ResourceType.BROKER_LOGGER
    rest = [r for r in request.resources if r.resource_type != loggers]
    try:
        changed = await to_controller(
            ctx,
            Struct(resources=rest, validate_only=request.validate_only),
            ctx.broker.controller.incremental_alter_configs,
        )
        answers = changed.responses
    except KafkaError as error:
        answers = [
            refused(error, resource_type=r.resource_type, resource_name=r.resource_name)
            for r in rest
        ]
    remaining = iter(answers)
    return Struct(
        responses=[
            broker_loggers.alter(ctx.broker.node_id, resource, request.validate_only)
            if resource.resource_type == loggers
            else next(remaining)
            for resource in request.resources
        ]
    )
