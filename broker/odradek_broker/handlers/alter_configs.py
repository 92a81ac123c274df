"""AlterConfigs (33), v0–2: replaces all settings of a topic, a group, a broker, …

Settings that the request does not name go back to their defaults (IncrementalAlterConfigs changes
single ones). Decided by the controller.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 33
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await to_controller(ctx, request, ctx.broker.controller.alter_configs)
    except KafkaError as error:
        return Struct(
            responses=[
                refused(error, resource_type=r.resource_type, resource_name=r.resource_name)
                for r in request.resources
            ]
        )
