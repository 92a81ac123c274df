"""ElectLeaders (43), v0–2: leadership to the preferred replicas, or at any price to somebody.

Decided by the controller, per partition. Version 0 knows only preferred ones.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.wire.struct import Struct

API_KEY = 43
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await to_controller(ctx, request, ctx.broker.controller.elect_leaders)
    except KafkaError as error:
        if error.code is ErrorCode.not_controller:
            raise
        return Struct(error_code=error.code, replica_election_results=[])
